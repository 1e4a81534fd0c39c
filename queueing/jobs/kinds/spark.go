package kinds

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/queueing/jobs/order"
)

// A SparkApplication has no pod templates: spark-submit makes its pods of numbers. Those are
// read here as Spark reads them, with its defaults; sparkConf takes precedence.

const (
	// Spark's own defaults.
	sparkMemory        = "1g"
	sparkInstances     = 2
	sparkFactor        = 0.1
	sparkFactorOfOther = 0.4 // of Python and R
	sparkLeastOverhead = 384 // MiB
)

// sparkRole is the driver or the executors.
type sparkRole struct {
	name        string
	object      map[string]any
	application map[string]any
}

func findSpark(object map[string]any) (out []found, refusals []string) {
	for _, name := range []string{"driver", "executor"} {
		path := pointer{"spec", name}
		value, _ := path.get(object)
		spec, _ := value.(map[string]any)
		role := sparkRole{name: name, object: spec, application: object}
		f := found{name: name, count: 1, at: at(path), scope: scopeOf(object), place: sparkPlace(path)}
		f.after = &order.After{}
		var err error
		if name == "executor" {
			f.after.Ready = []string{"driver"} // which creates them
			if f.count, err = role.instances(); err != nil {
				refusals = append(refusals, err.Error())
			}
		}
		if f.raw, err = role.template(); err != nil {
			refusals = append(refusals, err.Error())
			continue
		}
		out = append(out, f)
	}
	return out, refusals
}

// setting returns a value of the role's configuration: that of sparkConf, or of the field.
func (r *sparkRole) setting(conf, field string) string {
	all, _ := pointer{"spec", "sparkConf"}.get(r.application)
	if m, ok := all.(map[string]any); ok {
		for _, key := range []string{"spark." + r.name + "." + conf, "spark.kubernetes." + r.name + "." + conf} {
			if value, ok := m[key]; ok {
				return fmt.Sprint(value)
			}
		}
	}
	if value, ok := r.object[field]; ok && value != nil {
		return fmt.Sprint(value)
	}
	return ""
}

