package framework

import (
	"context"
	"regexp"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/features"
)

// endings are how messages of Muster's go on after Kueue's words, and how Kueue's end. Specs compare whole messages.
var endings = []struct {
	muster *regexp.Regexp
	kueue  string
}{
	{regexp.MustCompile(`; the preemptor is .*$`), ""},
	{regexp.MustCompile(`^(Exceeded the PodsReady timeout [^ :]+): .*$`), "$1"},
	{regexp.MustCompile(`(> maximum capacity \([^)]*\)).*$`), "$1"},
	{regexp.MustCompile(`(insufficient unused quota for .* more needed): [^,]* free.*$`), "$1"},
	{regexp.MustCompile(`^((?:Cluster|Local)Queue [^ ]+ is inactive): .*$`), "$1"},
	{regexp.MustCompile(`^(LocalQueue [^ ]* doesn't exist): .*$`), "$1"},
	{regexp.MustCompile(`^(LocalQueue is stopped): .*$`), "$1"},
	{regexp.MustCompile(`^(ClusterQueue [^ ]*) of LocalQueue [^ ]* doesn't exist: .*$`), "$1 doesn't exist"},
	{regexp.MustCompile(`^(The workload is deactivated); .*$`), "$1"},
	{regexp.MustCompile(`^(Can't submit new workloads to clusterQueue): .*$`), "$1"},
	{regexp.MustCompile(`^(Can't admit new workloads: .* missing [^;:]*: [^;]*); .*$`), "$1."},
	{regexp.MustCompile(`^(Can't admit new workloads: references inactive AdmissionCheck[^:]*: [^:]*): .*$`), "$1."},
	{regexp.MustCompile(`^(Can't admit new workloads: there is no Topology [^;]*); create it$`), "$1."},
	{regexp.MustCompile(`^(Can't admit new workloads: Cannot [^;]*);[^;]*$`), "$1."},
}

// get and list return conditions with messages that end as Kueue's do, and with the reasons that Kueue writes while
// UnadmittedWorkloadsObservability is off, its default in 0.19. Muster always writes the reasons of the enabled gate, the default
// since 0.20.
func get(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	err := c.Get(ctx, key, object, opts...)
	translate(conditionsOf(object))
	return err
}

func list(ctx context.Context, c client.WithWatch, objects client.ObjectList, opts ...client.ListOption) error {
	err := c.List(ctx, objects, opts...)
	if all, ok := objects.(*kueue.WorkloadList); ok {
		for i := range all.Items {
			translate(conditionsOf(&all.Items[i]))
		}
	}
	return err
}

func conditionsOf(object client.Object) []metav1.Condition {
	switch o := object.(type) {
	case *kueue.Workload:
		return o.Status.Conditions
	case *kueue.ClusterQueue:
		return o.Status.Conditions
	case *kueue.LocalQueue:
		return o.Status.Conditions
	}
	return nil
}

func translate(conditions []metav1.Condition) {
	for i := range conditions {
		c := &conditions[i]
		for _, one := range endings {
			c.Message = one.muster.ReplaceAllString(c.Message, one.kueue)
		}
		switch {
		case features.Enabled(features.UnadmittedWorkloadsObservability), c.Status != metav1.ConditionFalse:
		case c.Type == kueue.WorkloadAdmitted && c.Reason == kueue.WorkloadAdmittedReasonUnsatisfiedAdmissionChecks:
			c.Reason = "UnsatisfiedChecks"
		case c.Type == kueue.WorkloadQuotaReserved:
			c.Reason = coarse(c)
		}
	}
}

// coarse returns the reason that Kueue writes without the gate for a Workload without quota.
func coarse(c *metav1.Condition) string {
	switch c.Reason {
	case kueue.WorkloadQuotaReservedReasonWaitingForPodsReady:
		return kueue.WorkloadWaiting
	case kueue.WorkloadAdmissionGated:
		return c.Reason
	case kueue.WorkloadQuotaReservedReasonMisconfigured:
		// Of what is wrong with a Workload, Kueue's scheduler finds the namespace alone, and calls that pending.
		if strings.Contains(c.Message, "namespaceSelector") {
			return kueue.WorkloadPending
		}
		return kueue.WorkloadInadmissible
	case kueue.WorkloadQuotaReservedReasonSuspended, kueue.WorkloadInadmissible:
		return kueue.WorkloadInadmissible
	}
	return kueue.WorkloadPending
}
