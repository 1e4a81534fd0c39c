package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	schedulingv1beta1 "k8s.io/api/scheduling/v1beta1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
)

// DefaultName is the name of a sandbox whose user gave it none.
const DefaultName = "default"

// Config says which sandbox to start.
type Config struct {
	// Name distinguishes this sandbox from others on the machine; empty means DefaultName.
	Name string

	// DataDir keeps the cluster's state for the next start. Empty means a temporary place, in memory where the machine
	// has one, that is removed at the end.
	DataDir string

	// StartTimeout is how long the start may make no progress; 0 means two minutes.
	StartTimeout time.Duration

	// Port is where kube-apiserver listens on 127.0.0.1; 0 picks a free one.
	Port int

	// Kubeconfig is a file that gets a copy of the administrator's kubeconfig while the sandbox runs; empty means none.
	Kubeconfig string

	// Only names the components to start; empty means all.
	Only []string

	// ControlPlaneFlags are additional flags of kube-apiserver, kube-controller-manager and kube-scheduler: --emulated-version=1.34 makes
	// them behave as that version.
	ControlPlaneFlags []string

	// FeatureGates of the control plane that differ from the defaults of Kubernetes. The beta APIs that they need are served.
	FeatureGates map[string]bool

	// Settings is the file of --config of muster and of its page; empty is none. Clouds are added to it.
	Settings []byte

	// MusterFlags are additional flags of muster.
	MusterFlags []string

	// Webhook has muster serve its webhook. kube-apiserver calls the MutatingWebhookConfigurations of the manifests at
	// muster's port, since there is no pod that a Service could lead to.
	Webhook bool

	// Standby runs a second muster: the two elect a leader.
	Standby bool

	// Proxy, if set, stands between each muster and kube-apiserver: it serves the requests of the named component, and next forwards a
	// request. If nil, muster connects to kube-apiserver directly.
	Proxy func(component string, next http.Handler) http.Handler

	// Audit makes kube-apiserver record writes, one line of JSON for each request that is not a read. It costs
	// kube-apiserver some time, so it is off in measurements.
	Audit bool

	// TypeChecking has kube-controller-manager check the expressions of ValidatingAdmissionPolicies against the schemas of
	// their kinds and put what it finds into their status. That is a seventh of the CPU time of a start and changes nothing
	// that a policy does, so it is off.
	TypeChecking bool

	// Binary is the muster-sandbox program that is run for each component; empty means the running program.
	Binary string

	// Manifests returns what to install, in order; CustomResourceDefinitions are waited for. Without it nothing is
	// installed, and muster and the page, which get their rights from them, are not started.
	Manifests func() ([]*unstructured.Unstructured, error)

	// InForce returns when what was installed has taken effect, where to exist is not enough; nil means that it is.
	InForce func(context.Context, *rest.Config) error

	// Stages is the YAML of the KWOK stages that move machines and pods; without it kwok is not started.
	Stages []byte

	// Clouds are the clouds that are simulated over HTTP in addition to KWOK's. Without any, the component clouds is not started.
	Clouds *SimulatedClouds

	// Dashboard has the page of muster-dashboard started, which watches the cluster and so is not for what is measured.
	Dashboard bool

	// Operators are controllers of other projects that run beside the control plane.
	Operators []Operator

	// Registry is where running sandboxes are recorded; the zero value means DefaultRegistry.
	Registry Registry

	// Progress gets a line for each step of the start, and one for each component that died; nil means silence.
	Progress io.Writer

	// set is the name of the set that this sandbox belongs to, and context its own there; empty for one that stands alone.
	set, context string
}

// SimulatedClouds say what the component clouds has.
type SimulatedClouds struct {
	// World is its configuration, in YAML.
	World []byte
	// Region of AWS and Project of GCP that it is about.
	Region, Project string
}

