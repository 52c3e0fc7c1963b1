package deploytest

import (
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/chart/common"
	"helm.sh/helm/v4/pkg/chart/common/util"
	chartv2 "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/lint"
	"helm.sh/helm/v4/pkg/chart/v2/lint/support"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	"helm.sh/helm/v4/pkg/engine"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"sigs.k8s.io/yaml"
)

const (
	chartDirectory = "../helm/envoy-rls"
	// required are the values that have no default.
	required = `{image: {repository: registry.example/envoy-rls}, networkPolicy: {gatewayNamespaces: [gateways]}}`
)

// valueSets are what operators may choose, beside what they must.
var valueSets = map[string]string{
	"the least that is required": `{}`,
	"a Redis of their own":       `{redis: {url: "redis+sentinel://a:26380,b:26381/main", authSecret: redis-auth}}`,
	"Redis by TLS":               `{redis: {url: "rediss://redis.example:6380", tlsSecret: redis-tls, tlsClientCertificate: true}}`,
	"TLS":                        `{tls: {secret: rls-tls}}`,
	"mutual TLS":                 `{tls: {secret: rls-tls, clientCA: true}}`,
	"sentinels with a password":  `{redis: {url: "redis+sentinel://a,b/main", authSecret: redis-auth, sentinelAuthSecret: sentinel-auth}}`,
	"tokens":                     `{admin: {tokenSecret: envoy-rls-admin}}`,
	"a fleet":                    `{admin: {tokenSecret: envoy-rls-admin, fleet: true}}`,
	"a fleet that all may reach": `{admin: {fleet: true}, networkPolicy: {enabled: false}}`,
	"a control plane":            `{extraArgs: [--config-type=xds, "--xds-server=plane.example:18001"]}`,
	"traces":                     `{extraEnv: [{name: TRACING_ENABLED, value: "true"}, {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: "http://collector:4318"}]}`,
	"no autoscaling":             `{autoscaling: {enabled: false}, replicas: 5}`,
	"memory":                     `{store: memory}`,
	"nothing around it":          `{autoscaling: {enabled: false}, podDisruptionBudget: {enabled: false}, networkPolicy: {enabled: false}}`,
	"everything": `
image: {digest: "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef", pullPolicy: Always}
imagePullSecrets: [{name: mine}]
redis: {url: "rediss+cluster://a:7000,b:7001", authSecret: redis-auth, sentinelAuthSecret: sentinel-auth, tlsSecret: redis-tls, tlsClientCertificate: true}
rules:
  shop.yaml: |
    domain: shop
    descriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 9}}]
  bulk.yml: "domain: bulk\ndescriptors: []\n"
tls: {secret: rls-tls, clientCA: true}
admin: {tokenSecret: admin-tokens, fleet: true}
hashKeySecret: hashing
extraArgs: [--default-algorithm=sliding_window]
extraEnv: [{name: LOG_FORMAT, value: json}]
extraVolumes: [{name: more, emptyDir: {}}]
extraVolumeMounts: [{name: more, mountPath: /more}]
drainSeconds: 10
shutdownSeconds: 30
connectionAge: 1h30m
networkPolicy: {gatewayNamespaces: [a, b], monitoringNamespaces: [monitoring], extraEgress: [{ports: [{port: 8125}]}]}
serviceMonitor: {enabled: true, labels: {release: prometheus}, interval: 15s}
prometheusRule: {enabled: true, labels: {release: prometheus}}
podAnnotations: {a: b}
podLabels: {c: d}
priorityClassName: system-cluster-critical
nodeSelector: {kubernetes.io/os: linux}
tolerations: [{key: edge, operator: Exists}]
affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchFields: [{key: metadata.name, operator: In, values: [node-1]}]}]}}}`,
}

func TestTheChartPassesHelmsLint(t *testing.T) {
	for name, set := range valueSets {
		t.Run(name, func(t *testing.T) {
			for _, m := range lint.RunAll(chartDirectory, values(t, required, set), namespace).Messages {
				if m.Severity > support.InfoSev {
					t.Error(m)
				}
			}
		})
	}
}

