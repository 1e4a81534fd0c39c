package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	kueue "sigs.k8s.io/kueue/apis/kueue/v1beta2"

	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/queueing/dispatch"
	"github.com/muster-dev/muster/test/invariants"
	"github.com/muster-dev/muster/test/pressure"
)

// ClustersOptions are of a demo on a manager with two workers.
type ClustersOptions struct {
	Manager *rest.Config
	// Workers in their order, by the names that the manager has for them.
	Workers [2]Worker
	Scheme  *runtime.Scheme
	Out     io.Writer
}

// Worker is a cluster that jobs run in.
type Worker struct {
	Name   string
	Config *rest.Config
}

// RunClusters shows the story of several clusters: the cheap one has no machines, the next has them, and only that one is paid for.
func RunClusters(ctx context.Context, o ClustersOptions) error {
	d, err := newClusters(o)
	if err != nil {
		return err
	}
	var watchers []*invariants.Watcher
	for _, w := range o.Workers {
		watcher, err := invariants.Watch(ctx, w.Config)
		if err != nil {
			return fmt.Errorf("watching the promises in %s: %w", w.Name, err)
		}
		defer watcher.Stop()
		watchers = append(watchers, watcher)
	}
	failed := []error{d.play(ctx)}
	for i, w := range watchers {
		w.Stop()
		for _, v := range w.Violations() {
			failed = append(failed, fmt.Errorf("in %s: %s", o.Workers[i].Name, v))
		}
	}
	if err := errors.Join(failed...); err != nil {
		d.screen.line("  ✗ %v", err)
		return err
	}
	d.screen.line("")
	d.screen.line("  ✓ no machine was launched in %s, and no promise was broken in any cluster", o.Workers[0].Name)
	return nil
}

// clusters is a demo on several.
type clusters struct {
	manager *demo
	workers []client.Client
	names   []string
	screen  *screen
}

func newClusters(o ClustersOptions) (*clusters, error) {
	manager, err := client.New(o.Manager, client.Options{Scheme: o.Scheme})
	if err != nil {
		return nil, err
	}
	d := &clusters{screen: &screen{out: o.Out}}
	d.manager = &demo{client: manager, screen: d.screen}
	for _, w := range o.Workers {
		kube, err := client.New(w.Config, client.Options{Scheme: o.Scheme})
		if err != nil {
			return nil, err
		}
		d.workers, d.names = append(d.workers, kube), append(d.names, w.Name)
	}
	return d, nil
}

// whole is the state of all clusters at one time.
type whole struct {
	job      batchv1.Job
	workload *kueue.Workload
	record   dispatch.Record
	// machines that there ever were, by worker.
	machines []int
}

func (d *clusters) play(ctx context.Context) error {
	const gang = 4
	st := story{letter: "d", title: "The cheap cluster has no machines: the next is asked, and only that one is paid for",
		manifest: "job-anywhere.yaml"}
	if err := d.connect(ctx); err != nil {
		return err
	}
	if err := d.makeScarce(ctx); err != nil {
		return err
	}
	d.screen.title(st)
	start := time.Now()
	if err := d.manager.apply(ctx, st.manifest); err != nil {
		return err
	}
	chapters := []struct {
		text    string
		reached func(*whole) string
	}{
		{"the cheap cluster was asked first", func(w *whole) string {
			for _, r := range w.record.Refusals {
				if r.Cluster == d.names[0] && r.Reason == dispatch.NoCapacity {
					return fmt.Sprintf("%s, the cheap one, was asked first: %s", r.Cluster, r.Message)
				}
			}
			return ""
		}},
		{"the next cluster launches machines", func(w *whole) string {
			if w.machines[1] == gang {
				return fmt.Sprintf("%d machines are launching in %s", gang, d.names[1])
			}
			return ""
		}},
		{"the job is started there", func(w *whole) string {
			if w.workload.Status.ClusterName != nil {
				return "all are Ready and booked: the Job is started in " + *w.workload.Status.ClusterName
			}
			return ""
		}},
		{"its pods are seen here", func(w *whole) string {
			if w.job.Status.Active+w.job.Status.Succeeded == gang {
				return fmt.Sprintf("the manager shows its %d pods", gang)
			}
			return ""
		}},
		{"the job is complete", func(w *whole) string {
			if (&scene{job: &w.job}).jobComplete() {
				return "the Job is complete"
			}
			return ""
		}},
	}
	for _, c := range chapters {
		if err := d.await(ctx, c.text, c.reached, start); err != nil {
			return err
		}
	}
	return d.manager.remove(ctx, st.manifest)
}

