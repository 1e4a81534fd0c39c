package app

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/rehearsal"
	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
)

// cloudCheck checks a cloud, and rehearses a gang in it.
type cloudCheck struct {
	connect    Connect
	configFile string
	kubeconfig string
	output     string
	// What replaces the clouds of the configuration.
	region, project, cluster, location, endpoint string

	launch  int
	group   string
	maxUSD  float64
	timeout time.Duration
	nodes   bool
	yes     bool
}

// newCloudCheckCommand returns the command that tries a cloud before Muster relies on it.
func newCloudCheckCommand(connect Connect) *cobra.Command {
	c := &cloudCheck{connect: connect}
	cmd := &cobra.Command{
		Use:   "cloud-check aws|gcp",
		Short: "Check permissions, groups, prices and quotas of a cloud account, and rehearse a gang in it",
		Long: `muster cloud-check asks a cloud what Muster would ask it, and prints a report: which permissions are missing, which groups would be
used, what is wrong with them, their prices, and whether the quotas of the account allow spec.maxNodes of each. It changes nothing, with
the credentials that Muster would have.

With --launch N it also launches N machines of one group as a gang, after a question, waits until they run (with --nodes until
their nodes are Ready), terminates them, and proves that nothing is left. A Muster that runs in the cluster does not know
these machines, and terminates them as well once they are idle.

The exit code is 0 if nothing was found wrong, and 1 otherwise. A quota is wrong if it does not allow a single machine of a group.`,
		Example: `  # Only check, with the clouds of Muster's configuration
  muster cloud-check aws --config muster.yaml

  # Without a configuration
  muster cloud-check gcp --project my-project --cluster my-cluster --location us-central1

  # Rehearse a gang of 2 of the cheapest group, for 3 USD at most
  muster cloud-check aws --config muster.yaml --launch 2 --max-usd 3`,
		Args:          cobra.MatchAll(arguments.These("a cloud (aws or gcp)"), cobra.OnlyValidArgs),
		ValidArgs:     []string{string(v1alpha1.ProviderAWS), string(v1alpha1.ProviderGCP)},
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			if err := c.validate(); err != nil {
				return err
			}
			kube, err := c.client()
			if err != nil {
				return err
			}
			return c.run(ctx, kube, v1alpha1.Provider(args[0]), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f := cmd.Flags()
	f.StringVar(&c.configFile, "config", "", "file of kind "+configuration.Kind+" of "+configuration.APIVersion+", with the clouds")
	f.StringVar(&c.kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster, whose identity all that is launched carries; empty "+
		"means the cluster that muster runs in")
	f.StringVar(&c.region, "region", "", "AWS: the region, in place of --config")
	f.StringVar(&c.project, "project", "", "Google Cloud: the project, in place of --config")
	f.StringVar(&c.cluster, "cluster", "", "name of the cluster in the cloud, in place of --config")
	f.StringVar(&c.location, "location", "", "Google Cloud: location of a GKE cluster, in place of --config")
	f.StringVar(&c.endpoint, "endpoint", "", "address of a simulator in place of the cloud's own")
	f.StringVarP(&c.output, "output", "o", "text", "text or json")
	f.IntVar(&c.launch, "launch", 0, "launch so many machines as a gang, and terminate them again")
	f.StringVar(&c.group, "group", "", "NodeGroup of the report to launch in; empty means the cheapest")
	f.Float64Var(&c.maxUSD, "max-usd", 0, "what the rehearsal may cost at most in USD, if machines take as long as they may; needed "+
		"with --launch")
	f.DurationVar(&c.timeout, "timeout", 15*time.Minute, "how long machines may take to run, and again to end")
	f.BoolVar(&c.nodes, "nodes", false, "wait until the nodes of the machines are Ready, too")
	f.BoolVar(&c.yes, "yes", false, "launch without a question")
	offer(cmd, "output", "text", "json")
	for _, name := range []string{"config", "kubeconfig"} {
		if err := cmd.MarkFlagFilename(name); err != nil {
			panic(err) // the flags are defined above
		}
	}
	return cmd
}

// report is the result, as -o json prints it.
type report struct {
	Cloud   string    `json:"cloud"`
	Account string    `json:"account"`
	Cluster string    `json:"cluster"`
	Time    time.Time `json:"time"`
	// PermissionsChecked is false if the cloud is no Examiner.
	PermissionsChecked bool             `json:"permissionsChecked"`
	MissingPermissions []string         `json:"missingPermissions"`
	Groups             []reportedGroup  `json:"groups"`
	Refused            []reportedReason `json:"refused"`
	Quotas             []reportedQuota  `json:"quotas"`
	Failed             []string         `json:"failed"`
	Rehearsal          []reportedStep   `json:"rehearsal,omitempty"`
}

type reportedGroup struct {
	Name         string   `json:"name"`
	Zone         string   `json:"zone"`
	CapacityType string   `json:"capacityType"`
	MaxNodes     int32    `json:"maxNodes"`
	USDPerHour   string   `json:"usdPerHour"`
	Capacity     string   `json:"capacity"`
	Warnings     []string `json:"warnings"`
}

// reportedQuota is a quota of the account. Limit and Used are missing if the cloud does not report them.
type reportedQuota struct {
	Name   string         `json:"name"`
	Unit   string         `json:"unit"`
	Limit  *int64         `json:"limit,omitempty"`
	Used   *int64         `json:"used,omitempty"`
	Needed int64          `json:"needed"`
	Groups []reportedNeed `json:"groups"`
}

// reportedNeed is a group that counts against a quota: its maximum number of machines, and how many of them the quota allows alone.
type reportedNeed struct {
	Group    string `json:"group"`
	MaxNodes int64  `json:"maxNodes"`
	Allowed  *int64 `json:"allowed,omitempty"`
}

type reportedReason struct {
	Group  string `json:"group"`
	Reason string `json:"reason"`
}

type reportedStep struct {
	Step    string  `json:"step"`
	Seconds float64 `json:"seconds"`
	Says    string  `json:"says,omitempty"`
	Error   string  `json:"error,omitempty"`
}

// errFound is the error of a check that has found something wrong, which the report describes.
var errFound = errors.New("the report says what is wrong")

func (c *cloudCheck) run(ctx context.Context, kube client.Reader, cloud v1alpha1.Provider, in io.Reader, out, progress io.Writer) error {
	clouds, account, err := c.clouds(cloud)
	if err != nil {
		return err
	}
	uid, err := clusterUID(ctx, kube)
	if err != nil {
		return err
	}
	var groups []*v1alpha1.NodeGroup
	providers, err := c.connect(ctx, clouds, cloudprovider.Cluster{UID: uid,
		Groups: func(context.Context) ([]*v1alpha1.NodeGroup, error) { return groups, nil }})
	if err != nil {
		return err
	}
	provider := providers[cloud]
	fmt.Fprintf(progress, "Checking permissions and groups of %s…\n", account)
	check := rehearsal.Examine(ctx, provider)
	for i := range check.Groups {
		g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: check.Groups[i].Name}, Spec: check.Groups[i].Spec}
		groups = append(groups, g)
	}
	r := newReport(cloud, account, uid, &check)
	sound := check.Sound()
	if c.output == "text" {
		r.print(out)
	}
	if c.launch > 0 {
		ran, err := c.rehearse(ctx, provider, kube, groups, r, in, out, progress)
		if err != nil {
			return err
		}
		sound = sound && ran
	}
	if c.output == "json" {
		text, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s\n", text)
	}
	if !sound {
		return errFound
	}
	return nil
}

