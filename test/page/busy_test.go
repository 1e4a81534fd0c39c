package page

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/history"
)

// teams of the busy world.
var teams = []string{"vision", "speech", "robotics", "research", "search", "ads", "genomics", "weather"}

// busy is a cluster with so many that wait and so many offerings. The same numbers give
// the same cluster.
func busy(pending, offerings int) *world {
	draw := rand.New(rand.NewPCG(6, 4))
	objects := []client.Object{flavor("h100"), flavor("b200"), flavor("a100"), check()}
	for i, name := range teams {
		cohort := "labs"
		if i >= 5 {
			cohort = ""
		}
		objects = append(objects, team(name, cohort, "h100=128", fmt.Sprintf("b200=%d", 64+32*(i%3)), "a100=64")...)
	}
	for i := range offerings {
		pool := []string{"h100", "b200", "a100"}[i%3]
		capacityType := []v1alpha1.CapacityType{v1alpha1.OnDemand, v1alpha1.Spot, v1alpha1.Reserved}[i/3%3]
		zone := fmt.Sprintf("us-%s-%d%c", []string{"east", "west", "central"}[i/9%3], 1+i/27%2, 'a'+rune(i/54%4))
		usd := fmt.Sprintf("%.2f", []float64{98.32, 142.4, 32.77}[i%3]*[]float64{1, 0.38, 0.7}[i/3%3]*(0.92+0.16*draw.Float64()))
		objects = append(objects, group(fmt.Sprintf("%s-%s-%s-%03d", pool, zone, capacityType.LabelValue(), i), pool, zone, capacityType, usd, 16,
			func(g *v1alpha1.NodeGroup) {
				bad := draw.Float64() * draw.Float64() * 1.3
				for n := range draw.IntN(9) {
					asked := int32(1 << draw.IntN(6))
					ago := time.Duration(float64(time.Hour) * (float64(n) + draw.Float64()) / 9)
					if draw.Float64() < bad {
						class := []v1alpha1.ErrorClass{v1alpha1.Stockout, v1alpha1.Stockout, v1alpha1.Stockout, v1alpha1.Timeout,
							v1alpha1.Quota}[draw.IntN(5)]
						launched(g, ago, asked, asked*2/3, class)
					} else {
						launched(g, ago, asked, asked, "")
					}
				}
				if bad > 0.8 {
					g.Status.Backoffs = []v1alpha1.Backoff{{Class: v1alpha1.Stockout, AtLeast: 1, Failures: 3,
						Until: metav1.NewTime(time.Now().Add(7 * time.Minute))}}
				}
				if i == 11 {
					g.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionSound, Status: metav1.ConditionFalse,
						Message: "another autoscaler changes the group: remove its tag k8s.io/cluster-autoscaler/enabled"}}
				}
			}))
	}
	for i, name := range teams {
		for j := range 3 {
			pool := []string{"h100", "b200", "a100"}[(i+j)%3]
			for k := 0; k < len(objects); k++ {
				g, ok := objects[k].(*v1alpha1.NodeGroup)
				if !ok || g.Spec.Template.Labels["pool"] != pool || draw.IntN(4) > 0 {
					continue
				}
				count := int32(2 + 3*draw.IntN(3))
				g.Status.Machines += count
				objects = append(objects, running(name, fmt.Sprintf("train-%d", j), pool, g.Name, count,
					time.Duration(10+draw.IntN(300))*time.Minute)...)
				break
			}
		}
	}
	kinds := []string{"pretrain", "finetune", "eval", "sweep", "distill", "rlhf", "tokenize"}
	for i := range pending {
		team := teams[min(draw.IntN(len(teams)), draw.IntN(len(teams)))]
		w := waiting(team, fmt.Sprintf("%s-%05d", kinds[draw.IntN(len(kinds))], i), int32(1<<draw.IntN(4)),
			time.Duration(draw.IntN(3*24*60))*time.Minute)
		switch draw.IntN(40) {
		case 0:
			w.Spec.Priority = new(int32(100))
		case 1:
			w.Spec.PodSets[0].Count = 64 // more than all quota
		case 2:
			w.Spec.PodSets[0].Template.Spec.NodeSelector = map[string]string{"pool": "tpu"}
		case 3:
			w.Status.Conditions = []metav1.Condition{{Type: kueue.WorkloadQuotaReserved, Status: metav1.ConditionFalse, Reason: "WaitingForCapacity",
				Message: "h100: stockout", LastTransitionTime: metav1.NewTime(time.Now())}}
			w.Status.RequeueState = &kueue.RequeueState{Count: new(int32(2)), RequeueAt: new(metav1.NewTime(time.Now().Add(9 * time.Minute)))}
		}
		objects = append(objects, w)
	}
	objects = append(objects, budgeted("labs", v1alpha1.BudgetMonth, "5000000", "61250.40"),
		budgeted("ads", v1alpha1.BudgetDay, "4000", "3500"), budgeted("weather", v1alpha1.BudgetWeek, "25000", "25000"))
	return newWorld(append(objects, racks(11, 8, 8, 6, 4, 4, 2, 1, 1)...)...)
}

