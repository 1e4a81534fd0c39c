// Package sandbox says what a sandbox's cluster contains: all that Muster
// installs, simulated machines, and what runs beside Muster in a cluster of GPU
// machines.
package sandbox

import (
	_ "embed"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/stages"
)

//go:embed device-plugin.yaml
var devicePlugin []byte

//go:embed clouds.yaml
var clouds []byte

// AddClouds adds the simulated clouds to the configuration of a cluster, with some
// groups for Muster to find.
func AddClouds(config *cluster.Config) { AddCloudsOf(config, clouds) }

// AddCloudsOf adds simulated clouds that have what the world says: AWS in us-east-1 and
// the project sandbox of Google Cloud.
func AddCloudsOf(config *cluster.Config, world []byte) {
	config.Clouds = &cluster.SimulatedClouds{World: world, Region: "us-east-1", Project: "sandbox"}
}

// Fill completes the configuration of a cluster that is to contain all of it.
func Fill(config *cluster.Config) {
	config.Stages = stages.YAML()
	config.Manifests = manifests(deploy.Halves...)
	config.InForce = policiesInForce
}

// FillFor completes the configuration of a cluster without mutating admission policies: of an
// older Kubernetes, or where they are turned off.
func FillFor(config *cluster.Config, mutations deploy.Mutations) {
	Fill(config)
	all := config.Manifests
	config.Manifests = func() ([]*unstructured.Unstructured, error) {
		objects, err := all()
		if err != nil {
			return nil, err
		}
		return mutations.By(objects)
	}
	config.Webhook = mutations == deploy.ByWebhook
	if mutations == deploy.ByControllers {
		config.InForce = quotasInForce
	}
}

// FillHalf completes the configuration of a cluster in which one half of Muster runs. The
// other half is left to Kueue, which installs its own kinds, or to cluster-autoscaler.
func FillHalf(config *cluster.Config, half deploy.Half) {
	Fill(config)
	config.Manifests = manifests(half)
	for _, other := range deploy.Halves {
		if other != half {
			config.MusterFlags = append(config.MusterFlags, fmt.Sprintf("--%s=false", other))
		}
	}
	if half != deploy.Queueing {
		// There is no policy to wait for.
		config.InForce = nil
	}
}

// FillBy completes the configuration of a cluster whose Muster has the settings of a file, and needs
// these objects for them: what `muster manifests --config` prints.
func FillBy(config *cluster.Config, settings []byte, objects []*unstructured.Unstructured) {
	Fill(config)
	config.Settings = settings
	config.Manifests = beside(func() ([]*unstructured.Unstructured, error) { return objects, nil })
}

func manifests(halves ...deploy.Half) func() ([]*unstructured.Unstructured, error) {
	return beside(func() ([]*unstructured.Unstructured, error) { return deploy.Manifests(halves...) })
}

// beside adds what runs beside Muster to its manifests.
func beside(muster func() ([]*unstructured.Unstructured, error)) func() ([]*unstructured.Unstructured, error) {
	return func() ([]*unstructured.Unstructured, error) {
		out, err := muster()
		if err != nil {
			return nil, err
		}
		plugin, err := deploy.Decode(devicePlugin)
		if err != nil {
			return nil, err
		}
		return append(out, plugin...), nil
	}
}
