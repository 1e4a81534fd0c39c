package main

import (
	"errors"

	"github.com/spf13/cobra"
	"k8s.io/client-go/dynamic"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/kubectl-muster/removal"
)

func newMigrateCommand(o *options) *cobra.Command {
	check, apply, back, settings := false, false, false, ""
	command := &cobra.Command{
		Use:   "migrate --check | --apply | --back",
		Short: "Take Kueue out in favour of Muster's queues, or bring it back: what runs goes on, what waits keeps its place",
		Long: `Take Kueue out of the cluster in favour of Muster's queues, or bring it back. What runs goes on, and what
waits keeps its place: queues and Workloads stay, whichever of both serves them.

Run it with the rights of a cluster administrator. It may be interrupted and run again, each
step looks at what there is. What going back needs is kept in a Secret in Muster's namespace.`,
		Example: `  # What is there, and what would be done?
  kubectl muster migrate --check

  # From Kueue to Muster; then install Muster
  kubectl muster migrate --apply
  helm install muster oci://ghcr.io/muster-dev/charts/muster --namespace muster-system

  # And back
  kubectl muster migrate --back`,
		Args: arguments.None,
		RunE: func(command *cobra.Command, _ []string) error {
			kube, _, err := o.connect()
			if err != nil {
				return err
			}
			config, err := o.config.ToRESTConfig()
			if err != nil {
				return err
			}
			config.QPS = -1
			objects, err := dynamic.NewForConfig(config)
			if err != nil {
				return err
			}
			own, err := jobKinds(settings)
			if err != nil {
				return err
			}
			m := removal.Migration{Removal: removal.Removal{Kube: kube, Clock: o.clock, Kinds: own, Out: command.OutOrStdout()}, Dynamic: objects}
			switch {
			case check && !apply && !back:
				return m.Check(command.Context())
			case apply && !check && !back:
				return m.Apply(command.Context())
			case back && !check && !apply:
				return m.Back(command.Context())
			}
			return errors.New("choose one of --check, which shows what is there and what would be done, --apply, which takes Kueue out, and " +
				"--back, which brings it back")
		},
	}
	command.Flags().BoolVar(&check, "check", false, "print what is there and what would be done, and change nothing")
	command.Flags().BoolVar(&apply, "apply", false, "take Kueue out")
	addSettings(command, &settings)
	command.Flags().BoolVar(&back, "back", false, "bring Kueue back")
	return command
}
