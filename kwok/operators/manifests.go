package operators

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
)

// objects reads the objects of a file, or of all YAML files of a folder except those that only kustomize reads.
func (b built) objects(path string) ([]*unstructured.Unstructured, error) {
	var out []*unstructured.Unstructured
	err := filepath.WalkDir(b.manifest(path), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) != ".yaml" || d.Name() == "kustomization.yaml" {
			return err
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		objects, err := deploy.Decode(text)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		out = append(out, objects...)
		return nil
	})
	return out, err
}

// webhooks reads webhook configurations and has them called at the operator's address in its place, since there is no pod
// that a Service could lead to. Each name gets the prefix that the project's own installation gives it.
func (b built) webhooks(path, prefix string, p cluster.Place) ([]*unstructured.Unstructured, error) {
	configurations, err := b.objects(path)
	if err != nil {
		return nil, err
	}
	for _, configuration := range configurations {
		configuration.SetName(prefix + configuration.GetName())
		err := eachWebhook(configuration, func(webhook map[string]any) {
			path, _, _ := unstructured.NestedString(webhook, "clientConfig", "service", "path")
			webhook["clientConfig"] = map[string]any{
				"url":      "https://localhost:" + port(p.Webhook) + path,
				"caBundle": base64.StdEncoding.EncodeToString(p.Authority),
			}
		})
		if err != nil {
			return nil, err
		}
	}
	return configurations, nil
}

// forPodsOf narrows the webhooks for pods to those with a label, as the project's own installation does: else no other pod
// could be made while the operator is down.
func forPodsOf(label string, configurations []*unstructured.Unstructured) error {
	var failures []error
	for _, configuration := range configurations {
		failures = append(failures, eachWebhook(configuration, func(webhook map[string]any) {
			if isForPods(webhook) {
				webhook["objectSelector"] = map[string]any{"matchExpressions": []any{map[string]any{"key": label, "operator": "Exists"}}}
			}
		}))
	}
	return errors.Join(failures...)
}

func isForPods(webhook map[string]any) bool {
	rules, _, _ := unstructured.NestedSlice(webhook, "rules")
	return slices.ContainsFunc(rules, func(rule any) bool {
		resources, _, _ := unstructured.NestedStringSlice(rule.(map[string]any), "resources")
		return slices.Contains(resources, "pods")
	})
}

func eachWebhook(configuration *unstructured.Unstructured, do func(map[string]any)) error {
	webhooks, _, err := unstructured.NestedSlice(configuration.Object, "webhooks")
	if err != nil {
		return fmt.Errorf("reading %s %s: %w", configuration.GetKind(), configuration.GetName(), err)
	}
	for _, webhook := range webhooks {
		do(webhook.(map[string]any))
	}
	return unstructured.SetNestedSlice(configuration.Object, webhooks, "webhooks")
}
