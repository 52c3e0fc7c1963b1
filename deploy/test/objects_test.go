package deploytest

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"testing"

	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// object is any of the Kubernetes types that the manifests use.
type object interface{ GetName() string }

// objects are what would be applied, by kind and name.
type objects map[string]object

// kinds makes an empty object of each kind that the manifests may contain.
var kinds = map[metav1.TypeMeta]func() object{
	{APIVersion: "v1", Kind: "Namespace"}:                           func() object { return new(corev1.Namespace) },
	{APIVersion: "v1", Kind: "ConfigMap"}:                           func() object { return new(corev1.ConfigMap) },
	{APIVersion: "v1", Kind: "Service"}:                             func() object { return new(corev1.Service) },
	{APIVersion: "apps/v1", Kind: "Deployment"}:                     func() object { return new(appsv1.Deployment) },
	{APIVersion: "autoscaling/v2", Kind: "HorizontalPodAutoscaler"}: func() object { return new(autoscalingv2.HorizontalPodAutoscaler) },
	{APIVersion: "policy/v1", Kind: "PodDisruptionBudget"}:          func() object { return new(policyv1.PodDisruptionBudget) },
	{APIVersion: "networking.k8s.io/v1", Kind: "NetworkPolicy"}:     func() object { return new(networkingv1.NetworkPolicy) },
	{APIVersion: "monitoring.coreos.com/v1", Kind: "ServiceMonitor"}: func() object {
		return new(monitoringv1.ServiceMonitor)
	},
	{APIVersion: "monitoring.coreos.com/v1", Kind: "PrometheusRule"}: func() object {
		return new(monitoringv1.PrometheusRule)
	},
}

// decode reads the objects in text. A field that their Go type does not have is an error, and so is a second object of
// one name.
func decode(t *testing.T, source string, text []byte) objects {
	t.Helper()
	all := objects{}
	for _, document := range documents(t, source, text) {
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
			t.Fatalf("%s: %v\n%s", source, err, document)
		}
		name := meta.Kind + " " + o.GetName()
		if all[name] != nil {
			t.Errorf("%s: %s is there twice", source, name)
		}
		all[name] = o
	}
	return all
}

// documents are the YAML documents in text that hold something.
func documents(t *testing.T, source string, text []byte) [][]byte {
	t.Helper()
	var all [][]byte
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return all
		}
		var content any
		if err == nil {
			err = yaml.UnmarshalStrict(document, &content)
		}
		if err != nil {
			t.Fatalf("%s: %v\n%s", source, err, document)
		}
		if content != nil {
			all = append(all, document)
		}
	}
}

func find[T object](t *testing.T, all objects, name string) T {
	t.Helper()
	o, ok := all[name].(T)
	if !ok {
		t.Fatalf("no %s", name)
	}
	return o
}

// deployment is that of the service.
func deployment(t *testing.T, all objects) *appsv1.Deployment {
	t.Helper()
	return find[*appsv1.Deployment](t, all, "Deployment envoy-rls")
}
