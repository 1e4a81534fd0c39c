package main

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// of four pods of a machine each, in queue main.
const train = `apiVersion: batch/v1
kind: Job
metadata: {name: new, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  parallelism: 4
  template: {spec: {restartPolicy: Never, containers: [{name: main, image: main, resources: {limits: {nvidia.com/gpu: 8}}}]}}
`

// fakeCluster has objects, and an API server that lets its caller create what it may.
type fakeCluster struct {
	objects []client.Object
	// mayNot: the caller may create nothing; refuses: a policy refuses all that it creates.
	mayNot, refuses bool
	// workers run the jobs of its queues.
	workers []view.Worker
	// own kinds of jobs of its settings.
	own []*kinds.Kind
	// asked is of which resource the caller has asked last whether it may create it.
	asked string
}

// client reads the objects and tries to create others.
func (c *fakeCluster) client(t *testing.T) client.Client {
	t.Helper()
	scheme, err := view.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	objects := slices.Concat(everywhere(), c.objects)
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, kube client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if review, ok := o.(*authorizationv1.SelfSubjectAccessReview); ok {
				review.Status.Allowed, c.asked = !c.mayNot, review.Spec.ResourceAttributes.Resource
				return nil
			}
			if c.refuses {
				return apierrors.NewInvalid(schema.GroupKind{Kind: "Job"}, o.GetName(), nil)
			}
			// A dry run of the fake client does not look whether there is one.
			if kube.Get(ctx, client.ObjectKeyFromObject(o), o.DeepCopyObject().(client.Object)) == nil {
				return apierrors.NewAlreadyExists(schema.GroupResource{}, o.GetName())
			}
			return kube.Create(ctx, o, opts...)
		},
	}).Build()
}

// simulate answers for the file, if there is one, and the changes.
func (c *fakeCluster) simulate(t *testing.T, file string, changes view.Changes) (string, error) {
	t.Helper()
	var read files
	var err error
	if file != "" {
		if read, err = (&question{file: stdin}).read(strings.NewReader(file), kinds.All(c.own...)); err != nil {
			return "", err
		}
	}
	kube, notes, err := laidOver(t.Context(), c.client(t), read.surroundings, "default")
	if err != nil {
		return "", err
	}
	unchanged, err := view.Look(t.Context(), clocktesting.NewFakePassiveClock(noon), view.DefaultSettings(), kube, "default", view.QueueKinds)
	if err != nil {
		return "", err
	}
	p, out := unchanged, &simulated{Notes: append(notes, leftOut(read.others)...)}
	if changes.Any() {
		if p, err = unchanged.Changed(&changes); err != nil {
			return "", err
		}
	} else {
		unchanged = nil
	}
	if file == "" {
		out.Others = unchanged.Compare(p)
		return printed(t, out), nil
	}
	submissions, err := submissionsOf(t.Context(), kube, p, read.jobs, "default")
	if err != nil {
		return "", err
	}
	out.Jobs = p.Simulate(submissions, unchanged, c.workers...)
	return printed(t, out), nil
}

// podOf is a pod in queue main, of a machine.
func podOf(name, annotations string) string {
	return `apiVersion: v1
kind: Pod
metadata: {name: ` + name + `, labels: {kueue.x-k8s.io/queue-name: main}, annotations: ` + annotations + `}
spec: {containers: [{name: main, image: main, resources: {limits: {nvidia.com/gpu: 8}}}]}
---
`
}

func preempting(spec *kueue.ClusterQueueSpec) {
	spec.Preemption = &kueue.ClusterQueuePreemption{WithinClusterQueue: kueue.PreemptionPolicyLowerPriority}
}

