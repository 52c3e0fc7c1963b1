package deploytest

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	manifests = "../k8s"
	namespace = "ratelimit"
)

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
	for name, o := range build(t, components(t)...) {
		if o, ok := o.(metav1.Object); ok && o.GetNamespace() != namespace && name != "Namespace "+namespace {
			t.Errorf("%s is in namespace %q", name, o.GetNamespace())
		}
	}
}

func TestRedisIsWhereTheDeploymentLooksForIt(t *testing.T) {
	all := build(t)
	if args := deployment(t, all).Spec.Template.Spec.Containers[0].Args; !slices.Contains(args, "--redis=redis://redis:6379") {
		t.Errorf("args: %q", args)
	}
	redis := find[*corev1.Service](t, all, "Service redis")
	if redis.Spec.Ports[0].Port != 6379 {
		t.Errorf("Service redis: %v", redis.Spec.Ports)
	}
}

// components are the parts that an operator may add to the kustomization.
func components(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(manifests, "*", "kustomization.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no components: %v", err)
	}
	var names []string
	for _, file := range files {
		names = append(names, filepath.Base(filepath.Dir(file)))
	}
	return names
}

// build returns what `kubectl apply -k` would apply, with further components.
func build(t *testing.T, components ...string) objects {
	t.Helper()
	directory := manifests
	if len(components) > 0 {
		directory = t.TempDir()
		if err := os.CopyFS(directory, os.DirFS(manifests)); err != nil {
			t.Fatal(err)
		}
		add(t, filepath.Join(directory, "kustomization.yaml"), components)
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), directory)
	if err != nil {
		t.Fatal(err)
	}
	text, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, manifests, text)
}

// add adds components to a kustomization.
func add(t *testing.T, file string, components []string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	kustomization := map[string]any{}
	if err := yaml.Unmarshal(text, &kustomization); err != nil {
		t.Fatal(err)
	}
	kustomization["components"] = components
	if text, err = yaml.Marshal(kustomization); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
}
