// Package sandbox says what a sandbox's cluster contains: all that Muster
// installs, simulated machines, and what runs beside Muster in a cluster of GPU
// machines.
package sandbox

import (
	_ "embed"

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