// validate refuses flags that do not go together.
func (c *cloudCheck) validate() error {
	switch {
	case !slices.Contains([]string{"text", "json"}, c.output):
		return fmt.Errorf("--output: %q is not supported; use text or json", c.output)
	case c.launch < 0:
		return fmt.Errorf("--launch: %d machines cannot be launched; give a number from 1", c.launch)
	case c.launch > 0 && c.maxUSD <= 0:
		return errors.New("--max-usd: give what the rehearsal may cost at most, for example 5")
	case c.launch > 0 && c.output == "json" && !c.yes:
		return errors.New("--yes: needed with --launch and --output json, which asks no question")
	case c.timeout < time.Minute:
		return fmt.Errorf("--timeout: machines need longer than %s to start; give 1m or more", c.timeout)
	}
	return nil
}

// clouds to connect to, and what the one is called that is checked.
func (c *cloudCheck) clouds(cloud v1alpha1.Provider) (out configuration.Clouds, account string, err error) {
	if c.configFile != "" {
		file, _, err := configuration.Load(c.configFile, "")
		if err != nil {
			return out, "", fmt.Errorf("--config: %w", err)
		}
		out = file.Provisioning.Clouds
	}
	switch cloud {
	case v1alpha1.ProviderAWS:
		a := out.AWS
		if a == nil {
			a = &configuration.AWS{}
		}
		a.Region, a.Cluster, a.Endpoint = cmp.Or(c.region, a.Region), cmp.Or(c.cluster, a.Cluster), cmp.Or(c.endpoint, a.Endpoint)
		out, account = configuration.Clouds{AWS: a}, fmt.Sprintf("AWS in %s, cluster %s", a.Region, a.Cluster)
	default:
		g := out.GCP
		if g == nil {
			g = &configuration.GCP{}
		}
		g.Project, g.Cluster, g.Endpoint = cmp.Or(c.project, g.Project), cmp.Or(c.cluster, g.Cluster), cmp.Or(c.endpoint, g.Endpoint)
		g.Location = cmp.Or(c.location, g.Location)
		out, account = configuration.Clouds{GCP: g}, fmt.Sprintf("Google Cloud project %s, cluster %s", g.Project, g.Cluster)
	}
	if wrong := out.Validate(field.NewPath("provisioning", "clouds")); len(wrong) > 0 {
		return out, "", fmt.Errorf("%w; give it by --config, or by --region, --project and --cluster", wrong.ToAggregate())
	}
	return out, account, nil
}

