package queues

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/test/pressure"
	"github.com/muster-dev/muster/test/testbed"
)

// kueuectlVariable names a stock kueuectl.
const kueuectlVariable = "MUSTER_KUEUECTL_BIN"

// TestKueuectl goes through all that a stock kueuectl does, on one queue and one
// Job, in the order in which an admin and a user would.
func TestKueuectl(t *testing.T) {
	t.Parallel()
	s := newSite(t, "kueuectl")
	k := newKueuectl(s)
	s.Create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: s.Name}})

	k.prints("resourceflavor.kueue.x-k8s.io/kueuectl created",
		"create", "resourceflavor", s.Name, "--node-labels", "kubernetes.io/os=linux", "--tolerations", "kueuectl:NoSchedule")
	k.prints("clusterqueue.kueue.x-k8s.io/kueuectl created (server dry run)",
		"create", "clusterqueue", s.Name, "--nominal-quota", s.Name+":cpu=4;memory=8Gi", "--dry-run", "server")
	k.prints("clusterqueue.kueue.x-k8s.io/kueuectl created",
		"create", "clusterqueue", s.Name, "--nominal-quota", s.Name+":cpu=4;memory=8Gi", "--queuing-strategy", "StrictFIFO",
		"--cohort", s.Name+"-lenders", "--borrowing-limit", s.Name+":cpu=2;memory=0", "--lending-limit", s.Name+":cpu=1;memory=0",
		"--reclaim-within-cohort", "Any", "--preemption-within-cluster-queue", "LowerPriority")
	k.prints("localqueue.kueue.x-k8s.io/kueuectl created", "create", "localqueue", s.Name, "--clusterqueue", s.Name)
	s.active(s.Name)

	j := s.oneCPU(s.Name, s.Name, "train", time.Hour)
	w, _ := s.condition(j, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	for _, tc := range []struct{ kind, row string }{
		{"resourceflavor", "kueuectl kubernetes.io/os=linux"},
		{"clusterqueue", "kueuectl kueuectl-lenders 0 1 true"},
		{"localqueue", "kueuectl kueuectl 0 1"},
		{"workload", w.Name + " job train kueuectl kueuectl ADMITTED"},
	} {
		k.prints(tc.row, "list", tc.kind)
	}
	k.prints(w.Name, "list", "workload", "--clusterqueue", s.Name, "--localqueue", s.Name, "--status", "admitted", "--for", "job/train")
	k.prints("train", "list", "pods", "--for", "job/train")

	k.prints("workload.kueue.x-k8s.io/"+w.Name+" stopped", "stop", "workload", w.Name)
	s.stopped(j)
	k.prints("workload.kueue.x-k8s.io/"+w.Name+" resumed", "resume", "workload", w.Name)
	s.condition(j, kueue.WorkloadAdmitted, metav1.ConditionTrue)

	k.prints("localqueue.kueue.x-k8s.io/kueuectl", "stop", "localqueue", s.Name)
	s.stopped(j)
	k.prints("PENDING", "list", "workload", "--status", "pending")
	k.prints("localqueue.kueue.x-k8s.io/kueuectl", "resume", "localqueue", s.Name)
	s.condition(j, kueue.WorkloadAdmitted, metav1.ConditionTrue)

	k.prints("clusterqueue.kueue.x-k8s.io/kueuectl", "stop", "clusterqueue", s.Name, "--keep-already-running")
	k.prints("kueuectl kueuectl-lenders 0 1 false", "list", "clusterqueue", "--active", "false")
	late := s.oneCPU(s.Name, s.Name, "late", time.Hour)
	s.waits(late, "stopPolicy is Hold")
	k.prints("clusterqueue.kueue.x-k8s.io/kueuectl", "resume", "clusterqueue", s.Name)
	s.condition(late, kueue.WorkloadAdmitted, metav1.ConditionTrue)
	k.prints("clusterqueue.kueue.x-k8s.io/kueuectl", "stop", "clusterqueue", s.Name)
	s.stopped(j)
	s.stopped(late)
	k.prints("clusterqueue.kueue.x-k8s.io/kueuectl", "resume", "clusterqueue", s.Name)
	s.condition(j, kueue.WorkloadAdmitted, metav1.ConditionTrue)

	for _, tc := range []struct{ kind, name, words string }{
		{"clusterqueue", s.Name, "Nominal Quota: 4"},
		{"localqueue", s.Name, "Cluster Queue: kueuectl"},
		{"resourceflavor", s.Name, "kubernetes.io/os: linux"},
		{"workload", w.Name, "Type: Admitted"},
	} {
		k.prints(tc.words, "describe", tc.kind, tc.name)
		k.prints(tc.name, "get", tc.kind, tc.name)
	}
	k.prints("patched", "patch", "clusterqueue", s.Name, "--type", "merge", "--patch", `{"spec":{"queueingStrategy":"BestEffortFIFO"}}`)
	k.prints("Client Version:", "version")

	k.prints("deleted", "delete", "workload", w.Name, "--yes")
	s.Eventually("the Job goes with its Workload", func() bool { return !s.Get(j) }, func() string { return s.standing(j) })
	k.prints("deleted", "delete", "localqueue", s.Name)
	// It stays until the Jobs that it admitted are over.
	k.prints("deleted", "delete", "clusterqueue", s.Name, "--wait=false")
}

