package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/queueing"
)

// queueLines are those who wait, by ClusterQueue and in their order.
type queueLines []queueLine

// queueLine is one Workload without quota.
type queueLine struct {
	ClusterQueue string `json:"clusterQueue"`
	// Position is from 1; 0 has its turn, and waits for Muster alone.
	Position  int    `json:"position"`
	Namespace string `json:"namespace"`
	// Name is the job's, or the Workload's where nobody controls it.
	Name     string    `json:"name"`
	Workload string    `json:"workload"`
	Priority int32     `json:"priority"`
	Created  time.Time `json:"created"`
	Reason   string    `json:"reason"`
	Words    string    `json:"words"`
	Message  string    `json:"message"`
	// Next is when it is looked at again though nothing happens; unset is never.
	Next *time.Time `json:"next,omitempty"`

	age, next string
}

func newQueueCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "queue [CLUSTERQUEUE]",
		Short: "Who waits in which queue, in which order, and for what",
		Long: `queue lists those who wait in a ClusterQueue, or in all of them, in the order in
which they are judged, with what each waits for. One without a position has its
turn: nothing is in its way but Muster's next step.`,
		Example: `  kubectl muster queue
  kubectl muster queue research --watch
  kubectl muster queue -o json | jq -r '.[] | select(.reason == "WaitingForCapacity") | .name'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(command *cobra.Command, args []string) error {
			return o.answer(command, func(ctx context.Context) (answer, error) { return o.queue(ctx, args) })
		},
		ValidArgsFunction: o.completeQueue,
	}
	o.addOutput(command)
	return command
}

func (o *options) queue(ctx context.Context, names []string) (answer, error) {
	kube, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	p, err := o.look(ctx, kube, namespace, queueKinds)
	if err != nil {
		return nil, err
	}
	if !p.knowsQueues() {
		return nil, fmt.Errorf("you may not see the queues. What you may not do:\n  - %s", strings.Join(lacking(p.missing), "\n  - "))
	}
	if len(names) > 0 && !slices.Contains(p.queueNames(), names[0]) {
		return nil, fmt.Errorf("there is no ClusterQueue %q; there are: %s", names[0], cmp.Or(strings.Join(p.queueNames(), ", "), "none"))
	}
	return p.lines(names...), nil
}

// queueNames are those of the ClusterQueues.
func (p *picture) queueNames() []string {
	names := make([]string, len(p.clusterQueues))
	for i, cq := range p.clusterQueues {
		names[i] = cq.Name
	}
	slices.Sort(names)
	return names
}

// lines are those who wait in the ClusterQueues of the names, or in all.
func (p *picture) lines(names ...string) queueLines {
	out := queueLines{}
	for _, cq := range p.queueNames() {
		if len(names) > 0 && !slices.Contains(names, cq) {
			continue
		}
		for _, w := range p.haveTheirTurn(cq) {
			l := p.lineOf(cq, w)
			l.Words = "has its turn"
			out = append(out, l)
		}
		for i, w := range p.queues.InLine(kueue.ClusterQueueReference(cq)) {
			l := p.lineOf(cq, w)
			l.Position = i + 1
			l.Reason, l.Message = p.why(w)
			l.Words = inWords(l.Reason)
			out = append(out, l)
		}
	}
	return out
}

// haveTheirTurn are those in a ClusterQueue that the next step gives quota to.
func (p *picture) haveTheirTurn(cq string) (out []*kueue.Workload) {
	for _, w := range p.workloads {
		if v, ok := p.verdicts[w.UID]; ok && v.Action == queueing.Reserve && string(v.Status.Admission.ClusterQueue) == cq {
			out = append(out, w)
		}
	}
	slices.SortFunc(out, func(a, b *kueue.Workload) int {
		return cmp.Or(cmp.Compare(priorityOf(b), priorityOf(a)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
	})
	return out
}

func (p *picture) lineOf(cq string, w *kueue.Workload) queueLine {
	out := queueLine{
		ClusterQueue: cq, Namespace: w.Namespace, Name: "workload/" + w.Name, Workload: w.Name, Priority: priorityOf(w),
		Created: w.CreationTimestamp.Time, age: ago(p.now, w.CreationTimestamp.Time),
	}
	if owner := metav1.GetControllerOf(w); owner != nil {
		out.Name = strings.ToLower(owner.Kind) + "/" + owner.Name
	}
	if next := p.next(w); !next.IsZero() {
		out.Next, out.next = &next, in(p.now, next)
	}
	return out
}

// why a Workload waits, by what was decided, or else by what Muster has written.
func (p *picture) why(w *kueue.Workload) (reason, message string) {
	reason, message, _ = p.queues.Told(w.UID)
	return cmp.Or(reason, kueue.WorkloadQuotaReservedReasonPendingEvaluation), message
}

func (l queueLines) print(p *printer) error {
	if len(l) == 0 {
		fmt.Fprintln(p.out, "Nobody waits.")
		return nil
	}
	columns := []string{"CLUSTERQUEUE", "POSITION", "NAMESPACE", "NAME", "PRIORITY", "AGE", "WHY", "NEXT TRY"}
	if p.wide {
		columns = append(columns, "IN FULL")
	}
	rows := make([][]string, len(l))
	for i, x := range l {
		position := ""
		if x.Position > 0 {
			position = fmt.Sprint(x.Position)
		}
		rows[i] = []string{x.ClusterQueue, position, x.Namespace, x.Name, fmt.Sprint(x.Priority), x.age, x.Words, x.next}
		if p.wide {
			rows[i] = append(rows[i], x.Message)
		}
	}
	return p.rows("", columns, rows)
}

// completeQueue offers the ClusterQueues.
func (o *options) completeQueue(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	kube, _, err := o.connect()
	list := &kueue.ClusterQueueList{}
	if err != nil || len(args) > 0 || kube.List(command.Context(), list) != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	out := make([]string, len(list.Items))
	for i := range list.Items {
		out[i] = list.Items[i].Name
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
