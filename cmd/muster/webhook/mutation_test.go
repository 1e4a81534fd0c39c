package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	ctrladmission "sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/workload"
)

// mutations compiles all policies.
func mutations(t *testing.T, params client.Reader) map[string]*mutation {
	t.Helper()
	objects, err := deploy.Manifests(deploy.Halves...)
	if err != nil {
		t.Fatal(err)
	}
	policies, err := deploy.DefaultNames.Policies(objects)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*mutation{}
	for _, p := range policies {
		if out[p.Name], err = newMutation(p, params); err != nil {
			t.Fatalf("%s: %v", p.Name, err)
		}
	}
	return out
}

func params(t *testing.T, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, kueue.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
}

func asJSON(t *testing.T, text string) []byte {
	t.Helper()
	out, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// changed returns the object after the response's patch.
func changed(t *testing.T, r ctrladmission.Response, object []byte) []byte {
	t.Helper()
	if err := r.Complete(ctrladmission.Request{}); err != nil {
		t.Fatal(err)
	}
	if !r.Allowed || len(r.Warnings) > 0 {
		t.Fatalf("allowed: %t, warnings %v", r.Allowed, r.Warnings)
	}
	if len(r.Patch) == 0 {
		return object
	}
	p, err := jsonpatch.DecodePatch(r.Patch)
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.Apply(object)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// TestMutationsAreThoseOfThePolicies, once and no more when an object comes again.
func TestMutationsAreThoseOfThePolicies(t *testing.T) {
	queue := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "default"}}
	delegating := &kueue.LocalQueue{ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "elsewhere"},
		Status: kueue.LocalQueueStatus{Conditions: []metav1.Condition{{Type: workload.ConditionDelegated, Status: metav1.ConditionTrue}}}}
	defaultElsewhere := delegating.DeepCopy()
	defaultElsewhere.Namespace, defaultElsewhere.Name = "far", "default"
	launching := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: deploy.Namespace, Name: deploy.Launching},
		Data: map[string]string{"asg-1": ""}}
	moved := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: deploy.Namespace, Name: deploy.Moved},
		Data: map[string]string{"moved.1": "team/w"}}
	all := mutations(t, params(t, queue, delegating, defaultElsewhere, launching, moved))
	const job, pod, node = `{apiVersion: batch/v1, kind: Job, `, `{apiVersion: v1, kind: Pod, `, `{apiVersion: v1, kind: Node, `
	covered := map[string]bool{}
	for name, c := range map[string]struct{ policy, namespace, object, want string }{
		"a queued Job is suspended": {"muster-jobs-suspend", "team",
			job +
				`metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: main}}, spec: {suspend: false, parallelism: 3, template: {spec: ` +
				`{containers: [{name: c}]}}}}`,
			job +
				`metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: main}}, spec: {suspend: true, parallelism: 3, template: {spec: ` +
				`{containers: [{name: c}]}}}}`},
		"one without a queue, too": {"muster-jobs-unnamed", "team", job + `metadata: {name: j}, spec: {}}`, job + `metadata: {name: j}, spec: {suspend: true}}`},
		"one goes to the default queue": {"muster-jobs-default-queue", "team", job + `metadata: {name: j, labels: {app: x}}, spec: {}}`,
			job + `metadata: {name: j, labels: {app: x, kueue.x-k8s.io/queue-name: default}}, spec: {suspend: true}}`},
		"where its jobs run in other clusters, it says so": {"muster-jobs-default-queue", "far", job + `metadata: {name: j, labels: {}}, spec: {}}`,
			job + `metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: default}}, spec: {suspend: true, managedBy: kueue.x-k8s.io/multikueue}}`},
		"a Job whose queue's jobs run in other clusters": {"muster-jobs-delegate", "team",
			job + `metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: elsewhere}}, spec: {}}`,
			job + `metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: elsewhere}}, spec: {managedBy: kueue.x-k8s.io/multikueue}}`},
		"one that says what would be so without it": {"muster-jobs-delegate", "team",
			job + `metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: elsewhere}}, spec: {managedBy: kubernetes.io/job-controller}}`,
			job + `metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: elsewhere}}, spec: {managedBy: kueue.x-k8s.io/multikueue}}`},
		"one of another controller": {"muster-jobs-delegate", "team",
			job + `metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: elsewhere}}, spec: {managedBy: example.com/mine}}`,
			job + `metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: elsewhere}}, spec: {managedBy: example.com/mine}}`},
		"one whose queue's jobs run here": {"muster-jobs-delegate", "team",
			job + `metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: default}}, spec: {}}`,
			job + `metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: default}}, spec: {}}`},
		"an MPIJob has it elsewhere": {"muster-jobs-delegate", "team",
			`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: elsewhere}}, spec: {}}`,
			`{apiVersion: kubeflow.org/v2beta1, kind: MPIJob, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: elsewhere}},
				spec: {runPolicy: {managedBy: kueue.x-k8s.io/multikueue}}}`},
		"a queued JobSet is suspended": {"muster-jobs-suspend", "team",
			`{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: main}}, spec: ` +
				`{network: {}}}`, `{apiVersion: jobset.x-k8s.io/v1alpha2, kind: JobSet, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: main}},
				spec: {network: {}, suspend: true}}`},
		"a queued PyTorchJob, elsewhere": {"muster-jobs-suspend", "team",
			`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: main}}, spec: {}}`,
			`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: main}},
				spec: {runPolicy: {suspend: true}}}`},
		"one cleans its pods up": {"muster-jobs-defaults", "team",
			`{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: main}}, spec: {runPolicy: ` +
				`{ttl: 1}}}`, `{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: j, labels: {kueue.x-k8s.io/queue-name: main}},
				spec: {runPolicy: {ttl: 1, cleanPodPolicy: Running}}}`},
		"where there is one": {"muster-jobs-default-queue", "other", job + `metadata: {name: j}, spec: {}}`, job + `metadata: {name: j}, spec: {}}`},
		"a node of a launch is cordoned": {"muster-born-cordoned", "", node + `metadata: {name: n, labels: {muster.dev/cloud-group: asg-1}}, spec: {}}`,
			node + `metadata: {name: n, labels: {muster.dev/cloud-group: asg-1, muster.node-restriction.kubernetes.io/held: "true"},
				annotations: {muster.dev/cordoned: joining}}, spec: {unschedulable: true}}`},
		"a node of another group is not": {"muster-born-cordoned", "", node + `metadata: {name: n, labels: {muster.dev/cloud-group: asg-2}}, spec: {}}`,
			node + `metadata: {name: n, labels: {muster.dev/cloud-group: asg-2}}, spec: {}}`},
		"a pod goes to its booking": {"muster-consuming-pods", "team",
			pod + `metadata: {annotations: {autoscaling.x-k8s.io/consume-provisioning-request: gang}}, spec: {tolerations: [{key: gpu}]}}`,
			pod + `metadata: {annotations: {autoscaling.x-k8s.io/consume-provisioning-request: gang}}, spec: {nodeSelector: {booked.muster.dev/gang: team},
				tolerations: [{key: gpu}, {key: node.kubernetes.io/unschedulable, operator: Exists, effect: NoSchedule}]}}`},
		"a stranger keeps off": {"muster-strangers", "team", pod + `metadata: {name: p}, spec: {nodeName: n}}`,
			pod + `metadata: {name: p}, spec: {nodeName: n, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
				{matchExpressions: [{key: muster.node-restriction.kubernetes.io/held, operator: DoesNotExist}]}]}}}}}`},
		"a stranger with terms, too": {"muster-strangers", "team",
			pod + `metadata: {name: p}, spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
				{matchExpressions: [{key: zone, operator: Exists}]}]}}}}}`,
			pod + `metadata: {name: p}, spec: {affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [
				{matchExpressions: [{key: zone, operator: Exists}, {key: muster.node-restriction.kubernetes.io/held, operator: DoesNotExist}]}]}}}}}`},
		"a queued pod is gated": {"muster-pods-gate", "team",
			pod + `metadata: {name: p, labels: {kueue.x-k8s.io/queue-name: main}}, spec: {schedulingGates: [{name: other}]}}`,
			pod + `metadata: {name: p, labels: {kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/managed: "true"}},
				spec: {schedulingGates: [{name: other}, {name: kueue.x-k8s.io/admission}]}}`},
		"a pod is born in its place": {"muster-born-in-place", "team",
			pod + `metadata: {name: p, labels: {index: "3"}, annotations: {a: b, muster.dev/places: "w.1\nindex\n0\n\n0\nrack,host\n2,4\nr/a,r/b"}},
				spec: {nodeSelector: {c: d}, schedulingGates: [{name: other}, {name: kueue.x-k8s.io/topology}]}}`,
			pod + `metadata: {name: p, labels: {index: "3"}, annotations: {a: b}},
				spec: {nodeSelector: {c: d, rack: r, host: b}, schedulingGates: [{name: other}]}}`},
		"one whose rank has none keeps its gate": {"muster-born-in-place", "team",
			pod + `metadata: {name: p, labels: {index: "4"}, annotations: {muster.dev/places: "w.1\nindex\n0\n\n0\nhost\n2,4\na,b"}},
				spec: {schedulingGates: [{name: kueue.x-k8s.io/topology}]}}`,
			pod + `metadata: {name: p, labels: {index: "4"}, annotations: {}}, spec: {schedulingGates: [{name: kueue.x-k8s.io/topology}]}}`},
		"as does one of a gang whose places have changed": {"muster-born-in-place", "team",
			pod + `metadata: {name: p, labels: {index: "3"}, annotations: {muster.dev/places: "moved.1\nindex\n0\n\n0\nhost\n2,4\na,b"}},
				spec: {schedulingGates: [{name: kueue.x-k8s.io/topology}]}}`,
			pod + `metadata: {name: p, labels: {index: "3"}, annotations: {}}, spec: {schedulingGates: [{name: kueue.x-k8s.io/topology}]}}`},
		"and what cannot be read": {"muster-born-in-place", "team",
			pod + `metadata: {name: p, annotations: {muster.dev/places: "a\nb"}}, spec: {schedulingGates: [{name: kueue.x-k8s.io/topology}]}}`,
			pod + `metadata: {name: p, annotations: {}}, spec: {schedulingGates: [{name: kueue.x-k8s.io/topology}]}}`},
		"a StatefulSet has its pods queued": {"muster-serving", "team",
			`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s, labels: {kueue.x-k8s.io/queue-name: main, ` +
				`kueue.x-k8s.io/priority-class: high}}, spec: {template: {}}}`,
			`{apiVersion: apps/v1, kind: StatefulSet, metadata: {name: s, labels: {kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/priority-class: high}},
				spec: {template: {metadata: {labels: {kueue.x-k8s.io/queue-name: main, kueue.x-k8s.io/priority-class: high},
					annotations: {kueue.x-k8s.io/pod-suspending-parent: statefulset}}}}}`},
		"a LeaderWorkerSet, too": {"muster-serving-leaderworkersets", "team",
			`{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: s, labels: {kueue.x-k8s.io/queue-name: main}},
				spec: {leaderWorkerTemplate: {workerTemplate: {spec: {}}}}}`,
			`{apiVersion: leaderworkerset.x-k8s.io/v1, kind: LeaderWorkerSet, metadata: {name: s, labels: {kueue.x-k8s.io/queue-name: main}},
				spec: {leaderWorkerTemplate: {workerTemplate: {spec: {}, metadata: {labels: {kueue.x-k8s.io/queue-name: main},
					annotations: {kueue.x-k8s.io/pod-suspending-parent: leaderworkerset.x-k8s.io/leaderworkerset}}}}}}`},
		"a job gets the name of its user": {"muster-jobs-record-users", "team", job + `metadata: {name: j}, spec: {}}`,
			job + `metadata: {name: j, annotations: {muster.dev/submitted-by: alice}}, spec: {}}`},
		"a topology gets its finalizer": {"muster-queues-finalizer", "", `{apiVersion: kueue.x-k8s.io/v1beta2, kind: Topology, metadata: {name: racks}}`,
			`{apiVersion: kueue.x-k8s.io/v1beta2, kind: Topology, metadata: {name: racks, finalizers: [kueue.x-k8s.io/resource-in-use]}}`},
		"a flavor gets its finalizer": {"muster-queues-finalizer", "", `{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: f, finalizers: [x/y]}}`,
			`{apiVersion: kueue.x-k8s.io/v1beta2, kind: ResourceFlavor, metadata: {name: f, finalizers: [x/y, kueue.x-k8s.io/resource-in-use]}}`},
	} {
		t.Run(name, func(t *testing.T) {
			covered[c.policy] = true
			object := asJSON(t, c.object)
			for range 2 {
				var kind metav1.TypeMeta
				if err := json.Unmarshal(object, &kind); err != nil {
					t.Fatal(err)
				}
				r := ctrladmission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
					Kind: metav1.GroupVersionKind(kind.GroupVersionKind()), Namespace: c.namespace, Operation: admissionv1.Create,
					Object: runtime.RawExtension{Raw: object}, UserInfo: authenticationv1.UserInfo{Username: "alice"},
				}}
				object = changed(t, all[c.policy].Handle(t.Context(), r), object)
				var got, want any
				if err := errors.Join(json.Unmarshal(object, &got), json.Unmarshal(asJSON(t, c.want), &want)); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("(-want +got):\n%s", diff)
				}
				if c.policy == "muster-queues-finalizer" || c.policy == "muster-born-in-place" {
					return // its condition leaves out what has the finalizer, or has no plan any more
				}
			}
		})
	}
	for name := range all {
		if !covered[name] {
			t.Errorf("policy %s is not tried", name)
		}
	}
}

