// Package removal takes Muster out of a cluster: what it made goes, what ran goes on, and what
// waited is left suspended or is started. It takes a Kueue out, too, in favour of Muster's queues,
// and brings it back. Each step looks at what there is, so that a removal that
// was interrupted is finished by the next.
package removal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	"github.com/muster-dev/muster/cmd/muster/migration"
	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// Waiting says what becomes of Jobs that wait in a queue.
type Waiting string

const (
	// Keep leaves them suspended.
	Keep Waiting = "keep"
	// Release starts them, without quota.
	Release Waiting = "release"
)

// patience is how long a step may take to show its effect.
const patience = 5 * time.Minute

// Removal of Muster from a cluster, by an administrator.
type Removal struct {
	Kube    client.Client
	Clock   clock.Clock
	Waiting Waiting
	// Kinds of jobs of a cluster's own, beside those in the settings of Muster's Deployment.
	Kinds []*kinds.Kind
	// Out gets a line for each thing that is done.
	Out io.Writer

	// names are those of the installation, found by its bindings.
	names deploy.Names
}

// item is one thing to do.
type item struct {
	// what is done, to which object.
	what string
	do   func(context.Context) error
}

// step is what is done before the next may begin.
type step struct {
	title string
	// find returns what is left to do; nothing once the step is done.
	find func(context.Context) ([]item, error)
	// settled reports whether the effect is there; nil where that needs no time.
	settled func(context.Context) (bool, string, error)
}

// steps in their order. Launches are undone as long as Muster runs; policies go before what they
// guard is edited; CRDs go last, with all objects of their kinds gone before, since finalizers
// and owners are of no effect without them.
func (r *Removal) steps() []step {
	return []step{
		{"Nothing new is admitted, and launches in flight are undone", r.launches, r.nothingInFlight},
		{"Muster is stopped", r.processes, r.nothingLeads},
		{"Admission policies and webhooks are deleted", r.admission, nil},
		{"Jobs are as they were before Muster", r.jobs, nil},
		{"Nodes are handed over: cordons, booking labels and annotations of Muster are taken off", r.nodes, nil},
		{"Objects of Muster's kinds are deleted", r.objects, r.noObjects},
		{"What was installed is deleted", r.installed, nil},
		{"CustomResourceDefinitions are deleted", r.definitions, r.noDefinitions},
	}
}

// Check prints what Apply would do, and what it would leave.
func (r *Removal) Check(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	if err := r.plan(ctx, r.steps(), "Nothing is left to do: nothing of Muster is in the cluster."); err != nil {
		return err
	}
	return r.remarks(ctx)
}

// plan prints what is left to do of steps, or that sentence if it is nothing.
func (r *Removal) plan(ctx context.Context, steps []step, nothing string) error {
	left := 0
	for i, s := range steps {
		items, err := s.find(ctx)
		if err != nil {
			return err
		}
		fmt.Fprintf(r.Out, "%d. %s: %d to do\n", i+1, s.title, len(items))
		for _, it := range items {
			fmt.Fprintln(r.Out, "   -", it.what)
		}
		left += len(items)
	}
	if left == 0 {
		fmt.Fprintln(r.Out, nothing)
	}
	return nil
}

// Apply does all steps. It may be called again after an error.
func (r *Removal) Apply(ctx context.Context) error {
	if err := r.begin(ctx); err != nil {
		return err
	}
	if err := r.remarks(ctx); err != nil {
		return err
	}
	return r.perform(ctx, r.steps())
}

// perform does what is left of steps, one after the other.
func (r *Removal) perform(ctx context.Context, steps []step) error {
	for i, s := range steps {
		began := r.Clock.Now()
		done, err := r.carryOut(ctx, s)
		if err != nil {
			return err
		}
		fmt.Fprintf(r.Out, "%d. %s: %d done, in %s\n", i+1, s.title, done, r.Clock.Since(began).Round(100*time.Millisecond))
	}
	return nil
}

