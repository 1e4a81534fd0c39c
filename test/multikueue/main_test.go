// Package multikueue tests jobs that run in other clusters. All tests run twice: once the manager is a stock Kueue, unmodified, with
// `muster dispatcher` beside it, and once it is Muster. In the workers Muster queues and provisions.
package multikueue

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/test/kueue/managers"
	"github.com/muster-dev/muster/test/testbed"
)

const (
	musterVariable = "MUSTER_BIN"
	kueueNamespace = "kueue-system"
	byKueue        = "kueue"
	byMuster       = "muster"
)

var (
	dispatcherName = flag.String("dispatcher", dispatch.Name,
		"dispatcherName in Kueue's configuration; with another one muster dispatcher does not run")
	only              = flag.String("manager", "", "test with this manager alone: "+byKueue+" or "+byMuster)
	numberOfWorkers   = flag.Int("workers", 2, "how many clusters jobs run in")
	workerLostTimeout = flag.Duration("lost", 5*time.Second,
		"after how long Kueue tries a job again whose worker it does not reach; 15 minutes by default")
	inWorkers = flag.String("queues", byMuster,
		"what queues in the workers: "+byMuster+", or "+byKueue+", for which Muster only provisions there")
	bare = flag.Bool("bare", false,
		"workers admit jobs and run none: TestBurst then measures what it takes to give jobs to clusters alone")
)

var (
	// managedBy is what queues in the manager's cluster, and namespace where it is.
	managedBy, namespace string
	// manager is the cluster where jobs are created. workers are the clusters where they run, in the order of preference.
	manager *testbed.Cluster
	workers []*testbed.Cluster
	// wires lead from the manager to each worker.
	wires []*wire
	// stock is Kueue's manager, dispatcher that of Muster; nil if there is none. stocks are those of Kueue in the workers.
	stock, dispatcher *managers.Manager
	stocks            []*managers.Manager
)

