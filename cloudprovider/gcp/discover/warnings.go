package discover

import (
	"fmt"

	"cloud.google.com/go/compute/apiv1/computepb"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/gcp/template"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// cloudGroupLabel lets nodes of a group be born cordoned.
const cloudGroupLabel = "muster.dev/cloud-group"

// Reasons of warnings that only this cloud has.
const (
	// Repairs: the group recreates a machine that has ended.
	Repairs = "Repairs"
	// Replaces: the group replaces machines by itself.
	Replaces = "Replaces"
	// ReservationUnread: the reservation of the group may not be read.
	ReservationUnread = "ReservationUnread"
	// ReservationOver: the reservation of the group is there no more.
	ReservationOver = "ReservationOver"
	// DevicesUnknown: how many devices a machine offers is not known before there is a node.
	DevicesUnknown = "DevicesUnknown"
)

// warnings say what fights Muster over the group.
func (c *candidate) warnings(method v1alpha1.GCPLaunchMethod, shape *computepb.MachineType) (out []cloudprovider.Warning) {
	warn := func(reason, format string, args ...any) {
		out = append(out, cloudprovider.Warning{Reason: reason, Message: fmt.Sprintf(format, args...)})
	}
	if c.scales() {
		warn(cloudprovider.OtherAutoscaler, "the autoscaler of managed instance group %s is %s and changes its size: turn it off, or set its "+
			"mode to OFF", c.id.Name, c.autoscaler.GetAutoscalingPolicy().GetMode())
	}
	if c.template.IsAutoscaled() {
		warn(cloudprovider.OtherAutoscaler, "the node pool of managed instance group %s has GKE's autoscaler on, which may remove machines that "+
			"it considers idle: turn it off", c.id.Name)
	}
	if _, ok := c.template.Labels[cloudGroupLabel]; !ok {
		warn(cloudprovider.BornOpen, "the instance template of %s does not give its nodes the label %s: other pods may be bound to them before "+
			"they "+
			"are cordoned", c.id.Name, cloudGroupLabel)
	}
	if _, known := c.template.Devices(shape); !known {
		warn(DevicesUnknown, "how many %s the nodes of %s offer is not known before there is one, since their GPUs are partitioned or shared: "+
			"put extended_resources=%[1]s=<number> into AUTOSCALER_ENV_VARS of kube-env", template.GPU, c.id.Name)
	}
	if method == v1alpha1.GCPBulkInsert {
		return out // its machines stand beside the group, whatever that does to its own
	}
	if action := c.mig.GetInstanceLifecyclePolicy().GetDefaultActionOnFailure(); action != "DO_NOTHING" {
		warn(Repairs, "managed instance group %s recreates ended machines under the same name: set its default action on failure "+
			"to DO_NOTHING", c.id.Name)
	}
	if len(c.mig.GetAutoHealingPolicies()) > 0 {
		warn(Replaces, "managed instance group %s has autohealing, which replaces machines that fail its health check: remove the health check",
			c.id.Name)
	}
	update := c.mig.GetUpdatePolicy()
	if update.GetType() == "PROACTIVE" {
		warn(Replaces, "managed instance group %s replaces machines when its template changes: set its update type to OPPORTUNISTIC", c.id.Name)
	}
	if c.id.Regional() && update.GetInstanceRedistributionType() != "NONE" {
		warn(Replaces, "managed instance group %s moves machines between zones: set its instance redistribution type to NONE", c.id.Name)
	}
	return out
}
