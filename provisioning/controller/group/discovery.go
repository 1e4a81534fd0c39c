package group

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/text"
)

const (
	// discoverEvery is the interval between two lists of a cloud's groups.
	discoverEvery = time.Minute
	// vanishedAfter is how often in a row a group must be missing before its NodeGroup is deleted, and with it the outcomes of its
	// launches.
	vanishedAfter = 3
	// adviseEvery is the interval between two requests for advice: some clouds limit them to a few a day. advised is the size of the
	// launch that the advice is about.
	adviseEvery = 30 * time.Minute
	advised     = 8
)

// Discovery keeps a NodeGroup for each offering of the cloud groups that are marked for Muster. A NodeGroup that a user has created for an
// offering takes precedence: Discovery creates none for the same offering.
type Discovery struct {
	Client client.Client
	Clouds map[v1alpha1.Provider]cloudprovider.Discoverer
	Events events.EventRecorder
	Clock  clock.WithTicker

	mu      sync.Mutex
	changed chan struct{}
	// notes has the warnings and advice of the discovered groups, by name.
	notes map[string]note
	// lacking has the permissions that Muster lacks, by cloud.
	lacking map[v1alpha1.Provider][]string
	// missed counts for each group in how many consecutive lists it was missing.
	missed map[string]int
	// reported has the refusals and failures that Events have reported.
	reported map[string]string
	advised  map[v1alpha1.Provider]time.Time
}

// note is what is recorded of a discovered group beside its spec.
type note struct {
	provider v1alpha1.Provider
	warnings []cloudprovider.Warning
	advice   *v1alpha1.Advice
}

// NewDiscovery returns a Discovery of the clouds that implement cloudprovider.Discoverer.
func NewDiscovery(w client.Client, clouds map[v1alpha1.Provider]cloudprovider.Provider, recorder events.EventRecorder,
	clock clock.WithTicker) *Discovery {
	d := &Discovery{
		Client: w, Clouds: map[v1alpha1.Provider]cloudprovider.Discoverer{}, Events: recorder, Clock: clock,
		changed: make(chan struct{}, 1), notes: map[string]note{}, lacking: map[v1alpha1.Provider][]string{},
		missed: map[string]int{}, reported: map[string]string{}, advised: map[v1alpha1.Provider]time.Time{},
	}
	for name, cloud := range clouds {
		if asked, ok := cloud.(cloudprovider.Discoverer); ok {
			d.Clouds[name] = asked
		}
	}
	return d
}

// Start discovers groups until ctx is done.
func (d *Discovery) Start(ctx context.Context) error {
	var looks sync.WaitGroup
	for name, cloud := range d.Clouds {
		looks.Go(func() { d.follow(ctx, name, cloud) })
	}
	looks.Wait()
	return nil
}

// follow discovers the groups of one cloud. Each cloud has its own goroutine, so that a slow one delays no other.
func (d *Discovery) follow(ctx context.Context, name v1alpha1.Provider, cloud cloudprovider.Discoverer) {
	d.examine(ctx, name, cloud)
	for ctx.Err() == nil {
		if err := d.discover(ctx, name, cloud); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "Discovery of a cloud's groups will be retried", "provider", name)
			d.report(string(name), "DiscoveryFailed", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-d.Clock.After(discoverEvery):
		}
	}
}

// examine checks once which permissions Muster lacks.
func (d *Discovery) examine(ctx context.Context, name v1alpha1.Provider, cloud cloudprovider.Discoverer) {
	examiner, ok := cloud.(cloudprovider.Examiner)
	if !ok {
		return
	}
	missing, err := examiner.MissingPermissions(ctx)
	if err != nil {
		if ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "The permissions in a cloud could not be tried", "provider", name)
		}
		return
	}
	for _, permission := range missing {
		log.FromContext(ctx).Info("A permission is missing in the cloud: launches that need it will fail", "provider", name, "permission",
			permission)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lacking[name] = missing
}

