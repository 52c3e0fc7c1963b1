package deploytest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/util/jsonpath"
	kubectl "k8s.io/kubectl/pkg/cmd"
)

const (
	pod       = "envoy-rls-7d9c5b4f68-x2x7k" // what $POD is here: a name as a ReplicaSet makes it
	adminPort = "6070"                       // on loopback, and so no port of the container
)

var (
	// kubectlCall is a command in a block, in notes, or in a sentence.
	kubectlCall = regexp.MustCompile("(?m)(?:^\\$ |^  |`)(kubectl [^`\n]+)")
	podName     = regexp.MustCompile(`^envoy-rls-[0-9a-f]{8,10}-[a-z0-9]{5}$`)
	// kindsOfKubectl are the names of kinds that the documents' commands have.
	kindsOfKubectl = map[string]string{
		"deployment": "Deployment", "deploy": "Deployment", "pod": "Pod", "pods": "Pod", "configmap": "ConfigMap", "secret": "Secret",
		"envoyfilter": "", // of Istio, and none of ours
	}
)

// TestEveryKubectlCommandOfTheDocumentsFitsWhatIsDeployed takes each apart by kubectl's own commands, and looks up what it names in
// what the guide's values install. Of what runs in a replica, the tests of the program take care.
func TestEveryKubectlCommandOfTheDocumentsFitsWhatIsDeployed(t *testing.T) {
	_, block, _ := strings.Cut(text(t, guide), "```yaml\n")
	block, _, _ = strings.Cut(block, "```")
	rendered, err := render(t, values(t, required, block))
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{"the chart's notes": rendered["NOTES.txt"], "README.md": text(t, "README.md")}
	for _, file := range files {
		name := filepath.Join("docs", filepath.Base(file))
		pages[name] = text(t, name)
	}
	c, looked := cluster{t, chart(t, block)}, 0
	for name, page := range pages {
		for _, m := range kubectlCall.FindAllStringSubmatch(page, -1) {
			looked++
			if err := c.check(m[1]); err != nil {
				t.Errorf("%s: %s: %v", name, m[1], err)
			}
		}
	}
	if looked < 30 {
		t.Errorf("there are %d", looked)
	}
}

func TestAKubectlCommandThatDoesNotFitIsFound(t *testing.T) {
	c := cluster{t, chart(t, `{tls: {secret: mine}}`)}
	for _, command := range []string{
		"kubectl gett pods", "kubectl get pods --al", "kubectl rollout state deployment/envoy-rls", "kubectl -n rate-limit get pods",
		"kubectl get pods -l app=envoy-rls", "kubectl describe deployment rls", "kubectl logs pod/envoy-rls-0", "kubectl logs $POD -c server",
		"kubectl port-forward $POD 6071", "kubectl get secret yours", "kubectl get poods", "kubectl exec deploy/rls -- /bin/envoy-rls",
		"kubectl exec deploy/envoy-rls -- /bin/sh", "kubectl exec deploy/envoy-rls", "kubectl apply -f deploy/nowhere", "kubectl -n ratelimit logs",
		"kubectl create secret generic yours --from-file=token", "kubectl create secret generic mine --from-file=token",
		"kubectl exec deploy/envoy-rls -- /bin/envoy-rls top --fleet envoy-rls-headless:6070",
		"kubectl exec deploy/envoy-rls -- /bin/envoy-rls override list --token-file /etc/envoy-rls/admin/token",
		"kubectl get pod $POD -o jsonpath='{.spec.containers[1].resources}'", "kubectl get secret mine -o jsonpath='{.data.tls\\.pem}'",
	} {
		if err := c.check(command); err == nil {
			t.Errorf("nothing is wrong with %s", command)
		}
	}
}

// cluster is what is deployed.
type cluster struct {
	t   *testing.T
	all objects
}