func (c *cloudCheck) client() (client.Client, error) {
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("finding the cluster (set --kubeconfig if outside of it): %w", err)
	}
	scheme, err := NewScheme()
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: scheme})
}

// rehearse launches a gang, if the user agrees, and reports whether all went well.
func (c *cloudCheck) rehearse(ctx context.Context, p cloudprovider.Provider, kube client.Reader, groups []*v1alpha1.NodeGroup, r *report,
	in io.Reader, out, progress io.Writer) (bool, error) {
	g, err := c.choose(groups)
	if err != nil {
		return false, err
	}
	// The machines may run for the timeout twice: while they start and while they end.
	worst := nodegroups.Times(int64(c.launch), nodegroups.MicroUSD(g.Spec.PricePerHour)) * int64(2*c.timeout/time.Second) / 3600
	if worst > int64(c.maxUSD*1e6) {
		return false, fmt.Errorf("--max-usd: %s of NodeGroup %s may cost %s USD, if they take as long as they may (--timeout %s to start and "+
			"to end), and %.2f are allowed: allow more, or give a shorter --timeout or another --group", text.Machines(c.launch), g.Name,
			text.Dollars(worst), c.timeout, c.maxUSD)
	}
	if !c.yes {
		fmt.Fprintf(out, "\nLaunch %s of NodeGroup %s, for %s USD at most, and terminate them again? [y/N] ", text.Machines(c.launch), g.Name,
			text.Dollars(worst))
		answer, _ := bufio.NewReader(in).ReadString('\n')
		if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
			fmt.Fprintln(out, "Nothing was launched.")
			return true, nil
		}
	}
	l := rehearsal.Launch{
		Group: g, Machines: c.launch, Token: "cloud-check-" + string(uuid.NewUUID()), Patience: c.timeout,
		Clock: clock.RealClock{},
		Report: func(s rehearsal.Step) {
			step := reportedStep{Step: s.Name, Seconds: s.Took.Seconds(), Says: s.Says}
			if s.Err != nil {
				step.Error = s.Err.Error()
			}
			r.Rehearsal = append(r.Rehearsal, step)
			if c.output == "text" {
				fmt.Fprintf(out, "%-10s %5.0fs  %s\n", s.Name, step.Seconds, strings.Join(slices.DeleteFunc([]string{step.Says, step.Error},
					func(s string) bool { return s == "" }), "; "))
			}
		},
	}
	if c.nodes {
		l.Nodes = readyNodes(kube)
	}
	fmt.Fprintf(progress, "Rehearsing a gang of %d in NodeGroup %s; an interrupt terminates its machines…\n", c.launch, g.Name)
	return l.Run(ctx, p) == nil, nil
}

