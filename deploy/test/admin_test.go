package deploytest

import (
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// TestAdminIsOnLoopbackOrForReplicasAlone: whoever else reaches it may spend limits.
func TestAdminIsOnLoopbackOrForReplicasAlone(t *testing.T) {
	fleets := 0
	everyDeployment(t, func(t *testing.T, all objects) {
		d := deployment(t, all)
		host := variable(d, "DEBUG_HOST")
		if host != "" && host != "0.0.0.0" { // which a pod's own address and 127.0.0.1 reach
			t.Errorf("admin is on %s", host)
		}
		fleet := host != ""
		if fleet {
			fleets++
		}
		for what, has := range map[string]bool{
			"the port of the pod": slices.ContainsFunc(d.Spec.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
				return p.Name == "admin" && fmt.Sprint(p.ContainerPort) == adminPort
			}),
			"the port of the headless Service": servesAdmin(find[*corev1.Service](t, all, "Service envoy-rls-headless")),
		} {
			if has != fleet {
				t.Errorf("a fleet: %t, and %s: %t", fleet, what, has)
			}
		}
		if servesAdmin(find[*corev1.Service](t, all, "Service envoy-rls")) {
			t.Error("one address leads to the admin of any replica")
		}
		if policy, there := all["NetworkPolicy envoy-rls"].(*networkingv1.NetworkPolicy); there && fleet {
			betweenReplicas(t, policy, d)
		}
	})
	if fleets < 4 {
		t.Errorf("%d are fleets", fleets)
	}
}

// variable is one of the container's environment, or "".
func variable(d *appsv1.Deployment, name string) (value string) {
	for _, e := range d.Spec.Template.Spec.Containers[0].Env {
		if e.Name == name {
			value = e.Value
		}
	}
	return value
}

func servesAdmin(s *corev1.Service) bool {
	return slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return fmt.Sprint(p.Port) == adminPort })
}

// betweenReplicas tells whether a policy lets replicas call the admin of each other, in both directions. Who else may call it is a
// matter of TestTheNetworkPolicyIsForThePodsAndTheirPorts.
func betweenReplicas(t *testing.T, policy *networkingv1.NetworkPolicy, d *appsv1.Deployment) {
	t.Helper()
	opens := func(ports []networkingv1.NetworkPolicyPort) bool {
		return len(ports) == 1 && (*ports[0].Port == intstr.FromString("admin") || ports[0].Port.String() == adminPort) &&
			*ports[0].Protocol == corev1.ProtocolTCP
	}
	in := slices.ContainsFunc(policy.Spec.Ingress, func(r networkingv1.NetworkPolicyIngressRule) bool { return opens(r.Ports) })
	out := slices.IndexFunc(policy.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool { return opens(r.Ports) })
	if !in || out < 0 {
		t.Fatalf("replicas may call each other: %t, and out: %t", in, out >= 0)
	}
	selects(t, "whom replicas may call", policy.Spec.Egress[out].To[0].PodSelector, d)
}

func TestTheChartLetsReplicasReachWhatTheirSettingsName(t *testing.T) {
	for set, want := range map[string][]string{
		`{}`: nil,
		`{extraArgs: ["--xds-server=plane.example:18001"]}`:                                                             {"18001"},
		`{extraEnv: [{name: CONFIG_GRPC_XDS_SERVER_URL, value: "eg:18000"}]}`:                                           {"18000"},
		`{extraEnv: [{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://collector:4318"}]}`:                             {"4318"},
		`{extraEnv: [{name: OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, value: "https://[fd00::2]:4319/v1/a"}]}`:                {"4319"},
		`{extraEnv: [{name: OTEL_EXPORTER_OTLP_ENDPOINT, valueFrom: {fieldRef: {fieldPath: a}}}]}`:                      nil,
		`{extraEnv: [{name: OTHER, value: "host:1234"}]}`:                                                               nil,
		`{extraArgs: ["--xds-server=a:4317"], extraEnv: [{name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://b:4317"}]}`: {"4317"},
		`{store: memory, extraArgs: ["--xds-server=plane.example:18001"]}`:                                              {"18001"},
	} {
		equal(t, set, reachable(t, set), want)
	}
}

// reachable are the ports that the chart lets replicas reach besides those of DNS and of its own Redis.
func reachable(t *testing.T, set string) (ports []string) {
	t.Helper()
	policy := find[*networkingv1.NetworkPolicy](t, chart(t, set), "NetworkPolicy envoy-rls")
	for _, rule := range policy.Spec.Egress[1:] {
		for _, p := range rule.Ports {
			if port := p.Port.String(); port != "redis" {
				ports = append(ports, port)
			}
		}
	}
	return ports
}
