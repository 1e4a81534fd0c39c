package scheduler_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/queueing"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/quota"
	"github.com/muster-dev/muster/queueing/scheduler"
	"github.com/muster-dev/muster/queueing/workload"
	"github.com/muster-dev/muster/test/queues"
)

// twoGroups is a queue in a tree with others, with two resource groups, whose
// flavors have taints and labels that not all pods suit.
func twoGroups(t *testing.T, r *rand.Rand) *queues.World {
	w := queues.New()
	for i, name := range []string{"spot", "ondemand", "reserved"} {
		f := queues.Flavor(name, nil)
		f.Spec.NodeLabels = map[string]string{"pool": name, "arch": []string{"arm", "amd"}[i%2]}
		if name == "spot" {
			f.Spec.NodeTaints = []corev1.Taint{{Key: "spot", Effect: corev1.TaintEffectNoSchedule}}
		}
		w.Set(f)
	}
	for i, name := range []string{"fast", "slow"} {
		f := queues.Flavor(name, nil)
		f.Spec.NodeLabels = map[string]string{"arch": []string{"arm", "amd"}[i]}
		if r.IntN(2) == 0 {
			f.Spec.NodeLabels = nil
		}
		w.Set(f)
	}
	limit := func() *resource.Quantity {
		if r.IntN(2) == 0 {
			return nil
		}
		return resource.NewQuantity(r.Int64N(6), resource.DecimalSI)
	}
	groups := func() []kueue.ResourceGroup {
		group := func(resources []corev1.ResourceName, flavors ...kueue.ResourceFlavorReference) kueue.ResourceGroup {
			r.Shuffle(len(flavors), func(i, j int) { flavors[i], flavors[j] = flavors[j], flavors[i] })
			g := kueue.ResourceGroup{CoveredResources: resources}
			for _, f := range flavors {
				fq := kueue.FlavorQuotas{Name: f}
				for _, name := range resources {
					fq.Resources = append(fq.Resources, kueue.ResourceQuota{
						Name: name, NominalQuota: *resource.NewQuantity(r.Int64N(9), resource.DecimalSI), BorrowingLimit: limit(), LendingLimit: limit(),
					})
				}
				g.Flavors = append(g.Flavors, fq)
			}
			return g
		}
		return []kueue.ResourceGroup{group([]corev1.ResourceName{"cpu", "gpu"}, "spot", "ondemand", "reserved"),
			group([]corev1.ResourceName{"disk"}, "fast", "slow")}
	}
	// What is borrowed may come from the own department or from another one.
	w.Set(&kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: "near"}, Spec: kueue.CohortSpec{ParentName: "far"}})
	for _, name := range []string{"ours", "neighbour", "theirs"} {
		cohort := map[string]string{"ours": "near", "neighbour": "near", "theirs": "far"}[name]
		cq := queues.ClusterQueue(t, name, map[string]string{
			"cohort": cohort, "whenCanBorrow": []string{string(kueue.MayStopSearch), string(kueue.TryNextFlavor)}[r.IntN(2)],
		}, "")
		cq.Spec.ResourceGroups = groups()
		w.Set(cq)
		w.Set(queues.LocalQueue(name, name, ""))
	}
	return w
}

// randomPods is a Workload of up to two podSets.
func randomPods(t *testing.T, w *queues.World, r *rand.Rand) *cache.Workload {
	object := w.Workload(t, "w", map[string]string{"lq": "ours"})
	object.Spec.PodSets = nil
	for i := range 1 + r.IntN(2) {
		spec := corev1.PodSpec{}
		if r.IntN(3) > 0 {
			spec.Tolerations = []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
		}
		if r.IntN(4) == 0 {
			spec.NodeSelector = map[string]string{"arch": []string{"arm", "amd"}[r.IntN(2)]}
		}
		requests := corev1.ResourceList{}
		for _, name := range []corev1.ResourceName{"cpu", "gpu", "disk"} {
			if r.IntN(3) > 0 {
				requests[name] = *resource.NewQuantity(r.Int64N(5), resource.DecimalSI)
			}
		}
		spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}
		object.Spec.PodSets = append(object.Spec.PodSets, kueue.PodSet{
			Name: kueue.PodSetReference(fmt.Sprint(i)), Count: 1 + r.Int32N(3), Template: corev1.PodTemplateSpec{Spec: spec},
		})
	}
	return w.State.NewWorkload(object)
}

// liked is a flavor for one podSet and one resource group, with its rank: less is better.
type liked struct {
	flavor kueue.ResourceFlavorReference
	liking []int
}

