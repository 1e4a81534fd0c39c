package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/muster-dev/muster/deploy"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/faults"
	"github.com/muster-dev/muster/kwok/sandbox"
	"github.com/muster-dev/muster/kwok/scenario"
	"github.com/muster-dev/muster/kwok/scenario/report"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/invariants"
)

// Admitter decides when a Job starts.
type Admitter string

// The admitters.
const (
	// Muster admits the Jobs by their queues.
	Muster Admitter = "muster"
	// None: all Jobs start at once, and kube-scheduler places their pods, for comparison.
	None Admitter = "none"
)

// Admitters are all admitters, the default first.
var Admitters = []Admitter{Muster, None}

// Options of a run.
type Options struct {
	Scenario *scenario.Scenario
	// Name of the scenario, for the report.
	Name     string
	Speed    int
	Admitter Admitter
	Cluster  *cluster.Cluster
	// Gate that Muster's requests go through, as Configure returned it.
	Gate   *faults.Gate
	Scheme *runtime.Scheme
	Out    io.Writer
	// Live redraws a bar of progress in place, as terminals can.
	Live bool
	// Interrupt, once closed, ends the run early, with a report of what there was.
	Interrupt <-chan struct{}
}

// ErrInterrupted says that the user did not wait for the end.
var ErrInterrupted = errors.New("the run was interrupted")

// Check says why the admitter cannot run the scenario, if it cannot.
func Check(s *scenario.Scenario, a Admitter) error {
	if a == None && s.Faults != nil {
		return errors.New("this scenario has faults, which are for Muster to bear: choose one without, or --admitter muster")
	}
	if a == None && slices.ContainsFunc(s.Submissions(), func(j scenario.Submission) bool { return j.Shape.Object != nil }) {
		return errors.New("without Muster no Workload tells when objects of other kinds end, and some arrive in this scenario: use one of " +
			"Jobs alone, or --admitter muster")
	}
	if a == None && len(s.Groups) > 0 {
		return errors.New("without Muster no machines are launched, and this scenario has node groups: use a scenario with fixed nodes only, " +
			"or --admitter muster")
	}
	return nil
}

// Configure completes the configuration of the cluster that a run takes. The gate is
// nil where the scenario has no faults.
func Configure(c *cluster.Config, s *scenario.Scenario, a Admitter) (gate *faults.Gate) {
	c.Only = slices.Clone(scenario.Components)
	if a == Muster {
		sandbox.Fill(c)
		if s.Faults != nil {
			gate = faults.NewGate(s.Faults.Seed)
			c.Proxy = gate.Handler
		}
		return gate
	}
	// The simulator needs the kinds of machines.
	sandbox.FillHalf(c, deploy.Provisioning)
	c.Only = slices.DeleteFunc(c.Only, func(name string) bool { return name == cluster.Muster })
	return nil
}

// writers is how many Jobs are created, and pods changed, at once.
const writers = 32

// run is one that goes on.
type run struct {
	Options
	kube     client.Client
	observer *observer
	// written counts the writes of this process.
	written *atomic.Int64
	jobs    []scenario.Submission
	// meter counts what the components do, over their deaths.
	meter *meter
	// watcher of the promises; nil without Muster.
	watcher *invariants.Watcher
	// faults that came, by type and target; for the goroutine that lets them come.
	faults map[string]int
	// cutShort is why the Jobs did not have the time that the scenario gives them.
	cutShort error
}

// Run runs the scenario and returns its report. If the run was cut short, by an error or
// by Interrupt, it returns both that and the report until then, which says so; a report
// without a scenario is none.
func Run(ctx context.Context, o Options) (report.Report, error) {
	config := o.Cluster.RESTConfig()
	config.QPS = -1
	written := countWrites(config)
	kube, err := client.New(config, client.Options{Scheme: o.Scheme})
	if err != nil {
		return report.Report{}, err
	}
	// A field that an object's kind does not have is an error, not silently dropped.
	kube = client.WithFieldValidation(kube, metav1.FieldValidationStrict)
	r := &run{Options: o, kube: kube, written: written, jobs: o.Scenario.Submissions()}
	r.observer = newObserver(o.Scenario, r.jobs, o.Speed)
	return r.run(ctx, config)
}

