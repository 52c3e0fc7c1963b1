package descriptors

import (
	"fmt"
	"strings"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Words says what r does, a line for each of its limits: "10 per hour for each distinct user, sliding window;
// refused requests cost nothing".
func (r *Rule) Words() []string {
	switch {
	case r.Exempt:
		return []string{"the whole request is free"}
	case r.Unlimited:
		return []string{"no limit"}
	}
	lines := make([]string, len(r.Limits))
	for i := range r.Limits {
		lines[i] = r.LimitWords(&r.Limits[i])
	}
	return lines
}

// LimitWords is what Words says of l, which need not be a limit of r's own.
func (r *Rule) LimitWords(l *Limit) string { return l.Words() + r.how(l) }

// how is what r does with a limit of its own: whose it is, its algorithm, and the policies.
func (r *Rule) how(l *Limit) string {
	return fmt.Sprintf("%s, %s%s", r.whose(), l.algorithmWords(), r.policyWords(l))
}

// Words says how much: "10 per hour".
func (l *Limit) Words() string {
	return fmt.Sprintf("%d per %s", l.Requests, l.Unit.Words(l.Multiplier))
}

func (r *Rule) whose() string {
	if len(r.Each) == 0 {
		return " in all"
	}
	return " for each distinct " + strings.Join(r.Each, " and ")
}

func (l *Limit) algorithmWords() string {
	words := strings.ReplaceAll(l.Algorithm.String(), "_", " ")
	if l.Algorithm.HasBurst() {
		words += fmt.Sprintf(" of %d", l.Burst)
	}
	return words
}

func (r *Rule) policyWords(l *Limit) string {
	switch {
	case r.Role == limiter.Shadow || l.Shadow:
		return "; tried out, never refused"
	case r.Charge == limiter.ChargeDenied:
		return "; refused requests cost as well"
	case r.Charge == limiter.Together|limiter.ChargeDenied:
		return "; a refused request costs where it was refused"
	}
	return "; refused requests cost nothing"
}
