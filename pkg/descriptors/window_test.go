package descriptors

import (
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

func TestTheNearestWindowHasTheRateAndAboutThePeriod(t *testing.T) {
	const most = 1<<32 - 1
	bucket := func(requests, burst uint32, period time.Duration) limiter.Limit {
		return limiter.Limit{Algorithm: limiter.TokenBucket, Requests: requests, Burst: burst, Period: period}
	}
	every := func(requests uint32, period time.Duration) limiter.Limit {
		return limiter.Limit{Requests: requests, Period: period}
	}
	for _, c := range []struct {
		limit limiter.Limit
		want  window
	}{
		{every(7, time.Hour), window{7, Hour}},
		{every(7, 7*day), window{7, Week}},
		{every(0, 15*time.Minute), window{0, Hour}},
		{every(5, 15*time.Minute), window{20, Hour}},
		{every(10, 5*time.Second), window{2, Second}},
		{every(7, 2*time.Minute), window{3, Minute}},
		{every(1, 30*time.Second), window{2, Minute}}, // none a second would refuse everything
		{every(1, limiter.MaxPeriod), window{1, Year}},
		{every(most, 15*time.Minute), window{most / 15, Minute}}, // four times as many are no number
		{bucket(100, 100, time.Second), window{100, Second}},
		{bucket(100, 400, time.Second), window{100, Second}},
		{bucket(1000, 10, time.Minute), window{16, Second}},
		{bucket(20, 500, time.Second), window{1200, Minute}},
		{bucket(1, 1, limiter.MaxPeriod), window{1, Year}},
	} {
		if got := nearestWindow(&c.limit); got != c.want {
			t.Errorf("%+v becomes %d per %s, want %d per %s", c.limit, got.requests, got.unit, c.want.requests, c.want.unit)
		}
	}
}
