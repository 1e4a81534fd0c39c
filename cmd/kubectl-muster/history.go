package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/view"
	"github.com/muster-dev/muster/queueing/history"
)

// pastJobs and pastSums print themselves as tables.
type (
	pastJobs []view.PastJob
	pastSums struct {
		by    string
		lines []view.PastSum
	}
)

func newHistoryCommand(o *options) *cobra.Command {
	var by string
	var since time.Duration
	groupings := append([]string{"job"}, view.SumsBy...)
	command := &cobra.Command{
		Use:   "history",
		Short: "Show what ran, waited and cost in the last weeks, by job, queue, namespace, user or week",
		Long: fmt.Sprintf(`Show the jobs that have ended in the last %d weeks: how long they waited and ran, and what their
machines have cost; or sums of them by LocalQueue, namespace, user or week. Muster records them in the
ConfigMaps muster-history-0 to -%d of its namespace once a minute, so they stay when their objects
are deleted. A job that was cancelled was deleted before it had ended.

WAITED is the time before the last start, and the mean of it in sums. The cost of a queue includes
machines that its jobs have left idle, and launches in vain: UNUSED is that part of it.
With --namespace only jobs of that namespace are listed. Users are recorded with the setting
queueing.recordUsers; what was not recorded, and machines that no job has, are (none).`, history.Slots, history.Slots-1),
		Example: `  kubectl muster history
  kubectl muster history --by queue --since 168h
  kubectl muster history --by user --since 168h
  kubectl muster history --by week -o csv
  kubectl muster history -o json | jq -r '.[] | select(.outcome == "Failed") | .name'`,
		Args: arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			if !slices.Contains(groupings, by) {
				return fmt.Errorf("--by=%q: use one of %s", by, strings.Join(groupings, ", "))
			}
			return o.answer(command, func(ctx context.Context) (answer, error) { return o.history(ctx, by, since) })
		},
	}
	command.Flags().StringVar(&by, "by", "job", "what to list: "+strings.Join(groupings, ", "))
	command.Flags().DurationVar(&since, "since", 0, "how far to look back; 0 is all that is kept")
	if err := command.RegisterFlagCompletionFunc("by", cobra.FixedCompletions(groupings, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is defined above
	}
	o.addOutput(command, asCSV)
	return command
}

func (o *options) history(ctx context.Context, by string, since time.Duration) (answer, error) {
	kube, _, err := o.connect()
	if err != nil {
		return nil, err
	}
	var from time.Time
	if since > 0 {
		from = o.clock.Now().Add(-since)
	}
	past, err := view.ReadPast(ctx, o.past.Of(kube), *o.config.Namespace, from)
	if err != nil {
		return nil, err
	}
	if by == "job" {
		return pastJobs(past.Jobs), nil
	}
	return pastSums{by, past.Sums(by)}, nil
}

func (l pastJobs) print(p *printer) error {
	if len(l) == 0 && !p.csv {
		fmt.Fprintln(p.out, "No job has ended in the time that is recorded.")
		return nil
	}
	columns := []string{"NAMESPACE", "NAME", "OUTCOME", "QUEUE", "DEVICES", "WAITED", "RAN", "USD", "ENDED"}
	if p.wide || p.csv {
		columns = append(columns, "CLUSTERQUEUE", "PRIORITY", "PODS", "EVICTIONS", "CREATED", "STARTED", "WORKLOAD", "USER", "WHY")
	}
	var rows [][]string
	for i := range l {
		j := &l[i]
		row := []string{j.Namespace, j.Name, string(j.Outcome), j.Queue, view.DevicesText(j.Devices), j.WaitedText, j.RanText, j.USD,
			stamp(j.Ended)}
		if p.csv {
			row[5], row[6] = fmt.Sprint(j.WaitedSeconds), fmt.Sprint(j.RanSeconds)
		}
		if p.wide || p.csv {
			row = append(row, j.ClusterQueue, fmt.Sprint(j.Priority), fmt.Sprint(j.Pods), fmt.Sprint(j.Evictions), stamp(j.Created),
				stamp(j.Started), j.Workload, j.User, j.Why)
		}
		rows = append(rows, row)
	}
	return p.rows("", columns, rows)
}

// stamp writes a time; empty for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func (s pastSums) print(p *printer) error {
	if len(s.lines) == 0 && !p.csv {
		fmt.Fprintln(p.out, "Nothing has been recorded.")
		return nil
	}
	var rows [][]string
	for _, l := range s.lines {
		row := []string{cmp.Or(l.Of, "(none)"), fmt.Sprint(l.Jobs), fmt.Sprint(l.Failed), l.WaitedText, l.RanText,
			fmt.Sprintf("%.1f", l.DeviceHours), l.USD, l.Unused}
		if p.csv {
			row[3], row[4] = fmt.Sprint(l.WaitedSeconds), fmt.Sprint(l.RanSeconds)
		}
		rows = append(rows, row)
	}
	return p.rows("", []string{strings.ToUpper(s.by), "JOBS", "NOT FINISHED", "WAITED", "RAN", "DEVICE HOURS", "USD", "UNUSED"}, rows)
}

// MarshalJSON leaves out by what the sums are.
func (s pastSums) MarshalJSON() ([]byte, error) { return json.Marshal(s.lines) }