// oneCPU creates a Job that takes one CPU for that long.
func (s *site) oneCPU(namespace, queue, name string, long time.Duration) *batchv1.Job {
	s.Helper()
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{"kueue.x-k8s.io/queue-name": queue}}}
	j.Spec.Template.Annotations = map[string]string{"kwok.muster.dev/run-for": long.String()}
	j.Spec.Template.Spec = corev1.PodSpec{
		RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "main", Image: "main", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}},
	}
	s.Create(j)
	return j
}

// stopped waits until nothing of the Job is left in the queue and none of its
// pods on a machine.
func (s *site) stopped(j *batchv1.Job) {
	s.Helper()
	s.condition(j, kueue.WorkloadQuotaReserved, metav1.ConditionFalse)
	s.Eventually("Job "+j.Name+" has no pod left", func() bool {
		var pods corev1.PodList
		if err := s.Kube.List(s.Context(), &pods, client.InNamespace(j.Namespace),
			client.MatchingLabels{batchv1.JobNameLabel: j.Name}); err != nil {
			s.Fatal(err)
		}
		return s.Get(j) && *j.Spec.Suspend && len(pods.Items) == 0
	}, func() string { return s.standing(j) })
}

// kueuectl is the stock command line, in the site's namespace.
type kueuectl struct {
	*site
	binary string
	// path has a kubectl, which kueuectl passes some of its commands on to.
	path string
}

func newKueuectl(s *site) *kueuectl {
	s.Helper()
	binary := os.Getenv(kueuectlVariable)
	if binary == "" {
		s.Skipf("%s does not name a program: run `make test-more`, which builds a stock kueuectl", kueuectlVariable)
	}
	dir := s.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nexec %q kubectl \"$@\"\n", os.Getenv(testbed.SandboxVariable))
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o700); err != nil {
		s.Fatal(err)
	}
	return &kueuectl{site: s, binary: binary, path: dir}
}

// prints runs the command until it prints the words, with any space between them:
// what it lists is counted a moment after it has come about.
func (k *kueuectl) prints(words string, args ...string) {
	k.Helper()
	// What is passed on needs the flags of the connection behind the names.
	args = append(args, "--kubeconfig", k.Kubeconfig(), "--namespace", k.Name)
	changes := args[0] != "list"
	var out []byte
	var err error
	run := func() bool {
		ctx, cancel := pressure.WithTimeout(k.Context(), testbed.Patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, k.binary, args...)
		cmd.Env = append(os.Environ(), "PATH="+k.path)
		out, err = cmd.CombinedOutput()
		return err == nil && strings.Contains(strings.Join(strings.Fields(string(out)), " "), words)
	}
	what := func() string { return fmt.Sprintf("%v\n%s", err, out) }
	if wish := fmt.Sprintf("kueuectl %s prints %q", strings.Join(args, " "), words); changes && !run() {
		k.Fatalf("%s: it does not. %s", wish, what())
	} else if !changes {
		k.Eventually(wish, run, what)
	}
}
