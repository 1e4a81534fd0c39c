// Package framework replaces the package of this name that starts control planes and managers for Kueue's integration suites. It exports
// the names that the suites use. The control plane runs already, with what Muster installs; a manager is a muster.
//
// It is only compiled into the suites of Kueue's module, see test/kueue/specs.
package framework

import (
	"context"
	"os"
	"strings"
	"time"

	kfmpi "github.com/kubeflow/mpi-operator/pkg/apis/kubeflow/v2beta1"
	sparkv1beta2 "github.com/kubeflow/spark-operator/v2/api/v1beta2"
	kftrainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	kftraining "github.com/kubeflow/training-operator/pkg/apis/kubeflow.org/v1"
	"github.com/onsi/ginkgo/v2"
	"github.com/onsi/gomega"
	awv1beta2 "github.com/project-codeflare/appwrapper/api/v1beta2"
	rayv1 "github.com/ray-project/kuberay/ray-operator/apis/ray/v1"
	"go.uber.org/zap/zaptest/observer"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	autoscaling "k8s.io/autoscaler/cluster-autoscaler/apis/provisioningrequest/autoscaling.x-k8s.io/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	inventoryv1alpha1 "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	jobsetapi "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	leaderworkersetv1 "sigs.k8s.io/lws/api/leaderworkerset/v1"

	config "sigs.k8s.io/kueue/apis/config/v1beta2"
	kueuev1beta1 "sigs.k8s.io/kueue/apis/kueue/v1beta1"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/kueue/pkg/scheduler"
	"sigs.k8s.io/kueue/test/util"
)

// The environment that the runner of the suites sets.
const (
	// kubeconfigVariable names the kubeconfig of the administrator of the suite's cluster.
	kubeconfigVariable = "MUSTER_SPECS_KUBECONFIG"
	// suiteVariable is the path of the suite, as in the table.
	suiteVariable = "MUSTER_SPECS_SUITE"
	// dirVariable names the folder of muster's settings and log.
	dirVariable = "MUSTER_SPECS_DIR"
	// binaryVariable names muster's program.
	binaryVariable = "MUSTER_BIN"
)

// ManagerSetup adds Kueue's controllers to a manager. Here it only shows with which settings it would.
type ManagerSetup func(context.Context, manager.Manager)

// ManagerOption changes how the manager of Kueue's controllers reaches the API server. Nothing comes of it here.
type ManagerOption func(*manager.Options)

// WithNewClient gives Kueue's controllers another client.
func WithNewClient(c client.NewClientFunc) ManagerOption {
	return func(o *manager.Options) { o.NewClient = c }
}

// WithNewCache gives Kueue's controllers another cache.
func WithNewCache(c cache.NewCacheFunc) ManagerOption {
	return func(o *manager.Options) { o.NewCache = c }
}

// Framework is the cluster of a suite and the muster that runs in it.
type Framework struct {
	// DepCRDPaths are folders of CRDs that the suite needs beside Kueue's.
	DepCRDPaths []string
	// WebhookPath is unused: Muster needs no webhooks.
	WebhookPath string
	// What the API server needs beyond its defaults; the runner has started it already.
	APIServerFeatureGates, APIServerRuntimeConfig, APIServerAdmissionPlugins []string

	// ObservedLogs are those of Kueue's controllers, which do not run.
	ObservedLogs *observer.ObservedLogs

	scheme *runtime.Scheme
	cancel context.CancelFunc
	muster *muster
}

// Init returns how the administrator reaches the cluster.
func (f *Framework) Init() *rest.Config {
	f.ObservedLogs = util.SetupLoggerGetObservedLogs()
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv(kubeconfigVariable))
	gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
	cfg.QPS, cfg.Burst = 1000, 2000 // as envtest has them
	for _, add := range []func(*runtime.Scheme) error{kueue.AddToScheme, kueuev1beta1.AddToScheme, apiextensionsv1.AddToScheme} {
		utilruntime.Must(add(scheme.Scheme))
	}
	f.scheme = runtime.NewScheme()
	utilruntime.Must(scheme.AddToScheme(f.scheme))
	if len(f.DepCRDPaths) > 0 {
		_, err = envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{Paths: f.DepCRDPaths, ErrorIfPathMissing: true})
		gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
	}
	return cfg
}

// SetupClient returns the administrator's client.
func (f *Framework) SetupClient(cfg *rest.Config) (context.Context, client.WithWatch) {
	for _, add := range []func(*runtime.Scheme) error{
		config.AddToScheme, kueue.AddToScheme, kueuev1beta1.AddToScheme, awv1beta2.AddToScheme, kfmpi.AddToScheme, rayv1.AddToScheme,
		jobsetapi.AddToScheme, kftraining.AddToScheme, autoscaling.AddToScheme, kftrainer.AddToScheme, inventoryv1alpha1.AddToScheme,
		leaderworkersetv1.AddToScheme, sparkv1beta2.AddToScheme,
	} {
		utilruntime.Must(add(f.scheme))
	}
	c, err := client.NewWithWatch(cfg, client.Options{Scheme: f.scheme})
	gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
	ctx, cancel := context.WithCancel(ginkgo.GinkgoT().Context())
	f.cancel = cancel
	// The specs of webhooks run without controllers, whose writes would interfere.
	if !strings.HasPrefix(os.Getenv(suiteVariable), "webhook/") {
		go operate(ctx, c)
	}
	refuseQuota(ctx, cfg, f.scheme, c)
	aboutJobs := strings.HasPrefix(os.Getenv(suiteVariable), "controller/jobs/")
	return ctx, owners{none: aboutJobs, jobs: map[types.NamespacedName]metav1.OwnerReference{}}.client(c)
}

// StartManager starts a muster with the settings that setup would give Kueue's controllers.
func (f *Framework) StartManager(ctx context.Context, cfg *rest.Config, setup ManagerSetup, _ ...ManagerOption) {
	ginkgo.By("starting muster", func() {
		settings := settingsOf(ctx, cfg, f.scheme, setup)
		var err error
		_, schedules := scheduler.Recorded["New"]
		f.muster, err = startMuster(ctx, cfg, settings, schedules)
		gomega.ExpectWithOffset(1, err).NotTo(gomega.HaveOccurred())
		if strings.Contains(string(settings), "manageJobsWithoutQueueName: true") {
			<-time.After(policyLag)
		}
	})
}

// StopManager stops the muster.
func (f *Framework) StopManager(context.Context) {
	ginkgo.By("stopping muster", func() {
		f.muster.stop()
		f.muster = nil
	})
}

// Teardown stops what runs in the cluster, which the runner stops.
func (f *Framework) Teardown() {
	f.muster.stop()
	if f.cancel != nil {
		f.cancel()
	}
}

// Labels of specs.
var (
	SlowSpec      = ginkgo.Label("slow")
	RedundantSpec = ginkgo.Label("Redundant")
)

// policyLag is how long the API server may take to act by a policy's binding that Muster has changed at its start.
const policyLag = time.Second

// patience is the timeout for muster to serve, and to end.
const patience = time.Minute
