package app

import (
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/deploy"
)

// newManifestsCommand prints what has to be in a cluster before muster runs there. Muster
// does not install it itself: that takes rights that it should not have.
func newManifestsCommand() *cobra.Command {
	o := Options{}
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print the manifests that muster needs: CRDs, admission policies and RBAC",
		Example: `  muster manifests | kubectl apply --server-side -f -

  # Without queueing, for a cluster whose jobs Kueue queues
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
