package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
	"github.com/envoy-rls/envoy-rls/pkg/unmatched"
)

// maxShownDomain is how much is shown of a domain that no rules name, in bytes.
const maxShownDomain = 80

// noteUnmatched is told of each descriptor that no rule matches.
func (srv *server) noteUnmatched(u rls.Unmatched) { srv.unmatched.Note(u.Sent, u.Entries, u.At) }

// tellUnmatched logs what no rule matches, soon after it was first seen and once a minute from then on, until ctx ends.
func (srv *server) tellUnmatched(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		srv.logUnmatched()
	}
}

// logUnmatched logs what is due.
func (srv *server) logUnmatched() {
	for _, s := range srv.unmatched.Due(time.Now()) {
		row := srv.unmatchedRow(&s)
		srv.log.Info("no rule matches", "domain", row.Domain, "keys", row.keys(), "count", s.Count, "why", row.Nearest)
	}
}

// unmatchedPage is the body of /unmatched.
type unmatchedPage struct {
	Shapes []unmatchedRow `json:"shapes"`
	// Forgotten is how many shapes made room for others, and Uncounted how many descriptors came too fast for that.
	Forgotten int64 `json:"forgotten"`
	Uncounted int64 `json:"uncounted"`
}

// unmatchedRow is a shape of descriptors that no rule matches.
type unmatchedRow struct {
	Domain   string    `json:"domain"`
	Known    bool      `json:"known"` // rules name the domain
	Keys     []string  `json:"keys"`
	MoreKeys int       `json:"more_keys,omitempty"`
	Count    int64     `json:"count"`
	First    time.Time `json:"first_seen"`
	Last     time.Time `json:"last_seen"`
	Nearest  string    `json:"nearest"`
}

func (srv *server) unmatchedRow(s *unmatched.Shape) unmatchedRow {
	row := unmatchedRow{
		Domain: s.Domain, Keys: append([]string{}, s.Keys...), MoreKeys: s.MoreKeys, Count: s.Count, First: s.First, Last: s.Last,
	}
	if rules := srv.service.Rules(); rules != nil { // there were some when it was seen
		row.Known, row.Nearest = rules.Domain(s.Domain) != nil, s.Why(rules)
	}
	if !row.Known && len(row.Domain) > maxShownDomain {
		row.Domain = strings.ToValidUTF8(row.Domain[:maxShownDomain], "") + "…"
	}
	return row
}

// keys are the row's keys on a line.
func (r *unmatchedRow) keys() string {
	list := make([]string, len(r.Keys))
	for i, key := range r.Keys {
		list[i] = printable(key)
	}
	switch {
	case len(list) == 0:
		return "(none)"
	case r.MoreKeys > 0:
		list = append(list, fmt.Sprintf("and %d more", r.MoreKeys))
	}
	return strings.Join(list, ", ")
}

// serveUnmatched shows what no rule matches, as text, or as JSON to those who accept it.
func (srv *server) serveUnmatched(w http.ResponseWriter, r *http.Request) {
	page := unmatchedPage{
		Shapes: []unmatchedRow{}, Forgotten: srv.unmatched.Forgotten(), Uncounted: srv.unmatched.Uncounted(),
	}
	for _, s := range srv.unmatched.Shapes() {
		page.Shapes = append(page.Shapes, srv.unmatchedRow(&s))
	}
	if wantsJSON(r) {
		w.Header().Set("Content-Type", "application/json")
		_ = writeIndented(w, page) // the client is gone if it fails
		return
	}
	plainText(w)
	_ = page.write(w, time.Now()) // the client is gone if it fails
}

func (p *unmatchedPage) write(w io.Writer, now time.Time) error {
	if len(p.Shapes) == 0 {
		_, err := fmt.Fprintln(w, "every descriptor that came had a rule, or a limit of its own")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "COUNT\tFIRST\tLAST\tDOMAIN\tKEYS\tNEAREST")
	for i := range p.Shapes {
		s := &p.Shapes[i]
		fmt.Fprintf(t, "%d\t%s ago\t%s ago\t%s\t%s\t%s\n", s.Count, now.Sub(s.First).Round(time.Second), now.Sub(s.Last).Round(time.Second),
			printable(s.Domain), s.keys(), s.Nearest)
	}
	if p.Forgotten > 0 {
		fmt.Fprintf(t, "%d more were forgotten, and %d descriptors not counted: there are too many kinds\n", p.Forgotten, p.Uncounted)
	}
	return t.Flush()
}
