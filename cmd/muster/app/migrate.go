package app

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	admissionregistration "k8s.io/api/admissionregistration/v1"
	"k8s.io/client-go/dynamic"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/muster/migration"
)

// newMigrateCommand migrates the objects of an older Kueue. It needs rights that Muster
// itself does not have, so an administrator runs it.
func newMigrateCommand() *cobra.Command {
	var kubeconfig string
	m := migration.Migration{}
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Convert the stored objects of a Kueue to v1beta2, the version that muster serves",
		Long: `Convert the objects that Kueue stored as v1beta1 to v1beta2, and replace Kueue's CRDs with those of ` + "`muster manifests`" + `.

Run it as an administrator after scaling Kueue down and before applying the manifests. Running jobs are not affected.
Kueue's API is unavailable kind by kind, for about a second plus two writes per object. The command may be interrupted
and run again.`,
		Example: `  kubectl scale -n kueue-system deployment/kueue-controller-manager --replicas=0
  muster migrate --kubeconfig ~/.kube/config --dry-run
  muster migrate --kubeconfig ~/.kube/config
  muster manifests | kubectl apply --server-side --force-conflicts -f -`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			m.Out = cmd.OutOrStdout()
			return migrate(ctrl.SetupSignalHandler(), kubeconfig, m)
		},
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file of the cluster; empty means the cluster that muster runs in")
	f.BoolVar(&m.DryRun, "dry-run", false, "print what would be done, and change nothing")
	if err := cmd.MarkFlagFilename("kubeconfig"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

func migrate(ctx context.Context, kubeconfig string, m migration.Migration) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("finding the cluster (set --kubeconfig if outside of it): %w", err)
	}
	config.QPS = -1
	if m.Client, err = dynamic.NewForConfig(config); err != nil {
		return err
	}
	reader, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return err
	}
	if err := refuseBesideLeaders(ctx, reader, time.Now()); err != nil {
		return err
	}
	if err := m.Run(ctx); err != nil {
		return err
	}
	return tellWebhooks(ctx, reader, m.Out)
}

// refuseBesideLeaders returns an error while a controller leads: it would find the objects
// gone while they are converted.
func refuseBesideLeaders(ctx context.Context, reader client.Reader, now time.Time) error {
	for _, program := range []struct{ name, lease string }{{"Kueue", kueueLease}, {"Muster", leaseName}} {
		switch holder, err := leaderBy(ctx, reader, now, program.lease); {
		case err != nil:
			return fmt.Errorf("checking whether %s leads: %w", program.name, err)
		case holder != "":
			return fmt.Errorf("%s leads by lease %s: scale it down to 0 and run the migration again", program.name, holder)
		}
	}
	return nil
}

// tellWebhooks lists Kueue's remaining webhooks. Without Kueue they fail, and with them the
// requests that they are called for.
func tellWebhooks(ctx context.Context, reader client.Reader, out io.Writer) error {
	var validating admissionregistration.ValidatingWebhookConfigurationList
	var mutating admissionregistration.MutatingWebhookConfigurationList
	if err := errors.Join(reader.List(ctx, &validating), reader.List(ctx, &mutating)); err != nil {
		return fmt.Errorf("listing Kueue's webhooks: %w", err)
	}
	left := map[string]bool{}
	note := func(configuration string, rules []admissionregistration.RuleWithOperations) {
		if slices.ContainsFunc(rules, func(r admissionregistration.RuleWithOperations) bool {
			return slices.Contains(r.APIGroups, kueue.SchemeGroupVersion.Group)
		}) {
			left[configuration] = true
		}
	}
	for _, c := range validating.Items {
		for _, w := range c.Webhooks {
			note("validatingwebhookconfiguration/"+c.Name, w.Rules)
		}
	}
	for _, c := range mutating.Items {
		for _, w := range c.Webhooks {
			note("mutatingwebhookconfiguration/"+c.Name, w.Rules)
		}
	}
	if len(left) > 0 {
		fmt.Fprintf(out, "Kueue's webhooks remain and reject requests while Kueue is down. Delete them:\n  kubectl delete %s\n",
			strings.Join(slices.Sorted(maps.Keys(left)), " "))
	}
	return nil
}
