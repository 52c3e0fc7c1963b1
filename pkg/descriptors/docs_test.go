package descriptors_test

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

var yamlBlock = regexp.MustCompile("(?ms)^```yaml\n(.*?)^```$")

// rulesOf returns the rule files that a document shows.
func rulesOf(t *testing.T, name string) []string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var rules []string
	for _, m := range yamlBlock.FindAllStringSubmatch(string(text), -1) {
		if strings.HasPrefix(m[1], "domain:") {
			rules = append(rules, m[1])
		}
	}
	return rules
}

func TestEveryRuleFileInTheDocumentsCompiles(t *testing.T) {
	for _, name := range append(glob(t, "../../docs/*.md"), "../../README.md") {
		for _, rules := range rulesOf(t, name) {
			_, problems := descriptors.Compile([]descriptors.File{{Name: name, Data: []byte(rules)}}, descriptors.Options{})
			for _, p := range slices.DeleteFunc(problems, func(p descriptors.Problem) bool { return announced(rules, p) }) {
				t.Error(p)
			}
		}
	}
}

// announced tells whether rules say of a line that it is warned of.
func announced(rules string, p descriptors.Problem) bool {
	line := strings.Split(rules, "\n")[max(p.Line-1, 0)]
	return p.Severity == descriptors.Warning && strings.Contains(line, "# check warns")
}

// TestTheRulesDocumentSaysWhatMatches checks the table of docs/rules.md.
func TestTheRulesDocumentSaysWhatMatches(t *testing.T) {
	rules := compile(t, descriptors.Options{}, rulesOf(t, "../../docs/rules.md")[0])
	text, err := os.ReadFile("../../docs/rules.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| (`[^|]+`) \\| ([^|]+) \\|$").FindAllStringSubmatch(string(text), 6)
	if len(rows) != 6 {
		t.Fatalf("the table has %d rows", len(rows))
	}
	for _, row := range rows {
		for _, sent := range strings.Split(row[1], " and ") {
			got := "no limit"
			r := rules.Domain("shop").Match(entries(strings.NewReplacer("`", "", ",", "").Replace(sent)))
			if r != nil {
				l := r.Limits[0]
				got = fmt.Sprintf("%d per %s", l.Requests, l.Unit.Words(l.Multiplier))
			}
			if !strings.HasPrefix(row[2], got) {
				t.Errorf("%s gets %s; the document says %s", sent, got, row[2])
			}
		}
	}
}
