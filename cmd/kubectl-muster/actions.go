package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/jobs"
	"github.com/muster-dev/muster/queueing/workload"
)

const (
	// fieldManager of what actions change.
	fieldManager = "kubectl-muster"
	// batchAdmin is the ClusterRole that may change Workloads.
	batchAdmin = "muster-batch-admin"
)

// subject is the job that an action is about.
type subject struct {
	kube client.Client
	// object is what the arguments name.
	object client.Object
	// workload of the job; nil without. line is what `kubectl muster jobs` lists of it.
	workload *kueue.Workload
	line     view.JobLine
}

// change is a patch of an object, or its deletion if it has no patch.
type change struct {
	object client.Object
	patch  client.Patch
}

// merge is the JSON merge patch that sets these fields.
func merge(fields map[string]any) client.Patch {
	data, err := json.Marshal(fields)
	if err != nil {
		panic(fmt.Sprintf("a patch cannot be marshalled: %v", err)) // plain values: cannot happen
	}
	return client.RawPatch(types.MergePatchType, data)
}

// action is what a command does: changes of objects, and what follows from them, in a sentence.
type action struct {
	changes []change
	follows string
}

// newActionCommands are the commands that change a job. Each prints what would follow, and changes nothing without --yes.
func newActionCommands(o *options) []*cobra.Command {
	return []*cobra.Command{
		o.newActionCommand(&cobra.Command{
			Use: "hold KIND/NAME", Short: "Keep a job out of the queue, or stop it if it runs, until it is released",
			Long: `Keep a job out of the queue until it is released. If it has quota its pods are stopped first, and
its quota and machines are free for others. It sets spec.active of its Workload to false.`,
			Example: "  kubectl muster hold job/train\n  kubectl muster hold job/train --yes",
		}, func(_ context.Context, s *subject, _ []string) (action, error) { return s.setActive(false) }),
		o.newActionCommand(&cobra.Command{
			Use: "release KIND/NAME", Short: "Queue a job again that is held",
			Long:    `Queue a job again that is held. It sets spec.active of its Workload to true.`,
			Example: "  kubectl muster release job/train --yes",
		}, func(_ context.Context, s *subject, _ []string) (action, error) { return s.setActive(true) }),
		o.newRequeueCommand(),
		o.newActionCommand(&cobra.Command{
			Use: "cancel KIND/NAME", Short: "Delete a job with its pods",
			Long: `Delete a job of any kind with its pods, all pods of a group, or a ProvisioningRequest. What it
holds is free once its pods have ended.`,
			Example: "  kubectl muster cancel jobset/train --yes",
		}, func(ctx context.Context, s *subject, _ []string) (action, error) { return s.cancel(ctx) }),
		o.newActionCommand(&cobra.Command{
			Use: "move KIND/NAME LOCALQUEUE", Short: "Move a job that waits to another queue of its namespace",
			Long: `Move a job that waits to another LocalQueue of its namespace. It sets the label ` + jobs.QueueLabel + `.
A job that runs keeps its queue: hold it, move it, and release it.`,
			Example: "  kubectl muster move job/train night --yes",
		}, func(ctx context.Context, s *subject, args []string) (action, error) {
			return s.label(ctx, jobs.QueueLabel, args[1], &kueue.LocalQueue{}, "LocalQueue", "waits in LocalQueue "+args[1])
		}),
		o.newActionCommand(&cobra.Command{
			Use: "prioritize KIND/NAME WORKLOADPRIORITYCLASS", Short: "Give a job another priority",
			Long: `Give a job the priority of a WorkloadPriorityClass, also while it runs. It sets the label
` + jobs.PriorityClassLabel + `.`,
			Example: "  kubectl muster prioritize job/train urgent --yes",
		}, func(ctx context.Context, s *subject, args []string) (action, error) {
			return s.label(ctx, jobs.PriorityClassLabel, args[1], &kueue.WorkloadPriorityClass{}, "WorkloadPriorityClass",
				"has the priority of WorkloadPriorityClass "+args[1])
		}),
	}
}