// check says what is wrong with a command, up to its first pipe.
func (c cluster) check(command string) error {
	command, _, _ = strings.Cut(command, " | ")
	shell := exec.Command("sh", "-c", `kubectl() { printf '%s\0' "$@"; }; `+command)
	shell.Env = []string{"NS=" + namespace, "POD=" + pod}
	out, err := shell.Output()
	if err != nil {
		return err
	}
	root := kubectl.NewKubectlCommand(kubectl.KubectlOptions{
		ConfigFlags: genericclioptions.NewConfigFlags(true), IOStreams: genericiooptions.IOStreams{In: strings.NewReader(""), Out: io.Discard, ErrOut: io.Discard},
	})
	cmd, rest, err := root.Find(strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00"))
	if err != nil {
		return err
	}
	switch {
	case cmd.HasSubCommands() && cmd.Name() != "apply": // that is one itself
		return fmt.Errorf("%s has no such command", cmd.Name())
	case len(rest) == 0: // only the command is meant
		return nil
	}
	if err := cmd.ParseFlags(rest); err != nil {
		return err
	}
	if err := cmd.ValidateArgs(cmd.Flags().Args()); err != nil {
		return err
	}
	return c.names(cmd)
}

// names looks up what a command names.
func (c cluster) names(cmd *cobra.Command) error {
	args, flag := cmd.Flags().Args(), func(name string) string {
		if f := cmd.Flags().Lookup(name); f != nil {
			return strings.Trim(f.Value.String(), "[]")
		}
		return ""
	}
	if n := flag("namespace"); n != "" && n != namespace {
		return fmt.Errorf("there is no namespace %s", n)
	}
	for _, name := range []string{"filename", "kustomize"} {
		if file := flag(name); file != "" {
			if _, err := os.Stat(filepath.Join(repository, file)); err != nil {
				return err
			}
		}
	}
	template := deployment(c.t, c.all).Spec.Template
	container := template.Spec.Containers[0]
	if name := flag("container"); name != "" && name != container.Name {
		return fmt.Errorf("there is no container %s", name)
	}
	selector, err := labels.Parse(flag("selector"))
	if err != nil {
		return err
	}
	if !selector.Matches(labels.Set(template.Labels)) {
		return fmt.Errorf("%s selects no replica", selector)
	}
	switch cmd.Name() {
	case "logs", "port-forward", "exec", "status":
		if !selector.Empty() {
			return nil
		}
		return c.target(cmd, args, container)
	case "get", "describe":
		return c.object(args, flag("output"))
	case "generic": // create secret generic
		return c.secret(args[0], flag("from-file"))
	}
	return nil
}

// secret looks up who reads a key of a Secret that is made.
func (c cluster) secret(name, key string) error {
	if err := c.object([]string{"secret", name}, ""); err != nil {
		return err
	}
	for _, e := range deployment(c.t, c.all).Spec.Template.Spec.Containers[0].Env {
		if c.mounts(e.Value, name) && path.Base(e.Value) == key {
			return nil
		}
	}
	return fmt.Errorf("nobody reads %s of the Secret %s", key, name)
}

// mounts tells whether a file is of a Secret.
func (c cluster) mounts(file, secret string) bool {
	pod := deployment(c.t, c.all).Spec.Template.Spec
	for _, m := range pod.Containers[0].VolumeMounts {
		for _, v := range pod.Volumes {
			if v.Name == m.Name && v.Secret != nil && v.Secret.SecretName == secret && path.Dir(file) == m.MountPath {
				return true
			}
		}
	}
	return false
}

// inside looks up what a command in a pod names: replicas by a Service, and a file of tokens.
func (c cluster) inside(args []string) error {
	for i, arg := range args[:len(args)-1] {
		switch value := args[i+1]; arg {
		case "--fleet":
			name, port, _ := strings.Cut(value, ":")
			s, there := c.all["Service "+name].(*corev1.Service)
			if !there || s.Spec.ClusterIP != "None" ||
				!slices.ContainsFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return fmt.Sprint(p.Port) == port }) {
				return fmt.Errorf("%s leads to no replicas", value)
			}
		case "--token-file":
			if value != variable(deployment(c.t, c.all), "ADMIN_TOKEN_FILE") {
				return fmt.Errorf("there is no file %s", value)
			}
		}
	}
	return nil
}

// target looks up what a command is for that is for one thing, and what is behind it: ports, or what is run there.
func (c cluster) target(cmd *cobra.Command, args []string, container corev1.Container) error {
	if len(args) == 0 {
		return fmt.Errorf("%s names nothing", cmd.Name())
	}
	kind, name, typed := strings.Cut(args[0], "/")
	if !typed {
		kind, name = "pod", args[0]
	}
	if err := c.object([]string{kind, name}, ""); err != nil {
		return err
	}
	switch cmd.Name() {
	case "port-forward":
		for _, port := range args[1:] {
			if port != adminPort && !slices.ContainsFunc(container.Ports, func(p corev1.ContainerPort) bool { return fmt.Sprint(p.ContainerPort) == port }) {
				return fmt.Errorf("no port %s", port)
			}
		}
	case "exec":
		if cmd.ArgsLenAtDash() != 1 || len(args) < 2 || args[1] != "/bin/envoy-rls" {
			return fmt.Errorf("the image has no %q", args[1:])
		}
		return c.inside(args[1:])
	}
	return nil
}

// object looks up a kind and names of it, and in the only one what a jsonpath wants.
func (c cluster) object(args []string, output string) error {
	if len(args) == 0 {
		return fmt.Errorf("no kind is named")
	}
	kind, known := kindsOfKubectl[args[0]]
	if !known {
		return fmt.Errorf("%s is no kind that the documents know", args[0])
	}
	template := deployment(c.t, c.all).Spec.Template
	for _, name := range args[1:] {
		var found any = c.all[kind+" "+name]
		there := c.all[kind+" "+name] != nil
		switch kind {
		case "Pod":
			found, there = corev1.Pod{Spec: template.Spec}, podName.MatchString(name)
		case "Secret": // an operator's own, which is mounted
			found = corev1.Secret{Data: map[string][]byte{"tls.crt": nil, "tls.key": nil, "ca.crt": nil}}
			there = slices.ContainsFunc(template.Spec.Volumes, func(v corev1.Volume) bool { return v.Secret != nil && v.Secret.SecretName == name })
		}
		if !there {
			return fmt.Errorf("there is no %s %s", kind, name)
		}
		if path, is := strings.CutPrefix(output, "jsonpath="); is {
			j := jsonpath.New(name)
			if err := j.Parse(path); err != nil {
				return err
			}
			if err := j.Execute(io.Discard, found); err != nil {
				return err
			}
		}
	}
	return nil
}