// twin lists all combinations of flavors, drops those that do not fit as a whole, and takes the one with the best rank at its first
// place, then at its second, and so on.
func twin(s *queueing.State, q *cache.ClusterQueue, w *cache.Workload) (flavors []kueue.ResourceFlavorReference, ok bool) {
	type place struct {
		podSet, group int
		need          nodegroups.Resources
	}
	var places []place
	for i := range w.Object.Spec.PodSets {
		for g, group := range q.Object.Spec.ResourceGroups {
			need := nodegroups.Resources{}
			for _, name := range group.CoveredResources {
				if v := w.Pod[i][name]; v > 0 {
					need[name] = v * int64(w.Object.Spec.PodSets[i].Count)
				}
			}
			if len(need) > 0 {
				places = append(places, place{i, g, need})
			}
		}
	}
	var best []liked
	var enumerate func(so []liked, used quota.Amounts)
	enumerate = func(so []liked, used quota.Amounts) {
		if len(so) == len(places) {
			if !q.Node.Fits(used) {
				return
			}
			if best == nil || slices.CompareFunc(so, best, func(a, b liked) int { return slices.Compare(a.liking, b.liking) }) < 0 {
				best = slices.Clone(so)
			}
			return
		}
		p := places[len(so)]
		for k, fq := range q.Object.Spec.ResourceGroups[p.group].Flavors {
			f := s.Flavors[fq.Name]
			suits := workload.Mismatch(&w.Object.Spec.PodSets[p.podSet].Template.Spec, f) == ""
			for j := range so {
				if places[j].podSet == p.podSet {
					_, clash := workload.Contradiction(s.Flavors[so[j].flavor], f)
					suits = suits && !clash
				}
			}
			if !suits {
				continue
			}
			now := quota.Amounts{}
			now.Add(used)
			distance := 0
			for name, v := range p.need {
				fr := quota.FlavorResource{Flavor: fq.Name, Resource: name}
				now[fr] += v
				distance = max(distance, q.Node.BorrowingLevel(fr, now[fr]))
			}
			// Nominal quota ranks equal by default. If the queue prefers it, it comes first, then what is borrowed from the nearest
			// cohort.
			liking := []int{0, 0, k}
			if distance > 0 && q.Object.Spec.FlavorFungibility.WhenCanBorrow == kueue.TryNextFlavor {
				liking = []int{1, distance, k}
			}
			enumerate(append(slices.Clone(so), liked{fq.Name, liking}), now)
		}
	}
	enumerate(nil, quota.Amounts{})
	for _, c := range best {
		flavors = append(flavors, c.flavor)
	}
	return flavors, best != nil || len(places) == 0
}

// TestAssignmentAgainstItsTwin compares the search for flavors with one that tries
// everything, on 100,000 random Workloads in queues of random use.
func TestAssignmentAgainstItsTwin(t *testing.T) {
	found, refused, seeds := 0, 0, queues.Cases(2000)
	for seed := range seeds {
		r := rand.New(rand.NewPCG(seed, 5))
		w := twoGroups(t, r)
		w.Cycles(t)
		q, theirs := w.State.Queues["ours"], w.State.Queues["theirs"]
		for range 50 {
			x := randomPods(t, w, r)
			want, ok := twin(w.State, q, x)
			p, a := scheduler.New(w.State.Cache, w.Plan, w.State.Capacity(), w.Now, time.Time{}, scheduler.DefaultBudget).Assign(q, x)
			var got []kueue.ResourceFlavorReference
			if p != nil {
				for _, o := range a.Chosen {
					got = append(got, o.Flavor)
				}
			}
			if (p != nil) != ok || slices.Compare(got, want) != 0 {
				t.Fatalf("seed %d: on %v (%s), the twin on %v (%v)", seed, got, a.Notes.Message(), want, ok)
			}
			if p == nil {
				refused++
				continue
			}
			found++
			q.Node.Add(p.Usage)
			if r.IntN(3) > 0 {
				q.Node.Sub(p.Usage)
			} else if r.IntN(2) == 0 {
				fr := quota.FlavorResource{Flavor: []kueue.ResourceFlavorReference{"spot", "ondemand"}[r.IntN(2)], Resource: "cpu"}
				theirs.Node.Add(quota.Amounts{fr: cmp.Or(max(0, min(1000, theirs.Node.Available(fr))), 0)})
			}
		}
	}
	if found < 10*int(seeds) || refused < 10*int(seeds) {
		t.Errorf("%d found and %d refused: too few of one to prove anything", found, refused)
	}
}
