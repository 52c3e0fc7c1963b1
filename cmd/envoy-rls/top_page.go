package main

import (
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/top"
)

// topPage is the body of /top: what a replica saw in the last so many seconds.
type topPage struct {
	// RulesHash names the rules in force, or is "".
	RulesHash string  `json:"rules_hash"`
	Seconds   float64 `json:"seconds"`
	Calls     float64 `json:"calls_per_second"`
	Refused   float64 `json:"refused_per_second"`
	// ValuesKey names the key that values are hashed by; those of another key can't be compared. "" is as they were sent.
	ValuesKey string   `json:"values_key,omitempty"`
	Rules     []topRow `json:"refused_rules"`
	Values    []topRow `json:"refused_values"`
	Counters  []topRow `json:"hottest_counters"`
	Store     topStore `json:"store"`
}

// topRow is one of those that occur most.
type topRow struct {
	Rule       string  `json:"rule"`
	Descriptor string  `json:"descriptor,omitempty"`
	Tried      bool    `json:"would_refuse,omitempty"` // the limit is only tried out
	Count      int64   `json:"count"`
	PerSecond  float64 `json:"per_second"`
}

// topStore is what a replica's store does.
type topStore struct {
	Kind     string            `json:"kind"`
	Up       bool              `json:"up"`
	Calls    int               `json:"calls,omitempty"`
	MedianMS float64           `json:"median_ms,omitempty"`
	P99MS    float64           `json:"p99_ms,omitempty"`
	Breakers map[string]string `json:"breakers,omitempty"` // states by lane
}

const (
	defaultTopRows = 20
	mostTopRows    = 200
)

// topHandler serves /top, and values as clients sent them only to whom counters are shown.
func (srv *server) topHandler() http.Handler {
	if srv.settings.Decisions.TopValues {
		return srv.guard.Read(srv.serveTop)
	}
	return http.HandlerFunc(srv.serveTop)
}

// serveTop serves /top.
func (srv *server) serveTop(w http.ResponseWriter, r *http.Request) {
	n := defaultTopRows
	if text := r.URL.Query().Get("rows"); text != "" {
		asked, err := strconv.Atoi(text)
		if err != nil || asked < 1 || asked > mostTopRows {
			http.Error(w, "rows: want a number from 1 to "+strconv.Itoa(mostTopRows), http.StatusBadRequest)
			return
		}
		n = asked
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(srv.topPage(n)) // the client is gone if it fails
}

func (srv *server) topPage(n int) topPage {
	seen := srv.decisions.top.Report(time.Now(), n)
	seconds := max(seen.Span.Seconds(), 1)
	p := topPage{
		RulesHash: srv.rulesHash(), Seconds: seconds, Calls: float64(seen.Calls) / seconds, Refused: float64(seen.Refused) / seconds,
		Rules: srv.topRows(seen.Rules, seconds), Values: srv.topRows(seen.Values, seconds), Counters: srv.topRows(seen.Counters, seconds),
		Store: srv.topStore(&seen),
	}
	if !srv.settings.Decisions.TopValues {
		p.ValuesKey = srv.decisions.redactor.name()
	}
	return p
}

// rulesHash names the rules in force, or is "". It is for once the service serves.
func (srv *server) rulesHash() string {
	if rules := srv.service.Rules(); rules != nil {
		return rules.Hash
	}
	return ""
}

func (srv *server) topRows(rows []top.Row, seconds float64) []topRow {
	list := make([]topRow, len(rows))
	for i, r := range rows {
		words := make([]string, len(r.Entries), len(r.Entries)+1)
		for n, e := range r.Entries {
			value := e.Value
			if !srv.settings.Decisions.TopValues {
				value = srv.decisions.redactor.value(value)
			}
			words[n] = e.Key + "=" + value
		}
		if r.Cut {
			words = append(words, "…")
		}
		list[i] = topRow{
			Rule: r.Rule, Descriptor: strings.Join(words, ","), Tried: r.WouldRefuse, Count: r.Count, PerSecond: float64(r.Count) / seconds,
		}
	}
	return list
}

func (srv *server) topStore(seen *top.Report) topStore {
	if srv.redis == nil {
		return topStore{Kind: string(storeMemory), Up: true}
	}
	s := topStore{
		Kind: string(storeRedis), Up: srv.storeUp(), Calls: seen.StoreCalls, Breakers: map[string]string{},
		MedianMS: milliseconds(seen.Median), P99MS: milliseconds(seen.P99),
	}
	for lane, state := range srv.redis.Lanes {
		s.Breakers[lane] = state().String()
	}
	if srv.perSecond != nil {
		for lane, state := range srv.perSecond.Lanes {
			s.Breakers[perSecondLanes+lane] = state().String()
		}
	}
	return s
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