// TestASimulationOfAKindOfTheSettings: the settings alone say what its pods are.
func TestASimulationOfAKindOfTheSettings(t *testing.T) {
	const run = `apiVersion: acme.io/v1
kind: TrainRun
metadata: {name: nightly, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  roles:
    worker: {replicas: 9, template: {spec: {containers: [{name: main, image: main, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
`
	settings := filepath.Join(t.TempDir(), "muster.yaml")
	if err := os.WriteFile(settings, []byte(`apiVersion: config.muster.dev/v1alpha1
kind: Configuration
queueing:
  jobKinds:
  - group: acme.io
    version: v1
    kind: TrainRun
    resource: trainingruns
    suspend: {path: /spec/state, held: Pending, running: null}
    podSets: [{each: /spec/roles, name: key, count: self.replicas, template: /template}]
    succeeded: self.status.phase == 'Done'
    failed: self.status.phase == 'Broken'
`), 0o600); err != nil {
		t.Fatal(err)
	}
	own, err := jobKinds(settings)
	if err != nil {
		t.Fatal(err)
	}
	c := &fakeCluster{objects: []client.Object{flavor("h100"), team("team", nil, "h100=64")}, own: own}
	out, err := c.simulate(t, run, view.Changes{})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"TrainRun default/nightly cannot start as specified", "72 nvidia.com/gpu requested"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in:\n%s", want, out)
		}
	}
	if c.asked != "trainingruns" {
		t.Errorf("it is asked whether its caller may create %s", c.asked)
	}
	c.own = nil
	if _, err := c.simulate(t, run, view.Changes{}); err == nil || !strings.Contains(err.Error(), "--config") {
		t.Errorf("without the settings, the error is %v", err)
	}
}

