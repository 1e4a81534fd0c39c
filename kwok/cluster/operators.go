package cluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Operator is a controller of another project, or what plays a part that such a controller relies on. It is a component
// of the sandbox like all others: it has a log, it is started again when it dies, and it goes with the sandbox.
type Operator struct {
	// Name is the component's.
	Name string

	// Program is its executable; empty means the component of that name in the sandbox binary.
	Program string

	// Namespace is where its service account would be, which has its name. It may do everything: its own project says
	// what rights it needs, and its tests whether they suffice.
	Namespace string

	// Settings says how it is called in its place.
	Settings func(Place) (Settings, error)
}

// Place is what an operator is given in one sandbox.
type Place struct {
	// Dir is its own folder. $TMPDIR is below it, and has a certificate for its webhooks where controller-runtime reads it.
	Dir string

	// Binary is the sandbox's program, Server the URL of kube-apiserver.
	Binary, Server string

	// Kubeconfig is the path of its kubeconfig.
	Kubeconfig string

	// Health and Webhook are addresses of 127.0.0.1 on which it may listen. Others has the Health of each other operator.
	Health, Webhook string
	Others          map[string]string

	// Authority is the certificate, as PEM, that its own is signed with.
	Authority []byte
}

// temporary is what $TMPDIR says.
func (p Place) temporary() string { return filepath.Join(p.Dir, "tmp") }

// Certificates is the folder of the certificate of its webhooks, where controller-runtime reads it by default.
func (p Place) Certificates() string {
	return filepath.Join(p.temporary(), "k8s-webhook-server", "serving-certs")
}

// Settings of an operator.
type Settings struct {
	Args []string
	Env  []string

	// Files are written before its start, by their name in the operator's folder.
	Files map[string]string

	// Objects are installed with the manifests, its namespace before them.
	Objects []*unstructured.Unstructured

	// Probe is a URL that returns success when it serves. Listens is an address that takes connections when its webhooks serve; empty if
	// Probe covers them.
	Probe, Listens string
}

// operatorsGroup is the group of all operators, which gives them their rights.
const operatorsGroup = "muster-sandbox:operators"

func (c Config) checkOperators() error {
	if len(c.Operators) == 0 {
		return nil
	}
	for _, name := range []string{APIServer, ControllerManager} {
		if !slices.Contains(c.Only, name) {
			return fmt.Errorf("operators cannot run without %s: add it to the components to start", name)
		}
	}
	taken := ComponentNames()
	for _, operator := range c.Operators {
		if slices.Contains(taken, operator.Name) {
			return fmt.Errorf("there are two components %q: name an operator once, and not after a component of the sandbox", operator.Name)
		}
		taken = append(taken, operator.Name)
	}
	return nil
}

// ports are the names of all ports that need a number.
func (c Config) ports() []string {
	var names []string
	for _, name := range c.Only {
		component, _ := componentByName(name)
		names = append(names, component.ports...)
	}
	for _, operator := range c.Operators {
		names = append(names, healthPort(operator.Name), webhookPort(operator.Name))
	}
	return names
}

func healthPort(operator string) string  { return operator + "-health" }
func webhookPort(operator string) string { return operator + "-webhook" }

// placeOperators makes components of the operators, with all that they need on the disk and in the cluster.
func (c *Cluster) placeOperators(authority *authority) error {
	if len(c.config.Operators) == 0 {
		return nil
	}
	c.plan.objects = []*unstructured.Unstructured{operatorsRights()}
	others := map[string]string{}
	for _, operator := range c.config.Operators {
		others[operator.Name] = c.plan.address(healthPort(operator.Name))
	}
	for _, operator := range c.config.Operators {
		place := Place{
			Dir:        c.plan.operator(operator.Name),
			Binary:     c.config.Binary,
			Server:     c.plan.server(),
			Kubeconfig: c.plan.kubeconfig(operator.Name),
			Health:     others[operator.Name],
			Webhook:    c.plan.address(webhookPort(operator.Name)),
			Others:     others,
			Authority:  authority.pem.certificate,
		}
		if err := c.placeOperator(operator, place, authority); err != nil {
			return fmt.Errorf("preparing the operator %s: %w", operator.Name, err)
		}
	}
	return nil
}

func (c *Cluster) placeOperator(operator Operator, place Place, authority *authority) error {
	if err := os.RemoveAll(place.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(place.Certificates(), 0o700); err != nil {
		return err
	}
	account := "system:serviceaccount:" + operator.Namespace + ":" + operator.Name
	user, err := authority.client(account, "system:serviceaccounts", "system:serviceaccounts:"+operator.Namespace, operatorsGroup)
	if err != nil {
		return err
	}
	info := &clientcmdapi.AuthInfo{ClientCertificateData: user.certificate, ClientKeyData: user.key}
	server, err := authority.server(operator.Name)
	if err != nil {
		return err
	}
	settings, err := operator.Settings(place)
	if err != nil {
		return err
	}
	failures := []error{
		writeKubeconfig(c.plan, authority, operator.Name, info),
		writeFile(filepath.Join(place.Certificates(), "tls.crt"), server.certificate),
		writeFile(filepath.Join(place.Certificates(), "tls.key"), server.key),
	}
	for name, text := range settings.Files {
		path := filepath.Join(place.Dir, name)
		failures = append(failures, os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o700))
	}
	c.plan.operators = append(c.plan.operators, component{
		name:    operator.Name,
		program: operator.Program,
		env:     append([]string{"TMPDIR=" + place.temporary()}, settings.Env...),
		args:    func(plan) []string { return settings.Args },
		probe:   func(plan) Probe { return Probe{URL: settings.Probe, Listens: settings.Listens} },
	})
	namespace := &unstructured.Unstructured{}
	namespace.SetAPIVersion("v1")
	namespace.SetKind("Namespace")
	namespace.SetName(operator.Namespace)
	c.plan.objects = append(append(c.plan.objects, namespace), settings.Objects...)
	return errors.Join(failures...)
}

func operatorsRights() *unstructured.Unstructured {
	const rbac = "rbac.authorization.k8s.io"
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": rbac + "/v1",
		"kind":       "ClusterRoleBinding",
		"metadata":   map[string]any{"name": "muster-sandbox-operators"},
		"roleRef":    map[string]any{"apiGroup": rbac, "kind": "ClusterRole", "name": "cluster-admin"},
		"subjects":   []any{map[string]any{"apiGroup": rbac, "kind": "Group", "name": operatorsGroup}},
	}}
}