// newActionCommand makes a command whose first argument names the job.
func (o *options) newActionCommand(command *cobra.Command, plan func(context.Context, *subject, []string) (action, error)) *cobra.Command {
	yes := addYes(command)
	command.Args = arguments.These(strings.Fields(command.Use)[1:]...)
	command.ValidArgsFunction = o.completeSubject
	command.RunE = func(command *cobra.Command, args []string) error {
		s, err := o.subject(command.Context(), args[0])
		if err != nil {
			return err
		}
		a, err := plan(command.Context(), s, args)
		if err != nil {
			return err
		}
		return carryOut(command.Context(), command.OutOrStdout(), s.kube, a, *yes)
	}
	return command
}

// addYes adds the flag without which nothing is changed.
func addYes(command *cobra.Command) *bool {
	return command.Flags().Bool("yes", false, "do it; without this flag the API server is only asked whether it would, and nothing is changed")
}

// completeSubject offers the jobs of the namespace.
func (o *options) completeSubject(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.completeExplain(command, nil, "")
}

// subject reads the job of a name such as job/train, and its Workload.
func (o *options) subject(ctx context.Context, name string) (*subject, error) {
	kube, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	object, err := find(ctx, kube, namespace, []string{name})
	if err != nil {
		return nil, err
	}
	s := &subject{kube: kube, object: object}
	return s, s.read(ctx, o)
}

// read reads the Workload of the subject.
func (s *subject) read(ctx context.Context, o *options) error {
	list := &kueue.WorkloadList{}
	if err := s.kube.List(ctx, list, client.InNamespace(s.object.GetNamespace())); err != nil {
		return fmt.Errorf("listing the workloads of namespace %s: %w", s.object.GetNamespace(), err)
	}
	reading := &view.Reading{}
	for i := range list.Items {
		reading.Objects = append(reading.Objects, &list.Items[i])
	}
	p := view.New(o.clock, view.DefaultSettings(), reading)
	if s.workload = p.WorkloadFor(s.object); isWorkload(s.object) {
		s.workload = p.WorkloadNamed(s.object.GetNamespace(), s.object.GetName())
	}
	if s.workload != nil {
		s.line = p.Job(s.workload)
	}
	return nil
}

func isWorkload(o client.Object) bool {
	_, ok := o.(*kueue.Workload)
	return ok
}

// String names the subject as the user would.
func (s *subject) String() string {
	if s.workload != nil {
		return s.line.Name
	}
	gvk, err := s.kube.GroupVersionKindFor(s.object)
	if err != nil {
		return s.object.GetName()
	}
	return strings.ToLower(gvk.Kind) + "/" + s.object.GetName()
}

// holds says what the subject has now, which an action may free.
func (s *subject) holds() string {
	out := text.Pods(int(s.line.Pods))
	if s.line.DevicesText != "" {
		out += " with " + s.line.DevicesText
	}
	return out
}

// hasQuota reports whether the subject holds quota that an action frees.
func (s *subject) hasQuota() bool {
	return s.line.State == view.Running || s.line.State == view.Starting
}

// queued refuses a subject that is in no queue, or in none any more.
func (s *subject) queued() error {
	switch {
	case s.workload == nil:
		return fmt.Errorf("%s has no Workload, so it is in no queue: `kubectl muster explain %[1]s` says why", s)
	case s.line.State == view.Finished, s.line.State == view.Failed:
		return fmt.Errorf("%s has ended: it is %s", s, s.line.State)
	}
	return nil
}