// TestMain has more tests go on at a time than there are cores, since they mostly wait.
func TestMain(m *testing.M) {
	if err := flag.Set("test.parallel", "6"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	for _, v := range []string{testbed.SandboxVariable, testbed.KueueVariable, musterVariable} {
		if os.Getenv(v) == "" {
			fmt.Printf("SKIP: %s does not name a program: run `make test-more`, which builds it\n", v) //nolint:forbidigo // a test's own output
			return 0
		}
	}
	for _, by := range []string{byKueue, byMuster} {
		if *only != "" && *only != by || by == byMuster && *dispatcherName != dispatch.Name {
			continue
		}
		managedBy, namespace = by, map[string]string{byKueue: kueueNamespace, byMuster: deploy.Namespace}[by]
		fmt.Fprintf(os.Stderr, "=== the manager is %s\n", by)
		if code = runManaged(m); code != 0 {
			return code
		}
	}
	return code
}

// runManaged runs all tests with one manager.
func runManaged(m *testing.M) (code int) {
	dir, err := os.MkdirTemp("", "muster-tests-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() { _ = os.RemoveAll(dir) }()
	ctx := context.Background()
	defer func() {
		if err := stop(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	if err := start(ctx, dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	code = m.Run()
	if len(spending.twice)+len(running.twice) > 0 && *dispatcherName == dispatch.Name {
		fmt.Fprintf(os.Stderr, "P8 one spend: two clusters had machines for the job of %q, or ran %q, at the same time\n", spending.twice,
			running.twice)
		code = 1
	}
	if code != 0 {
		for _, m := range append(stocks, stock, dispatcher) {
			if m != nil {
				testbed.Tail(m.Log())
			}
		}
	}
	return code
}

func stop(ctx context.Context) (err error) {
	if dispatcher != nil {
		err = testbed.Defect(dispatcher.Log())
	}
	for _, m := range append(stocks, dispatcher, stock) {
		if m != nil {
			m.Stop()
		}
	}
	for _, c := range append(workers, manager) {
		if c != nil {
			err = errors.Join(err, c.Stop(ctx))
		}
	}
	manager, stock, stocks, dispatcher, workers, wires, spending.sites, running.sites = nil, nil, nil, nil, nil, nil,
		map[string][]machines{}, map[string][]machines{}
	return err
}

func start(ctx context.Context, dir string) error {
	begin, flags := startKueue, []string(nil)
	if managedBy == byMuster {
		begin, flags = startMuster, []string{"--make-copies"}
	}
	workers, stocks = make([]*testbed.Cluster, *numberOfWorkers), make([]*managers.Manager, *numberOfWorkers)
	var all errgroup.Group
	all.Go(func() error { return begin(ctx, dir) })
	for i := range workers {
		all.Go(func() (err error) {
			// The dispatcher detects a Muster that hangs by the Lease of its leader.
			c := cluster.Config{Progress: os.Stderr, MusterFlags: []string{"--leader-elect=true"}}
			sandbox.Fill(&c)
			if *bare {
				c.Only = []string{cluster.Etcd, cluster.APIServer, cluster.Muster}
			}
			if *inWorkers == byKueue {
				err = startStock(ctx, dir, i)
			} else {
				workers[i], err = testbed.Start(ctx, sandbox.Worker(i+1), c)
			}
			if err != nil {
				return err
			}
			return watchSpending(ctx, i)
		})
	}
	err := all.Wait()
	if err != nil {
		return err
	}
	for i, w := range workers {
		if err := introduce(ctx, sandbox.Worker(i+1), w); err != nil {
			return err
		}
	}
	if *dispatcherName != dispatch.Name {
		return nil
	}
	if dispatcher, err = managers.NewDispatcher(ctx, manager.RESTConfig(), os.Getenv(musterVariable), dir, namespace, flags...); err != nil {
		return err
	}
	return dispatcher.Start(ctx)
}

// startKueue starts the manager's cluster with a stock Kueue.
func startKueue(ctx context.Context, dir string) (err error) {
	k, err := managers.NewKueue(managers.Kueue{
		Binary: os.Getenv(testbed.KueueVariable), Sandbox: os.Getenv(testbed.SandboxVariable), Dir: dir,
		Settings: "multiKueue: {dispatcherName: " + *dispatcherName + ", workerLostTimeout: " + workerLostTimeout.String() + "}\n",
	})
	if err != nil {
		return err
	}
	published, err := k.Manifests(ctx)
	if err != nil {
		return err
	}
	ours, err := deploy.Decode([]byte(deploy.Dispatcher))
	if err != nil {
		return err
	}
	manager, err = testbed.Start(ctx, "manager", cluster.Config{
		Progress: os.Stderr, Only: []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager},
		Manifests: func() ([]*unstructured.Unstructured, error) { return append(published, ours...), nil },
	})
	if err != nil {
		return err
	}
	if stock, err = k.Manager(ctx, manager.RESTConfig()); err != nil {
		return err
	}
	return stock.Start(ctx)
}

// startStock starts a worker in which Kueue queues, and Muster provisions.
func startStock(ctx context.Context, dir string, i int) (err error) {
	dir = filepath.Join(dir, sandbox.Worker(i+1))
	if err := os.Mkdir(dir, 0o700); err != nil {
		return err
	}
	k, err := managers.NewKueue(managers.Kueue{
		Binary: os.Getenv(testbed.KueueVariable), Sandbox: os.Getenv(testbed.SandboxVariable), Dir: dir,
		Frameworks: []string{"batch/job", "pod", "statefulset"},
	})
	if err != nil {
		return err
	}
	published, err := k.Manifests(ctx)
	if err != nil {
		return err
	}
	c := cluster.Config{Progress: os.Stderr}
	sandbox.FillHalf(&c, deploy.Provisioning)
	ours := c.Manifests
	c.Manifests = func() ([]*unstructured.Unstructured, error) {
		objects, err := ours()
		return append(objects, published...), err
	}
	if workers[i], err = testbed.Start(ctx, sandbox.Worker(i+1), c); err != nil {
		return err
	}
	if stocks[i], err = k.Manager(ctx, workers[i].RESTConfig()); err != nil {
		return err
	}
	return stocks[i].Start(ctx)
}

// startMuster starts the manager's cluster with Muster.
func startMuster(ctx context.Context, _ string) (err error) {
	c := cluster.Config{Progress: os.Stderr}
	sandbox.Fill(&c)
	c.Only = []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Muster}
	if manager, err = testbed.Start(ctx, "manager", c); err != nil {
		return err
	}
	rights, err := deploy.Decode([]byte(deploy.InNamespace(deploy.Dispatcher+deploy.DispatcherCopies, namespace)))
	if err != nil {
		return err
	}
	for _, o := range rights {
		if err := manager.Kube.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// introduce creates the MultiKueueCluster of a worker in the manager.
func introduce(ctx context.Context, name string, w *testbed.Cluster) error {
	rights, err := deploy.Decode([]byte(deploy.InNamespace(deploy.DispatcherWorker, deploy.Namespace)))
	if err != nil {
		return err
	}
	for _, o := range rights {
		if err := w.Kube.Create(ctx, o); err != nil {
			return err
		}
	}
	set, err := kubernetes.NewForConfig(w.RESTConfig())
	if err != nil {
		return err
	}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64((2 * time.Hour).Seconds()))}}
	if token, err = set.CoreV1().ServiceAccounts(deploy.Namespace).CreateToken(ctx, "muster-multikueue", token,
		metav1.CreateOptions{}); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	server, err := url.Parse(w.RESTConfig().Host)
	if err != nil {
		return err
	}
	wire, err := newWire(server.Host)
	if err != nil {
		return err
	}
	wires = append(wires, wire)
	config.Clusters[name] = &clientcmdapi.Cluster{Server: "https://" + wire.address(), CertificateAuthorityData: w.RESTConfig().CAData}
	config.AuthInfos[name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	config.CurrentContext = name
	text, err := clientcmd.Write(*config)
	if err != nil {
		return err
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	secret.Data = map[string][]byte{kueue.MultiKueueConfigSecretKey: text}
	if err := manager.Kube.Create(ctx, secret); err != nil {
		return err
	}
	c := &kueue.MultiKueueCluster{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.ClusterSource.KubeConfig = &kueue.KubeConfig{Location: name, LocationType: kueue.SecretLocationType}
	return manager.Kube.Create(ctx, c)
}

// clusterNames are the workers, in order.
func clusterNames() (out []string) {
	for i := range workers {
		out = append(out, sandbox.Worker(i+1))
	}
	return out
}
