// Package configuration reads the file of --config: Muster's own Configuration, which has a
// field for each flag and a section for the queues, or the Configuration of a Kueue that
// Muster replaces. An error names the line, the field, the value and what to write instead.
package configuration

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kueueconfig "sigs.k8s.io/kueue/apis/config/v1beta2"

	"github.com/muster-dev/muster/deploy/document"
	"github.com/muster-dev/muster/provisioning/devices"
	"github.com/muster-dev/muster/provisioning/transaction"
	"github.com/muster-dev/muster/queueing/config"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// The apiVersion and kind of Muster's own file.
const (
	APIVersion = "config.muster.dev/v1alpha1"
	Kind       = "Configuration"
)

// Configuration is Muster's own file. A nil field leaves a setting to its flag.
type Configuration struct {
	metav1.TypeMeta `json:",inline"`

	Kubeconfig *string `json:"kubeconfig,omitempty"`
	// Namespace is the namespace of Muster.
	Namespace              *string `json:"namespace,omitempty"`
	MetricsBindAddress     *string `json:"metricsBindAddress,omitempty"`
	MetricsSecure          *bool   `json:"metricsSecure,omitempty"`
	MetricsCertDir         *string `json:"metricsCertDir,omitempty"`
	HealthProbeBindAddress *string `json:"healthProbeBindAddress,omitempty"`
	WebhookBindAddress     *string `json:"webhookBindAddress,omitempty"`
	LeaderElect            *bool   `json:"leaderElect,omitempty"`
	// LeaderElectLeaseDuration is how long a silent leader keeps the lease.
	LeaderElectLeaseDuration *metav1.Duration `json:"leaderElectLeaseDuration,omitempty"`
	// Verbosity of the log, as the flag -v.
	Verbosity *int32 `json:"verbosity,omitempty"`

	Provisioning  Provisioning  `json:"provisioning,omitempty"`
	Queueing      Queueing      `json:"queueing,omitempty"`
	Notifications Notifications `json:"notifications,omitempty"`
}

// Notifications about jobs and budgets. The receivers are in Secrets.
type Notifications struct {
	// AllowedHosts are the hosts that receivers may be at, each with a port unless it is 443, for example hooks.slack.com or
	// alertmanager.monitoring:9093. No notification is sent if there are none.
	AllowedHosts []string `json:"allowedHosts,omitempty"`
}