// setActive holds or releases the subject.
func (s *subject) setActive(active bool) (action, error) {
	if err := s.queued(); err != nil {
		return action{}, err
	}
	out := action{changes: []change{{s.workload, merge(map[string]any{"spec": map[string]any{"active": active}})}}}
	switch {
	case workload.IsActive(s.workload) == active && active:
		return action{}, fmt.Errorf("%s is not held: it is %s", s, s.line.State)
	case workload.IsActive(s.workload) == active:
		return action{}, fmt.Errorf("%s is held already: `kubectl muster release %[1]s` queues it again", s)
	case active:
		out.follows = fmt.Sprintf("%s is in LocalQueue %s again, and waits for its quota", s, s.line.LocalQueue)
	case s.hasQuota():
		out.follows = fmt.Sprintf("%s is stopped (%s), and stays out of LocalQueue %s until it is released", s, s.holds(), s.line.LocalQueue)
	default:
		out.follows = fmt.Sprintf("%s stays out of LocalQueue %s until it is released", s, s.line.LocalQueue)
	}
	return out, nil
}

// cancel deletes the subject: what owns its Workload, or else the object itself.
func (s *subject) cancel(ctx context.Context) (action, error) {
	owners, err := s.owners(ctx)
	if err != nil {
		return action{}, err
	}
	out := action{}
	for _, o := range owners {
		out.changes = append(out.changes, change{object: o})
	}
	out.follows = fmt.Sprintf("%s is deleted", s)
	if s.hasQuota() {
		out.follows += fmt.Sprintf(", and %s are stopped", s.holds())
	}
	return out, nil
}

// label sets a label of the subject that names another object.
func (s *subject) label(ctx context.Context, key, name string, named client.Object, kind, follows string) (action, error) {
	if err := s.queued(); err != nil {
		return action{}, err
	}
	lookup := client.ObjectKey{Name: name}
	if kind == "LocalQueue" {
		lookup.Namespace = s.object.GetNamespace()
	}
	// A caller that may not read it has the answer of Muster.
	if err := s.kube.Get(ctx, lookup, named); apierrors.IsNotFound(err) {
		return action{}, fmt.Errorf("%s %q does not exist", kind, name)
	}
	owners, err := s.owners(ctx)
	if err != nil {
		return action{}, err
	}
	out := action{follows: fmt.Sprintf("%s %s", s, follows)}
	for _, o := range owners {
		if o.GetLabels()[key] == name {
			return action{}, fmt.Errorf("%s has the label %s=%s already", s, key, name)
		}
		out.changes = append(out.changes, change{o, merge(map[string]any{"metadata": map[string]any{"labels": map[string]any{key: name}}})})
	}
	return out, nil
}

// owners are the objects that own the Workload of the subject: its job, or all pods of a group. A subject without a Workload is itself.
func (s *subject) owners(ctx context.Context) ([]client.Object, error) {
	if s.workload == nil || len(s.workload.OwnerReferences) == 0 {
		return []client.Object{s.object}, nil
	}
	var out []client.Object
	for _, ref := range s.workload.OwnerReferences {
		o := &unstructured.Unstructured{}
		o.SetAPIVersion(ref.APIVersion)
		o.SetKind(ref.Kind)
		key := client.ObjectKey{Namespace: s.workload.Namespace, Name: ref.Name}
		switch err := s.kube.Get(ctx, key, o); {
		case apierrors.IsNotFound(err):
		case err != nil:
			return nil, fmt.Errorf("reading %s %s: %w", ref.Kind, key, err)
		default:
			out = append(out, o)
		}
	}
	return out, nil
}

// carryOut checks the changes in a dry run on the API server, and makes them if yes is set.
func carryOut(ctx context.Context, out io.Writer, kube client.Client, a action, yes bool) error {
	for _, c := range a.changes {
		if err := c.apply(ctx, kube, true); err != nil {
			return fmt.Errorf("nothing is changed: %w", err)
		}
	}
	if !yes {
		fmt.Fprintf(out, "With --yes %s.\nNothing is changed yet.\n", a.follows)
		return nil
	}
	var done []string
	for _, c := range a.changes {
		if err := c.apply(ctx, kube, false); err != nil {
			what := "nothing is changed"
			if len(done) > 0 {
				what = fmt.Sprintf("only %s of %d objects were changed", strings.Join(done, ", "), len(a.changes))
			}
			return fmt.Errorf("%s: %w", what, err)
		}
		done = append(done, c.object.GetName())
	}
	fmt.Fprintf(out, "Done: %s.\n", a.follows)
	return nil
}