// choose the group to launch in.
func (c *cloudCheck) choose(groups []*v1alpha1.NodeGroup) (*v1alpha1.NodeGroup, error) {
	var names []string
	var best *v1alpha1.NodeGroup
	for _, g := range groups {
		names = append(names, g.Name)
		switch {
		case c.group != "" && g.Name != c.group, g.Spec.PricePerHour == nil, int(g.Spec.MaxNodes) < c.launch:
		case best == nil || g.Spec.PricePerHour.Cmp(*best.Spec.PricePerHour) < 0:
			best = g
		}
	}
	switch {
	case best != nil:
		return best, nil
	case c.group != "" && !slices.Contains(names, c.group):
		return nil, fmt.Errorf("--group: there is no group %s; use one of %s", c.group, strings.Join(names, ", "))
	case c.group != "":
		return nil, fmt.Errorf("--group: NodeGroup %s has no known price, or may not have %s", c.group, text.Machines(c.launch))
	default:
		return nil, fmt.Errorf("--launch: no group has a known price and may have %s", text.Machines(c.launch))
	}
}

// readyNodes returns the provider IDs of the nodes that are Ready.
func readyNodes(kube client.Reader) func(context.Context) (map[string]bool, error) {
	return func(ctx context.Context) (map[string]bool, error) {
		list := &corev1.NodeList{}
		if err := kube.List(ctx, list); err != nil {
			return nil, err
		}
		out := map[string]bool{}
		for i := range list.Items {
			n := &list.Items[i]
			out[n.Spec.ProviderID] = state.IsReady(n)
		}
		return out, nil
	}
}

func newReport(cloud v1alpha1.Provider, account, uid string, c *rehearsal.Check) *report {
	r := &report{
		Cloud: string(cloud), Account: account, Cluster: uid, Time: time.Now().UTC().Truncate(time.Second), PermissionsChecked: c.Examined,
		MissingPermissions: append([]string{}, c.Missing...), Groups: []reportedGroup{}, Refused: []reportedReason{}, Quotas: []reportedQuota{},
		Failed: []string{},
	}
	for _, f := range c.Groups {
		g := reportedGroup{
			Name: f.Name, Zone: f.Spec.Zone, CapacityType: string(f.Spec.CapacityType), MaxNodes: f.Spec.MaxNodes, USDPerHour: "unknown",
			Warnings: []string{},
		}
		if f.Spec.PricePerHour != nil {
			g.USDPerHour = text.USD(nodegroups.MicroUSD(f.Spec.PricePerHour))
		}
		capacity := nodegroups.ResourcesFrom(f.Spec.Template.Capacity)
		var parts []string
		for _, name := range capacity.Names() {
			if name == corev1.ResourceCPU || nodegroups.Extended(name) {
				parts = append(parts, fmt.Sprintf("%s %s", nodegroups.Quantity(name, capacity[name]), name))
			}
		}
		g.Capacity = strings.Join(parts, ", ")
		for _, w := range f.Warnings {
			g.Warnings = append(g.Warnings, w.Reason+": "+w.Message)
		}
		r.Groups = append(r.Groups, g)
	}
	for _, refused := range c.Refused {
		r.Refused = append(r.Refused, reportedReason(refused))
	}
	for i := range c.Quotas {
		r.Quotas = append(r.Quotas, newReportedQuota(&c.Quotas[i]))
	}
	for _, err := range c.Failed {
		r.Failed = append(r.Failed, err.Error())
	}
	return r
}

