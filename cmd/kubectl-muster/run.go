package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/cmd/kubectl-muster/submit"
	"github.com/muster-dev/muster/cmd/view"
)

func newRunCommand(o *options) *cobra.Command {
	job := &submit.Options{}
	file, dryRun, wait, follow := "", false, false, false
	command := &cobra.Command{
		Use:   "run NAME --image IMAGE [--gpus N] [flags] -- COMMAND [ARG...] | run [NAME] --script FILE [flags]",
		Short: "Submit a job from a command line or a script, as sbatch does",
		Long: `Submit a job from a command line or a script: a Job, JobSet or PyTorchJob, in a queue. --dry-run
prints its YAML instead, which is all that it is.

A script starts with the line of its interpreter, and may have the flags of this command in lines
that begin with #MUSTER, before its first command. Flags of the command line override them.

Pods are as many as the GPUs need, of 8 GPUs each. They start together. The environment of the pods
of a Job or JobSet of several has MASTER_ADDR, MASTER_PORT, NNODES and NODE_RANK; that of a
PyTorchJob has what its operator sets.`,
		Example: `  kubectl muster run train --image=example.com/train:1 --gpus=16 --queue=research -- \
    torchrun --nnodes=2 --nproc-per-node=8 train.py
  kubectl muster run train --image=example.com/train:1 --gpus=16 --dry-run -- python train.py > train.yaml
  kubectl muster run --script=train.sh --wait

  # train.sh
  #!/bin/bash
  #MUSTER --name=train --image=example.com/train:1 --gpus=16 --time=12h
  torchrun --nnodes=$NNODES --node-rank=$NODE_RANK --master-addr=$MASTER_ADDR --nproc-per-node=8 train.py`,
	}
	job.AddFlags(command.Flags())
	command.Flags().StringVarP(&file, "script", "f", "", "script that the pods run; - is standard input")
	command.Flags().BoolVar(&dryRun, "dry-run", false, "print the YAML, and create nothing")
	command.Flags().BoolVar(&wait, "wait", false, "wait until the job has ended, and fail if it has failed")
	command.Flags().BoolVar(&follow, "logs", false, "as --wait, and follow the logs of the pods once they run; lines of several pods begin "+
		"with the name of their pod")
	command.Args = func(command *cobra.Command, args []string) error {
		before := len(args)
		if dash := command.ArgsLenAtDash(); dash >= 0 {
			before, job.Command = dash, args[dash:]
		}
		switch {
		case before > 1:
			return fmt.Errorf("name one job, and not %d: the command of the pods follows --", before)
		case before == 1:
			job.Name = args[0]
		}
		switch {
		case file != "" && job.Command != nil:
			return errors.New("give a command after --, or --script, and not both")
		case file == "" && job.Name == "":
			return errors.New("the name of the job is missing: kubectl muster run NAME")
		}
		return nil
	}
	command.RunE = func(command *cobra.Command, _ []string) error {
		kube, namespace, err := o.connect()
		if err != nil {
			return err
		}
		job.Namespace = namespace
		if file != "" {
			text, err := readScript(file, command.InOrStdin())
			if err != nil {
				return err
			}
			if err := (submit.Script{Name: file, Text: text}).Apply(job, command.Flags()); err != nil {
				return err
			}
		}
		if job.Queue == "" || !dryRun {
			if job.Queue, err = queueFor(command.Context(), kube, namespace, job.Queue); err != nil {
				return err
			}
		}
		objects, err := submit.Objects(*job)
		if err != nil {
			return err
		}
		if dryRun {
			return printYAML(command.OutOrStdout(), objects)
		}
		name, err := create(command, kube, objects)
		if err != nil || !wait && !follow {
			return err
		}
		s := &subject{kube: kube, object: objects[len(objects)-1]}
		out := &lines{out: command.OutOrStdout()}
		if !follow {
			return o.untilEnded(command.Context(), out, s, name, nil)
		}
		l, err := o.newLogs(out)
		if err != nil {
			return err
		}
		return o.untilEnded(command.Context(), out, s, name, l)
	}
	for flag, values := range map[string]cobra.CompletionFunc{
		"kind":  cobra.FixedCompletions(submit.Kinds, cobra.ShellCompDirectiveNoFileComp),
		"queue": o.completeLocalQueues,
	} {
		if err := command.RegisterFlagCompletionFunc(flag, values); err != nil {
			panic(err) // the flag is defined above
		}
	}
	return command
}

func readScript(file string, in io.Reader) (string, error) {
	if file != stdin {
		text, err := os.ReadFile(file)
		return string(text), err
	}
	text, err := io.ReadAll(in)
	return string(text), err
}

