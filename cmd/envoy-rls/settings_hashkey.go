package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// hashKeySettings are about what rules have hashed.
type hashKeySettings struct {
	HashKeyFile string `env:"HASH_KEY_FILE" placeholder:"FILE" help:"A secret that values are hashed by where rules say hash: true, the same for all replicas: without it, what can be guessed can be told from its hash. It is read at the start; another one begins those counters anew."`
}

// hashKey is the key in the file, or nil.
func (s *settings) hashKey() (*descriptors.HashKey, error) {
	switch {
	case s.HashKeyFile == "":
		return nil, nil
	case s.replacedNames():
		return nil, errors.New("--hash-key-file (HASH_KEY_FILE) and --key-format=envoyproxy-ratelimit (KEY_FORMAT): that service's keys have " +
			"values as they are sent, and hashed ones would share no counter with it; give one of the two")
	}
	secret, err := readSecret(s.HashKeyFile)
	if err != nil {
		return nil, fmt.Errorf("--hash-key-file (HASH_KEY_FILE): %w", err)
	}
	return descriptors.NewHashKey(secret), nil
}

func (s *settings) checkHashKey() []error {
	if _, err := s.hashKey(); err != nil {
		return []error{err}
	}
	return nil
}

// shortestSecret is in bytes.
const shortestSecret = 16

// readSecret reads a secret that values are hashed by.
func readSecret(file string) ([]byte, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	secret := bytes.TrimSpace(text)
	if len(secret) < shortestSecret {
		return nil, fmt.Errorf("%s holds %d bytes: want a secret of %d or more, as from head -c 32 /dev/urandom | base64",
			file, len(secret), shortestSecret)
	}
	return secret, nil
}
