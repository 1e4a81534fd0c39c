package fit

// Spreads says whether the pod has a hard spread constraint over the topology.
func (p *Pod) Spreads(topology string) bool {
	for i := range p.spreads {
		if p.spreads[i].topology == topology {
			return true
		}
	}
	return false
}

// Gathers are the topologies whose domains the pod must share with other pods.
func (p *Pod) Gathers() (topologies []string) {
	for i := range p.attracts {
		topologies = append(topologies, p.attracts[i].topology)
	}
	return topologies
}
