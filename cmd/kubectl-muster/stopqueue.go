package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/queueing/workload"
)

// localQueueNames are those of the kind LocalQueue.
var localQueueNames = []string{"localqueue", "localqueues", "lq", "queue", "localqueues.kueue.x-k8s.io"}

func newStopCommand(o *options) *cobra.Command {
	drain := false
	command := o.newQueueActionCommand(&cobra.Command{
		Use: "stop clusterqueue/NAME | localqueue/NAME", Short: "Admit no more jobs of a queue; with --drain stop those that run, too",
		Long: `Admit no more jobs of a ClusterQueue or LocalQueue until it is resumed. Jobs that run go on, and
with --drain are stopped and wait. It sets spec.stopPolicy of the queue.`,
		Example: "  kubectl muster stop clusterqueue/research\n  kubectl muster stop localqueue/night -n team-a --drain --yes",
	}, func() kueue.StopPolicy {
		if drain {
			return kueue.HoldAndDrain
		}
		return kueue.Hold
	})
	command.Flags().BoolVar(&drain, "drain", false, "also stop the jobs that have quota of the queue")
	return command
}

func newResumeCommand(o *options) *cobra.Command {
	return o.newQueueActionCommand(&cobra.Command{
		Use: "resume clusterqueue/NAME | localqueue/NAME", Short: "Admit jobs of a stopped queue again",
		Long:    `Admit jobs of a stopped ClusterQueue or LocalQueue again. It sets spec.stopPolicy of the queue to None.`,
		Example: "  kubectl muster resume clusterqueue/research --yes",
	}, func() kueue.StopPolicy { return kueue.None })
}

// newQueueActionCommand makes a command that sets the stop policy of a queue.
func (o *options) newQueueActionCommand(command *cobra.Command, policy func() kueue.StopPolicy) *cobra.Command {
	yes := addYes(command)
	command.Args = arguments.These("clusterqueue/NAME or localqueue/NAME")
	command.ValidArgsFunction = o.completeQueues
	command.RunE = func(command *cobra.Command, args []string) error {
		kube, namespace, err := o.connect()
		if err != nil {
			return err
		}
		a, err := setStopPolicy(command.Context(), kube, namespace, args[0], policy())
		if err != nil {
			return err
		}
		return carryOut(command.Context(), command.OutOrStdout(), kube, a, *yes)
	}
	return command
}

// setStopPolicy is the action for a queue that is named as kind/name.
func setStopPolicy(ctx context.Context, kube client.Client, namespace, argument string, policy kueue.StopPolicy) (action, error) {
	kind, name, _ := strings.Cut(argument, "/")
	var queue client.Object
	key := client.ObjectKey{Name: name}
	current := func() *kueue.StopPolicy { return queue.(*kueue.ClusterQueue).Spec.StopPolicy }
	of := func(w *kueue.Workload) bool {
		return w.Status.Admission != nil && string(w.Status.Admission.ClusterQueue) == name
	}
	switch kind = strings.ToLower(kind); {
	case name != "" && slices.Contains(clusterQueueNames, kind):
		queue, kind = &kueue.ClusterQueue{}, "ClusterQueue"
	case name != "" && slices.Contains(localQueueNames, kind):
		queue, kind, key.Namespace = &kueue.LocalQueue{}, "LocalQueue", namespace
		current = func() *kueue.StopPolicy { return queue.(*kueue.LocalQueue).Spec.StopPolicy }
		of = func(w *kueue.Workload) bool { return w.Namespace == namespace && string(w.Spec.QueueName) == name }
	default:
		return action{}, fmt.Errorf("%q names no queue: use clusterqueue/NAME or localqueue/NAME", argument)
	}
	switch err := kube.Get(ctx, key, queue); {
	case apierrors.IsNotFound(err) && key.Namespace != "":
		return action{}, fmt.Errorf("namespace %s has no LocalQueue %q", namespace, name)
	case apierrors.IsNotFound(err):
		return action{}, fmt.Errorf("ClusterQueue %q does not exist", name)
	case err != nil:
		return action{}, fmt.Errorf("reading %s %s: %w", kind, name, err)
	}
	if p := current(); p != nil && *p == policy || p == nil && policy == kueue.None {
		return action{}, fmt.Errorf("%s %s has spec.stopPolicy %s already", kind, name, policy)
	}
	out := action{changes: []change{{queue, merge(map[string]any{"spec": map[string]any{"stopPolicy": policy}})}}}
	if policy == kueue.None {
		out.follows = fmt.Sprintf("%s %s admits jobs again", kind, name)
		return out, nil
	}
	out.follows = fmt.Sprintf("%s %s admits no more jobs", kind, name)
	list := &kueue.WorkloadList{}
	if err := kube.List(ctx, list, client.InNamespace(key.Namespace)); err != nil {
		return out, nil // without the right to list Workloads, the number is left out
	}
	running := 0
	for i := range list.Items {
		if w := &list.Items[i]; of(w) && workload.HasQuota(w) && !workload.IsFinished(w) {
			running++
		}
	}
	if policy == kueue.HoldAndDrain {
		out.follows += fmt.Sprintf(", and %s stopped", counted(running, "job of it that has quota is", "jobs of it that have quota are"))
	} else {
		out.follows += fmt.Sprintf("; %s on", counted(running, "job of it that has quota goes", "jobs of it that have quota go"))
	}
	return out, nil
}

// counted is a number with the word for one or several.
func counted(n int, one, several string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, several)
}

// completeQueues offers the queues that the caller may list.
func (o *options) completeQueues(command *cobra.Command, args []string, _ string) (out []string, _ cobra.ShellCompDirective) {
	kube, namespace, err := o.connect()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	out = namesIn(command.Context(), kube, &kueue.ClusterQueueList{}, "clusterqueue/")
	out = append(out, namesIn(command.Context(), kube, &kueue.LocalQueueList{}, "localqueue/", client.InNamespace(namespace))...)
	return out, cobra.ShellCompDirectiveNoFileComp
}
