package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	authenticationv1 "k8s.io/api/authentication/v1"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/view"
)

// jobList prints itself as a table.
type jobList []view.JobLine

func newJobsCommand(o *options) *cobra.Command {
	var states []string
	var user string
	var mine bool
	command := &cobra.Command{
		Use:   "jobs",
		Short: "List the jobs that queue: those that run, start, wait, are held, and have ended",
		Long: `List the jobs of all kinds that queue, in one of these states:

  Running   it is admitted
  Stopping  it is evicted, and its pods may still run
  Starting  it has quota, and waits for machines or another admission check
  Waiting   it has no quota
  Held      its Workload is not active, see ` + "`kubectl muster hold`" + `
  Failed    it has ended without success
  Finished  it has ended; ` + "`kubectl muster history`" + ` lists those whose Workload is gone, too

USD/H is the price of the machines that a job has now, USD SO FAR what machines have cost it; for
a job that has ended it comes from the history, a minute later.
-o wide adds priorities, ClusterQueues, users and what a job waits for. With --namespace only jobs
of that namespace are listed, with --user those that a user has created, and with --mine your own.
Both need the setting queueing.recordUsers.`,
		Example: `  kubectl muster jobs
  kubectl muster jobs --namespace research --state Waiting,Held -o wide
  kubectl muster jobs --mine --watch
  kubectl muster jobs -o json | jq -r '.[] | select(.state == "Running") | .name'`,
		Args: arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			wanted, err := statesNamed(states)
			if err != nil {
				return err
			}
			return o.answer(command, func(ctx context.Context) (answer, error) {
				if mine {
					if user, err = o.username(ctx); err != nil {
						return nil, err
					}
				}
				return o.jobs(ctx, wanted, user)
			})
		},
	}
	command.Flags().StringSliceVar(&states, "state", nil, "only jobs in these states, separated by commas")
	command.Flags().StringVar(&user, "user", "", "only jobs that this user has created, such as system:serviceaccount:team:ci")
	command.Flags().BoolVar(&mine, "mine", false, "only jobs that you have created")
	command.MarkFlagsMutuallyExclusive("user", "mine")
	names := make([]string, len(view.JobStates))
	for i, s := range view.JobStates {
		names[i] = string(s)
	}
	if err := command.RegisterFlagCompletionFunc("state", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoFileComp)); err != nil {
		panic(err) // the flag is defined above
	}
	o.addOutput(command)
	return command
}

// statesNamed finds the states of these names, in any case; all states if there is no name.
func statesNamed(names []string) (out []view.JobState, err error) {
	if len(names) == 0 {
		return view.JobStates, nil
	}
	for _, name := range names {
		i := slices.IndexFunc(view.JobStates, func(s view.JobState) bool { return strings.EqualFold(string(s), name) })
		if i < 0 {
			return nil, fmt.Errorf("--state=%q: use some of %s", name, strings.Trim(fmt.Sprint(view.JobStates), "[]"))
		}
		out = append(out, view.JobStates[i])
	}
	return out, nil
}

// username returns the name by which the API server knows the caller.
func (o *options) username(ctx context.Context) (string, error) {
	kube, _, err := o.connect()
	if err != nil {
		return "", err
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := kube.Create(ctx, review); err != nil {
		return "", fmt.Errorf("asking the API server for your user name: %w", err)
	}
	return review.Status.UserInfo.Username, nil
}

func (o *options) jobs(ctx context.Context, states []view.JobState, user string) (answer, error) {
	kube, namespace, err := o.connect()
	if err != nil {
		return nil, err
	}
	p, err := o.look(ctx, kube, namespace, view.QueueKinds)
	if err != nil {
		return nil, err
	}
	if !p.ReadsWorkloads() {
		return nil, fmt.Errorf("you may not list %s in namespace %s. %s", view.QueueKinds[0].Resource, namespace, missingRights)
	}
	all := p.Jobs(*o.config.Namespace)
	recorded := slices.ContainsFunc(all, func(l view.JobLine) bool { return l.User != "" })
	lines := slices.DeleteFunc(all, func(l view.JobLine) bool {
		return !slices.Contains(states, l.State) || user != "" && l.User != user
	})
	if user != "" && len(lines) == 0 {
		return noJobsOf{user, recorded}, nil
	}
	if slices.ContainsFunc(lines, func(l view.JobLine) bool { return l.State == view.Failed || l.State == view.Finished }) {
		// To list jobs takes no right to read the history.
		if past, err := view.ReadPast(ctx, o.past.Of(kube), *o.config.Namespace, time.Time{}); err == nil {
			past.AddCosts(lines)
		}
	}
	return jobList(lines), nil
}

// noJobsOf is the answer where no job of a user is found. Recorded reports whether any job has a user.
type noJobsOf struct {
	user     string
	recorded bool
}

func (n noJobsOf) print(p *printer) error {
	why := ""
	if !n.recorded {
		why = " No job has one: users are recorded with the setting queueing.recordUsers, for jobs that are created from then on."
	}
	fmt.Fprintf(p.out, "No job in a queue has the user %s.%s\n", n.user, why)
	return nil
}

// MarshalJSON writes an empty list of jobs.
func (noJobsOf) MarshalJSON() ([]byte, error) { return json.Marshal(jobList{}) }

func (l jobList) print(p *printer) error {
	if len(l) == 0 {
		fmt.Fprintln(p.out, "No job is in a queue.")
		return nil
	}
	columns := []string{"NAMESPACE", "NAME", "STATE", "FOR", "QUEUE", "PODS", "DEVICES", "USD/H", "USD SO FAR"}
	if p.wide {
		columns = append(columns, "PRIORITY", "CLUSTERQUEUE", "USER", "WHY")
	}
	rows := make([][]string, len(l))
	for i := range l {
		x := &l[i]
		rows[i] = []string{x.Namespace, x.Name, string(x.State), x.Age, x.LocalQueue, fmt.Sprint(x.Pods), x.DevicesText, x.USDPerHour, x.USDSoFar}
		if p.wide {
			rows[i] = append(rows[i], fmt.Sprint(x.Priority), x.ClusterQueue, x.User, x.Words)
		}
	}
	return p.rows("", columns, rows)
}
