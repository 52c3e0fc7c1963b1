package deploytest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	manifests = "../k8s"
	namespace = "ratelimit"
)

// object is any of the Kubernetes types that the manifests use.
type object interface{ GetName() string }

// kinds makes an empty object of each kind that the manifests may contain.
var kinds = map[metav1.TypeMeta]func() object{
	{APIVersion: "v1", Kind: "Namespace"}:       func() object { return new(corev1.Namespace) },
	{APIVersion: "v1", Kind: "ConfigMap"}:       func() object { return new(corev1.ConfigMap) },
	{APIVersion: "v1", Kind: "Service"}:         func() object { return new(corev1.Service) },
	{APIVersion: "apps/v1", Kind: "Deployment"}: func() object { return new(appsv1.Deployment) },
}

func TestEveryManifestIsWhatKubernetesKnows(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(decode(t, file, text)) == 0 {
			t.Errorf("%s holds no object", file)
		}
	}
}

func TestEveryManifestIsInTheKustomization(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(manifests, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var kustomization struct{ Resources []string }
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(manifests, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if name != "kustomization.yaml" && !slices.Contains(kustomization.Resources, name) {
			t.Errorf("%s is not among the resources of kustomization.yaml", name)
		}
	}
}

func TestEverythingIsInOneNamespace(t *testing.T) {
	for name, o := range build(t) {
		if o, ok := o.(metav1.Object); ok && o.GetNamespace() != namespace && name != "Namespace "+namespace {
			t.Errorf("%s is in namespace %q", name, o.GetNamespace())
		}
	}
}

func TestTheDeploymentRollsWithoutAGap(t *testing.T) {
	d := deployment(t)
	if got := *d.Spec.Replicas; got < 3 {
		t.Errorf("replicas: %d, want 3 or more", got)
	}
	rolling := d.Spec.Strategy.RollingUpdate
	if rolling == nil || rolling.MaxUnavailable == nil || *rolling.MaxUnavailable != intstr.FromInt32(0) {
		t.Errorf("rollingUpdate: %v, want maxUnavailable 0", rolling)
	}
	if len(d.Spec.Template.Spec.TopologySpreadConstraints) == 0 {
		t.Error("no topologySpreadConstraints")
	}
}

func TestTheGracePeriodCoversTheWholeShutdown(t *testing.T) {
	d := deployment(t)
	args := d.Spec.Template.Spec.Containers[0].Args
	ours := duration(t, args, "--drain-delay=") + duration(t, args, "--shutdown-timeout=")
	granted := time.Duration(*d.Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if granted <= ours {
		t.Errorf("terminationGracePeriodSeconds is %v, drain delay and shutdown timeout together are %v", granted, ours)
	}
}

func TestProbesAskOverPlainHTTPAndOnlyReadinessAsksForMore(t *testing.T) {
	c := deployment(t).Spec.Template.Spec.Containers[0]
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
}

func TestPodsAreLockedDown(t *testing.T) {
	for name, o := range build(t) {
		d, ok := o.(*appsv1.Deployment)
		if !ok {
			continue
		}
		t.Run(name, func(t *testing.T) {
			pod := d.Spec.Template.Spec
			wantFalse(t, "enableServiceLinks", pod.EnableServiceLinks)
			wantFalse(t, "automountServiceAccountToken", pod.AutomountServiceAccountToken)
			security := pod.SecurityContext
			if security == nil || security.RunAsNonRoot == nil || !*security.RunAsNonRoot ||
				security.RunAsUser == nil || *security.RunAsUser != 65534 {
				t.Error("pod may run as root")
			}
			if security.SeccompProfile == nil || security.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
				t.Error("no seccomp profile")
			}
			for _, c := range pod.Containers {
				containerIsLockedDown(t, c)
			}
		})
	}
}

func containerIsLockedDown(t *testing.T, c corev1.Container) {
	t.Helper()
	security := c.SecurityContext
	if security == nil || security.ReadOnlyRootFilesystem == nil || !*security.ReadOnlyRootFilesystem {
		t.Errorf("%s: the root file system can be written", c.Name)
	}
	wantFalse(t, "allowPrivilegeEscalation", security.AllowPrivilegeEscalation)
	if security.Capabilities == nil || !slices.Contains(security.Capabilities.Drop, "ALL") {
		t.Errorf("%s: keeps capabilities", c.Name)
	}
	if !c.Resources.Limits.Cpu().IsZero() {
		t.Errorf("%s: has a CPU limit, whose throttling is longer than Envoy waits", c.Name)
	}
	if c.Resources.Limits.Memory().IsZero() {
		t.Errorf("%s: has no memory limit", c.Name)
	}
}

func TestRulesComeFromTheConfigMapAndFollowIt(t *testing.T) {
	pod := deployment(t).Spec.Template.Spec
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
			rules := find[*corev1.ConfigMap](t, "ConfigMap "+volumes[m.Name])
			if len(rules.Data) == 0 {
				t.Error("the ConfigMap has no rules")
			}
		}
	}
	if !mounted {
		t.Error("--rules names no mounted directory")
	}
}

