package e2e

import (
	"testing"

	"github.com/envoy-rls/envoy-rls/internal/proctest"
)

const (
	perUser   = `[{actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]}]`
	everybody = `[{actions: [{generic_key: {descriptor_key: all, descriptor_value: "yes"}}]}]`
	// lookThenPay looks at the budget before a request, and takes from it what the answer says that it cost.
	lookThenPay = `
- actions: [{generic_key: {descriptor_key: budget, descriptor_value: tokens}}]
  hits_addend: {number: 0}
- actions: [{generic_key: {descriptor_key: budget, descriptor_value: tokens}}]
  hits_addend: {format: "%RESP(x-cost)%"}
  apply_on_stream_done: true`
)

// Scenarios of how rules and Envoy's rate limits meet.
var matching = []scenario{
	{
		name:   "the fourth of three requests an hour is answered 429, for each value of a header apart",
		domain: "three-an-hour",
		rules:  `- {key: user, rate_limit: {unit: hour, requests_per_unit: 3}}`,
		limits: perUser,
		script: `
x-user: ann -> 200  x-ratelimit-limit: 3, 3;w=3600  x-ratelimit-remaining: 2  x-ratelimit-reset: 1..3600  no retry-after
x-user: ann -> 200  x-ratelimit-limit: 3, 3;w=3600  x-ratelimit-remaining: 1  x-ratelimit-reset: 1..3600  no x-envoy-ratelimited
x-user: ann -> 200  x-ratelimit-limit: 3, 3;w=3600  x-ratelimit-remaining: 0  no retry-after  no ratelimit-rule
x-user: ann -> 429  x-ratelimit-limit: 3, 3;w=3600  x-ratelimit-remaining: 0  retry-after: 1..3600  x-envoy-ratelimited: true
x-user: bob -> 200  x-ratelimit-limit: 3, 3;w=3600  x-ratelimit-remaining: 2
x-user: ann -> 429  ratelimit-rule: three-an-hour.user`,
	},
	{
		name:   "without its header a descriptor is not sent, and nothing is limited",
		domain: "no-header",
		rules:  `- {key: user, rate_limit: {unit: hour, requests_per_unit: 1}}`,
		limits: perUser,
		script: `
-> 200  no x-ratelimit-limit
-> 200  no x-ratelimit-limit`,
	},
	{
		name:   "a descriptor of two levels has a counter for each pair of values",
		domain: "two-levels",
		rules: `
- key: tenant
  descriptors:
    - {key: plan, value: free, rate_limit: {name: free, unit: hour, requests_per_unit: 1}}
    - {key: plan, value: paid, rate_limit: {name: paid, unit: hour, requests_per_unit: 2}}`,
		limits: `
- actions:
    - request_headers: {header_name: x-tenant, descriptor_key: tenant}
    - request_headers: {header_name: x-plan, descriptor_key: plan}`,
		script: `
x-tenant: a  x-plan: free -> 200  x-ratelimit-limit: 1, 1;w=3600;name="free"
x-tenant: a  x-plan: free -> 429  ratelimit-rule: free
x-tenant: b  x-plan: free -> 200  x-ratelimit-remaining: 0
x-tenant: a  x-plan: paid -> 200  x-ratelimit-limit: 2, 2;w=3600;name="paid"  x-ratelimit-remaining: 1
x-tenant: a  x-plan: gold -> 200  no x-ratelimit-limit
x-tenant: a -> 200  no x-ratelimit-limit`,
	},
	{
		name:   "header_value_match limits those requests that match",
		domain: "header-match",
		rules:  `- {key: header_match, value: robots, rate_limit: {unit: hour, requests_per_unit: 1}}`,
		limits: `
- actions:
    - header_value_match:
        descriptor_value: robots
        headers: [{name: user-agent, string_match: {prefix: robot}}]`,
		script: `
user-agent: robot 1 -> 200  x-ratelimit-remaining: 0
user-agent: robot 2 -> 429
user-agent: human -> 200  no x-ratelimit-limit`,
	},
	{
		name:   "of two descriptors the stricter is shown, and a refused request takes from neither",
		domain: "two-descriptors",
		rules: `
- {key: user, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: all, value: "yes", rate_limit: {unit: hour, requests_per_unit: 3}}`,
		limits: `
- actions: [{request_headers: {header_name: x-user, descriptor_key: user}}]
- actions: [{generic_key: {descriptor_key: all, descriptor_value: "yes"}}]`,
		script: `
x-user: ann -> 200  x-ratelimit-limit: 1, 1;w=3600, 3;w=3600  x-ratelimit-remaining: 0
x-user: ann -> 429  ratelimit-rule: two-descriptors.user
x-user: bob -> 200
-> 200  x-ratelimit-limit: 3, 3;w=3600  x-ratelimit-remaining: 0
-> 429`,
	},
	{
		name:   "what no rule matches passes",
		domain: "no-rule",
		rules:  `- {key: path, rate_limit: {unit: hour, requests_per_unit: 0}}`,
		limits: perUser,
		script: `
x-user: ann -> 200  no x-ratelimit-limit
x-user: ann -> 200  no x-ratelimit-limit`,
	},
	{
		name:   "a descriptor without entries passes",
		domain: "no-entries",
		rules:  `- {key: user, rate_limit: {unit: hour, requests_per_unit: 0}}`,
		limits: `[{actions: [{request_headers: {header_name: x-user, descriptor_key: user, skip_if_absent: true}}]}]`,
		calls:  1,
		script: `
-> 200  no x-ratelimit-limit
-> 200  no x-ratelimit-limit
x-user: ann -> 429`,
	},
	{
		name:   "a domain that no file names passes",
		domain: "no-file",
		limits: perUser,
		script: `
x-user: ann -> 200  no x-ratelimit-limit
x-user: ann -> 200  no x-ratelimit-limit`,
	},
}

