package view

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/provisioning/text"
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
	out.Usage = usageIn(cq, status.FlavorsReservation)
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

// usageIn returns how much of each quota is in use.
func usageIn(cq *kueue.ClusterQueue, reserved []kueue.FlavorUsage) (out []string) {
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
				out = append(out, line)
			}
		}
	}
	return out
}
