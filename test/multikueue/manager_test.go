package multikueue

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/testbed"
)

// newOwnSite is a site where Muster makes the copies.
func newOwnSite(t *testing.T, machines ...int32) *site {
	t.Helper()
	if managedBy != byMuster {
		t.Skip("Kueue makes the copies")
	}
	return newSite(t, machines...)
}

func long(j *batchv1.Job) { j.Spec.Template.Annotations["kwok.muster.dev/run-for"] = "1h" }

// running waits until the job's pods run in the first cluster, and the manager shows that.
func (s *site) running(j *batchv1.Job) {
	s.Helper()
	s.Eventually("the job runs in the first cluster", func() bool { return s.where(j) == s.workers[0] },
		func() string { return s.standing(j) })
}

// where returns the cluster in which all of the job's pods run according to the manager, or nil.
func (s *site) where(j *batchv1.Job) *testbed.Site {
	s.Helper()
	w := s.Workload(j)
	if w == nil || w.Status.ClusterName == nil || !s.Get(j) || ptr.Deref(j.Status.Ready, 0) != *j.Spec.Parallelism || *j.Spec.Suspend {
		return nil
	}
	return s.workers[slices.Index(clusterNames(), *w.Status.ClusterName)]
}

// left are the jobs and copies in the first cluster.
func (s *site) left() (out []string) {
	s.Helper()
	var jobs batchv1.JobList
	var copies kueue.WorkloadList
	s.workers[0].List(&jobs, client.InNamespace(s.Name))
	s.workers[0].List(&copies, client.InNamespace(s.Name))
	for i := range jobs.Items {
		out = append(out, "job/"+jobs.Items[i].Name)
	}
	for i := range copies.Items {
		out = append(out, "workload/"+copies.Items[i].Name)
	}
	return out
}

// TestAJobLeavesItsClusterBeforeItsQuotaIsFree, whichever way it ends here.
func TestAJobLeavesItsClusterBeforeItsQuotaIsFree(t *testing.T) {
	for name, end := range map[string]func(*site, *batchv1.Job){
		"deactivated": func(s *site, j *batchv1.Job) {
			w := s.Workload(j)
			patch := client.MergeFrom(w.DeepCopy())
			w.Spec.Active = new(false)
			if err := s.Kube.Patch(s.Context(), w, patch); err != nil {
				s.Fatal(err)
			}
			s.Eventually("its quota is free, and it shows no pods", func() bool {
				w := s.Workload(j)
				if w != nil && !workload.HasQuota(w) && len(s.left()) > 0 {
					s.Errorf("its quota is free while the cluster still has %v", s.left())
				}
				return w != nil && !workload.HasQuota(w) && s.Get(j) && *j.Spec.Suspend && j.Status.Active == 0
			}, func() string { return s.standing(j) })
		},
		"deleted": func(s *site, j *batchv1.Job) { s.Delete(j) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newOwnSite(t, 8, 8)
			j := s.job("train", 2, long)
			s.running(j)
			end(s, j)
			s.Eventually("nothing is left in the cluster", func() bool { return len(s.left()) == 0 }, func() string { return fmt.Sprint(s.left()) })
			s.wantLaunched(2, 0)
		})
	}
}

// TestWhatIsDeletedByHandInAClusterIsMadeAgain, after its cluster has nothing of the job any more.
func TestWhatIsDeletedByHandInAClusterIsMadeAgain(t *testing.T) {
	for name, of := range map[string]func(*site, *batchv1.Job) client.Object{
		"copy": func(s *site, j *batchv1.Job) client.Object {
			return &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Workload(j).Name}}
		},
		"job": func(s *site, j *batchv1.Job) client.Object {
			return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: j.Name}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newOwnSite(t, 8, 8)
			j := s.job("train", 2, func(j *batchv1.Job) { j.Spec.Template.Annotations["kwok.muster.dev/run-for"] = "8s" })
			s.running(j)
			first := of(s, j)
			s.workers[0].Get(first)
			if err := s.workers[0].Kube.Delete(t.Context(), first, client.PropagationPolicy(metav1.DeletePropagationBackground)); err != nil {
				t.Fatal(err)
			}
			s.complete(j)
		})
	}
}