func TestTheChartNamesAllThatIsMissingOrWrong(t *testing.T) {
	for _, c := range []struct{ values, want string }{
		{`{}`, "image.repository is empty: --set image.repository=REGISTRY/envoy-rls"},
		{`{}`, "nobody may call: --set 'networkPolicy.gatewayNamespaces={NAMESPACE}'"},
		{`{serviceMonitor: {enabled: true}}`, "--set 'networkPolicy.monitoringNamespaces={NAMESPACE}'"},
		{`{redis: {url: "redis://me:secret@redis:6379"}}`, "redis.url holds a password"},
		{`{redis: {url: "redis://:secret@redis:6379"}}`, "redis.url holds a password"},
		{`{redis: {authSecret: a}}`, "give its address by redis.url"},
		{`{redis: {sentinelAuthSecret: a}}`, "give its address by redis.url"},
		{`{redis: {url: redis:6379, tlsClientCertificate: true}}`, "needs redis.tlsSecret"},
		{`{store: memory, redis: {url: redis:6379}}`, "leave one of them away"},
		{`{tls: {clientCA: true}}`, "tls.clientCA needs tls.secret"},
		{`{rulesConfigMap: mine, rules: {a.yaml: "domain: a"}}`, "rules and rulesConfigMap are both set"},
		{`{autoscaling: {minReplicas: 30}}`, "is more than autoscaling.maxReplicas"},
		{`{redis: {uri: redis:6379}}`, "additional properties 'uri' not allowed"},
		{`{image: {repository: "registry.example/envoy-rls:"}}`, "does not match pattern"},
		{`{rules: {shop: "domain: shop"}}`, "additional properties 'shop' not allowed"},
		{`{drainSeconds: 5s}`, "got string, want integer"},
	} {
		_, err := render(t, values(t, c.values))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.values, err, c.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret@") {
			t.Errorf("%s: the password is shown: %v", c.values, err)
		}
	}
}

// One of them would be mended, and the other not.
func TestTheChartDeploysWhatTheManifestsDo(t *testing.T) {
	for set, components := range map[string][]string{`{}`: nil, valueSets["a fleet"]: {"admin"}} {
		t.Run(set, func(t *testing.T) { sameDeployed(t, chart(t, set), build(t, components...)) })
	}
}

func sameDeployed(t *testing.T, ofChart, ofManifests objects) {
	t.Helper()
	got, want := deployment(t, ofChart).Spec, deployment(t, ofManifests).Spec
	for _, s := range []*appsv1.DeploymentSpec{&got, &want} {
		s.Selector, s.Template.Labels = nil, nil
		byName(s.Template.Spec.Volumes, func(v corev1.Volume) string { return v.Name })
		byName(s.Template.Spec.Containers[0].VolumeMounts, func(m corev1.VolumeMount) string { return m.Name })
		byName(s.Template.Spec.Containers[0].Ports, func(p corev1.ContainerPort) string { return p.Name })
		for i := range s.Template.Spec.TopologySpreadConstraints {
			s.Template.Spec.TopologySpreadConstraints[i].LabelSelector = nil
		}
	}
	args := got.Template.Spec.Containers[0].Args
	args[slices.Index(args, "--redis=redis://envoy-rls-redis:6379")] = "--redis=redis://redis:6379"
	got.Template.Spec.Containers[0].Image = want.Template.Spec.Containers[0].Image
	equal(t, "the Deployment", got, want)
	equal(t, "Redis", find[*appsv1.Deployment](t, ofChart, "Deployment envoy-rls-redis").Spec.Template.Spec,
		find[*appsv1.Deployment](t, ofManifests, "Deployment redis").Spec.Template.Spec)
	equal(t, "the rules", find[*corev1.ConfigMap](t, ofChart, "ConfigMap envoy-rls-rules").Data,
		find[*corev1.ConfigMap](t, ofManifests, "ConfigMap envoy-rls-rules").Data)
	for _, name := range []string{"envoy-rls", "envoy-rls-headless"} {
		ports := func(all objects) []corev1.ServicePort {
			return byName(find[*corev1.Service](t, all, "Service "+name).Spec.Ports, func(p corev1.ServicePort) string { return p.Name })
		}
		equal(t, "Service "+name, ports(ofChart), ports(ofManifests))
	}
	equal(t, "the autoscaler", autoscaler(t, ofChart).Spec, autoscaler(t, ofManifests).Spec)
}

