package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/cache"
)

// The tenants: what is measured is the calm one's Jobs, while the other floods the cluster.
const (
	calm  = "calm"
	crowd = "crowd"
)

// BenchmarkFloods measures how long a small Job of one tenant waits from its creation to its admission: on a quiet cluster,
// and while another tenant, in a ClusterQueue of its own, creates thousands of Jobs. The bound is twice the time on the quiet
// cluster and a second, for the median.
func BenchmarkFloods(b *testing.B) {
	for _, f := range []struct {
		name string
		// jobs is how many there are, and change makes the i-th what it is.
		jobs   int
		change func(i int, j *batchv1.Job)
		// deleted: each is deleted at once.
		deleted bool
	}{
		{name: "jobs=3000/shapes=3000", jobs: 3000, change: func(i int, j *batchv1.Job) {
			j.Spec.Template.Spec.Containers[0].Resources.Requests["memory"] = *resource.NewQuantity(int64(i+1)<<20, resource.BinarySI)
		}},
		{name: "jobs=2000/shapes=1", jobs: 2000, change: func(int, *batchv1.Job) {}},
		{name: "jobs=200/antiaffinity", jobs: 200, change: func(i int, j *batchv1.Job) {
			j.Spec.Parallelism, j.Spec.Completions = new(int32(32)), new(int32(32))
			j.Spec.Template.Labels = map[string]string{"app": j.Name}
			j.Spec.Template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
				RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: corev1.LabelHostname, LabelSelector: &metav1.LabelSelector{MatchLabels: j.Spec.Template.Labels}}}}}
		}},
		{name: "jobs=2000/deleted", jobs: 2000, change: func(int, *batchv1.Job) {}, deleted: true},
	} {
		b.Run(f.name, func(b *testing.B) {
			s := newSite(b)
			s.tenants()
			for b.Loop() {
				quiet := s.waits("quiet", 20)
				before, began := s.count(), time.Now()
				ctx, stop := context.WithCancel(b.Context())
				flood, create := errgroup.Group{}, errgroup.Group{}
				create.SetLimit(8)
				flood.Go(func() error {
					for i := 0; i < f.jobs / *scale && ctx.Err() == nil; i++ {
						j := smallJob(crowd, fmt.Sprintf("job-%04d", i))
						// No machine is as large.
						j.Spec.Template.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("64")
						j.Spec.Template.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("64")}
						f.change(i, j)
						create.Go(func() error {
							if err := s.kube.Create(b.Context(), j); err != nil || !f.deleted {
								return err
							}
							return s.kube.Delete(b.Context(), j, client.PropagationPolicy(metav1.DeletePropagationBackground))
						})
					}
					return create.Wait()
				})
				during := s.waits("during", 20)
				stop()
				if err := flood.Wait(); err != nil {
					b.Fatal(err)
				}
				took, after := time.Since(began), s.count()
				b.ReportMetric(median(quiet).Seconds(), "quiet-s")
				b.ReportMetric(median(during).Seconds(), "during-s")
				b.ReportMetric(during[len(during)-1].Seconds(), "most-s")
				b.ReportMetric((after.musterCPU-before.musterCPU)/took.Seconds(), "muster-cores")
				b.ReportMetric((after.apiserverCPU-before.apiserverCPU)/took.Seconds(), "apiserver-cores")
				b.ReportMetric(0, "ns/op")
				if most := 2*median(quiet) + time.Second; median(during) > most {
					b.Errorf("a small Job waits %s during the flood, want at most %s", median(during), most)
				}
				if b.N > 1 {
					b.Fatal("run it with -benchtime 1x: what a flood leaves is in the way of the next one")
				}
			}
		})
	}
}

// tenants creates a queue for each tenant, with quota for all, and a capacity check over 200 groups of machines.
func (s *site) tenants() {
	check := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "machines"}}
	check.Spec.ControllerName = cache.CapacityController
	s.create(check, &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: flavor}})
	for i := range 200 {
		s.create(&v1alpha1.NodeGroup{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("group-%d", i)},
			Spec: v1alpha1.NodeGroupSpec{
				Provider: v1alpha1.ProviderKwok, MaxNodes: 100, Zone: fmt.Sprintf("zone-%d", i%4),
				Template: v1alpha1.NodeTemplate{Capacity: gpuMachine}, Kwok: &v1alpha1.KwokPool{},
			},
		})
	}
	for _, name := range []string{calm, crowd} {
		q := queue(name, "1M")
		q.Spec.ResourceGroups[0].CoveredResources = []corev1.ResourceName{"cpu", "memory", "nvidia.com/gpu"}
		q.Spec.ResourceGroups[0].Flavors[0].Resources = []kueue.ResourceQuota{{Name: "cpu", NominalQuota: resource.MustParse("1M")},
			{Name: "memory", NominalQuota: resource.MustParse("1Pi")}, {Name: "nvidia.com/gpu", NominalQuota: resource.MustParse("1M")}}
		if name == crowd {
			q.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{
				AdmissionChecks: []kueue.AdmissionCheckStrategyRule{{Name: "machines"}}}
		}
		lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
		lq.Spec.ClusterQueue = kueue.ClusterQueueReference(name)
		s.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		s.create(q, lq)
		s.poll("the queue is active", func() bool {
			return s.kube.Get(s.Context(), client.ObjectKeyFromObject(q), q) == nil &&
				meta.IsStatusConditionTrue(q.Status.Conditions, kueue.ClusterQueueActive)
		})
	}
}

// waits creates n small Jobs of the calm tenant, one after another, and returns how long each waited for its admission.
func (s *site) waits(name string, n int) (out []time.Duration) {
	events, err := s.kube.Watch(s.Context(), &batchv1.JobList{}, client.InNamespace(calm))
	if err != nil {
		s.Fatal(err)
	}
	defer events.Stop()
	for i := range n {
		j := smallJob(calm, fmt.Sprintf("%s-%d", name, i))
		began := time.Now()
		s.create(j)
		for event := range events.ResultChan() {
			if seen, ok := event.Object.(*batchv1.Job); ok && seen.Name == j.Name && !*seen.Spec.Suspend {
				break
			}
		}
		out = append(out, time.Since(began))
	}
	return out
}

func smallJob(tenant, name string) *batchv1.Job {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Namespace: tenant, Name: name, Labels: map[string]string{"kueue.x-k8s.io/queue-name": tenant}}}
	j.Spec.Suspend = new(true)
	j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{
		Name: "main", Image: "main", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("1")}}}}}
	return j
}
