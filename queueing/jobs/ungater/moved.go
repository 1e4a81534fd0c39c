package ungater

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"
)

// moved keeps the ConfigMap of the starts after which places have changed: the policy muster-born-in-place reads it. A key is a
// start, its value the Workload.
type moved struct {
	client client.Client
	// live reads the ConfigMap once: no cache is kept of all that there are.
	live client.Reader
	in   types.NamespacedName

	mu       sync.Mutex
	reported map[string]string
}

// Add has pods of a start that come from now on wait for their places.
func (m *moved) Add(ctx context.Context, w *kueue.Workload, start string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.load(ctx); err != nil {
		return err
	}
	if _, known := m.reported[start]; known {
		return nil
	}
	return m.write(ctx, map[string]*string{start: new(client.ObjectKeyFromObject(w).String())})
}

// Forget takes out the starts of a Workload but one, which may be empty.
func (m *moved) Forget(ctx context.Context, w types.NamespacedName, but string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.load(ctx); err != nil {
		return err
	}
	change := map[string]*string{}
	for start, of := range m.reported {
		if start != but && of == w.String() {
			change[start] = nil
		}
	}
	return m.write(ctx, change)
}

// load reads the stored starts, and drops those of Workloads that were deleted meanwhile.
func (m *moved) load(ctx context.Context) error {
	if m.reported != nil {
		return nil
	}
	there := &corev1.ConfigMap{}
	if err := m.live.Get(ctx, m.in, there); err != nil {
		return fmt.Errorf("reading ConfigMap %s: %w", m.in, err)
	}
	gone := map[string]*string{}
	reported := map[string]string{}
	for start, of := range there.Data {
		reported[start] = of
		namespace, name, _ := strings.Cut(of, string(types.Separator))
		if err := m.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &kueue.Workload{}); apierrors.IsNotFound(err) {
			gone[start] = nil
		} else if err != nil {
			return fmt.Errorf("reading Workload %s: %w", of, err)
		}
	}
	m.reported = reported
	return m.write(ctx, gone)
}

func (m *moved) write(ctx context.Context, change map[string]*string) error {
	if len(change) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"data": change})
	if err != nil {
		return err
	}
	on := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: m.in.Namespace, Name: m.in.Name}}
	if err := m.client.Patch(ctx, on, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("patching ConfigMap %s: %w", m.in, err)
	}
	for start, of := range change {
		if of == nil {
			delete(m.reported, start)
		} else {
			m.reported[start] = *of
		}
	}
	return nil
}
