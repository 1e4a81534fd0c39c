package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/jobs/podgroup"
	"github.com/muster-dev/muster/queueing/workload"
)

// question is what to simulate.
type question struct {
	file string
	// later is the arrival of the jobs, a time or a duration from now; empty is now.
	later     string
	quotas    []string
	groups    []string
	lostZones []string
}

// simulated is the answer, about the jobs of a file or else the pending ones.
type simulated struct {
	Jobs   []view.Simulation `json:"jobs,omitempty"`
	Others *view.Comparison  `json:"others,omitempty"`
	// Notes are the assumptions of the answer.
	Notes []string `json:"notes,omitempty"`
}

func newSimulateCommand(o *options) *cobra.Command {
	q := &question{}
	command := &cobra.Command{
		Use:   "simulate [-f FILE] [--at TIME] [--quota ...] [--add-group FILE] [--without-zone ZONE]",
		Short: "Simulate whether a job would start, where and at what price, also with what-if changes",
		Long: `Simulate what would happen to a job if it were created now: whether and when it would
start, on which flavors, machines and groups, at what price and chance of success, and
which workloads it would preempt; or why it would not start, and what would change that.
Nothing in the cluster is changed.

--quota, --add-group and --without-zone ask what if. With a FILE the answer is about its
jobs; without, it lists the pending workloads that would start only with the changes,
and those that would start only without.

A FILE contains what Muster queues (jobs of any kind, pods, StatefulSets, LeaderWorkerSets) or
Workloads (kueue.x-k8s.io/v1beta2) as YAML or JSON, in one or more documents or in a List. Kinds
of jobs that the settings of Muster describe are known with its configuration file as --config.
They arrive together and compete for capacity. What else decides about jobs, such as queues,
flavors, NodeGroups, priority classes and namespaces, is taken to be in the cluster as the file
has it; other objects are left out. If you may create them, a server-side dry run applies
defaults and admission policies.

With --at the jobs arrive later: the queues are run forward until then, as for the
expected start in explain. The answer is the expected start, without machines.

If other clusters run the jobs of the queue (MultiKueue), the answer says which of them would
be asked, in which order, and what would become of the job in the first. They are read with your
own rights, by the context of your kubeconfig that has the name of the cluster. --at tells of the
quota of this cluster alone.

Assumptions: preemption takes no time, launches succeed with the chance shown, backoffs
after failed attempts are over, and pods in a lost zone keep running.`,
		Example: `  # Would it start?
  kubectl muster simulate -f train.yaml
  kubectl create job train --image=train --dry-run=client -o yaml |
    kubectl label --local -f - kueue.x-k8s.io/queue-name=main -o yaml | kubectl muster simulate -f -

  # Would it start with 64 GPUs of flavor h100 for ClusterQueue research?
  kubectl muster simulate -f train.yaml --quota research/h100/nvidia.com/gpu=64

  # When would it start if it were created tonight?
  kubectl muster simulate -f train.yaml --at 6h

  # Which pending workloads would start with one more group, and which not without a zone?
  kubectl muster simulate --add-group spot.yaml
  kubectl muster simulate --without-zone us-east-1a`,
		Args: arguments.None,
		RunE: func(command *cobra.Command, _ []string) error { return o.simulate(command, q) },
	}
	flags := command.Flags()
	flags.StringVarP(&q.file, "filename", "f", "", "file with the jobs; - reads standard input")
	flags.StringVar(&q.later, "at", "", "when the jobs of the file arrive: a time such as 2026-11-20T18:00:00Z, or a duration from now such "+
		"as 6h; empty means now")
	flags.StringArrayVar(&q.quotas, "quota", nil, "nominalQuota to assume, as "+quotaForm+"; may be repeated")
	flags.StringArrayVar(&q.groups, "add-group", nil,
		"file with NodeGroups to add, or to replace existing ones of their names; may be repeated")
	flags.StringArrayVar(&q.lostZones, "without-zone", nil, "zone to assume lost: without machines, and without new ones; may be repeated")
	o.addOutput(command)
	o.addForecast(command)
	o.addContexts(command)
	for _, name := range []string{"filename", "add-group"} {
		if err := command.MarkFlagFilename(name, "yaml", "yml", "json"); err != nil {
			panic(err) // the flag is defined above
		}
	}
	for name, complete := range map[string]func(*view.Picture) []string{"quota": quotasOf, "without-zone": (*view.Picture).Zones} {
		if err := command.RegisterFlagCompletionFunc(name, o.completeFromPicture(complete)); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return command
}

func (o *options) simulate(command *cobra.Command, q *question) error {
	changes, err := q.changes()
	if err != nil {
		return err
	}
	if _, err := q.at(o.clock.Now()); err != nil {
		return err
	}
	if q.file == "" && !changes.Any() && len(q.groups) == 0 {
		return fmt.Errorf("nothing to simulate: give a file with jobs (-f) or a change (--quota, --add-group or --without-zone)")
	}
	// The standard input can be read once only, so files are read before anything is
	// asked.
	own, err := jobKinds(o.file)
	if err != nil {
		return err
	}
	read, err := q.read(command.InOrStdin(), kinds.All(own...))
	if err != nil {
		return err
	}
	return o.answer(command, func(ctx context.Context) (answer, error) { return o.simulateOnce(ctx, q, changes, read) })
}

// at is when the jobs arrive; zero is now.
func (q *question) at(now time.Time) (at time.Time, err error) {
	if q.later == "" {
		return at, nil
	}
	if q.file == "" {
		return at, fmt.Errorf("--at=%q needs a file with jobs: add -f", q.later)
	}
	return timeFrom("--at", q.later, now)
}

// timeFrom reads the value of a flag: a time, or a duration from now.
func timeFrom(flag, value string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(value); err == nil {
		return now.Add(d), nil
	}
	at, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return at, fmt.Errorf("%s=%q is neither a time such as 2026-11-20T18:00:00Z nor a duration from now such as 6h", flag, value)
	}
	return at, nil
}

