package fit

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/muster-dev/muster/nodegroups"
)

func TestAPodMatchesNodes(t *testing.T) {
	const zone = "topology.kubernetes.io/zone"
	noSchedule := func(key, value string) []corev1.Taint {
		return []corev1.Taint{{Key: key, Value: value, Effect: corev1.TaintEffectNoSchedule}}
	}
	for _, tc := range []struct {
		name   string
		spec   string
		labels string
		taints []corev1.Taint
		// want is the reason why not.
		want string
	}{
		{name: "a plain pod runs anywhere"},
		{
			name:   "a node selector needs all its labels",
			spec:   "nodeSelector: {" + zone + ": a, disk: ssd}",
			labels: zone + "=a",
			want:   "podSet w selects disk=ssd (spec.nodeSelector), a label that the nodes lack",
		},
		{
			name:   "a node selector needs its values",
			spec:   "nodeSelector: {" + zone + ": a}",
			labels: zone + "=b",
			want:   "podSet w selects " + zone + "=a (spec.nodeSelector), the nodes have b",
		},
		{
			name: "one of several affinity terms is enough",
			spec: nodeAffinity(`{matchExpressions: [{key: gpus, operator: Gt, values: ["4"]}]}, {matchExpressions: [{key: disk, operator: ` +
				`Exists}]}`),
			labels: "gpus=8",
		},
		{
			name:   "a term needs all that it says",
			spec:   nodeAffinity(`{matchExpressions: [{key: gpus, operator: Gt, values: ["4"]}, {key: disk, operator: Exists}]}`),
			labels: "gpus=8",
			want:   "podSet w has a required node affinity (spec.affinity.nodeAffinity) that these labels do not match",
		},
		{
			name: "a term that says nothing matches nothing",
			spec: nodeAffinity(`{}`),
			want: "podSet w has a required node affinity (spec.affinity.nodeAffinity) that these labels do not match",
		},
		{
			name: "a term that cannot be read matches nothing",
			spec: nodeAffinity(`{matchExpressions: [{key: gpus, operator: Gt, values: [many]}]}`),
			want: "podSet w has a required node affinity (spec.affinity.nodeAffinity) that these labels do not match",
		},
		{
			name: "a node is meant by its name",
			spec: nodeAffinity(`{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}`),
		},
		{
			name: "a node is left out by its name",
			spec: nodeAffinity(`{matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]}`),
			want: "podSet w has a required node affinity (spec.affinity.nodeAffinity) that these labels do not match",
		},
		{
			name:   "a taint needs a toleration",
			taints: noSchedule("gpu", "h100"),
			want:   "podSet w does not tolerate its taint gpu=h100:NoSchedule",
		},
		{
			name:   "a taint of another effect only advises",
			taints: []corev1.Taint{{Key: "gpu", Effect: corev1.TaintEffectPreferNoSchedule}},
		},
		{
			name:   "a toleration of the value is enough",
			spec:   "tolerations: [{key: gpu, value: h100}]",
			taints: noSchedule("gpu", "h100"),
		},
		{
			name:   "a toleration of another value is not",
			spec:   "tolerations: [{key: gpu, value: a100}]",
			taints: noSchedule("gpu", "h100"),
			want:   "podSet w does not tolerate its taint gpu=h100:NoSchedule",
		},
		{
			name:   "a toleration of another effect is not",
			spec:   "tolerations: [{key: gpu, operator: Exists, effect: NoExecute}]",
			taints: noSchedule("gpu", "h100"),
			want:   "podSet w does not tolerate its taint gpu=h100:NoSchedule",
		},
		{
			name:   "a comparing toleration is not, its gate is off",
			spec:   "tolerations: [{key: level, operator: Gt, value: \"3\"}]",
			taints: noSchedule("level", "5"),
			want:   "podSet w does not tolerate its taint level=5:NoSchedule",
		},
		{
			name:   "a cordon does not count",
			taints: noSchedule("node.kubernetes.io/unschedulable", ""),
		},
		{
			name:   "a taint of that name with another effect does",
			taints: []corev1.Taint{{Key: "node.kubernetes.io/unschedulable", Effect: corev1.TaintEffectNoExecute}},
			want:   "podSet w does not tolerate its taint node.kubernetes.io/unschedulable:NoExecute",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPod(t, "", tc.spec, Objects{})
			if got := p.Mismatch("n1", set(tc.labels), tc.taints); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
			if got := p.Matches("n1", set(tc.labels), tc.taints); got != (tc.want == "") {
				t.Errorf("Matches is %t", got)
			}
		})
	}
}

