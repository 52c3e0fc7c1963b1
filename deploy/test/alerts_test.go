package deploytest

import (
	"flag"
	"os"
	"strings"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"sigs.k8s.io/yaml"
)

// alerts is where alerts are edited. The other files are written from it: go test -run Alerts . -write
const alerts = "deploy/prometheus/alerts.yaml"

var write = flag.Bool("write", false, "write the other files of alerts")

const ruleHeader = `# For the Prometheus Operator. Add the labels that your Prometheus selects. Written from deploy/prometheus/alerts.yaml: edit that.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: envoy-rls
  labels: {app.kubernetes.io/name: envoy-rls}
spec:
`

func TestTheAlertsAreTheSameInAllFiles(t *testing.T) {
	source := text(t, alerts)
	_, rules, _ := strings.Cut(source, "groups:")
	rules = "groups:" + rules
	indented := &strings.Builder{}
	for line := range strings.Lines(rules) {
		if line != "\n" {
			line = "  " + line
		}
		indented.WriteString(line)
	}
	for name, want := range map[string]string{
		"deploy/helm/envoy-rls/files/alerts.yaml":        rules,
		"deploy/k8s/prometheus-rule/prometheusrule.yaml": ruleHeader + indented.String(),
	} {
		if *write {
			if err := os.WriteFile(repository+"/"+name, []byte(want), 0o644); err != nil { //nolint:gosec // everybody may read it
				t.Fatal(err)
			}
		}
		if text(t, name) != want {
			t.Errorf("%s is not what %s says: in deploy/test, go test -run Alerts . -write", name, alerts)
		}
	}
}

func TestTheAlertsOfAnOperatorAreThose(t *testing.T) {
	want := monitoringv1.PrometheusRuleSpec{}
	if err := yaml.UnmarshalStrict([]byte(text(t, alerts)), &want); err != nil {
		t.Fatal(err)
	}
	for name, all := range map[string]objects{
		"the chart":         chart(t, `{prometheusRule: {enabled: true}}`),
		"the kustomization": build(t, components(t)...),
	} {
		equal(t, name, find[*monitoringv1.PrometheusRule](t, all, "PrometheusRule envoy-rls").Spec, want)
	}
}
