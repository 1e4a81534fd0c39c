package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
)

// queueAnswer is the queues, and what waits beside them.
type queueAnswer struct {
	queueLines
	beside []string
}

// recordedAnswer is what a caller is told that may not read the queues.
type recordedAnswer struct {
	queueLines
	namespace string
	missing   []view.Right
}

// MarshalJSON writes the lines alone.
func (a recordedAnswer) MarshalJSON() ([]byte, error) { return json.Marshal(a.queueLines) }

func (a recordedAnswer) print(p *printer) error {
	p.list("Missing rights, without which there is no order of the queues", lacking(a.missing))
	if len(a.queueLines) == 0 {
		fmt.Fprintf(p.out, "\nNo workload of namespace %s waits.\n", a.namespace)
		return nil
	}
	columns := []string{"QUEUE", "NAME", "PRIORITY", "AGE", "WHY"}
	if p.wide {
		columns = append(columns, "MESSAGE")
	}
	rows := make([][]string, len(a.queueLines))
	for i, x := range a.queueLines {
		rows[i] = []string{x.LocalQueue, x.Name, fmt.Sprint(x.Priority), x.Age, x.Words}
		if p.wide {
			rows[i] = append(rows[i], x.Message)
		}
	}
	return p.part(fmt.Sprintf("Waiting in namespace %s, as Muster recorded", a.namespace), columns, rows)
}

// of is what of the answer is about a namespace; all of it if that is empty.
func (a queueAnswer) of(namespace string) queueAnswer {
	if namespace != "" {
		a.queueLines = slices.DeleteFunc(a.queueLines, func(l view.QueueLine) bool { return l.Namespace != namespace })
	}
	return a
}

// MarshalJSON writes the lines alone.
func (a queueAnswer) MarshalJSON() ([]byte, error) { return json.Marshal(a.queueLines) }

func (a queueAnswer) print(p *printer) error {
	if err := a.queueLines.print(p); err != nil {
		return err
	}
	for _, sentence := range a.beside {
		fmt.Fprintln(p.out, sentence)
	}
	return nil
}

func besideQueues(checked, refused []string) (out []string) {
	tell := func(names []string, one, several string) {
		if n := len(names); n > 0 {
			what := "1 workload " + one
			if n > 1 {
				what = fmt.Sprintf("%d workloads %s", n, several)
			}
			more := ""
			if n > mostNamed {
				names, more = names[:mostNamed], ", ..."
			}
			out = append(out, fmt.Sprintf("%s: %s%s", what, strings.Join(names, ", "), more))
		}
	}
	tell(checked, "has quota and waits for admission checks, such as for machines",
		"have quota and wait for admission checks, such as for machines")
	tell(refused, "is in no queue: kubectl muster explain says why", "are in no queue: kubectl muster explain says why")
	return out
}

// inNamespaceOnly are those of names with their namespace that are of one; all if that is empty.
func inNamespaceOnly(names []string, namespace string) []string {
	return slices.DeleteFunc(names, func(name string) bool { return namespace != "" && !strings.HasPrefix(name, namespace+" ") })
}

// mostNamed is how many workloads are named that are in no line.
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
cluster has said. Below are the jobs that wait and are in no line: those that have quota and
wait for machines or another admission check, and those that no queue takes as they are.

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
	if !p.KnowsQueues() {
		if lines, ok := p.Recorded(); ok && len(names) == 0 {
			return recordedAnswer{lines, namespace, p.Missing}, nil
		}
		return nil, fmt.Errorf("you lack the rights to read the queues. Missing:\n  - %s", strings.Join(lacking(p.Missing), "\n  - "))
	}
	if len(names) > 0 && !slices.Contains(p.QueueNames(), names[0]) {
		return nil, fmt.Errorf("ClusterQueue %q does not exist; those that do: %s", names[0], cmp.Or(strings.Join(p.QueueNames(), ", "), "none"))
	}
	of := *o.config.Namespace
	checked, refused := p.NotInLine(names...)
	return queueAnswer{p.Lines(names...), besideQueues(inNamespaceOnly(checked, of), inNamespaceOnly(refused, of))}.of(of), nil
}

func (l queueLines) print(p *printer) error {
	if len(l) == 0 {
		fmt.Fprintln(p.out, "No workload is pending.")
		return nil
	}
	columns := []string{"CLUSTERQUEUE", "POSITION", "NAMESPACE", "NAME", "PRIORITY", "AGE", "WHY", "NEXT TRY"}
	if p.wide {
		columns = append(columns, "MESSAGE")
	}
	rows := make([][]string, len(l))
	for i, x := range l {
		position := ""
		if x.Position > 0 {
			position = fmt.Sprint(x.Position)
		}
		rows[i] = []string{x.ClusterQueue, position, x.Namespace, x.Name, fmt.Sprint(x.Priority), x.Age, x.Words, x.NextTry}
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
