// Package demo shows stories on a sandbox: a request grows a group; a queued gang waits for all of its machines; a pool that cannot
// provide them all keeps none; on several clusters, a job goes to the next cluster if one has no machines, and only that one is paid for;
// and the pods of a JobSet need machines of two groups. It checks the promises meanwhile.
package demo

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/invariants"
	"github.com/muster-dev/muster/test/pressure"
)

//go:embed *.yaml
var manifests embed.FS

// Clouds are the simulated clouds of the demo beside KWOK's own pools.
//
//go:embed clouds.yaml
var Clouds []byte

// Options of a demo.
type Options struct {
	Config *rest.Config
	Scheme *runtime.Scheme
	Out    io.Writer
	// Cloud of the machines.
	Cloud v1alpha1.Provider
	// JobSet has the story of a JobSet shown instead, whose operator runs.
	JobSet bool
	// Live redraws a line of progress in place, as terminals can.
	Live bool
}

const (
	// pace is how often the cluster is read.
	pace = 100 * time.Millisecond
	// patience is how long the next chapter of a story may take. Time in which the machine was too busy does not count.
	patience = time.Minute
)

// Run shows the stories. The error names a promise that was broken.
func Run(ctx context.Context, o Options) error {
	c, err := client.New(o.Config, client.Options{Scheme: o.Scheme})
	if err != nil {
		return err
	}
	watcher, err := invariants.Watch(ctx, o.Config)
	if err != nil {
		return fmt.Errorf("watching the promises: %w", err)
	}
	defer watcher.Stop()
	d := &demo{client: c, screen: &screen{out: o.Out, live: o.Live}}
	for _, manifest := range []string{"objects.yaml", fmt.Sprintf("groups-%s.yaml", o.Cloud)} {
		if err := d.apply(ctx, manifest); err != nil {
			return err
		}
	}
	shown := stories
	if o.JobSet {
		shown = []story{ofJobSet}
	}
	var failed []error
	var results []result
	for _, s := range shown {
		took, err := d.show(ctx, s)
		if err != nil {
			err = fmt.Errorf("story (%s): %w", s.letter, err)
			failed = append(failed, err)
			d.screen.line("  ✗ %v", err)
		}
		results = append(results, result{s, took, err})
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	watcher.Stop()
	d.summary(results, watcher)
	if v := watcher.Violations(); len(v) > 0 {
		failed = append(failed, fmt.Errorf("%d promises were broken", len(v)))
	}
	return errors.Join(failed...)
}

type demo struct {
	client client.Client
	screen *screen
}

type result struct {
	story
	took time.Duration
	err  error
}

// apply creates the objects of a manifest. Existing objects are not changed, so that a demo can run again on a cluster that was kept.
func (d *demo) apply(ctx context.Context, name string) error {
	objects, err := d.objects(name)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := d.create(ctx, o); client.IgnoreAlreadyExists(err) != nil {
			return fmt.Errorf("creating %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

// create retries while the admission policies of the API server do not have the kind: they discover new kinds every 5 s.
func (d *demo) create(ctx context.Context, o client.Object) error {
	var err error
	_ = wait.PollUntilContextTimeout(ctx, pace, patience, true, func(ctx context.Context) (bool, error) {
		err = d.client.Create(ctx, o)
		return !apierrors.IsServiceUnavailable(err), nil
	})
	return err
}

// remove deletes the objects of a manifest.
func (d *demo) remove(ctx context.Context, name string) error {
	objects, err := d.objects(name)
	if err != nil {
		return err
	}
	for _, o := range objects {
		if err := d.client.Delete(ctx, o, client.PropagationPolicy("Background")); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("deleting %s %s: %w", o.GetKind(), o.GetName(), err)
		}
	}
	return nil
}

func (d *demo) objects(name string) ([]*unstructured.Unstructured, error) {
	text, err := manifests.ReadFile(name)
	if err != nil {
		return nil, err
	}
	out, err := deploy.Decode(text)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", name, err)
	}
	return out, nil
}

// show plays a story: it creates the objects, waits for each chapter in turn, deletes the objects, and waits for the chapters after that.
func (d *demo) show(ctx context.Context, s story) (took time.Duration, err error) {
	d.screen.title(s)
	start := time.Now()
	defer func() { took = time.Since(start) }()
	for _, manifest := range []string{s.objects, s.manifest} {
		if manifest == "" {
			continue
		}
		if err := d.apply(ctx, manifest); err != nil {
			return 0, err
		}
	}
	if err := d.play(ctx, s, s.chapters, start); err != nil || len(s.afterwards) == 0 {
		return 0, err
	}
	d.screen.line("    kubectl delete -f kwok/demo/%s", s.manifest)
	if err := d.remove(ctx, s.manifest); err != nil {
		return 0, err
	}
	return 0, d.play(ctx, s, s.afterwards, start)
}

// play waits for one chapter after the other, and checks the story's own promises each time.
func (d *demo) play(ctx context.Context, s story, chapters []chapter, start time.Time) error {
	scene := &scene{}
	for _, reached := range chapters {
		if err := d.await(ctx, s, scene, reached, start); err != nil {
			return err
		}
	}
	return nil
}

// await returns when the chapter is reached.
func (d *demo) await(ctx context.Context, s story, scene *scene, reached chapter, start time.Time) error {
	bounded, cancel := pressure.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if err := d.read(ctx, scene, s); err != nil {
			return err
		}
		scene.at = time.Since(start)
		if err := s.watch(scene); err != nil {
			return err
		}
		d.screen.progress(scene, s)
		if text := reached(scene); text != "" {
			d.screen.chapter(scene.at, text)
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-bounded.Done():
			return fmt.Errorf("no progress: %w; %s", context.Cause(bounded), scene.reason())
		case <-time.After(pace):
		}
	}
}
