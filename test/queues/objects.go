package queues

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/queueing/cache"
	"github.com/muster-dev/muster/queueing/scheduler"
	"github.com/muster-dev/muster/queueing/workload"
)

// WithOneQueue returns a World of one ClusterQueue with one CPU of one flavor, and its LocalQueue main.
func WithOneQueue(t *testing.T) *World {
	w := New()
	w.Set(Flavor("spot", nil))
	w.Set(ClusterQueue(t, "team", nil, "spot cpu=1"))
	w.Set(LocalQueue("main", "team", ""))
	return w
}

// Submit creates a Workload of one GPU with annotations.
func (w *World) Submit(t *testing.T, name string, annotations map[string]string) {
	object := w.Workload(t, name, map[string]string{"gpu": "1"})
	object.Annotations = annotations
	w.Set(object)
}

// HasQuota reports whether a Workload has quota.
func (w *World) HasQuota(t *testing.T, name string) bool { return workload.HasQuota(w.Find(t, name)) }

// ResourceQuota has amounts such as hard/used, and the scope scope.
func ResourceQuota(name string, args map[string]string) *corev1.ResourceQuota {
	q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	q.Spec.Hard, q.Status.Used = corev1.ResourceList{}, corev1.ResourceList{}
	for k, v := range args {
		if k == "scope" {
			q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScope(v)}
			continue
		}
		hard, used, _ := strings.Cut(v, "/")
		q.Spec.Hard[corev1.ResourceName(k)] = resource.MustParse(hard)
		q.Status.Used[corev1.ResourceName(k)] = resource.MustParse(orDefault(used, "0"))
	}
	return q
}

// WithCapacityCheck returns a World of one ClusterQueue of one flavor, whose capacity check has the CapacityPolicy cheap.
func WithCapacityCheck(t *testing.T) *World {
	w := New()
	w.Set(Flavor("spot", nil))
	w.Set(ClusterQueue(t, "team", map[string]string{"check": "capacity"}, "spot gpu=64"))
	w.Set(LocalQueue("main", "team", ""))
	w.Machines["spot"] = 8
	ac := &kueue.AdmissionCheck{ObjectMeta: metav1.ObjectMeta{Name: "capacity"}}
	ac.Spec.ControllerName = cache.CapacityController
	ac.Spec.Parameters = &kueue.AdmissionCheckParametersReference{APIGroup: v1alpha1.GroupVersion.Group,
		Kind: cache.CapacityPolicyKind, Name: "cheap"}
	w.Set(ac)
	for name, price := range map[string]string{"cheap": "1", "dear": "100"} {
		p := &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.MaxPricePerHour = new(resource.MustParse(price))
		w.Set(p)
	}
	return w
}

