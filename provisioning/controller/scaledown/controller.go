// Package scaledown scales down. It lifts cordons that no request needs, removes the labels of gangs that have ended, and terminates
// machines that no request owns or that have been idle for too long. The pure core decides under the lock of the Model, so that no machine
// is terminated while a request books it.
//
// A machine counts as idle even if it runs strays: pods that use none of its devices and that may be moved. If other nodes have room for
// all of them, they are evicted through the Eviction API, which respects PodDisruptionBudgets. If a pod stops the scale-down of a machine,
// its node is uncordoned after 5 minutes, and an Event on its NodeGroup names the pod and the reason.
package scaledown

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/controller/journal"
	"github.com/muster-dev/muster/provisioning/controller/request"
	"github.com/muster-dev/muster/provisioning/model"
	"github.com/muster-dev/muster/provisioning/scaledown"
	"github.com/muster-dev/muster/provisioning/state"
	"github.com/muster-dev/muster/provisioning/text"
	"github.com/muster-dev/muster/provisioning/when"
)

const (
	// parallel is the number of nodes and pods that are written at once.
	parallel = 16
	// firstPass is the delay between the sync of the Model and the first pass. Objects were listed at different moments, and a watch may
	// lag behind. A machine whose request was listed before its launch looks like an orphan.
	firstPass = 3 * time.Second
	// shortestRest is the minimum time between two passes. A pass takes long in large clusters and blocks decisions on requests, so the
	// controller rests for restFactor times its duration. It rests no longer than longestRest: a pass may also take long because the
	// whole machine stood still.
	shortestRest = 200 * time.Millisecond
	longestRest  = 20 * time.Second
	restFactor   = 20
	// retry is the delay after a failure. The delay of a group that fails to terminate its machines grows with each consecutive failure,
	// up to longestPause.
	retry        = time.Second
	longestPause = 15 * time.Second
	// timeout is how long a pass waits for the terminations that it has started. A call to a cloud that does not respond fails after a
	// minute or two. Meanwhile, the machines of other groups are terminated.
	timeout = 2 * time.Second
	// forgotten is how long an eviction is remembered. It is longer than the drain of a machine.
	forgotten = 10 * time.Minute
)

// Controller terminates the machines that no request needs.
type Controller struct {
	Client client.Client
	// Live reads from the API server, without a cache.
	Live      client.Reader
	Providers map[v1alpha1.Provider]cloudprovider.Provider
	Model     *model.Model
	// Synced waits for the sync of the Model. It returns false if the context ends first. Changed receives a value after each change of
	// the Model.
	Synced  func(context.Context) bool
	Changed <-chan struct{}
	Events  events.EventRecorder
	Clock   clock.WithTicker
	// DryRun writes nothing to nodes, pods and machines. Events and the log report what the controller would do.
	DryRun bool

	// past is the result of the previous pass that the next one needs. evictions are the evictions that were tried, by pod. doubted has
	// the doubts that were reported, by group.
	past      scaledown.Past
	evictions map[types.UID]scaledown.Eviction
	doubted   map[string]scaledown.Doubt
	// mu guards failed, the groups that failed to terminate machines, and underWay, the groups with a call in flight.
	mu       sync.Mutex
	failed   map[string]failure
	underWay map[string]bool
	// calls are the calls to clouds that are in flight.
	calls sync.WaitGroup
	// ended receives a value when a termination fails, or succeeds after its pass has ended.
	ended chan struct{}
	// noticed has the interruption notices that were reported, by node.
	noticed map[string]string
	// observed has the machines and nodes that were reported by a dry run.
	observed map[string]bool
}

// failure is the pause of a group after a failure, and its end.
type failure struct {
	pause time.Duration
	until time.Time
}

// Start runs passes until ctx is done.
func (c *Controller) Start(ctx context.Context) error {
	c.past, c.evictions = scaledown.Past{}, map[types.UID]scaledown.Eviction{}
	c.failed, c.underWay, c.ended = map[string]failure{}, map[string]bool{}, make(chan struct{}, 1)
	defer c.calls.Wait()
	if !c.Synced(ctx) || !c.rest(ctx, firstPass) {
		return nil
	}
	for {
		next, took := c.pass(ctx)
		if !c.rest(ctx, min(max(shortestRest, restFactor*took), longestRest)) {
			return nil
		}
		var again <-chan time.Time
		if !next.IsZero() {
			again = c.Clock.After(next.Sub(c.Clock.Now()))
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Changed:
		case <-c.ended:
		case <-again:
		}
		// One pass serves all causes.
		for _, cause := range []<-chan struct{}{c.Changed, c.ended} {
			select {
			case <-cause:
			default:
			}
		}
	}
}