// queueFor returns the LocalQueue that is named, or else the only one of the namespace. A job in a queue that does not exist would
// wait without an end.
func queueFor(ctx context.Context, kube client.Client, namespace, name string) (string, error) {
	list := &kueue.LocalQueueList{}
	err := kube.List(ctx, list, client.InNamespace(namespace))
	switch {
	case err != nil && name == "":
		return "", fmt.Errorf("--queue is missing, and the LocalQueues of namespace %s cannot be read: %w", namespace, err)
	case apierrors.IsForbidden(err):
		return name, nil // to submit takes no right to read queues
	case err != nil:
		return "", fmt.Errorf("reading the LocalQueues of namespace %s: %w", namespace, err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	switch {
	case slices.Contains(names, name):
		return name, nil
	case len(names) == 0:
		return "", fmt.Errorf("namespace %s has no LocalQueue, without which no job of it can queue", namespace)
	case name != "":
		return "", fmt.Errorf("namespace %s has no LocalQueue %s: --queue is one of %s", namespace, name, strings.Join(names, ", "))
	case len(names) == 1:
		return names[0], nil
	}
	return "", fmt.Errorf("--queue is missing: use one of %s", strings.Join(names, ", "))
}

func printYAML(out io.Writer, objects []*unstructured.Unstructured) error {
	for i, object := range objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return err
		}
		if i > 0 {
			fmt.Fprintln(out, "---")
		}
		fmt.Fprint(out, string(text))
	}
	return nil
}

// create creates the objects, the job last: all or none. It returns the name of the job, such as job/train.
func create(command *cobra.Command, kube client.Client, objects []*unstructured.Unstructured) (name string, err error) {
	ctx, out := command.Context(), command.OutOrStdout()
	job := objects[len(objects)-1]
	for _, object := range objects {
		err := kube.Create(ctx, object.DeepCopy(), client.DryRunAll, client.FieldOwner(fieldManager))
		switch gvk := object.GroupVersionKind(); {
		case apierrors.IsAlreadyExists(err):
			return "", fmt.Errorf("namespace %s has a %s %s already: choose another name", object.GetNamespace(), gvk.Kind, object.GetName())
		case view.IsAbsent(err):
			return "", view.NotServed(schema.GroupResource{Group: gvk.Group, Resource: strings.ToLower(gvk.Kind) + "s"})
		case err != nil:
			return "", fmt.Errorf("nothing is created: %w", err)
		}
	}
	if err := kube.Create(ctx, job, client.FieldOwner(fieldManager)); err != nil {
		return "", err
	}
	for _, object := range objects[:len(objects)-1] {
		object.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: job.GetAPIVersion(), Kind: job.GetKind(), Name: job.GetName(), UID: job.GetUID()}})
		if err := kube.Create(ctx, object, client.FieldOwner(fieldManager)); err != nil {
			return "", fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	name = strings.ToLower(job.GetKind()) + "/" + job.GetName()
	fmt.Fprintf(out, "%s is created in namespace %s. What it waits for: kubectl muster explain %[1]s -n %[2]s\n", name, job.GetNamespace())
	return name, nil
}

// untilEnded prints each state of a job until it has ended, and the logs of its pods unless l is nil.
func (o *options) untilEnded(ctx context.Context, out io.Writer, s *subject, name string, l *logs) error {
	if l != nil {
		// The pods of a job that has ended have ended, too, and so do their logs.
		defer l.streams.Wait()
	}
	last := view.JobState("")
	return o.until(ctx, s, func() (ended bool, err error) {
		if l != nil {
			if err := l.follow(ctx, s); err != nil {
				return true, err
			}
		}
		if s.workload != nil && s.line.State != last {
			last = s.line.State
			words := s.line.Words
			if words != "" {
				words = ": " + words
			}
			fmt.Fprintf(out, "%s is %s%s\n", name, last, words)
		}
		switch last {
		case view.Failed:
			return true, fmt.Errorf("%s has failed", name)
		case view.Finished:
			return true, nil
		}
		if err := s.kube.Get(ctx, client.ObjectKeyFromObject(s.object), s.object); apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err) {
			return true, fmt.Errorf("%s was deleted", name)
		}
		return false, nil
	})
}

// completeLocalQueues completes the LocalQueues of the namespace.
func (o *options) completeLocalQueues(command *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
	kube, namespace, err := o.connect()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return namesIn(command.Context(), kube, &kueue.LocalQueueList{}, "", client.InNamespace(namespace)), cobra.ShellCompDirectiveNoFileComp
}