func TestSimulations(t *testing.T) {
	quotaOf := func(gpus string) view.Changes {
		return view.Changes{Quotas: []view.QuotaChange{{ClusterQueue: "team", Flavor: "h100", Resource: gpu, Nominal: resource.MustParse(gpus)}}}
	}
	urgent := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "urgent", UID: "urgent"}, Value: 9}
	tests := []struct {
		name    string
		objects []client.Object
		file    string
		changes view.Changes
		want    []string
	}{
		{
			name:    "free quota without a check for machines is had at once",
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64")},
			file:    train,
			want:    []string{"Job default/new would start at once, on flavor h100.\n", "its ClusterQueue has no capacity check"},
		},
		{
			name:    "a StatefulSet queues as a whole",
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64")},
			file: `apiVersion: apps/v1
kind: StatefulSet
metadata: {name: serve, labels: {kueue.x-k8s.io/queue-name: main}}
spec: {replicas: 9, template: {spec: {containers: [{name: main, image: main, resources: {limits: {nvidia.com/gpu: 8}}}]}}}
`,
			want: []string{"Workload default/statefulset-serve-", "cannot start as specified", "nvidia.com/gpu"},
		},
		{
			name:    "the pods of a group queue together, another one alone",
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=24")},
			file: podOf("a", "{kueue.x-k8s.io/pod-group-name: ring, kueue.x-k8s.io/pod-group-total-count: '2'}") +
				podOf("b", "{kueue.x-k8s.io/pod-group-name: ring, kueue.x-k8s.io/pod-group-total-count: '2'}") + podOf("alone", "{}"),
			want: []string{"Workload default/ring would start at once", "Workload default/pod-alone-", "would start at once"},
		},
		{
			name:    "a LeaderWorkerSet queues group by group",
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=16")},
			file: `apiVersion: leaderworkerset.x-k8s.io/v1
kind: LeaderWorkerSet
metadata: {name: serve, labels: {kueue.x-k8s.io/queue-name: main}}
spec:
  replicas: 2
  leaderWorkerTemplate:
    size: 2
    workerTemplate: {spec: {containers: [{name: main, image: main, resources: {limits: {nvidia.com/gpu: 8}}}]}}
`,
			want: []string{"Workload default/leaderworkerset-serve-0-", "would start at once", "Workload default/leaderworkerset-serve-1-",
				"would not start now"},
		},
		{
			name: "machines that exist are named",
			objects: []client.Object{flavor("h100"), team("team", checked, "h100=64"), capacity(), group("h100", 8, nil),
				node("a", "h100"), node("b", "h100"), node("c", "h100"), node("d", "h100")},
			file: train,
			want: []string{"Job default/new would start at once, on flavor h100.", "its pods fit on existing machines: 4",
				"NODE GROUP PODS\na - 1\nb - 1"},
		},
		{
			name:    "launches have a group, a price, a chance and a time",
			objects: []client.Object{flavor("h100"), team("team", checked, "h100=64"), capacity(), group("h100", 8, nil)},
			file:    train,
			want: []string{"Job default/new would start at 2026-11-20T12:04:00Z (in 4m), on flavor h100.",
				"machines to launch: 4 of NodeGroup h100, at 40.00 USD per hour, with a 95% chance of success", "h100 OnDemand zone-a 4 40.00 95%",
				"machines are taken to be ready 4m after their launch: too few past launches are known"},
		},
		{
			name:    "why not is told as explain would",
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), running("big", "team", 6, nil), waiting("other", 3, nil)},
			file:    train,
			want: []string{"Job default/new would not start now: it waits for quota.\nClusterQueue team, LocalQueue main, priority 0: 2nd of 2 " +
				"in the queue",
				"flavor h100: 16 more nvidia.com/gpu needed, 16 of 64 are free", "default/big team 0 48 nvidia.com/gpu of h100", "Expected start"},
		},
		{
			name: "who would be preempted is named",
			objects: []client.Object{flavor("h100"), team("team", preempting, "h100=64"), running("big", "team", 6, nil),
				running("small", "team", 2, nil),
				urgent},
			file: strings.Replace(train, "{spec: {", "{spec: {priorityClassName: urgent, ", 1),
			want: []string{"would start at once, on flavor h100, after preempting 1.",
				"Workloads to preempt\nWORKLOAD CLUSTERQUEUE PRIORITY USES BORROWS\ndefault/big team 0 48 nvidia.com/gpu of h100 -"},
		},
		{
			name:    "two of a file do not get the same",
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=48")},
			file:    train + "---\n# nothing\n---\n" + strings.Replace(train, "name: new", "name: next", 1),
			want: []string{"Job default/new would start at once", "Job default/next would not start now: it waits for quota.",
				"16 more nvidia.com/gpu needed, 16 of 48 are free"},
		},
		{
			name:    "a Workload has no job",
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64")},
			file: `{"apiVersion": "v1", "kind": "List", "items": [{"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", "metadata": {"name": "own"}, "spec": {"queueName": "main",
				"podSets": [{"name": "main", "count": 2, "template": {"spec": {"containers": [{"name": "main", "resources": {"requests": {"nvidia.com/gpu": 8}}}]}}}]}}]}`,
			want: []string{"Workload default/own would start at once, on flavor h100."},
		},
		{
			name:    "what keeps a Job from being queued is told",
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64")},
			file:    strings.Replace(train, "{spec: {", "{spec: {priorityClassName: none, ", 1),
			want: []string{"Job default/new cannot start as specified: Muster cannot queue it.",
				`PriorityClass "none" of the job's pods doesn't exist`},
		},
		{
			name:    "more quota would let it start",
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=16")},
			file:    train,
			changes: quotaOf("32"),
			want: []string{"would start at once, on flavor h100.\nWithout the changes it would not start now: it cannot start as specified: " +
				"it requests more than the maximum quota."},
		},
		{
			name:    "a group more would give it machines",
			objects: []client.Object{flavor("h100"), team("team", checked, "h100=64"), capacity(), group("other", 8, nil)},
			file:    train,
			changes: view.Changes{Groups: []*v1alpha1.NodeGroup{group("h100", 8, nil)}},
			want: []string{"would start at 2026-11-20T12:04:00Z (in 4m), on flavor h100.\nWithout the changes it would not start now: it " +
				"waits for machines."},
		},
		{
			name: "a group may be larger",
			objects: []client.Object{flavor("h100"), team("team", checked, "h100=64"), capacity(),
				group("h100", 4, func(g *v1alpha1.NodeGroup) { g.Status.Machines = 2 })},
			file:    train,
			changes: view.Changes{Groups: []*v1alpha1.NodeGroup{group("h100", 5, nil)}},
			want:    []string{"would not start now", "an administrator raises spec.maxNodes of NodeGroup h100 by 1"},
		},
		{
			name:    "a zone that is lost has no machines",
			objects: []client.Object{flavor("h100"), team("team", checked, "h100=64"), capacity(), group("h100", 8, nil)},
			file:    train,
			changes: view.Changes{LostZones: []string{"zone-a"}},
			want: []string{"would not start now: it waits for machines.\nWithout the changes it would start at 2026-11-20T12:04:00Z (in 4m), " +
				"on flavor h100."},
		},
		{
			name: "without a file it is about those that wait",
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), running("big", "team", 6, nil), waiting("first", 4, nil),
				waiting("huge", 12, nil)},
			changes: quotaOf("80"),
			want: []string{"Of the pending workloads, 1 would start only with the changes and 0 only without. 0 start and 1 wait in either case.",
				"Would start with the changes\nCLUSTERQUEUE NAMESPACE NAME PRIORITY OUTCOME\nteam default workload/first 0 would start at once, on flavor h100"},
		},
		{
			name:    "and some of them would not start any more",
			objects: []client.Object{flavor("h100"), team("team", nil, "h100=64"), waiting("first", 4, nil), waiting("small", 1, nil)},
			changes: quotaOf("16"),
			want: []string{"Of the pending workloads, 0 would start only with the changes and 1 only without. 1 start and 0 wait in either case.",
				"team default workload/first 0 would not start now: it cannot start as specified"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := (&fakeCluster{objects: tc.objects}).simulate(t, tc.file, tc.changes)
			if err != nil {
				t.Fatal(err)
			}
			lacks(t, got, tc.want...)
		})
	}
}

