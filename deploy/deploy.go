// Package deploy holds the manifests of everything that Muster installs in a cluster: CRDs,
// admission policies, its namespace, service account and RBAC.
package deploy

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Namespace and ServiceAccount that Muster runs in and as.
const (
	Namespace      = "muster-system"
	ServiceAccount = "muster"
	// Launching is the ConfigMap whose keys are the cloud groups with a launch in
	// flight, by the label of their nodes.
	Launching = "muster-launching"
	// Moved is the ConfigMap whose keys are the starts of gangs whose pods have other places
	// than those in the templates of their jobs.
	Moved = "muster-moved"
)

//go:embed charts/muster-crds/files charts/muster/files/rbac charts/muster/files/policies webhook
var files embed.FS

// Dispatcher is what muster dispatcher needs in the cluster of a manager of MultiKueue, as YAML.
//
//go:embed dispatcher/dispatcher.yaml
var Dispatcher string

// DispatcherCopies is what it needs besides where it makes the copies of jobs itself.
//
//go:embed dispatcher/copies.yaml
var DispatcherCopies string

// DispatcherWorker is the account of a manager of MultiKueue in a worker, with its rights.
//
//go:embed dispatcher/worker.yaml
var DispatcherWorker string

// kueueNamespace is where what the dispatcher needs is published for: Kueue's own manifests install it there.
const kueueNamespace = "kueue-system"

// InNamespace is what the dispatcher needs, for another namespace.
func InNamespace(yaml, namespace string) string {
	return strings.ReplaceAll(yaml, kueueNamespace, namespace)
}

// The folders of the manifests are those of the charts, since Helm reads no file outside of a chart.
const (
	crds     = "charts/muster-crds/files"
	rbac     = "charts/muster/files/rbac"
	policies = "charts/muster/files/policies"
)

// folders in the order in which they are applied: CRDs first, since the others may refer to
// their kinds.
var folders = []string{crds, rbac, policies}

// Half of Muster: each works without the other, and needs only its own objects.
type Half string

// The halves.
const (
	// Provisioning serves ProvisioningRequests.
	Provisioning Half = "provisioning"
	// Queueing admits queued Jobs by Kueue's API.
	Queueing Half = "queueing"
)

// Halves are all of Muster.
var Halves = []Half{Provisioning, Queueing}

// owned are the files that only one half needs, as patterns of path.Match. All other files
// are for either half.
var owned = map[Half][]string{
	Provisioning: {
		crds + "/autoscaling.x-k8s.io_*", crds + "/muster.dev_*", crds + "/kwok.muster.dev_*",
		policies + "/nodes.yaml", policies + "/pods.yaml", policies + "/requests.yaml", policies + "/rights-nodes.yaml",
		rbac + "/kwok.yaml", rbac + "/provisioning.yaml",
	},
	Queueing: {
		crds + "/kueue.x-k8s.io_*",
		policies + "/gangs.yaml", policies + "/gated-pods.yaml", policies + "/jobs.yaml", policies + "/places.yaml", policies + "/queues.yaml",
		policies + "/quotas.yaml", policies + "/rights-pods.yaml", policies + "/rights-queues.yaml", policies + "/workloads.yaml",
		rbac + "/kinds.yaml", rbac + "/queueing.yaml", rbac + "/queueing-dashboard.yaml",
	},
}

// Manifests returns the objects that the halves need, in the order in which to apply them.
func Manifests(halves ...Half) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, folder := range folders {
		err := fs.WalkDir(files, folder, func(file string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !neededBy(file, halves) {
				return err
			}
			text, err := files.ReadFile(file)
			if err != nil {
				return err
			}
			objects, err := Decode(text)
			if err != nil {
				return fmt.Errorf("deploy/%s: %w", file, err)
			}
			out = append(out, objects...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// neededBy reports whether one of the halves needs a file.
func neededBy(file string, halves []Half) bool {
	owner := ownerOf(file)
	return owner == "" || slices.Contains(halves, owner)
}

// ownerOf returns the only half that needs a file; empty for a file of both.
func ownerOf(file string) Half {
	for _, half := range Halves {
		if slices.ContainsFunc(owned[half], func(pattern string) bool {
			matches, err := path.Match(pattern, file)
			return err == nil && matches
		}) {
			return half
		}
	}
	return ""
}

// Decode reads the documents of a YAML file.
func Decode(text []byte) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	d := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), 4096)
	for {
		u := &unstructured.Unstructured{}
		switch err := d.Decode(&u.Object); {
		case errors.Is(err, io.EOF):
			return out, nil
		case err != nil:
			return nil, err
		case len(u.Object) > 0:
			out = append(out, u)
		}
	}
}