// rest waits for d. It reports whether the context is still alive.
func (c *Controller) rest(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-c.Clock.After(d):
		return true
	}
}

// pass decides and acts once. It returns the time of the next pass, and for how long it blocked other decisions. Failures and slow calls
// do not block the rest of the pass: calls to clouds may end after it.
func (c *Controller) pass(ctx context.Context) (next time.Time, took time.Duration) {
	var u scaledown.Decision
	var going []string
	cordons := map[string]string{}
	c.Model.Decide(func() {
		began := c.Clock.Now()
		fleet := c.Model.Fleet(began)
		fleet.Evictions, fleet.Past = c.evictions, c.past
		u = scaledown.Plan(fleet)
		if c.DryRun {
			took = c.Clock.Since(began)
			return
		}
		u.Terminate, next = c.willing(u.Terminate)
		for _, name := range u.Lift {
			cordons[name] = c.Model.Node(name).Annotations[v1alpha1.CordonedAnnotation]
		}
		going = slices.Clone(u.Cordon)
		for _, name := range append(going, nodesOf(u.Terminate)...) {
			c.Model.SetLeaving(name, true)
		}
		took = c.Clock.Since(began)
	})
	defer func() {
		for _, name := range going {
			c.Model.SetLeaving(name, false)
		}
	}()
	c.past = u.Past
	for group, d := range u.Doubts {
		if d.Braked() && !c.doubted[group].Braked() {
			c.report(corev1.EventTypeWarning, group, "ScaleDownBlocked", d.String())
			journal.Write(ctx, "Scale-down of a group is stopped", group, journal.Group, group, journal.Count, d.Machines(),
				journal.Cause, d.String())
		}
		if d.KeepsIdle() && !c.doubted[group].KeepsIdle() {
			c.report(corev1.EventTypeWarning, group, "ScaleDownBlocked", d.SayIdle())
			journal.Write(ctx, "Idle machines of a group are kept", group, journal.Group, group, journal.Count, d.Idle,
				journal.Cause, d.SayIdle())
		}
	}
	c.doubted = u.Doubts
	c.notice(u.Noticed)
	if c.DryRun {
		c.observe(ctx, u)
		return u.At, took
	}
	for _, h := range u.HeldUp {
		c.report(corev1.EventTypeWarning, h.Machine.Group, "ScaleDownDelayed", h.Message)
	}
	w := &work{}
	w.SetLimit(parallel)
	c.changeNodes(ctx, w, u, cordons)
	c.deleteNodes(ctx, w, u.Delete)
	c.evict(ctx, w, u.Evict)
	taken := c.terminate(ctx, u.Terminate)
	_ = w.Wait() // the errors are in w.errs
	if err := errors.Join(w.errs...); err != nil && ctx.Err() == nil {
		log.FromContext(ctx).Info("Scale-down will be retried", "reason", err.Error())
		next = when.Earliest(next, c.Clock.Now().Add(retry))
	}
	if len(u.Terminate) > 0 {
		enough := c.Clock.NewTimer(timeout)
		defer enough.Stop()
		select {
		case <-taken:
		case <-enough.C():
		}
	}
	return when.Earliest(next, u.At), took
}

// notice reports each new interruption notice in Events: on the NodeGroup, on the requests whose gangs have booked the node or run there,
// and on their Workloads.
func (c *Controller) notice(nodes []*state.Node) {
	before := c.noticed
	c.noticed = map[string]string{}
	for _, n := range nodes {
		c.noticed[n.Name] = n.Notice
		if before[n.Name] == n.Notice {
			continue
		}
		const reason = "InterruptionNotice"
		message := fmt.Sprintf("The machine of node %s will be interrupted (%s). Nothing more is booked there", n.Name, n.Notice)
		if n.Group != "" {
			c.report(corev1.EventTypeWarning, n.Group, reason, message)
		}
		for i := range n.Labelled {
			e, ok := c.Model.Request(n.Labelled[i].UID)
			if !ok {
				continue
			}
			gang := text.Clip(message+"; the gang's pods on it end with it", text.NoteLimit)
			c.Events.Eventf(e.Object, nil, corev1.EventTypeWarning, reason, "ScaleDown", "%s", gang)
			if owner := metav1.GetControllerOf(e.Object); owner != nil {
				workload := &metav1.PartialObjectMetadata{
					TypeMeta:   metav1.TypeMeta{APIVersion: owner.APIVersion, Kind: owner.Kind},
					ObjectMeta: metav1.ObjectMeta{Namespace: e.Object.Namespace, Name: owner.Name, UID: owner.UID},
				}
				c.Events.Eventf(workload, nil, corev1.EventTypeWarning, reason, "ScaleDown", "%s", gang)
			}
		}
	}
}

