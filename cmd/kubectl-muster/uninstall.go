package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/kubectl-muster/removal"
)

func newUninstallCommand(o *options) *cobra.Command {
	check, apply, waiting := false, false, string(removal.Keep)
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
		Args: cobra.NoArgs,
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
			r := removal.Removal{Kube: kube, Clock: o.clock, Waiting: removal.Waiting(waiting), Out: command.OutOrStdout()}
			if check {
				return r.Check(command.Context())
			}
			return r.Apply(command.Context())
		},
	}
	command.Flags().BoolVar(&check, "check", false, "print what would be done and what would be left, and change nothing")
	command.Flags().BoolVar(&apply, "apply", false, "do it")
	command.Flags().StringVar(&waiting, "waiting", waiting, "what becomes of Jobs that wait in a queue: keep leaves them suspended, release starts "+
		"them without quota")
	return command
}
