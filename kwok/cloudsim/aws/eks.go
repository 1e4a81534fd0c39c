package aws

import (
	"encoding/json"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

// describeNodegroup answers for the managed node group of an Auto Scaling group: its nodes
// register with what the launch template says.
func (f *Front) describeNodegroup(w http.ResponseWriter, r *http.Request) {
	cluster, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/clusters/"), "/node-groups/")
	g := find(f.config.Groups, func(g *Group) bool {
		return g.Tags["eks:cluster-name"] == cluster && g.Tags["eks:nodegroup-name"] == name
	})
	if g == nil {
		panic(&cloudsim.Error{Status: http.StatusNotFound, Code: "ResourceNotFoundException",
			Message: "No node group found for name: " + name + "."})
	}
	type taint struct {
		Key    string `json:"key"`
		Value  string `json:"value,omitempty"`
		Effect string `json:"effect"`
	}
	t := f.version(g.Template, g.Version)
	taints := []taint{}
	for _, n := range t.Taints {
		effect := map[corev1.TaintEffect]string{corev1.TaintEffectNoSchedule: "NO_SCHEDULE", corev1.TaintEffectNoExecute: "NO_EXECUTE",
			corev1.TaintEffectPreferNoSchedule: "PREFER_NO_SCHEDULE"}[n.Effect]
		taints = append(taints, taint{n.Key, n.Value, effect})
	}
	w.Header().Set("Content-Type", "application/json")
	reply := map[string]any{"nodegroup": map[string]any{"nodegroupName": name, "clusterName": cluster, "labels": t.Labels, "taints": taints,
		"nodeRepairConfig": map[string]any{"enabled": g.NodeRepair}}}
	if err := json.NewEncoder(w).Encode(reply); err != nil {
		panic(http.ErrAbortHandler)
	}
}
