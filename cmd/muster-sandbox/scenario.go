package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/scenario"
	"github.com/muster-dev/muster/kwok/scenario/report"
	"github.com/muster-dev/muster/kwok/scenario/runner"
)

func newScenarioCommand(o *options) *cobra.Command {
	command := &cobra.Command{
		Use:   "scenario",
		Short: "Rehearse machines, queues and arriving Jobs, and report on the run",
		Long: `Rehearse machines, queues and arriving Jobs, and report on the run.

A scenario is one file: fixed nodes, node groups with their boot delays, droughts,
prices and reclaims, queues, arrivals of Jobs drawn from a seed, and faults of
Muster, the API server and etcd. It runs on a sandbox of its own, optionally faster
than real time. The report compares the makespan with a lower bound, and has waits,
launched and idle machines, costs, API writes, and broken promises of Muster.

The library has scenarios to start from, most of them with a small variant for a
first look.`,
		Example: `  # List the library, and copy a scenario from it
  muster-sandbox scenario list
  muster-sandbox scenario show thousand-jobs-small > mine.yaml

  # Is it valid, and how long does it take at best?
  muster-sandbox scenario check mine.yaml

  # Run it, ten times as fast
  muster-sandbox scenario run mine.yaml --speed 10 --report out`,
		Args: arguments.Of,
		RunE: func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(newScenarioRunCommand(o), newScenarioCheckCommand(), newScenarioCompareCommand(), newScenarioListCommand(),
		newScenarioShowCommand())
	return command
}

func newScenarioRunCommand(o *options) *cobra.Command {
	r := scenarioRun{options: o}
	command := &cobra.Command{
		Use:   "run FILE|NAME",
		Short: "Run a scenario on a sandbox of its own, and write a report",
		Long: `Start a sandbox, create the objects of the scenario, submit its Jobs when they are due,
and report on the run. The scenario is a file, or a name from the library: see
` + "`muster-sandbox scenario list`" + `.

Muster's promises are checked against every change in the cluster. The exit code is 0
only if all were kept and all Jobs have ended. Ctrl-C ends a run early, with a report
until then.`,
		Example: `  # A tenth of a public benchmark of batch schedulers, in a minute
  muster-sandbox scenario run thousand-jobs-small --speed 10

  # The same with kube-scheduler alone, and a comparison
  muster-sandbox scenario run thousand-jobs-small --speed 10 --report with
  muster-sandbox scenario run thousand-jobs-small --speed 10 --report without --admitter none
  muster-sandbox scenario compare without/report.json with/report.json`,
		Args:              arguments.These("a file, or the name of a scenario in the library"),
		ValidArgsFunction: completeScenarios,
		RunE:              func(command *cobra.Command, args []string) error { return r.run(command, args[0]) },
	}
	flags := command.Flags()
	flags.IntVar(&r.speed, "speed", 1, "`factor` by which all times of the scenario are divided")
	flags.StringVar(&r.admitter, "admitter", string(runner.Muster),
		fmt.Sprintf("`controller` that admits the Jobs: %s through their queues, or %s: all Jobs start at once, for a comparison with "+
			"kube-scheduler alone", runner.Muster, runner.None))
	flags.StringVar(&r.dir, "report", "", "write report.txt, report.json and report.html to this `folder`")
	flags.BoolVar(&r.keep, "keep", false, "leave the sandbox up at the end, until Ctrl-C, and print how to reach it")
	_ = command.MarkFlagDirname("report")
	_ = command.RegisterFlagCompletionFunc("admitter", cobra.FixedCompletions(admitters(), cobra.ShellCompDirectiveNoFileComp))
	return command
}

// completeScenarios are the library's, and files.
func completeScenarios(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return scenario.Names(), cobra.ShellCompDirectiveDefault
}

func admitters() (out []string) {
	for _, a := range runner.Admitters {
		out = append(out, string(a))
	}
	return out
}

// scenarioRun has the arguments of `scenario run`.
type scenarioRun struct {
	*options
	speed         int
	admitter, dir string
	keep          bool
}

// fastest is where the rounding of deadlines to seconds would be all that is left of
// them.
const fastest = 100

func (r scenarioRun) run(command *cobra.Command, named string) (err error) {
	s, name, err := readScenario(named)
	if err != nil {
		return err
	}
	admitter := runner.Admitter(r.admitter)
	if !slices.Contains(runner.Admitters, admitter) {
		return fmt.Errorf("--admitter=%q: use one of %s", r.admitter, strings.Join(admitters(), ", "))
	}
	if r.speed < 1 || r.speed > fastest {
		return fmt.Errorf("--speed=%d: use a number from 1 to %d", r.speed, fastest)
	}
	if err := runner.Check(s, admitter); err != nil {
		return fmt.Errorf("--admitter=%s: %w", admitter, err)
	}
	if r.dir != "" {
		if err := os.MkdirAll(r.dir, 0o755); err != nil {
			return fmt.Errorf("making the folder of the report (set --report to a writable folder): %w", err)
		}
	}
	out, err := r.play(command, s, name, admitter)
	if err != nil {
		return err
	}
	switch broken := len(out.Promises.Broken); {
	case broken > 0:
		return fmt.Errorf("%d promises were broken", broken)
	case out.Jobs.Unfinished > 0:
		return fmt.Errorf("%d Jobs had not ended after %s of the scenario", out.Jobs.Unfinished, s.Ends.AtMost.Duration)
	}
	return nil
}

// play runs the scenario on a sandbox that it starts and stops, and prints the report
// before the sandbox is kept.
func (r scenarioRun) play(command *cobra.Command, s *scenario.Scenario, name string, admitter runner.Admitter) (out report.Report,
	err error) {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer signal.Stop(signals)

	config := cluster.Config{Name: r.sandboxName(name), Progress: command.ErrOrStderr()}
	gate := runner.Configure(&config, s, admitter)
	if err := addOperators(command, &config, s.Operators); err != nil {
		return out, err
	}
	fmt.Fprintf(command.ErrOrStderr(), "Starting the sandbox %q\n", config.Name)
	running, err := startUnlessSignalled(command.Context(), signals, startOne(config))
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, stop(command, running, signals)) }()
	scheme, err := app.NewScheme()
	if err != nil {
		return out, err
	}
	ctx, cancel := context.WithCancel(command.Context())
	defer cancel()
	interrupt := make(chan struct{})
	done := make(chan error, 1)
	go func() {
		var err error
		out, err = runner.Run(ctx, runner.Options{
			Scenario: s, Name: name, Speed: r.speed, Admitter: admitter, Cluster: running, Gate: gate, Scheme: scheme,
			Out: command.OutOrStdout(), Live: isTerminal(command), Interrupt: interrupt,
		})
		done <- err
	}()
	select {
	case err = <-done:
	case <-signals:
		r.keep = false
		fmt.Fprintln(command.ErrOrStderr(), "Ending the run with a report (Ctrl-C again skips the report)")
		close(interrupt)
		select {
		case err = <-done:
		case <-signals:
			cancel()
			return report.Report{}, <-done
		}
	}
	if out.Scenario != "" {
		err = errors.Join(err, r.tell(command, out))
	}
	if r.keep {
		printUsage(command, config.Name, running)
		<-signals
	}
	return out, err
}

