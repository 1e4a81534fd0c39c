package devices

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/structured"
	"k8s.io/utils/ptr"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/fit"
)

// inventory contains the devices of all nodes that publish the same.
type inventory struct {
	catalog *Catalog
	key     string
	// slices is in the order in which the allocator takes devices.
	slices []*resourcev1.ResourceSlice
	// plugin lists the extended resources that a device plugin offers on the node and a DeviceClass provides.
	plugin []corev1.ResourceName
	// unpublished describes the incomplete pools.
	unpublished []string
	// of lists the devices of each class that pods without tolerations can get, in allocation order. plain reports whether the
	// devices of a class are interchangeable, so that counting them suffices.
	of    map[string][]allocation
	plain bool
	// tainted counts the devices of each class that such pods cannot get because of a taint.
	tainted map[string]int
	// apart lists the classes of a plain inventory that have all or none of the devices of each other class, so that their devices can be
	// counted whichever claims come first.
	apart map[string]bool
	// shared are the devices that several claims may have at once.
	shared map[allocation]bool

	describing  sync.Once
	description []v1alpha1.DevicePool

	mu     sync.Mutex
	states map[string]*state
}

// allocation is an allocated device, or a share of a device that several claims may use.
type allocation struct {
	driver, pool, device string
	// consumed is the capacity taken from a shared device, as text in the order of the capacities; empty for a whole device.
	consumed string
}

// consumed returns the capacity that an allocation takes from a shared device.
func consumed(r *resourcev1.DeviceRequestAllocationResult) string {
	if r.ShareID == nil {
		return ""
	}
	text := "shared"
	for _, name := range slices.Sorted(maps.Keys(r.ConsumedCapacity)) {
		q := r.ConsumedCapacity[name]
		text += " " + string(name) + "=" + q.String()
	}
	return text
}

// count fills of and plain.
func (i *inventory) count() {
	i.of, i.shared, i.tainted = map[string][]allocation{}, map[allocation]bool{}, map[string]int{}
	i.plain = len(i.unpublished) == 0
	slicesIn := map[string]int64{}
	names := map[[2]string]bool{}
	for _, s := range i.slices {
		slicesIn[s.Spec.Pool.Name]++
		i.plain = i.plain && len(s.Spec.SharedCounters) == 0
		for k := range s.Spec.Devices {
			d := &s.Spec.Devices[k]
			name := [2]string{s.Spec.Pool.Name, d.Name}
			// Duplicate names make the pool invalid.
			i.plain = i.plain && !names[name] && len(d.ConsumesCounters)+len(d.Taints)+len(d.BindingConditions) == 0 &&
				!ptr.Deref(d.AllowMultipleAllocations, false)
			names[name] = true
		}
	}
	for _, class := range i.catalog.names {
		for _, s := range i.slices {
			if slicesIn[s.Spec.Pool.Name] != s.Spec.Pool.ResourceSliceCount {
				continue
			}
			for k := range s.Spec.Devices {
				d := &s.Spec.Devices[k]
				if !i.catalog.matches(i.catalog.Class(class), s.Spec.Driver, d) {
					continue
				}
				if slices.ContainsFunc(d.Taints, fit.KeepsOff) {
					i.tainted[class]++
				} else {
					at := allocation{s.Spec.Driver, s.Spec.Pool.Name, d.Name, ""}
					i.of[class] = append(i.of[class], at)
					if ptr.Deref(d.AllowMultipleAllocations, false) {
						i.shared[at] = true
					}
				}
			}
		}
	}
}

// separate fills apart.
func (i *inventory) separate() {
	i.apart = map[string]bool{}
	for class, list := range i.of {
		in := map[allocation]bool{}
		for _, d := range list {
			in[d] = true
		}
		i.apart[class] = i.plain
		for _, other := range i.of {
			common := 0
			for _, d := range other {
				if in[d] {
					common++
				}
			}
			i.apart[class] = i.apart[class] && (common == 0 || common == len(list) && common == len(other))
		}
	}
}