func (r *run) run(ctx context.Context, config *rest.Config) (out report.Report, err error) {
	if r.Admitter == Muster {
		if r.watcher, err = invariants.Watch(ctx, r.Cluster.RESTConfig(), r.bounds); err != nil {
			return out, err
		}
		defer r.watcher.Stop()
	}
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if err := r.observer.watch(watching, config, r.Scheme, r.Admitter == Muster); err != nil {
		return out, err
	}
	if err := r.prepareUnlessInterrupted(ctx); err != nil {
		return out, err
	}
	if r.meter, err = newMeter(ctx, r.Cluster); err != nil {
		return out, err
	}
	r.written.Store(0)
	screen := &screen{out: r.Out, live: r.Live, speed: r.Speed}
	begun := time.Now()
	r.observer.begin(begun)
	if err := r.play(ctx, screen, begun); err != nil {
		return out, err
	}
	if err := r.seeIdleMachinesGo(ctx, screen, begun); err != nil {
		return out, err
	}
	screen.finish(time.Since(begun), r.observer.progress())
	if err := r.meter.close(ctx); err != nil {
		return out, err
	}
	record := r.observer.finish(time.Now())
	record.Scenario, record.Description, record.Admitter, record.Speed = r.Name, r.Scenario.Description, string(r.Admitter), r.Speed
	if r.cutShort != nil {
		record.Description = fmt.Sprintf("PARTIAL, cut short since %v: %s", r.cutShort, record.Description)
	}
	record.Bound, record.Resource = r.Scenario.Bound(), r.Scenario.Resource()
	record.Faults = r.faults
	r.meter.total.fill(&record, r.written.Load())
	if watcher := r.watcher; watcher != nil {
		watcher.Stop()
		stats := watcher.Stats()
		record.Judged, record.Bounded = map[string]int{}, stats.Bounded
		for check, n := range stats.Judged {
			record.Judged[string(check)] = n
		}
		for _, v := range watcher.Violations() {
			record.Broken = append(record.Broken, v.String())
		}
	}
	return report.Of(record), r.cutShort
}

func (r *run) prepareUnlessInterrupted(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	go func() {
		select {
		case <-r.Interrupt:
			stop(ErrInterrupted)
		case <-ctx.Done():
		}
	}()
	return r.prepare(ctx)
}

// prepare creates all that is there before the first Job.
func (r *run) prepare(ctx context.Context) error {
	s := r.Scenario
	for _, name := range s.Namespaces() {
		if err := r.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			return err
		}
	}
	// All that the API server finds wrong is reported at once, before anything takes time.
	var wrong []error
	for i := range s.Groups {
		g := scenario.Faster(&s.Groups[i], r.Speed)
		g.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("NodeGroup"))
		wrong = append(wrong, r.at(field.NewPath("groups").Index(i), r.create(ctx, g)))
	}
	for i := range s.Objects {
		wrong = append(wrong, r.at(field.NewPath("objects").Index(i), r.createObject(ctx, s.Objects[i].DeepCopy())))
	}
	wrong = append(wrong, r.prepareTeams(ctx), r.try(ctx))
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	var all errgroup.Group
	all.SetLimit(writers)
	for _, nodes := range s.Nodes {
		for _, n := range nodes.Objects() {
			all.Go(func() error { return r.create(ctx, n) })
		}
	}
	if err := all.Wait(); err != nil {
		return err
	}
	return r.observer.await(ctx, "all fixed nodes take pods", r.observer.nodesReady)
}

// at says with an error which field of the file it is about.
func (r *run) at(path *field.Path, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", r.Scenario.Where(path), err)
}

// try has the API server judge a Job of each shape, and a node of each kind, without
// creating it: else the first that it refuses would end the run in the middle.
func (r *run) try(ctx context.Context) error {
	var wrong []error
	for path, job := range r.Scenario.Examples() {
		wrong = append(wrong, r.at(path, r.create(ctx, r.objects(job)[0], client.DryRunAll)))
	}
	for i, nodes := range r.Scenario.Nodes {
		wrong = append(wrong, r.at(field.NewPath("nodes").Index(i), r.create(ctx, nodes.Objects()[0], client.DryRunAll)))
	}
	return errors.Join(wrong...)
}

