package inventory

import (
	"strings"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/api"
)

// Labels that Muster puts on the machines that it makes itself. The cloud's keys
// take neither dots nor slashes.
const (
	labelCluster = "muster-dev-cluster"
	// labelUID is the cluster's UID: it distinguishes clusters of the same name.
	labelUID     = "muster-dev-cluster-uid"
	labelLaunch  = "muster-dev-launch"
	labelRequest = "muster-dev-request"
	labelGroup   = "muster-dev-node-group"
	// labelManager is the managed instance group whose template and limit hold.
	labelManager = "muster-dev-instance-group"
)

// labelValue is s as the value of a label. What does not fit gets a hash.
func labelValue(s string) string {
	out := strings.Map(func(r rune) rune {
		if 'a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	if out == s && len(out) <= 63 {
		return out
	}
	const length = 5
	return out[:min(len(out), 63-1-length)] + "-" + hash(s, length)
}

// Labels of a machine that a bulk insert makes.
func (v *Inventory) Labels(req cloudprovider.LaunchRequest) map[string]string {
	return map[string]string{
		labelCluster: v.config.Cluster,
		labelUID:     v.config.ClusterUID,
		labelLaunch:  labelValue(req.Token),
		labelRequest: labelValue(req.Request),
		labelGroup:   labelValue(req.Group.Name),
		labelManager: managerLabel(ManagerOf(req.Group)),
	}
}

func managerLabel(id api.Manager) string { return labelValue(id.Location + "_" + id.Name) }