// TestAJobRunsAgainAfterPodsHaveEnded: kube-apiserver does not allow the numbers of succeeded and failed pods of a Job to fall, and the job
// shows those of its first run when the second begins.
func TestAJobRunsAgainAfterPodsHaveEnded(t *testing.T) {
	t.Parallel()
	s := newOwnSite(t, 8, 8)
	j := s.job("train", 1, func(j *batchv1.Job) {
		j.Spec.Completions = new(int32(3))
		j.Spec.Template.Annotations["kwok.muster.dev/run-for"] = "1h"
	})
	s.running(j)
	endPods := func() {
		var pods corev1.PodList
		s.workers[0].List(&pods, client.InNamespace(s.Name))
		for i := range pods.Items {
			if pods.Items[i].Status.Phase == corev1.PodRunning {
				s.workers[0].EndPod(&pods.Items[i], 0)
			}
		}
	}
	endPods()
	s.Eventually("a pod of it has ended", func() bool { return s.Get(j) && j.Status.Succeeded > 0 }, func() string { return s.standing(j) })
	there := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Workload(j).Name}}
	if err := s.workers[0].Kube.Delete(t.Context(), there); err != nil {
		t.Fatal(err)
	}
	s.Eventually("it completes", func() bool { endPods(); return s.IsComplete(j) }, func() string { return s.standing(j) })
	if j.Status.Succeeded != 3 {
		t.Errorf("it shows %+v", j.Status)
	}
}

// TestAManagerThatIsAwayStopsNothing: without its API server and its dispatcher a job runs on in its cluster, and to its end. The manager
// catches up with that.
func TestAManagerThatIsAwayStopsNothing(t *testing.T) {
	if testing.Short() {
		t.Skip("all other tests wait for half a minute")
	}
	s := newOwnSite(t, 8, 8)
	j := s.job("train", 2, func(j *batchv1.Job) { j.Spec.Template.Annotations["kwok.muster.dev/run-for"] = "15s" })
	s.running(j)
	copyOf := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: s.Workload(j).Name}}
	dispatcher.Kill()
	if err := manager.Pause(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	s.Within(time.Minute, "the job ends in its cluster", func() bool {
		return s.workers[0].Get(copyOf) && workload.IsFinished(copyOf)
	}, func() string { return fmt.Sprint(copyOf.Status) })
	if err := manager.Resume(cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := manager.WaitReady(t.Context(), cluster.APIServer); err != nil {
		t.Fatal(err)
	}
	if err := dispatcher.Start(context.Background()); err != nil {
		t.Fatal(err)
	}
	s.complete(j)
	s.wantLaunched(2, 0)
}

// TestTwoClustersAreNominatedForAHedgedJob: both launch machines for it, and it runs once.
func TestTwoClustersAreNominatedForAHedgedJob(t *testing.T) {
	t.Parallel()
	s := newOwnSite(t, 8, 8)
	spending.hedge(s.Name)
	j := s.job("train", 2, func(j *batchv1.Job) { j.Annotations = map[string]string{dispatch.HedgeAnnotation: "2"} })
	s.complete(j)
	s.wantLaunched(2, 2)
	s.Eventually("nothing of it is left in the clusters", func() bool {
		var copies kueue.WorkloadList
		s.workers[1].List(&copies, client.InNamespace(s.Name))
		return len(s.left()) == 0 && len(copies.Items) == 0
	}, func() string { return s.standing(j) })
}

// TestAClusterThatChangesCopiesIsPassedOver: what would run there is not the job.
func TestAClusterThatChangesCopiesIsPassedOver(t *testing.T) {
	t.Parallel()
	s := newOwnSite(t, 8, 8)
	policy := &admissionv1.MutatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	policy.Spec = admissionv1.MutatingAdmissionPolicySpec{
		FailurePolicy: new(admissionv1.Fail), ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{
			{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Create},
				Rule: admissionv1.Rule{APIGroups: []string{kueue.SchemeGroupVersion.Group}, APIVersions: []string{"v1beta2"},
					Resources: []string{"workloads"}},
			}}}},
		MatchConditions: []admissionv1.MatchCondition{{Name: "of-this-test", Expression: fmt.Sprintf("request.namespace == '%s'", s.Name)}},
		Mutations: []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{
			Expression: `[JSONPatch{op: "replace", path: "/spec/podSets/0/count", value: 1}]`,
		}}},
	}
	binding := &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	binding.Spec.PolicyName = s.Name
	s.workers[0].Create(policy, binding)
	s.Eventually("the first cluster changes Workloads", func() bool {
		w := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{Namespace: s.Name, Name: "try"}}
		w.Spec.PodSets = []kueue.PodSet{{Name: "main", Count: 2, Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "main"}},
		}}}}
		return s.workers[0].Kube.Create(t.Context(), w, client.DryRunAll) == nil && w.Spec.PodSets[0].Count == 1
	}, func() string { return "" })
	j := s.job("train", 2)
	if in := s.complete(j); in != "worker-2" {
		t.Errorf("it ran in %q", in)
	}
	if record := s.Workload(j).Annotations[dispatch.Annotation]; !strings.Contains(record,
		"spec.podSets[0].count of its copy is 1 there, and 2 here") {
		t.Errorf("the record does not say why the first cluster did not run it: %s", record)
	}
	s.wantLaunched(0, 2)
}