// instances is the number of executors.
func (r *sparkRole) instances() (int32, error) {
	text := r.setting("instances", "instances")
	if text == "" {
		return sparkInstances, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 || n > maxCount {
		return 0, fmt.Errorf("the number of executors is %q, which is not from 0 to %d; correct spec.executor.instances", text, maxCount)
	}
	return int32(n), nil
}

// template is what the role's pods are made of, as far as it matters to queues and nodes.
func (r *sparkRole) template() (map[string]any, error) {
	cpu := r.setting("request.cores", "coreRequest")
	if cpu == "" {
		cpu = r.setting("cores", "cores")
	}
	if cpu == "" {
		cpu = "1"
	}
	if _, err := resource.ParseQuantity(cpu); err != nil {
		return nil, fmt.Errorf("the cores of spec.%s are %q, which is no quantity; correct them", r.name, cpu)
	}
	memory, err := r.memory()
	if err != nil {
		return nil, err
	}
	requests := map[string]any{"cpu": cpu, "memory": memory}
	resources := map[string]any{"requests": requests}
	if gpu, ok := r.object["gpu"].(map[string]any); ok {
		if name, ok := gpu["name"].(string); ok {
			requests[name] = gpu["quantity"]
			resources["limits"] = map[string]any{name: gpu["quantity"]}
		}
	}
	containers := []any{map[string]any{"name": "spark-kubernetes-" + r.name, "image": "spark", "resources": resources}}
	if sidecars, ok := r.object["sidecars"].([]any); ok {
		containers = append(containers, sidecars...)
	}
	spec := map[string]any{"containers": containers}
	for _, field := range []string{"nodeSelector", "tolerations", "affinity", "priorityClassName", "schedulerName", "initContainers"} {
		if value, ok := r.object[field]; ok {
			spec[field] = value
		}
	}
	metadata := map[string]any{}
	for _, field := range []string{"labels", "annotations"} {
		if value, ok := r.object[field]; ok {
			metadata[field] = value
		}
	}
	return map[string]any{"metadata": metadata, "spec": spec}, nil
}

// memory is what a pod of the role requests: the heap, what the process needs beside it, and
// what is off the heap.
func (r *sparkRole) memory() (string, error) {
	text := r.setting("memory", "memory")
	if text == "" {
		text = sparkMemory
	}
	heap, err := mebibytes(text)
	if err != nil {
		return "", fmt.Errorf("the memory of spec.%s is %w", r.name, err)
	}
	overhead := max(sparkLeastOverhead, int64(float64(heap)*r.factor()))
	if text := r.setting("memoryOverhead", "memoryOverhead"); text != "" {
		if overhead, err = mebibytes(text); err != nil {
			return "", fmt.Errorf("the memoryOverhead of spec.%s is %w", r.name, err)
		}
	}
	total := heap + overhead
	if r.name == "executor" {
		python, err := r.optional("spark.executor.pyspark.memory")
		if err != nil {
			return "", err
		}
		total += python
		if conf(r.application, "spark.memory.offHeap.enabled") == "true" {
			offHeap, err := r.optional("spark.memory.offHeap.size")
			if err != nil {
				return "", err
			}
			total += offHeap
		}
	}
	return strconv.FormatInt(total, 10) + "Mi", nil
}

// factor is the part of the heap that a process needs beside it.
func (r *sparkRole) factor() float64 {
	for _, text := range []string{
		conf(r.application, "spark."+r.name+".memoryOverheadFactor"),
		conf(r.application, "spark.kubernetes.memoryOverheadFactor"),
		specOf(r.application, "memoryOverheadFactor"),
	} {
		if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 0 {
			return f
		}
	}
	if kind := specOf(r.application, "type"); kind == "Python" || kind == "R" {
		return sparkFactorOfOther
	}
	return sparkFactor
}

func (r *sparkRole) optional(key string) (int64, error) {
	text := conf(r.application, key)
	if text == "" {
		return 0, nil
	}
	n, err := mebibytes(text)
	if err != nil {
		return 0, fmt.Errorf("%s in spec.sparkConf is %w", key, err)
	}
	return n, nil
}

func conf(application map[string]any, key string) string {
	value, ok := pointer{"spec", "sparkConf", key}.get(application)
	if !ok {
		return ""
	}
	return fmt.Sprint(value)
}

func specOf(application map[string]any, name string) string {
	value, ok := pointer{"spec", name}.get(application)
	if !ok {
		return ""
	}
	return fmt.Sprint(value)
}

var sparkSize = regexp.MustCompile(`^([0-9]+)([kmgtp]?)i?b?$`)

// mebibytes reads an amount of memory as Spark writes it: a number of MiB, or with a unit,
// which is a power of 1024.
func mebibytes(text string) (int64, error) {
	parts := sparkSize.FindStringSubmatch(strings.ToLower(text))
	if parts == nil {
		return 0, fmt.Errorf("%q, which is no amount of memory as Spark has it, like 512m or 4g; correct it", text)
	}
	n, err := strconv.ParseInt(parts[1], 10, 40)
	if err != nil {
		return 0, fmt.Errorf("%q, which is too much; correct it", text)
	}
	switch parts[2] {
	case "k":
		return (n + 1023) / 1024, nil
	case "g":
		return n << 10, nil
	case "t":
		return n << 20, nil
	case "p":
		return n << 30, nil
	}
	return n, nil
}

// sparkPlace is the driver or the executor of an application.
type sparkPlace pointer

// put implements place.
func (p sparkPlace) put(object map[string]any, t *corev1.PodTemplateSpec) error {
	of := func(field string) pointer { return append(pointer{p[0], p[1]}, field) }
	return writeFields(object, []fieldOf{
		{of("labels"), t.Labels}, {of("annotations"), t.Annotations},
		{of("nodeSelector"), t.Spec.NodeSelector}, {of("tolerations"), t.Spec.Tolerations},
	})
}

// undo implements place.
func (p sparkPlace) undo(object map[string]any, before *original, was *corev1.PodTemplateSpec) error {
	podSets, _ := findSpark(object)
	for i := range podSets {
		if podSets[i].name != p[1] {
			continue
		}
		t, err := templateOf(podSets[i].raw)
		if err != nil {
			return err
		}
		return restored(t, before, was, func() error { return p.put(object, t) })
	}
	return nil
}
