package standin

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
)

// RayDashboard is the component that answers for the dashboards of all Ray clusters.
const RayDashboard = "ray-dashboard"

const (
	runFor = "kwok.muster.dev/run-for"

	// defaultRun is how long a job runs that does not say.
	defaultRun = time.Second
)

var rayJobs = schema.GroupVersionResource{Group: "ray.io", Version: "v1", Resource: "rayjobs"}

// NewRayDashboardCommand is a proxy server in front of all dashboards.
func NewRayDashboardCommand() *cobra.Command {
	var kubeconfig, listen string
	command := &cobra.Command{
		Use:  RayDashboard,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("reading the kubeconfig: %w", err)
			}
			kube, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			jobs, err := dynamic.NewForConfig(config)
			if err != nil {
				return err
			}
			server := &http.Server{Addr: listen, Handler: newDashboard(kube, jobs, clock.RealClock{}), ReadHeaderTimeout: 10 * time.Second}
			return server.ListenAndServe()
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "`file` with the access to the cluster")
	command.Flags().StringVar(&listen, "listen", "", "`address` of the proxy")
	return command
}

// dashboard serves the dashboards of all Ray clusters. The requested host is the Service of a cluster's head. It responds only while that
// head runs, and its state is lost with the head.
type dashboard struct {
	http.ServeMux
	kube  kubernetes.Interface
	jobs  dynamic.Interface
	clock clock.PassiveClock

	mu sync.Mutex

	// started is when each job of a head was first read: it counts as submitted then.
	started map[submission]time.Time

	// served is the names of the applications that were deployed, by the head.
	served map[types.UID][]string
}

// submission is a job on a head.
type submission struct {
	head types.UID
	id   string
}

func newDashboard(kube kubernetes.Interface, jobs dynamic.Interface, clock clock.PassiveClock) *dashboard {
	d := &dashboard{kube: kube, jobs: jobs, clock: clock, started: map[submission]time.Time{}, served: map[types.UID][]string{}}
	d.HandleFunc("GET /healthz", func(http.ResponseWriter, *http.Request) {})
	d.HandleFunc("GET /-/healthz", func(http.ResponseWriter, *http.Request) {}) // a proxy of Ray Serve, in each of its pods
	d.handle("GET /api/jobs/{id}", d.job)
	d.handle("POST /api/jobs/{$}", d.submit)
	d.handle("POST /api/jobs/{id}/stop", func(w http.ResponseWriter, _ *http.Request, _ *corev1.Pod) {
		answer(w, map[string]any{"stopped": true})
	})
	d.handle("DELETE /api/jobs/{id}", func(http.ResponseWriter, *http.Request, *corev1.Pod) {})
	d.handle("PUT /api/serve/applications/", d.deploy)
	d.handle("GET /api/serve/applications/", d.applications)
	return d
}

// handle has requests answered by the head that they are for.
func (d *dashboard) handle(pattern string, by func(http.ResponseWriter, *http.Request, *corev1.Pod)) {
	d.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		head, err := d.head(r.Context(), r.Host)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadGateway)
			return
		}
		by(w, r, head)
	})
}

// head is the pod behind a Service, whose host is NAME.NAMESPACE.svc and more.
func (d *dashboard) head(ctx context.Context, host string) (*corev1.Pod, error) {
	name, rest, _ := strings.Cut(host, ".")
	namespace, _, _ := strings.Cut(rest, ".")
	service, err := d.kube.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("looking for the Service of a head: %w", err)
	}
	selector := labels.SelectorFromSet(service.Spec.Selector).String()
	pods, err := d.kube.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("looking for the head of the Service %s/%s: %w", namespace, name, err)
	}
	for _, pod := range pods.Items {
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			return &pod, nil
		}
	}
	return nil, fmt.Errorf("no head runs behind the Service %s/%s", namespace, name)
}

// job says that a job runs until its time is over, and that it has succeeded from then on.
func (d *dashboard) job(w http.ResponseWriter, r *http.Request, head *corev1.Pod) {
	id := r.PathValue("id")
	duration, err := d.duration(r.Context(), head.Namespace, id)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	now := d.clock.Now()
	key := submission{head.UID, id}
	d.mu.Lock()
	started, ok := d.started[key]
	if !ok {
		started = now
		d.started[key] = now
	}
	d.mu.Unlock()
	info := map[string]any{"job_id": id, "submission_id": id, "status": "RUNNING", "start_time": started.UnixMilli()}
	if end := started.Add(duration); !now.Before(end) {
		info["status"], info["end_time"] = "SUCCEEDED", end.UnixMilli()
	}
	answer(w, info)
}

// duration is what the RayJob of the id says.
func (d *dashboard) duration(ctx context.Context, namespace, id string) (time.Duration, error) {
	list, err := d.jobs.Resource(rayJobs).Namespace(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return 0, fmt.Errorf("looking for the RayJob of %s: %w", id, err)
	}
	for _, job := range list.Items {
		if submitted, _, _ := unstructured.NestedString(job.Object, "status", "jobId"); submitted != id {
			continue
		}
		if text := job.GetAnnotations()[runFor]; text != "" {
			return time.ParseDuration(text)
		}
	}
	return defaultRun, nil
}

func (d *dashboard) submit(w http.ResponseWriter, r *http.Request, _ *corev1.Pod) {
	var request struct {
		ID string `json:"submission_id"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	answer(w, map[string]any{"job_id": request.ID, "submission_id": request.ID})
}

func (d *dashboard) deploy(w http.ResponseWriter, r *http.Request, head *corev1.Pod) {
	var request struct {
		Applications []struct {
			Name string `json:"name"`
		} `json:"applications"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var names []string
	for _, application := range request.Applications {
		names = append(names, application.Name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.served[head.UID] = names
}

func (d *dashboard) applications(w http.ResponseWriter, _ *http.Request, head *corev1.Pod) {
	d.mu.Lock()
	defer d.mu.Unlock()
	applications := map[string]any{}
	for _, name := range d.served[head.UID] {
		applications[name] = map[string]any{"name": name, "status": "RUNNING", "deployments": map[string]any{}}
	}
	answer(w, map[string]any{"applications": applications})
}

func answer(w http.ResponseWriter, value any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(value) // a client that has gone retries
}