// TestSimulationTellsWhichClusterIsAsked: the manager has quota and no machine. Two jobs together do not fit in the first cluster.
func TestSimulationTellsWhichClusterIsAsked(t *testing.T) {
	in := func(name string, place int, objects ...client.Object) view.Worker {
		return view.Worker{Name: name, Places: map[string]int{"fleet": place},
			Picture: pictureOf(nil, append(objects, flavor("h100"), capacity())...)}
	}
	dear := group("h100", 8, func(g *v1alpha1.NodeGroup) { g.Spec.PricePerHour = new(resource.MustParse("30")) })
	elsewhere := view.New(clocktesting.NewFakePassiveClock(noon), view.DefaultSettings(), &view.Reading{})
	away := in("away", 4, team("team", checked, "h100=64"), group("h100", 8, nil))
	away.Inactive = "refused"
	workers := []view.Worker{
		in("dear", 1, team("team", checked, "h100=64"), dear),
		in("full", 0, team("team", checked, "h100=8"), group("h100", 8, nil)),
		in("cheap", 2, team("team", checked, "h100=32"), group("h100", 8, nil)),
		{Name: "bare", Places: map[string]int{"fleet": 3}, Picture: elsewhere}, away,
		{Name: "unlisted", Picture: in("unlisted", 0, node("n", "h100"), team("team", nil, "h100=64")).Picture},
		{Name: "north", Places: map[string]int{"fleet": 5}, Unread: "your kubeconfig has no context north"},
	}
	multiKueue := multiKueue()
	multiKueue.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: kueue.SchemeGroupVersion.Group,
		Kind: "MultiKueueConfig", Name: "fleet"}
	c := &fakeCluster{objects: []client.Object{flavor("h100"), multiKueue, team("team", delegated, "h100=128")}, workers: workers}
	// As an API server answers a dry run, which makes an UID.
	born := func(name string) string {
		return strings.Replace(train, "{name: new,", "{name: "+name+", uid: "+name+",", 1)
	}
	text, err := c.simulate(t, born("new")+"---\n"+born("second"), view.Changes{})
	if err != nil {
		t.Fatal(err)
	}
	first, second, _ := strings.Cut(text, "Job default/second")
	lacks(t, first, "Job default/new would get quota here at once, on flavor h100, and be given to cluster cheap.\n",
		"Clusters, in the order in which they would be asked\nORDER CLUSTER OUTCOME\n"+
			"1 cheap would launch machines for it, at 40.00 USD per hour, with a chance of 95%\n"+
			"2 dear would launch machines for it, at 120.00 USD per hour, with a chance of 95%\n"+
			"3 full would start it at a time that is not known: couldn't assign flavors to pod set main: insufficient quota",
		"- bare lacks LocalQueue default/main, and would not be asked\n- away is not connected to its manager, and would not be asked\n- "+
			"north was not read\n",
		"In cluster cheap:\nJob default/new would start at 2026-11-20T12:04:00Z (in 4m), on flavor h100.\n",
		"GROUP CAPACITY ZONE MACHINES USD/H CHANCE\nh100 OnDemand zone-a 4 40.00 95%",
		"- cluster north: your kubeconfig has no context north; it may be asked first\n", "the dispatcher decides when the job is there")
	lacks(t, second, "would get quota here at once, on flavor h100, and be given to cluster dear.\n", "In cluster dear:",
		"3 cheap would start it")
	if strings.Contains(text, "unlisted") || strings.Contains(first, "kube-scheduler places its pods") {
		t.Errorf("a cluster that is in no MultiKueueConfig is told of, or machines of the manager:\n%s", text)
	}

	c.workers = workers[6:]
	if text, err = c.simulate(t, train, view.Changes{}); err != nil {
		t.Fatal(err)
	}
	lacks(t, text, "Job default/new would get quota here at once, on flavor h100; which cluster would run it is not known.\n",
		"- north was not read\n")
}

