package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/quota"
)

func newSetQuotaCommand(o *options) *cobra.Command {
	until := ""
	command := &cobra.Command{
		Use: "set-quota " + quotaForm, Short: "Set a nominalQuota of a ClusterQueue; with --until it is restored by itself",
		Long: `Set a nominalQuota of a ClusterQueue. With --until, Muster restores the former one at that time, unless
it was edited meanwhile: an edit stays. ` + "`kubectl muster queue` and `kubectl muster explain clusterqueue/NAME`" + `
show until when. To end it before its time, set the former quota; to keep it, set it without --until.
Jobs that run go on when a quota gets smaller.`,
		Example: `  # What would start if research had 128 GPUs for 8 hours?
  kubectl muster set-quota research/h100/nvidia.com/gpu=128 --until 8h
  kubectl muster set-quota research/h100/nvidia.com/gpu=128 --until 2026-11-30T18:00:00Z --yes`,
		Args:              arguments.These(quotaForm),
		ValidArgsFunction: o.completeFromPicture(quotasOf),
	}
	command.Flags().StringVar(&until, "until", "", "when the former quota is restored: a time such as 2026-11-30T18:00:00Z, "+
		"or a duration from now such as 8h; empty means never")
	yes := addYes(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		change, err := quotaFrom("", args[0])
		if err != nil {
			return err
		}
		end, err := o.endOf(until)
		if err != nil {
			return err
		}
		kube, namespace, err := o.connect()
		if err != nil {
			return err
		}
		ctx := command.Context()
		a, err := o.setQuota(ctx, kube, change, end)
		if err != nil {
			return err
		}
		if !*yes {
			a.follows += o.whatStarts(ctx, kube, namespace, change)
		}
		return carryOut(ctx, command.OutOrStdout(), kube, a, *yes)
	}
	return command
}

// endOf reads --until; zero is never.
func (o *options) endOf(until string) (end time.Time, err error) {
	if until == "" {
		return end, nil
	}
	now := o.clock.Now()
	if end, err = timeFrom("--until", until, now); err != nil {
		return end, err
	}
	// The annotation has seconds.
	if end = end.Truncate(time.Second); !now.Before(end) {
		return end, fmt.Errorf("--until=%q is over: use a later time, or a duration above 0", until)
	}
	return end, nil
}

// setQuota is the action that sets a quota until a time, or for good if that is zero.
func (o *options) setQuota(ctx context.Context, kube client.Client, to view.QuotaChange, until time.Time) (action, error) {
	cq := &kueue.ClusterQueue{}
	switch err := kube.Get(ctx, client.ObjectKey{Name: to.ClusterQueue}, cq); {
	case apierrors.IsNotFound(err):
		return action{}, fmt.Errorf("ClusterQueue %q does not exist", to.ClusterQueue)
	case err != nil:
		return action{}, fmt.Errorf("reading ClusterQueue %s: %w", to.ClusterQueue, err)
	}
	of := quota.FlavorResource{Flavor: to.Flavor, Resource: to.Resource}
	was, err := quota.Nominal(cq, of)
	if err != nil {
		return action{}, err
	}
	before := quota.TemporaryFor(cq, of)
	if was.Cmp(to.Nominal) == 0 && before == nil {
		return action{}, fmt.Errorf("ClusterQueue %s has nominalQuota %s of %s in flavor %s already", cq.Name, was, of.Resource, of.Flavor)
	}
	set, patch, err := quota.SetNominal(cq, of, to.Nominal, until)
	if err != nil {
		return action{}, err
	}
	out := action{changes: []change{{cq, client.RawPatch(types.JSONPatchType, patch)}}}
	out.follows = fmt.Sprintf("ClusterQueue %s has nominalQuota %s of %s in flavor %s, and not %s", cq.Name, to.Nominal.String(), of.Resource,
		of.Flavor, was)
	switch {
	case !set.Until.IsZero():
		out.follows += view.Temporarily(&set, o.clock.Now())
	case before != nil:
		out.follows += ", for good"
	}
	return out, nil
}

// whatStarts returns how many pending jobs start with the quota, and how many would start only without it. It returns an empty string if
// the caller may not read the objects that decide.
func (o *options) whatStarts(ctx context.Context, kube client.Client, namespace string, to view.QuotaChange) string {
	p, err := o.look(ctx, kube, namespace, view.QueueKinds)
	if err != nil || !p.Decides() {
		return ""
	}
	changed, err := p.Changed(&view.Changes{Quotas: []view.QuotaChange{to}})
	if err != nil {
		return ""
	}
	c := p.Compare(changed)
	out := "; " + counted(len(c.Start), "pending job starts", "pending jobs start")
	if len(c.Wait) > 0 {
		out += ", and " + counted(len(c.Wait), "that would start now waits", "that would start now wait")
	}
	return out
}
