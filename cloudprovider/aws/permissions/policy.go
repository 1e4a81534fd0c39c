package permissions

import (
	"strings"

	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
)

// scope is where the policy grants a permission, as a statement of it.
type scope int

const (
	// reads change nothing, and see the whole account.
	reads scope = iota
	// launches are of whatever launch templates name.
	launches
	// ofGroups, ofLaunches and ofMembers are of what bears the cluster's tag: Auto Scaling groups,
	// what Muster has launched, and machines of groups, which get the tag by it.
	ofGroups
	ofLaunches
	ofMembers
	// ofNodes is the role of nodes, ofSpot that of the service, ofKeys are the keys of volumes.
	ofNodes
	ofSpot
	ofKeys
)

// Statement of an IAM policy.
type Statement struct {
	Sid, Effect string
	Action      []string
	Resource    string
	Condition   map[string]map[string]any `json:",omitempty"`
}

// What stands in the policy for the names of the cluster and of the IAM role of its nodes.
const (
	policyCluster  = "CLUSTER"
	policyNodeRole = "NODE_ROLE"
)

// Policy is what IAM has to grant Muster for a cluster, and no more: it may launch anything, and
// changes and ends only what bears the cluster's tag.
func Policy() []Statement {
	tagged := map[string]map[string]any{"StringEquals": {"aws:ResourceTag/" + inventory.ClusterTag + policyCluster: inventory.Owned}}
	list := []Statement{
		reads:      {Sid: "MusterReads", Resource: "*"},
		launches:   {Sid: "MusterLaunches", Resource: "*"},
		ofGroups:   {Sid: "MusterUsesGroupsOfTheCluster", Resource: "*", Condition: tagged},
		ofLaunches: {Sid: "MusterEndsWhatItHasLaunched", Resource: "*", Condition: tagged},
		ofMembers: {Sid: "MusterTagsMachinesOfGroups", Resource: "arn:aws:ec2:*:*:instance/*", Condition: map[string]map[string]any{
			"Null":         {"aws:ResourceTag/" + inventory.OwnerTag: "false"},
			"StringEquals": {"aws:RequestTag/" + inventory.ClusterTag + policyCluster: inventory.Owned},
		}},
		ofNodes: {Sid: "MusterPassesTheRoleOfNodes", Resource: "arn:aws:iam::*:role/" + policyNodeRole, Condition: map[string]map[string]any{
			"StringEquals": {"iam:PassedToService": "ec2.amazonaws.com"},
		}},
		ofSpot: {
			Sid: "MusterBuysSpot", Resource: "arn:aws:iam::*:role/aws-service-role/spot.amazonaws.com/*",
			Condition: map[string]map[string]any{"StringEquals": {"iam:AWSServiceName": "spot.amazonaws.com"}},
		},
		ofKeys: {Sid: "MusterEncryptsVolumes", Resource: "arn:aws:kms:*:*:key/*", Condition: map[string]map[string]any{
			"StringLike": {"kms:ViaService": "ec2.*.amazonaws.com"},
		}},
	}
	birth := Statement{Sid: "MusterTagsWhatItLaunches", Effect: "Allow", Action: []string{"ec2:CreateTags"}, Resource: "*"}
	var calls []string
	for _, p := range permissions {
		list[p.scope].Effect, list[p.scope].Action = "Allow", append(list[p.scope].Action, p.name)
		if name, ok := strings.CutPrefix(p.name, "ec2:"); ok && p.scope == launches {
			calls = append(calls, name)
		}
	}
	birth.Condition = map[string]map[string]any{"StringEquals": {"ec2:CreateAction": calls}}
	return append(list, birth)
}
