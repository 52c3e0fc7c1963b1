package deploytest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	egv1a1 "github.com/envoyproxy/gateway/api/v1alpha1"
	contourv1 "github.com/projectcontour/contour/apis/projectcontour/v1"
	contourv1alpha1 "github.com/projectcontour/contour/apis/projectcontour/v1alpha1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	istio "istio.io/api/networking/v1alpha3"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// gatewayKinds make an empty object of each kind of the gateways' samples.
var gatewayKinds = map[metav1.TypeMeta]func() any{
	{APIVersion: "networking.istio.io/v1alpha3", Kind: "EnvoyFilter"}:            func() any { return of(new(istio.EnvoyFilter)) },
	{APIVersion: "networking.istio.io/v1", Kind: "DestinationRule"}:              func() any { return of(new(istio.DestinationRule)) },
	{APIVersion: "gateway.envoyproxy.io/v1alpha1", Kind: "BackendTrafficPolicy"}: func() any { return new(egv1a1.BackendTrafficPolicy) },
	{APIVersion: "gateway.envoyproxy.io/v1alpha1", Kind: "ClientTrafficPolicy"}:  func() any { return new(egv1a1.ClientTrafficPolicy) },
	{APIVersion: "gateway.envoyproxy.io/v1alpha1", Kind: "EnvoyGateway"}:         func() any { return new(egv1a1.EnvoyGateway) },
	{APIVersion: "projectcontour.io/v1alpha1", Kind: "ExtensionService"}:         func() any { return new(contourv1alpha1.ExtensionService) },
	{APIVersion: "projectcontour.io/v1alpha1", Kind: "ContourConfiguration"}:     func() any { return new(contourv1alpha1.ContourConfiguration) },
	{APIVersion: "projectcontour.io/v1", Kind: "HTTPProxy"}:                      func() any { return new(contourv1.HTTPProxy) },
	{APIVersion: "getambassador.io/v3alpha1", Kind: "RateLimitService"}:          func() any { return new(emissary[rateLimitService]) },
	{APIVersion: "getambassador.io/v3alpha1", Kind: "Mapping"}:                   func() any { return new(emissary[mapping]) },
}

// istioObject is an object whose spec is a protocol buffer. Its own types pass over fields that they don't know.
type istioObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              strictly `json:"spec"`
}

type strictly struct{ proto.Message }

func of(spec proto.Message) *istioObject { return &istioObject{Spec: strictly{spec}} }

// UnmarshalJSON implements json.Unmarshaler.
func (s *strictly) UnmarshalJSON(text []byte) error { return protojson.Unmarshal(text, s.Message) }

// emissary is an object of Emissary 3, of whose types no module of Go's proxy has any.
type emissary[Spec any] struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              Spec `json:"spec"`
}

type rateLimitService struct {
	AmbassadorID    []string `json:"ambassador_id"`
	Service         string   `json:"service"`
	TimeoutMS       int      `json:"timeout_ms"`
	Domain          string   `json:"domain"`
	TLS             string   `json:"tls"`
	ProtocolVersion string   `json:"protocol_version"`
	StatsName       string   `json:"stats_name"`
	FailureModeDeny bool     `json:"failure_mode_deny"`
}

// mapping has those of a Mapping's many fields that the sample needs.
type mapping struct {
	Hostname string                                `json:"hostname"`
	Prefix   string                                `json:"prefix"`
	Service  string                                `json:"service"`
	Labels   map[string][]map[string][]mappedLabel `json:"labels"` // groups by domain, then by name
}

type mappedLabel struct {
	RequestHeaders *struct {
		Key        string `json:"key"`
		HeaderName string `json:"header_name"`
	} `json:"request_headers"`
}

func TestEverySampleIsWhatItsGatewayKnows(t *testing.T) {
	for _, directory := range []string{"istio", "envoy-gateway", "contour", "emissary"} {
		files, err := filepath.Glob(filepath.Join("..", directory, "*.yaml"))
		if err != nil || len(files) == 0 {
			t.Fatalf("no samples for %s: %v", directory, err)
		}
		for _, file := range files {
			if file != envoyGatewayValues {
				gatewayObjects(t, file)
			}
		}
	}
}

// gatewayObjects decodes a file of samples, by kind.
func gatewayObjects(t *testing.T, file string) map[string]any {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]any{}
	for _, document := range documents(t, file, text) {
		kind, o := gatewayObject(t, file, document)
		all[kind] = o
	}
	return all
}

