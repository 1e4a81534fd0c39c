// Package stages holds the KWOK stages of the simulated world: how machines,
// nodes and pods move on. They are data: no process but KWOK's own runs for them.
package stages

import (
	"bytes"
	_ "embed"
)

var (
	//go:embed machine.yaml
	machine []byte
	//go:embed node.yaml
	node []byte
	//go:embed pod.yaml
	pod []byte
)

// YAML returns all stages as one YAML stream of kwok.x-k8s.io/v1alpha1 Stages.
func YAML() []byte {
	return bytes.Join([][]byte{machine, node, pod}, []byte("\n---\n"))
}