// changes are those that need no file.
func (q *question) changes() (out view.Changes, err error) {
	for _, text := range q.quotas {
		change, err := quotaFrom("--quota=", text)
		if err != nil {
			return out, err
		}
		out.Quotas = append(out.Quotas, change)
	}
	out.LostZones = q.lostZones
	return out, nil
}

// quotaForm is how quotas are written.
const quotaForm = "CLUSTERQUEUE/FLAVOR/RESOURCE=QUANTITY"

// quotaFrom reads a quota; a name before it, such as --quota=, begins the error. Names of resources may have a slash.
func quotaFrom(name, text string) (out view.QuotaChange, err error) {
	wrong := func(why string) error {
		return fmt.Errorf("%s%q: %s; write it as %s, for example research/h100/nvidia.com/gpu=64", name, text, why, quotaForm)
	}
	of, amount, ok := strings.Cut(text, "=")
	if !ok {
		return out, wrong("=QUANTITY is missing")
	}
	parts := strings.SplitN(of, "/", 3)
	if len(parts) < 3 || slices.Contains(parts, "") {
		return out, wrong("the name of the ClusterQueue, flavor or resource is missing")
	}
	quantity, err := resource.ParseQuantity(amount)
	if err != nil {
		return out, wrong(fmt.Sprintf("%q is not a quantity", amount))
	}
	if quantity.Sign() < 0 {
		return out, wrong("a quota must not be negative")
	}
	return view.QuotaChange{
		ClusterQueue: parts[0], Flavor: kueue.ResourceFlavorReference(parts[1]), Resource: corev1.ResourceName(parts[2]), Nominal: quantity,
	}, nil
}

// files is what the files of a question contain.
type files struct {
	jobs, groups []manifest
	// surroundings of the jobs, such as their queues, are taken to be in the cluster; others do not matter to a job.
	surroundings, others []manifest
}

// read reads the files, with jobs of these kinds.
func (q *question) read(in io.Reader, all []jobs.Kind) (out files, err error) {
	scheme, err := view.NewScheme()
	if err != nil {
		return out, err
	}
	if q.file == stdin && slices.Contains(q.groups, stdin) {
		return out, fmt.Errorf("-f and --add-group are both %q: standard input can be read only once", stdin)
	}
	if q.file != "" {
		found, err := readManifests(q.file, in, scheme)
		if err != nil {
			return out, err
		}
		if err := out.sort(found, all); err != nil {
			return out, err
		}
	}
	for _, file := range q.groups {
		found, err := readManifests(file, in, scheme)
		if err != nil {
			return out, err
		}
		for _, m := range found {
			if _, ok := m.object.(*v1alpha1.NodeGroup); !ok {
				return out, m.errorf("kind %s is not a NodeGroup of %s", kindOf(m.object), v1alpha1.GroupVersion)
			}
		}
		out.groups = append(out.groups, found...)
	}
	return out, nil
}

