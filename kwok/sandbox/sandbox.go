// Package sandbox says what a sandbox's cluster contains: all that Muster
// installs, simulated machines, and what runs beside Muster in a cluster of GPU
// machines.
package sandbox

import (
	_ "embed"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/stages"
)

//go:embed device-plugin.yaml
var devicePlugin []byte

// Fill completes the configuration of a cluster that is to contain all of it.
func Fill(config *cluster.Config) {
	config.Stages = stages.YAML()
	config.Manifests = manifests
	config.InForce = policiesInForce
}

// FillWithoutQueueing completes the configuration of a cluster whose queues are
// another's, such as Kueue's: with the machines and the provisioner, without
// what Muster installs to queue Jobs.
func FillWithoutQueueing(config *cluster.Config) {
	config.MusterFlags = []string{"--controllers=provisioning"}
	config.Stages = stages.YAML()
	config.Manifests = func() ([]*unstructured.Unstructured, error) {
		all, err := manifests()
		return slices.DeleteFunc(all, ofQueueing), err
	}
}

// ofQueueing says that an object is there for Muster's queues alone: the kinds
// of Kueue's API, which whoever else serves it installs in its own way; the
// policies that leave the start of queued Jobs to Muster; and its rights to them.
func ofQueueing(o *unstructured.Unstructured) bool {
	switch o.GetKind() {
	case "CustomResourceDefinition":
		return strings.HasSuffix(o.GetName(), ".kueue.x-k8s.io")
	case "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding":
		return strings.HasPrefix(o.GetName(), "muster-jobs-")
	case "ClusterRole", "ClusterRoleBinding":
		return o.GetName() == "muster-queueing" || o.GetName() == "muster-break-glass"
	}
	return false
}

func manifests() ([]*unstructured.Unstructured, error) {
	muster, err := deploy.Manifests()
	if err != nil {
		return nil, err
	}
	beside, err := deploy.Decode(devicePlugin)
	if err != nil {
		return nil, err
	}
	return append(muster, beside...), nil
}
