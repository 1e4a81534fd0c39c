package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/view"
)

// queueLines are those who wait, by ClusterQueue and in their order.
type queueLines []view.QueueLine

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
	p, err := o.look(ctx, kube, namespace, view.QueueKinds)
	if err != nil {
		return nil, err
	}
	if !p.KnowsQueues() {
		return nil, fmt.Errorf("you may not see the queues. What you may not do:\n  - %s", strings.Join(lacking(p.Missing), "\n  - "))
	}
	if len(names) > 0 && !slices.Contains(p.QueueNames(), names[0]) {
		return nil, fmt.Errorf("there is no ClusterQueue %q; there are: %s", names[0], cmp.Or(strings.Join(p.QueueNames(), ", "), "none"))
	}
	return queueLines(p.Lines(names...)), nil
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