// sort separates jobs, which are of these kinds, from what is around them. There has to be a job.
func (f *files) sort(found []manifest, all []jobs.Kind) error {
	for _, m := range found {
		m.kind = kindOfJob(m.object, all)
		_, isWorkload := m.object.(*kueue.Workload)
		isQueued := m.object.GetLabels()[jobs.QueueLabel] != ""
		switch isJob := m.kind != nil || podgroup.Queues(m.object.GetObjectKind().GroupVersionKind()); {
		case isWorkload || isJob && isQueued:
			f.jobs = append(f.jobs, m)
		case isJob:
			return m.errorf("%s %s lacks the label %s: set it to a LocalQueue of its namespace", kindOf(m.object), m.object.GetName(),
				jobs.QueueLabel)
		case isSurrounding(m.object):
			f.surroundings = append(f.surroundings, m)
		case isQueued:
			return m.cannotBeSimulated()
		default:
			f.others = append(f.others, m)
		}
	}
	switch {
	case len(f.jobs) > 0:
	case len(f.others) > 0:
		return f.others[0].cannotBeSimulated()
	default:
		return found[0].errorf("there is no job in the file, only what is around jobs: add the job that the question is about")
	}
	return nil
}

func (m manifest) cannotBeSimulated() error {
	return m.errorf("kind %s cannot be simulated: give a job of a kind that Muster queues, such as Job or JobSet, the pods of a Deployment "+
		"one by one, or a Workload of %s; kinds of the settings of Muster are known with its configuration file as --config",
		kindOf(m.object), kueue.SchemeGroupVersion)
}

func kindOf(o client.Object) string { return o.GetObjectKind().GroupVersionKind().Kind }

func (o *options) simulateOnce(ctx context.Context, q *question, changes view.Changes, read files) (answer, error) {
	cluster, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	kube, notes, err := laidOver(ctx, cluster, read.surroundings, namespace)
	if err != nil {
		return nil, err
	}
	p, err := o.look(ctx, kube, namespace, view.QueueKinds)
	if err != nil {
		return nil, err
	}
	if !p.Decides() {
		return o.simulatePublished(ctx, kube, p, q, changes, read, namespace)
	}
	out := &simulated{Notes: append(notes, leftOut(read.others)...)}
	for _, m := range read.groups {
		g, note, err := groupOf(ctx, kube, m)
		if err != nil {
			return nil, err
		}
		changes.Groups = append(slices.Clip(changes.Groups), g)
		if note != "" {
			out.Notes = append(out.Notes, fmt.Sprintf("NodeGroup %s: %s", g.Name, note))
		}
	}
	submissions, err := submissionsOf(ctx, kube, p, read.jobs, namespace)
	if err != nil {
		return nil, err
	}
	var unchanged *view.Picture
	if changes.Any() {
		unchanged = p
		if p, err = p.Changed(&changes); err != nil {
			return nil, err
		}
	}
	if len(submissions) == 0 {
		out.Others = unchanged.Compare(p)
		return out, nil
	}
	at, err := q.at(p.Now)
	switch {
	case err != nil:
		return nil, err
	case at.IsZero():
		workers, err := o.workers(ctx, kube)
		if err != nil {
			return nil, err
		}
		out.Jobs = p.Simulate(submissions, unchanged, workers...)
		if len(workers) > 0 && unchanged != nil {
			out.Notes = append(out.Notes, "the changes are to this cluster only: ask about those of another with its --context")
		}
	default:
		ctx, cancel := context.WithTimeout(ctx, max(o.patience, time.Second))
		defer cancel()
		switch out.Jobs, err = p.SimulateLater(ctx, submissions, at); {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, fmt.Errorf("--at=%q: the forecast was not done within --forecast-timeout=%s, since many jobs wait: set a longer one, or "+
				"leave out --at", q.later, o.patience)
		case err != nil:
			return nil, fmt.Errorf("--at=%q: %w", q.later, err)
		}
	}
	return out, nil
}

