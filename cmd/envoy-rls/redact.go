package main

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
)

// redactor has hashes stand for the values of descriptors: equal ones for equal values, from which, without the key, no
// guess can be told to be right.
type redactor struct{ key []byte }

// newRedactor reads the key from a file, or makes one that is random.
func newRedactor(file string) (*redactor, error) {
	if file == "" {
		return &redactor{key: []byte(rand.Text())}, nil
	}
	key, err := readSecret(file)
	if err != nil {
		return nil, fmt.Errorf("--redact-key-file (REDACT_KEY_FILE): %w", err)
	}
	return &redactor{key}, nil
}

// value stands for a value.
func (r *redactor) value(v string) string {
	if v == "" {
		return ""
	}
	return "~" + r.hash(v)
}

// name names the key, and tells nothing of it.
func (r *redactor) name() string { return r.hash("\x00the key") }

func (r *redactor) hash(text string) string {
	h := hmac.New(sha256.New, r.key)
	_, _ = h.Write([]byte(text)) // it never fails
	return hex.EncodeToString(h.Sum(nil)[:5])
}