// matches reports whether a device belongs to the class. An expression that fails to evaluate matches nothing here; the allocator
// reports the error for claims of the class.
func (c *Catalog) matches(class *resourcev1.DeviceClass, driver string, d *resourcev1.Device) bool {
	ok, err := c.selectors.Matches(class.Spec.Selectors, driver, d)
	return err == nil && ok
}

// state is an inventory with a set of allocations.
type state struct {
	*inventory
	key   string
	taken []allocation
	// by is the key of the claims that a plan allocated last, byNumber or byUnknown; empty if all allocations are real.
	by      string
	amounts nodegroups.Resources

	mu sync.Mutex
	// next is the state after allocating the claims of one more pod, by their key. It is nil if they cannot be allocated; obstacles
	// explains why.
	next      map[string]*state
	obstacles map[string]string
	// allocations caches the results of Allocate.
	allocations map[allocationOf]allocated
}

const (
	// byNumber: which devices of their classes were taken does not matter.
	byNumber = " by number"
	// byUnknown: which devices were taken matters and is not known.
	byUnknown = " by others"
)

// allocationOf is the key of allocations: claims, and the number of pods that need them.
type allocationOf struct {
	claims string
	pods   int
}

// allocated is a result of Allocate.
type allocated struct {
	pods int
	left fit.Devices
}

// state returns the inventory with these allocations.
func (i *inventory) state(taken []allocation) *state { return i.stateBy(taken, "") }

func (i *inventory) stateBy(taken []allocation, by string) *state {
	taken = slices.Clone(taken)
	slices.SortFunc(taken, func(a, b allocation) int {
		return cmp.Or(cmp.Compare(a.driver, b.driver), cmp.Compare(a.pool, b.pool), cmp.Compare(a.device, b.device),
			cmp.Compare(a.consumed, b.consumed))
	})
	var text strings.Builder
	text.WriteString(i.key)
	for _, t := range taken {
		fmt.Fprintf(&text, "\n%s/%s/%s %s", t.driver, t.pool, t.device, t.consumed)
	}
	sum := sha256.Sum256([]byte(text.String()))
	key := hex.EncodeToString(sum[:16])
	i.mu.Lock()
	defer i.mu.Unlock()
	if s := i.states[key+by]; s != nil {
		return s
	}
	s := &state{inventory: i, key: key, taken: taken, by: by, next: map[string]*state{}, obstacles: map[string]string{},
		allocations: map[allocationOf]allocated{}}
	s.amounts = s.count()
	if len(i.states) >= mostStates {
		clear(i.states)
	}
	i.states[key+by] = s
	return s
}

// mostStates limits the states cached for an inventory. States beyond the limit are computed again.
const mostStates = 4096

// takenWhole returns the allocated devices that no other claim may have.
func (s *state) takenWhole() map[allocation]bool {
	out := map[allocation]bool{}
	for _, t := range s.taken {
		if t.consumed == "" {
			out[t] = true
		}
	}
	return out
}

func (s *state) count() nodegroups.Resources {
	out := nodegroups.Resources{}
	taken := s.takenWhole()
	for class, list := range s.of {
		name := s.catalog.amounts[class]
		if slices.Contains(s.plugin, name) {
			continue // two books of the same devices: neither counts, see Obstacle
		}
		n := int64(0)
		for _, d := range list {
			switch {
			case taken[d]:
			case s.shared[d]:
				n += fit.SharesOfDevice
			default:
				n++
			}
		}
		out[name] = n
	}
	return out
}

// Key implements fit.Devices, as do the exported methods below.
func (s *state) Key() string { return s.key + s.by }

// String returns the key, which determines everything else in a state.
func (s *state) String() string { return s.Key() }

func (s *state) Amounts() nodegroups.Resources { return s.amounts }

