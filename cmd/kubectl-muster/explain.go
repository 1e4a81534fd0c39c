package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	provreq "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// explained is a kind that explain accepts, with its names.
type explained struct {
	resource schema.GroupResource
	names    []string
	new      func() client.Object
	list     func() client.ObjectList
}

var explainedKinds = []explained{
	{
		schema.GroupResource{Group: batchv1.GroupName, Resource: "jobs"}, []string{"job", "jobs"},
		func() client.Object { return &batchv1.Job{} }, func() client.ObjectList { return &batchv1.JobList{} },
	},
	{
		schema.GroupResource{Group: kueue.SchemeGroupVersion.Group, Resource: "workloads"},
		[]string{"workload", "workloads", "wl", "kwl", "kueueworkload", "kueueworkloads"},
		func() client.Object { return &kueue.Workload{} }, func() client.ObjectList { return &kueue.WorkloadList{} },
	},
	{
		schema.GroupResource{Group: provreq.SchemeGroupVersion.Group, Resource: "provisioningrequests"},
		[]string{"provisioningrequest", "provisioningrequests", "provreq", "provreqs"},
		func() client.Object { return &provreq.ProvisioningRequest{} }, func() client.ObjectList { return &provreq.ProvisioningRequestList{} },
	},
}

// clusterQueueNames are those of the kind ClusterQueue, which is explained by what all decisions read.
var clusterQueueNames = []string{"clusterqueue", "clusterqueues", "cq", "clusterqueues.kueue.x-k8s.io"}

// nodeNames are those of the kind Node, likewise.
var nodeNames = []string{"node", "nodes", "no"}

// nameIn returns the name of the object that the arguments name, if its kind has one of these names.
func nameIn(kinds, args []string) (name string, ok bool) {
	kind, name, slash := strings.Cut(args[0], "/")
	if !slash && len(args) == 2 {
		name = args[1]
	}
	return name, name != "" && slash == (len(args) == 1) && slices.Contains(kinds, strings.ToLower(kind))
}

func (o *options) explainNode(ctx context.Context, kube client.Reader, namespace, name string) (answer, error) {
	p, err := o.look(ctx, kube, namespace, slices.Concat(view.QueueKinds, view.GroupKinds))
	if err != nil {
		return nil, err
	}
	if !p.Decides() {
		return nil, o.lacks("what is on the nodes", p.Missing)
	}
	if p.Snapshot.Nodes.Find(name) == nil {
		return nil, fmt.Errorf("node %q does not exist; `kubectl muster nodes -o wide` lists those that do", name)
	}
	return explanation{p.ExplainNode(name)}, nil
}

func (o *options) explainClusterQueue(ctx context.Context, kube client.Reader, namespace, name string) (answer, error) {
	p, err := o.look(ctx, kube, namespace, view.QueueKinds)
	if err != nil {
		return nil, err
	}
	if !p.KnowsQueues() {
		return nil, o.lacks("the queues", p.Missing)
	}
	if !slices.Contains(p.QueueNames(), name) {
		return nil, noQueue(p, name)
	}
	return explanation{p.ExplainClusterQueue(name)}, nil
}

