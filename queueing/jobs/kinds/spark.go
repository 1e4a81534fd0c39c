package kinds

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/muster-dev/muster/queueing/jobs/order"
)

// A SparkApplication has few pod templates: spark-submit makes its pods of numbers. Those are
// read here as the operator hands them over and as Spark reads them, with its defaults. The
// operator writes the fields of the application after sparkConf, and of a property that is
// given twice Spark takes the last.

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

// setting returns a value of the role's configuration: that of the field, or of the property.
func (r *sparkRole) setting(field, property string) string {
	if value, ok := r.object[field]; ok && value != nil {
		return fmt.Sprint(value)
	}
	return conf(r.application, property)
}

// instances is the number of executors.
func (r *sparkRole) instances() (int32, error) {
	text := r.setting("instances", "spark.executor.instances")
	if text == "" {
		return sparkInstances, nil
	}
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 0 || n > maxCount {
		return 0, fmt.Errorf("the number of executors is %q, which is not from 0 to %d; correct spec.executor.instances", text, maxCount)
	}
	return int32(n), nil
}

// sparkPod is what an application says of the pods of a role beside numbers.
type sparkPod struct {
	Template          *corev1.PodTemplateSpec `json:"template"`
	Labels            map[string]string       `json:"labels"`
	Annotations       map[string]string       `json:"annotations"`
	NodeSelector      map[string]string       `json:"nodeSelector"`
	Tolerations       []corev1.Toleration     `json:"tolerations"`
	Affinity          *corev1.Affinity        `json:"affinity"`
	PriorityClassName string                  `json:"priorityClassName"`
	SchedulerName     string                  `json:"schedulerName"`
	InitContainers    []corev1.Container      `json:"initContainers"`
	Sidecars          []corev1.Container      `json:"sidecars"`
	GPU               struct {
		Name     string `json:"name"`
		Quantity int64  `json:"quantity"`
	} `json:"gpu"`
}