// simulatePublished answers a caller that may not read what a simulation needs from what Muster has published in its namespace. That
// suffices for jobs alone.
func (o *options) simulatePublished(ctx context.Context, kube client.Client, p *view.Picture, q *question, changes view.Changes, read files,
	namespace string) (answer, error) {
	lacks := o.lacks("what a simulation needs", p.Missing)
	if len(read.jobs) == 0 || len(read.groups) > 0 || changes.Any() || q.later != "" {
		return nil, lacks
	}
	submissions, err := submissionsOf(ctx, narrow{kube}, p, read.jobs, namespace)
	if err != nil {
		return nil, err
	}
	jobs, ok := p.SimulatePublished(submissions)
	if !ok {
		return nil, lacks
	}
	return &simulated{Jobs: jobs, Notes: leftOut(read.others)}, nil
}

// narrow reads as if what its caller may not read did not exist: priority classes, which have no part in what is published.
type narrow struct{ client.Client }

func (n narrow) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	err := n.Client.Get(ctx, key, into, opts...)
	if apierrors.IsForbidden(err) {
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return err
}

func (n narrow) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if err := n.Client.List(ctx, list, opts...); !apierrors.IsForbidden(err) {
		return err
	}
	return nil
}

// leftOut names what does not matter to a simulation.
func leftOut(others []manifest) []string {
	if len(others) == 0 {
		return nil
	}
	names := make([]string, len(others))
	for i, m := range others {
		names[i] = kindOf(m.object) + " " + m.object.GetName()
	}
	return []string{"not looked at: " + strings.Join(names, ", ")}
}

// groupOf is the NodeGroup as it would be in the cluster.
func groupOf(ctx context.Context, kube client.Client, m manifest) (g *v1alpha1.NodeGroup, note string, err error) {
	done, err := m.try(ctx, kube)
	if err != nil {
		return nil, "", err
	}
	return defaulted(m.object.(*v1alpha1.NodeGroup)), done.note, nil
}

// defaulted is a NodeGroup as the API server would store it, which it has not where it comes from a file as is.
func defaulted(g *v1alpha1.NodeGroup) *v1alpha1.NodeGroup {
	if g.Spec.CapacityType != "" {
		return g
	}
	out := g.DeepCopy()
	out.Spec.CapacityType = v1alpha1.OnDemand
	return out
}

// kindOfJob is the kind of jobs of an object; nil if it is no job.
func kindOfJob(o client.Object, all []jobs.Kind) jobs.Kind {
	for _, k := range all {
		if k.GroupVersionKind() == o.GetObjectKind().GroupVersionKind() {
			return k
		}
	}
	return nil
}

// submissionsOf are the Workloads that the objects of a file would be or have. Those of pods come last: some have one together.
func submissionsOf(ctx context.Context, kube client.Client, p *view.Picture, files []manifest, namespace string,
) ([]view.Submission, error) {
	var out []view.Submission
	var gated []manifest
	for _, m := range files {
		m.object = m.object.DeepCopyObject().(client.Object)
		if m.object.GetNamespace() == "" {
			m.object.SetNamespace(namespace)
		}
		if podgroup.Queues(m.object.GetObjectKind().GroupVersionKind()) {
			gated = append(gated, m)
			continue
		}
		one, err := submissionOf(ctx, kube, p, m)
		if err != nil {
			return nil, err
		}
		out = append(out, one)
	}
	more, err := gatedSubmissions(ctx, kube, p, gated)
	return append(out, more...), err
}