// TestAGangIsInOneRackOfItsCluster: the manager has the levels of its Topology, and no node.
func TestAGangIsInOneRackOfItsCluster(t *testing.T) {
	t.Parallel()
	const rack = "example.com/rack"
	s := newOwnSite(t, 8, 8)
	for _, in := range append([]*testbed.Site{s.Site}, s.workers...) {
		topology := &kueue.Topology{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
		topology.Spec.Levels = []kueue.TopologyLevel{{NodeLabel: rack}, {NodeLabel: corev1.LabelHostname}}
		in.Create(topology)
		flavor := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
		in.Get(flavor)
		patch := client.MergeFrom(flavor.DeepCopy())
		flavor.Spec.TopologyName = new(kueue.TopologyReference(s.Name))
		if err := in.Kube.Patch(t.Context(), flavor, patch); err != nil {
			t.Fatal(err)
		}
	}
	for _, in := range s.workers {
		group := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
		in.Get(group)
		patch := client.MergeFrom(group.DeepCopy())
		group.Spec.Topology = []v1alpha1.TopologyLevel{{NodeLabel: rack}}
		group.Spec.Kwok.Domains = &v1alpha1.KwokDomains{
			NodeLabel: rack, Of: []v1alpha1.KwokDomain{{Name: "small", Machines: 1}, {Name: "large", Machines: 7}},
			Placement: v1alpha1.PlacedScattered,
		}
		if err := in.Kube.Patch(t.Context(), group, patch); err != nil {
			t.Fatal(err)
		}
	}
	j := s.job("train", 3, long, func(j *batchv1.Job) { j.Spec.Template.Annotations[kueue.PodSetRequiredTopologyAnnotation] = rack })
	// The manager has not read the Topology of one cluster yet, so that cluster comes after the other.
	var in *testbed.Site
	s.Eventually("the job runs in one of them", func() bool { in = s.where(j); return in != nil }, func() string { return s.standing(j) })
	var pods corev1.PodList
	in.List(&pods, client.InNamespace(s.Name))
	for i := range pods.Items {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: pods.Items[i].Spec.NodeName}}
		if !in.Get(node) || node.Labels[rack] != "large" {
			t.Errorf("pod %s is in rack %q", pods.Items[i].Name, node.Labels[rack])
		}
	}
	if len(pods.Items) != 3 {
		t.Errorf("it has %d pods", len(pods.Items))
	}
	a := s.Workload(j).Status.Admission.PodSetAssignments[0]
	if ptr.Deref(a.DelayedTopologyRequest, "") != kueue.DelayedTopologyRequestStateReady || a.TopologyAssignment != nil {
		t.Errorf("its Workload here has %+v", a)
	}
}

// TestAJobWhosePodsEndOneAfterAnotherRunsOn: how many are left of it is its cluster's affair.
func TestAJobWhosePodsEndOneAfterAnotherRunsOn(t *testing.T) {
	t.Parallel()
	s := newOwnSite(t, 8, 8)
	j := s.job("train", 2, func(j *batchv1.Job) { j.Spec.Completions = new(int32(3)) })
	s.Eventually("it has a Workload", func() bool { return s.Workload(j) != nil }, func() string { return "" })
	before := s.Workload(j).UID
	s.complete(j)
	if w := s.Workload(j); w == nil || w.UID != before {
		t.Errorf("it got another Workload while it ran: %+v", w)
	}
	s.wantLaunched(2, 0)
}