func (s *state) Unpublished() string { return strings.Join(s.unpublished, "; ") }

func (s *state) Tainted() (out []string) {
	for _, slice := range s.slices {
		for i := range slice.Spec.Devices {
			d := &slice.Spec.Devices[i]
			if k := slices.IndexFunc(d.Taints, fit.KeepsOff); k >= 0 {
				out = append(out, fmt.Sprintf("%s (taint %s)", d.Name, d.Taints[k].Key))
			}
		}
	}
	return out
}

func (s *state) Classes() map[string]fit.ClassCount {
	out, taken := map[string]fit.ClassCount{}, s.takenWhole()
	for class, n := range s.tainted {
		out[class] = fit.ClassCount{Tainted: n}
	}
	for class, list := range s.of {
		c := out[class]
		for _, d := range list {
			if taken[d] {
				c.Allocated++
			} else {
				c.Free++
			}
		}
		out[class] = c
	}
	return out
}

func (s *state) Allocate(c *fit.Claims, n int) (pods int, left fit.Devices) {
	of := allocationOf{c.Key, n}
	s.mu.Lock()
	known, ok := s.allocations[of]
	s.mu.Unlock()
	if !ok {
		known.pods, known.left = s.allocatePods(c, n)
		s.mu.Lock()
		if len(s.allocations) >= mostStates {
			clear(s.allocations)
		}
		s.allocations[of] = known
		s.mu.Unlock()
	}
	return known.pods, known.left
}

func (s *state) allocatePods(c *fit.Claims, n int) (pods int, left fit.Devices) {
	if class, count, ok := s.uniform(c); ok {
		return s.takeUniform(c, class, count, n)
	}
	at := s
	for pods < n {
		next, _ := at.with(c)
		if next == nil {
			break
		}
		at = next
		pods++
	}
	return pods, at
}

func (s *state) Obstacle(c *fit.Claims) string {
	_, why := s.with(c)
	return why
}

// uniform reports whether counting suffices: the devices of the class are interchangeable, and the claims request only a number of
// them.
func (s *state) uniform(c *fit.Claims) (class string, count int64, ok bool) {
	if !s.plain || s.conflict(c) != "" || s.by != "" && s.by != c.Key && s.by != byNumber {
		return "", 0, false
	}
	add := func(of string, n int64) bool {
		if class != "" && class != of || count > mostDevices {
			return false
		}
		class, count = of, count+n
		return true
	}
	for i := range c.Specs {
		d := &c.Specs[i].Devices
		if len(d.Constraints) > 0 {
			return "", 0, false
		}
		sum := int64(0)
		for k := range d.Requests {
			e := d.Requests[k].Exactly
			if e == nil || e.AllocationMode == resourcev1.DeviceAllocationModeAll || ptr.Deref(e.AdminAccess, false) ||
				len(e.Selectors) > 0 || e.Capacity != nil || !add(e.DeviceClassName, max(1, e.Count)) {
				return "", 0, false
			}
			sum += max(1, e.Count)
		}
		if sum > mostDevices {
			return "", 0, false // the allocator says why
		}
	}
	for i := range c.Extended {
		if e := &c.Extended[i]; !slices.Contains(s.plugin, e.Resource) && (!add(e.Class, e.Count) || e.Count > mostDevices) {
			return "", 0, false
		}
	}
	return class, count, class != "" && (s.by != byNumber || s.apart[class])
}

// mostDevices limits the devices of one claim.
const mostDevices = resourcev1.AllocationResultsMaxSize

// takeUniform takes the first free devices of the class, in the allocator's order.
func (s *state) takeUniform(c *fit.Claims, class string, count int64, n int) (pods int, left fit.Devices) {
	free := s.free(class, s.taken)
	pods = int(min(int64(n), int64(len(free))/count))
	if pods == 0 {
		return 0, s
	}
	by := c.Key
	if s.apart[class] {
		by = byNumber
	}
	return pods, s.stateBy(slices.Concat(s.taken, free[:int64(pods)*count]), by)
}

