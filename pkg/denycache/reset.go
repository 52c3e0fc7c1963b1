package denycache

// Reset forgets all denials, also those that are under way: counters have been reset or given back elsewhere.
func (s *Store) Reset() {
	now := s.clock()
	for i := range s.denials.buckets {
		s.denials.buckets[i].reset(now)
	}
}

func (b *bucket) reset(now int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.upset = max(b.upset, now)
	for i := range b.denials {
		b.denials[i].Store(nil)
	}
}