// sandboxName is the scenario's own, so that it is beside those that run already,
// unless the user gave one.
func (r scenarioRun) sandboxName(name string) string {
	if r.name != cluster.DefaultName {
		return r.name
	}
	return fmt.Sprintf("scenario-%.20s-%d", strings.TrimRight(name, "-"), os.Getpid())
}

// tell prints the report, and writes it to the folder that was asked for.
func (r scenarioRun) tell(command *cobra.Command, out report.Report) error {
	fmt.Fprintf(command.OutOrStdout(), "\n%s", out.Text())
	if r.dir == "" {
		return nil
	}
	machine, err := json.MarshalIndent(out, "", "  ")
	if err != nil {
		return err
	}
	page, err := out.HTML()
	if err != nil {
		return err
	}
	for name, text := range map[string][]byte{"report.txt": []byte(out.Text()), "report.json": append(machine, '\n'), "report.html": page} {
		if err := os.WriteFile(filepath.Join(r.dir, name), text, 0o644); err != nil {
			return fmt.Errorf("writing the report (set --report to a writable folder): %w", err)
		}
	}
	return nil
}

// readScenario reads a file, or else a scenario of the library; its name is that of
// the file without its folder and ending.
func readScenario(named string) (*scenario.Scenario, string, error) {
	text, err := os.ReadFile(named)
	if errors.Is(err, fs.ErrNotExist) && named == filepath.Base(named) && filepath.Ext(named) == "" {
		text, err = scenario.Text(named)
	}
	if err != nil {
		return nil, "", fmt.Errorf("reading the scenario: %w", err)
	}
	s, err := scenario.Read(text)
	if err != nil {
		return nil, "", fmt.Errorf("%s:\n%w", named, err)
	}
	base := filepath.Base(named)
	return s, strings.TrimSuffix(base, filepath.Ext(base)), nil
}

func newScenarioCheckCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check FILE|NAME",
		Short: "Validate a scenario without running it, and print its size and lower bound",
		Long: `Validate a scenario, and start nothing. Errors are printed by line and field, and the
exit code is then not 0. Otherwise its Jobs, pods and machines are counted, and the
lower bound of its makespan is explained.

Errors that only the API server finds, such as in the fields of objects, are reported by
` + "`muster-sandbox scenario run`" + ` before the first Job is submitted.`,
		Example: `  muster-sandbox scenario check mine.yaml
  muster-sandbox scenario check thousand-jobs`,
		Args:              arguments.These("a file, or the name of a scenario in the library"),
		ValidArgsFunction: completeScenarios,
		RunE: func(command *cobra.Command, args []string) error {
			s, _, err := readScenario(args[0])
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(command.OutOrStdout(), s.Summary())
			return err
		},
	}
}

func newScenarioCompareCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "compare A.json B.json",
		Short:   "Compare two reports",
		Example: `  muster-sandbox scenario compare without/report.json with/report.json`,
		Args:    arguments.These("one report", "another"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 1 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return []string{"json"}, cobra.ShellCompDirectiveFilterFileExt
		},
		RunE: func(command *cobra.Command, args []string) error {
			var both [2]report.Report
			for i, file := range args {
				text, err := os.ReadFile(file)
				if err != nil {
					return fmt.Errorf("reading a report: %w", err)
				}
				if both[i], err = report.Read(text); err != nil {
					return fmt.Errorf("%s is not a report.json of `muster-sandbox scenario run --report`: %w", file, err)
				}
			}
			fmt.Fprint(command.OutOrStdout(), report.Compare(both[0], both[1]))
			return nil
		},
	}
}

func newScenarioListCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the scenarios of the library",
		Args:  arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			table := tabwriter.NewWriter(command.OutOrStdout(), 0, 0, 3, ' ', 0)
			fmt.Fprintln(table, "NAME\tJOBS\tBOUND\tWHAT")
			for _, name := range scenario.Names() {
				s, _, err := readScenario(name)
				if err != nil {
					return err
				}
				fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", name, len(s.Submissions()), s.Bound().FIFO.Round(time.Second), s.Description)
			}
			return table.Flush()
		},
	}
}

func newScenarioShowCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "Print a scenario of the library, with the comments that explain it",
		Long:  `Print a scenario of the library, to start your own from.`,
		Example: `  muster-sandbox scenario show thousand-jobs > mine.yaml
  muster-sandbox scenario run mine.yaml`,
		Args: arguments.These("the name of a scenario in the library"),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return scenario.Names(), cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(command *cobra.Command, args []string) error {
			text, err := scenario.Text(args[0])
			if err != nil {
				return err
			}
			_, err = command.OutOrStdout().Write(text)
			return err
		},
	}
}