// free returns the devices of a class of a plain inventory that are not taken.
func (i *inventory) free(class string, taken []allocation) []allocation {
	in := map[allocation]bool{}
	for _, t := range taken {
		in[t] = true
	}
	return slices.DeleteFunc(slices.Clone(i.of[class]), func(d allocation) bool { return in[d] })
}

func (s *state) ForOthers() fit.Devices {
	if s.by == "" || s.by == byNumber {
		return s
	}
	return s.stateBy(s.taken, byUnknown)
}

func (s *state) Less(amounts nodegroups.Resources) fit.Devices {
	taken, by := s.taken, s.by
	for _, class := range s.catalog.names {
		name := s.catalog.amounts[class]
		n := amounts[name]
		if n <= 0 || len(s.of[class]) == 0 || slices.Contains(s.plugin, name) {
			continue
		}
		free := s.free(class, taken)
		if !s.apart[class] || s.by != "" && s.by != byNumber || n > int64(len(free)) {
			return s.stateBy(s.taken, byUnknown)
		}
		taken, by = slices.Concat(taken, free[:n]), byNumber
	}
	return s.stateBy(taken, by)
}

// conflict explains that both a device plugin and a DRA driver report the claimed devices.
func (s *state) conflict(c *fit.Claims) string {
	for _, name := range s.plugin {
		class := s.catalog.ClassOf(name).Name
		if len(s.of[class]) == 0 {
			continue // its own devices are not published
		}
		claimed := slices.ContainsFunc(c.Extended, func(e fit.ExtendedRequest) bool { return e.Resource == name || e.Class == class })
		for i := range c.Specs {
			claimed = claimed || slices.ContainsFunc(c.Specs[i].Devices.Requests, func(q resourcev1.DeviceRequest) bool {
				return q.Exactly != nil && q.Exactly.DeviceClassName == class || slices.ContainsFunc(q.FirstAvailable,
					func(s resourcev1.DeviceSubRequest) bool { return s.DeviceClassName == class })
			})
		}
		if claimed {
			return fmt.Sprintf("the node offers %s by a device plugin, and publishes %d devices of DeviceClass %s as well: they may be the same, "+
				"so run one of the two there", name, len(s.of[class]), class)
		}
	}
	return ""
}

// with returns the state after allocating the claims of a pod, or nil and the reason.
func (s *state) with(c *fit.Claims) (*state, string) {
	s.mu.Lock()
	next, known := s.next[c.Key]
	why := s.obstacles[c.Key]
	s.mu.Unlock()
	if known {
		return next, why
	}
	taken, why := s.allocate(c)
	if why == "" {
		next = s.stateBy(slices.Concat(s.taken, taken), c.Key)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.next[c.Key], s.obstacles[c.Key] = next, why
	return next, why
}

// allocateWithin limits one allocation. kube-scheduler gives up after 10 seconds per node; Muster must not delay all other
// decisions for that long.
const allocateWithin = time.Second

// allocate runs kube-scheduler's allocator for the claims of a pod and returns the devices taken.
func (s *state) allocate(c *fit.Claims) (taken []allocation, why string) {
	if why = s.conflict(c); why != "" {
		return nil, why
	}
	if s.by != "" && s.by != c.Key {
		// The devices depend on the order in which the pods are scheduled.
		return nil, "other pods claim devices on the same node, and which of them come first is not known"
	}
	claims := s.claims(c)
	if len(claims) == 0 {
		return nil, ""
	}
	ctx, cancel := context.WithTimeout(context.Background(), allocateWithin)
	defer cancel()
	allocator, err := structured.NewAllocator(ctx, features, s.allocatedState(), s.catalog, s.slices, s.catalog.selectors.cel)
	if err != nil {
		return nil, err.Error()
	}
	results, err := allocator.Allocate(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, claims)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return nil, fmt.Sprintf("no devices were found within %s: ask for less at once, or for more alike", allocateWithin)
	case err != nil:
		return nil, err.Error()
	case results == nil:
		return nil, s.short()
	}
	for i := range results {
		for k := range results[i].Devices.Results {
			if r := &results[i].Devices.Results[k]; !ptr.Deref(r.AdminAccess, false) {
				taken = append(taken, allocation{r.Driver, r.Pool, r.Device, consumed(r)})
			}
		}
	}
	return taken, ""
}

