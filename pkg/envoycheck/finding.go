package envoycheck

import (
	"fmt"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

// finding is the name of a kind of mistake, by which docs/envoy.md tells of it. It is the end of a Problem's text.
type finding string

const (
	afterRouter        finding = "after-router"
	apiVersion         finding = "api-version"
	chargedUnchecked   finding = "charged-unchecked"
	checkedUncharged   finding = "checked-uncharged"
	chosenAddress      finding = "chosen-address"
	deprecatedAction   finding = "deprecated-action"
	droppable          finding = "droppable"
	emptyDescriptor    finding = "empty-descriptor"
	failureMode        finding = "failure-mode"
	hitsIgnored        finding = "hits-ignored"
	hostOff            finding = "host-off"
	hostPort           finding = "host-port"
	limitsOff          finding = "limits-off"
	neverAsked         finding = "never-asked"
	neverMatches       finding = "never-matches"
	neverProduced      finding = "never-produced"
	noCluster          finding = "no-cluster"
	noFilter           finding = "no-filter"
	noHTTP2            finding = "no-http2"
	notAFormat         finding = "not-a-format"
	notText            finding = "not-text"
	sometimesUnmatched finding = "sometimes-unmatched"
	overrideUnit       finding = "override-unit"
	refusedField       finding = "refused-field"
	notOfThrift        finding = "not-of-thrift"
	noTimeout          finding = "timeout"
	unaskedDomain      finding = "unasked-domain"
	unattached         finding = "unattached"
	unknownDomain      finding = "unknown-domain"
	wrongPort          finding = "wrong-port"
	wrongStage         finding = "wrong-stage"
)

// about says of a finding what docs/envoy.md says. An Error can't do what it says; a Warning may not do what is
// meant.
type about struct {
	severity descriptors.Severity
	meaning  string
}

var findings = map[finding]about{
	afterRouter:        {descriptors.Error, "The filter stands behind the router, which ends the chain: Envoy refuses the listener, or keeps the old one."},
	apiVersion:         {descriptors.Error, "Envoy no longer speaks version 2 of the protocol."},
	chargedUnchecked:   {descriptors.Warning, "`apply_on_stream_done` charges a descriptor that no request is checked by: what was spent stops nobody."},
	checkedUncharged:   {descriptors.Warning, "`hits_addend: {number: 0}` checks a descriptor that nothing charges: it is never over its limit."},
	chosenAddress:      {descriptors.Warning, "Clients choose the address that they are limited by: what they write into `x-forwarded-for` stands before what proxies add, and its last entry is the client unless `use_remote_address` is true. With that it is whoever connects, or with `xff_num_trusted_hops: N` whom the first of N proxies saw."},
	deprecatedAction:   {descriptors.Error, "`dynamic_metadata` is an action that Envoy refuses by now; `metadata` has taken its place."},
	droppable:          {descriptors.Warning, "Without a header (parameter, metadata, claim) the whole descriptor isn't sent, and nothing like it without that: who leaves the header out has no limit. Pair it with an entry of the other actions, or say `skip_if_absent` where the rules have the shorter descriptor."},
	emptyDescriptor:    {descriptors.Warning, "Every action may be left out, and then a descriptor without entries is sent: a call that no rule can match."},
	failureMode:        {descriptors.Warning, "Nothing says what happens when no answer comes. By default requests pass; say so, or `failure_mode_deny: true`."},
	hitsIgnored:        {descriptors.Error, "Envoy ignores `hits_addend` in the limits of a route or virtual host: each request costs 1. It counts in `typed_per_filter_config`, and on the filter."},
	hostOff:            {descriptors.Warning, "The route has limits of its own, which switch off those of its virtual host unless it says `vh_rate_limits: INCLUDE`."},
	hostPort:           {descriptors.Warning, "Istio's virtual hosts are named host:port; a patch for a host alone is never applied."},
	limitsOff:          {descriptors.Warning, "Limits in `typed_per_filter_config`, or on the filter, switch off those of routes and virtual hosts."},
	neverAsked:         {descriptors.Warning, "Envoy never asks here: the route redirects or answers by itself, or the filter is switched off."},
	neverMatches:       {descriptors.Error, "No rule of the domain can match the descriptor, whatever a request brings: it costs a call and limits nothing."},
	neverProduced:      {descriptors.Warning, "No action makes a descriptor that the rule matches."},
	noCluster:          {descriptors.Error, "There is no such cluster, so that no call succeeds."},
	noFilter:           {descriptors.Error, "There are limits, and no rate limit filter that would ask for them."},
	noHTTP2:            {descriptors.Error, "gRPC is HTTP/2, and the cluster speaks HTTP/1: no call succeeds."},
	notAFormat:         {descriptors.Warning, "Percent signs in a `descriptor_value` mean nothing: Envoy sends them as they are."},
	notOfThrift:        {descriptors.Error, "Envoy's Thrift filters refuse actions that those of HTTP have, and ignore fields: the keys of `generic_key` and `header_value_match` are fixed, a missing header drops the descriptor whatever `skip_if_absent` says, and `limit`, `hits_addend` and `apply_on_stream_done` mean nothing."},
	notText:            {descriptors.Error, "Envoy wants text and reads YAML 1.1, where the bare words on, off, yes, no, y and n are booleans; it refuses them, and numbers. Put them in quotes."},
	sometimesUnmatched: {descriptors.Warning, "With `skip_if_absent` the descriptor is sent with and without an entry, and no rule is for one of the two."},
	overrideUnit:       {descriptors.Warning, "A limit that the route brings along has no unit, and so no effect."},
	refusedField:       {descriptors.Error, "`stage` and `disable_key` are for the limits of routes and virtual hosts; Envoy refuses them in `typed_per_filter_config`."},
	noTimeout:          {descriptors.Warning, "Without a `timeout` Envoy waits 20 ms, soon too short for a first call, and then lets the request through; with 0 it waits forever."},
	unaskedDomain:      {descriptors.Warning, "No filter asks for the domain: its rules limit nothing here."},
	unattached:         {descriptors.Error, "The key in `typed_per_filter_config` is not the name of a filter in the chain, and what stands there has no effect."},
	unknownDomain:      {descriptors.Error, "No rules are for the filter's domain: everything passes."},
	wrongPort:          {descriptors.Warning, "The service is called at 8080 or 6070, where HTTP listens for probes, metrics and operators: no call succeeds. gRPC is at 8081, unless `--grpc-port` or a Service of Kubernetes says otherwise."},
	wrongStage:         {descriptors.Error, "No rate limit filter has the limit's `stage`: it is never sent."},
}

// add reports a finding at a place, which is a Problem without a text. Of those of one kind at one place it reports
// the first; what is in no file it doesn't report.
func (c *checker) add(f finding, p descriptors.Problem, format string, args ...any) {
	s := spotted{f, p.File, p.Line, p.Column}
	if p.File == "" || c.seen[s] {
		return
	}
	c.seen[s] = true
	p.Severity, p.Text = findings[f].severity, fmt.Sprintf(format, args...)+fmt.Sprintf(" [%s]", f)
	c.problems = append(c.problems, p)
}

// problem is t's place.
func (t *tree) problem(path string) descriptors.Problem {
	if t == nil {
		return descriptors.Problem{}
	}
	return descriptors.Problem{File: t.file, Line: t.line, Column: t.column, Path: path}
}

// spotted is a finding and its place.
type spotted struct {
	finding
	file         string
	line, column int
}