// nodeAffinity is a required one of the terms.
func nodeAffinity(terms string) string {
	return fmt.Sprintf("affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [%s]}}}", terms)
}

func TestAMachineToComeHasNoName(t *testing.T) {
	named := newPod(t, "", nodeAffinity(`{matchFields: [{key: metadata.name, operator: In, values: [n1]}]}`), Objects{})
	if named.Matches("", nil, nil) {
		t.Error("a pod for one node would run on a machine that does not exist yet")
	}
	unnamed := newPod(t, "", nodeAffinity(`{matchFields: [{key: metadata.name, operator: NotIn, values: [n1]}]}`), Objects{})
	if !unnamed.Matches("", nil, nil) {
		t.Error("a pod for all nodes but one would not run on a machine that does not exist yet")
	}
}

func TestAPodSaysWhichLabelsAndNodesItIsAbout(t *testing.T) {
	const host = "kubernetes.io/hostname"
	for _, tc := range []struct {
		name  string
		spec  string
		keys  []string
		names []string
		only  bool
	}{
		{name: "a plain pod is about none"},
		{
			name: "selector and affinity are about labels",
			spec: "nodeSelector: {zone: a}\n" +
				nodeAffinity(`{matchExpressions: [{key: gpus, operator: Gt, values: ["4"]}, {key: zone, operator: Exists}]}`),
			keys: []string{"gpus", "zone"},
		},
		{
			name:  "a host name in the selector leaves one node",
			spec:  "nodeSelector: {" + host + ": n1}",
			names: []string{"n1"}, only: true,
		},
		{
			name: "host names or names in each term leave these nodes",
			spec: nodeAffinity(`{matchExpressions: [{key: ` + host +
				`, operator: In, values: [n2, n1]}]}, {matchFields: [{key: metadata.name, operator: In, values: [n3]}]}`),
			names: []string{"n1", "n2", "n3"}, only: true,
		},
		{
			name: "a term without names leaves all",
			spec: nodeAffinity(`{matchExpressions: [{key: ` + host +
				`, operator: In, values: [n1]}]}, {matchExpressions: [{key: zone, operator: Exists}]}`), keys: []string{"zone"},
			names: []string{"n1"},
		},
		{
			name: "names that are left out are mentioned",
			spec: nodeAffinity(`{matchExpressions: [{key: ` + host +
				`, operator: NotIn, values: [n1]}], matchFields: [{key: metadata.name, operator: NotIn, values: [n2]}]}`), names: []string{"n1", "n2"},
		},
		{
			name: "a host name that cannot be listed is a label",
			spec: nodeAffinity(`{matchExpressions: [{key: ` + host + `, operator: DoesNotExist}]}`),
			keys: []string{host},
		},
		{
			name: "no term leaves no node",
			spec: nodeAffinity(``),
			only: true,
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPod(t, "", tc.spec, Objects{})
			names, only := p.Names()
			if diff := cmp.Diff(tc.keys, p.Keys()); diff != "" {
				t.Errorf("keys (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tc.names, names); diff != "" || only != tc.only {
				t.Errorf("names (-want +got), only %t:\n%s", only, diff)
			}
		})
	}
}

func TestARuntimeClassAddsToItsPods(t *testing.T) {
	class := &nodev1.RuntimeClass{
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"cpu": resource.MustParse("250m")}},
		Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"kata": "yes"},
			Tolerations:  []corev1.Toleration{{Key: "kata", Operator: corev1.TolerationOpExists}},
		},
	}
	objects := Objects{RuntimeClass: func(name string) *nodev1.RuntimeClass {
		if name == "kata" {
			return class
		}
		return nil
	}}
	p := newPod(t, "", "runtimeClassName: kata\ncontainers: [{name: main, resources: {requests: {cpu: 1}}}]", objects)
	if diff := cmp.Diff(nodegroups.Resources{"cpu": 1250, "pods": 1}, p.Requests); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
	taints := []corev1.Taint{{Key: "kata", Effect: corev1.TaintEffectNoSchedule}}
	if why := p.Mismatch("n1", set("kata=yes"), taints); why != "" {
		t.Errorf("a node for the class does not do: %s", why)
	}
	if p.Matches("n", set("kata=no"), taints) {
		t.Error("any node does for the class")
	}

	written := newPod(t, "", "runtimeClassName: kata\noverhead: {cpu: 250m}", objects)
	if diff := cmp.Diff(nodegroups.Resources{"cpu": 250, "pods": 1}, written.Requests); diff != "" {
		t.Errorf("an overhead that the template has already (-want +got):\n%s", diff)
	}
	for spec, want := range map[string]Refusal{
		"runtimeClassName: gone": {Unready, "spec.runtimeClassName",
			"podSet w waits for RuntimeClass gone, which does not exist (spec.runtimeClassName)"},
		"{runtimeClassName: kata, nodeSelector: {kata: nope}}": {Impossible, "spec.runtimeClassName",
			"podSet w can never run: RuntimeClass kata selects nodes with kata=yes, spec.nodeSelector those with kata=nope (spec.runtimeClassName)"},
	} {
		if _, got := NewPod("team", "w", 2, template(t, "", spec), objects); got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", spec, got, want)
		}
	}
}