// Flavor returns a ResourceFlavor, see RunScenarios for the arguments of objects.
func Flavor(name string, args map[string]string) *kueue.ResourceFlavor {
	f := &kueue.ResourceFlavor{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, ok := args["unlabelled"]; !ok {
		f.Spec.NodeLabels = map[string]string{"pool": name}
	}
	if topology, ok := args["topology"]; ok {
		f.Spec.TopologyName = new(kueue.TopologyReference(topology))
	}
	if k, v, ok := strings.Cut(args["labels"], ":"); ok {
		f.Spec.NodeLabels = map[string]string{k: v}
	}
	if key, ok := args["tolerate"]; ok {
		f.Spec.Tolerations = []corev1.Toleration{{Key: key, Operator: corev1.TolerationOpExists}}
	}
	if k, v, ok := strings.Cut(args["taint"], ":"); ok {
		f.Spec.NodeTaints = []corev1.Taint{{Key: k, Value: v, Effect: corev1.TaintEffectNoSchedule}}
	}
	return f
}

// CapacityPolicy has the fields of the arguments. Fields that begin with may. are the limits to which jobs may loosen them.
func CapacityPolicy(t *testing.T, name string, args map[string]string) *v1alpha1.CapacityPolicy {
	spec, err := v1alpha1.CapacityPolicySpec{}.With(func(field string) string { return args[field] })
	if err != nil {
		t.Fatal(err)
	}
	may, err := v1alpha1.CapacityPolicySpec{}.With(func(field string) string { return args["may."+field] })
	if err != nil {
		t.Fatal(err)
	}
	spec.Overrides = &v1alpha1.CapacityOverrides{
		CapacityTypes: may.CapacityTypes, FallbackAfter: may.FallbackAfter, MaxPricePerHour: may.MaxPricePerHour,
		BookingTimeout: may.BookingTimeout, StartWithin: may.StartWithin, CapacityPolicies: strings.Fields(args["may.capacityPolicies"]),
	}
	return &v1alpha1.CapacityPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

// RequestConfig returns a ProvisioningRequestConfig.
func RequestConfig(t *testing.T, name string, args map[string]string) *kueue.ProvisioningRequestConfig {
	c := &kueue.ProvisioningRequestConfig{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.ProvisioningClassName = args["class"]
	strategy := &kueue.ProvisioningRequestRetryStrategy{}
	for k, to := range map[string]**int32{"limit": &strategy.BackoffLimitCount, "base": &strategy.BackoffBaseSeconds} {
		if v, ok := args[k]; ok {
			n, err := strconv.Atoi(v)
			if err != nil {
				t.Fatalf("%s=%s: %v", k, v, err)
			}
			*to = new(int32(n))
			c.Spec.RetryStrategy = strategy
		}
	}
	if v, ok := args["managed"]; ok {
		c.Spec.ManagedResources = []corev1.ResourceName{corev1.ResourceName(v)}
	}
	if v, ok := args["merge"]; ok {
		c.Spec.PodSetMergePolicy = new(kueue.ProvisioningRequestConfigPodSetMergePolicy(v))
	}
	if k, v, ok := strings.Cut(args["selector"], ":"); ok {
		c.Spec.PodSetUpdates = &kueue.ProvisioningRequestPodSetUpdates{
			NodeSelector: []kueue.ProvisioningRequestPodSetUpdatesNodeSelector{{Key: k, ValueFromProvisioningClassDetail: v}},
		}
	}
	if k, v, ok := strings.Cut(args["set"], ":"); ok {
		c.Spec.Parameters = map[string]kueue.Parameter{k: kueue.Parameter(v)}
	}
	return c
}

// ClusterQueue returns a ClusterQueue with quotas such as "spot cpu=4", a line for each flavor.
func ClusterQueue(t *testing.T, name string, args map[string]string, input string) *kueue.ClusterQueue {
	cq := &kueue.ClusterQueue{ObjectMeta: metav1.ObjectMeta{Name: name}}
	cq.Spec.NamespaceSelector = &metav1.LabelSelector{}
	if _, ok := args["backfill"]; ok {
		cq.Annotations = map[string]string{scheduler.BackfillAnnotation: "true"}
	}
	if _, ok := args["adopt-beyond-nominal"]; ok {
		cq.Annotations = map[string]string{scheduler.AdoptBeyondNominalAnnotation: "true"}
	}
	if _, ok := args["byusage"]; ok {
		cq.Spec.AdmissionScope = &kueue.AdmissionScope{AdmissionMode: kueue.UsageBasedAdmissionFairSharing}
	}
	if team, ok := args["team"]; ok {
		cq.Spec.NamespaceSelector.MatchLabels = map[string]string{"team": team}
	}
	cq.Spec.CohortName = kueue.CohortReference(args["cohort"])
	cq.Spec.QueueingStrategy = kueue.BestEffortFIFO
	if _, ok := args["strict"]; ok {
		cq.Spec.QueueingStrategy = kueue.StrictFIFO
	}
	cq.Spec.StopPolicy = stopPolicy(args["stop"])
	if checks, ok := args["check"]; ok {
		cq.Spec.AdmissionChecksStrategy = &kueue.AdmissionChecksStrategy{}
		for c := range strings.SplitSeq(checks, ",") {
			check, on, _ := strings.Cut(c, "@")
			rule := kueue.AdmissionCheckStrategyRule{Name: kueue.AdmissionCheckReference(check)}
			if on != "" {
				rule.OnFlavors = []kueue.ResourceFlavorReference{kueue.ResourceFlavorReference(on)}
			}
			cq.Spec.AdmissionChecksStrategy.AdmissionChecks = append(cq.Spec.AdmissionChecksStrategy.AdmissionChecks, rule)
		}
	}
	cq.Spec.FairSharing = weight(args)
	cq.Spec.Preemption = preemptionPolicy(args)
	cq.Spec.FlavorFungibility = fungibilityOf(args)
	cq.Spec.ResourceGroups = resourceGroups(t, input)
	return cq
}

// Cohort returns a Cohort, with quotas if input has some.
func Cohort(t *testing.T, name string, args map[string]string, input string) *kueue.Cohort {
	c := &kueue.Cohort{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.Spec.ParentName = kueue.CohortReference(args["parent"])
	c.Spec.FairSharing = weight(args)
	if input != "" {
		c.Spec.ResourceGroups = resourceGroups(t, input)
	}
	return c
}

func weight(args map[string]string) *kueue.FairSharing {
	w, ok := args["weight"]
	if !ok {
		return nil
	}
	return &kueue.FairSharing{Weight: new(resource.MustParse(w))}
}

func preemptionPolicy(args map[string]string) *kueue.ClusterQueuePreemption {
	return &kueue.ClusterQueuePreemption{
		WithinClusterQueue:  kueue.PreemptionPolicy(orDefault(args["within"], "Never")),
		ReclaimWithinCohort: kueue.PreemptionPolicy(orDefault(args["reclaim"], "Never")),
		BorrowWithinCohort:  &kueue.BorrowWithinCohort{Policy: kueue.BorrowWithinCohortPolicy(orDefault(args["borrow"], "Never"))},
	}
}

func fungibilityOf(args map[string]string) *kueue.FlavorFungibility {
	return &kueue.FlavorFungibility{
		WhenCanBorrow:  kueue.FlavorFungibilityPolicy(orDefault(args["whenCanBorrow"], string(kueue.MayStopSearch))),
		WhenCanPreempt: kueue.FlavorFungibilityPolicy(orDefault(args["whenCanPreempt"], string(kueue.TryNextFlavor))),
		Preference:     new(kueue.FlavorFungibilityPreference(orDefault(args["prefers"], string(kueue.BorrowingOverPreemption)))),
	}
}

// resourceGroups parses quotas like cpu=10/4/2: nominal, borrowing limit and lending limit, with - for none. A line of other resources
// starts another group.
func resourceGroups(t *testing.T, input string) []kueue.ResourceGroup {
	groups := []kueue.ResourceGroup{{}}
	for line := range strings.Lines(input) {
		fields := strings.Fields(line)
		quotas := kueue.FlavorQuotas{Name: kueue.ResourceFlavorReference(fields[0])}
		var covered []corev1.ResourceName
		for _, f := range fields[1:] {
			r, q, ok := strings.Cut(f, "=")
			if !ok {
				t.Fatalf("bad quota %q", f)
			}
			covered = append(covered, corev1.ResourceName(r))
			amounts := append(strings.Split(q, "/"), "-", "-")
			limit := func(s string) *resource.Quantity {
				if s == "-" {
					return nil
				}
				return new(resource.MustParse(s))
			}
			quotas.Resources = append(quotas.Resources, kueue.ResourceQuota{
				Name: corev1.ResourceName(r), NominalQuota: resource.MustParse(amounts[0]), BorrowingLimit: limit(amounts[1]),
				LendingLimit: limit(amounts[2]),
			})
		}
		group := &groups[len(groups)-1]
		if len(group.Flavors) > 0 && !slices.Equal(group.CoveredResources, covered) {
			groups = append(groups, kueue.ResourceGroup{})
			group = &groups[len(groups)-1]
		}
		group.CoveredResources, group.Flavors = covered, append(group.Flavors, quotas)
	}
	return groups
}

// LocalQueue returns a LocalQueue of the namespace default.
func LocalQueue(name, clusterQueue, stop string) *kueue.LocalQueue {
	lq := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
	lq.Spec.ClusterQueue = kueue.ClusterQueueReference(clusterQueue)
	lq.Spec.StopPolicy = stopPolicy(stop)
	return lq
}

func stopPolicy(s string) *kueue.StopPolicy {
	if s == "" {
		return nil
	}
	return new(kueue.StopPolicy(s))
}

func orDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

// Workload returns a new Workload.
func (w *World) Workload(t *testing.T, name string, args map[string]string) *kueue.Workload {
	w.Created++
	object := &kueue.Workload{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: "default", UID: types.UID(fmt.Sprintf("uid-%03d", w.Created)), Generation: 1,
		CreationTimestamp: metav1.NewTime(w.Now),
		// A job owns it, so its quota is not released before its pods are gone.
		OwnerReferences: []metav1.OwnerReference{{Kind: "Job", Name: name, Controller: new(true)}},
	}}
	object.Spec.QueueName = kueue.LocalQueueName(orDefault(args["lq"], "main"))
	spec := corev1.PodSpec{}
	requests := corev1.ResourceList{}
	count := 1
	var minCount *int32
	var group []kueue.PodSet
	for k, v := range args {
		var err error
		switch k {
		case "lq":
		case "priority":
			var p int
			p, err = strconv.Atoi(v)
			object.Spec.Priority = new(int32(p))
		case "class":
			object.Spec.PriorityClassRef = kueue.NewWorkloadPriorityClassRef(v)
		case "podclass":
			object.Spec.PriorityClassRef = kueue.NewPodPriorityClassRef(v)
		case "max":
			var n int
			n, err = strconv.Atoi(v)
			object.Spec.MaximumExecutionTimeSeconds = new(int32(n))
		case "count":
			count, err = strconv.Atoi(v)
		case "min":
			var n int
			n, err = strconv.Atoi(v)
			minCount = new(int32(n))
		case "select":
			spec.NodeSelector = map[string]string{"pool": v}
		case "tolerate":
			spec.Tolerations = []corev1.Toleration{{Key: v, Operator: corev1.TolerationOpExists}}
		case "runtime":
			spec.RuntimeClassName = new(v)
		case "topology":
			// required:LEVEL, preferred:LEVEL, unconstrained, or slice:LEVEL:SIZE
			object.Spec.PodSets = []kueue.PodSet{{TopologyRequest: TopologyRequest(v)}}
		case "slices":
			// LEVEL:SIZE of the last podSet, beside what its topology says.
		case "owner":
			object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: v, Name: name, UID: types.UID(name), Controller: new(true)}}
		case "group":
			// Sizes of further podSets, which are placed together with the first.
			for i, size := range strings.Split(v, ":") {
				var n int
				n, err = strconv.Atoi(size)
				group = append(group, kueue.PodSet{Name: kueue.PodSetReference(fmt.Sprint("group-", i+1)), Count: int32(n)})
			}
		case "waited":
			// A copy of a Workload that has waited for so long elsewhere.
			var before time.Duration
			before, err = time.ParseDuration(v)
			object.Labels = map[string]string{kueue.MultiKueueOriginLabel: "manager"}
			object.Annotations = orEmpty(object.Annotations)
			object.Annotations[workload.QueuedSinceAnnotation] = w.Now.Add(-before).Format(time.RFC3339)
		case "launcher":
			// A second podSet of one pod, which comes first.
			name, amount, _ := strings.Cut(v, ":")
			object.Spec.PodSets = []kueue.PodSet{{Name: "launcher", Count: 1, Template: podTemplate(name, resource.MustParse(amount))}}
		default:
			if strings.HasPrefix(k, workload.ParameterPrefix) {
				object.Annotations = orEmpty(object.Annotations)
				object.Annotations[k] = v
				continue
			}
			requests[corev1.ResourceName(k)], err = resource.ParseQuantity(v)
		}
		if err != nil {
			t.Fatalf("%s=%s: %v", k, v, err)
		}
	}
	spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}
	podSet := kueue.PodSet{Name: "main", Count: int32(count), MinCount: minCount, Template: corev1.PodTemplateSpec{Spec: spec}}
	if _, ok := args["launcher"]; ok {
		object.Spec.PodSets = append(object.Spec.PodSets, podSet)
		return object
	}
	if len(object.Spec.PodSets) > 0 {
		podSet.TopologyRequest = object.Spec.PodSets[0].TopologyRequest
	}
	object.Spec.PodSets = []kueue.PodSet{podSet}
	for _, ps := range group {
		podSet.TopologyRequest.PodSetGroupName = new("group")
		ps.TopologyRequest, ps.Template = podSet.TopologyRequest, podSet.Template
		object.Spec.PodSets[0].TopologyRequest = podSet.TopologyRequest
		object.Spec.PodSets = append(object.Spec.PodSets, ps)
	}
	if v, ok := args["slices"]; ok {
		last := &object.Spec.PodSets[len(object.Spec.PodSets)-1]
		last.TopologyRequest = last.TopologyRequest.DeepCopy()
		slices := TopologyRequest("slice:" + v)
		last.TopologyRequest.PodSetSliceRequiredTopology, last.TopologyRequest.PodSetSliceSize = slices.PodSetSliceRequiredTopology,
			slices.PodSetSliceSize
	}
	return object
}