// carryOut returns when a step has nothing left to do and its effect is there. What was done may
// be undone at first: a policy acts for a moment after its deletion, and so does a process.
func (r *Removal) carryOut(ctx context.Context, s step) (done int, err error) {
	for began := r.Clock.Now(); ; {
		items, err := s.find(ctx)
		if err != nil {
			return done, err
		}
		done = max(done, len(items))
		for _, it := range items {
			if err := r.do(ctx, it); err != nil {
				return done, fmt.Errorf("%s: %w; run the command again to continue", it.what, err)
			}
		}
		settled, why := len(items) == 0, "some of it was undone"
		if settled && s.settled != nil {
			if settled, why, err = s.settled(ctx); err != nil {
				return done, err
			}
		}
		switch {
		case settled:
			return done, nil
		case r.Clock.Since(began) > patience:
			return done, fmt.Errorf("%s: not within %s: %s; run the command again to continue", s.title, patience, why)
		}
		if err := r.pause(ctx); err != nil {
			return done, err
		}
	}
}

// linger is how long policies may act after their deletion: API servers learn of it by a watch.
const linger = 30 * time.Second

// do does one thing. What is gone needs nothing more.
func (r *Removal) do(ctx context.Context, it item) error {
	for began := r.Clock.Now(); ; {
		err := client.IgnoreNotFound(it.do(ctx))
		if !apierrors.IsForbidden(err) || r.Clock.Since(began) > linger {
			return err
		}
		if err := r.pause(ctx); err != nil {
			return err
		}
	}
}

func (r *Removal) pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-r.Clock.After(500 * time.Millisecond):
		return nil
	}
}

// manifests are all objects that `muster manifests` prints for any cluster, under the names that
// are installed.
func (r *Removal) manifests() (out []*unstructured.Unstructured, err error) {
	objects, err := deploy.Manifests(deploy.Halves...)
	if err != nil {
		return nil, err
	}
	for _, m := range []deploy.Mutations{deploy.ByPolicies, deploy.ByWebhook} {
		more, err := m.By(objects)
		if err != nil {
			return nil, err
		}
		out = append(out, more...)
	}
	return r.names.In(out), nil
}

// crds are Muster's among those that the cluster has, each with its objects' kind.
func (r *Removal) crds(ctx context.Context) (out []*unstructured.Unstructured, err error) {
	objects, err := r.manifests()
	if err != nil {
		return nil, err
	}
	seen, kueues := map[string]bool{}, false
	for _, o := range objects {
		if o.GetKind() != "CustomResourceDefinition" || seen[o.GetName()] {
			continue
		}
		seen[o.GetName()] = true
		live := migration.NewCRD()
		switch err := r.Kube.Get(ctx, client.ObjectKeyFromObject(o), live); {
		case client.IgnoreNotFound(err) != nil:
			return nil, fmt.Errorf("reading CRD %s: %w", o.GetName(), err)
		case err == nil:
			out, kueues = append(out, live), kueues || migration.IsConverted(live)
		}
	}
	// A Kueue's webhook converts some of its kinds, and then it has all of them.
	out = slices.DeleteFunc(out, func(crd *unstructured.Unstructured) bool {
		return kueues && strings.HasSuffix(crd.GetName(), "."+kueue.SchemeGroupVersion.Group)
	})
	// Workloads and requests go before the queues and groups that they use.
	slices.SortStableFunc(out, func(a, b *unstructured.Unstructured) int { return rank(a) - rank(b) })
	return out, nil
}

func rank(crd *unstructured.Unstructured) int {
	return slices.IndexFunc([]string{"workloads.", "provisioningrequests.", "localqueues.", "clusterqueues.", ""}, func(prefix string) bool {
		return strings.HasPrefix(crd.GetName(), prefix)
	})
}

// objectsOf lists the objects of a CRD.
func (r *Removal) objectsOf(ctx context.Context, crd *unstructured.Unstructured) ([]unstructured.Unstructured, error) {
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	kind, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		v, _ := v.(map[string]any)
		if v["served"] != true || v["storage"] != true {
			continue
		}
		list := &unstructured.UnstructuredList{}
		list.SetAPIVersion(group + "/" + fmt.Sprint(v["name"]))
		list.SetKind(kind + "List")
		if err := r.Kube.List(ctx, list); client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("listing %s: %w", crd.GetName(), err)
		}
		return list.Items, nil
	}
	return nil, nil
}

// describe names an object for a person.
func describe(o client.Object, kind string) string {
	if o.GetNamespace() == "" {
		return kind + " " + o.GetName()
	}
	return kind + " " + o.GetNamespace() + "/" + o.GetName()
}

var errOutside = errors.New("stop that process, and run the command again")