var validName = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// complete returns the configuration with its defaults filled in, or what the user has to change about it.
func (c Config) complete() (Config, error) {
	if c.Name == "" {
		c.Name = DefaultName
	}
	if !validName.MatchString(c.Name) {
		return c, fmt.Errorf("the name %q will not do: use up to 40 lower-case letters, digits and inner dashes", c.Name)
	}
	if c.Port < 0 || c.Port > 65535 {
		return c, fmt.Errorf("port %d does not exist: choose one from 1 to 65535, or 0 to have a free one picked", c.Port)
	}
	if c.Progress == nil {
		c.Progress = io.Discard
	}
	var err error
	if c.Only, err = c.selectComponents(); err != nil {
		return c, err
	}
	if err := c.checkOperators(); err != nil {
		return c, err
	}
	if c.Binary == "" {
		if c.Binary, err = os.Executable(); err != nil {
			return c, fmt.Errorf("finding the running program, which is run again for each component: %w", err)
		}
	} else if _, err = os.Stat(c.Binary); err != nil {
		return c, fmt.Errorf("finding the muster-sandbox program (build it with `make build`): %w", err)
	}
	// The components run in a folder of their own, so relative paths must not reach them.
	for _, path := range []*string{&c.DataDir, &c.Kubeconfig, &c.Binary} {
		if *path == "" {
			continue
		}
		if *path, err = filepath.Abs(*path); err != nil {
			return c, fmt.Errorf("resolving %s: %w", *path, err)
		}
	}
	if c.Registry, err = c.Registry.orDefault(); err != nil {
		return c, err
	}
	return c, nil
}

// selectComponents returns the names to start, in start order.
func (c Config) selectComponents() ([]string, error) {
	if len(c.Only) == 0 {
		return c.defaultComponents(), nil
	}
	if err := ValidateComponents(c.Only); err != nil {
		return nil, err
	}
	for _, name := range []string{Muster, Dispatcher, Dashboard} {
		if slices.Contains(c.Only, name) && c.Manifests == nil {
			return nil, fmt.Errorf("%s cannot start without the manifests that give it its rights", name)
		}
	}
	if slices.Contains(c.Only, Kwok) && len(c.Stages) == 0 {
		return nil, errors.New("kwok cannot start without stages that tell it how machines and pods behave")
	}
	if slices.Contains(c.Only, Clouds) && c.Clouds == nil {
		return nil, errors.New("clouds cannot start without a configuration that says what they have")
	}
	if slices.Contains(c.Only, Standby) && !c.Standby {
		return nil, errors.New("muster-standby cannot start without a second muster in the configuration")
	}
	var names []string
	for _, component := range components {
		if slices.Contains(c.Only, component.name) {
			names = append(names, component.name)
		}
	}
	return names, nil
}

func (c Config) defaultComponents() []string {
	var names []string
	for _, component := range components {
		if c.startsUnasked(component.name) {
			names = append(names, component.name)
		}
	}
	return names
}

func (c Config) startsUnasked(component string) bool {
	switch component {
	case Kwok:
		return len(c.Stages) > 0
	case Clouds:
		return c.Clouds != nil
	case Muster:
		return c.Manifests != nil
	case Standby:
		return c.Standby && c.Manifests != nil
	case Dashboard:
		return c.Dashboard && c.Manifests != nil
	case Dispatcher:
		return false // a cluster by itself has nothing to dispatch to
	default:
		return true
	}
}

// ValidateComponents checks that the names exist and that each component has those that it needs.
func ValidateComponents(names []string) error {
	for _, name := range names {
		component, ok := componentByName(name)
		if !ok {
			return fmt.Errorf("there is no component %q: the components are %s", name, strings.Join(ComponentNames(), ", "))
		}
		for _, need := range component.needs {
			if !slices.Contains(names, need) {
				return fmt.Errorf("%s cannot run without %s: add it to the list", name, need)
			}
		}
	}
	return nil
}

// gates returns the feature gates as a flag.
func (c Config) gates() []string {
	var all []string
	for _, name := range slices.Sorted(maps.Keys(c.FeatureGates)) {
		all = append(all, fmt.Sprintf("%s=%t", name, c.FeatureGates[name]))
	}
	if len(all) == 0 {
		return nil
	}
	return []string{"--feature-gates=" + strings.Join(all, ",")}
}

// gatedAPIs returns the beta APIs that the feature gates need, since kube-apiserver serves none by default.
func (c Config) gatedAPIs() []string {
	if c.FeatureGates["GenericWorkload"] {
		return []string{schedulingv1beta1.SchemeGroupVersion.String()}
	}
	return nil
}