// TopologyRequest reads required:LEVEL, preferred:LEVEL, unconstrained, and slice:LEVEL:SIZE.
func TopologyRequest(text string) *kueue.PodSetTopologyRequest {
	how, level, _ := strings.Cut(text, ":")
	switch how {
	case "required":
		return &kueue.PodSetTopologyRequest{Required: &level}
	case "preferred":
		return &kueue.PodSetTopologyRequest{Preferred: &level}
	case "slice":
		out := &kueue.PodSetTopologyRequest{}
		for layer := range strings.SplitSeq(level, ",") {
			level, size, _ := strings.Cut(layer, ":")
			n, _ := strconv.Atoi(size)
			out.PodsetSliceRequiredTopologyConstraints = append(out.PodsetSliceRequiredTopologyConstraints,
				kueue.PodsetSliceRequiredTopologyConstraint{Topology: level, Size: int32(n)})
		}
		if l := out.PodsetSliceRequiredTopologyConstraints; len(l) == 1 {
			return &kueue.PodSetTopologyRequest{PodSetSliceRequiredTopology: &l[0].Topology, PodSetSliceSize: &l[0].Size}
		}
		return out
	}
	return &kueue.PodSetTopologyRequest{Unconstrained: new(true)}
}

// Nodes makes nodes of one kind.
func (w *World) Nodes(t *testing.T, name string, args map[string]string) {
	count := 1
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
	n.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: resource.MustParse("110")}
	for k, v := range args {
		switch k {
		case "count":
			var err error
			if count, err = strconv.Atoi(v); err != nil {
				t.Fatal(err)
			}
		case "cordoned":
			n.Spec.Unschedulable = true
		case "taint":
			key, effect, ok := strings.Cut(v, ":")
			if !ok {
				effect = string(corev1.TaintEffectNoSchedule)
			}
			n.Spec.Taints = []corev1.Taint{{Key: key, Effect: corev1.TaintEffect(effect)}}
		case "unready":
			n.Status.Conditions[0].Status = corev1.ConditionFalse
		case "booked":
			// By the only request of a workload, as the provisioner books it.
			r := w.State.Requests[w.Find(t, v).UID][0]
			n.Annotations = map[string]string{state.BookingLabel(r.Name): state.Booking{UID: r.UID}.Encode()}
			n.Labels[state.BookingLabel(r.Name)], n.Spec.Unschedulable = r.Namespace, true
		case "pool", "rack", "block":
			n.Labels[k] = v
		default:
			n.Status.Allocatable[corev1.ResourceName(k)] = resource.MustParse(v)
		}
	}
	for i := range count {
		one := n.DeepCopy()
		host := name
		if count > 1 {
			host = fmt.Sprintf("%s-%d", name, i+1)
		}
		one.Name, one.UID = NodeOf(host), types.UID("node "+host)
		one.Labels[corev1.LabelHostname], one.Spec.ProviderID = host, idOf(host)
		w.Set(one)
	}
}