func TestServicesReachThePods(t *testing.T) {
	d := deployment(t)
	ports := map[string]int32{}
	for _, p := range d.Spec.Template.Spec.Containers[0].Ports {
		ports[p.Name] = p.ContainerPort
	}
	for name, clusterIP := range map[string]string{"envoy-rls": "", "envoy-rls-headless": "None"} {
		service := find[*corev1.Service](t, "Service "+name)
		if service.Spec.ClusterIP != clusterIP || service.Spec.PublishNotReadyAddresses {
			t.Errorf("%s: clusterIP %q, publishNotReadyAddresses %v", name, service.Spec.ClusterIP, service.Spec.PublishNotReadyAddresses)
		}
		for key, value := range service.Spec.Selector {
			if d.Spec.Template.Labels[key] != value {
				t.Errorf("%s selects %s=%s, which no pod has", name, key, value)
			}
		}
		for _, p := range service.Spec.Ports {
			if ports[p.TargetPort.String()] != p.Port {
				t.Errorf("%s: port %s leads nowhere", name, p.Name)
			}
			if p.Name == "grpc" && (p.AppProtocol == nil || *p.AppProtocol != "kubernetes.io/h2c") {
				t.Errorf("%s: gRPC without appProtocol kubernetes.io/h2c", name)
			}
		}
	}
}

func TestRedisIsWhereTheDeploymentLooksForIt(t *testing.T) {
	if args := deployment(t).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--redis=redis://redis:6379") {
		t.Errorf("args: %q", args)
	}
	redis := find[*corev1.Service](t, "Service redis")
	if redis.Spec.Ports[0].Port != 6379 {
		t.Errorf("Service redis: %v", redis.Spec.Ports)
	}
}

// build returns what `kubectl apply -k` would apply, by kind and name.
func build(t *testing.T) map[string]object {
	t.Helper()
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), manifests)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, manifests, text)
}

// decode reads the objects in text by kind and name. A field that their Go type does not have is an error.
func decode(t *testing.T, source string, text []byte) map[string]object {
	t.Helper()
	objects := map[string]object{}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal(document, &meta); err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		empty, known := kinds[meta]
		if !known {
			t.Fatalf("%s: unexpected kind %v", source, meta)
		}
		o := empty()
		if err := yaml.UnmarshalStrict(document, o); err != nil {
			t.Fatalf("%s: %v", source, err)
		}
		objects[meta.Kind+" "+o.GetName()] = o
	}
}

func find[T object](t *testing.T, name string) T {
	t.Helper()
	o, ok := build(t)[name].(T)
	if !ok {
		t.Fatalf("no %s", name)
	}
	return o
}

func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	return find[*appsv1.Deployment](t, "Deployment envoy-rls")
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