// TestAFileMayHaveWhatIsAroundItsJobs: a sample, of which the cluster has nothing, or an older quota.
func TestAFileMayHaveWhatIsAroundItsJobs(t *testing.T) {
	text, err := os.ReadFile("../../deploy/samples/gpu-queue.yaml")
	if err != nil {
		t.Fatal(err)
	}
	sample := string(text)
	inTeam := strings.ReplaceAll(sample, "namespace: default", "namespace: team") +
		"---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: code, namespace: team}\n"
	older := team("research", nil, "h100=8")
	older.Namespace = ""
	large := group("h100", 8, func(g *v1alpha1.NodeGroup) { g.Status.Machines = 6 })
	large.Namespace = ""
	for _, tc := range []struct {
		name    string
		objects []client.Object
		mayNot  bool
		file    string
		want    []string
	}{
		{name: "nothing is there", file: sample, want: []string{"Job default/gang would start at 20", ", on flavor h100.",
			"machines to launch: 4 of NodeGroup h100, at 393.28 USD per hour"}},
		{name: "and may be created", file: sample, mayNot: true, want: []string{"Job default/gang would start at 20",
			"machines to launch: 4 of NodeGroup h100", "ClusterQueue research: you may not create clusterqueues.kueue.x-k8s.io"}},
		{name: "a part is there, and is changed", objects: []client.Object{older, large}, file: sample, want: []string{
			"Job default/gang would start at 20", "taken as the file changes them: NodeGroup h100, ClusterQueue research"}},
		{name: "other objects do not matter", file: inTeam, want: []string{"Job team/gang would start at 20", "not looked at: ConfigMap code"}},
		{name: "a class of priorities", objects: []client.Object{flavor("h100"), team("team", nil, "h100=64")},
			file: strings.Replace(train, "kueue.x-k8s.io/queue-name: main",
				"kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/priority-class: high", 1) +
				"---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: WorkloadPriorityClass\nmetadata: {name: high}\nvalue: 100\n",
			want: []string{"Job default/new would start at once, on flavor h100."}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := (&fakeCluster{objects: tc.objects, mayNot: tc.mayNot}).simulate(t, tc.file, view.Changes{})
			if err != nil {
				t.Fatal(err)
			}
			lacks(t, got, tc.want...)
		})
	}
}

func TestJobsThatAreThere(t *testing.T) {
	owned := func(w *kueue.Workload) *kueue.Workload {
		w.OwnerReferences = []metav1.OwnerReference{ownedBy("new")}
		return w
	}
	queue := []client.Object{flavor("h100"), team("team", nil, "h100=16"), job("new", nil)}
	c := &fakeCluster{objects: append(queue, owned(waiting("new", 8, nil)))}
	got, err := c.simulate(t, strings.Replace(train, "parallelism: 4", "parallelism: 2", 1), view.Changes{})
	if err != nil {
		t.Fatal(err)
	}
	lacks(t, got, "Job default/new would start at once, on flavor h100.", "an object of its name exists",
		"it is already pending: this is the outcome in its place")

	c = &fakeCluster{objects: append(queue, owned(running("new", "team", 2, nil)))}
	if _, err := c.simulate(t, train, view.Changes{}); err == nil ||
		!strings.Contains(err.Error(), "Job new exists already and has quota: see `kubectl muster explain job/new -n default`") {
		t.Errorf("of one that runs: %v", err)
	}
}