// allowedHost is the name of a host, or an address, and a port.
var allowedHost = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?$`)

// Validate returns an error for each host that is none.
func (n *Notifications) Validate(path *field.Path) (errs field.ErrorList) {
	for i, host := range n.AllowedHosts {
		if !allowedHost.MatchString(host) {
			errs = append(errs, field.Invalid(path.Child("allowedHosts").Index(i), host,
				"write a host, with a port unless it is 443, for example hooks.slack.com or alertmanager.monitoring:9093"))
		}
	}
	return errs
}

// Provisioning is the half that serves ProvisioningRequests.
type Provisioning struct {
	// Enabled reports whether it runs.
	Enabled           *bool    `json:"enabled,omitempty"`
	Classes           []string `json:"classes,omitempty"`
	ProcessorInstance *string  `json:"processorInstance,omitempty"`
	Clouds            Clouds   `json:"clouds,omitempty"`
}

// Clouds are the clouds of the node groups; Muster does not call a cloud that is nil.
// Credentials are found as by the cloud's own tools.
type Clouds struct {
	AWS *AWS `json:"aws,omitempty"`
	GCP *GCP `json:"gcp,omitempty"`
}

// AWS is the account that the credentials are for.
type AWS struct {
	// Region of the cluster, for example us-east-1.
	Region string `json:"region"`
	// Cluster is its name: Muster changes only resources that are tagged
	// kubernetes.io/cluster/<name>.
	Cluster string `json:"cluster"`
	// Endpoint replaces the addresses of AWS, for a simulator.
	Endpoint string `json:"endpoint,omitempty"`
}

// GCP is a project.
type GCP struct {
	// Project is the ID of the project whose groups are discovered.
	Project string `json:"project"`
	// Cluster is its name: Muster uses only groups whose instance template has muster-dev-cluster=<name>. On GKE it is GKE's name.
	Cluster string `json:"cluster"`
	// Location of a GKE cluster, its region or zone, within which its name is unique. Without
	// it no node pool of GKE is used.
	Location string `json:"location,omitempty"`
	// Endpoint replaces the addresses of Google's services, for a simulator.
	Endpoint string `json:"endpoint,omitempty"`
}

// Validate returns an error for each missing field.
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
	// Enabled reports whether it runs.
	Enabled       *bool `json:"enabled,omitempty"`
	config.Config `json:",inline"`
	// JobKinds are kinds of jobs beside the built-in ones.
	JobKinds []kinds.Stanza `json:"jobKinds,omitempty"`
	// Kinds are compiled of them.
	Kinds []*kinds.Kind `json:"-"`
}

// Flags returns the settings of the file by the name of their flag, in the flag's syntax.
func (c *Configuration) Flags() map[string]string {
	out := map[string]string{}
	if c.LeaderElectLeaseDuration != nil {
		out["leader-elect-lease-duration"] = c.LeaderElectLeaseDuration.Duration.String()
	}
	for name, value := range map[string]any{
		"kubeconfig":                c.Kubeconfig,
		"namespace":                 c.Namespace,
		"metrics-bind-address":      c.MetricsBindAddress,
		"metrics-secure":            c.MetricsSecure,
		"metrics-cert-dir":          c.MetricsCertDir,
		"health-probe-bind-address": c.HealthProbeBindAddress,
		"webhook-bind-address":      c.WebhookBindAddress,
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

// Load reads a file of either kind, with the defaults of the queues filled in. Warnings name fields without effect. namespace is the
// namespace of Muster if the file has none.
func Load(file, namespace string) (c *Configuration, warnings []string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	return Parse(file, text, namespace)
}

// Parse reads the text of a file of that name, as Load does.
func Parse(file string, text []byte, namespace string) (c *Configuration, warnings []string, err error) {
	c, found, err := read(text, namespace)
	if faults := (document.Faults)(nil); errors.As(err, &faults) {
		err = errors.New(strings.Join(lay(file, faults), "\n"))
	}
	if err != nil {
		return nil, nil, err
	}
	return c, lay(file, found), nil
}

// lay writes each error with its place, in the order of the lines.
func lay(file string, faults document.Faults) []string {
	slices.SortStableFunc(faults, func(a, b document.Fault) int { return cmp.Compare(a.Line, b.Line) })
	var out []string
	for _, f := range faults {
		out = append(out, fmt.Sprintf("%s:%d: %s", file, f.Line, f))
	}
	return out
}

// read reads the text by its apiVersion and kind.
func read(text []byte, namespace string) (*Configuration, document.Faults, error) {
	own, kueues := &Configuration{}, &kueueconfig.Configuration{}
	path := field.NewPath("queueing")
	var d *document.Document
	var found document.Faults
	switch what := document.What(text); what {
	case metav1.TypeMeta{APIVersion: kueueconfig.SchemeGroupVersion.String(), Kind: Kind}:
		d = document.Read(text, kueues)
		path = nil // Kueue's settings stand at the top of its file
		if d.Err() == nil {
			own, found = translate(d, kueues)
		}
	default:
		if d = document.Read(text, own); (what != metav1.TypeMeta{APIVersion: APIVersion, Kind: Kind}) {
			return nil, nil, unknown(d, what)
		}
	}
	if err := d.Err(); err != nil {
		return nil, nil, err
	}
	for i, class := range own.Provisioning.Classes {
		if path := field.NewPath("provisioning", "classes").Index(i); !slices.Contains(transaction.KnownClasses, class) {
			d.Take(field.ErrorList{field.NotSupported(path, class, transaction.KnownClasses)})
		}
	}
	d.Take(own.Provisioning.Clouds.Validate(field.NewPath("provisioning", "clouds")))
	d.Take(own.Notifications.Validate(field.NewPath("notifications")))
	if own.Namespace != nil {
		namespace = *own.Namespace
	}
	own.Queueing.SetDefaults(namespace)
	d.Take(own.Queueing.Validate(namespace, path))
	d.Take(compileSelectors(&own.Queueing.Config, path))
	var wrong field.ErrorList
	own.Queueing.Kinds, wrong = kinds.CompileAll(own.Queueing.JobKinds, path.Child("jobKinds"))
	d.Take(wrong)
	return own, found, d.Err()
}

// compileSelectors returns an error for each selector of devices that does not compile.
func compileSelectors(c *config.Config, path *field.Path) (errs field.ErrorList) {
	expressions, paths := c.Selectors(path)
	if len(expressions) == 0 {
		return nil
	}
	selectors := devices.NewSelectors()
	for i, expression := range expressions {
		if err := selectors.Compile(expression); expression != "" && err != nil {
			errs = append(errs, field.Invalid(paths[i], expression, fmt.Sprintf("it is no CEL expression of a device: %v", err)))
		}
	}
	return errs
}

// unknown returns the error for a text of neither kind. If it is not a YAML mapping, the
// error is only about that.
func unknown(d *document.Document, what metav1.TypeMeta) error {
	if faults := (document.Faults)(nil); what == (metav1.TypeMeta{}) && errors.As(d.Err(), &faults) && !d.Has("kind") {
		return append(faults, document.Fault{Line: d.Line(""), Text: fmt.Sprintf("a configuration starts with apiVersion: %s and kind: %s",
			APIVersion, Kind)})
	}
	return document.Faults{{Line: d.Line(""), Text: fmt.Sprintf(
		"apiVersion %q with kind %q is not supported; use %s, or a %s of Kueue of %s",
		what.APIVersion, what.Kind, APIVersion, Kind, kueueconfig.SchemeGroupVersion)}}
}