// TestAJobThatItsOwnControllerRunsIsRejected: it would run here, and came to the queue too late to get another.
func TestAJobThatItsOwnControllerRunsIsRejected(t *testing.T) {
	t.Parallel()
	s := newOwnSite(t, 8, 8)
	j := s.job("train", 1, func(j *batchv1.Job) { j.Labels = nil })
	patch := client.MergeFrom(j.DeepCopy())
	j.Labels = map[string]string{"kueue.x-k8s.io/queue-name": s.Name}
	if err := s.Kube.Patch(t.Context(), j, patch); err != nil {
		t.Fatal(err)
	}
	s.Eventually("the check says why", func() bool {
		w := s.Workload(j)
		return w != nil && strings.Contains(fmt.Sprint(w.Status), `Expecting spec.managedBy to be "kueue.x-k8s.io/multikueue" not ""`)
	}, func() string { return s.standing(j) })
	if !s.Get(j) || !*j.Spec.Suspend || j.Status.Active > 0 {
		t.Errorf("it runs here: %+v", j.Status)
	}
	s.wantLaunched(0, 0)
}

// TestAJobForOtherClustersWaitsInAQueueOfThisOne, and says what is wrong.
func TestAJobForOtherClustersWaitsInAQueueOfThisOne(t *testing.T) {
	t.Parallel()
	s := newOwnSite(t, 8, 8)
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: s.Name}}
	s.Get(cq)
	patch := client.MergeFrom(cq.DeepCopy())
	cq.Spec.AdmissionChecksStrategy = nil
	if err := s.Kube.Patch(t.Context(), cq, patch); err != nil {
		t.Fatal(err)
	}
	j := s.job("train", 1)
	s.Eventually("the Workload says why", func() bool {
		w := s.Workload(j)
		return w != nil && strings.Contains(fmt.Sprint(w.Status.Conditions), "has no AdmissionCheck of that controller")
	}, func() string { return s.standing(j) })
}

// TestAKubeconfigThatExpiresStopsNothing: the job runs on in its cluster, and the next kubeconfig is taken without a restart.
func TestAKubeconfigThatExpiresStopsNothing(t *testing.T) {
	s := newOwnSite(t, 8, 8)
	j := s.job("train", 2, func(j *batchv1.Job) { j.Spec.Template.Annotations["kwok.muster.dev/run-for"] = "15s" })
	s.running(j)
	cluster := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: "worker-1"}}
	s.Get(cluster)
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: cluster.Spec.ClusterSource.KubeConfig.Location}}
	s.Get(secret)
	good := secret.Data[kueue.MultiKueueConfigSecretKey]
	give := func(text []byte) {
		patch := client.MergeFrom(secret.DeepCopy())
		secret.Data = map[string][]byte{kueue.MultiKueueConfigSecretKey: text}
		if err := s.Kube.Patch(context.Background(), secret, patch); err != nil {
			t.Fatal(err)
		}
	}
	access, err := clientcmd.Load(good)
	if err != nil {
		t.Fatal(err)
	}
	for _, user := range access.AuthInfos {
		user.Token = "expired"
	}
	expired, err := clientcmd.Write(*access)
	if err != nil {
		t.Fatal(err)
	}
	give(expired)
	defer give(good)
	active := func() *metav1.Condition {
		s.Get(cluster)
		return meta.FindStatusCondition(cluster.Status.Conditions, kueue.MultiKueueClusterActive)
	}
	s.Eventually("the cluster's condition says that it is not let in", func() bool {
		c := active()
		return c.Status == metav1.ConditionFalse && strings.Contains(c.Message, "credentials")
	}, func() string { return fmt.Sprint(active()) })
	before := s.Workload(j)
	if s.Get(j); *j.Spec.Suspend || ptr.Deref(before.Status.ClusterName, "") != "worker-1" || len(s.left()) != 2 {
		t.Errorf("it was stopped: suspended %t, %+v; its cluster has %v", *j.Spec.Suspend, before.Status, s.left())
	}
	give(good)
	s.Eventually("the cluster is connected again", func() bool { return active().Status == metav1.ConditionTrue },
		func() string { return fmt.Sprint(active()) })
	s.complete(j)
	if after := s.Workload(j); after.UID != before.UID || meta.IsStatusConditionTrue(after.Status.Conditions, kueue.WorkloadEvicted) {
		t.Errorf("it queued again: %+v", after.Status)
	}
	s.wantLaunched(2, 0)
}

