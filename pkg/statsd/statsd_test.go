package statsd_test

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
	"github.com/envoy-rls/envoy-rls/pkg/metrics"
	"github.com/envoy-rls/envoy-rls/pkg/statsd"
)

const interval = 20 * time.Millisecond

// numbers are what is counted, and what came of sending it.
type numbers struct {
	mu      sync.Mutex
	stats   []metrics.Stat
	asked   int
	changes []error
}

func (n *numbers) set(stats ...metrics.Stat) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stats = stats
}

func (n *numbers) get() []metrics.Stat {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.asked++
	return n.stats
}

// flushes is how often it was asked for numbers.
func (n *numbers) flushes() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.asked
}

func (n *numbers) changed(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.changes = append(n.changes, err)
}

// told are the changes as words.
func (n *numbers) told() (words []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, err := range n.changes {
		if err == nil {
			words = append(words, "works")
			continue
		}
		words = append(words, "fails")
	}
	return words
}

func (n *numbers) options(network, address string) statsd.Options {
	return statsd.Options{
		Address: address, Network: network, Interval: interval, Tags: statsd.Tags{"env": "prod", "az": "b"},
		Stats: n.get, Changed: n.changed,
	}
}

// run runs a sender until the test's end, or until stop, which waits for it.
func run(t *testing.T, s *statsd.Sender) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { s.Run(ctx) })
	stop = func() {
		cancel()
		running.Wait()
	}
	t.Cleanup(stop)
	return stop
}

// lines are what a server has read.
type lines struct {
	mu   sync.Mutex
	read []string
}

func (l *lines) add(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(text) {
		l.read = append(l.read, strings.TrimSuffix(line, "\n"))
	}
}

func (l *lines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.read)
}

// await waits until there are lines that begin so.
func (l *lines) await(t *testing.T, want ...string) {
	t.Helper()
	for _, w := range want {
		proctest.Eventually(t, w+" arrives", func() bool {
			return slices.ContainsFunc(l.all(), func(line string) bool { return strings.HasPrefix(line, w) })
		})
	}
}

func tcpServer(t *testing.T, address string) (*lines, string) {
	t.Helper()
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	l := &lines{}
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				for s := bufio.NewScanner(conn); s.Scan(); {
					l.add(s.Text())
				}
				_ = conn.Close()
			}()
		}
	}()
	return l, listener.Addr().String()
}

func udpServer(t *testing.T) (*lines, string) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	l := &lines{}
	go func() {
		packet := make([]byte, 1<<16)
		for {
			n, _, err := conn.ReadFrom(packet)
			if err != nil {
				return
			}
			if n > 1432 {
				t.Errorf("a packet of %d bytes", n)
			}
			l.add(string(packet[:n]))
		}
	}()
	return l, conn.LocalAddr().String()
}

const hits = "ratelimit.service.rate_limit.shop.user.total_hits"

func counted(n float64) metrics.Stat { return metrics.Stat{Name: hits, Value: n} }

func TestAStatsdGetsWhatWasAddedAndGaugesAsTheyAre(t *testing.T) {
	for _, network := range []string{"tcp", "udp"} {
		t.Run(network, func(t *testing.T) {
			l, address := udpServer(t)
			if network == "tcp" {
				l, address = tcpServer(t, "127.0.0.1:0")
			}
			n := &numbers{}
			n.set(counted(3), metrics.Stat{Name: "never"}, metrics.Stat{Name: "gauge", Gauge: true, Value: 2.5})
			stop := run(t, statsd.New(n.options(network, address)))
			l.await(t, hits+".__az=b.__env=prod:3|c", "gauge.__az=b.__env=prod:2.5|g")
			n.set(counted(10))
			l.await(t, hits+".__az=b.__env=prod:7|c")
			n.set(counted(2)) // it has begun anew
			l.await(t, hits+".__az=b.__env=prod:2|c")
			n.set(counted(1002))
			stop() // sends once more
			l.await(t, hits+".__az=b.__env=prod:1000|c")
			if got := l.all(); len(slices.DeleteFunc(got, func(line string) bool { return !strings.HasPrefix(line, hits) })) != 4 {
				t.Errorf("what did not change was sent: %q", l.all())
			}
			if told := n.told(); !slices.Equal(told, []string{"works"}) {
				t.Errorf("told %q", told)
			}
		})
	}
}

