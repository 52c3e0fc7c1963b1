package monitoring

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

// alertsFile is the source of the rules.
var alertsFile = filepath.Join(proctest.Root(), "deploy", "prometheus", "alerts.yaml")

// interval is how often Prometheus scrapes and evaluates.
const interval = 30 * time.Second

// prometheus is the storage, the engine and the rules of a real one, by a clock that is moved by hand: it scrapes what is there
// now, for a moment that may be hours ahead.
type prometheus struct {
	t       *testing.T
	db      *tsdb.DB
	engine  *promql.Engine
	groups  map[string]*rules.Group
	now     time.Time
	targets map[string]string                   // URLs by instance
	known   map[string]map[string]labels.Labels // the series of each target's last scrape
}

func newPrometheus(t *testing.T) *prometheus {
	t.Helper()
	db, err := tsdb.Open(t.TempDir(), nil, nil, tsdb.DefaultOptions(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	p := &prometheus{
		t: t, db: db, now: time.Now().Truncate(time.Minute), targets: map[string]string{}, known: map[string]map[string]labels.Labels{},
		engine: promql.NewEngine(promql.EngineOpts{
			MaxSamples: 50_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute, EnableAtModifier: true, EnableNegativeOffset: true,
			Parser: parser.NewParser(parser.Options{}),
		}),
	}
	manager := rules.NewManager(&rules.ManagerOptions{
		QueryFunc: rules.EngineQueryFunc(p.engine, db), NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Context: context.Background(), AppendableV2: db, Queryable: db, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	groups, errs := manager.LoadGroups(interval, labels.EmptyLabels(), "", nil, false, alertsFile)
	if len(errs) > 0 {
		t.Fatal(errors.Join(errs...))
	}
	p.groups = groups
	return p
}

// step moves the clock, scrapes, and evaluates the rules.
func (p *prometheus) step(by time.Duration) {
	p.t.Helper()
	p.now = p.now.Add(by)
	app := p.db.AppenderV2(context.Background())
	for instance, url := range p.targets {
		p.append(app, instance, scrape(p.t, url))
	}
	if err := app.Commit(); err != nil {
		p.t.Fatal(err)
	}
	for _, g := range p.groups {
		g.Eval(context.Background(), p.now)
		for _, r := range g.Rules() {
			if err := r.LastError(); err != nil {
				p.t.Fatalf("%s: %v", r.Name(), err)
			}
		}
	}
}

// scrape returns what a target shows, or nothing if it is away.
func scrape(t *testing.T, url string) []byte {
	t.Helper()
	client := http.Client{Timeout: 10 * time.Second}
	r, err := client.Get(url)
	if err != nil {
		return nil
	}
	defer func() { _ = r.Body.Close() }() // it has been read
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", url, r.Status, err)
	}
	return body
}

// append stores a scrape, and the end of the series that it lacks.
func (p *prometheus) append(app storage.AppenderV2, instance string, body []byte) {
	p.t.Helper()
	seen := map[string]labels.Labels{}
	add := func(l labels.Labels, v float64) {
		if _, err := app.Append(0, l, 0, p.now.UnixMilli(), v, nil, nil, storage.AOptions{}); err != nil {
			p.t.Fatalf("%s: %v", l, err)
		}
	}
	text, err := textparse.New(body, "text/plain; version=0.0.4", nil, textparse.ParserOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	for {
		entry, err := text.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p.t.Fatalf("%s shows what is no metric: %v", instance, err)
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var own labels.Labels
		text.Labels(&own)
		l := labels.NewBuilder(own).Set("job", "envoy-rls").Set("instance", instance).Labels()
		_, _, v := text.Series()
		seen[l.String()] = l
		add(l, v)
	}
	for name, l := range p.known[instance] {
		if _, there := seen[name]; !there {
			add(l, math.Float64frombits(value.StaleNaN))
		}
	}
	p.known[instance] = seen
}

// query answers as a panel of a single moment would be.
func (p *prometheus) query(text string) promql.Vector {
	p.t.Helper()
	q, err := p.engine.NewInstantQuery(context.Background(), p.db, nil, text, p.now)
	if err != nil {
		p.t.Fatalf("%s: %v", text, err)
	}
	defer q.Close()
	v, err := q.Exec(context.Background()).Vector()
	if err != nil {
		p.t.Fatalf("%s: %v", text, err)
	}
	return slices.Clone(v)
}

// alerts are all rules.
func (p *prometheus) alerts() (list []*rules.AlertingRule) {
	for _, key := range slices.Sorted(maps.Keys(p.groups)) {
		list = append(list, p.groups[key].AlertingRules()...)
	}
	return list
}

// firing are the alerts that fire now, by name.
func (p *prometheus) firing() map[string][]*rules.Alert {
	all := map[string][]*rules.Alert{}
	for _, r := range p.alerts() {
		for _, a := range r.ActiveAlerts() {
			if a.State == rules.StateFiring {
				all[r.Name()] = append(all[r.Name()], a)
			}
		}
	}
	return all
}