// template is what the role's pods are made of, as far as it matters to queues and nodes.
func (r *sparkRole) template() (map[string]any, error) {
	says := &sparkPod{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(r.object, says); err != nil {
		return nil, fmt.Errorf("spec.%s cannot be read: %w; correct it", r.name, err)
	}
	t := says.Template
	if t == nil {
		t = &corev1.PodTemplateSpec{}
	}
	container, err := r.container(&t.Spec)
	if err != nil {
		return nil, err
	}
	if says.GPU.Name != "" && says.GPU.Quantity > 0 {
		addDevices(container, says.GPU.Name, *resource.NewQuantity(says.GPU.Quantity, resource.DecimalSI))
	}
	t.Spec.Containers = withContainers(t.Spec.Containers, says.Sidecars)
	t.Spec.InitContainers = withContainers(t.Spec.InitContainers, says.InitContainers)
	t.Labels, t.Annotations = withEntries(t.Labels, says.Labels), withEntries(t.Annotations, says.Annotations)
	t.Spec.NodeSelector = withEntries(t.Spec.NodeSelector, withEntries(r.nodeSelector(), says.NodeSelector))
	for _, toleration := range says.Tolerations {
		if !slices.ContainsFunc(t.Spec.Tolerations, func(o corev1.Toleration) bool { return equality.Semantic.DeepEqual(o, toleration) }) {
			t.Spec.Tolerations = append(t.Spec.Tolerations, toleration)
		}
	}
	if says.Affinity != nil {
		t.Spec.Affinity = says.Affinity
	}
	t.Spec.PriorityClassName = cmp.Or(says.PriorityClassName, t.Spec.PriorityClassName)
	t.Spec.SchedulerName = cmp.Or(says.SchedulerName, t.Spec.SchedulerName)
	return runtime.DefaultUnstructuredConverter.ToUnstructured(t)
}

// container adds to a pod what Spark's own container requests, and returns that. A template may have one, whose other resources stay.
func (r *sparkRole) container(pod *corev1.PodSpec) (*corev1.Container, error) {
	cpu := cmp.Or(r.setting("coreRequest", "spark.kubernetes."+r.name+".request.cores"), r.setting("cores", "spark."+r.name+".cores"), "1")
	cores, err := resource.ParseQuantity(cpu)
	if err != nil {
		return nil, fmt.Errorf("the cores of spec.%s are %q, which is no quantity; correct them", r.name, cpu)
	}
	memory, err := r.memory()
	if err != nil {
		return nil, err
	}
	name := "spark-kubernetes-" + r.name
	i := slices.IndexFunc(pod.Containers, func(c corev1.Container) bool { return c.Name == name })
	switch {
	case len(pod.Containers) == 0:
		i, pod.Containers = 0, []corev1.Container{{Name: name}}
	case i < 0:
		i = 0
	}
	c := &pod.Containers[i]
	c.Image = cmp.Or(c.Image, "spark")
	if c.Resources.Requests == nil {
		c.Resources.Requests = corev1.ResourceList{}
	}
	c.Resources.Requests[corev1.ResourceCPU], c.Resources.Requests[corev1.ResourceMemory] = cores, memory
	devices, err := r.devices()
	if err != nil {
		return nil, err
	}
	for name, quantity := range devices {
		addDevices(c, name, quantity)
	}
	return c, nil
}

// devices returns the devices that properties request: spark.executor.resource.gpu.amount, and its vendor, which is the domain of the
// resource.
func (r *sparkRole) devices() (map[string]resource.Quantity, error) {
	out := map[string]resource.Quantity{}
	properties, _ := pointer{"spec", "sparkConf"}.get(r.application)
	all, _ := properties.(map[string]any)
	for property, value := range all {
		rest, ok := strings.CutPrefix(property, "spark."+r.name+".resource.")
		name, ok2 := strings.CutSuffix(rest, ".amount")
		if !ok || !ok2 {
			continue
		}
		vendor := conf(r.application, "spark."+r.name+".resource."+name+".vendor")
		quantity, err := resource.ParseQuantity(fmt.Sprint(value))
		if err != nil || quantity.Sign() < 0 || vendor == "" {
			return nil, fmt.Errorf("spec.sparkConf requests %q of %s with the vendor %q; set %s to a number, and the vendor to the domain of the "+
				"resource, for example nvidia.com", value, name, vendor, property)
		}
		out[vendor+"/"+name] = quantity
	}
	return out, nil
}

// nodeSelector is that of properties, for all pods and for those of the role.
func (r *sparkRole) nodeSelector() map[string]string {
	var out map[string]string
	properties, _ := pointer{"spec", "sparkConf"}.get(r.application)
	all, _ := properties.(map[string]any)
	for _, prefix := range []string{"spark.kubernetes.node.selector.", "spark.kubernetes." + r.name + ".node.selector."} {
		for property, value := range all {
			if label, ok := strings.CutPrefix(property, prefix); ok {
				out = withEntries(out, map[string]string{label: fmt.Sprint(value)})
			}
		}
	}
	return out
}

// addDevices has a container request devices, which have equal limits.
func addDevices(c *corev1.Container, name string, quantity resource.Quantity) {
	for _, list := range []*corev1.ResourceList{&c.Resources.Requests, &c.Resources.Limits} {
		if *list == nil {
			*list = corev1.ResourceList{}
		}
		(*list)[corev1.ResourceName(name)] = quantity
	}
}

// withContainers adds the containers that are not there by name.
func withContainers(containers, more []corev1.Container) []corev1.Container {
	for _, c := range more {
		if !slices.ContainsFunc(containers, func(o corev1.Container) bool { return o.Name == c.Name }) {
			containers = append(containers, c)
		}
	}
	return containers
}

// withEntries adds entries to a map, which may be nil, and replaces those of the same key.
func withEntries(m, more map[string]string) map[string]string {
	if m == nil && len(more) > 0 {
		m = map[string]string{}
	}
	maps.Copy(m, more)
	return m
}

// memory is what a pod of the role requests: the heap, what the process needs beside it, and
// what is off the heap.
func (r *sparkRole) memory() (none resource.Quantity, err error) {
	heap, err := mebibytes(cmp.Or(r.setting("memory", "spark."+r.name+".memory"), sparkMemory))
	if err != nil {
		return none, fmt.Errorf("the memory of spec.%s is %w", r.name, err)
	}
	least := int64(sparkLeastOverhead)
	if property := "spark." + r.name + ".minMemoryOverhead"; conf(r.application, property) != "" {
		if least, err = r.optional(property); err != nil {
			return none, err
		}
	}
	overhead := max(least, int64(float64(heap)*r.factor()))
	if text := r.setting("memoryOverhead", "spark."+r.name+".memoryOverhead"); text != "" {
		if overhead, err = mebibytes(text); err != nil {
			return none, fmt.Errorf("the memoryOverhead of spec.%s is %w", r.name, err)
		}
	}
	total := heap + overhead
	if r.name == "executor" {
		python, err := r.optional("spark.executor.pyspark.memory")
		if err != nil {
			return none, err
		}
		total += python
		if strings.EqualFold(conf(r.application, "spark.memory.offHeap.enabled"), "true") {
			offHeap, err := r.optional("spark.memory.offHeap.size")
			if err != nil {
				return none, err
			}
			total += offHeap
		}
	}
	return *resource.NewQuantity(total<<20, resource.BinarySI), nil
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

// sparkPlaces are the fields of an application that put writes.
func sparkPlaces() (out []pointer) {
	for _, role := range []string{"driver", "executor"} {
		for _, field := range []string{"labels", "annotations", "nodeSelector", "tolerations"} {
			out = append(out, pointer{"spec", role, field})
		}
		out = append(out, pointer{"spec", role, "template", started})
	}
	return out
}

// put implements place. A newer operator applies the fields of a role only to pods without a template, an older one to all.
func (p sparkPlace) put(object map[string]any, t *corev1.PodTemplateSpec) error {
	of := func(field string) pointer { return pointer{p[0], p[1], field} }
	if _, ok := of("template").get(object); ok {
		if err := podTemplate(of("template")).put(object, t); err != nil {
			return err
		}
	}
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
