package envoycheck

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/envoy-rls/envoy-rls/pkg/descriptors"
)

func TestTheDocumentTellsOfEveryFinding(t *testing.T) {
	var table strings.Builder
	for _, f := range slices.Sorted(maps.Keys(findings)) {
		fmt.Fprintf(&table, "| `%s` | %s | %s |\n", f, findings[f].severity, findings[f].meaning)
	}
	if !strings.Contains(read(t, "../../docs/envoy.md"), "| --- | --- | --- |\n"+table.String()+"\n") {
		t.Errorf("docs/envoy.md has not this table:\n%s", table.String())
	}
}

func TestTheDocumentsExampleIsTrue(t *testing.T) {
	blocks := regexp.MustCompile("(?ms)^```(yaml|text)\n(.*?)^```$").FindAllStringSubmatch(read(t, "../../docs/envoy.md"), 3)
	if len(blocks) != 3 {
		t.Fatalf("there are %d blocks", len(blocks))
	}
	rules, _ := descriptors.Compile([]descriptors.File{{Name: "rules.yaml", Data: []byte(blocks[0][2])}}, descriptors.Options{})
	c, err := Read([]descriptors.File{{Name: "routes.yaml", Data: []byte(blocks[1][2])}})
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for _, p := range c.Check(rules) {
		fmt.Fprintln(&said, p)
	}
	if said.String() != blocks[2][2] {
		t.Errorf("it says\n%s", said.String())
	}
}
