package managers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/test/testbed"
)

// As Kueue's manifests have them.
const (
	namespace      = "kueue-system"
	account        = "kueue-controller-manager"
	webhookService = "kueue-webhook-service"
	webhookSecret  = "kueue-webhook-server-cert"
)

// Kueue is a stock Kueue on a sandbox.
type Kueue struct {
	// Binary is Kueue's manager.
	Binary string
	// Sandbox is the sandbox's program, whose kubectl puts the manifests together.
	Sandbox string
	// Dir holds its files.
	Dir string
	// Frameworks are its integrations, as its configuration names them; that of Jobs alone by default.
	Frameworks []string
	// Settings are additional lines of its configuration.
	Settings string
	// Deployment has its manifests include that of the release. Nothing runs in the pods of a sandbox.
	Deployment bool

	webhooks, health int
}

// NewKueue completes what it is given by ports of its own.
func NewKueue(k Kueue) (*Kueue, error) {
	ports, err := testbed.FreePorts(2)
	if err != nil {
		return nil, err
	}
	k.webhooks, k.health = ports[0], ports[1]
	if k.Frameworks == nil {
		k.Frameworks = []string{"batch/job"}
	}
	return &k, nil
}

// Manifests returns the manifests of Kueue's release, built by kustomize from its module: CRDs with their conversions, RBAC, webhooks.
// Only what assumes that Kueue runs as a pod of the cluster is changed: its Deployment is left out by default, its visibility API always,
// and its webhooks are served on a port of this machine.
func (k *Kueue) Manifests(ctx context.Context) ([]*unstructured.Unstructured, error) {
	module, err := output(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kueue")
	if err != nil {
		return nil, err
	}
	release := filepath.Join(strings.TrimSpace(string(module)), "config", "default")
	text, err := output(ctx, k.Sandbox, "kubectl", "kustomize", release)
	if err != nil {
		return nil, err
	}
	objects, err := deploy.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("reading Kueue's manifests: %w", err)
	}
	objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool {
		return o.GetKind() == "Deployment" && !k.Deployment || o.GetKind() == "APIService"
	})
	for _, o := range objects {
		switch {
		case o.GetKind() == "Service" && o.GetName() == webhookService:
			o.Object["spec"] = map[string]any{"type": "ExternalName", "externalName": "127.0.0.1"}
		case o.GetKind() == "CustomResourceDefinition" || strings.HasSuffix(o.GetKind(), "WebhookConfiguration"):
			setPort(o.Object, int64(k.webhooks))
		}
	}
	return objects, nil
}

// setPort sets the port of all references to services in a manifest.
func setPort(in any, port int64) {
	switch in := in.(type) {
	case []any:
		for _, item := range in {
			setPort(item, port)
		}
	case map[string]any:
		for _, item := range in {
			setPort(item, port)
		}
		if service, ok := in["service"].(map[string]any); ok && service["name"] == webhookService {
			service["port"] = port
		}
	}
}

// configuration is Kueue's, where it differs from the defaults: it runs on this
// machine and not in a pod.
const configuration = `apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
namespace: ` + namespace + `
leaderElection: {leaderElect: true, resourceName: c1f6bfd2.kueue.x-k8s.io, resourceNamespace: ` + namespace + `}
health: {healthProbeBindAddress: "127.0.0.1:%d"}
metrics: {bindAddress: "0"}
webhook: {host: 127.0.0.1, port: %d, certDir: %q}
featureGates: {VisibilityOnDemand: false}
integrations: {frameworks: [%s]}
`

// Manager is Kueue's, on a cluster that has its manifests. It makes its
// certificate by itself, into a Secret; that the kubelet would mount it is for us
// to do.
func (k *Kueue) Manager(ctx context.Context, server *rest.Config) (*Manager, error) {
	set, err := kubernetes.NewForConfig(server)
	if err != nil {
		return nil, err
	}
	certificates, config := filepath.Join(k.Dir, "certificates"), filepath.Join(k.Dir, "kueue.yaml")
	if err := os.Mkdir(certificates, 0o700); err != nil {
		return nil, err
	}
	text := fmt.Appendf(nil, configuration, k.health, k.webhooks, certificates, strings.Join(k.Frameworks, ", "))
	if err := os.WriteFile(config, append(text, k.Settings...), 0o600); err != nil {
		return nil, err
	}
	return newManager(ctx, server, Manager{
		name: "kueue", dir: k.Dir, namespace: namespace, account: account, health: k.health,
		command: []string{k.Binary, "--config=" + config},
		prepare: func(ctx context.Context) error { return mount(ctx, set, certificates) },
	})
}

// mount writes the webhooks' certificate to the folder once it has been made.
func mount(ctx context.Context, set kubernetes.Interface, folder string) error {
	var data map[string][]byte
	err := testbed.Poll(ctx, func() bool {
		secret, err := set.CoreV1().Secrets(namespace).Get(ctx, webhookSecret, metav1.GetOptions{})
		if err != nil {
			return false
		}
		data = secret.Data
		return len(data[corev1.TLSCertKey]) > 0
	})
	if err != nil {
		return fmt.Errorf("waiting for Kueue's certificate: %w", err)
	}
	for name, data := range data {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// output is what a command prints.
func output(ctx context.Context, command string, args ...string) ([]byte, error) {
	out, err := exec.CommandContext(ctx, command, args...).Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", command, strings.Join(args, " "), err)
	}
	return out, nil
}

// NewKueueCore is the part of Kueue that its own performance test measures: without
// webhooks, jobs and probes, as an administrator.
func NewKueueCore(server *rest.Config, binary, dir string, flags ...string) (*Manager, error) {
	m := &Manager{name: "kueue-core", dir: dir, command: append([]string{binary}, flags...)}
	return m, m.actAs(server)
}
