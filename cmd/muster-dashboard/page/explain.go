package page

import (
	"context"
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cmd/view"
)

// explain answers as `kubectl muster explain` about a Workload, under the name of its job.
func (s *Server) explain(_ context.Context, d *decision, r *http.Request) (*view.Explanation, error) {
	name := workload{r.URL.Query().Get("namespace"), r.URL.Query().Get("workload")}
	w := d.picture.WorkloadNamed(name.namespace, name.name)
	if w == nil {
		return nil, refusal{http.StatusNotFound, fmt.Sprintf("Workload %s in namespace %s no longer exists: its job was deleted.", name.name,
			name.namespace)}
	}
	d.explaining.Lock()
	defer d.explaining.Unlock()
	if f := s.foreseen.Load(); f != nil {
		// A moment old at most; another one would take seconds.
		d.picture.Foreseen = f.report
	}
	out := d.picture.ExplainWorkload(w)
	if owner := metav1.GetControllerOf(w); owner != nil {
		out.Kind, out.Name, out.Workload = owner.Kind, owner.Name, w.Name
	}
	return out, nil
}