// TestAMutationThatFailsDeniesNothing: the object passes, and its user is warned.
func TestAMutationThatFailsDeniesNothing(t *testing.T) {
	broken := interceptor.NewClient(params(t), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("no answer")
		},
	})
	job := asJSON(t, `{apiVersion: batch/v1, kind: Job, metadata: {name: j}, spec: {}}`)
	r := ctrladmission.Request{AdmissionRequest: admissionv1.AdmissionRequest{Namespace: "team", Operation: admissionv1.Create,
		Object: runtime.RawExtension{Raw: job}}}
	response := mutations(t, broken)["muster-jobs-default-queue"].Handle(t.Context(), r)
	if !response.Allowed || len(response.Patches) > 0 || len(response.Warnings) != 1 ||
		!strings.Contains(response.Warnings[0], "LocalQueue team/default") {
		t.Errorf("the answer is %+v", response)
	}
}

// TestAppliedConfigurationsHaveNoLists: without a schema a list would replace the one that is
// there.
func TestAppliedConfigurationsHaveNoLists(t *testing.T) {
	objects, err := deploy.Manifests(deploy.Halves...)
	if err != nil {
		t.Fatal(err)
	}
	policies, err := deploy.DefaultNames.Policies(objects)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range policies {
		for _, m := range p.Spec.Mutations {
			if m.ApplyConfiguration != nil && strings.Contains(m.ApplyConfiguration.Expression, "[") {
				t.Errorf("%s applies a list: %s", p.Name, m.ApplyConfiguration.Expression)
			}
		}
	}
}

