package descriptors

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Severity says what a Problem does to its file.
type Severity uint8

const (
	// Error keeps the file from being used.
	Error Severity = iota
	// Warning lets the file be used; it probably doesn't do what its author wants.
	Warning
)

// String is error or warning.
func (s Severity) String() string {
	if s == Warning {
		return "warning"
	}
	return "error"
}

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Problem is one thing that is wrong in a rule file.
type Problem struct {
	Severity Severity `json:"severity"`
	File     string   `json:"file"`
	// Line and Column count from 1, and are 0 when the file as a whole is meant.
	Line   int `json:"line"`
	Column int `json:"column"`
	// Path leads to the place in terms of the rules, such as shop.tenant.rate_limit.unit; it may be empty.
	Path string `json:"path"`
	// Text says what is wrong and how to mend it.
	Text string `json:"text"`
}

// String is the problem as file:line:column: path: text, with "warning: " before the path of a warning.
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.place() + ": ")
	if p.Severity == Warning {
		b.WriteString("warning: ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Text)
	return b.String()
}

// place is the file, and the line and column if there are any.
func (p Problem) place() string {
	if p.Line == 0 {
		return p.File
	}
	return fmt.Sprintf("%s:%d:%d", p.File, p.Line, p.Column)
}

// HasErrors tells whether any problem is an Error.
func HasErrors(problems []Problem) bool {
	return slices.ContainsFunc(problems, func(p Problem) bool { return p.Severity == Error })
}

// sortByPlace sorts the problems of one file.
func sortByPlace(problems []Problem) {
	slices.SortStableFunc(problems, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
}

// suggest returns " did you mean X?" with the candidate most like word, or "".
func suggest(word string, candidates []string) string {
	if c, ok := Nearest(word, candidates); ok {
		return "; did you mean " + c + "?"
	}
	return ""
}

// Nearest finds the candidate that word most probably was meant to be: equal but for case and separators,
// begun and not finished, or a few letters away.
func Nearest(word string, candidates []string) (string, bool) {
	folded := fold(word)
	best, bestDistance := "", min(2+len(folded)/5, max(len(folded), 1), maxWord)
	for _, c := range candidates[:min(len(candidates), maxCandidates)] {
		other := fold(c)
		switch {
		case other == folded:
			return c, true
		case len(folded) >= 4 && strings.HasPrefix(other, folded):
			best, bestDistance = c, 1
		default:
			if d := editDistance(folded, other); d < bestDistance {
				best, bestDistance = c, d
			}
		}
	}
	return best, best != ""
}

// maxCandidates bounds the words that one is compared with.
const maxCandidates = 500

var separators = strings.NewReplacer("_", "", "-", "", " ", "") //nolint:gochecknoglobals // a table

func fold(s string) string { return separators.Replace(strings.ToLower(s)) }

// maxWord is the longest word that is compared letter by letter; no key is as long.
const maxWord = 48

// editDistance is how many letters must be put in, taken out, replaced, or swapped with their neighbour to
// make b of a (the optimal string alignment distance); of long words it is maxWord.
func editDistance(a, b string) int {
	if len(a) > maxWord || len(b) > maxWord {
		return maxWord
	}
	var rows [3][maxWord + 1]int // the last two rows and the next one
	for j := range len(b) + 1 {
		rows[1][j] = j
	}
	for i := range len(a) {
		next, last, before := &rows[(i+2)%3], &rows[(i+1)%3], &rows[i%3]
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(last[j+1]+1, next[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
	}
	return rows[(len(a)+1)%3][len(b)]
}
