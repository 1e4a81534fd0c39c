package standin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// SparkDrivers is the component that plays the programs in the pods of drivers.
const SparkDrivers = "spark-drivers"

// driverResync is the time after which what failed is tried again.
const driverResync = 2 * time.Second

// NewSparkDriversCommand creates the executors of each driver that runs, and deletes them when it has ended.
func NewSparkDriversCommand() *cobra.Command {
	var kubeconfig, listen string
	command := &cobra.Command{
		Use:  SparkDrivers,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("reading the kubeconfig: %w", err)
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			if err := watchDrivers(command.Context(), client); err != nil {
				return err
			}
			mux := http.NewServeMux()
			mux.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
			server := &http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: 10 * time.Second}
			return server.ListenAndServe()
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "`file` with the access to the cluster")
	command.Flags().StringVar(&listen, "listen", "", "`address` that answers when it serves")
	return command
}

// watchDrivers returns when it watches.
func watchDrivers(ctx context.Context, client kubernetes.Interface) error {
	factory := informers.NewSharedInformerFactoryWithOptions(client, driverResync, informers.WithTweakListOptions(func(o *metav1.ListOptions) {
		o.LabelSelector = roleLabel + "=" + driver
	}))
	d := &drivers{client: client, played: map[types.UID]corev1.PodPhase{}}
	handle := func(object any) {
		if err := d.play(ctx, object.(*corev1.Pod)); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	pods := factory.Core().V1().Pods().Informer()
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: handle, UpdateFunc: func(_, object any) { handle(object) }})
	if err != nil {
		return err
	}
	factory.Start(ctx.Done())
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced) {
		return context.Cause(ctx)
	}
	return nil
}

type drivers struct {
	client kubernetes.Interface

	// played is the phase of each pod for which all is done.
	played map[types.UID]corev1.PodPhase
}

// play does what the program in a driver's pod would do in its phase.
func (d *drivers) play(ctx context.Context, pod *corev1.Pod) error {
	phase := pod.Status.Phase
	if pod.DeletionTimestamp != nil || d.played[pod.UID] == phase {
		return nil // the executors of a driver that is deleted are garbage
	}
	var err error
	switch phase {
	case corev1.PodRunning:
		err = d.createExecutors(ctx, pod)
	case corev1.PodSucceeded, corev1.PodFailed:
		selector := roleLabel + "=" + executor + "," + appLabel + "=" + pod.Labels[appLabel]
		err = d.client.CoreV1().Pods(pod.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: selector})
	}
	if err == nil {
		d.played[pod.UID] = phase
	}
	return err
}

func (d *drivers) createExecutors(ctx context.Context, pod *corev1.Pod) error {
	var wanted executors
	if err := json.Unmarshal([]byte(pod.Annotations[executorsAnnotation]), &wanted); err != nil {
		return fmt.Errorf("reading the executors of the driver %s/%s: %w", pod.Namespace, pod.Name, err)
	}
	const uidDigits = 8
	var failures []error
	for i := range wanted.Count {
		worker := wanted.Pod.DeepCopy()
		// The name of the driver repeats in each run of the application.
		worker.Name = fmt.Sprintf("%s-%s-exec-%d", pod.Name, pod.UID[:uidDigits], i+1)
		worker.Labels["spark-exec-id"] = fmt.Sprint(i + 1)
		worker.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(pod, corev1.SchemeGroupVersion.WithKind("Pod"))}
		_, err := d.client.CoreV1().Pods(pod.Namespace).Create(ctx, worker, metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			failures = append(failures, fmt.Errorf("creating the executor %s/%s: %w", pod.Namespace, worker.Name, err))
		}
	}
	return errors.Join(failures...)
}