// observe reports, once for each machine and node, what a pass would do without dry run.
func (c *Controller) observe(ctx context.Context, u scaledown.Decision) {
	snapshot := c.Model.Snapshot(c.Clock.Now())
	before := c.observed
	c.observed = map[string]bool{}
	would := func(group, what, name string) {
		key := what + " " + name
		c.observed[key] = true
		if before[key] {
			return
		}
		price := "a price that is not known"
		if g := snapshot.FindGroup(group); g != nil && !g.PriceUnknown {
			price = text.USD(g.MicroUSDPerHour) + " USD per hour"
		}
		message := fmt.Sprintf("Dry run: nothing of this is done. %s %s, a machine for %s", what, name, price)
		log.FromContext(ctx).Info("Dry run: nothing is tidied up", "group", group, "decision", what, "name", name, "price", price)
		c.report(corev1.EventTypeNormal, group, "WouldScaleDown", message)
	}
	for _, name := range u.Cordon {
		if n := snapshot.Nodes.Find(name); n != nil && n.Machine != nil {
			would(n.Machine.Group, "An idle machine is drained and terminated: node", name)
		}
	}
	for _, r := range u.Terminate {
		would(r.Group, "A machine that no request owns is terminated:", r.Name)
	}
	for _, name := range u.Delete {
		if n := snapshot.Nodes.Find(name); n != nil {
			would(n.Group, "The node of a machine that has ended is deleted:", name)
		}
	}
}

// willing returns the machines of groups without a recent failure. again is the end of the first pause.
func (c *Controller) willing(machines []scaledown.Return) (out []scaledown.Return, again time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range machines {
		if until := c.failed[r.Group].until; c.Clock.Now().Before(until) {
			again = when.Earliest(again, until)
		} else if !c.underWay[r.Group] { // the end of the call starts the next pass
			out = append(out, r)
		}
	}
	return out, again
}

// nodesOf returns the names of the machines' nodes.
func nodesOf(machines []scaledown.Return) (out []string) {
	for _, r := range machines {
		if r.Node != "" {
			out = append(out, r.Node)
		}
	}
	return out
}

// work runs functions in parallel and collects their errors.
type work struct {
	errgroup.Group
	mu   sync.Mutex
	errs []error
}

func (w *work) do(f func() error) {
	w.Go(func() error {
		if err := f(); err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.errs = append(w.errs, err)
		}
		return nil
	})
}

