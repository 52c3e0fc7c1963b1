package main

import (
	"log/slog"
	"strings"
)

// oldLogKeys gives the keys and levels of the replaced service's JSON log to ours.
func oldLogKeys(groups []string, a slog.Attr) slog.Attr {
	if len(groups) > 0 {
		return a
	}
	switch a.Key {
	case slog.TimeKey:
		a.Key = "@timestamp"
	case slog.MessageKey:
		a.Key = "@message"
	case slog.LevelKey:
		level := strings.ToLower(a.Value.String())
		if level == "warn" {
			level = "warning"
		}
		a.Value = slog.StringValue(level)
	}
	return a
}
