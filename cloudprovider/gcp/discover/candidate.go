package discover

import (
	"slices"
	"strconv"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/gcp/template"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// candidate is a managed instance group with all that is known of it.
type candidate struct {
	id         api.Manager
	mig        *computepb.InstanceGroupManager
	autoscaler *computepb.Autoscaler
	template   *template.Template
}

// limits of the group: as its template says, else those of its autoscaler, which
// may be off.
func (c *candidate) limits() (least, most int32, err error) {
	policy := c.autoscaler.GetAutoscalingPolicy()
	least, most = policy.GetMinNumReplicas(), policy.GetMaxNumReplicas()
	for key, into := range map[string]*int32{template.KeyMin: &least, template.KeyMax: &most} {
		if s, ok := c.template.Keys[key]; ok {
			n, err := strconv.ParseInt(s, 10, 32)
			if err != nil || n < 0 || n > 100_000 {
				return 0, 0, template.Unusable("the instance template's %s is %q: it must be a number between 0 and 100000", key, s)
			}
			*into = int32(n)
		}
	}
	switch {
	case most == 0:
		return 0, 0, template.Unusable("the group has no limit: put %s with a number into the metadata of its instance template", template.KeyMax)
	case least > most:
		return 0, 0, template.Unusable("the group's minimum of %d machines exceeds its maximum of %d: correct %s or %s in its instance template",
			least, most, template.KeyMin, template.KeyMax)
	}
	return least, most, nil
}

// method is the launch method that the group sets, else the one that fits.
func (c *candidate) method() (v1alpha1.GCPLaunchMethod, error) {
	method := v1alpha1.GCPBulkInsert
	switch {
	case c.template.Keys[template.KeyMethod] != "":
		method = v1alpha1.GCPLaunchMethod(c.template.Keys[template.KeyMethod])
	case c.template.Model() == template.FlexStart || c.template.Model() == template.ReservationBound:
		method = v1alpha1.GCPResizeRequest
	case c.template.IsGKE():
		method = v1alpha1.GCPCreateInstances
	}
	queues := method == v1alpha1.GCPResizeRequest
	switch {
	case c.template.IsGKE() && method != v1alpha1.GCPCreateInstances:
		return "", template.Unusable("a node pool of GKE must own its machines: set %s to CreateInstances, or leave it out", template.KeyMethod)
	case method != v1alpha1.GCPBulkInsert && method != v1alpha1.GCPResizeRequest && method != v1alpha1.GCPCreateInstances:
		return "", template.Unusable("the instance template's %s is %q: it must be BulkInsert, ResizeRequest or CreateInstances",
			template.KeyMethod, method)
	case method != v1alpha1.GCPBulkInsert && len(c.zones()) > 1:
		return "", template.Unusable("the group spreads machines over %d zones, so %s cannot make a gang's machines in one: use "+
			"BulkInsert, or a zonal group", len(c.zones()), method)
	case method != v1alpha1.GCPBulkInsert && len(c.machineTypes()) > 1:
		return "", template.Unusable("the group chooses from %d machine types, so %s cannot make machines of one type: use BulkInsert, or a "+
			"single type",
			len(c.machineTypes()), method)
	case method != v1alpha1.GCPBulkInsert && c.mig.GetTargetSizePolicy().GetMode() == "BULK":
		return "", template.Unusable("the group has target size mode BULK, in which it grows only from size 0: use mode INDIVIDUAL, or " +
			"BulkInsert")
	case queues && c.template.Model() != template.FlexStart && c.template.Model() != template.ReservationBound:
		return "", template.Unusable("resize requests need an instance template of provisioning model FLEX_START or RESERVATION_BOUND, and "+
			"this one has %s", c.template.Model())
	case queues && c.scales():
		return "", template.Unusable("the cloud rejects resize requests for a group with an autoscaler: delete the autoscaler")
	case !queues && c.template.Model() == template.FlexStart:
		return "", template.Unusable("machines of provisioning model FLEX_START are only available by resize requests: set %s to ResizeRequest",
			template.KeyMethod)
	}
	return method, nil
}

// queueTimeout is how long a launch may wait in the cloud's queue; nil where the group does
// not say.
func (c *candidate) queueTimeout(method v1alpha1.GCPLaunchMethod) (*metav1.Duration, error) {
	s := c.template.Keys[template.KeyQueue]
	if s == "" {
		return nil, nil
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil || d <= 0:
		return nil, template.Unusable("the instance template's %s is %q: it must be a duration, for example 24h", template.KeyQueue, s)
	case method != v1alpha1.GCPResizeRequest:
		return nil, template.Unusable("the instance template has %s, and %s does not queue: remove it, or use ResizeRequest",
			template.KeyQueue, method)
	}
	return &metav1.Duration{Duration: d}, nil
}

// price of an hour of a machine by the metadata of the template; nil without it.
func (c *candidate) price() (*resource.Quantity, error) {
	s := c.template.Keys[template.KeyPrice]
	if s == "" {
		return nil, nil
	}
	q, err := resource.ParseQuantity(s)
	if err != nil || q.Sign() < 0 {
		return nil, template.Unusable("the instance template's %s is %q: it must be an amount of USD, for example 64.44", template.KeyPrice, s)
	}
	return &q, nil
}

// scales says that the group's autoscaler is at work.
func (c *candidate) scales() bool {
	mode := c.autoscaler.GetAutoscalingPolicy().GetMode()
	return c.autoscaler != nil && mode != "OFF"
}

func (c *candidate) zones() (out []string) {
	if !c.id.Regional() {
		return []string{c.id.Location}
	}
	for _, z := range c.mig.GetDistributionPolicy().GetZones() {
		out = append(out, api.Base(z.GetZone()))
	}
	slices.Sort(out)
	return out
}

func (c *candidate) machineTypes() (out []string) {
	for _, s := range c.mig.GetInstanceFlexibilityPolicy().GetInstanceSelections() {
		out = append(out, s.GetMachineTypes()...)
	}
	if len(out) == 0 {
		return []string{c.template.MachineType}
	}
	slices.Sort(out)
	return slices.Compact(out)
}