// TestUsersAreRecorded: a new job has the name of the user that creates it, whatever it says, and an update keeps that.
func TestUsersAreRecorded(t *testing.T) {
	policy := mutations(t, params(t))["muster-jobs-record-users"]
	job := func(metadata string) []byte {
		return asJSON(t, "{apiVersion: batch/v1, kind: Job, metadata: {name: j"+metadata+"}, spec: {}}")
	}
	const named = ", annotations: {muster.dev/submitted-by: alice}"
	const other = ", annotations: {muster.dev/submitted-by: bob}"
	for name, c := range map[string]struct{ old, object, want []byte }{
		"a new job":                      {nil, job(""), job(named)},
		"a new job with annotations":     {nil, job(", annotations: {a: b}"), job(", annotations: {a: b, muster.dev/submitted-by: alice}")},
		"a new job that names another":   {nil, job(other), job(named)},
		"an update that takes it off":    {job(other), job(""), job(other)},
		"an update that has another one": {job(other), job(named), job(other)},
	} {
		r := ctrladmission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Kind: metav1.GroupVersionKind{Group: "batch", Version: "v1", Kind: "Job"}, Namespace: "team", Operation: admissionv1.Create,
			Object: runtime.RawExtension{Raw: c.object}, OldObject: runtime.RawExtension{Raw: c.old},
			UserInfo: authenticationv1.UserInfo{Username: "alice"},
		}}
		if c.old != nil {
			r.Operation = admissionv1.Update
		}
		object := changed(t, policy.Handle(t.Context(), r), c.object)
		var got, want any
		if err := errors.Join(json.Unmarshal(object, &got), json.Unmarshal(c.want, &want)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