func TestAStatsdThatIsAwayGetsEverythingOnceItIsThere(t *testing.T) {
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(proctest.FreePort(t)))
	n := &numbers{}
	n.set(counted(1))
	stop := run(t, statsd.New(n.options("tcp", address)))
	proctest.Eventually(t, "it fails", func() bool { return len(n.told()) > 0 })
	n.set(counted(5))
	l, _ := tcpServer(t, address)
	l.await(t, hits+".__az=b.__env=prod:5|c")
	stop() // what arrives may be ahead of the report
	if told := n.told(); !slices.Equal(told, []string{"fails", "works"}) {
		t.Errorf("told %q", told)
	}
}

func TestAStatsdThatDoesNotReadBlocksNobody(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	n := &numbers{}
	var many []metrics.Stat
	for i := range 200_000 {
		many = append(many, metrics.Stat{Name: strings.Repeat("x", 100), Gauge: true, Value: float64(i)})
	}
	n.set(many...)
	run(t, statsd.New(n.options("tcp", listener.Addr().String())))
	proctest.Eventually(t, "it gives up", func() bool { return slices.Equal(n.told(), []string{"fails"}) })
}

func TestManyNumbersGoInPacketsThatFit(t *testing.T) {
	l, address := udpServer(t)
	n := &numbers{}
	var many []metrics.Stat
	for range 500 {
		many = append(many, metrics.Stat{Name: strings.Repeat("x", 100), Gauge: true, Value: 1})
	}
	n.set(many...)
	run(t, statsd.New(n.options("udp", address)))
	proctest.Eventually(t, "all arrive", func() bool { return len(l.all()) >= len(many) })
}

// spent are calls of which two took up to 1 ms and one more than 2 ms; all took 6 ms.
func spent() metrics.Stat {
	return metrics.Stat{Name: "response_time", Times: &metrics.Times{
		UpTo: []time.Duration{time.Millisecond, 2 * time.Millisecond}, Counts: []uint64{2, 0, 1}, Sum: 6 * time.Millisecond,
	}}
}

func TestTimesComeToWhatCallsTook(t *testing.T) {
	l, address := tcpServer(t, "127.0.0.1:0")
	n := &numbers{}
	n.set(spent())
	run(t, statsd.New(n.options("tcp", address)))
	l.await(t, "response_time.__az=b.__env=prod:1.000|ms|@0.4999", "response_time.__az=b.__env=prod:4.000|ms")
}

func TestDogStatsDGetsTagsAndRewrittenNames(t *testing.T) {
	l, address := udpServer(t)
	m, err := statsd.NewMogrifier(`^ratelimit\.service\.rate_limit\.([^.]*)\..*\.([^.]*)$`, "limits.$2", "domain:$1,kind:a$")
	if err != nil {
		t.Fatal(err)
	}
	n := &numbers{}
	n.set(counted(3), metrics.Stat{Name: "ratelimit.service.rate_limit.a,b|c.user.total_hits", Value: 1},
		metrics.Stat{Name: "gauge", Gauge: true, Value: 2.5}, spent())
	stop := run(t, statsd.NewDog(n.options("", address), []*statsd.Mogrifier{m}))
	l.await(t, "limits.total_hits:3|c|#az:b,env:prod,domain:shop,kind:a$", "gauge:2.5|g|#az:b,env:prod",
		"limits.total_hits:1|c|#az:b,env:prod,domain:a_b_c,kind:a$", "response_time:1")
	n.set(counted(10))
	stop()
	l.await(t, "limits.total_hits:7|c|#az:b,env:prod,domain:shop,kind:a$")
	if told := n.told(); !slices.Equal(told, []string{"works"}) {
		t.Errorf("told %q", told)
	}
}

func TestADogStatsDThatIsAwayIsToldOf(t *testing.T) {
	n := &numbers{}
	n.set(counted(3))
	run(t, statsd.NewDog(n.options("", "nowhere.invalid:8125"), nil))
	proctest.Eventually(t, "it fails", func() bool { return slices.Equal(n.told(), []string{"fails"}) })
}

func TestNobodyListeningByUDPIsToldOfOnce(t *testing.T) {
	address := net.JoinHostPort("127.0.0.1", fmt.Sprint(proctest.FreePort(t)))
	for name, sender := range map[string]func(*numbers) *statsd.Sender{
		"plain": func(n *numbers) *statsd.Sender { return statsd.New(n.options("udp", address)) },
		"dog":   func(n *numbers) *statsd.Sender { return statsd.NewDog(n.options("", address), nil) },
	} {
		n := &numbers{}
		n.set(metrics.Stat{Name: "gauge", Gauge: true})
		run(t, sender(n))
		flushes := n.flushes()
		proctest.Eventually(t, name+" is tried again", func() bool { return n.flushes() > flushes+5 })
		if told := n.told(); !slices.Equal(told, []string{"fails"}) {
			t.Errorf("%s: told %q", name, told)
		}
	}
}