// short lists the free devices when claims cannot be allocated.
func (s *state) short() string {
	if len(s.unpublished) > 0 {
		return s.Unpublished()
	}
	var free []string
	for _, class := range s.catalog.names {
		if name := s.catalog.amounts[class]; len(s.of[class]) > 0 && !slices.Contains(s.plugin, name) {
			free = append(free, fmt.Sprintf("%d of %d of DeviceClass %s", min(s.amounts[name], int64(len(s.of[class]))), len(s.of[class]), class))
		}
	}
	if len(free) == 0 {
		return "no devices of any DeviceClass are published"
	}
	return "free are " + strings.Join(free, ", ") + ", and they do not suit the claim together (selectors, constraints, counters, taints)"
}

// features are the defaults of kube-scheduler 1.37.
var features = structured.Features{
	AdminAccess: true, PrioritizedList: true, PartitionableDevices: true, DeviceTaints: true, DeviceBindingAndStatus: true,
	ConsumableCapacity: true, FractionalCapacityRange: true,
}

// claims returns the ResourceClaims of a pod on a node of the inventory.
func (s *state) claims(c *fit.Claims) (out []*resourcev1.ResourceClaim) {
	add := func(name string, spec *resourcev1.ResourceClaimSpec) {
		out = append(out, &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "claims", Name: name}, Spec: *spec})
	}
	for i := range c.Specs {
		add(fmt.Sprintf("claim-%03d", i), &c.Specs[i])
	}
	var extended resourcev1.ResourceClaimSpec
	for i := range c.Extended {
		if e := &c.Extended[i]; !slices.Contains(s.plugin, e.Resource) {
			extended.Devices.Requests = append(extended.Devices.Requests, resourcev1.DeviceRequest{
				Name: fmt.Sprintf("request-%03d", i), Exactly: &resourcev1.ExactDeviceRequest{
					DeviceClassName: e.Class, AllocationMode: resourcev1.DeviceAllocationModeExactCount, Count: e.Count,
				},
			})
		}
	}
	if len(extended.Devices.Requests) > 0 {
		add("extended-resources", &extended)
	}
	return out
}

// allocatedState converts the state for the allocator.
func (s *state) allocatedState() structured.AllocatedState {
	out := structured.AllocatedState{
		AllocatedDevices: sets.New[structured.DeviceID](), AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity: structured.NewConsumedCapacityCollection(),
	}
	for n, t := range s.taken {
		id := structured.MakeDeviceID(t.driver, t.pool, t.device)
		if t.consumed == "" {
			out.AllocatedDevices.Insert(id)
			continue
		}
		share := shareID(n)
		out.AllocatedSharedDeviceIDs.Insert(structured.MakeSharedDeviceID(id, &share))
		out.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, capacities(t.consumed)))
	}
	return out
}

// capacities parses the output of consumed.
func capacities(text string) map[resourcev1.QualifiedName]resource.Quantity {
	out := map[resourcev1.QualifiedName]resource.Quantity{}
	for _, part := range strings.Fields(text)[1:] {
		name, amount, _ := strings.Cut(part, "=")
		out[resourcev1.QualifiedName(name)] = resource.MustParse(amount)
	}
	return out
}

// shareID returns a unique ID for the n-th share of a device.
func shareID(n int) types.UID { return types.UID(fmt.Sprintf("share-%d", n)) }
