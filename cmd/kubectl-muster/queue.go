package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
)

// queueAnswer is the queues, and what waits beside them.
type queueAnswer struct {
	queueLines
	checked, refused []view.QueueLine
	// temporary says which quotas hold until a time.
	temporary []string
}

// recordedAnswer is shown to a caller that may not read the queues.
type recordedAnswer struct {
	queueLines
	namespace string
	missing   []view.Right
}

// MarshalJSON writes the lines alone.
func (a recordedAnswer) MarshalJSON() ([]byte, error) { return json.Marshal(a.queueLines) }

func (a recordedAnswer) print(p *printer) error {
	defer p.missing("this is what Muster has recorded and published", a.missing)
	if len(a.queueLines) == 0 {
		fmt.Fprintf(p.out, "No workload of namespace %s waits.\n", a.namespace)
		return nil
	}
	columns := []string{"QUEUE", "POS", "NAME", "PRIORITY", "AGE", "WHY"}
	if p.wide {
		columns = append(columns, "MESSAGE")
	}
	rows := make([][]string, len(a.queueLines))
	for i, x := range a.queueLines {
		position := ""
		if x.Position > 0 {
			position = fmt.Sprint(x.Position)
		}
		rows[i] = []string{x.LocalQueue, position, x.Name, fmt.Sprint(x.Priority), x.Age, p.short(x.Words)}
		if p.wide {
			rows[i] = append(rows[i], x.Message)
		}
	}
	p.heading(fmt.Sprintf("Waiting in namespace %s, as Muster recorded", a.namespace))
	return p.rows("  ", columns, rows)
}

// of is what of the answer is about a namespace; all of it if that is empty.
func (a queueAnswer) of(namespace string) queueAnswer {
	others := func(l view.QueueLine) bool { return namespace != "" && l.Namespace != namespace }
	a.queueLines = slices.DeleteFunc(a.queueLines, others)
	a.checked, a.refused = slices.DeleteFunc(a.checked, others), slices.DeleteFunc(a.refused, others)
	return a
}

// MarshalJSON writes the lines alone.
func (a queueAnswer) MarshalJSON() ([]byte, error) { return json.Marshal(a.queueLines) }

func (a queueAnswer) print(p *printer) error {
	var never, refused []view.QueueLine
	for _, l := range slices.Concat(a.refused, a.queueLines) {
		if l.Never {
			never = append(never, l)
		}
	}
	for _, l := range a.refused {
		if !l.Never {
			refused = append(refused, l)
		}
	}
	if len(never) > 0 {
		p.alarm(sentenceOf(never, view.CannotStart+" (kubectl muster explain says why)", view.CannotStart+" (kubectl muster explain says why)"))
	}
	if err := a.queueLines.print(p); err != nil {
		return err
	}
	if len(a.checked) > 0 {
		fmt.Fprintln(p.out, sentenceOf(a.checked, "has quota and waits for admission checks, such as for machines",
			"have quota and wait for admission checks, such as for machines"))
	}
	if len(refused) > 0 {
		fmt.Fprintln(p.out, sentenceOf(refused, "is in no queue: kubectl muster explain says why",
			"are in no queue: kubectl muster explain says why"))
	}
	for _, line := range a.temporary {
		fmt.Fprintln(p.out, line+".")
	}
	return nil
}

// sentenceOf says something of one or several workloads, and names some of them.
func sentenceOf(lines []view.QueueLine, one, several string) string {
	what := "1 workload " + one
	if len(lines) > 1 {
		what = fmt.Sprintf("%d workloads %s", len(lines), several)
	}
	var names []string
	for _, l := range lines[:min(mostNamed, len(lines))] {
		names = append(names, l.Namespace+" "+l.Name)
	}
	if len(lines) > mostNamed {
		names = append(names, "...")
	}
	return what + ": " + strings.Join(names, ", ")
}

// mostNamed is how many workloads a sentence names.
const mostNamed = 5

// queueLines are the pending Workloads by ClusterQueue, in queue order.
type queueLines []view.QueueLine

func newQueueCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "queue [CLUSTERQUEUE]",
		Short: "List the pending jobs of the queues in order, and what each waits for",
		Long: `List the pending jobs of a ClusterQueue, or of all, in the order in which they are
considered, and what each waits for. A job without a position is next: nothing holds it
but Muster's next step. Where jobs run in other clusters (MultiKueue), those that have their
quota here and wait for a cluster come first, without a position; -o wide tells what each
cluster has said. Above are the jobs that cannot start as specified, however long they wait.
Below are those that have quota and wait for machines or another admission check.

With --namespace only jobs of that namespace are listed, with their positions among all. If you
may not read the queues, the jobs of your namespace are listed as Muster recorded them.`,
		Example: `  kubectl muster queue
  kubectl muster queue research --watch
  kubectl muster queue --namespace team-a
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
	p, err := o.look(ctx, kube, namespace, view.QueueKinds)
	if err != nil {
		return nil, err
	}
	if err := o.given(p); err != nil {
		return nil, err
	}
	if !p.KnowsQueues() {
		if lines, ok := p.Recorded(); ok && len(names) == 0 {
			return recordedAnswer{lines, namespace, p.Missing}, nil
		}
		return nil, o.lacks("the queues", p.Missing)
	}
	if len(names) > 0 && !slices.Contains(p.QueueNames(), names[0]) {
		return nil, noQueue(p, names[0])
	}
	checked, refused := p.NotInLine(names...)
	return queueAnswer{p.Lines(names...), checked, refused, p.TemporaryQuotas(names...)}.of(*o.config.Namespace), nil
}

// noQueue is the error for the name of a ClusterQueue that does not exist.
func noQueue(p *view.Picture, name string) error {
	return fmt.Errorf("ClusterQueue %q does not exist; those that do: %s", name, cmp.Or(strings.Join(p.QueueNames(), ", "), "none"))
}

func (l queueLines) print(p *printer) error {
	if len(l) == 0 {
		fmt.Fprintln(p.out, "No workload is pending.")
		return nil
	}
	columns := []string{"QUEUE", "POS", "NAMESPACE", "NAME", "AGE", "WHY"}
	if p.wide {
		columns = append(columns, "PRIORITY", "NEXT TRY", "MESSAGE")
	}
	rows := make([][]string, len(l))
	for i, x := range l {
		position := ""
		if x.Position > 0 {
			position = fmt.Sprint(x.Position)
		}
		rows[i] = []string{x.ClusterQueue, position, x.Namespace, x.Name, x.Age, p.short(x.Words)}
		if p.wide {
			rows[i] = append(rows[i], fmt.Sprint(x.Priority), x.NextTry, x.Message)
		}
	}
	return p.rows("", columns, rows)
}

// completeQueue completes the ClusterQueues.
func (o *options) completeQueue(command *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	kube, _, err := o.connect()
	if err != nil || len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return namesIn(command.Context(), kube, &kueue.ClusterQueueList{}, ""), cobra.ShellCompDirectiveNoFileComp
}

// namesIn returns the names of the objects of a list, each after the prefix, for completion; none if they cannot be listed.
func namesIn(ctx context.Context, kube client.Reader, list client.ObjectList, prefix string, options ...client.ListOption) (out []string) {
	if kube.List(ctx, list, options...) != nil {
		return nil
	}
	objects, err := apimeta.ExtractList(list)
	if err != nil {
		return nil
	}
	for _, o := range objects {
		out = append(out, prefix+o.(client.Object).GetName())
	}
	return out
}
