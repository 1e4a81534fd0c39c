package app

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/deploy"
)

// newManifestsCommand prints what has to be in a cluster before muster runs
// there. Muster itself does not install it: that takes rights that it need not
// have.
func newManifestsCommand() *cobra.Command {
	o := Options{}
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print what muster needs in a cluster: CRDs, admission policies and rights",
		Example: `  muster manifests | kubectl apply --server-side -f -

  # for the provisioner of a cluster whose jobs Kueue queues
  muster manifests --queueing=false | kubectl apply --server-side -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			objects, err := deploy.Manifests(o.halves()...)
			if err != nil {
				return err
			}
			for _, object := range objects {
				text, err := yaml.Marshal(object.Object)
				if err != nil {
					return err
				}
				fmt.Fprintf(cmd.OutOrStdout(), "---\n%s", text)
			}
			return nil
		},
	}
	o.addHalves(cmd.Flags())
	return cmd
}