func gatewayObject(t *testing.T, file string, document []byte) (kind string, o any) {
	t.Helper()
	var meta metav1.TypeMeta
	if err := yaml.Unmarshal(document, &meta); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	empty, known := gatewayKinds[meta]
	if !known {
		t.Fatalf("%s: unexpected kind %v", file, meta)
	}
	o = empty()
	if err := yaml.UnmarshalStrict(document, o); err != nil {
		t.Errorf("%s: %v", file, err)
	}
	return meta.Kind, o
}

const envoyGatewayValues = "../envoy-gateway/values.yaml"

func TestTheValuesForEnvoyGatewaySetTheImageOfItsRateLimitService(t *testing.T) {
	text, err := os.ReadFile(envoyGatewayValues)
	if err != nil {
		t.Fatal(err)
	}
	var values struct {
		Config struct {
			EnvoyGateway egv1a1.EnvoyGatewaySpec `json:"envoyGateway"`
		} `json:"config"`
	}
	if err := yaml.UnmarshalStrict(text, &values); err != nil {
		t.Fatal(err)
	}
	container := values.Config.EnvoyGateway.Provider.Kubernetes.RateLimitDeployment.Container
	if !strings.HasSuffix(*container.Image, "/envoy-rls:"+load(t).AppVersion()) {
		t.Errorf("the image is %s", *container.Image)
	}
	if container.Resources.Limits.Memory().IsZero() || !container.Resources.Limits.Cpu().IsZero() {
		t.Errorf("its limits are %v", container.Resources.Limits)
	}
}

func TestTheSamplesCallTheServiceWhereItIs(t *testing.T) {
	all := chart(t, "{}")
	service := gatewayObjects(t, "../contour/extensionservice.yaml")["ExtensionService"].(*contourv1alpha1.ExtensionService)
	config := gatewayObjects(t, "../contour/contourconfiguration.yaml")["ContourConfiguration"].(*contourv1alpha1.ContourConfiguration)
	target := service.Spec.Services[0]
	if service.Namespace != namespace || find[*corev1.Service](t, all, "Service "+target.Name).Spec.Ports[0].Port != int32(target.Port) {
		t.Errorf("Contour calls %v in %s", target, service.Namespace)
	}
	if e := config.Spec.RateLimitService.ExtensionService; e.Name != service.Name || e.Namespace != service.Namespace {
		t.Errorf("ContourConfiguration names %v", e)
	}
	emissary := gatewayObjects(t, "../emissary/ratelimitservice.yaml")["RateLimitService"].(*emissary[rateLimitService])
	if got := emissary.Spec.Service; got != "envoy-rls-headless."+namespace+":8081" {
		t.Errorf("Emissary calls %s", got)
	}
	filter := gatewayObjects(t, "../istio/envoyfilter.yaml")["EnvoyFilter"].(*istioObject)
	text, err := json.Marshal(filter.Spec.Message.(*istio.EnvoyFilter).ConfigPatches[0].Patch.Value)
	if err != nil || !strings.Contains(string(text), `"envoy-rls-headless.ratelimit.svc.cluster.local"`) {
		t.Errorf("Istio calls %s, %v", text, err)
	}
	for _, name := range []string{"Service envoy-rls-headless", "Service envoy-rls"} {
		find[*corev1.Service](t, all, name)
	}
}

func TestTheSamplesLimitWhatTheDemoRulesDo(t *testing.T) {
	rules := find[*corev1.ConfigMap](t, chart(t, "{}"), "ConfigMap envoy-rls-rules").Data["demo.yaml"]
	if !strings.Contains(rules, "domain: demo") || !strings.Contains(rules, "key: user") {
		t.Fatalf("the demo's rules are\n%s", rules)
	}
	for _, file := range []string{"istio/envoyfilter.yaml", "contour/contourconfiguration.yaml", "emissary/ratelimitservice.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "domain: demo #") {
			t.Errorf("%s asks for another domain than demo", file)
		}
	}
	for _, file := range []string{"istio/envoyfilter.yaml", "contour/httpproxy.yaml", "emissary/ratelimitservice.yaml"} {
		text, err := os.ReadFile(filepath.Join("..", file))
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "(user=<header x-user>)") {
			t.Errorf("%s doesn't say what it sends", file)
		}
	}
}