// Scenarios of what a limit may say.
var limiting = []scenario{
	{
		name:   "an unlimited value passes, a limit of 0 refuses, and other values have the limit of the key",
		domain: "values",
		rules: `
- {key: user, rate_limit: {unit: hour, requests_per_unit: 1}}
- {key: user, value: monitor, rate_limit: {unlimited: true}}
- {key: user, value: robot, rate_limit: {unit: hour, requests_per_unit: 0}}`,
		limits: perUser,
		script: `
x-user: monitor -> 200  no x-ratelimit-limit
x-user: monitor -> 200  no x-ratelimit-limit
x-user: robot -> 429  x-ratelimit-limit: 0, 0;w=3600  x-ratelimit-remaining: 0  retry-after: 1..3600
x-user: ann -> 200  x-ratelimit-remaining: 0
x-user: ann -> 429`,
	},
	{
		name:   "a limit in Envoy's configuration takes the place of the rule's number",
		domain: "override",
		rules:  `- {key: all, value: "yes", rate_limit: {name: mine, unit: hour, requests_per_unit: 1}}`,
		limits: `
- actions: [{generic_key: {descriptor_key: all, descriptor_value: "yes"}}]
  limit: {rate_limit: {unit: HOUR, requests_per_unit: 3}}`,
		script: `
-> 200  x-ratelimit-limit: 3, 3;w=3600;name="mine"  x-ratelimit-remaining: 2
-> 200  x-ratelimit-remaining: 1
-> 200  x-ratelimit-remaining: 0
-> 429  ratelimit-rule: mine`,
	},
	{
		name:   "a limit without a unit in Envoy's configuration leaves the rule's in force",
		domain: "bad-override",
		rules:  `- {key: all, value: "yes", rate_limit: {unit: hour, requests_per_unit: 1}}`,
		limits: `
- actions: [{generic_key: {descriptor_key: all, descriptor_value: "yes"}}]
  limit: {rate_limit: {requests_per_unit: 3}}`,
		script: `
-> 200  x-ratelimit-limit: 1, 1;w=3600
-> 429`,
	},
	{
		name:   "a week is shown as 604800 seconds",
		domain: "week",
		rules:  `- {key: all, value: "yes", rate_limit: {unit: week, requests_per_unit: 5}}`,
		limits: everybody,
		script: `-> 200  x-ratelimit-limit: 5, 5;w=604800  x-ratelimit-remaining: 4  x-ratelimit-reset: 1..604800`,
	},
	{
		name:   "15 minutes are shown as 900 seconds",
		domain: "quarter",
		rules:  `- {key: all, value: "yes", rate_limit: {unit: minute, unit_multiplier: 15, requests_per_unit: 1}}`,
		limits: everybody,
		script: `
-> 200  x-ratelimit-limit: 1, 1;w=900  x-ratelimit-reset: 1..900
-> 429  retry-after: 1..900`,
	},
	{
		name:   "a shadow rule refuses nothing, and no header tells of it",
		domain: "shadow",
		rules:  `- {key: user, shadow_mode: true, rate_limit: {unit: hour, requests_per_unit: 1}}`,
		limits: perUser,
		script: `
x-user: ann -> 200  no x-ratelimit-limit  no x-ratelimit-remaining  no x-ratelimit-reset
x-user: ann -> 200  no x-ratelimit-limit  no x-ratelimit-remaining  no retry-after  no ratelimit-rule
x-user: ann -> 200  no x-ratelimit-limit  no x-ratelimit-remaining  no retry-after  no x-envoy-ratelimited`,
	},
}