// budgeted is a policy with a budget for all namespaces, so much of which is spent.
func budgeted(name string, period v1alpha1.BudgetPeriod, usd, spent string) *v1alpha1.CapacityPolicy {
	now := time.Now()
	out := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
	out.Spec.Budgets = []v1alpha1.CapacityBudget{{Name: "all", USD: resource.MustParse(usd), Period: period}}
	out.Status.Budgets = []v1alpha1.BudgetStatus{{Name: "all", Spent: spent, At: metav1.NewMicroTime(now), PeriodStart: metav1.NewTime(now),
		PeriodEnd: metav1.NewTime(now.Add(time.Minute))}}
	return out
}

// ended is the history of so many jobs of the teams over the last weeks, with what they have cost.
func ended(t *testing.T, jobs int) (out []client.Object) {
	t.Helper()
	draw := rand.New(rand.NewPCG(4, 6))
	records := map[string]*history.Record{}
	now := time.Now().Truncate(time.Second)
	for i := range jobs {
		over := now.Add(-time.Duration(draw.IntN(24*60)) * time.Minute)
		if i%2 == 0 {
			over = now.Add(-time.Duration(draw.IntN(26*24*60)) * time.Minute)
		}
		started := over.Add(-time.Duration(20+draw.IntN(400)) * time.Minute)
		reserved := started.Add(-time.Duration(3+draw.IntN(15)) * time.Minute)
		j := history.Job{Namespace: teams[draw.IntN(len(teams))], Name: fmt.Sprintf("job/past-%d", i), Workload: fmt.Sprintf("job-past-%d", i),
			Outcome: history.Finished, Queue: "main", ClusterQueue: "labs", User: []string{"alice@example.com", "bob@example.com", ""}[draw.IntN(3)],
			Pods: 4, Devices: map[string]int64{gpu: 32}, Created: reserved.Add(-time.Duration(draw.IntN(90)) * time.Minute), Reserved: reserved,
			Started: started, Ended: over}
		if draw.IntN(6) == 0 {
			j.Outcome, j.Why, j.Evictions = history.Failed, "exit code 1", 2
		}
		week := history.WeekOf(over)
		r := records[week.String()]
		if r == nil {
			r = history.NewRecord(week)
			records[week.String()] = r
		}
		r.Jobs = append(r.Jobs, j)
		usd := 4 * 98_320_000 * over.Sub(started).Milliseconds() / time.Hour.Milliseconds()
		r.Charge(history.Cost{Day: over.UTC().Format(time.DateOnly), Namespace: j.Namespace, Queue: j.Queue, User: j.User, Workload: j.Workload,
			Group: "h100", Purpose: "used", MicroUSD: usd})
		r.Charge(history.Cost{Day: over.UTC().Format(time.DateOnly), Namespace: j.Namespace, Queue: j.Queue, Group: "h100", Purpose: "idle",
			MicroUSD: usd / 20})
	}
	for _, r := range records {
		slices.SortFunc(r.Jobs, func(a, b history.Job) int { return a.Ended.Compare(b.Ended) })
		out = append(out, kept(t, r))
	}
	return out
}
