package redisstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/envoy-rls/envoy-rls/pkg/limiter"
)

// Failure is the error of Decide.
type Failure struct {
	// Reason is why, in a word that metrics can have for a label: timeout, breaker, queue_full, connection, reply,
	// canceled, other, or the first word of a server's refusal in lower case, such as readonly.
	Reason string
	err    error
}

// Error implements error.
func (f *Failure) Error() string { return "redis: deciding: " + f.err.Error() }

// Unwrap returns what happened.
func (f *Failure) Unwrap() error { return f.err }

// Is has a Failure be limiter.ErrNotAsked, too, where it is certain that nothing of the batch was counted: there was no
// connection, or the server refused, which it does before the script has written anything.
func (f *Failure) Is(target error) bool {
	var network *net.OpError
	return target == limiter.ErrNotAsked && (refusalWord(f.err) != "" || errors.Is(f.err, errManyDials) ||
		errors.As(f.err, &network) && network.Op == "dial")
}

// FailureReason is Reason, for those who don't know this package.
func (f *Failure) FailureReason() string { return f.Reason }

// refusals are the first words of what servers refuse a call with. docs/failure.md says what each means.
var refusals = []string{
	"READONLY", "MOVED", "ASK", "TRYAGAIN", "CLUSTERDOWN", "CROSSSLOT", "LOADING", "MASTERDOWN", "OOM", "NOAUTH", "WRONGPASS",
	"NOPERM", "BUSY", "WRONGTYPE", "NOSCRIPT", "MISCONF", "NOREPLICAS",
}

func failure(err error) *Failure { return &Failure{reason(err), err} }

func reason(err error) string {
	var network net.Error
	switch {
	case errors.Is(err, ErrBreakerOpen):
		return "breaker"
	case errors.Is(err, ErrQueueFull):
		return "queue_full"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "timeout"
	case errors.Is(err, context.Canceled):
		return "canceled"
	case errors.Is(err, errReply):
		return "reply"
	}
	if word := refusalWord(err); word != "" {
		return strings.ToLower(word)
	}
	if errors.As(err, &network) || errors.Is(err, errManyDials) || errors.Is(err, net.ErrClosed) || strings.HasSuffix(err.Error(), "EOF") {
		return "connection"
	}
	return "other"
}

// refusalWord is the first word of a server's refusal, or "".
func refusalWord(err error) string {
	if errors.Is(err, errTryAgain) {
		return "TRYAGAIN"
	}
	for _, word := range refusals {
		if redis.HasErrorPrefix(err, word) {
			return word
		}
	}
	return ""
}

// notAsked makes an error that tells that nothing was sent.
func notAsked(what string) error { return fmt.Errorf("%w: %s", limiter.ErrNotAsked, what) }