func TestWhatCannotBeJudgedIsRefusedByName(t *testing.T) {
	for _, tc := range []struct {
		name, spec string
		want       Refusal
	}{
		{"a node name", "nodeName: n1", Refusal{Unsupported, "spec.nodeName",
			"podSet w uses spec.nodeName (the pods bypass the scheduler), which Muster cannot judge: remove it, or select the node by its labels"}},
		{"a claim that pods share", "resourceClaims: [{name: c, resourceClaimName: c}]", Refusal{Unsupported,
			"spec.resourceClaims[0].resourceClaimName",
			"podSet w uses spec.resourceClaims[0].resourceClaimName (a claim that pods share), which Muster cannot judge: name a " +
				"ResourceClaimTemplate in resourceClaimTemplateName, so that each pod has a claim of its own"}},
		{"claims that nothing looks up", "resourceClaims: [{name: c, resourceClaimTemplateName: c}]", Refusal{Unsupported,
			"spec.resourceClaims[0]",
			"podSet w uses spec.resourceClaims[0] (dynamic resource allocation), which Muster cannot judge: request devices by container " +
				"resources, or run these pods without a request"}},
		{"the scheduler's own gang scheduling", "schedulingGroup: {podGroupName: g}", Refusal{Unsupported, "spec.schedulingGroup",
			"podSet w uses spec.schedulingGroup (the scheduler's own gang scheduling), which Muster cannot judge: remove it: Muster holds the " +
				"pods until all fit"}},
		{"a device class as a resource", "initContainers: [{name: i, resources: {limits: {deviceclass.resource.kubernetes.io/gpu: 1}}}]", Refusal{Unsupported, "a resource of spec.containers",
			"podSet w uses a resource of spec.containers (deviceclass.resource.kubernetes.io/gpu stands for a DeviceClass), which Muster " +
				"cannot judge: request a resource that nodes advertise, or run these pods without a request"}},
		{"a feature that nodes must declare", "{hostNetwork: true, hostUsers: false}", Refusal{Unsupported, "a feature that nodes must declare",
			"podSet w uses a feature that nodes must declare (UserNamespacesHostNetworkSupport), which Muster cannot judge: remove it, or run " +
				"these pods without a request"}},
		{"a runtime class that nobody looks up", "runtimeClassName: kata", Refusal{Unsupported, "spec.runtimeClassName",
			"podSet w uses spec.runtimeClassName (kata), which Muster cannot judge: remove it, or run these pods without a request"}},
		{"affinity to pods of selected namespaces", podAffinity1("{topologyKey: zone, labelSelector: {}, namespaceSelector: {matchLabels: {a: b}}}"), Refusal{Unsupported, "spec.affinity.podAffinity, required term 1",
			"podSet w uses spec.affinity.podAffinity, required term 1 (its namespaceSelector), which Muster cannot judge: list the namespaces, " +
				"or select all with {}"}},
		{"a label key that the template does not have", "topologySpreadConstraints: [{topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule, labelSelector: {}, matchLabelKeys: [pod-template-hash]}]", Refusal{Unsupported, "spec.topologySpreadConstraints[0]",
			"podSet w uses spec.topologySpreadConstraints[0] (it matches by the label pod-template-hash that the template does not have), which " +
				"Muster cannot judge: leave the key out, or set the label in the template"}},
		{"a selector that cannot be read", podAffinity1("{topologyKey: zone, labelSelector: {matchExpressions: [{key: a, operator: Near}]}}"), Refusal{Impossible, "spec.affinity.podAffinity, required term 1",
			`podSet w can never run: its selector cannot be read: "Near" is not a valid label selector operator (spec.affinity.podAffinity, ` +
				`required term 1)`}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p, got := NewPod("team", "w", 2, template(t, "app=x", tc.spec), Objects{})
			if p != nil || got != tc.want {
				t.Errorf("\n got %+v\nwant %+v", got, tc.want)
			}
		})
	}
}

// podAffinity1 is required affinity of one term.
func podAffinity1(term string) string {
	return fmt.Sprintf("affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [%s]}}", term)
}
