package app

import (
	"fmt"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/cmd/arguments"
	"github.com/muster-dev/muster/cmd/muster/configuration"
	"github.com/muster-dev/muster/deploy"
	jobkinds "github.com/muster-dev/muster/queueing/jobs/kinds"
)

// newManifestsCommand prints what has to be in a cluster before muster runs there. Muster
// does not install it itself: that takes rights that it should not have.
func newManifestsCommand() *cobra.Command {
	o := Options{WebhookAddress: noWebhook}
	kubeVersion, webhook, names := "", false, deploy.DefaultNames
	cmd := &cobra.Command{
		Use:   "manifests",
		Short: "Print the manifests that muster needs: CRDs, admission policies and RBAC",
		Example: `  muster manifests | kubectl apply --server-side -f -

  # Without queueing, for a cluster whose jobs Kueue queues
  muster manifests --queueing=false | kubectl apply --server-side -f -

  # With policies and rights for the job kinds of a configuration
  muster manifests --config muster.yaml | kubectl apply --server-side -f -

  # In another namespace
  muster manifests --namespace batch | kubectl apply --server-side -f -

  # For muster --dry-run: no admission policies, and no right to write anything but statuses and events
  muster manifests --dry-run --queueing=false | kubectl apply --server-side -f -

  # For Kubernetes 1.33 to 1.35, which have no mutating admission policies: muster --webhook-bind-address=:9443 does what they would do
  muster manifests --kube-version 1.33 --webhook | kubectl apply --server-side -f -`,
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			mutations, err := mutationsFor(kubeVersion, webhook)
			if err != nil {
				return err
			}
			if err := o.readJobKinds(names.Namespace); err != nil {
				return err
			}
			objects, err := o.manifests()
			if err != nil {
				return err
			}
			if objects, err = mutations.By(objects); err != nil {
				return err
			}
			if o.DryRun {
				if objects, err = deploy.DryRun(objects); err != nil {
					return err
				}
			}
			for _, object := range names.In(objects) {
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
	cmd.Flags().StringVar(&names.Namespace, "namespace", names.Namespace, "namespace that muster runs in, as its flag of that name")
	cmd.Flags().StringVar(&names.ServiceAccount, "service-account", names.ServiceAccount, "service account that muster runs as, the only one "+
		"that admission policies let start queued Jobs")
	cmd.Flags().StringVar(&o.ConfigFile, "config", "", "file that muster gets by its flag of that name: policies and rights are for its "+
		"queueing.jobKinds, too")
	o.addDryRun(cmd.Flags(),
		"print what muster --dry-run needs: without admission policies, and without rights to write what it only observes")
	cmd.Flags().StringVar(&kubeVersion, "kube-version", "", fmt.Sprintf("version of Kubernetes, 1.%d or later; what it lacks is left out: "+
		"before 1.%d, mutating admission policies; empty means 1.%d or later", deploy.OldestMinor, deploy.MutatingMinor, deploy.MutatingMinor))
	cmd.Flags().BoolVar(&webhook, "webhook", false, "print a webhook of muster in place of mutating admission policies; muster serves it "+
		"with --webhook-bind-address")
	return cmd
}

// Manifests returns the objects that all of muster needs with the settings of a file.
func Manifests(file string) ([]*unstructured.Unstructured, error) {
	o := Options{ConfigFile: file, Provisioning: true, Queueing: true}
	if err := o.readJobKinds(deploy.Namespace); err != nil {
		return nil, err
	}
	return o.manifests()
}

// readJobKinds reads the kinds of jobs of the file, if there is one.
func (o *Options) readJobKinds(namespace string) error {
	if o.ConfigFile == "" {
		return nil
	}
	file, _, err := configuration.Load(o.ConfigFile, namespace)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	o.JobKinds = file.Queueing.Kinds
	return nil
}

// manifests returns the objects that the halves need, for all kinds of jobs.
func (o *Options) manifests() ([]*unstructured.Unstructured, error) {
	objects, err := deploy.Manifests(o.halves()...)
	if err != nil || len(o.JobKinds) == 0 {
		return objects, err
	}
	// Objects that depend on the kinds are written again for all of them.
	all := slices.Concat(jobkinds.BuiltIn(), o.JobKinds)
	for _, write := range []func([]*jobkinds.Kind) ([]byte, error){jobkinds.Policies, jobkinds.PodPolicies, jobkinds.Rights} {
		text, err := write(all)
		if err != nil {
			return nil, err
		}
		written, err := deploy.Decode(text)
		if err != nil {
			return nil, fmt.Errorf("reading what was written for %d kinds of jobs: %w", len(all), err)
		}
		for _, o := range written {
			same := func(old *unstructured.Unstructured) bool {
				return old.GetKind() == o.GetKind() && old.GetName() == o.GetName()
			}
			if i := slices.IndexFunc(objects, same); i >= 0 { // else it is of a half that does not run
				objects[i] = o
			}
		}
	}
	return objects, nil
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