// byName sorts what is in no order.
func byName[T any](list []T, name func(T) string) []T {
	slices.SortFunc(list, func(a, b T) int { return strings.Compare(name(a), name(b)) })
	return list
}

func TestASecretOfTheChartIsAFileThatAVariableNames(t *testing.T) {
	pod := deployment(t, chart(t, valueSets["everything"])).Spec.Template.Spec
	got := map[string]string{}
	for _, e := range pod.Containers[0].Env {
		if e.ValueFrom != nil {
			t.Errorf("%s is in the environment, where crash dumps and /proc have it", e.Name)
		}
		got[e.Name] = e.Value
	}
	equal(t, "the environment", got, map[string]string{
		"GRPC_SERVER_USE_TLS":      "true",
		"GRPC_SERVER_TLS_CERT":     "/etc/envoy-rls/tls/tls.crt",
		"GRPC_SERVER_TLS_KEY":      "/etc/envoy-rls/tls/tls.key",
		"GRPC_CLIENT_TLS_CACERT":   "/etc/envoy-rls/tls/ca.crt",
		"REDIS_AUTH_FILE":          "/etc/envoy-rls/redis-auth/auth",
		"REDIS_SENTINEL_AUTH_FILE": "/etc/envoy-rls/sentinel-auth/auth",
		"REDIS_TLS":                "true",
		"REDIS_TLS_CACERT":         "/etc/envoy-rls/redis-tls/ca.crt",
		"REDIS_TLS_CLIENT_CERT":    "/etc/envoy-rls/redis-tls/tls.crt",
		"REDIS_TLS_CLIENT_KEY":     "/etc/envoy-rls/redis-tls/tls.key",
		"DEBUG_HOST":               "0.0.0.0",
		"ADMIN_TOKEN_FILE":         "/etc/envoy-rls/admin/token",
		"HASH_KEY_FILE":            "/etc/envoy-rls/hash-key/hash-key",
		"LOG_FORMAT":               "json",
	})
	secrets := map[string]string{} // by where they are
	for _, m := range pod.Containers[0].VolumeMounts {
		for _, v := range pod.Volumes {
			if v.Name == m.Name && v.Secret != nil {
				secrets[m.MountPath] = v.Secret.SecretName
			}
		}
	}
	equal(t, "the Secrets", secrets, map[string]string{
		"/etc/envoy-rls/tls": "rls-tls", "/etc/envoy-rls/redis-auth": "redis-auth", "/etc/envoy-rls/sentinel-auth": "sentinel-auth",
		"/etc/envoy-rls/redis-tls": "redis-tls", "/etc/envoy-rls/admin": "admin-tokens", "/etc/envoy-rls/hash-key": "hashing",
	})
}

func TestTheChartLetsReplicasReachTheirRedis(t *testing.T) {
	for set, want := range map[string][]int{
		valueSets["a Redis of their own"]: {6379, 26379, 26380, 26381},
		valueSets["Redis by TLS"]:         {6379, 6380, 26379},
		valueSets["everything"]:           {6379, 7000, 7001, 26379},
		`{redis: {url: "redis.example"}}`: {6379, 26379},
	} {
		policy := find[*networkingv1.NetworkPolicy](t, chart(t, set), "NetworkPolicy envoy-rls")
		var got []int
		for _, p := range policy.Spec.Egress[1].Ports {
			got = append(got, p.Port.IntValue())
		}
		slices.Sort(got)
		equal(t, set, got, want)
	}
}

