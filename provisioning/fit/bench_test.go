package fit

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// usual is what a pod of a training job requests.
const usual = `
nodeSelector: {cloud.google.com/gke-accelerator: nvidia-h100-80gb, kubernetes.io/os: linux}
tolerations:
- {key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}
- {key: team, value: research}
affinity:
  nodeAffinity:
    requiredDuringSchedulingIgnoredDuringExecution:
      nodeSelectorTerms:
      - matchExpressions:
        - {key: topology.kubernetes.io/zone, operator: In, values: [a, b]}
        - {key: karpenter.sh/capacity-type, operator: NotIn, values: [spot]}
containers:
- name: main
  resources: {requests: {cpu: 8, memory: 64Gi}, limits: {nvidia.com/gpu: 8, memory: 64Gi}}
- name: log
  resources: {requests: {cpu: 100m}}
`

const usualLabels = "cloud.google.com/gke-accelerator=nvidia-h100-80gb kubernetes.io/os=linux kubernetes.io/arch=amd64 " +
	"topology.kubernetes.io/zone=a " +
	"topology.kubernetes.io/region=r node.kubernetes.io/instance-type=a3 karpenter.sh/capacity-type=on-demand kubernetes.io/hostname=n1 " +
	"team=research"

// BenchmarkMatches is one pod against one node. Compare two runs by
// go test -run '^$' -bench . -count 10 ./provisioning/fit | tee new; benchstat old new
func BenchmarkMatches(b *testing.B) {
	p := newPod(b, "app=x", usual, Objects{})
	nodeLabels := set(usualLabels)
	taints := []corev1.Taint{{Key: "nvidia.com/gpu", Effect: corev1.TaintEffectNoSchedule}}
	for name, taints := range map[string][]corev1.Taint{
		"yes": taints, "no": append(taints, corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoSchedule}),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if p.Matches("n1", nodeLabels, taints) != (name == "yes") {
					b.Fatal("the wrong verdict")
				}
			}
		})
	}
}

// BenchmarkNewPod reads one template, as each plan does for each podSet.
func BenchmarkNewPod(b *testing.B) {
	for name, spec := range map[string]string{
		"usual":   usual,
		"between": usual + spreadBy("topologyKey: kubernetes.io/hostname, maxSkew: 1") + "\n",
	} {
		t := template(b, "app=x", spec)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, refusal := NewPod("team", "w", 64, t, Objects{}); refusal.Refused() {
					b.Fatal(refusal)
				}
			}
		})
	}
}

// BenchmarkCrowd makes a state of many nodes in 8 zones, 20 running pods each, and
// places 64 pods.
func BenchmarkCrowd(b *testing.B) {
	for _, nodes := range []int{500, 5_000} {
		var all []Node
		for i := range nodes {
			n := Node{Name: nodeName(i), Labels: set(usualLabels)}
			n.Labels["kubernetes.io/hostname"], n.Labels["zone"] = n.Name, fmt.Sprint(i%8)
			for k := range 20 {
				n.Pods = append(n.Pods, &Running{Namespace: fmt.Sprint("ns", k), Labels: map[string]string{"app": fmt.Sprint(k)}})
			}
			all = append(all, n)
		}
		for name, spec := range map[string]string{
			"spread": spreadBy("topologyKey: zone, maxSkew: 1"),
			"apart":  required("podAntiAffinity", "{topologyKey: kubernetes.io/hostname, "+own+"}"),
		} {
			pods := []*Pod{newPod(b, "app=x", spec, Objects{})}
			b.Run(fmt.Sprintf("%s/nodes=%d", name, nodes), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					c := NewInterPodState(pods, all)
					placed := 0
					for i := 0; placed < 64; i++ {
						if node := all[i%nodes].Name; c.Allows(0, node) {
							c.Place(0, node)
							placed++
						}
					}
				}
			})
		}
	}
}