// discover updates the NodeGroups of a cloud once.
func (d *Discovery) discover(ctx context.Context, name v1alpha1.Provider, cloud cloudprovider.Discoverer) error {
	found, err := cloud.Discover(ctx)
	if err != nil {
		return fmt.Errorf("discover groups of %s: %w", name, err)
	}
	for _, r := range found.Refused {
		d.report(r.Group, "GroupRefused", fmt.Sprintf("The group %s of %s is opted in, but cannot be used: %s", r.Group, name,
			r.Reason))
	}
	list := &v1alpha1.NodeGroupList{}
	if err := d.Client.List(ctx, list); err != nil {
		return fmt.Errorf("list NodeGroups: %w", err)
	}
	there := map[string]*v1alpha1.NodeGroup{}
	for i := range list.Items {
		there[list.Items[i].Name] = &list.Items[i]
	}
	var errs []error
	listed := map[string]bool{}
	for _, f := range found.Groups {
		if other := describedBy(list.Items, f); other != "" {
			d.report(f.Name, "DescribedByHand", fmt.Sprintf("NodeGroup %s, which Muster has not made, describes the same machines: it stands, and "+
				"none is made beside it", other))
			continue
		}
		listed[f.Name] = true
		d.note(name, f)
		errs = append(errs, d.write(ctx, name, there[f.Name], f))
	}
	for i := range list.Items {
		if g := &list.Items[i]; g.Labels[v1alpha1.DiscoveredLabel] == string(name) && d.vanished(g.Name, !listed[g.Name]) {
			errs = append(errs, d.remove(ctx, g))
		}
	}
	errs = append(errs, d.advise(ctx, name, cloud, list.Items))
	d.poke()
	return errors.Join(errs...)
}

// describedBy returns the name of a NodeGroup that a user has created for the offering.
func describedBy(all []v1alpha1.NodeGroup, f cloudprovider.Found) string {
	for i := range all {
		if g := &all[i]; g.Labels[v1alpha1.DiscoveredLabel] == "" && nodegroups.SameOffering(&g.Spec, &f.Spec) {
			return g.Name
		}
	}
	return ""
}

// write creates or updates the NodeGroup of an offering.
func (d *Discovery) write(ctx context.Context, provider v1alpha1.Provider, old *v1alpha1.NodeGroup, f cloudprovider.Found) error {
	if old == nil {
		g := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{
			Name: f.Name, Labels: map[string]string{v1alpha1.DiscoveredLabel: string(provider)},
		}, Spec: f.Spec}
		if err := d.Client.Create(ctx, g); err != nil && !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("make NodeGroup %s: %w", f.Name, err)
		}
		return nil
	}
	if old.Labels[v1alpha1.DiscoveredLabel] == "" {
		return fmt.Errorf("NodeGroup %s was not made by Muster and has the name of an offering of %s: rename it", f.Name, provider)
	}
	renewed := old.DeepCopy()
	renewed.Spec = f.Spec
	defaults(&renewed.Spec, old.Spec)
	if equality.Semantic.DeepEqual(old.Spec, renewed.Spec) {
		return nil
	}
	if err := d.Client.Patch(ctx, renewed, client.MergeFrom(old)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("renew NodeGroup %s: %w", f.Name, err)
	}
	return nil
}

// defaults keeps the fields that the cloud does not set: the schema's defaults and the users' settings.
func defaults(spec *v1alpha1.NodeGroupSpec, old v1alpha1.NodeGroupSpec) {
	if spec.JoinTimeout == nil {
		spec.JoinTimeout = old.JoinTimeout
	}
	if spec.QueueTimeout == nil {
		spec.QueueTimeout = old.QueueTimeout
	}
	if spec.IdleTimeout == nil {
		spec.IdleTimeout = old.IdleTimeout
	}
	if spec.CapacityType == "" {
		spec.CapacityType = old.CapacityType
	}
	if spec.ScaledBy == "" {
		spec.ScaledBy = old.ScaledBy
	}
	if spec.PricePerHour == nil {
		spec.PricePerHour = old.PricePerHour
	}
}

// vanished counts the lists in which a group was missing, and reports whether it is gone for good.
func (d *Discovery) vanished(group string, missing bool) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !missing {
		delete(d.missed, group)
		return false
	}
	d.missed[group]++
	return d.missed[group] >= vanishedAfter
}