// apply makes the change, or has the API server check it only.
func (c change) apply(ctx context.Context, kube client.Client, dryRun bool) error {
	var err error
	if c.patch == nil {
		options := []client.DeleteOption{client.PropagationPolicy(metav1.DeletePropagationBackground),
			client.Preconditions{UID: new(c.object.GetUID())}}
		if dryRun {
			options = append(options, client.DryRunAll)
		}
		err = client.IgnoreNotFound(kube.Delete(ctx, c.object, options...))
	} else {
		options := []client.PatchOption{client.FieldOwner(fieldManager)}
		if dryRun {
			options = append(options, client.DryRunAll)
		}
		err = kube.Patch(ctx, c.object.DeepCopyObject().(client.Object), c.patch, options...)
	}
	switch namespace := c.object.GetNamespace(); {
	case !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "cannot "):
		return err
	case namespace == "":
		return fmt.Errorf("%w. An administrator can give you that right: kubectl create clusterrolebinding batch-admin-YOU "+
			"--clusterrole=%s --user=YOU", err, batchAdmin)
	default:
		return fmt.Errorf("%w. An administrator can give you that right in the namespace: kubectl create rolebinding batch-admin-YOU "+
			"--clusterrole=%s --user=YOU -n %s", err, batchAdmin, namespace)
	}
}

// subjectPoll is the period in which a job that is waited for is read.
const subjectPoll = time.Second

func (o *options) newRequeueCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "requeue KIND/NAME", Short: "Stop a job and queue it again",
		Long: `Stop a job that has quota, and queue it again once its pods have ended. It is held meanwhile, and
released by this command; if the command is interrupted, use ` + "`kubectl muster release`" + `.`,
		Example: "  kubectl muster requeue job/train --yes",
		Args:    arguments.These("KIND/NAME"), ValidArgsFunction: o.completeSubject,
	}
	yes := addYes(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		ctx, out := command.Context(), command.OutOrStdout()
		s, err := o.subject(ctx, args[0])
		if err != nil {
			return err
		}
		if err := s.queued(); err != nil {
			return err
		}
		if !s.hasQuota() {
			return fmt.Errorf("%s has no quota to give back: it is %s", s, s.line.State)
		}
		a, err := s.setActive(false)
		if err != nil {
			return err
		}
		a.follows = fmt.Sprintf("%s is stopped (%s)", s, s.holds())
		if !*yes {
			a.follows += fmt.Sprintf(", and waits in LocalQueue %s again once its pods have ended", s.line.LocalQueue)
		}
		if err := carryOut(ctx, out, s.kube, a, *yes); err != nil || !*yes {
			return err
		}
		released := func() (bool, error) { return s.workload == nil || !workload.HasQuota(s.workload), nil }
		if err := o.until(ctx, s, released); err != nil {
			return fmt.Errorf("%s is held until `kubectl muster release %[1]s`: %w", s, err)
		}
		if a, err = s.setActive(true); err != nil {
			return err
		}
		return carryOut(ctx, out, s.kube, a, true)
	}
	return command
}

// until reads the subject and its Workload again until done returns true or an error.
func (o *options) until(ctx context.Context, s *subject, done func() (bool, error)) error {
	ticker := o.clock.NewTicker(subjectPoll)
	defer ticker.Stop()
	for {
		if err := s.read(ctx, o); err != nil {
			return err
		}
		if over, err := done(); over || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C():
		}
	}
}
