package view

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/dispatch"
	jobkinds "github.com/muster-dev/muster/queueing/jobs/kinds"
	"github.com/muster-dev/muster/queueing/workload"
)

// ReasonWaitingForCluster is that of Workloads with quota that another cluster is to run.
const ReasonWaitingForCluster = "WaitingForCluster"

// waitsForACluster reports whether a Workload has quota here, and nothing else is missing but a cluster that runs it.
func (p *Picture) waitsForACluster(w *kueue.Workload) bool {
	return workload.HasQuota(w) && !workload.IsAdmitted(w) && !workload.IsEvicted(w) && !workload.IsFinished(w) &&
		w.Status.ClusterName == nil &&
		(len(w.Status.NominatedClusterNames) > 0 || slices.ContainsFunc(w.Status.AdmissionChecks, func(c kueue.AdmissionCheckState) bool {
			_, delegates := p.delegates[c.Name]
			return delegates && c.State == kueue.CheckStatePending && workload.Unready(w.Status.AdmissionChecks, c.Name) == ""
		}))
}

// explainClusters explains a Workload that has quota here, and that other clusters are asked to run; false if none are.
func (p *Picture) explainClusters(out *Explanation, w *kueue.Workload) bool {
	runs := w.Status.ClusterName
	if runs == nil && !p.waitsForACluster(w) {
		return false
	}
	record, err := dispatch.DecodeRecord(w.Annotations[dispatch.Annotation])
	out.Causes = nil
	if err != nil {
		out.Causes = append(out.Causes, err.Error())
	}
	if record.Waits != "" {
		out.Causes = append(out.Causes, record.Waits)
	}
	if runs != nil {
		p.explainCluster(out, w, *runs, record.Waits != "")
	} else {
		p.explainNominated(out, w, &record)
	}
	return true
}

// explainCluster explains a Workload that was given to a cluster. It waits there or the cluster cannot be reached, or else it runs.
func (p *Picture) explainCluster(out *Explanation, w *kueue.Workload, cluster string, waits bool) {
	out.Summary = "runs in cluster " + cluster
	if waits {
		out.Summary = "was given to cluster " + cluster
	}
	if admitted := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadAdmitted); admitted != nil {
		out.Summary += fmt.Sprintf(" since %s (%s ago)", stamp(admitted.LastTransitionTime.Time), ago(p.Now, admitted.LastTransitionTime.Time))
	}
	out.Causes = append(out.Causes, elsewhere(w, cluster, cmp.Or(p.Contexts[cluster], cluster))...)
	if price := PriceIn(w, cluster); price > 0 {
		out.Causes = append(out.Causes, fmt.Sprintf("machines that were to be launched for it there: %s USD per hour, when it was given there",
			text.USD(price)))
	}
}

// explainNominated explains a Workload that waits for a cluster to run it.
func (p *Picture) explainNominated(out *Explanation, w *kueue.Workload, record *dispatch.Record) {
	out.Summary = "has quota here and waits for a cluster"
	if nominated := w.Status.NominatedClusterNames; len(nominated) > 0 {
		out.Summary = "has quota here and has been given to cluster " + strings.Join(nominated, " and cluster ")
		if !record.At.IsZero() && len(nominated) == 1 {
			out.Summary += fmt.Sprintf(" %s ago", ago(p.Now, record.At))
		}
		if n := record.Hedge; n > 1 {
			out.Summary += fmt.Sprintf(": up to %d are asked at once, each of which may launch machines for it (%s)", n, dispatch.HedgeAnnotation)
		}
	}
	for i := range record.Refusals {
		r := &record.Refusals[i]
		line := fmt.Sprintf("cluster %s did not run it %s ago, %s: %s", r.Cluster, ago(p.Now, r.At), r.Reason,
			cmp.Or(r.Message, "it said no more"))
		if again := r.PausedUntil(); p.Now.Before(again) {
			line += "; it may be asked again " + in(p.Now, again)
		}
		out.Causes = append(out.Causes, line)
	}
	if len(out.Causes) == 0 && len(w.Status.NominatedClusterNames) == 0 {
		out.Causes = []string{"no cluster has been asked yet: that takes moments, unless muster dispatcher does not run"}
	}
}

// elsewhere reports how to find the pods of a job that runs in another cluster, and their logs.
func elsewhere(w *kueue.Workload, cluster, context string) []string {
	if len(w.OwnerReferences) == 0 {
		return nil
	}
	owner := metav1.GetControllerOf(w)
	if owner == nil {
		owner = &w.OwnerReferences[0] // of a group
	}
	there := fmt.Sprintf("kubectl --context %s -n %s", context, w.Namespace)
	lines := []string{fmt.Sprintf("with a context %s for cluster %s in your kubeconfig: %s describe %s/%s", context, cluster, there,
		strings.ToLower(owner.Kind), owner.Name)}
	if pods, logs := commandsFor(w, owner); pods != "" {
		lines = append(lines, fmt.Sprintf("its pods: %s get pods %s", there, pods), fmt.Sprintf("its logs: %s logs %s", there, logs))
	}
	return lines
}

// commandsFor are the arguments of kubectl get pods and kubectl logs for the pods of a Workload; empty if it is not known which they are.
func commandsFor(w *kueue.Workload, owner *metav1.OwnerReference) (pods, logs string) {
	switch gv, _ := schema.ParseGroupVersion(owner.APIVersion); gv.WithKind(owner.Kind).GroupKind() {
	case schema.GroupKind{Group: batchv1.GroupName, Kind: "Job"}:
		return fmt.Sprintf("-l %s=%s", batchv1.JobNameLabel, owner.Name), fmt.Sprintf("job/%s --all-pods", owner.Name)
	case schema.GroupKind{Kind: "Pod"}:
		var names []string
		for _, o := range w.OwnerReferences {
			if o.Kind == owner.Kind {
				names = append(names, o.Name)
			}
		}
		return strings.Join(names, " "), owner.Name + " --all-containers"
	case schema.GroupKind{Group: appsv1.GroupName, Kind: "StatefulSet"}:
		var names []string
		for i := range w.Spec.PodSets[0].Count {
			names = append(names, fmt.Sprintf("%s-%d", owner.Name, i))
		}
		return strings.Join(names, " "), fmt.Sprintf("statefulset/%s --all-pods", owner.Name)
	case schema.GroupKind{Group: "leaderworkerset.x-k8s.io", Kind: "LeaderWorkerSet"}:
		return byLabels(map[string]string{workload.LeaderWorkerSetLabel: owner.Name,
			workload.GroupIndexLabel: w.Annotations[workload.GroupIndexAnnotation]})
	default:
		return byLabels(podLabels(owner))
	}
}

// byLabels are the arguments for all pods with the labels.
func byLabels(labels map[string]string) (pods, logs string) {
	if len(labels) == 0 {
		return "", ""
	}
	var pairs []string
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		pairs = append(pairs, key+"="+labels[key])
	}
	selector := strings.Join(pairs, ",")
	return "-l " + selector, "-l " + selector + " --all-containers --prefix --tail=-1"
}

// podLabels are those by which the kind of an owner knows its pods; nil if it is not known to have any.
func podLabels(owner *metav1.OwnerReference) map[string]string {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(schema.FromAPIVersionAndKind(owner.APIVersion, owner.Kind))
	o.SetName(owner.Name)
	for _, kind := range jobkinds.BuiltIn() {
		if kind.GroupVersionKind().GroupKind() == o.GroupVersionKind().GroupKind() {
			if all := kind.PodLabels(o); len(all) > 1 { // the first is that of its UID here
				return all[1]
			}
		}
	}
	return nil
}
