package aws

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/muster-dev/muster/kwok/cloudsim"
)

// denied is the error of a call that is not permitted.
func denied(service, permission, resource string) *cloudsim.Error {
	code := "AccessDenied"
	switch service {
	case "ec2":
		code = "UnauthorizedOperation"
	case "pricing", "eks", "servicequotas":
		code = "AccessDeniedException"
	}
	return &cloudsim.Error{Status: http.StatusForbidden, Code: code, Message: fmt.Sprintf("User: arn:aws:iam::000000000000:user/muster "+
		"is not authorized to perform: %s on resource: %s because no identity-based policy allows the %s action", permission,
		resource, permission)}
}

// Deny takes permissions from the caller.
func (f *Front) Deny(permissions ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.config.Denied = append(f.config.Denied, permissions...)
}

// use reports whether the caller has a permission that a call needs beside its own.
func (f *Front) use(permission string) bool {
	f.seen[permission] = true
	return !slices.Contains(f.config.Denied, permission)
}

// beside are the permissions that calls need in addition to their own. For LaunchInstances, they are those that the user guide of Auto
// Scaling lists under its prerequisites. A fleet needs the permission to run instances.
var beside = map[string][]string{
	"autoscaling:LaunchInstances": {"ec2:CreateFleet", "ec2:DescribeLaunchTemplateVersions"},
	"ec2:CreateFleet":             {"ec2:RunInstances"},
}

// authorize panics with the error of a call about what the caller may not change. What does not
// exist has no tags.
func (f *Front) authorize(service, action string, p *params) {
	permission := service + ":" + action
	needs := beside[permission]
	if service == "ec2" && len(p.each("TagSpecification")) > 0 {
		needs = append(slices.Clone(needs), "ec2:CreateTags") // what is born with tags is tagged
	}
	for _, also := range needs {
		if slices.Contains(f.config.Denied, also) {
			panic(denied(service, also, "*"))
		}
	}
	if id := p.text("LaunchTemplate.LaunchTemplateId"); permission == "ec2:RunInstances" && id != "" {
		if t := f.config.template(id); t != nil && t.Profile != "" && slices.Contains(f.config.Denied, "iam:PassRole") {
			panic(denied(service, "iam:PassRole", t.Profile))
		}
	}
	if f.config.Cluster == "" {
		return
	}
	need := func(resource string, may bool) {
		if !may {
			panic(denied(service, permission, "arn:aws:"+service+":"+f.config.Region+":000000000000:"+resource))
		}
	}
	ours := func(tags map[string]string) bool { return tags["kubernetes.io/cluster/"+f.config.Cluster] == "owned" }
	group := func(name string) { need("autoScalingGroup:*:autoScalingGroupName/"+name, ours(f.tags[name])) }
	machines := map[string]cloudsim.Instance{}
	for _, in := range f.world.Instances(true) {
		machines[in.ID] = in
	}
	switch permission {
	case "ec2:TerminateInstances":
		for _, id := range p.texts("InstanceId") {
			need("instance/"+id, ours(machines[id].Tags))
		}
	case "ec2:CancelCapacityReservation":
		r := f.reservation(p.text("CapacityReservationId"))
		need("capacity-reservation/"+p.text("CapacityReservationId"), r != nil && ours(r.Tags))
	case "ec2:DeletePlacementGroup":
		g := f.placementGroups[p.text("GroupName")]
		need("placement-group/"+p.text("GroupName"), g != nil && ours(g.tags))
	case "ec2:CreateTags":
		for _, id := range p.texts("ResourceId") {
			need("instance/"+id, strings.HasPrefix(id, "i-") && machines[id].Group != "" && ours(p.tags("Tag")))
		}
	case "autoscaling:CreateOrUpdateTags", "autoscaling:DeleteTags":
		for _, t := range p.each("Tags") {
			group(p.text(t + ".ResourceId"))
		}
	case "autoscaling:LaunchInstances", "autoscaling:TerminateInstanceInAutoScalingGroup":
		group(p.text("AutoScalingGroupName"))
	}
}

// kmsActions are the permissions for volumes that are encrypted with a key of the customer.
var kmsActions = []string{
	"kms:CreateGrant", "kms:Decrypt", "kms:DescribeKey", "kms:GenerateDataKeyWithoutPlaintext", "kms:ReEncryptFrom", "kms:ReEncryptTo",
}

// mayUse reports whether the caller may use what the machines need beside themselves. Without
// the rights on a key the launch succeeds, and the machines end: see launch.
func (f *Front) mayUse(m *machines) *cloudsim.Error {
	if m.template.Profile != "" && !f.use("iam:PassRole") {
		return denied("ec2", "iam:PassRole", m.template.Profile)
	}
	if m.capacityType != "Spot" || f.spotRole {
		return nil
	}
	if f.spotRole = f.use("iam:CreateServiceLinkedRole"); f.spotRole {
		return nil
	}
	return &cloudsim.Error{Status: http.StatusForbidden, Code: "AuthFailure.ServiceLinkedRoleCreationNotPermitted",
		Message: "The provided credentials do not have permission to create the service-linked role for EC2 Spot Instances."}
}