// NodeOf returns the name of the node with that host name: the two differ in many clusters, and domains use the host name.
func NodeOf(host string) string { return "node-of-" + host }

func idOf(host string) string { return "cloud://" + host }

// Pod makes a pod on a node that no Workload has.
func (w *World) Pod(name string, args map[string]string) {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("pod " + name)}}
	if _, done := args["done"]; done {
		w.Delete(p)
		return
	}
	requests := corev1.ResourceList{}
	for k, v := range args {
		switch k {
		case "node":
			p.Spec.NodeName = NodeOf(v)
		case "workload":
			p.Annotations = map[string]string{kueue.WorkloadAnnotation: v}
		case "leaving":
			p.DeletionTimestamp = &metav1.Time{Time: w.Now}
		case "podset":
			p.Labels = map[string]string{workload.PodSetLabel: v}
		default:
			requests[corev1.ResourceName(k)] = resource.MustParse(v)
		}
	}
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}
	w.Set(p)
}

func podTemplate(name string, amount resource.Quantity) corev1.PodTemplateSpec {
	requests := corev1.ResourceList{corev1.ResourceName(name): amount}
	return corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
		Resources: corev1.ResourceRequirements{Requests: requests}}}}}
}

func orEmpty(m map[string]string) map[string]string {
	if m == nil {
		return map[string]string{}
	}
	return m
}
