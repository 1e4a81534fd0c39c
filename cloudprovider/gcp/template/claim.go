package template

import "fmt"

// Keys by which a managed instance group says what it wants: of the metadata or the
// labels of its instance template, since the group itself takes neither.
const (
	KeyEnabled = "muster-dev-enabled"
	// keyCluster names the cluster that the machines join, as the label of machines does. Node pools of GKE say it
	// in GKE's own keys.
	keyCluster = "muster-dev-cluster"
	KeyMax     = "muster-dev-max-nodes"
	KeyMin     = "muster-dev-min-nodes"
	// KeyQueue is how long a launch may wait in the cloud's queue, such as 24h.
	KeyQueue = "muster-dev-queue-timeout"
	// keyStartup lists the taints that another component removes while a node starts, such as
	// node.cilium.io/agent-not-ready=true:NoExecute.
	keyStartup = "muster-dev-startup-taints"
	// keyTopology lists node labels that an agent sets to the domain, such as a rack, of a machine, and how many
	// machines a domain takes, such as example.com/rack=18.
	keyTopology = "muster-dev-topology"
	// KeyMethod names a launch method, where that which fits is not wanted.
	KeyMethod = "muster-dev-launch-method"
	// KeyPrice is what an hour of a machine costs in USD, such as 64.44, in place of the list price.
	KeyPrice = "muster-dev-price-per-hour"
)

// UnusableError says why a group that says that it is Muster's cannot be used.
type UnusableError struct{ text string }

func (e *UnusableError) Error() string { return e.text }

// Unusable says why a group cannot be used, for its owner to read.
func Unusable(format string, args ...any) error {
	return &UnusableError{fmt.Sprintf(format, args...)}
}

// Claim reports whether the machines of a template join this cluster. The error is set where
// the template does not say which cluster they join.
func (r *Reader) Claim(t *Template) (ours bool, err error) {
	cluster, said := t.Keys[keyCluster]
	switch {
	case said && cluster != r.cluster:
		return false, nil
	case !t.IsGKE() && !said:
		return false,
			Unusable("the instance template does not say which cluster its machines join: put %s=%s into its metadata, if it is this one",
				keyCluster, r.cluster)
	case !t.IsGKE():
		return true, nil
	case t.Keys[gkeCluster] != r.cluster:
		return false, nil
	case r.location == "":
		return false, Unusable("it is a node pool of GKE cluster %s in %s, and GKE's names are unique within a location only: set "+
			"provisioning.clouds.gcp.location to %[2]s, if it is this cluster", r.cluster, t.Keys[gkeLocation])
	default:
		return t.Keys[gkeLocation] == r.location, nil
	}
}

// NoFlexStart refuses a node pool on flex-start: what others request there, GKE's autoscaler
// does not know, and cancels.
func NoFlexStart() error {
	return Unusable("GKE alone gets machines for its node pools on flex-start: let the ClusterQueue use a ProvisioningRequest of GKE's " +
		"class queued-provisioning.gke.io for the pool, or pods that select cloud.google.com/gke-flex-start, and remove " + KeyEnabled)
}
