package descriptors_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

const hashedRules = `
domain: d
keys: {email: {lowercase: true, hash: true}}
descriptors:
  - {key: email, value: Ann@x.org, rate_limit: {unit: hour, requests_per_unit: 1}}
  - {key: email, rate_limit: {unit: hour, requests_per_unit: 2}}
`

// TestValuesAreHashedByTheSecret has many goroutines prepare values of all lengths around those of SHA-256's blocks.
func TestValuesAreHashedByTheSecret(t *testing.T) {
	secret := []byte("a secret of some length")
	domain := compile(t, descriptors.Options{HashKey: descriptors.NewHashKey(secret)}, hashedRules).Domain("d")
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(func() {
			var buffer []byte
			for n := range 200 {
				list := []descriptors.Entry{{Key: "email", Value: strings.Repeat("é", n)}, {Key: "other", Value: "as it is"}, {Key: "email", Value: "ANN@x.org"}}
				buffer = domain.AppendPrepared(buffer[:0], list)
				if want := byHMAC(secret, strings.Repeat("é", n)); list[0].Value != want || list[1].Value != "as it is" || list[2].Value != byHMAC(secret, "ann@x.org") {
					t.Errorf("of %d letters: %v, want %s", n, list, want)
				}
			}
		})
	}
	workers.Wait()
}

func byHMAC(secret []byte, value string) string {
	mac := hmac.New(sha256.New, secret)
	mac.Write([]byte(value))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

func TestARulesOwnValuesAreHashedByTheSecretToo(t *testing.T) {
	for _, secret := range []string{"", "one", "another"} {
		o := descriptors.Options{}
		if secret != "" {
			o.HashKey = descriptors.NewHashKey([]byte(secret))
		}
		domain := compile(t, o, hashedRules).Domain("d")
		for sent, want := range map[string]uint32{"email=ANN@x.org": 1, "email=bob@x.org": 2} {
			list := entries(sent)
			domain.Prepare(list)
			if r := domain.Match(list); r == nil || r.Limits[0].Requests != want {
				t.Errorf("by the secret %q, %s matches %+v, want the limit of %d", secret, sent, r, want)
			}
		}
	}
}

func TestRulesUnderAnotherSecretHaveAnotherHash(t *testing.T) {
	hash := func(key *descriptors.HashKey) string {
		return compile(t, descriptors.Options{HashKey: key}, hashedRules).Hash
	}
	one, again, other := descriptors.NewHashKey([]byte("one")), descriptors.NewHashKey([]byte("one")), descriptors.NewHashKey([]byte("other"))
	if hash(one) != hash(again) {
		t.Error("one secret makes two hashes")
	}
	if hash(one) == hash(other) || hash(one) == hash(nil) {
		t.Error("two secrets make one hash")
	}
}

func TestAHashKeyIsPrintedByItsName(t *testing.T) {
	o := descriptors.Options{HashKey: descriptors.NewHashKey([]byte("a secret"))}
	if text := fmt.Sprintf("%+v %v", o, o); strings.Contains(text, "secret") || strings.Contains(text, "0x") || !strings.Contains(text, o.HashKey.String()) {
		t.Errorf("it is printed as %s", text)
	}
}
