package standin

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/yaml"
)

// SparkSubmit is the component that creates the driver's pod of a Spark application.
const SparkSubmit = "spark-submit"

const (
	driver   = "driver"
	executor = "executor"

	// roleLabel and appLabel are on all pods of an application.
	roleLabel = "spark-role"
	appLabel  = "spark-app-selector"

	// executorsAnnotation of a driver has the executors that it requests.
	executorsAnnotation = "kwok.muster.dev/spark-executors"
)

// executors are the executors that a driver requests.
type executors struct {
	Count int         `json:"count"`
	Pod   *corev1.Pod `json:"pod"`
}

// NewSparkSubmitCommand takes the arguments of spark-submit.
func NewSparkSubmitCommand() *cobra.Command {
	var kubeconfig string
	command := &cobra.Command{
		Use: SparkSubmit,
		RunE: func(command *cobra.Command, args []string) error {
			config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
			if err != nil {
				return fmt.Errorf("reading the kubeconfig: %w", err)
			}
			client, err := kubernetes.NewForConfig(config)
			if err != nil {
				return err
			}
			pod, err := submitted(properties(args))
			if err != nil {
				return err
			}
			_, err = client.CoreV1().Pods(pod.Namespace).Create(command.Context(), pod, metav1.CreateOptions{})
			return err
		},
	}
	command.Flags().StringVar(&kubeconfig, "kubeconfig", "", "`file` with the access to the cluster")
	return command
}

// properties are the Spark properties of the arguments; a later one overrides an earlier.
func properties(args []string) map[string]string {
	out := map[string]string{}
	for i := range args {
		if args[i] == "--conf" && i+1 < len(args) {
			key, value, _ := strings.Cut(args[i+1], "=")
			out[key] = value
		}
	}
	return out
}

// submitted returns the driver's pod, with the annotation of its executors.
func submitted(conf map[string]string) (*corev1.Pod, error) {
	pod, err := podOf(driver, conf)
	if err != nil {
		return nil, err
	}
	pod.Name = conf["spark.kubernetes.driver.pod.name"]
	if pod.Annotations[runFor] == "" {
		pod.Annotations[runFor] = defaultRun.String()
	}
	workers := executors{Count: executorCount(conf)}
	if workers.Pod, err = podOf(executor, conf); err != nil {
		return nil, err
	}
	text, err := json.Marshal(workers)
	if err != nil {
		return nil, err
	}
	pod.Annotations[executorsAnnotation] = string(text)
	return pod, nil
}

// executorCount is how many there are at the start.
func executorCount(conf map[string]string) int {
	const byDefault = 2
	count, err := strconv.Atoi(conf["spark.executor.instances"])
	if err != nil {
		count = byDefault
	}
	if conf["spark.dynamicAllocation.enabled"] != "true" {
		return count
	}
	count, _ = strconv.Atoi(conf["spark.executor.instances"])
	initial, _ := strconv.Atoi(conf["spark.dynamicAllocation.initialExecutors"])
	least, _ := strconv.Atoi(conf["spark.dynamicAllocation.minExecutors"])
	return max(count, initial, least)
}

