package denycache_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/denycache"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/memstore"
)

func TestAResetForgetsAllDenials(t *testing.T) {
	p := newPair(t, denycache.Options{MaxAge: time.Hour})
	for i := range 100 {
		p.decide(hit(fmt.Sprint(i), 3))
	}
	p.clock.Advance(time.Second)
	p.cache.Reset()
	if n := p.cache.Len(); n != 0 {
		t.Errorf("%d denials are left", n)
	}
	p.clock.Advance(time.Microsecond)
	p.decide(hit("0", 3))
	p.remembers(hit("0", 3))
}

// TestAResetForgetsADenialThatIsUnderWay: the other store may have decided before the counter was reset.
func TestAResetForgetsADenialThatIsUnderWay(t *testing.T) {
	p := newPair(t, denycache.Options{})
	behind := memstore.New(memstore.Options{Now: p.clock.Now})
	cache := denycache.New(during{behind, func() { p.cache.Reset() }}, denycache.Options{Now: p.clock.Now, MaxAge: time.Hour})
	p.cache = cache
	p.decide(hit("a", 3))
	if n := p.cache.Len(); n != 0 {
		t.Errorf("%d denials are remembered", n)
	}
}

// during does something between a decision and its return.
type during struct {
	limiter.Store
	do func()
}

// Decide implements limiter.Store.
func (d during) Decide(ctx context.Context, b *limiter.Batch) error {
	err := d.Store.Decide(ctx, b)
	d.do()
	return err
}
