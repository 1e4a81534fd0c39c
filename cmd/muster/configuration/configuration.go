// Package configuration reads the file that --config names: Muster's own
// Configuration, which has a field for each flag and a section for the queues, or
// the Configuration of a Kueue that Muster takes over from. What is wrong in it
// is told with its line, its field, the value and what to write instead.
package configuration

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/queueing/config"
)

// What Muster's own file says that it is.
const (
	APIVersion = "config.muster.dev/v1alpha1"
	Kind       = "Configuration"
)

// Configuration is Muster's own file. Nil leaves a setting to its flag.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`

	Kubeconfig             *string `json:"kubeconfig,omitempty"`
	MetricsBindAddress     *string `json:"metricsBindAddress,omitempty"`
	HealthProbeBindAddress *string `json:"healthProbeBindAddress,omitempty"`
	LeaderElect            *bool   `json:"leaderElect,omitempty"`
	// LeaderElectLeaseDuration is how long a leader that is silent leads.
	LeaderElectLeaseDuration *metav1.Duration `json:"leaderElectLeaseDuration,omitempty"`
	// Verbosity is how much is logged, as the flag -v.
	Verbosity *int32 `json:"verbosity,omitempty"`

	Provisioning Provisioning `json:"provisioning,omitempty"`
	Queueing     Queueing     `json:"queueing,omitempty"`
}

// Provisioning is the half that serves ProvisioningRequests.
type Provisioning struct {
	// Enabled says whether it runs.
	Enabled           *bool    `json:"enabled,omitempty"`
	Classes           []string `json:"classes,omitempty"`
	ProcessorInstance *string  `json:"processorInstance,omitempty"`
	Clouds            Clouds   `json:"clouds,omitempty"`
}

// Clouds are those that machines may come from; nil means that Muster leaves a cloud
// alone. Credentials are found as each cloud's own tools find them.
type Clouds struct {
	AWS *AWS `json:"aws,omitempty"`
	GCP *GCP `json:"gcp,omitempty"`
}

// AWS is the account that the credentials are for.
type AWS struct {
	// Region of the cluster, for example us-east-1.
	Region string `json:"region"`
	// Cluster is its name: Muster touches only what is tagged
	// kubernetes.io/cluster/<name>.
	Cluster string `json:"cluster"`
	// Endpoint stands in for the addresses of AWS: that of a simulator.
	Endpoint string `json:"endpoint,omitempty"`
}

// GCP is a project.
type GCP struct {
	// Project whose groups are looked for, by its ID.
	Project string `json:"project"`
	// Cluster is the value of the label that tells its machines from those of other
	// clusters.
	Cluster string `json:"cluster"`
	// Endpoint stands in for the addresses of Google's services: that of a simulator.
	Endpoint string `json:"endpoint,omitempty"`
}

// Validate says which fields are missing.
func (c *Clouds) Validate(path *field.Path) (errs field.ErrorList) {
	need := func(path *field.Path, value, example string) {
		if value == "" {
			errs = append(errs, field.Required(path, "for example "+example))
		}
	}
	if c.AWS != nil {
		need(path.Child("aws", "region"), c.AWS.Region, "us-east-1")
		need(path.Child("aws", "cluster"), c.AWS.Cluster, "my-cluster")
	}
	if c.GCP != nil {
		need(path.Child("gcp", "project"), c.GCP.Project, "my-project")
		need(path.Child("gcp", "cluster"), c.GCP.Cluster, "my-cluster")
	}
	return errs
}

// Queueing is the half that admits queued Jobs.
type Queueing struct {
	// Enabled says whether it runs.
	Enabled       *bool `json:"enabled,omitempty"`
	config.Config `json:",inline"`
}

// Flags returns what the file says, by the flag that says the same, as that flag
// takes it.
func (c *Configuration) Flags() map[string]string {
	out := map[string]string{}
	if c.LeaderElectLeaseDuration != nil {
		out["leader-elect-lease-duration"] = c.LeaderElectLeaseDuration.Duration.String()
	}
	for name, value := range map[string]any{
		"kubeconfig":                c.Kubeconfig,
		"metrics-bind-address":      c.MetricsBindAddress,
		"health-probe-bind-address": c.HealthProbeBindAddress,
		"leader-elect":              c.LeaderElect,
		"v":                         c.Verbosity,
		"provisioning":              c.Provisioning.Enabled,
		"processor-instance":        c.Provisioning.ProcessorInstance,
		"queueing":                  c.Queueing.Enabled,
	} {
		if v := reflect.ValueOf(value); !v.IsNil() {
			out[name] = fmt.Sprint(v.Elem())
		}
	}
	if c.Provisioning.Classes != nil {
		out["provisioning-classes"] = strings.Join(c.Provisioning.Classes, ",")
	}
	return out
}

