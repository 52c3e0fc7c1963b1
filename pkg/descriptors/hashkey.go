package descriptors

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"sync"
)

// hashedBits is how much of a hash stands for a value: of a billion values, the chance that any two have one is 2^-69.
const hashedBits = 128

// HashKey is a secret that values are hashed by. Without it nobody can tell a value from its hash by hashing all that it
// might be. nil is no secret: SHA-256 alone. Any number of goroutines may use it.
type HashKey struct {
	macs sync.Pool // of hash.Hash
	name string
}

// NewHashKey makes a key of a secret, which it copies.
func NewHashKey(secret []byte) *HashKey {
	secret = bytes.Clone(secret)
	k := &HashKey{}
	k.macs.New = func() any { return hmac.New(sha256.New, secret) }
	k.name = string(k.appendHash(nil, "\x00the key")[:8])
	return k
}

// String names the key and tells nothing of the secret. It is "" for nil.
func (k *HashKey) String() string {
	if k == nil {
		return ""
	}
	return k.name
}

// appendHash appends what stands for a value, in hex.
func (k *HashKey) appendHash(dst []byte, value string) []byte {
	start := len(dst)
	dst = append(dst, value...)
	var sum [sha256.Size]byte
	if k == nil {
		sum = sha256.Sum256(dst[start:])
	} else {
		mac := k.macs.Get().(hash.Hash)
		mac.Reset()
		_, _ = mac.Write(dst[start:]) // a hash takes everything
		end := len(dst)
		dst = mac.Sum(dst) // an array would be on the heap
		copy(sum[:], dst[end:])
		k.macs.Put(mac)
	}
	return hex.AppendEncode(dst[:start], sum[:hashedBits/8])
}
