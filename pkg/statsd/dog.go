package statsd

import (
	"io"
	"net"
	"sync"
	"time"

	"github.com/DataDog/datadog-go/v5/statsd"
)

const (
	// maxTimes is how many times are sent at most; DogStatsD is told how many they stand for.
	maxTimes = 200
	// maxPending is how many samples the client gets before it sends them: they must fit its queue.
	maxPending = 1000
	// pooled is how many buffers the client makes beforehand.
	pooled = 64
)

// dog writes for DogStatsD by its own client, which adds up what mogrifiers give one name.
type dog struct {
	tags       []string
	mogrifiers []*Mogrifier

	mu     sync.Mutex
	failed error // noted by a goroutine of the client
}

func (d *dog) write(conn net.Conn, samples []sample) error {
	client, err := statsd.NewWithWriter(leftOpen{conn},
		statsd.WithTags(d.tags),
		statsd.WithoutTelemetry(),
		statsd.WithWorkersCount(1),
		statsd.WithMaxBytesPerPayload(maxPacket),
		statsd.WithBufferPoolSize(pooled),
		statsd.WithSenderQueueSize(maxPending),
		statsd.WithExtendedClientSideAggregation(),
		statsd.WithMaxSamplesPerContext(maxTimes),
		statsd.WithAggregationInterval(time.Hour), // it is flushed here
		statsd.WithErrorHandler(d.note),
	)
	if err != nil {
		return err
	}
	for i := range samples {
		d.add(client, &samples[i])
		if i%maxPending == maxPending-1 {
			d.note(client.Flush())
		}
	}
	d.note(client.Close())
	d.mu.Lock()
	defer d.mu.Unlock()
	err, d.failed = d.failed, nil
	return err
}

// leftOpen is not closed by the client.
type leftOpen struct{ io.Writer }

// Close implements io.Closer.
func (leftOpen) Close() error { return nil }

func (d *dog) note(err error) {
	if err == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.failed = err
}

// add gives the client a sample, which it doesn't refuse before its end.
func (d *dog) add(client *statsd.Client, s *sample) {
	name, tags := s.name, []string(nil)
	for _, m := range d.mogrifiers {
		if to, own, ok := m.mogrify(name); ok {
			name, tags = to, own
			break
		}
	}
	switch s.kind {
	case kindCounter:
		_ = client.Count(name, int64(s.value), tags, 1)
	case kindGauge:
		_ = client.Gauge(name, s.value, tags, 1)
	case kindTime:
		for range s.calls {
			_ = client.TimeInMilliseconds(name, s.value, tags, 1)
		}
	}
}
