package testbed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

const (
	// FailedVariable names the folder that keeps what explains the failures of a run. Without it that is a folder for temporary files.
	FailedVariable = "MUSTER_FAILED_DIR"
	// keepingBound is how long the objects of a test are read, whose API server may be what has failed.
	keepingBound = time.Minute
)

// failedDir is where that of the test is kept, or of what has such a name.
func failedDir(name string) string {
	root := cmp.Or(os.Getenv(FailedVariable), filepath.Join(os.TempDir(), "muster-failed-tests"))
	binary := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
	return filepath.Join(root, binary, strings.NewReplacer("/", "-", " ", "_").Replace(name))
}

// KeepIfFailed keeps, at the end of a test that has failed, the logs of all components of the cluster, the trace of the promises and
// the objects of these namespaces and of the cluster.
func (c *Cluster) KeepIfFailed(t *testing.T, namespaces ...string) {
	t.Cleanup(func() {
		if t.Failed() {
			c.Keep(t, t.Name(), namespaces...)
		}
	})
}

// Keep keeps the same at once, under a name, and prints where.
func (c *Cluster) Keep(t interface{ Logf(string, ...any) }, name string, namespaces ...string) {
	dir := failedDir(name)
	ctx, cancel := context.WithTimeout(context.Background(), keepingBound)
	defer cancel()
	errs := []error{c.keepLogs(filepath.Join(dir, "logs"))}
	if c.Watcher != nil {
		trace := strings.Join(c.Watcher.Trace(), "\n") + "\n"
		errs = append(errs, os.WriteFile(filepath.Join(dir, "promises.txt"), []byte(trace), 0o600))
	}
	if len(namespaces) > 0 {
		errs = append(errs, c.keepObjects(ctx, filepath.Join(dir, "objects"), namespaces))
	}
	if err := errors.Join(errs...); err != nil {
		t.Logf("Not all that explains the failure could be kept: %v", err)
	}
	t.Logf("Logs, objects and promises of the cluster are kept in %s", dir)
}

// keepLogs copies the logs of all components.
func (c *Cluster) keepLogs(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	var errs []error
	for _, component := range c.State().Components {
		errs = append(errs, copyFile(filepath.Join(dir, filepath.Base(component.Log)), component.Log))
	}
	return errors.Join(errs...)
}

// copyFile copies a file; one that does not exist is no error.
func copyFile(to, from string) error {
	source, err := os.Open(from)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer source.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, source)
	return errors.Join(err, out.Close())
}

// keepObjects writes a file for each kind of object, secrets left out.
func (c *Cluster) keepObjects(ctx context.Context, dir string, namespaces []string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	discover, err := discovery.NewDiscoveryClientForConfig(c.RESTConfig())
	if err != nil {
		return err
	}
	lists, err := discover.ServerPreferredResources()
	errs := []error{err} // those of the other groups are there
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		errs = append(errs, err)
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Name == "secrets" || !r.Namespaced && !explains(version.Group) {
				continue
			}
			objects, err := c.objects(ctx, version.WithKind(r.Kind), r.Namespaced, namespaces)
			errs = append(errs, err)
			if len(objects) == 0 {
				continue
			}
			name := strings.Trim(r.Name+"."+version.Group, ".") + ".yaml"
			errs = append(errs, os.WriteFile(filepath.Join(dir, name), objects, 0o600))
		}
	}
	return errors.Join(errs...)
}

// explains reports whether objects of the cluster of an API group may explain what a test has seen: nodes, groups, queues, machines.
func explains(group string) bool {
	return group == "" || group == "muster.dev" || strings.HasSuffix(group, ".muster.dev") || group == "kueue.x-k8s.io"
}

// objects are those of a kind as YAML.
func (c *Cluster) objects(ctx context.Context, kind schema.GroupVersionKind, namespaced bool, namespaces []string) (out []byte, err error) {
	if !namespaced {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := c.Kube.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return out, fmt.Errorf("listing %s: %w", kind.Kind, err)
		}
		for i := range list.Items {
			list.Items[i].SetManagedFields(nil)
			text, err := yaml.Marshal(list.Items[i].Object)
			if err != nil {
				return out, err
			}
			out = append(append(out, "---\n"...), text...)
		}
	}
	return out, nil
}

// Tail keeps logs of programs beside the clusters, and prints the last lines of each.
func Tail(logs ...string) {
	const most = 2 << 10
	dir := failedDir("logs")
	for _, path := range logs {
		text, err := os.ReadFile(path)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		kept := filepath.Join(dir, filepath.Base(path))
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(kept, text, 0o600)); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		fmt.Fprintf(os.Stderr, "The end of %s, kept as %s:\n%s\n", filepath.Base(path), kept, text[max(0, len(text)-most):])
	}
}
