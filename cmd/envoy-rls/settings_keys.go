package main

// keySettings are about the names of keys in Redis.
type keySettings struct {
	Format keyFormat `env:"KEY_FORMAT" default:"envoy-rls" placeholder:"NAME" help:"envoy-rls, or for a switch envoyproxy-ratelimit: fixed windows of one unit share that service's counters. Their names collide: nothing in them is escaped, and they don't tell units apart. Not in a cluster."`
}

// keyFormat is how keys are named.
type keyFormat string

const keyFormatReplaced keyFormat = compatName

// UnmarshalText implements encoding.TextUnmarshaler.
func (f *keyFormat) UnmarshalText(text []byte) error {
	return oneOf(f, text, "envoy-rls", keyFormatReplaced)
}

// replacedNames tells whether counters have the names of the replaced service. In memory it would make no difference.
func (s *settings) replacedNames() bool {
	return s.Keys.Format == keyFormatReplaced && s.storeKind() == storeRedis
}
