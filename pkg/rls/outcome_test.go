package rls_test

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// outcome is what became of the requests of a row, in the words of docs/examples.md.
type outcome struct {
	codes []string // "OK", "refused by day": in order of the first request that got it
	count map[string]int
	notes []string // that the row must hold, too
	last  []string // that it may hold: of the last answer
}

func (o *outcome) add(answer *ratelimit.RateLimitResponse, decided []rls.Decided) {
	code := "OK"
	if answer.GetOverallCode() != ratelimit.RateLimitResponse_OK {
		code = "refused by " + strings.Join(refusers(answer), " and ")
	}
	if o.count[code]++; o.count[code] == 1 {
		o.codes = append(o.codes, code)
	}
	for _, d := range decided {
		switch {
		case d.Result == rls.ResultUnlimited || d.Result == rls.ResultExempt:
			o.note(string(d.Result))
		case d.Result == rls.ResultShadowOverLimit:
			tried := path.Base(d.Path) + " would have refused"
			o.count[tried]++
			o.note(tried)
		}
	}
	o.last = lastWords(answer)
}

func (o *outcome) note(text string) {
	if !slices.Contains(o.notes, text) {
		o.notes = append(o.notes, text)
	}
}

func refusers(answer *ratelimit.RateLimitResponse) []string {
	var names []string
	for _, st := range answer.GetStatuses() {
		if st.GetCode() == ratelimit.RateLimitResponse_OVER_LIMIT {
			names = append(names, st.GetCurrentLimit().GetName())
		}
	}
	return names
}

// lastWords are what clients are told by Envoy: of the status with the least remaining, and the longest wait of
// those that refuse.
func lastWords(answer *ratelimit.RateLimitResponse) []string {
	var least *ratelimit.RateLimitResponse_DescriptorStatus
	var wait time.Duration
	for _, st := range answer.GetStatuses() {
		told := st.GetCurrentLimit() != nil || st.GetLimitRemaining() > 0
		if told && (least == nil || st.GetLimitRemaining() < least.GetLimitRemaining()) {
			least = st
		}
		if st.GetCode() == ratelimit.RateLimitResponse_OVER_LIMIT {
			wait = max(wait, st.GetDurationUntilReset().AsDuration())
		}
	}
	var words []string
	if least != nil {
		words = append(words, fmt.Sprintf("remaining %d", least.GetLimitRemaining()))
	}
	if limit := least.GetCurrentLimit(); limit != nil {
		words = append(words, fmt.Sprintf("limit %d per %s", limit.GetRequestsPerUnit(),
			descriptors.Unit(limit.GetUnit()).Words(limit.GetUnitMultiplier().GetValue())))
	}
	if wait > 0 {
		words = append(words, "retry-after "+inWords(wait))
	}
	return words
}

// inWords leaves out the parts of 14h0m0s that are nothing.
func inWords(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// between is how a row counts what depends on chance.
var between = regexp.MustCompile(`^(\d+) to (\d+) OK$`)

// differs says what is wrong with what a row says, or "".
func (o *outcome) differs(row string) string {
	says := strings.Split(row, ", ")
	must := o.must(says)
	for _, want := range must {
		if !slices.Contains(says, want) {
			return fmt.Sprintf("the row does not say %q of %q; %q", want, must, o.last)
		}
	}
	for _, said := range says {
		if !slices.Contains(must, said) && !slices.Contains(o.last, said) {
			return fmt.Sprintf("the row says %q, and it is %q; %q", said, must, o.last)
		}
	}
	return ""
}

// must is what a row has to say: how many got what, where there are several, and the notes.
func (o *outcome) must(says []string) []string {
	var must []string
	requests := 0
	for _, code := range o.codes {
		requests += o.count[code]
	}
	for _, code := range o.codes {
		must = append(must, o.counted(code, requests, says))
	}
	for _, note := range o.notes {
		if n := o.count[note]; n > 0 {
			note = fmt.Sprintf("%s %d", note, n)
		}
		must = append(must, note)
	}
	return must
}

func (o *outcome) counted(code string, requests int, says []string) string {
	n := o.count[code]
	m := between.FindStringSubmatch(says[0])
	switch {
	case requests == 1:
		return code
	case m != nil && code != "OK":
		return "the rest " + code
	case m != nil && atoi(m[1]) <= n && n <= atoi(m[2]):
		return says[0]
	}
	return fmt.Sprintf("%d %s", n, code)
}

func atoi(digits string) int {
	n, err := strconv.Atoi(digits)
	if err != nil {
		panic(err)
	}
	return n
}
