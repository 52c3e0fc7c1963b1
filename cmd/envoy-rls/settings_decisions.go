package main

import (
	"errors"
	"strconv"
	"strings"
)

// decisionSettings are about what is told of single calls: in a log, in dynamic metadata, and at /top.
type decisionSettings struct {
	Log        decisionLogKind `name:"decision-log" env:"DECISION_LOG" default:"off" help:"Write calls to a log of their own, a line of JSON each: off, denied (what limits refused, or would have) or all."`
	Sample     decisionSample  `name:"decision-log-sample" env:"DECISION_LOG_SAMPLE" default:"100/s" placeholder:"PART" help:"How many of them: at most so many a second, as 100/s, or one of so many, as 1/100, and then at most 1000 a second."`
	To         string          `name:"decision-log-to" env:"DECISION_LOG_TO" default:"stdout" placeholder:"FILE" help:"stdout, or a file, which is added to."`
	LogValues  bool            `name:"decision-log-values" env:"DECISION_LOG_VALUES" help:"Write values of descriptors as clients sent them; otherwise their hashes."`
	TopValues  bool            `name:"top-values" env:"TOP_VALUES" help:"Show them at /top of admin as clients sent them; otherwise their hashes."`
	RedactKey  string          `name:"redact-key-file" env:"REDACT_KEY_FILE" placeholder:"FILE" help:"A secret that values are hashed by, the same for all replicas, so that their hashes can be compared. Default: a random one for each process."`
	InMetadata bool            `name:"verdict-metadata" env:"VERDICT_METADATA" help:"Return to Envoy, as dynamic metadata, the limit that refused (denied_by), and those that are only tried out and would have (would_deny)."`
}

type decisionLogKind string

const (
	logsNone   decisionLogKind = "off"
	logsDenied decisionLogKind = "denied"
	logsAll    decisionLogKind = "all"
)

// UnmarshalText implements encoding.TextUnmarshaler.
func (k *decisionLogKind) UnmarshalText(text []byte) error {
	return oneOf(k, text, logsNone, logsDenied, logsAll)
}

// decisionSample is how much of a log is written.
type decisionSample struct{ oneOf, perSecond int }

// mostLines bounds the lines of a second.
const mostLines = 1000

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *decisionSample) UnmarshalText(text []byte) error {
	before, after, _ := strings.Cut(string(text), "/")
	*d = decisionSample{oneOf: 1, perSecond: mostLines}
	number, target, most := before, &d.perSecond, mostLines
	if before == "1" && after != "s" {
		number, target, most = after, &d.oneOf, 1_000_000
	}
	n, err := strconv.Atoi(number)
	if err != nil || n < 1 || n > most || target == &d.perSecond && after != "s" {
		return errors.New("want so many a second, from 1/s to 1000/s, or one of so many, from 1/1 to 1/1000000")
	}
	*target = n
	return nil
}
