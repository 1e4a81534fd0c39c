package fit

import (
	"encoding/json"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// Annotations by which Kueue's users say how near to each other the pods of a template are to run. Kueue copies them into
// the PodTemplates of its requests. Those that request no more than a preference are not read here: any machines meet them.
const (
	requiredTopology      = "kueue.x-k8s.io/podset-required-topology"
	sliceRequiredTopology = "kueue.x-k8s.io/podset-slice-required-topology"
	sliceSize             = "kueue.x-k8s.io/podset-slice-size"
	sliceConstraints      = "kueue.x-k8s.io/podset-slice-required-topology-constraints"
	topologyGroup         = "kueue.x-k8s.io/podset-group-name"
)

// Those that request a preference, or no more than a node for each pod.
const (
	preferredTopology     = "kueue.x-k8s.io/podset-preferred-topology"
	unconstrainedTopology = "kueue.x-k8s.io/podset-unconstrained-topology"
)

// IsPlaced reports whether pods of the template are placed by a topology, whether they are bound by it or not.
func IsPlaced(t *corev1.PodTemplateSpec) bool {
	for _, key := range []string{requiredTopology, preferredTopology, sliceRequiredTopology, sliceConstraints} {
		if t.Annotations[key] != "" {
			return true
		}
	}
	placed, err := strconv.ParseBool(t.Annotations[unconstrainedTopology])
	return placed && err == nil
}

// Layer says that so many pods at a time must be within one domain.
type Layer struct {
	// Level is the node label whose values are the domains.
	Level string
	Size  int
}

// Domains are those that the pods of a podSet must be within.
type Domains struct {
	// Layers from the coarsest to the finest; each is within one domain of the one before.
	Layers []Layer
	// Group of podSets that share the domain of the first layer; empty without.
	Group string
	// PerNode pods at a time must be on one node; at least 1.
	PerNode int
}

// DomainsOf reads the annotations of a template of count pods.
func DomainsOf(t *corev1.PodTemplateSpec, count int) (d Domains, r Refusal) {
	d.PerNode = 1
	if level := t.Annotations[requiredTopology]; level != "" {
		d.Layers, d.Group = append(d.Layers, Layer{level, count}), t.Annotations[topologyGroup]
	}
	slicesOf, r := sliceLayers(t.Annotations)
	if r.Refused() {
		return d, r
	}
	d.Layers = append(d.Layers, slicesOf...)
	// A group shares the domain of the first layer, so that one stays where it is a node.
	for last := len(d.Layers) - 1; last >= 0 && d.Layers[last].Level == corev1.LabelHostname && (d.Group == "" || last > 0); last-- {
		d.PerNode, d.Layers = max(d.PerNode, min(d.Layers[last].Size, count)), d.Layers[:last:last]
	}
	return d, r
}

// sliceLayers are the layers of slices. A slice without a size has that of the kind of the job, which is not known here: it
// is left to those that know it.
func sliceLayers(annotations map[string]string) (layers []Layer, r Refusal) {
	if text, ok := annotations[sliceConstraints]; ok {
		var list []struct {
			Topology string `json:"topology"`
			Size     int    `json:"size"`
		}
		if err := json.Unmarshal([]byte(text), &list); err != nil {
			return nil, misread(sliceConstraints, text, fmt.Sprintf(`write a list like [{"topology": "example.com/rack", "size": 4}] (%v)`, err))
		}
		for _, c := range list {
			if c.Topology == "" || c.Size < 1 {
				return nil, misread(sliceConstraints, text, "give each of its entries a topology and a size of at least 1")
			}
			layers = append(layers, Layer{c.Topology, c.Size})
		}
		return layers, r
	}
	level, text := annotations[sliceRequiredTopology], annotations[sliceSize]
	if level == "" || text == "" {
		return nil, r
	}
	size, err := strconv.Atoi(text)
	if err != nil || size < 1 {
		return nil, misread(sliceSize, text, "set it to the number of pods of a slice, at least 1")
	}
	return []Layer{{level, size}}, r
}

func misread(annotation, value, fix string) Refusal {
	return impossible("metadata.annotations["+annotation+"]", fmt.Sprintf("its annotation is %q: %s", value, fix))
}

// Levels are the node labels of the layers.
func (d *Domains) Levels() (keys []string) {
	for _, l := range d.Layers {
		keys = append(keys, l.Level)
	}
	return keys
}

// Slice is the coarsest layer of which a podSet of count pods has several domains; ok is false without.
func (d *Domains) Slice(count int) (l Layer, ok bool) {
	for _, l := range d.Layers {
		if l.Size < count {
			return l, true
		}
	}
	return l, false
}

// Common are the node labels on which all nodes of the podSet of count pods must agree.
func (d *Domains) Common(count int) (keys []string) {
	for _, l := range d.Layers {
		if l.Size >= count {
			keys = append(keys, l.Level)
		}
	}
	return keys
}
