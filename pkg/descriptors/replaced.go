package descriptors

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// newKeys are those that envoyproxy/ratelimit doesn't know, by block, and what to do without them.
var newKeys = map[block]map[string]string{
	fileBlock: {
		"domains":      "it has no defaults; keep the file elsewhere",
		"keys":         "it takes values as they are sent; prepare them in Envoy, or delete the block",
		"defaults":     "its limits are fixed windows, refused requests cost, and its failures are errors; delete the block",
		"partition_by": "it decides each counter for itself; delete the line",
	},
	descriptorBlock: {
		"values":           "write a descriptor for each value",
		"cidrs":            "write values with a star, such as 10.1.*",
		"exempt":           "write rate_limit: {unlimited: true, replaces: [{name: x}]}, with the names of all other limits that a request may meet",
		"max_values":       "it counts any number of values apart; delete the line",
		"rate_limits":      "it has one limit for a descriptor; keep one, as rate_limit",
		"count_denied":     "a refused request costs there; delete the line",
		"on_store_failure": "its failures are errors, and failure_mode_deny of Envoy's filter decides; delete the line",
	},
	limitBlock:  newLimitKeys,
	limitsBlock: newLimitKeys,
}

// newLimitKeys are those of a limit.
var newLimitKeys = map[string]string{
	"unit_multiplier": "its periods are single units; write one, and a number for it",
	"algorithm":       "it has fixed windows only; delete the line",
	"burst":           "it has fixed windows only; delete the line",
}

// unreadable tells whether n is a number that the replaced service doesn't know from one that is none: with a fraction,
// or beyond 63 bits.
func unreadable(n *yaml.Node) bool {
	if n.Tag != "!!int" {
		return n.Tag == "!!float"
	}
	_, err := strconv.ParseInt(strings.ReplaceAll(n.Value, "_", ""), 0, 64)
	return err != nil
}

// oldBooleans are the words, besides true and false, that are booleans in YAML 1.1, which the replaced service reads.
var oldBooleans = []string{"y", "yes", "on", "n", "no", "off"}

// checkMetadata doubts what the replaced service reads as something else.
func (r *reader) checkMetadata(f field, path string) {
	switch v := f.value; {
	case !r.replaced:
	case f.key.Tag != "!!str":
		r.report(Warning, f.key, path, "the replaced service may refuse a key that is no text; put it in quotes")
	case v.Kind == yaml.ScalarNode && v.Style == 0 && slices.Contains(oldBooleans, strings.ToLower(v.Value)):
		r.report(Warning, v, path, "the replaced service reads this as true or false; put it in quotes")
	}
}

// oldText is a descriptor as the replaced service compares it with a request's key and value: as one text, in which a star
// stands for any text, also one in a key.
type oldText struct {
	key, value, path string
}

func (o oldText) stars() bool { return strings.Contains(o.key+o.value, "*") }

// requests is what the requests look like that are for o.
func (o oldText) requests() wildcard {
	switch {
	case o.value != "":
		return newWildcard(o.key + "_" + o.value)
	case o.stars():
		return newWildcard(o.key)
	}
	return newWildcard(o.key + "_*") // any value
}

// doubtJoined tells of siblings that are not what they are here, by their place in the list, which is in the order of
// the file.
func doubtJoined(list []oldText, tell func(i int, text string)) {
	if len(list) > maxCompared {
		return
	}
	for i, o := range list {
		if strings.Contains(o.key, "*") {
			tell(i, "the replaced service takes a star in a key for any text, and so gives this rule to other keys, too")
		}
		for j, other := range list {
			if o.key != other.key && other.takes(o, j < i) {
				tell(i, fmt.Sprintf("the replaced service compares key and value as one text, and gives %s some requests that are for this", other.path))
			}
		}
	}
}

// takes tells whether the replaced service gives o requests that are for its sibling of another key. It looks for the
// whole text, then for the first one with stars, then for the key alone.
func (o oldText) takes(from oldText, first bool) bool {
	mine, its := o.requests(), from.requests()
	switch {
	case !strings.Contains(its.text, "*"), o.value == "" && !o.stars():
		return false
	case !o.stars():
		return its.matches(mine.text)
	}
	return mine.overlaps(&its) && (first || !from.stars())
}

// unordered returns a key that has wildcards in both of two files for one domain, or "": the replaced service reads
// files in any order, and takes the first wildcard that matches.
func (d *Domain) unordered(other *Domain) string {
	for _, key := range slices.Sorted(maps.Keys(other.root.children)) {
		if b := d.root.children[key]; b != nil && len(b.wildcards) > 0 && len(other.root.children[key].wildcards) > 0 {
			return key
		}
	}
	return ""
}
