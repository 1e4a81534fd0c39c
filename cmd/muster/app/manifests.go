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
	o := Options{WebhookAddress: noWebhook}
	kubeVersion, webhook := "", false
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print the manifests that muster needs: CRDs, admission policies and RBAC",
		Example: `  muster manifests | kubectl apply --server-side -f -

  # Without queueing, for a cluster whose jobs Kueue queues
  muster manifests --queueing=false | kubectl apply --server-side -f -

  # For Kubernetes 1.33 to 1.35, which have no mutating admission policies: muster --webhook-bind-address=:9443 does what they would do
  muster manifests --kube-version 1.33 --webhook | kubectl apply --server-side -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			mutations, err := mutationsFor(kubeVersion, webhook)
			if err != nil {
				return err
			}
			objects, err := deploy.Manifests(o.halves()...)
			if err != nil {
				return err
			}
			if objects, err = mutations.By(objects); err != nil {
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
	cmd.Flags().StringVar(&kubeVersion, "kube-version", "", fmt.Sprintf("version of Kubernetes, 1.%d or later; what it lacks is left out: "+
		"before 1.%d, mutating admission policies; empty means 1.%d or later", deploy.OldestMinor, deploy.MutatingMinor, deploy.MutatingMinor))
	cmd.Flags().BoolVar(&webhook, "webhook", false, "print a webhook of muster in place of mutating admission policies; muster serves it "+
		"with --webhook-bind-address")
	return cmd
}

// mutationsFor is what changes objects in a cluster of a version; empty means the newest.
func mutationsFor(kubeVersion string, webhook bool) (deploy.Mutations, error) {
	policies := true
	if kubeVersion != "" {
		var err error
		if policies, err = deploy.MutatingPolicies(kubeVersion); err != nil {
			return "", fmt.Errorf("--kube-version: %w", err)
		}
	}
	switch {
	case webhook:
		return deploy.ByWebhook, nil
	case policies:
		return deploy.ByPolicies, nil
	}
	return deploy.ByControllers, nil
}