// podOf is a pod of a role: its template, with what the properties say. A property that is missing in the template's
// container is not taken from there: Spark sets the container's name, image, cpu and memory itself.
func podOf(role string, conf map[string]string) (*corev1.Pod, error) {
	var template corev1.PodTemplateSpec
	prefix := "spark.kubernetes." + role
	if file := conf[prefix+".podTemplateFile"]; file != "" {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading the template of the %s: %w", role, err)
		}
		if err := yaml.Unmarshal(text, &template); err != nil {
			return nil, fmt.Errorf("reading the template of the %s: %w", role, err)
		}
	}
	pod := &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
	pod.Namespace = conf["spark.kubernetes.namespace"]
	pod.Labels = merged(pod.Labels, under(conf, prefix+".label."))
	pod.Labels[roleLabel] = role
	pod.Labels[appLabel] = "spark-" + pod.Labels["sparkoperator.k8s.io/submission-id"]
	pod.Annotations = merged(pod.Annotations, under(conf, prefix+".annotation."))
	pod.Spec.NodeSelector = merged(pod.Spec.NodeSelector, under(conf, "spark.kubernetes.node.selector."))
	maps.Copy(pod.Spec.NodeSelector, under(conf, prefix+".node.selector."))
	pod.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod.Spec.ServiceAccountName = conf["spark.kubernetes.authenticate."+role+".serviceAccountName"]

	if len(pod.Spec.Containers) == 0 {
		pod.Spec.Containers = []corev1.Container{{}}
	}
	container := &pod.Spec.Containers[0]
	for i := range pod.Spec.Containers {
		if pod.Spec.Containers[i].Name == conf[prefix+".podTemplateContainerName"] {
			container = &pod.Spec.Containers[i]
		}
	}
	container.Name = "spark-kubernetes-" + role
	container.Image = cmp.Or(conf[prefix+".container.image"], conf["spark.kubernetes.container.image"], container.Image, "spark")
	requests, err := requestsOf(role, conf)
	if err != nil {
		return nil, err
	}
	container.Resources.Requests = merged(container.Resources.Requests, requests)
	container.Resources.Limits = merged(container.Resources.Limits,
		corev1.ResourceList{corev1.ResourceMemory: requests[corev1.ResourceMemory]})
	return pod, nil
}

// requestsOf is the cpu and the memory of a role, with the overhead that Spark adds.
func requestsOf(role string, conf map[string]string) (corev1.ResourceList, error) {
	const (
		minimalOverhead = 384 << 20
		mebibyte        = 1 << 20
	)
	cpu, err := resource.ParseQuantity(cmp.Or(conf["spark.kubernetes."+role+".request.cores"], conf["spark."+role+".cores"], "1"))
	memory, memoryErr := bytes(cmp.Or(conf["spark."+role+".memory"], "1g"))
	factor, factorErr := strconv.ParseFloat(cmp.Or(conf["spark."+role+".memoryOverheadFactor"],
		conf["spark.kubernetes.memoryOverheadFactor"], "0.1"), 64)
	overhead := max(minimalOverhead, int64(factor*float64(memory))/mebibyte*mebibyte)
	var overheadErr error
	if text := conf["spark."+role+".memoryOverhead"]; text != "" {
		overhead, overheadErr = bytes(text)
	}
	if err := errors.Join(err, memoryErr, factorErr, overheadErr); err != nil {
		return nil, fmt.Errorf("reading the resources of the %s: %w", role, err)
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    cpu,
		corev1.ResourceMemory: *resource.NewQuantity(memory+overhead, resource.BinarySI),
	}, nil
}

// bytes reads an amount as Java has it; without a unit it is MiB.
func bytes(text string) (int64, error) {
	digits := strings.TrimRight(strings.ToLower(text), "kmgtb")
	unit, ok := map[string]int64{"": 1 << 20, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}[strings.TrimSuffix(
		strings.ToLower(text[len(digits):]), "b")]
	amount, err := strconv.ParseInt(digits, 10, 64)
	if err != nil || !ok {
		return 0, fmt.Errorf("%q is no amount of memory, such as 512m or 4g", text)
	}
	return amount * unit, nil
}

// under is the properties below a prefix, by the rest of their names.
func under(conf map[string]string, prefix string) map[string]string {
	out := map[string]string{}
	for key, value := range conf {
		if rest, ok := strings.CutPrefix(key, prefix); ok {
			out[rest] = value
		}
	}
	return out
}

// merged is both, and never nil.
func merged[K comparable, V any](base, over map[K]V) map[K]V {
	out := map[K]V{}
	maps.Copy(out, base)
	maps.Copy(out, over)
	return out
}