// kindNamed finds the kind of a name such as job, jobs or jobs.batch, or of any other kind that
// the cluster serves: jobs of all kinds have a Workload.
func kindNamed(mapper apimeta.RESTMapper, name string) (explained, error) {
	short, group, qualified := strings.Cut(strings.ToLower(name), ".")
	for _, k := range explainedKinds {
		if slices.Contains(k.names, short) && (!qualified || group == k.resource.Group) {
			return k, nil
		}
	}
	gvk, err := mapper.KindFor(schema.GroupVersionResource{Group: group, Resource: short})
	if err != nil {
		for _, k := range kinds.BuiltIn() {
			if strings.EqualFold(k.Kind, short) || k.Resource == short {
				return explained{}, view.NotServed(schema.GroupResource{Group: k.Group, Resource: k.Resource})
			}
		}
		return explained{}, fmt.Errorf("kind %q cannot be explained: use job, workload, provisioningrequest, or a kind of jobs that the cluster "+
			"serves", name)
	}
	if m, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err == nil && m.Scope.Name() == apimeta.RESTScopeNameRoot {
		return explained{}, fmt.Errorf("a %s is no job: see `kubectl muster nodes` and `kubectl muster racks` for machines, and `kubectl muster "+
			"capacity` for NodeGroups", gvk.Kind)
	}
	if gvk.Group == kueue.SchemeGroupVersion.Group {
		return explained{}, fmt.Errorf("a %s is no job: see `kubectl muster queue`, and `kubectl muster explain clusterqueue/NAME` for the "+
			"ClusterQueue that its jobs wait in", gvk.Kind)
	}
	return explained{
		resource: schema.GroupResource{Group: gvk.Group, Resource: short}, names: []string{strings.ToLower(gvk.Kind)},
		new: func() client.Object {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(gvk)
			return o
		},
		list: func() client.ObjectList {
			l := &unstructured.UnstructuredList{}
			l.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
			return l
		},
	}, nil
}

func newExplainCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "explain KIND/NAME | KIND NAME | NAME",
		Short: "Explain why a job, workload or provisioningrequest waits, and what would change that",
		Long: `Explain why a job, workload or provisioningrequest waits: its place in the queue, what
is missing on each flavor and how much, which workloads have it, what machines each
group could provide with which chance, and what would change the outcome.

KIND is job, workload (wl), provisioningrequest (provreq), clusterqueue (cq), node, or any other kind
of jobs, such as jobset or rayjob. With only a NAME, the first three are searched. Of a ClusterQueue it
shows what waits there and why, and the quota in use; of a node, its state and why it is closed or
broken, its devices and which of them have a taint, and its jobs.

Of a job that runs in another cluster (MultiKueue), it prints the commands for its pods and logs
there.`,
		Example: `  kubectl muster explain job/train
  kubectl muster explain jobset/train
  kubectl muster explain provreq train -n research -o wide
  kubectl muster explain node/gpu-3
  kubectl muster explain job/train -o json | jq .unblock`,
		Args: func(command *cobra.Command, args []string) error {
			if len(args) == 0 || len(args) > 2 {
				return fmt.Errorf("`%s` takes one object, as KIND/NAME, and got %d arguments. Use for example `%[1]s job/train`",
					command.CommandPath(), len(args))
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			return o.answer(command, func(ctx context.Context) (answer, error) { return o.explain(ctx, args) })
		},
		ValidArgsFunction: o.completeExplain,
	}
	o.addOutput(command)
	o.addForecast(command)
	o.addContexts(command)
	return command
}

func (o *options) explain(ctx context.Context, args []string) (answer, error) {
	kube, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	if name, ok := nameIn(clusterQueueNames, args); ok {
		return o.explainClusterQueue(ctx, kube, namespace, name)
	}
	if name, ok := nameIn(nodeNames, args); ok {
		return o.explainNode(ctx, kube, namespace, name)
	}
	object, err := find(ctx, kube, namespace, args)
	if err != nil {
		return nil, err
	}
	p, err := o.look(ctx, kube, namespace, slices.Concat(view.QueueKinds, view.GroupKinds))
	if err != nil {
		return nil, err
	}
	p.Contexts = o.contexts
	var e *view.Explanation
	var of *kueue.Workload
	subjects := []client.Object{object}
	switch x := object.(type) {
	case *kueue.Workload:
		e, of = p.ExplainWorkload(x), x
	case *provreq.ProvisioningRequest:
		e = p.ExplainRequest(x)
	default:
		e = p.ExplainJob(object)
		if of = p.WorkloadFor(object); of != nil {
			subjects = append(subjects, of)
		}
	}
	if !p.Decides() {
		var events []corev1.Event
		for _, subject := range subjects {
			list := &corev1.EventList{}
			// A caller that may not read Events still has the conditions.
			if err := kube.List(ctx, list, client.InNamespace(namespace),
				client.MatchingFields{"involvedObject.uid": string(subject.GetUID())}); err == nil {
				events = append(events, list.Items...)
			}
		}
		e.Record(p.Now, events)
	}
	if p.Decides() && e.Place != nil && e.Place.Position > 0 && !e.Never {
		return pending{explanation{e}, p, of.UID}, nil
	}
	return explanation{e}, nil
}