// Scenarios of costs that are not 1.
var paying = []scenario{
	{
		name:   "what answers cost is charged after them, beyond the limit, and the next request is refused",
		domain: "cost",
		rules:  `- {key: budget, count_denied: true, rate_limit: {unit: hour, requests_per_unit: 100}}`,
		limits: lookThenPay,
		calls:  2,
		script: `
x-costs: 60 -> 200  x-ratelimit-remaining: 100
x-costs: 60 -> 200  x-ratelimit-remaining: 40
x-costs: 60 -> 429  x-ratelimit-remaining: 0`,
	},
	{
		name:   "at exactly the limit a look is refused",
		domain: "exact-cost",
		rules:  `- {key: budget, count_denied: true, rate_limit: {unit: hour, requests_per_unit: 100}}`,
		limits: lookThenPay,
		calls:  2,
		script: `
x-costs: 50 -> 200
x-costs: 50 -> 200  x-ratelimit-remaining: 50
x-costs: 50 -> 429`,
	},
	{
		name:    "at exactly the limit a look passes if envoyproxy/ratelimit is replaced",
		domain:  "compat-cost",
		service: "compat",
		rules:   `- {key: budget, rate_limit: {unit: hour, requests_per_unit: 100}}`,
		limits:  lookThenPay,
		calls:   2,
		script: `
x-costs: 50 -> 200
x-costs: 50 -> 200
x-costs: 50 -> 200  x-ratelimit-remaining: 0
x-costs: 50 -> 429  retry-after: 1..3600  no ratelimit-rule`,
	},
	{
		name:   "what is given back when the answer is done can be taken again",
		domain: "give-back",
		rules:  `- {key: all, value: "yes", rate_limit: {unit: hour, requests_per_unit: 1}}`,
		limits: `
- actions: [{generic_key: {descriptor_key: all, descriptor_value: "yes"}}]
- actions: [{generic_key: {descriptor_key: all, descriptor_value: "yes"}}]
  hits_addend: {number: 1, is_negative_hits: true}
  apply_on_stream_done: true`,
		calls: 2,
		script: `
-> 200  x-ratelimit-limit: 1, 1;w=3600  x-ratelimit-remaining: 0
-> 200  x-ratelimit-limit: 1, 1;w=3600  x-ratelimit-remaining: 0
-> 200  x-ratelimit-limit: 1, 1;w=3600  x-ratelimit-remaining: 0
-> 200  x-ratelimit-limit: 1, 1;w=3600  x-ratelimit-remaining: 0`,
	},
}

// Scenarios of the headers that the service itself gives to clients.
var telling = []scenario{
	{
		name:    "the service's own headers reach the client",
		domain:  "headers",
		service: "headers",
		rules:   `- {key: user, rate_limit: {name: hourly, unit: hour, requests_per_unit: 1}}`,
		limits:  perUser,
		script: `
x-user: ann -> 200  ratelimit-limit: 1  ratelimit-remaining: 0  ratelimit-reset: 1..3600  no retry-after  no ratelimit-rule
x-user: ann -> 429  ratelimit-limit: 1  ratelimit-remaining: 0  ratelimit-reset: 1..3600  retry-after: 1..3600  ratelimit-rule: hourly
-> 200  no ratelimit-limit  no ratelimit-remaining  no ratelimit-reset`,
	},
	{
		name:    "the service's own headers can have other names",
		domain:  "names",
		service: "names",
		rules:   `- {key: user, rate_limit: {unit: hour, requests_per_unit: 1}}`,
		limits:  perUser,
		script: `
x-user: ann -> 200  x-most: 1  x-left: 0  x-whole-in: 1..3600  no ratelimit-limit  no ratelimit-remaining  no ratelimit-reset
x-user: ann -> 429  x-most: 1  x-left: 0  x-come-in: 1..3600  x-because: names.user  no ratelimit-rule`,
	},
}

func TestEnvoyAnswersByTheRules(t *testing.T) {
	var all []scenario
	for _, list := range [][]scenario{matching, limiting, paying, telling} {
		all = append(all, list...)
	}
	onBothStores(t, func(t *testing.T, store string) {
		rules := map[string]string{}
		b := bootstrap{}
		for _, s := range all {
			if s.rules != "" {
				rules[s.domain] = s.rules
			}
			b.Routes = append(b.Routes, route{s.domain, limits(t, s.limits)})
		}
		dir := rulesIn(t, rules)
		services := map[string]*proctest.Service{}
		for name, args := range map[string][]string{
			"default": {},
			"compat":  {"--compat=envoyproxy-ratelimit", "--redis-socket-type=tcp"},
			"headers": {"--headers"},
			"names": {
				"--headers", "--limit-header=x-most", "--remaining-header=x-left", "--reset-header=x-whole-in",
				"--retry-header=x-come-in", "--rule-header=x-because",
			},
		} {
			services[name] = exactService(t, append(args, dir, store)...)
			b.Services = append(b.Services, replicas(name, services[name]))
			b.Listeners = append(b.Listeners, listener{Name: name, Service: name, Deny: true})
		}
		g := startGateway(t, b)
		for _, s := range all {
			t.Run(s.name, func(t *testing.T) { s.run(t, g, services[s.listener()]) })
		}
	})
}
