package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/kubectl-muster/removal"
	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

func newUninstallCommand(o *options) *cobra.Command {
	check, apply, waiting, settings := false, false, string(removal.Keep), ""
	command := &cobra.Command{
		Use:   "uninstall --check | --apply",
		Short: "Take Muster out of the cluster: what runs goes on, nothing of Muster is left",
		Long: `Take Muster out of the cluster, however it was installed. What runs goes on. Launches in flight
are undone, Jobs are restored, nodes are handed over without cordons and labels of Muster, and
all of its objects are deleted, queues and CustomResourceDefinitions included.

Run it while Muster still runs, with the rights of a cluster administrator. It may be
interrupted and run again. Machines stay; in a cloud they keep their tags.`,
		Example: `  # What would be done?
  kubectl muster uninstall --check

  # Keep the queues in a file, then take Muster out, and start what waits
  kubectl get clusterqueues,cohorts,resourceflavors,localqueues -A -o yaml > queues.yaml
  kubectl muster uninstall --apply --waiting=release`,
		Args: arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			if check == apply {
				return errors.New("choose one of --check, which shows what would be done, and --apply, which does it")
			}
			if w := removal.Waiting(waiting); w != removal.Keep && w != removal.Release {
				return fmt.Errorf("--waiting=%q: use %s or %s", waiting, removal.Keep, removal.Release)
			}
			kube, _, err := o.connect()
			if err != nil {
				return err
			}
			own, err := jobKinds(settings)
			if err != nil {
				return err
			}
			r := removal.Removal{Kube: kube, Clock: o.clock, Waiting: removal.Waiting(waiting), Kinds: own, Out: command.OutOrStdout()}
			if check {
				return r.Check(command.Context())
			}
			return r.Apply(command.Context())
		},
	}
	command.Flags().BoolVar(&check, "check", false, "print what would be done and what would be left, and change nothing")
	command.Flags().BoolVar(&apply, "apply", false, "do it")
	addSettings(command, &settings)
	command.Flags().StringVar(&waiting, "waiting", waiting, "what becomes of Jobs that wait in a queue: keep leaves them suspended, release "+
		"starts them without quota")
	return command
}

// addSettings adds the flag of the file with a cluster's own kinds of jobs.
func addSettings(command *cobra.Command, file *string) {
	command.Flags().StringVar(file, "config", "", "`file` of muster's flag of that name, whose queueing.jobKinds are jobs, too; those in the "+
		"ConfigMap of Muster's Deployment are known without it")
}

// jobKinds are those that a file of settings describes; none without a file.
func jobKinds(file string) ([]*kinds.Kind, error) {
	if file == "" {
		return nil, nil
	}
	c, _, err := configuration.Load(file, deploy.Namespace)
	if err != nil {
		return nil, fmt.Errorf("--config: %w", err)
	}
	return c.Queueing.Kinds, nil
}