// remove deletes the NodeGroup of a group that is gone.
func (d *Discovery) remove(ctx context.Context, g *v1alpha1.NodeGroup) error {
	if err := d.Client.Delete(ctx, g); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete NodeGroup %s, whose group is gone: %w", g.Name, err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.missed, g.Name)
	delete(d.notes, g.Name)
	d.Events.Eventf(g, nil, corev1.EventTypeWarning, "GroupVanished", "Discover", "%s",
		"The cloud's group was deleted, or is no longer opted in")
	return nil
}

// advise requests advice from a cloud, at most once every adviseEvery.
func (d *Discovery) advise(ctx context.Context, name v1alpha1.Provider, cloud cloudprovider.Discoverer, all []v1alpha1.NodeGroup) error {
	advisor, ok := cloud.(cloudprovider.Advisor)
	now := d.Clock.Now()
	d.mu.Lock()
	last := d.advised[name]
	d.mu.Unlock()
	if !ok || !last.IsZero() && now.Sub(last) < adviseEvery {
		return nil
	}
	var groups []*v1alpha1.NodeGroup
	for i := range all {
		if all[i].Spec.Provider == name {
			groups = append(groups, &all[i])
		}
	}
	if len(groups) == 0 {
		return nil
	}
	advice, err := advisor.Advise(ctx, groups, advised)
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advised[name] = now
	for _, group := range slices.Sorted(maps.Keys(advice)) {
		n := d.notes[group]
		n.provider = name
		n.advice = &v1alpha1.Advice{Machines: advised, Chance: advice[group].Chance, At: metav1.NewTime(now), Source: advice[group].Source}
		d.notes[group] = n
	}
	if err != nil {
		return fmt.Errorf("ask %s for its chances: %w", name, err)
	}
	return nil
}

func (d *Discovery) note(provider v1alpha1.Provider, f cloudprovider.Found) {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.notes[f.Name]
	n.provider, n.warnings = provider, f.Warnings
	d.notes[f.Name] = n
}

// known returns the warnings and the advice of a group. warnings is nil before the first list.
func (d *Discovery) known(group string) (warnings []cloudprovider.Warning, advice *v1alpha1.Advice) {
	if d == nil {
		return nil, nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	n, ok := d.notes[group]
	if !ok {
		return nil, nil
	}
	warnings = append([]cloudprovider.Warning{}, n.warnings...)
	for _, permission := range d.lacking[n.provider] {
		warnings = append(warnings, cloudprovider.Warning{Reason: "MissingPermission", Message: "Muster may not call " + permission})
	}
	return warnings, n.advice
}

// renew updates the status of a group. Until the first list of this process, the previous status stands.
func (d *Discovery) renew(g *v1alpha1.NodeGroup, now time.Time) {
	warnings, advice := d.known(g.Name)
	if advice != nil {
		g.Status.Advice = advice
	}
	if warnings == nil {
		return
	}
	condition := metav1.Condition{
		Type: v1alpha1.ConditionSound, Status: metav1.ConditionTrue, Reason: "Sound",
		Message: "Nothing in the cloud's group interferes with Muster", ObservedGeneration: g.Generation,
		LastTransitionTime: metav1.NewTime(now),
	}
	if len(warnings) > 0 {
		messages := make([]string, len(warnings))
		for i := range warnings {
			messages[i] = warnings[i].Message
		}
		condition.Status, condition.Reason, condition.Message = metav1.ConditionFalse, warnings[0].Reason, strings.Join(messages, ". ")
	}
	meta.SetStatusCondition(&g.Status.Conditions, condition)
}

// news receives a value after each list; it is nil without discovery.
func (d *Discovery) news() <-chan struct{} {
	if d == nil {
		return nil
	}
	return d.changed
}

func (d *Discovery) poke() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

// report creates an Event on a cloud's group, unless the last one had the same message.
func (d *Discovery) report(group, reason, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.reported[group] == message {
		return
	}
	d.reported[group] = message
	on := &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: cloudprovider.GroupName(group, group)}}
	d.Events.Eventf(on, nil, corev1.EventTypeWarning, reason, "Discover", "%s", text.Clip(message, text.NoteLimit))
}
