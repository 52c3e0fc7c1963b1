package main

import (
	ratelimit "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// answerJSON is an answer as call --json prints it, on a line of its own.
type answerJSON struct {
	Code        string       `json:"code"`
	Descriptors []statusJSON `json:"descriptors"` // in the order of the request
}

type statusJSON struct {
	Code         string     `json:"code"`
	Rule         string     `json:"rule"` // the limit that decided, or why there is none
	Limit        *limitJSON `json:"limit,omitempty"`
	Unlimited    bool       `json:"unlimited,omitempty"`
	Remaining    uint32     `json:"remaining"`
	ResetSeconds int64      `json:"reset_seconds"`
}

type limitJSON struct {
	Requests   uint32 `json:"requests_per_unit"`
	Unit       string `json:"unit"`
	Multiplier uint32 `json:"unit_multiplier"`
}

func asJSON(answer *ratelimit.RateLimitResponse, explained []string) answerJSON {
	a := answerJSON{Code: answer.GetOverallCode().String(), Descriptors: []statusJSON{}}
	for i, st := range answer.GetStatuses() {
		limit := st.GetCurrentLimit()
		s := statusJSON{
			Code: st.GetCode().String(), Rule: ruleOf(st, at(explained, i)), ResetSeconds: int64(st.GetDurationUntilReset().AsDuration().Seconds()),
		}
		if limit != nil {
			s.Remaining = st.GetLimitRemaining()
			s.Limit = &limitJSON{
				Requests: limit.GetRequestsPerUnit(), Unit: descriptors.Unit(limit.GetUnit()).String(), Multiplier: max(1, limit.GetUnitMultiplier().GetValue()),
			}
		}
		s.Unlimited = isUnlimited(st)
		a.Descriptors = append(a.Descriptors, s)
	}
	return a
}