func TestWhatTheAPIServerSays(t *testing.T) {
	objects := []client.Object{flavor("h100"), team("team", nil, "h100=64")}
	got, err := (&fakeCluster{objects: objects, mayNot: true}).simulate(t, train, view.Changes{})
	if err != nil {
		t.Fatal(err)
	}
	lacks(t, got, "would start at once",
		"you may not create jobs.batch, so it is taken from the file as is, without the cluster's defaults and admission policies")
	if _, err := (&fakeCluster{objects: objects, refuses: true}).simulate(t, train, view.Changes{}); err == nil ||
		!strings.Contains(err.Error(), "standard input, document 1: the API server would refuse it: ") {
		t.Errorf("of a job that a policy refuses: %v", err)
	}
}

func TestWhatCannotBeSimulated(t *testing.T) {
	folder := t.TempDir()
	written := func(name, text string) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	pod := written("pod.yaml", train+"---\napiVersion: apps/v1\nkind: Deployment\n"+
		"metadata: {name: p, labels: {kueue.x-k8s.io/queue-name: main}}\n")
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"nothing is asked", nil, "nothing to simulate: give a file with jobs (-f) or a change (--quota, --add-group or --without-zone)"},
		{"the file is not there", []string{"-f", filepath.Join(folder, "none.yaml")}, "none.yaml: no such file"},
		{"the file is empty", []string{"-f", written("empty.yaml", "# nothing\n")}, "empty.yaml contains no object"},
		{"a field is misspelt", []string{"-f", written("misspelt.yaml", strings.Replace(train, "parallelism", "paralelism", 1))}, `misspelt.yaml, document 1: strict decoding error: unknown field "spec.paralelism"`},
		{"a value is of another type", []string{"-f", written("type.yaml", strings.Replace(train, "parallelism: 4", "parallelism: four", 1))}, "type.yaml, document 1: "},
		{"an object of another kind", []string{"-f", pod}, "pod.yaml, document 2: kind Deployment cannot be simulated: give a job of a kind that Muster queues, such as Job or JobSet, the pods of a Deployment one by one, or a Workload of kueue.x-k8s.io/v1beta2"},
		{"an unknown kind", []string{"-f", written("cron.yaml", "apiVersion: example.com/v1\nkind: Thing\n")}, `cron.yaml, document 1: kind Thing cannot be simulated`},
		{"only what is around jobs", []string{"-f", written("queue.yaml", "apiVersion: kueue.x-k8s.io/v1beta2\nkind: LocalQueue\nmetadata: {name: main}\nspec: {clusterQueue: a}\n")}, "queue.yaml, document 1: there is no job in the file"},
		{"a list of one kind", []string{"-f", written("list.yaml", "apiVersion: batch/v1\nkind: JobList\n")}, "list.yaml, document 1: kind JobList is not supported"},
		{"a Job in no queue", []string{"-f", written("unqueued.yaml", strings.Replace(train, ", labels: {kueue.x-k8s.io/queue-name: main}", "", 1))}, "unqueued.yaml, document 1: Job new lacks the label kueue.x-k8s.io/queue-name"},
		{"a group that is none", []string{"--add-group", pod}, "pod.yaml, document 1: kind Job is not a NodeGroup of muster.dev/v1alpha1"},
		{"a time that is none", []string{"-f", "-", "--at", "tonight"}, `--at="tonight" is neither a time such as`},
		{"a time of nothing", []string{"--at", "6h", "--without-zone", "a"}, `--at="6h" needs a file with jobs`},
		{"the standard input for two", []string{"-f", "-", "--add-group", "-"}, "standard input can be read only once"},
		{"a quota without an amount", []string{"--quota", "team/h100/gpu"}, `--quota="team/h100/gpu": =QUANTITY is missing; write it as CLUSTERQUEUE/FLAVOR/RESOURCE=QUANTITY`},
		{"a quota of no resource", []string{"--quota", "team/h100=8"}, "the name of the ClusterQueue, flavor or resource is missing"},
		{"a quota of no amount", []string{"--quota", "team/h100/gpu=many"}, `"many" is not a quantity`},
		{"a quota below nothing", []string{"--quota", "team/h100/gpu=-1"}, "a quota must not be negative"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			command := newRootCommand(clocktesting.NewFakeClock(noon))
			command.SetArgs(append([]string{"simulate"}, tc.args...))
			command.SetIn(strings.NewReader(train))
			if err := command.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("it says %v\nwant: %s", err, tc.want)
			}
		})
	}
}