func newReportedQuota(q *cloudprovider.Quota) reportedQuota {
	out := reportedQuota{Name: q.Name, Unit: q.Unit, Needed: q.Needed()}
	if q.Limit >= 0 {
		out.Limit = &q.Limit
	}
	if q.Used >= 0 {
		out.Used = &q.Used
	}
	for _, n := range q.Needs {
		need := reportedNeed{Group: n.Group, MaxNodes: n.Machines}
		if allowed := q.Allows(n); q.Limit >= 0 {
			need.Allowed = &allowed
		}
		out.Groups = append(out.Groups, need)
	}
	return out
}

// printQuotas writes the quotas, and the increases to request.
func (r *report) printQuotas(out io.Writer) {
	if len(r.Quotas) == 0 {
		return
	}
	number := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return fmt.Sprint(*n)
	}
	fmt.Fprintln(out, "\nQuotas of the account, and what the groups need if each has spec.maxNodes machines:")
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "QUOTA\tUNIT\tLIMIT\tUSED\tNEEDED")
	for i := range r.Quotas {
		q := &r.Quotas[i]
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\n", q.Name, q.Unit, number(q.Limit), number(q.Used), q.Needed)
	}
	_ = table.Flush()
	for i := range r.Quotas {
		q := &r.Quotas[i]
		switch {
		case q.Limit == nil:
			fmt.Fprintf(out, "%s: the cloud does not report this quota; see the console of the account\n", q.Name)
		case q.Needed > *q.Limit:
			var allows []string
			for _, g := range q.Groups {
				allows = append(allows, fmt.Sprintf("%d of %s of %s", *g.Allowed, text.Machines(int(g.MaxNodes)), g.Group))
			}
			fmt.Fprintf(out, "%s: request a limit of %d %s, or lower spec.maxNodes; the limit of %d allows %s\n", q.Name, q.Needed, q.Unit, *q.Limit,
				strings.Join(allows, ", or "))
		}
	}
}

// print writes the report for people.
func (r *report) print(out io.Writer) {
	fmt.Fprintf(out, "%s (UID %s), %s\n\n", r.Account, r.Cluster, r.Time.Format(time.RFC3339))
	switch {
	case len(r.MissingPermissions) > 0:
		fmt.Fprintf(out, "Permissions missing, see deploy/clouds:\n  %s\n", strings.Join(r.MissingPermissions, "\n  "))
	case r.PermissionsChecked:
		fmt.Fprintln(out, "Permissions: all are there")
	}
	for _, failed := range r.Failed {
		fmt.Fprintf(out, "FAILED: %s\n", failed)
	}
	if len(r.Groups) == 0 && len(r.Failed) == 0 {
		fmt.Fprintf(out, "Groups: none is opted in; see docs/clouds.md for how %s is set on one\n", cloudprovider.Enabled)
	}
	if len(r.Groups) > 0 {
		fmt.Fprintln(out, "\nGroups that would be used:")
		table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
		fmt.Fprintln(table, "NAME\tZONE\tCAPACITY TYPE\tMACHINE\tMAX\tUSD/H")
		for _, g := range r.Groups {
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%d\t%s\n", g.Name, g.Zone, g.CapacityType, g.Capacity, g.MaxNodes, g.USDPerHour)
		}
		_ = table.Flush()
	}
	for _, g := range r.Groups {
		for _, w := range g.Warnings {
			fmt.Fprintf(out, "%s: %s\n", g.Name, w)
		}
	}
	r.printQuotas(out)
	if len(r.Refused) > 0 {
		fmt.Fprintln(out, "\nGroups that are opted in and cannot be used:")
		for _, g := range r.Refused {
			fmt.Fprintf(out, "  %s: %s\n", g.Group, g.Reason)
		}
	}
}
