// Package deploy holds everything that Muster installs in a cluster, as plain
// manifests: CRDs, admission policies, its namespace, service account and rights.
package deploy

import (
	"bytes"
	"embed"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// Namespace and ServiceAccount that Muster runs in and as.
const (
	Namespace      = "muster-system"
	ServiceAccount = "muster"
)

//go:embed crds policies rbac
var files embed.FS

// folders in the order in which they are applied: CRDs first, since others may
// name their kinds.
var folders = []string{"crds", "rbac", "policies"}

// Manifests returns all objects in the order in which to apply them.
func Manifests() ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	for _, folder := range folders {
		err := fs.WalkDir(files, folder, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			text, err := files.ReadFile(path)
			if err != nil {
				return err
			}
			objects, err := Decode(text)
			if err != nil {
				return fmt.Errorf("deploy/%s: %w", path, err)
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