func TestJobsThatComeLater(t *testing.T) {
	p := pictureOf(nil, flavor("h100"), team("team", nil, "h100=64"),
		running("big", "team", 6, func(w *kueue.Workload) { w.Spec.MaximumExecutionTimeSeconds = new(int32(2 * 60 * 60)) }))
	submission := waiting("new", 4, func(w *kueue.Workload) { w.UID, w.CreationTimestamp = "", metav1.Time{} })
	for _, c := range []struct {
		hours int
		want  string
	}{
		{1, "would arrive at 2026-11-20T13:00:00Z (in 60m) and is expected to start at 2026-11-20T13:30:00Z (in 90m)"},
		{3, "would arrive at 2026-11-20T15:00:00Z (in 3h) and is expected to start at 2026-11-20T15:00:00Z (in 3h)"},
	} {
		got, err := p.SimulateLater(t.Context(), []view.Submission{{Kind: "Job", Name: "new", Workload: submission}},
			noon.Add(time.Duration(c.hours)*time.Hour))
		if err != nil {
			t.Fatal(err)
		}
		lacks(t, printed(t, &simulated{Jobs: got}), "Job default/new "+c.want, "no other job arrives")
	}
	for _, at := range []time.Time{noon.Add(-time.Hour), noon.Add(8 * 24 * time.Hour)} {
		if _, err := p.SimulateLater(t.Context(), []view.Submission{{Workload: submission}}, at); err == nil ||
			!strings.Contains(err.Error(), "is not within the next 7 days") {
			t.Errorf("at %s: %v", at, err)
		}
	}
	there := view.Submission{Kind: "Job", Name: "big", Workload: named(t, p, "big")}
	if _, err := p.SimulateLater(t.Context(), []view.Submission{there}, noon.Add(time.Hour)); err == nil ||
		!strings.Contains(err.Error(), "Job big is already pending") {
		t.Errorf("of one that is there: %v", err)
	}
}

func TestChangesToWhatIsNotThere(t *testing.T) {
	p := pictureOf(nil, flavor("h100"), team("team", nil, "h100=64"), group("h100", 8, nil), node("a", "h100"))
	for want, changes := range map[string]view.Changes{
		`ClusterQueue "taem" does not exist; those that do: team`:                  {Quotas: []view.QuotaChange{{ClusterQueue: "taem"}}},
		"ClusterQueue team has no nominalQuota of cpu in flavor h100":              {Quotas: []view.QuotaChange{{ClusterQueue: "team", Flavor: "h100", Resource: corev1.ResourceCPU}}},
		`zone "zone-b" has no machine and no NodeGroup; the zones that do: zone-a`: {LostZones: []string{"zone-b"}},
	} {
		if _, err := p.Changed(&changes); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("it says %v\nwant: %s", err, want)
		}
	}
}

func TestSimulationTellsTheRack(t *testing.T) {
	p := pictureOf(nil, append(racked(2, 4), team("team", nil, "h100=512"), running("small", "team", 1, onNodes("r1-n1")),
		waiting("next", 1, inOneRack))...)
	lacks(t, toldOf(t, p.ExplainWorkload(named(t, p, "next"))), "is next", "pod set main: 1 pod in r1")
	train := waiting("train", 3, inOneRack)
	train.UID = ""
	out := p.Simulate([]view.Submission{{Kind: "Workload", Name: "train", Workload: train}}, nil)
	if len(out) != 1 || !out[0].Starts || !slices.Equal(out[0].Where, []string{"pod set main: 3 pods in r2"}) {
		t.Errorf("it is told %+v", out)
	}
}