// await returns when the chapter is reached.
func (d *clusters) await(ctx context.Context, chapter string, reached func(*whole) string, start time.Time) error {
	bounded, cancel := pressure.WithTimeout(ctx, patience)
	defer cancel()
	for {
		w, err := d.look(ctx)
		if err != nil {
			return err
		}
		if w.machines[0] > 0 {
			return fmt.Errorf("%d machines were launched in %s, which cannot give them all", w.machines[0], d.names[0])
		}
		if w.workload != nil {
			if text := reached(w); text != "" {
				d.screen.chapter(time.Since(start), text)
				return nil
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-bounded.Done():
			return fmt.Errorf("no progress until %s: %w: %s", chapter, context.Cause(bounded), w.standing())
		case <-time.After(pace):
		}
	}
}

// standing is how far the Job has come, for a story that has stopped.
func (w *whole) standing() string {
	switch {
	case w.workload == nil:
		return "the Job has no Workload"
	case w.record.Waits != "":
		return w.record.Waits
	case w.workload.Status.ClusterName != nil:
		return "the Job is in " + *w.workload.Status.ClusterName
	}
	return fmt.Sprintf("its Workload is nominated for %q", w.workload.Status.NominatedClusterNames)
}

// connect waits until the manager is connected to its workers: before, it nominates only those that are connected.
func (d *clusters) connect(ctx context.Context) error {
	var cut string
	bounded, cancel := pressure.WithTimeout(ctx, patience)
	defer cancel()
	err := wait.PollUntilContextCancel(bounded, pace, true, func(ctx context.Context) (bool, error) {
		for _, name := range d.names {
			var c kueue.MultiKueueCluster
			if err := d.manager.client.Get(ctx, client.ObjectKey{Name: name}, &c); err != nil {
				return false, err
			}
			if !apimeta.IsStatusConditionTrue(c.Status.Conditions, kueue.MultiKueueClusterActive) {
				cut = name
				return false, nil
			}
		}
		return true, nil
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return fmt.Errorf("the manager has not reached %[1]s: %[2]w: see the conditions of MultiKueueCluster %[1]s", cut, context.Cause(bounded))
	}
	return err
}

// makeScarce has the first worker cost half, and have no machines.
func (d *clusters) makeScarce(ctx context.Context) error {
	group := &v1alpha1.NodeGroup{}
	if err := d.workers[0].Get(ctx, client.ObjectKey{Name: "gpu"}, group); err != nil {
		return err
	}
	patch := client.MergeFrom(group.DeepCopy())
	group.Spec.PricePerHour, group.Spec.Kwok.Holds = new(resource.MustParse("49.16")), new(int32)
	return d.workers[0].Patch(ctx, group, patch)
}

func (d *clusters) look(ctx context.Context) (*whole, error) {
	w := &whole{}
	if err := d.manager.client.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "anywhere"}, &w.job); err != nil {
		return nil, err
	}
	var workloads kueue.WorkloadList
	if err := d.manager.client.List(ctx, &workloads, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return nil, err
	}
	for i := range workloads.Items {
		if metav1.IsControlledBy(&workloads.Items[i], &w.job) {
			w.workload = &workloads.Items[i]
			var err error
			if w.record, err = dispatch.DecodeRecord(w.workload.Annotations[dispatch.Annotation]); err != nil {
				return nil, err
			}
		}
	}
	for _, kube := range d.workers {
		var machines kwokv1alpha1.MachineList
		if err := kube.List(ctx, &machines); err != nil {
			return nil, err
		}
		w.machines = append(w.machines, len(machines.Items))
	}
	return w, nil
}