// gatedSubmissions are the Workloads of pods, and of what makes them and cannot be suspended.
func gatedSubmissions(ctx context.Context, kube client.Client, p *view.Picture, files []manifest) (out []view.Submission, err error) {
	var objects []client.Object
	var notes []string
	for _, m := range files {
		kind := m.object.GetObjectKind().GroupVersionKind() // of what the API server returns, the Go type alone says it
		done, err := m.try(ctx, kube)
		if err != nil {
			return nil, err
		}
		m.object.GetObjectKind().SetGroupVersionKind(kind)
		if done.exists {
			return nil, m.errorf("%s %s exists already: see `kubectl muster explain`, or simulate it under another metadata.name", kind.Kind,
				m.object.GetName())
		}
		if done.note != "" && !slices.Contains(notes, done.note) {
			notes = append(notes, done.note)
		}
		objects = append(objects, m.object)
	}
	workloads, err := podgroup.Workloads(ctx, kube, objects...)
	if apierrors.IsForbidden(err) {
		return nil, fmt.Errorf("%w. %s", err, missingRights)
	}
	for _, w := range workloads {
		if p.WorkloadNamed(w.Namespace, w.Name) != nil {
			return nil, fmt.Errorf("the Workload %s exists already: see `kubectl muster explain workload/%s -n %s`", w.Name, w.Name, w.Namespace)
		}
		out = append(out, view.Submission{Kind: "Workload", Name: w.Name, Workload: w, Notes: notes})
	}
	return out, err
}

// submissionOf is the Workload that an object of a file would be or have.
func submissionOf(ctx context.Context, kube client.Client, p *view.Picture, m manifest) (out view.Submission, err error) {
	done, err := m.try(ctx, kube)
	if err != nil {
		return out, err
	}
	out = view.Submission{Kind: "Workload", Name: m.object.GetName()}
	if done.note != "" {
		out.Notes = []string{done.note}
	}
	var there *kueue.Workload
	switch x := m.object.(type) {
	case *kueue.Workload:
		out.Workload = x.DeepCopy()
		out.Workload.UID = ""
		there = p.WorkloadNamed(x.Namespace, x.Name)
	default:
		out.Kind = m.kind.GroupVersionKind().Kind
		if done.exists {
			had := &metav1.PartialObjectMetadata{}
			had.SetGroupVersionKind(m.kind.GroupVersionKind())
			if err := kube.Get(ctx, client.ObjectKeyFromObject(x), had); err != nil {
				return out, m.errorf("reading the %s of its name: %w", out.Kind, err)
			}
			x.SetUID(had.UID)
			there = p.WorkloadOf(had.UID)
		}
		w, err := jobs.WorkloadFor(ctx, kube, m.kind, x, nil)
		if apierrors.IsForbidden(err) {
			return out, fmt.Errorf("%w. %s", err, missingRights)
		}
		if err != nil {
			return out, m.errorf("%w", err)
		}
		out.Workload = w
	}
	if there == nil || workload.IsFinished(there) {
		return out, nil
	}
	if workload.HasQuota(there) {
		return out, m.errorf("%s %s exists already and has quota: see `kubectl muster explain %s/%s -n %s`, or simulate it under another "+
			"metadata.name",
			out.Kind, out.Name, strings.ToLower(out.Kind), out.Name, there.Namespace)
	}
	// It keeps its place in the line, and does not pause any more.
	now := there.DeepCopy()
	now.Spec, now.Annotations, now.Status.RequeueState = out.Workload.Spec, out.Workload.Annotations, nil
	now.Generation++
	out.Workload = now
	out.Notes = append(out.Notes, "it is already pending: this is the outcome in its place in the queue, with the spec of the file")
	return out, nil
}

// quotasOf are what --quota may change, for completion.
func quotasOf(p *view.Picture) (out []string) {
	for _, cq := range p.ClusterQueues {
		for i := range cq.Spec.ResourceGroups {
			for j := range cq.Spec.ResourceGroups[i].Flavors {
				f := &cq.Spec.ResourceGroups[i].Flavors[j]
				for k := range f.Resources {
					r := &f.Resources[k]
					out = append(out, fmt.Sprintf("%s/%s/%s=%s", cq.Name, f.Name, r.Name, r.NominalQuota.String()))
				}
			}
		}
	}
	return out
}

func (o *options) completeFromPicture(offer func(*view.Picture) []string) cobra.CompletionFunc {
	return func(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		kube, namespace, err := o.connect()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		p, err := o.look(command.Context(), kube, namespace, view.QueueKinds)
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return offer(p), cobra.ShellCompDirectiveNoFileComp
	}
}

