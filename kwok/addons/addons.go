// Package addons holds what a sandbox runs beside Muster, as a cluster of GPU
// machines would: the device plugin.
package addons

import (
	_ "embed"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/deploy"
)

//go:embed device-plugin.yaml
var devicePlugin []byte

// Manifests returns the objects to install.
func Manifests() ([]*unstructured.Unstructured, error) { return deploy.Decode(devicePlugin) }
