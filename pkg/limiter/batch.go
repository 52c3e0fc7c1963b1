package limiter

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// Role says what a denied descriptor does to its request.
type Role uint8

const (
	// Enforced denies the request.
	Enforced Role = iota
	// Quota denies the request only if every quota descriptor of it is denied.
	Quota
	// Shadow never denies.
	Shadow
)

// Charge says what a hit costs when it, or its request, is denied. It is two independent bits.
// Without either, a hit is charged if its own descriptor passes.
type Charge uint8

const (
	// Together charges a hit only if its descriptor passes and the request is admitted.
	Together Charge = 1 << iota
	// ChargeDenied charges a hit that is denied, too. Alone it charges whatever the verdict; beside Together
	// a denied hit is charged, and a passing one only if its request is admitted.
	ChargeDenied
)

// FailurePolicy says who answers for a hit that the store could not decide.
type FailurePolicy uint8

const (
	// FailError makes the call fail, so that the caller's own failure mode decides.
	FailError FailurePolicy = iota
	// FailAllow lets the hit pass, uncounted.
	FailAllow
	// FailDeny denies the hit.
	FailDeny
	// FailLocal has this process decide, by its share of the limit.
	FailLocal
)

var failurePolicies = [...]string{FailError: "error", FailAllow: "allow", FailDeny: "deny", FailLocal: "local"}

// String is the policy's name in rule files and settings.
func (p FailurePolicy) String() string {
	if int(p) < len(failurePolicies) {
		return failurePolicies[p]
	}
	return fmt.Sprintf("failure policy(%d)", uint8(p))
}

// ParseFailurePolicy is the inverse of FailurePolicy.String. Its error lists the names there are.
func ParseFailurePolicy(name string) (FailurePolicy, error) {
	for p, s := range failurePolicies {
		if s == name {
			return FailurePolicy(p), nil
		}
	}
	return 0, fmt.Errorf("unknown failure policy %q; there is %s", name, strings.Join(failurePolicies[:], ", "))
}

// Hit is one counter's share of a request.
type Hit struct {
	// Key names the counter. It may alias a buffer that is used again after Decide: a Store that keeps it
	// clones it.
	Key string
	// Partition, where it is not empty, names counters that a store which is spread over several places
	// keeps in one, so that they can be decided together at one instant. It may alias as Key does.
	Partition string
	// Limit is shared and never written.
	Limit *Limit
	// Cost is at most MaxCost in size. 0 looks without charging; a negative cost gives back.
	Cost int64
	// At is 0, or an instant of the store's clock in µs: then the hit counts only within that instant's
	// window, and not at all in a later one.
	At int64
	// Group numbers the descriptor. The hits of a descriptor are adjacent; it passes if all of them do.
	Group uint16
	// Role is the same for all hits of a group.
	Role Role
	// Charge is the same for all hits of a group.
	Charge Charge
	// PassFull lets a look pass while the count is no higher than the limit, where it otherwise wants room
	// for one hit.
	PassFull bool
	// OnFailure is for whoever reads an Undecided decision; stores ignore it.
	OnFailure FailurePolicy
}

// State says how a decision came about.
type State uint8

const (
	// Undecided means that the store failed for this hit, and that its failure policy answers.
	Undecided State = iota
	// Decided means that the store decided.
	Decided
	// Unasked means that other hits denied the request before the store was asked for this one. Its Allowed is
	// set, since it denies nothing, and nothing else of it means anything.
	Unasked
	// Locally means that the store failed for this hit, and that this process decided by its share of the limit.
	Locally
)

// Decision is a store's answer for one hit. Only State, and Allowed where it is Unasked, means anything unless it
// is Decided or Locally.
type Decision struct {
	State State
	// Allowed is the hit's own verdict, whatever its request's.
	Allowed bool
	// Charged tells whether the counter changed. A counter that nothing was charged to is as it was, also if
	// it was looked at in a later window.
	Charged bool
	// Remembered tells that the hit was denied from memory: no store was asked for it.
	Remembered bool
	// Room is how many hits of cost 1 would still be admitted after this decision; negative is over or in
	// debt.
	Room int64
	// ResetAfter is how long until the present window ends or, where the algorithm has none, until the counter
	// is as good as new, if nothing more is charged.
	ResetAfter time.Duration
	// RetryAfter is how long until a denied hit of this cost could pass, if nothing more is charged; for a
	// cost beyond the limit, until it is worth asking again. It is 0 on allowed hits, else above 0.
	RetryAfter time.Duration
	// At is the instant of the decision, in µs of the store's clock.
	At int64
}

// Known tells whether the hit was decided, by the store or in its stead.
func (d *Decision) Known() bool { return d.State == Decided || d.State == Locally }

// Batch is a request's hits and their decisions.
type Batch struct {
	// Flow is whom the batch is queued and bounded for: the domain.
	Flow string
	Hits []Hit
	// Decisions has the length of Hits; the store fills it.
	Decisions []Decision
	// Allowed is the verdict over all hits. It means nothing while a hit is Undecided.
	Allowed bool
}

// ErrNotAsked is wrapped by errors of a Store that was not asked: nothing of the batch can have been counted.
var ErrNotAsked = errors.New("the store was not asked")

// Store counts hits. Implementations are safe for concurrent use and pass storetest.Run.
type Store interface {
	// Decide decides all hits of b at one instant, each seeing what earlier ones of b take, and charges
	// them by their Charge. It owns b until it returns, also when ctx ends. On an error the hits that it
	// could not reach are Undecided, and the others are decided.
	Decide(ctx context.Context, b *Batch) error
}