func (s *simulated) print(p *printer) error {
	for i := range s.Jobs {
		if i > 0 {
			fmt.Fprintln(p.out)
		}
		if err := p.simulation(&s.Jobs[i]); err != nil {
			return err
		}
	}
	if s.Others != nil {
		if err := p.comparison(s.Others); err != nil {
			return err
		}
	}
	p.list("Assumptions about the cluster", s.Notes)
	return nil
}

func (s *simulated) foretell(ctx context.Context) error { return view.Foresee(ctx, s.Jobs) }

func (s *simulated) without(why string) {
	for i := range s.Jobs {
		if w := s.Jobs[i].Waits; w != nil && w.Place != nil && !w.Never {
			w.Expected = &view.Expected{Words: []string{why}}
		}
	}
}

func (s *simulated) printForecast(p *printer) {
	for i := range s.Jobs {
		if j := &s.Jobs[i]; j.Waits != nil {
			heading := "Expected start"
			if len(s.Jobs) > 1 {
				heading += fmt.Sprintf(" of %s %s/%s", j.Kind, j.Namespace, j.Name)
			}
			p.expected(heading, j.Waits.Expected)
		}
	}
}

// widest is how much of what would become of a job in a cluster is shown in a table, unless -o wide shows all.
const widest = 150

func (p *printer) simulation(s *view.Simulation) error {
	p.heading(fmt.Sprintf("%s %s/%s %s.", s.Kind, s.Namespace, s.Name, s.Summary))
	if s.Unchanged != "" {
		fmt.Fprintf(p.out, "Without the changes it %s.\n", s.Unchanged)
	}
	var clusters [][]string
	for _, c := range s.Clusters {
		order := ""
		if c.Order > 0 {
			order = fmt.Sprint(c.Order)
		}
		words := c.Words
		if !p.wide {
			words = text.Clip(words, widest)
		}
		clusters = append(clusters, []string{order, c.Cluster, words})
	}
	if err := p.part("Clusters, in the order in which they would be asked", []string{"ORDER", "CLUSTER", "OUTCOME"}, clusters); err != nil {
		return err
	}
	if s.There != nil {
		fmt.Fprintf(p.out, "\nIn cluster %s:\n", s.Cluster)
		if err := p.simulation(s.There); err != nil {
			return err
		}
	}
	p.list("Where", s.Where)
	var rows [][]string
	for _, l := range s.Launches {
		rows = append(rows, []string{l.Group, l.CapacityType, l.Zone, fmt.Sprint(l.Machines), l.USDPerHour, fmt.Sprintf("%d%%", l.Chance)})
	}
	if err := p.part("Machines to launch", []string{"GROUP", "CAPACITY", "ZONE", "MACHINES", "USD/H", "CHANCE"}, rows); err != nil {
		return err
	}
	rows = nil
	for _, u := range s.Uses {
		rows = append(rows, []string{u.Node, u.Group, fmt.Sprint(u.Pods)})
	}
	if err := p.part("Existing machines", []string{"NODE", "GROUP", "PODS"}, rows); err != nil {
		return err
	}
	if err := p.holders("Workloads to preempt", s.Preempts); err != nil {
		return err
	}
	if s.Waits != nil {
		if err := p.reasons(s.Waits); err != nil {
			return err
		}
	}
	p.list("Assumptions", s.Notes)
	return nil
}

func (p *printer) comparison(c *view.Comparison) error {
	fmt.Fprintf(p.out, "Of the pending workloads, %d would start only with the changes and %d only without. %d start and %d wait in either "+
		"case.\n",
		len(c.Start), len(c.Wait), c.StartAnyway, c.WaitAnyway)
	columns := []string{"CLUSTERQUEUE", "NAMESPACE", "NAME", "PRIORITY", "OUTCOME"}
	for _, part := range []struct {
		heading string
		lines   []view.ChangeLine
	}{{"Would start with the changes", c.Start}, {"Would no longer start", c.Wait}} {
		var rows [][]string
		for _, l := range part.lines {
			what := strings.Join(slices.DeleteFunc([]string{l.Summary, l.Where, l.Message}, func(s string) bool { return s == "" }), ": ")
			rows = append(rows, []string{l.ClusterQueue, l.Namespace, l.Name, fmt.Sprint(l.Priority), what})
		}
		if err := p.part(part.heading, columns, rows); err != nil {
			return err
		}
	}
	return nil
}