func TestTheChartsRulesAreFiles(t *testing.T) {
	rules := find[*corev1.ConfigMap](t, chart(t, valueSets["everything"]), "ConfigMap envoy-rls-rules").Data
	equal(t, "the rules", rules, map[string]string{
		"shop.yaml": "domain: shop\ndescriptors: [{key: user, rate_limit: {unit: hour, requests_per_unit: 9}}]\n",
		"bulk.yml":  "domain: bulk\ndescriptors: []\n",
	})
	all := chart(t, `{rulesConfigMap: mine}`)
	if all["ConfigMap envoy-rls-rules"] != nil {
		t.Error("there are rules beside those of a ConfigMap of their own")
	}
	if got := deployment(t, all).Spec.Template.Spec.Volumes[0].ConfigMap.Name; got != "mine" {
		t.Errorf("the rules are those of %q", got)
	}
}

func TestTheChartsImageIsTheOneNamed(t *testing.T) {
	const repository = "registry.example/envoy-rls"
	for set, want := range map[string]string{
		`{}`:                     repository + ":" + load(t).AppVersion(),
		`{image: {tag: "1.20"}}`: repository + ":1.20",
		valueSets["everything"]:  repository + "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef",
	} {
		if got := deployment(t, chart(t, set)).Spec.Template.Spec.Containers[0].Image; got != want {
			t.Errorf("%s: the image is %s, want %s", set, got, want)
		}
	}
}

func TestTheChartsNotesNameWhatIsThere(t *testing.T) {
	for name, set := range valueSets {
		t.Run(name, func(t *testing.T) {
			rendered, err := render(t, values(t, required, set))
			if err != nil {
				t.Fatal(err)
			}
			notes := rendered["NOTES.txt"]
			for _, want := range []string{
				"kubectl -n ratelimit rollout status deployment/envoy-rls\n",
				"envoy-rls-headless.ratelimit.svc.cluster.local:8081\n",
				"docs/kubernetes.md",
			} {
				if !strings.Contains(notes, want) {
					t.Errorf("%q is missing in:\n%s", want, notes)
				}
			}
			if _, err := os.Stat(filepath.Join(repository, "docs/kubernetes.md")); err != nil {
				t.Error(err)
			}
		})
	}
}

// chart returns what `helm install envoy-rls` would, with the values that are required and others.
func chart(t *testing.T, set string) objects {
	t.Helper()
	rendered, err := render(t, values(t, required, set))
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for file, part := range rendered {
		if strings.HasSuffix(file, ".yaml") {
			text = append(text, part)
		}
	}
	return decode(t, chartDirectory, []byte(strings.Join(text, "\n---\n")))
}

// render is `helm template envoy-rls --namespace ratelimit`, by file.
func render(t *testing.T, set map[string]any) (map[string]string, error) {
	t.Helper()
	c := load(t)
	all, err := util.ToRenderValues(c, set, common.ReleaseOptions{
		Name: "envoy-rls", Namespace: namespace, Revision: 1, IsInstall: true,
	}, nil)
	if err != nil {
		return nil, err
	}
	rendered, err := engine.Render(c, all)
	files := map[string]string{}
	for file, text := range rendered {
		files[path.Base(file)] = text
	}
	return files, err
}

// values merges value files, as Helm does.
func values(t *testing.T, sets ...string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for _, set := range sets {
		var v map[string]any
		if err := yaml.UnmarshalStrict([]byte(set), &v); err != nil {
			t.Fatalf("%v\n%s", err, set)
		}
		all = loader.MergeMaps(all, v)
	}
	return all
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		text := func(v any) []byte { b, _ := yaml.Marshal(v); return b } // only to show it
		t.Errorf("%s is\n%s\nwant\n%s", what, text(got), text(want))
	}
}

func load(t *testing.T) *chartv2.Chart {
	t.Helper()
	c, err := loader.Load(chartDirectory)
	if err != nil {
		t.Fatal(err)
	}
	return c
}
