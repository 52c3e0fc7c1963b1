package deploytest

import (
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// everyDeployment runs a test for each way to deploy.
func everyDeployment(t *testing.T, test func(t *testing.T, all objects)) {
	t.Helper()
	t.Run("kustomize", func(t *testing.T) { test(t, build(t)) })
	t.Run("kustomize with all components", func(t *testing.T) { test(t, build(t, components(t)...)) })
	for name, set := range valueSets {
		t.Run("chart, "+name, func(t *testing.T) { test(t, chart(t, set)) })
	}
}

func TestTheDeploymentRollsWithoutAGap(t *testing.T) {
	everyDeployment(t, func(t *testing.T, all objects) {
		d := deployment(t, all)
		rolling := d.Spec.Strategy.RollingUpdate
		if rolling == nil || rolling.MaxUnavailable == nil || *rolling.MaxUnavailable != intstr.FromInt32(0) {
			t.Errorf("rollingUpdate: %v, want maxUnavailable 0", rolling)
		}
		spread := d.Spec.Template.Spec.TopologySpreadConstraints
		if len(spread) != 2 {
			t.Errorf("topologySpreadConstraints: %v, want zones and nodes", spread)
		}
		for _, s := range spread {
			selects(t, s.TopologyKey, s.LabelSelector, d)
		}
	})
}

func TestThereAreThreeReplicasOrOneInMemory(t *testing.T) {
	everyDeployment(t, func(t *testing.T, all objects) {
		d := deployment(t, all)
		args := d.Spec.Template.Spec.Containers[0].Args
		hpa, scales := all["HorizontalPodAutoscaler envoy-rls"].(*autoscalingv2.HorizontalPodAutoscaler)
		switch {
		case slices.Contains(args, "--store=memory"):
			if scales || d.Spec.Replicas == nil || *d.Spec.Replicas != 1 {
				t.Errorf("memory, and replicas: %v, autoscaler: %v", d.Spec.Replicas, hpa)
			}
		case !slices.Contains(args, "--peers=envoy-rls-headless"):
			t.Errorf("%q doesn't count replicas", args)
		case !scales:
			if d.Spec.Replicas == nil || *d.Spec.Replicas < 3 {
				t.Errorf("replicas: %v", d.Spec.Replicas)
			}
		default:
			if d.Spec.Replicas != nil || *hpa.Spec.MinReplicas < 3 {
				t.Errorf("replicas %v would undo what the autoscaler did, from %d", d.Spec.Replicas, *hpa.Spec.MinReplicas)
			}
			scalesByCPU(t, hpa, d)
		}
	})
}

func scalesByCPU(t *testing.T, hpa *autoscalingv2.HorizontalPodAutoscaler, d *appsv1.Deployment) {
	t.Helper()
	if r := hpa.Spec.ScaleTargetRef; r.Kind != "Deployment" || r.Name != d.Name || r.APIVersion != "apps/v1" {
		t.Errorf("it scales %v", r)
	}
	m := hpa.Spec.Metrics[0]
	if m.ContainerResource == nil || m.ContainerResource.Container != d.Spec.Template.Spec.Containers[0].Name ||
		m.ContainerResource.Name != corev1.ResourceCPU {
		t.Errorf("it scales by %v", m)
	}
	if d.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu().IsZero() {
		t.Error("it scales by a part of the CPU requested, and none is")
	}
}

func autoscaler(t *testing.T, all objects) *autoscalingv2.HorizontalPodAutoscaler {
	t.Helper()
	return find[*autoscalingv2.HorizontalPodAutoscaler](t, all, "HorizontalPodAutoscaler envoy-rls")
}

func TestADisruptionTakesOneReplica(t *testing.T) {
	everyDeployment(t, func(t *testing.T, all objects) {
		pdb, there := all["PodDisruptionBudget envoy-rls"].(*policyv1.PodDisruptionBudget)
		if !there {
			return
		}
		if *pdb.Spec.MaxUnavailable != intstr.FromInt32(1) || *pdb.Spec.UnhealthyPodEvictionPolicy != policyv1.AlwaysAllow {
			t.Errorf("%v", pdb.Spec)
		}
		selects(t, "PodDisruptionBudget", pdb.Spec.Selector, deployment(t, all))
	})
}

func TestTheGracePeriodCoversTheWholeShutdown(t *testing.T) {
	everyDeployment(t, func(t *testing.T, all objects) {
		d := deployment(t, all)
		args := d.Spec.Template.Spec.Containers[0].Args
		ours := duration(t, args, "--drain-delay=") + duration(t, args, "--shutdown-timeout=")
		granted := time.Duration(*d.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
		if granted <= ours {
			t.Errorf("terminationGracePeriodSeconds is %v, drain delay and shutdown timeout together are %v", granted, ours)
		}
	})
}

func TestProbesAskOverPlainHTTPAndOnlyReadinessAsksForMore(t *testing.T) {
	everyDeployment(t, func(t *testing.T, all objects) {
		c := deployment(t, all).Spec.Template.Spec.Containers[0]
		for _, probe := range []struct {
			name, path string
			probe      *corev1.Probe
		}{
			{"startup", "/livez", c.StartupProbe},
			{"liveness", "/livez", c.LivenessProbe},
			{"readiness", "/readyz", c.ReadinessProbe},
		} {
			if probe.probe == nil || probe.probe.HTTPGet == nil {
				t.Errorf("%s probe: not by HTTP", probe.name)
				continue
			}
			get := probe.probe.HTTPGet
			if get.Path != probe.path || get.Port != intstr.FromString("http") || get.Scheme != "" {
				t.Errorf("%s probe: %+v, want %s of port http", probe.name, get, probe.path)
			}
		}
	})
}

func TestPodsAreLockedDown(t *testing.T) {
	everyDeployment(t, func(t *testing.T, all objects) {
		for name, o := range all {
			if d, ok := o.(*appsv1.Deployment); ok {
				podIsLockedDown(t, name, d.Spec.Template.Spec)
			}
		}
	})
}

func podIsLockedDown(t *testing.T, name string, pod corev1.PodSpec) {
	t.Helper()
	wantFalse(t, name+": enableServiceLinks", pod.EnableServiceLinks)
	wantFalse(t, name+": automountServiceAccountToken", pod.AutomountServiceAccountToken)
	security := pod.SecurityContext
	if security == nil || security.RunAsNonRoot == nil || !*security.RunAsNonRoot ||
		security.RunAsUser == nil || *security.RunAsUser != nobody {
		t.Errorf("%s may run as root", name)
	}
	if security.SeccompProfile == nil || security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s has no seccomp profile", name)
	}
	for _, c := range pod.Containers {
		containerIsLockedDown(t, c)
	}
}

func containerIsLockedDown(t *testing.T, c corev1.Container) {
	t.Helper()
	security := c.SecurityContext
	if security == nil || security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem {
		t.Errorf("%s: the root file system can be written", c.Name)
	}
	wantFalse(t, c.Name+": allowPrivilegeEscalation", security.AllowPrivilegeEscalation)
	if security.Capabilities == nil || !slices.Contains(security.Capabilities.Drop, "ALL") {
		t.Errorf("%s: keeps capabilities", c.Name)
	}
	if !c.Resources.Limits.Cpu().IsZero() {
		t.Errorf("%s: has a CPU limit, whose throttling is longer than Envoy waits", c.Name)
	}
	if c.Resources.Limits.Memory().IsZero() {
		t.Errorf("%s: has no memory limit", c.Name)
	}
	for _, e := range c.Env {
		if e.Name == "GOMEMLIMIT" || e.Name == "GOGC" {
			t.Errorf("%s: %s overrules what the service makes of its memory limit", c.Name, e.Name)
		}
	}
}

func TestRulesComeFromAConfigMapAndFollowIt(t *testing.T) {
	everyDeployment(t, func(t *testing.T, all objects) {
		pod := deployment(t, all).Spec.Template.Spec
		volumes := map[string]string{}
		for _, v := range pod.Volumes {
			if v.ConfigMap != nil {
				volumes[v.Name] = v.ConfigMap.Name
			}
		}
		var mounted bool
		for _, m := range pod.Containers[0].VolumeMounts {
			if m.SubPath != "" || m.SubPathExpr != "" {
				t.Errorf("mount %s has a subPath: Kubernetes never updates such a file", m.Name)
			}
			if slices.Contains(pod.Containers[0].Args, "--rules="+m.MountPath) {
				mounted = true
				if rules := find[*corev1.ConfigMap](t, all, "ConfigMap "+volumes[m.Name]); len(rules.Data) == 0 {
					t.Error("the ConfigMap has no rules")
				}
			}
		}
		if !mounted {
			t.Error("--rules names no mounted directory")
		}
	})
}

func TestServicesReachThePods(t *testing.T) {
	everyDeployment(t, func(t *testing.T, all objects) {
		d := deployment(t, all)
		protocol := "kubernetes.io/h2c"
		for _, e := range d.Spec.Template.Spec.Containers[0].Env {
			if e.Name == "GRPC_SERVER_USE_TLS" {
				protocol = "https"
			}
		}
		for name, clusterIP := range map[string]string{"envoy-rls": "", "envoy-rls-headless": "None"} {
			service := find[*corev1.Service](t, all, "Service "+name)
			if service.Spec.ClusterIP != clusterIP || service.Spec.PublishNotReadyAddresses {
				t.Errorf("%s: clusterIP %q, publishNotReadyAddresses %v", name, service.Spec.ClusterIP, service.Spec.PublishNotReadyAddresses)
			}
			selects(t, name, &metav1.LabelSelector{MatchLabels: service.Spec.Selector}, d)
			leads(t, service, d, protocol)
		}
	})
}

// leads tells whether each port of a service is one of the pods', and what is spoken on that of gRPC.
func leads(t *testing.T, service *corev1.Service, d *appsv1.Deployment, protocol string) {
	t.Helper()
	ports := map[string]int32{}
	for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	for _, p := range service.Spec.Ports {
		if ports[p.TargetPort.String()] != p.Port {
			t.Errorf("%s: port %s leads nowhere", service.Name, p.Name)
		}
		if p.Name == "grpc" && (p.AppProtocol == nil || *p.AppProtocol != protocol) {
			t.Errorf("%s: gRPC without appProtocol %s", service.Name, protocol)
		}
	}
}

func TestTheNetworkPolicyIsForThePodsAndTheirPorts(t *testing.T) {
	everyDeployment(t, func(t *testing.T, all objects) {
		policy, there := all["NetworkPolicy envoy-rls"].(*networkingv1.NetworkPolicy)
		if !there {
			return
		}
		d := deployment(t, all)
		selects(t, "NetworkPolicy", &policy.Spec.PodSelector, d)
		for _, rule := range policy.Spec.Ingress {
			if len(rule.From) == 0 || len(rule.Ports) != 1 {
				t.Errorf("anybody may call %v", rule.Ports)
			}
			switch port := rule.Ports[0].Port.String(); port {
			case "grpc", "http":
			case "admin", adminPort:
				selects(t, "who may call admin", rule.From[0].PodSelector, d)
			default:
				t.Errorf("port %s may be called", port)
			}
		}
		args := strings.Join(d.Spec.Template.Spec.Containers[0].Args, " ")
		if names := len(policy.Spec.Egress); names == 1 && strings.Contains(args, "--redis=") {
			t.Error("Redis may not be called")
		}
		if policy, there = all["NetworkPolicy envoy-rls-redis"].(*networkingv1.NetworkPolicy); there {
			redis := find[*appsv1.Deployment](t, all, "Deployment envoy-rls-redis")
			selects(t, "NetworkPolicy of Redis", &policy.Spec.PodSelector, redis)
			selects(t, "who may call Redis", policy.Spec.Ingress[0].From[0].PodSelector, d)
		}
	})
}

// selects tells whether a selector is for a Deployment's pods, and for no other's.
func selects(t *testing.T, what string, selector *metav1.LabelSelector, d *appsv1.Deployment) {
	t.Helper()
	s, err := metav1.LabelSelectorAsSelector(selector)
	if err != nil {
		t.Fatal(err)
	}
	if !s.Matches(labels.Set(d.Spec.Template.Labels)) {
		t.Errorf("%s selects %s, which %s's pods are not", what, s, d.Name)
	}
	own, err := metav1.LabelSelectorAsSelector(d.Spec.Selector)
	if err != nil || s.String() != own.String() {
		t.Errorf("%s selects %s, the Deployment %s", what, s, own)
	}
}

func duration(t *testing.T, args []string, flag string) time.Duration {
	t.Helper()
	for _, arg := range args {
		if value, found := strings.CutPrefix(arg, flag); found {
			d, err := time.ParseDuration(value)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	t.Fatalf("no %s in %q", flag, args)
	return 0
}

func wantFalse(t *testing.T, field string, got *bool) {
	t.Helper()
	if got == nil || *got {
		t.Errorf("%s is not false", field)
	}
}
