package sandbox

import (
	"context"
	_ "embed"
	"encoding/base64"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
)

//go:embed manager.yaml
var managerObjects string

//go:embed worker.yaml
var workerObjects string

const (
	// Manager is the name of the cluster that jobs are given to, in a set of several. Its requests to the workers bear it,
	// too.
	Manager = "manager"

	// MostWorkers is how many clusters a MultiKueueConfig may name.
	MostWorkers = 20

	// SharedQueue is the ClusterQueue, and the LocalQueue in the default namespace, of all clusters in a set.
	SharedQueue = "shared"

	// workersConfig is the manager's MultiKueueConfig.
	workersConfig = "workers"

	// managerAccount is the service account that the manager has in each worker.
	managerAccount = "muster-multikueue"

	// managerTokenLifetime, in seconds, is that of the sandbox's own certificates: a year.
	managerTokenLifetime = 365 * 24 * 60 * 60

	// The quotas of a worker are all of its machines, and the manager's are those of all workers.
	workerCPUs, workerGPUs = 1536, 64
)

// Worker is the name of a cluster that jobs run in; the first has the number 1.
func Worker(number int) string { return fmt.Sprintf("worker-%d", number) }

// Between stands between the manager and a worker's kube-apiserver: it serves the requests of the manager, and next forwards a request.
type Between func(worker string, next http.Handler) http.Handler

// Clusters returns a manager and its workers, each as the configuration has it. But nothing runs in the manager, so it has neither a
// scheduler nor machines, and no cluster has its own page. The manager has its workers as MultiKueueClusters, a dispatcher sends jobs to
// them, and it reaches each through between, or directly if that is nil.
func Clusters(config cluster.Config, workers int, between Between) cluster.SetConfig {
	set := cluster.SetConfig{
		Name: config.Name, DataDir: config.DataDir, Kubeconfig: config.Kubeconfig, Registry: config.Registry, Progress: config.Progress,
	}
	config.DataDir, config.Kubeconfig, config.Registry, config.Progress = "", "", cluster.Registry{}, nil
	config.Dashboard = false
	manager := config
	manager.Name = Manager
	manager.Only = []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Muster, cluster.Dispatcher}
	manager.Manifests = func() ([]*unstructured.Unstructured, error) {
		objects, err := config.Manifests()
		if err != nil {
			return nil, err
		}
		rights, err := deploy.Decode([]byte(deploy.InNamespace(deploy.Dispatcher+deploy.DispatcherCopies, deploy.Namespace)))
		return append(objects, rights...), err
	}
	set.Clusters = []cluster.Config{manager}
	var names []string
	for number := range workers {
		worker := config
		worker.Name = Worker(number + 1)
		set.Clusters, names = append(set.Clusters, worker), append(names, worker.Name)
	}
	set.Connect = func(ctx context.Context, running *cluster.Set) error { return connect(ctx, running, names, between) }
	return set
}

// connect gives each worker its queue, and the manager an account there; then the manager the workers.
func connect(ctx context.Context, running *cluster.Set, workers []string, between Between) error {
	var objects []*unstructured.Unstructured
	for _, name := range workers {
		access, err := prepareWorker(ctx, running.Cluster(name), name, between)
		if err != nil {
			return fmt.Errorf("preparing the cluster %s: %w", name, err)
		}
		objects = append(objects, accessSecret(name, access), multiKueueCluster(name))
	}
	queue, err := deploy.Decode(fmt.Appendf(nil, managerObjects, workerCPUs*len(workers), workerGPUs*len(workers)))
	if err != nil {
		return err
	}
	objects = append(objects, queueObject("MultiKueueConfig", workersConfig, map[string]any{"clusters": toAny(workers)}))
	if err := running.Cluster(Manager).Apply(ctx, append(objects, queue...)); err != nil {
		return fmt.Errorf("giving the manager its workers: %w", err)
	}
	return nil
}

// prepareWorker returns the kubeconfig by which the manager reaches a worker.
func prepareWorker(ctx context.Context, c *cluster.Cluster, name string, between Between) ([]byte, error) {
	account := deploy.InNamespace(deploy.DispatcherWorker, deploy.Namespace)
	objects, err := deploy.Decode(append(fmt.Appendf(nil, workerObjects, workerCPUs, workerGPUs), "---\n"+account...))
	if err != nil {
		return nil, err
	}
	if err := c.Apply(ctx, objects); err != nil {
		return nil, err
	}
	rest := c.RESTConfig()
	kube, err := kubernetes.NewForConfig(rest)
	if err != nil {
		return nil, err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(managerTokenLifetime))}}
	token, err := kube.CoreV1().ServiceAccounts(deploy.Namespace).CreateToken(ctx, managerAccount, request, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("getting a token for the manager's account: %w", err)
	}
	server := rest.Host
	if between != nil {
		if server, err = c.OpenProxy(func(next http.Handler) http.Handler { return between(name, next) }); err != nil {
			return nil, err
		}
	}
	access := clientcmdapi.NewConfig()
	access.Clusters[name] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: rest.CAData}
	access.AuthInfos[Manager] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	access.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: Manager}
	access.CurrentContext = name
	return clientcmd.Write(*access)
}

// AccessSecret is the name of the manager's Secret with the kubeconfig of a worker, in Muster's namespace.
func AccessSecret(worker string) string { return "multikueue-" + worker }

func accessSecret(worker string, access []byte) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"data": map[string]any{
		kueue.MultiKueueConfigSecretKey: base64.StdEncoding.EncodeToString(access),
	}}}
	o.SetAPIVersion("v1")
	o.SetKind("Secret")
	o.SetNamespace(deploy.Namespace)
	o.SetName(AccessSecret(worker))
	return o
}

func multiKueueCluster(name string) *unstructured.Unstructured {
	return queueObject("MultiKueueCluster", name, map[string]any{"clusterSource": map[string]any{"kubeConfig": map[string]any{
		"location": AccessSecret(name), "locationType": string(kueue.SecretLocationType),
	}}})
}

func toAny(texts []string) []any {
	out := make([]any, 0, len(texts))
	for _, text := range texts {
		out = append(out, text)
	}
	return out
}
