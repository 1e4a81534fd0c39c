package fit

import (
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
)

func TestTemplateRequestsAreWhatThePodsWillAskFor(t *testing.T) {
	for _, tc := range []struct {
		name, spec string
		want       nodegroups.Resources
	}{
		{"containers add up", "containers: [{name: a, resources: {requests: {cpu: 1}}}, {name: b, resources: {requests: {cpu: 500m, nvidia.com/gpu: 8}}}]",
			nodegroups.Resources{"cpu": 1500, "nvidia.com/gpu": 8, "pods": 1}},
		{"a limit stands for the request that is missing", "containers: [{name: a, resources: {requests: {cpu: 1}, limits: {cpu: 2, memory: 1Gi}}}]",
			nodegroups.Resources{"cpu": 1000, "memory": 1 << 30, "pods": 1}},
		{"also of an init container", "initContainers: [{name: i, resources: {limits: {cpu: 3}}}]",
			nodegroups.Resources{"cpu": 3000, "pods": 1}},
		{"the largest init container counts", "{initContainers: [{name: i, resources: {requests: {cpu: 3}}}, {name: j, resources: {requests: {cpu: 2}}}], containers: [{name: a, resources: {requests: {cpu: 1}}}]}",
			nodegroups.Resources{"cpu": 3000, "pods": 1}},
		{"sidecars run beside all", "{initContainers: [{name: s, restartPolicy: Always, resources: {requests: {cpu: 1}}}, {name: i, resources: {requests: {cpu: 3}}}], containers: [{name: a, resources: {requests: {cpu: 1}}}]}",
			nodegroups.Resources{"cpu": 4000, "pods": 1}},
		{"overhead comes on top", "{overhead: {cpu: 250m}, containers: [{name: a, resources: {requests: {cpu: 1}}}]}",
			nodegroups.Resources{"cpu": 1250, "pods": 1}},
		{"the pod's own requests replace its containers'", "{resources: {requests: {cpu: 4}}, containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]}",
			nodegroups.Resources{"cpu": 4000, "memory": 1 << 30, "pods": 1}},
		{"the pod's own limit stands for all where containers ask for nothing", "{resources: {limits: {cpu: 4}}}",
			nodegroups.Resources{"cpu": 4000, "pods": 1}},
		{"the pod's own limit gives way to what containers ask for", "{resources: {limits: {cpu: 4}}, containers: [{name: a, resources: {requests: {cpu: 1}}}]}",
			nodegroups.Resources{"cpu": 1000, "pods": 1}},
		{"the pod's own huge pages do not", "{resources: {limits: {hugepages-2Mi: 4Mi}}, containers: [{name: a, resources: {limits: {hugepages-2Mi: 2Mi}}}]}",
			nodegroups.Resources{"hugepages-2Mi": 4 << 20, "pods": 1}},
		{"the pod's own request stands beside its limit", "{resources: {limits: {cpu: 4}, requests: {cpu: 2}}, containers: [{name: a, resources: {requests: {cpu: 1}}}]}",
			nodegroups.Resources{"cpu": 2000, "pods": 1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			spec := template(t, "", tc.spec).Spec
			before := spec.DeepCopy()
			if diff := cmp.Diff(tc.want, TemplateRequests(&spec)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if !reflect.DeepEqual(before, &spec) {
				t.Error("the template was changed")
			}
		})
	}
}

func TestASpecThatLacksNothingIsNotCopied(t *testing.T) {
	spec := &template(t, "", "containers: [{name: a, resources: {requests: {cpu: 1}, limits: {cpu: 1}}}]").Spec
	if WithRequests(spec) != spec {
		t.Error("a copy was made")
	}
}

func TestAPodThatIsResizedTakesTheLarger(t *testing.T) {
	for _, tc := range []struct {
		name, pod string
		want      int64
	}{
		{"growing", "{spec: {containers: [{name: a, resources: {requests: {cpu: 2}}}]}, status: {containerStatuses: [{name: a, allocatedResources: {cpu: 1}, resources: {requests: {cpu: 1}}}]}}", 2000},
		{"shrinking", "{spec: {containers: [{name: a, resources: {requests: {cpu: 1}}}]}, status: {containerStatuses: [{name: a, allocatedResources: {cpu: 2}, resources: {requests: {cpu: 2}}}]}}", 2000},
		{"growth given up", "{spec: {containers: [{name: a, resources: {requests: {cpu: 2}}}]}, status: {conditions: [{type: PodResizePending, status: 'True', reason: Infeasible}], containerStatuses: [{name: a, allocatedResources: {cpu: 1}, resources: {requests: {cpu: 1}}}]}}", 1000},
		{"shrinking as a whole", "{spec: {resources: {requests: {cpu: 1}}, containers: [{name: a}]}, status: {allocatedResources: {cpu: 3}, resources: {requests: {cpu: 3}}}}", 3000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &corev1.Pod{}
			parse(t, tc.pod, pod)
			if diff := cmp.Diff(nodegroups.Resources{"cpu": tc.want, "pods": 1}, PodRequests(pod)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
