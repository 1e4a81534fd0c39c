package view

import (
	"cmp"
	"slices"
	"strings"
	"time"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing/history"
	"github.com/muster-dev/muster/queueing/lifecycle"
	"github.com/muster-dev/muster/queueing/workload"
)

// QueueLine is a Workload without quota, or one that waits for another cluster to run it.
type QueueLine struct {
	// ClusterQueue is empty where the caller may not read the queues.
	ClusterQueue string `json:"clusterQueue,omitempty"`
	LocalQueue   string `json:"localQueue,omitempty"`
	// Position counts from 1; 0 means that it has quota here, or that Muster is about to act on it.
	Position  int    `json:"position"`
	Namespace string `json:"namespace"`
	// Name is the job's, or the Workload's if it has no job.
	Name     string    `json:"name"`
	Workload string    `json:"workload"`
	Priority int32     `json:"priority"`
	Created  time.Time `json:"created"`
	Reason   string    `json:"reason"`
	Words    string    `json:"words"`
	Message  string    `json:"message"`
	// Never means that it waits in vain: only another specification lets it start.
	Never bool `json:"never,omitempty"`
	// Nominated are the clusters that it has been given to and that do not run it yet.
	Nominated []string `json:"nominatedClusters,omitempty"`
	// Next is when it is evaluated again without an event; unset is never.
	Next *time.Time `json:"next,omitempty"`

	// Age and NextTry are Created and Next as text.
	Age     string `json:"-"`
	NextTry string `json:"-"`
}

// QueueNames returns the names of the ClusterQueues.
func (p *Picture) QueueNames() []string {
	names := make([]string, len(p.ClusterQueues))
	for i, cq := range p.ClusterQueues {
		names[i] = cq.Name
	}
	slices.Sort(names)
	return names
}

// Lines lists the pending Workloads of the named ClusterQueues, or of all. Those that have quota and wait for a cluster come first: they
// hold what the others wait for.
func (p *Picture) Lines(names ...string) []QueueLine {
	out := []QueueLine{}
	for _, cq := range p.QueueNames() {
		if len(names) > 0 && !slices.Contains(names, cq) {
			continue
		}
		for _, w := range p.waitForACluster(cq) {
			l := p.lineOf(cq, w)
			about := &Explanation{}
			p.explainClusters(about, w)
			l.Reason, l.Words, l.Message, l.Nominated = ReasonWaitingForCluster, about.Summary, strings.Join(about.Causes, "; "),
				w.Status.NominatedClusterNames
			out = append(out, l)
		}
		for _, w := range p.haveTheirTurn(cq) {
			l := p.lineOf(cq, w)
			l.Words = "is next"
			out = append(out, l)
		}
		for i, w := range p.Queues.PendingInOrder(kueue.ClusterQueueReference(cq)) {
			l := p.lineOf(cq, w)
			l.Position = i + 1
			l.setReason(p.whyWaits(w))
			out = append(out, l)
		}
	}
	return out
}

// NotInLine returns Workloads that wait and have no line: those with quota that wait for their admission checks, such as for
// machines, and, of all ClusterQueues together, those that no queue takes as they are.
func (p *Picture) NotInLine(names ...string) (checked, refused []QueueLine) {
	inLine := map[types.NamespacedName]bool{}
	for _, l := range p.Lines() {
		inLine[types.NamespacedName{Namespace: l.Namespace, Name: l.Workload}] = true
	}
	for _, w := range p.Workloads {
		switch {
		case inLine[workload.KeyOf(w)] || workload.IsFinished(w) || !workload.IsActive(w):
		case workload.HasQuota(w):
			if cq := string(w.Status.Admission.ClusterQueue); !workload.IsAdmitted(w) && (len(names) == 0 || slices.Contains(names, cq)) {
				checked = append(checked, p.lineOf(cq, w))
			}
		case len(names) == 0:
			l := p.lineOf("", w)
			l.setReason(p.whyWaits(w))
			refused = append(refused, l)
		}
	}
	byName := func(a, b QueueLine) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	}
	slices.SortFunc(checked, byName)
	slices.SortFunc(refused, byName)
	return checked, refused
}

// setReason sets why the Workload waits.
func (l *QueueLine) setReason(because waits) {
	l.Reason, l.Words, l.Message, l.Never = because.reason, because.words, because.message, because.never
}

// Recorded lists the Workloads that wait, of those that the caller may read, in the order in which they came, as Muster recorded them. It
// is for callers that may not read what a decision needs. ok reports whether any may be read.
func (p *Picture) Recorded() (lines []QueueLine, ok bool) {
	if !p.ReadsWorkloads() {
		return nil, false
	}
	lines = []QueueLine{}
	for _, w := range slices.SortedFunc(slices.Values(p.Workloads), inOrder) {
		if workload.IsFinished(w) || workload.IsAdmitted(w) || !workload.IsActive(w) {
			continue
		}
		l := p.lineOf("", w)
		if _, s := p.standingOf(w); s != nil {
			l.Position = s.Places[w.Name].Position
		}
		switch c := apimeta.FindStatusCondition(w.Status.Conditions, kueue.WorkloadQuotaReserved); {
		case workload.HasQuota(w):
			l.ClusterQueue, l.Words = string(w.Status.Admission.ClusterQueue), "has quota and waits for admission checks"
		case c == nil:
			l.Words = "nothing is recorded yet"
		default:
			l.Reason, l.Words, l.Message = c.Reason, p.wordsFor(w, c.Reason), plainly(c.Message)
		}
		lines = append(lines, l)
	}
	return lines, true
}

// ReadsWorkloads reports whether the caller may read Workloads, at least those of its namespace.
func (p *Picture) ReadsWorkloads() bool { return !p.unread[QueueKinds[0].Resource] }

// haveTheirTurn returns the Workloads of a ClusterQueue that the next step reserves quota for.
func (p *Picture) haveTheirTurn(cq string) (out []*kueue.Workload) {
	for _, w := range p.Workloads {
		if v, ok := p.verdicts[w.UID]; ok && v.Action == lifecycle.Reserve && string(v.Status.Admission.ClusterQueue) == cq {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, inOrder)
	return out
}

// inOrder is that of a queue: by priority, then by the time that they wait.
func inOrder(a, b *kueue.Workload) int {
	return cmp.Or(cmp.Compare(priorityOf(b), priorityOf(a)), workload.WaitsSince(a).Compare(workload.WaitsSince(b)), cmp.Compare(a.UID, b.UID))
}

// waitForACluster returns the Workloads that have quota of the ClusterQueue, and that another cluster is to run.
func (p *Picture) waitForACluster(cq string) (out []*kueue.Workload) {
	for _, w := range p.Workloads {
		if p.waitsForACluster(w) && string(w.Status.Admission.ClusterQueue) == cq {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, inOrder)
	return out
}

func (p *Picture) lineOf(cq string, w *kueue.Workload) QueueLine {
	out := QueueLine{
		ClusterQueue: cq, LocalQueue: string(w.Spec.QueueName), Namespace: w.Namespace, Name: history.NameOf(w), Workload: w.Name,
		Priority: priorityOf(w), Created: w.CreationTimestamp.Time, Age: ago(p.Now, w.CreationTimestamp.Time),
	}
	if next := p.next(w); !next.IsZero() {
		out.Next, out.NextTry = &next, in(p.Now, next)
	}
	return out
}