// Load reads a file of either kind, with the defaults of the queues filled in.
// Warnings name what it says in vain. namespace is the one that Muster runs in.
func Load(file, namespace string) (c *Configuration, warnings []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	root, err := parse(text)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", file, err)
	}
	d := &decoder{lines: map[string]int{}}
	c, told := d.read(root, namespace)
	if len(d.faults) > 0 {
		return nil, nil, errors.New(strings.Join(lay(file, d.faults), "\n"))
	}
	return c, lay(file, told), nil
}

// lay writes each fault with its place, in the order of the lines.
func lay(file string, faults []fault) []string {
	slices.SortStableFunc(faults, func(a, b fault) int { return cmp.Compare(a.line, b.line) })
	var out []string
	for _, f := range faults {
		out = append(out, fmt.Sprintf("%s:%d: %s", file, f.line, f.text))
	}
	return out
}

// parse returns the one document of the text.
func parse(text []byte) (*yaml.Node, error) {
	in := yaml.NewDecoder(bytes.NewReader(text))
	var document, another yaml.Node
	switch err := in.Decode(&document); {
	case errors.Is(err, io.EOF):
		return nil, fmt.Errorf("the file is empty; it needs at least apiVersion: %s and kind: %s", APIVersion, Kind)
	case err != nil:
		return nil, err
	}
	switch err := in.Decode(&another); {
	case err == nil:
		return nil, fmt.Errorf("line %d: there is a second document; keep one", another.Line)
	case !errors.Is(err, io.EOF):
		return nil, err
	}
	return document.Content[0], nil
}

// read decodes by what the document says that it is.
func (d *decoder) read(root *yaml.Node, namespace string) (*Configuration, []fault) {
	if root.Kind != yaml.MappingNode {
		d.faults = append(d.faults, fault{root.Line, fmt.Sprintf("%s is no configuration; begin with apiVersion: %s", said(root), APIVersion)})
		return nil, nil
	}
	own, kueues := &Configuration{}, &kueueconfig.Configuration{}
	var told []fault
	switch what := typeOf(root); {
	case what == metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}:
		d.decode(root, reflect.ValueOf(own).Elem(), nil)
	case what == metav1.TypeMeta{APIVersion: kueueconfig.SchemeGroupVersion.String(), Kind: Kind}:
		d.decode(root, reflect.ValueOf(kueues).Elem(), nil)
		own, told = d.translate(root, kueues)
	default:
		d.faults = append(d.faults, fault{root.Line, fmt.Sprintf(
			"apiVersion %q with kind %q is not understood; give %s, or a %s of Kueue of %s",
			what.APIVersion, what.Kind, APIVersion, Kind, kueueconfig.SchemeGroupVersion)})
	}
	if len(d.faults) > 0 {
		return nil, nil
	}
	for i, class := range own.Provisioning.Classes {
		if path := field.NewPath("provisioning", "classes").Index(i); !slices.Contains(model.KnownClasses, class) {
			e := field.NotSupported(path, class, model.KnownClasses)
			d.faults = append(d.faults, fault{d.lines[e.Field], e.Error()})
		}
	}
	for _, e := range own.Provisioning.Clouds.Validate(field.NewPath("provisioning", "clouds")) {
		d.faults = append(d.faults, fault{d.lineOf(e.Field, root.Line), e.Error()})
	}
	own.Queueing.SetDefaults(namespace)
	path := field.NewPath("queueing")
	if own.APIVersion != APIVersion {
		path = nil // Kueue's settings stand at the top of its file
	}
	for _, e := range own.Queueing.Validate(namespace, path) {
		d.faults = append(d.faults, fault{d.lineOf(e.Field, root.Line), e.Error()})
	}
	return own, told
}

// typeOf reads what the document says that it is, whatever else it says.
func typeOf(root *yaml.Node) (m metav1.TypeMeta) {
	for pair := range slices.Chunk(root.Content, 2) {
		switch pair[0].Value {
		case "apiVersion":
			m.APIVersion = pair[1].Value
		case "kind":
			m.Kind = pair[1].Value
		}
	}
	return m
}

// lineOf a field, or of the nearest field above it that the file has.
func (d *decoder) lineOf(path string, otherwise int) int {
	for path != "" {
		if line, ok := d.lines[path]; ok {
			return line
		}
		path = path[:max(strings.LastIndexAny(path, ".["), 0)]
	}
	return otherwise
}