// adminOf is a kubeconfig whose account may do everything in a worker.
func adminOf(t *testing.T, in *testbed.Cluster) string {
	t.Helper()
	rest, config := in.RESTConfig(), clientcmdapi.NewConfig()
	config.Clusters["w"] = &clientcmdapi.Cluster{Server: rest.Host, CertificateAuthorityData: rest.CAData}
	config.AuthInfos["u"] = &clientcmdapi.AuthInfo{ClientCertificateData: rest.CertData, ClientKeyData: rest.KeyData, Token: rest.BearerToken}
	config.Contexts["w"] = &clientcmdapi.Context{Cluster: "w", AuthInfo: "u"}
	config.CurrentContext = "w"
	text, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestASecondNameOfAClusterHarmsNoJob: what runs there was made through the first.
func TestASecondNameOfAClusterHarmsNoJob(t *testing.T) {
	t.Parallel()
	s := newOwnSite(t, 8, 8)
	j := s.job("train", 2, func(j *batchv1.Job) { j.Spec.Template.Annotations["kwok.muster.dev/run-for"] = "8s" })
	s.running(j)
	first := s.Workload(j)
	mkc := s.cluster("second", adminOf(t, workers[0]))
	s.Eventually("the second MultiKueueCluster is refused", func() bool {
		active := (*metav1.Condition)(nil)
		if s.Get(mkc) {
			active = meta.FindStatusCondition(mkc.Status.Conditions, kueue.MultiKueueClusterActive)
		}
		return active != nil && active.Status == metav1.ConditionFalse && active.Reason == "SameCluster"
	}, func() string { return fmt.Sprint(mkc.Status) })
	s.complete(j)
	if w := s.Workload(j); w.UID != first.UID || meta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadEvicted) != nil {
		t.Errorf("it queued again: %+v", w.Status)
	}
	s.wantLaunched(2, 0)
}

// cluster is one more MultiKueueCluster, by that kubeconfig.
func (s *site) cluster(name, kubeconfig string) *kueue.MultiKueueCluster {
	s.Helper()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.Name + "-" + name}}
	secret.Data = map[string][]byte{kueue.MultiKueueConfigSecretKey: []byte(kubeconfig)}
	mkc := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: secret.Name}}
	mkc.Spec.ClusterSource.KubeConfig = &kueue.KubeConfig{Location: secret.Name, LocationType: kueue.SecretLocationType}
	s.Create(secret, mkc)
	s.Cleanup(func() { _ = s.Kube.Delete(context.Background(), mkc) })
	return mkc
}

// TestKubeconfigsThatAreUnsafeOrBrokenAreRefused, each by its own condition; the other clusters go on. One that may do everything is warned
// of.
func TestKubeconfigsThatAreUnsafeOrBrokenAreRefused(t *testing.T) {
	t.Parallel()
	s := newOwnSite(t, 8, 8)
	for name, c := range map[string]struct{ text, reason, message string }{
		"insecure": {`{clusters: [{name: w, cluster: {server: "https://127.0.0.1:1", insecure-skip-tls-verify: true}}], contexts: [{name: w, context: {cluster: w}}], current-context: w}`,
			"InsecureKubeConfig", "clusters[w].insecure-skip-tls-verify is true; give certificate-authority-data instead"},
		"program": {`{users: [{name: u, user: {exec: {apiVersion: client.authentication.k8s.io/v1, command: /bin/true, interactiveMode: Never}}}]}`,
			"InsecureKubeConfig", "users[u] runs a program to log in; use token"},
		"garbage": {"{", "BadKubeConfig", "its kubeconfig cannot be read"},
		"refused": {`{clusters: [{name: w, cluster: {server: "https://127.0.0.1:1"}}], contexts: [{name: w, context: {cluster: w}}], current-context: w}`,
			"ClientConnectionFailed", "refused"},
		"admin": {adminOf(t, manager), "Active", "the account in its kubeconfig may do everything in the cluster"},
	} {
		mkc := s.cluster(name, c.text)
		s.Eventually("the condition of "+name, func() bool {
			active := (*metav1.Condition)(nil)
			if s.Get(mkc) {
				active = meta.FindStatusCondition(mkc.Status.Conditions, kueue.MultiKueueClusterActive)
			}
			return active != nil && (active.Status == metav1.ConditionTrue) == (c.reason == "Active") && active.Reason == c.reason &&
				strings.Contains(active.Message, c.message)
		}, func() string { return fmt.Sprint(mkc.Status) })
		s.Delete(mkc)
	}
	s.complete(s.job("train", 1))
}