// find reads the object that the arguments name.
func find(ctx context.Context, kube client.Client, namespace string, args []string) (client.Object, error) {
	kinds, name := explainedKinds, args[0]
	kindName, rest, slash := strings.Cut(args[0], "/")
	switch {
	case slash && len(args) == 2:
		return nil, fmt.Errorf("%q and %q both name a kind: use %s alone", args[0], args[1], args[0])
	case slash || len(args) == 2:
		k, err := kindNamed(kube.RESTMapper(), kindName)
		if err != nil {
			return nil, err
		}
		kinds = []explained{k}
		if name = rest; !slash {
			name = args[1]
		}
	}
	if name == "" {
		return nil, fmt.Errorf("%q lacks the name of the %s: use %s/NAME", args[0], kinds[0].names[0], kinds[0].names[0])
	}
	var found []client.Object
	var labels []string
	var forbidden []string
	var absent []schema.GroupResource
	for _, k := range kinds {
		object := k.new()
		switch err := kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, object); {
		case err == nil:
			found, labels = append(found, object), append(labels, k.names[0]+"/"+name)
		case apimeta.IsNoMatchError(err):
			absent = append(absent, k.resource)
		case apierrors.IsForbidden(err):
			forbidden = append(forbidden, k.resource.String())
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("reading %s %s in namespace %s: %w", k.names[0], name, namespace, err)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return nil, fmt.Errorf("namespace %s has %d objects named %s: choose one with %s", namespace, len(found), name,
			strings.Join(labels, " or "))
	case len(absent) == len(kinds):
		return nil, view.NotInstalled(absent...)
	case len(forbidden) > 0:
		return nil, fmt.Errorf("you may not get %s in namespace %s. %s", strings.Join(forbidden, ","), namespace, missingRights)
	}
	return nil, errors.New(notFound(ctx, kube, namespace, name, kinds))
}

// notFound is the error for a missing object, naming other namespaces that have one.
func notFound(ctx context.Context, kube client.Client, namespace, name string, kinds []explained) string {
	what := kinds[0].names[0]
	if len(kinds) > 1 {
		what = "job, workload or provisioningrequest"
	}
	out := fmt.Sprintf("namespace %s has no %s named %s", namespace, what, name)
	var elsewhere []string
	for _, k := range kinds {
		list := k.list()
		// A caller that may not list all namespaces is informed about this one only.
		if kube.List(ctx, list, client.MatchingFields{"metadata.name": name}) != nil {
			continue
		}
		objects, err := apimeta.ExtractList(list)
		if err != nil {
			continue
		}
		for _, o := range objects {
			elsewhere = append(elsewhere, o.(client.Object).GetNamespace())
		}
	}
	slices.Sort(elsewhere)
	switch elsewhere = slices.Compact(elsewhere); len(elsewhere) {
	case 0:
		return out + ": try `kubectl get jobs,workloads,provisioningrequests --all-namespaces`"
	case 1:
		return fmt.Sprintf("%s, but namespace %s has one: add -n %s", out, elsewhere[0], elsewhere[0])
	}
	return fmt.Sprintf("%s, but namespaces %s have one each: choose one with -n", out, strings.Join(elsewhere, ", "))
}

// completeExplain offers the objects of the namespace.
func (o *options) completeExplain(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	kube, namespace, err := o.connect()
	if err != nil || len(args) > 1 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, k := range explainedKinds {
		if len(args) == 1 && !slices.Contains(k.names, args[0]) {
			continue
		}
		prefix := ""
		if len(args) == 0 {
			prefix = k.names[0] + "/"
		}
		out = append(out, namesIn(command.Context(), kube, k.list(), prefix, client.InNamespace(namespace))...)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
