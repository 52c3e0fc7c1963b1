// Package admin is what operators can do to a running service, as JSON over HTTP: overrides of rules, and a look at counters
// and their reset. docs/overrides.md describes it.
package admin

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/limiter"
	"github.com/envoy-rls/envoy-rls/pkg/overrides"
)

// Root is what the paths of all calls begin with.
const Root = "/api/v1/"

// Bounds of a call.
const (
	maxBody = 64 << 10
	// patience is how long a call may take that looks at or changes one thing, and sweepPatience one that goes over all
	// counters.
	patience      = 5 * time.Second
	sweepPatience = time.Minute
)

// Counters are where counters are kept. Any number of goroutines may use them.
type Counters interface {
	// Sweep calls visit with the names of the counters that begin with one of the bytes, some of them perhaps twice, and
	// deletes those for which it returns drop, until it returns more as false.
	Sweep(ctx context.Context, begin string, visit func(name string) (drop, more bool)) error
	// Delete deletes the counters of hits, of which only Key and Partition count, and returns how many there were.
	Delete(ctx context.Context, hits []limiter.Hit) (int, error)
}

// Options are what an API works on. All of them are needed.
type Options struct {
	// Rules returns those in force, or nil.
	Rules func() *descriptors.Ruleset
	// Store is the one that decides requests.
	Store limiter.Store
	// Counters are where it keeps its counters.
	Counters  []Counters
	Overrides *overrides.Set
	Guard     *Guard
	// Log gets a warning, which is seen at any usual level, for each reset and give-back.
	Log *slog.Logger
}

// api serves the calls.
type api struct{ Options }

// New returns the handler of all paths below Root.
func New(o Options) http.Handler {
	a := &api{o}
	mux := http.NewServeMux()
	mux.Handle("GET "+Root+"overrides", o.Guard.Read(a.listOverrides))
	mux.Handle("POST "+Root+"overrides", o.Guard.Change(a.setOverride))
	mux.Handle("DELETE "+Root+"overrides/{id}", o.Guard.Change(a.unsetOverride))
	mux.Handle("GET "+Root+"counters", o.Guard.Read(a.listCounters))
	mux.Handle("GET "+Root+"counter", o.Guard.Read(a.getCounter))
	mux.Handle("POST "+Root+"counters/reset", o.Guard.Change(a.resetCounters))
	mux.Handle("POST "+Root+"counters/give", o.Guard.Change(a.giveBack))
	mux.Handle("GET "+Root+"token", o.Guard.Change(tellCaller))
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, http.StatusNotFound, errors.New("no such call; docs/overrides.md lists them"))
	})
	return mux
}

// rules returns those in force, or refuses the call.
func (a *api) rules(w http.ResponseWriter) *descriptors.Ruleset {
	rules := a.Rules()
	if rules == nil {
		refuse(w, http.StatusServiceUnavailable, errors.New("no rules are in force; /readyz says why"))
	}
	return rules
}

// Failure is the answer to a call that failed.
type Failure struct {
	Error string `json:"error"`
}

func refuse(w http.ResponseWriter, status int, err error) {
	answer(w, status, Failure{err.Error()})
}

func answer(w http.ResponseWriter, status int, body any) {
	text, err := json.Marshal(body)
	if err != nil {
		http.Error(w, "writing the answer: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(append(text, '\n')) // the client is gone if it fails
}

// read reads the body of a call, or refuses it. A page in a browser can't send JSON to another site.
func read[T any](w http.ResponseWriter, r *http.Request) (body T, ok bool) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, errors.New("want the header Content-Type: application/json"))
		return body, false
	}
	d := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxBody))
	d.DisallowUnknownFields()
	err := d.Decode(&body)
	if err == nil {
		if _, end := d.Token(); !errors.Is(end, io.EOF) {
			err = errors.New("there is more behind its end")
		}
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, fmt.Errorf("reading the call: %w", inTermsOfJSON(err)))
		return body, false
	}
	return body, true
}

// inTermsOfJSON is an error of a decoder for those who don't know the types of this program.
func inTermsOfJSON(err error) error {
	var kind *json.UnmarshalTypeError
	switch {
	case errors.Is(err, io.EOF):
		return errors.New("there is nothing in it; want a JSON object")
	case !errors.As(err, &kind):
		return err
	}
	want := map[reflect.Kind]string{
		reflect.String: "a text in quotes", reflect.Int64: "a whole number", reflect.Bool: "true or false",
		reflect.Slice: "a list", reflect.Struct: "an object",
	}[kind.Type.Kind()]
	field := strings.TrimPrefix(kind.Field, "Choice.") // it is embedded
	return fmt.Errorf("%s is of the type %s; want %s", cmp.Or(field, "it"), kind.Value, want)
}

// Entry is an entry of a descriptor.
type Entry struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

// maxEntries is the most entries that a call may have.
const maxEntries = 64

// prepared returns a list of entries, prepared by the domain's rules, if there are any.
func prepared(d *descriptors.Domain, list []Entry) []descriptors.Entry {
	entries := make([]descriptors.Entry, len(list))
	for i, e := range list {
		entries[i] = descriptors.Entry(e)
	}
	if d != nil {
		d.Prepare(entries)
	}
	return entries
}