// changeNodes writes each node once. It lifts only the cordons that the decision has seen: a request may have placed another one since.
func (c *Controller) changeNodes(ctx context.Context, w *work, u scaledown.Decision, cordons map[string]string) {
	changes := map[string][]func(*corev1.Node) error{}
	for _, l := range u.Unlabel {
		changes[l.Node] = append(changes[l.Node], func(n *corev1.Node) error {
			request.Unlabel(n, l.Key)
			return nil
		})
	}
	for _, name := range u.Lift {
		changes[name] = append(changes[name], func(n *corev1.Node) error {
			if n.Annotations[v1alpha1.CordonedAnnotation] != cordons[name] {
				return nil
			}
			return request.LiftCordon(n)
		})
	}
	for _, name := range u.Disown {
		changes[name] = append(changes[name], request.DisownCordon)
	}
	for _, name := range u.Hold {
		changes[name] = append(changes[name], request.HoldIdle)
	}
	for _, name := range u.Cordon {
		changes[name] = append(changes[name], func(n *corev1.Node) error { return request.Cordon(n, v1alpha1.CordonScalingDown) })
	}
	for _, a := range u.Adopt {
		changes[a.Node] = append(changes[a.Node], func(n *corev1.Node) error { return request.Adopt(n, c.Model.Group(a.Machine.Group), a) })
	}
	for name, list := range changes {
		w.do(func() error {
			return request.ChangeNode(ctx, c.Client, c.Model, name, func(n *corev1.Node) error {
				for _, change := range list {
					if err := change(n); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
}

// deleteNodes deletes the nodes in the version that the decision has seen. A node with a newer version stays.
func (c *Controller) deleteNodes(ctx context.Context, w *work, names []string) {
	for _, name := range names {
		w.do(func() error {
			n := c.Model.Node(name)
			if n == nil {
				return nil
			}
			err := c.Client.Delete(ctx, n, client.Preconditions{UID: &n.UID, ResourceVersion: &n.ResourceVersion})
			switch {
			case err == nil:
				journal.Write(ctx, "Deleting the node of a machine that has ended", name, "node", name,
					journal.Group, n.Labels[v1alpha1.NodeGroupLabel])
				c.report(corev1.EventTypeNormal, n.Labels[v1alpha1.NodeGroupLabel], "NodeDeleted",
					fmt.Sprintf("Node %s was deleted: its machine has ended, and nothing else deleted it", name))
			case apierrors.IsConflict(err):
				return nil
			case !apierrors.IsNotFound(err):
				return fmt.Errorf("deleting node %s, whose machine has ended: %w", name, err)
			}
			c.Model.Gone(n)
			return nil
		})
	}
}

// evict creates the evictions of the pods and records their results.
func (c *Controller) evict(ctx context.Context, w *work, strays []state.Stray) {
	now := c.Clock.Now()
	maps.DeleteFunc(c.evictions, func(_ types.UID, e scaledown.Eviction) bool { return now.Sub(e.At) > forgotten })
	for _, s := range strays {
		w.do(func() error {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
			err := c.Client.SubResource("eviction").Create(ctx, pod, &policyv1.Eviction{
				ObjectMeta:    pod.ObjectMeta,
				DeleteOptions: &metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(s.UID))},
			})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				return nil // the pod is gone, or was replaced by a pod of the same name
			}
			w.mu.Lock()
			c.evictions[s.UID] = scaledown.Eviction{At: now, Refusal: refusal(err)}
			w.mu.Unlock()
			journal.Write(ctx, "Evicting a pod from an idle machine", s.String(), "pod", s.String(), journal.Cause, refusal(err))
			if err == nil || apierrors.IsTooManyRequests(err) {
				return nil // a PodDisruptionBudget refuses the eviction for now
			}
			return fmt.Errorf("evicting pod %s: %w", &s, err)
		})
	}
}

// refusal returns the API server's reasons to refuse an eviction, which name the PodDisruptionBudgets.
func refusal(err error) string {
	if err == nil {
		return ""
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		return err.Error()
	}
	var causes []string
	for _, cause := range status.Status().Details.Causes {
		causes = append(causes, cause.Message)
	}
	return strings.Join(causes, ", ")
}

// terminate terminates machines with one call for each group, in parallel. The channel is closed when all calls have ended.
func (c *Controller) terminate(ctx context.Context, machines []scaledown.Return) <-chan struct{} {
	groups := map[string][]scaledown.Return{}
	for _, r := range machines {
		groups[r.Group] = append(groups[r.Group], r)
	}
	var all sync.WaitGroup
	for name, list := range groups {
		c.mu.Lock()
		c.underWay[name] = true
		c.mu.Unlock()
		all.Add(1)
		c.calls.Go(func() {
			defer all.Done()
			c.terminateIn(ctx, name, list)
		})
	}
	out := make(chan struct{})
	c.calls.Go(func() {
		all.Wait()
		close(out)
	})
	return out
}

// terminateIn terminates machines of a group. Their nodes are marked as leaving until the call ends.
func (c *Controller) terminateIn(ctx context.Context, group string, list []scaledown.Return) {
	terminator := request.Terminator{Model: c.Model, Providers: c.Providers, Live: c.Live, Cause: "they are idle, or no request owns them"}
	machines := make([]cloudprovider.Machine, len(list))
	for i, r := range list {
		machines[i] = r.Machine
	}
	began := c.Clock.Now()
	err := terminator.Terminate(ctx, machines)
	for _, name := range nodesOf(list) {
		c.Model.SetLeaving(name, false)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.underWay, group)
	if err == nil {
		delete(c.failed, group)
		c.report(corev1.EventTypeNormal, group, "MachinesTerminated", fmt.Sprintf("%d idle or orphaned machines were terminated", len(list)))
	} else if ctx.Err() == nil {
		pause := min(max(retry, 2*c.failed[group].pause), longestPause)
		c.failed[group] = failure{pause, c.Clock.Now().Add(pause)}
		c.report(corev1.EventTypeWarning, group, "ScaleDownFailed",
			fmt.Sprintf("%d idle or orphaned machines could not be terminated; next attempt in %s: %v", len(list), pause, err))
		log.FromContext(ctx).Info("Scale-down will be retried", "reason", err.Error())
	}
	if err == nil && c.Clock.Since(began) < timeout {
		return // the pass has waited for the call
	}
	select {
	case c.ended <- struct{}{}:
	default:
	}
}

// report creates an Event on a NodeGroup, even if the NodeGroup has been deleted.
func (c *Controller) report(kind, group, reason, message string) {
	g := c.Model.Group(group)
	if g == nil {
		g = &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: group}}
	}
	c.Events.Eventf(g, nil, kind, reason, "ScaleDown", "%s", text.Clip(message, text.NoteLimit))
}
