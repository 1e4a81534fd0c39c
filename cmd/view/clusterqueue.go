package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/queueing/quota"
)

// ExplainClusterQueue returns what a ClusterQueue has admitted, what waits in it and why, and its quota in use.
// The ClusterQueue must exist.
func (p *Picture) ExplainClusterQueue(name string) *Explanation {
	cq := p.ClusterQueues[slices.IndexFunc(p.ClusterQueues, func(q *kueue.ClusterQueue) bool { return q.Name == name })]
	out := &Explanation{Kind: "ClusterQueue", Name: cq.Name, Missing: p.Missing}
	status := cq.Status
	if p.Decides() {
		if computed, ok := p.Queues.Report(p.Now).ClusterQueues[cq.Name]; ok {
			status = computed
		}
	}
	lines := p.Lines(cq.Name)
	out.Summary = fmt.Sprintf("has %s admitted, and %d wait", text.Plural(int(status.AdmittedWorkloads), "job"), len(lines))
	if c := apimeta.FindStatusCondition(status.Conditions, kueue.ClusterQueueActive); c != nil && c.Status == metav1.ConditionFalse {
		out.Summary, out.Causes = "admits nothing", []string{c.Message}
	}
	out.Waiting = waitingBy(lines)
	out.Usage = usageIn(cq, status.FlavorsReservation, p.Now)
	return out
}

// waitingBy counts the lines by what they wait for: those that can never start first, then the most frequent.
func waitingBy(lines []QueueLine) (out []string) {
	counts, never := map[string]int{}, map[string]bool{}
	for i := range lines {
		l := &lines[i]
		words, _, _ := strings.Cut(l.Words, ": ")
		counts[words]++
		never[words] = l.Never
		if !slices.Contains(out, words) {
			out = append(out, words)
		}
	}
	slices.SortStableFunc(out, func(a, b string) int {
		if never[a] != never[b] {
			if never[a] {
				return -1
			}
			return 1
		}
		return cmp.Compare(counts[b], counts[a])
	})
	for i, words := range out {
		out[i] = fmt.Sprintf("%s: %s", words, text.Plural(counts[words], "job"))
	}
	return out
}

// Temporarily says until when a quota holds, and what it is then.
func Temporarily(t *quota.Temporary, now time.Time) string {
	return fmt.Sprintf(", temporary until %s, then %s again", strings.TrimPrefix(in(now, t.Until), "at "), t.Former.String())
}

// TemporaryQuotas says which quotas of the named ClusterQueues, or of all, hold until a time.
func (p *Picture) TemporaryQuotas(names ...string) (out []string) {
	for _, cq := range p.ClusterQueues {
		if len(names) > 0 && !slices.Contains(names, cq.Name) {
			continue
		}
		for _, t := range quota.TemporaryOf(cq) {
			out = append(out, fmt.Sprintf("ClusterQueue %s has %s %s of flavor %s%s", cq.Name, t.Set.String(), t.Resource, t.Flavor,
				Temporarily(&t, p.Now)))
		}
	}
	slices.Sort(out)
	return out
}

// usageIn returns how much of each quota is in use.
func usageIn(cq *kueue.ClusterQueue, reserved []kueue.FlavorUsage, now time.Time) (out []string) {
	for _, group := range cq.Spec.ResourceGroups {
		for _, f := range group.Flavors {
			for _, r := range f.Resources {
				var used, borrowed resource.Quantity
				for i := range reserved {
					for _, u := range reserved[i].Resources {
						if reserved[i].Name == f.Name && u.Name == r.Name {
							used, borrowed = u.Total, u.Borrowed
						}
					}
				}
				line := fmt.Sprintf("flavor %s: %s of %s %s", f.Name, used.String(), r.NominalQuota.String(), r.Name)
				if !borrowed.IsZero() {
					line += fmt.Sprintf(", %s of it borrowed", borrowed.String())
				}
				if t := quota.TemporaryFor(cq, quota.FlavorResource{Flavor: f.Name, Resource: r.Name}); t != nil {
					line += Temporarily(t, now)
				}
				out = append(out, line)
			}
		}
	}
	return out
}