func (r *run) prepareTeams(ctx context.Context) error {
	t := r.Scenario.Teams
	if t == nil {
		return nil
	}
	var all errgroup.Group
	all.SetLimit(writers)
	for n := range int(t.Count) {
		objects, err := t.For(n)
		if err != nil {
			return err
		}
		all.Go(func() error {
			for i, o := range objects {
				if err := r.at(field.NewPath("teams", "objects").Index(i), r.createObject(ctx, o)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return all.Wait()
}

// createObject creates one of the scenario's own objects at the run's speed.
func (r *run) createObject(ctx context.Context, o *unstructured.Unstructured) error {
	if r.Admitter == None && scenario.ForQueues(o) {
		return nil
	}
	scenario.FasterObject(o, r.Speed)
	return r.create(ctx, o)
}

func (r *run) create(ctx context.Context, o client.Object, how ...client.CreateOption) error {
	if err := r.kube.Create(ctx, o, how...); err != nil {
		return fmt.Errorf("creating %s: %w", strings.TrimPrefix(client.ObjectKeyFromObject(o).String(), "/"), err)
	}
	return nil
}

// play submits all Jobs when they are due, and returns once all have ended or the
// scenario is over.
func (r *run) play(parent context.Context, screen *screen, begun time.Time) error {
	ctx, cancel := context.WithCancel(parent)
	defer cancel()
	group, ctx := errgroup.WithContext(ctx)
	var interrupted error
	group.Go(func() error { return r.submit(ctx, begun) })
	group.Go(func() error { return r.writeEnds(ctx) })
	group.Go(func() error { return r.serve(ctx) })
	group.Go(func() error { return r.letGoWrong(ctx) })
	group.Go(func() error {
		defer cancel()
		over := time.After(r.Scenario.Ends.AtMost.Duration / time.Duration(r.Speed))
		ticker := time.NewTicker(screen.pace())
		defer ticker.Stop()
		for {
			select {
			case <-r.observer.allEnded:
			case <-over:
			case <-r.Interrupt:
				interrupted = ErrInterrupted
			case <-ctx.Done():
				return nil
			case <-ticker.C:
				screen.draw(time.Since(begun), r.observer.progress())
				continue
			}
			return nil
		}
	})
	err := group.Wait()
	if parent.Err() != nil {
		return context.Cause(parent)
	}
	// What was observed until then is reported all the same.
	r.cutShort = errors.Join(err, interrupted)
	return nil
}

// handBack is how long the steps take, whatever the speed, in which Muster gives an idle
// machine back: pods settle, the node is drained, the machine goes.
const handBack = time.Minute

// seeIdleMachinesGo continues to observe after all Jobs have ended, until the idle machines
// are terminated: until then they are paid for. It waits for the longest idleTimeout of the
// groups and the scale-down; the report has the machines that are left then. No more faults
// occur.
func (r *run) seeIdleMachinesGo(ctx context.Context, screen *screen, begun time.Time) error {
	if p := r.observer.progress(); p.succeeded+p.failed < p.all {
		return nil // the scenario is over before its Jobs are
	}
	var idle time.Duration
	for i := range r.Scenario.Groups {
		idle = max(idle, scenario.Faster(&r.Scenario.Groups[i], r.Speed).Spec.IdleTimeout.Duration)
	}
	enough := time.After(idle + handBack)
	ticker := time.NewTicker(screen.pace())
	defer ticker.Stop()
	for r.observer.progress().left > 0 {
		select {
		case <-r.observer.changed:
		case <-enough:
			return nil
		case <-r.Interrupt:
			return nil // all there is to see beside has been seen
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
			screen.draw(time.Since(begun), r.observer.progress())
		}
	}
	return nil
}

// submit creates each Job when it is due.
func (r *run) submit(ctx context.Context, begun time.Time) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i, s := range r.jobs {
		if wait := s.At/time.Duration(r.Speed) - time.Since(begun); wait > 0 {
			select {
			case <-ctx.Done():
				return group.Wait()
			case <-time.After(wait):
			}
		}
		group.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			r.observer.submitted(i, time.Now())
			for _, o := range r.objects(s) {
				// What was created without an answer is there.
				if err := insist(ctx, func() error { return client.IgnoreAlreadyExists(r.create(ctx, o)) }); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return group.Wait()
}

// objects are what a submission creates.
func (r *run) objects(s scenario.Submission) (out []client.Object) {
	if s.Shape.Object == nil {
		return []client.Object{s.Job(r.Speed, r.Admitter == Muster)}
	}
	for _, o := range s.Objects(r.Speed) {
		out = append(out, o)
	}
	return out
}

// serve deletes what serves until it is deleted, once it has done so for its time.
func (r *run) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for {
		select {
		case <-ctx.Done():
			return group.Wait()
		case i := <-r.observer.serving:
			group.Go(func() error {
				job := r.jobs[i]
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(job.Runs(r.Speed)):
				}
				r.observer.served(i, time.Now())
				o := r.objects(job)[0]
				return insist(ctx, func() error {
					return client.IgnoreNotFound(r.kube.Delete(ctx, o, client.PropagationPolicy(metav1.DeletePropagationBackground)))
				})
			})
		}
	}
}

// writeEnds writes to the pods of Jobs that all run by now until when they do.
func (r *run) writeEnds(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for {
		select {
		case <-ctx.Done():
			return group.Wait()
		case t := <-r.observer.ends:
			group.Go(func() error {
				// It may have been lost just now.
				return insist(ctx, func() error { return client.IgnoreNotFound(r.kube.Patch(ctx, t.pod(), client.RawPatch(t.patch()))) })
			})
		}
	}
}
