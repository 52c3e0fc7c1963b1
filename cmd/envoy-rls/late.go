package main

import (
	"log/slog"
	"time"

	"github.com/envoy-rls/envoy-rls/pkg/rls"
)

// lateLog tells, once in a while, of callers who no longer wait for their answer: Envoy then lets their requests pass.
type lateLog struct {
	log   *slog.Logger
	lines sparing
}

// lateDigits are those of times that are told.
const lateDigits = 100 * time.Microsecond

// note is told of each call that has ended. A caller who left long before its time was up was not made to.
func (l *lateLog) note(a *rls.Answered) {
	if !a.Late || a.Took < a.Granted/2 || a.Granted == 0 {
		return
	}
	if missed, due := l.lines.next(); due {
		l.log.Warn("an answer came too late, Envoy's failure mode decides", "domain", a.Domain, "granted", a.Granted.Round(lateDigits).String(),
			"took", a.Took.Round(lateDigits).String(), "more_since_last_line", missed,
			"mend", "raise the timeout of Envoy's filter, 20ms by default; leave --store-timeout (STORE_TIMEOUT) at auto; give replicas CPU")
	}
}
