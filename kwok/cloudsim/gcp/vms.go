package gcp

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/kwok/cloudsim"
	kwokv1alpha1 "github.com/muster-dev/muster/kwok/v1alpha1"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// vm is the state of an instance that the world does not have.
type vm struct {
	zone, name  string
	machineType string
	model       string
	// owner is the group that made it; nil for none.
	owner *group
	// inWorld is its ID there.
	inWorld string
	made    time.Time
	// onTermination is DELETE where the VM goes once it has ended, else STOP.
	onTermination string
	// policy is its placement policy; empty for none.
	policy string
	// deleted VMs go once their shutdown is over. It takes the time of grace where it is graceful.
	deleted, graceful bool
	grace             time.Duration
}

func (v *vm) key() string { return v.zone + "/" + v.name }

const terminationDelete = "DELETE"

// machine is what VMs are made of.
type machine struct {
	template      *Template
	machineType   string
	labels        map[string]string
	onTermination string
	policy        string
	// domains of the pool that the reservation affinity leaves open; all where there are none.
	domains []string
}

// launch creates VMs with the given names: at least least of them, or none.
func (f *Front) launch(m machine, zone string, names []string, least int, owner *group) ([]*vm, *v1alpha1.KwokError) {
	order := cloudsim.Order{
		Pool: cloudsim.PoolKey{
			Cloud: v1alpha1.ProviderGCP, Type: m.machineType, Zone: zone, CapacityType: capacityType(m.template.ProvisioningModel),
		},
		Count: len(names), Min: least, Tags: maps.Clone(m.labels), Domains: m.domains,
	}
	place := 0
	order.Node = func(string) *kwokv1alpha1.MachineNode {
		n := node(m, zone)
		n.ProviderID = fmt.Sprintf("gce://%s/%s/%s", f.config.Project, zone, names[place])
		place++
		return n
	}
	if owner != nil {
		order.Group = owner.Name
	}
	for _, name := range names {
		order.IDs = append(order.IDs, f.worldID(name))
	}
	instances, refused := f.launchNear(order, m.policy)
	var out []*vm
	for i, in := range instances {
		v := &vm{
			zone: zone, name: names[i], machineType: m.machineType, model: m.template.ProvisioningModel,
			owner: owner, inWorld: in.ID, made: in.LaunchedAt, onTermination: m.onTermination,
			grace: m.template.GracefulShutdown.Duration, policy: m.policy,
		}
		f.vms[v.key()] = v
		if r := f.reservation(m.template.Reservation, zone); r != nil && v.model == modelReservationBound && r.Until.Duration > 0 {
			f.world.EndAt(in.ID, f.began.Add(r.Until.Duration))
		}
		out = append(out, v)
	}
	if len(out) == len(names) {
		return out, nil
	}
	return out, refused
}

// launchNear launches the VMs of a placement policy in one domain, with what has the policy already, where that has room for all. It
// is done on a best-effort basis: else they are where there is room.
func (f *Front) launchNear(o cloudsim.Order, policy string) ([]cloudsim.Instance, *v1alpha1.KwokError) {
	if policy != "" {
		near := o
		near.Together, near.Min = regionOf(o.Pool.Zone)+"/"+policy, o.Count
		if instances, _ := f.world.Launch(near); len(instances) == o.Count {
			return instances, nil
		}
	}
	return f.world.Launch(o)
}

// worldID is the name, or where it has been used before, the name and a number: the
// world's bill outlives instances.
func (f *Front) worldID(name string) string {
	f.names[name]++
	if n := f.names[name]; n > 1 {
		return fmt.Sprintf("%s.%d", name, n)
	}
	return name
}

// node is what registers: the template's, with the labels that every node of the
// cloud gets.
func node(m machine, zone string) *kwokv1alpha1.MachineNode {
	out := m.template.Node.DeepCopy()
	if out.Labels == nil {
		out.Labels = map[string]string{}
	}
	maps.Copy(out.Labels, map[string]string{
		corev1.LabelTopologyZone: zone, corev1.LabelTopologyRegion: regionOf(zone), corev1.LabelInstanceTypeStable: m.machineType,
		corev1.LabelOSStable: "linux", corev1.LabelArchStable: "amd64",
	})
	return out
}

// state of a VM in the cloud's words.
func (v *vm) state(in *cloudsim.Instance) string {
	switch {
	case in.Phase == cloudsim.Terminated || in.Phase == cloudsim.Stopped:
		return "TERMINATED"
	case in.Ending && v.graceful:
		return "PENDING_STOP"
	case in.Ending:
		return "STOPPING"
	case in.Phase == cloudsim.Pending:
		return "STAGING"
	default:
		return "RUNNING"
	}
}

// instances returns the instances of the world by ID: all of them, or those that lists return.
func (f *Front) instances(all bool) map[string]*cloudsim.Instance {
	out := map[string]*cloudsim.Instance{}
	for _, in := range f.world.Instances(all) {
		out[in.ID] = &in
	}
	return out
}

type instanceJSON struct {
	Kind              string            `json:"kind"`
	ID                string            `json:"id"`
	Name              string            `json:"name"`
	Zone              string            `json:"zone"`
	MachineType       string            `json:"machineType"`
	Status            string            `json:"status"`
	StatusMessage     string            `json:"statusMessage,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Metadata          metadataJSON      `json:"metadata"`
	Scheduling        schedulingJSON    `json:"scheduling"`
	CreationTimestamp string            `json:"creationTimestamp"`
	LastStart         string            `json:"lastStartTimestamp,omitempty"`
	SelfLink          string            `json:"selfLink"`
	ResourcePolicies  []string          `json:"resourcePolicies,omitempty"`
	ResourceStatus    struct {
		Scheduling *terminationJSON `json:"scheduling,omitempty"`
	} `json:"resourceStatus"`
}

// terminationJSON is when the cloud ends an instance by itself.
type terminationJSON struct {
	TerminationTimestamp string `json:"terminationTimestamp"`
}

// termination of an instance; nil where it runs for ever.
func termination(in *cloudsim.Instance) *terminationJSON {
	if in.EndsAt.IsZero() || in.Ending {
		return nil
	}
	return &terminationJSON{in.EndsAt.UTC().Format(time.RFC3339Nano)}
}

type metadataJSON struct {
	Items []metadataItem `json:"items,omitempty"`
}

type metadataItem struct {
	Key   string `json:"key"`
	Value string `json:"value"`
}

type schedulingJSON struct {
	ProvisioningModel         string `json:"provisioningModel,omitempty"`
	InstanceTerminationAction string `json:"instanceTerminationAction,omitempty"`
	OnHostMaintenance         string `json:"onHostMaintenance,omitempty"`
}

func (f *Front) instance(v *vm, in *cloudsim.Instance) instanceJSON {
	out := instanceJSON{
		Kind: "compute#instance", ID: v.id(), Name: v.name, Zone: f.link("zones/" + v.zone),
		MachineType: f.link("zones/" + v.zone + "/machineTypes/" + v.machineType), Status: v.state(in), Labels: in.Tags,
		Scheduling:        schedulingJSON{ProvisioningModel: cmp.Or(v.model, modelStandard), InstanceTerminationAction: v.onTermination},
		CreationTimestamp: v.made.UTC().Format(time.RFC3339Nano), SelfLink: f.link("zones/" + v.zone + "/instances/" + v.name),
	}
	out.ResourceStatus.Scheduling = termination(in)
	if in.Phase != cloudsim.Pending {
		out.LastStart = in.StartedAt.UTC().Format(time.RFC3339Nano)
	}
	if in.Phase == cloudsim.Terminated {
		out.StatusMessage = in.Reason
	}
	if v.policy != "" {
		out.ResourcePolicies = []string{f.link("regions/" + regionOf(v.zone) + "/resourcePolicies/" + v.policy)}
	}
	if v.owner != nil {
		out.Metadata.Items = []metadataItem{{"created-by", "projects/1/" + v.owner.scope() + "/instanceGroupManagers/" + v.owner.Name}}
	}
	return out
}

// id returns a number that distinguishes the VM from others of its name.
func (v *vm) id() string {
	sum := uint64(14695981039346656037)
	for _, b := range []byte(v.zone + "/" + v.inWorld) {
		sum = (sum ^ uint64(b)) * 1099511628211
	}
	return strconv.FormatUint(sum>>1, 10)
}

// scopedJSON is what lists of all zones say of one.
type scopedJSON struct {
	Instances []instanceJSON `json:"instances,omitempty"`
}

// listed are the instances that are visible in lists and match the filter of the call, of a zone, or of all if it is empty.
func (f *Front) listed(c *call, zone string) (out []instanceJSON, refused *cloudsim.Error) {
	out = []instanceJSON{}
	known := f.instances(false)
	match, refused := parseFilter(c.URL.Query().Get("filter"))
	if refused != nil {
		return nil, refused
	}
	for _, key := range slices.Sorted(maps.Keys(f.vms)) {
		v := f.vms[key]
		if in := known[v.inWorld]; in != nil && match(v, in) && (zone == "" || v.zone == zone) && !f.isAway(v.zone) {
			out = append(out, f.instance(v, in))
		}
	}
	return out, nil
}

// listInstances answers for a zone.
func (f *Front) listInstances(c *call) (any, *cloudsim.Error) {
	all, refused := f.listed(c, c.PathValue("zone"))
	if refused != nil {
		return nil, refused
	}
	cut, next, refused := page(f, c, all)
	if refused != nil {
		return nil, refused
	}
	answer := map[string]any{"kind": "compute#instanceList", "items": cut}
	if next != "" {
		answer["nextPageToken"] = next
	}
	return answer, nil
}

// listAllInstances answers for all zones together.
func (f *Front) listAllInstances(c *call) (any, *cloudsim.Error) {
	all, refused := f.listed(c, "")
	if refused != nil {
		return nil, refused
	}
	cut, next, refused := page(f, c, all)
	if refused != nil {
		return nil, refused
	}
	items := map[string]*scopedJSON{}
	for _, in := range cut {
		scope := in.Zone[strings.Index(in.Zone, "zones/"):]
		if items[scope] == nil {
			items[scope] = &scopedJSON{}
		}
		items[scope].Instances = append(items[scope].Instances, in)
	}
	return aggregated(f, c, "compute#instanceAggregatedList", items, next)
}

var labelTerm = regexp.MustCompile(`^labels\.([a-z][a-z0-9_-]*)\s*=\s*"?([a-z0-9_-]*)"?$`)

// parseFilter understands labels that must have values, joined by AND, or a regular expression for names.
func parseFilter(filter string) (func(*vm, *cloudsim.Instance) bool, *cloudsim.Error) {
	if nameTerm.MatchString(filter) {
		names, refused := namesLike(filter)
		return func(v *vm, _ *cloudsim.Instance) bool { return names.MatchString(v.name) }, refused
	}
	want := map[string]string{}
	if filter != "" {
		for term := range strings.SplitSeq(filter, " AND ") {
			m := labelTerm.FindStringSubmatch(strings.Trim(strings.TrimSpace(term), "()"))
			if m == nil {
				return nil, invalid("filter", filter, "Invalid list filter expression.")
			}
			want[m[1]] = m[2]
		}
	}
	return func(_ *vm, in *cloudsim.Instance) bool {
		for k, value := range want {
			if got, ok := in.Tags[k]; !ok || got != value {
				return false
			}
		}
		return true
	}, nil
}

// deleteInstance ends a VM. A group whose VM it was makes another one, as MIGs do.
func (f *Front) deleteInstance(c *call) (any, *cloudsim.Error) {
	zone, name := c.PathValue("zone"), c.PathValue("instance")
	v := f.vms[zone+"/"+name]
	if v == nil {
		return nil, notFound("projects/" + f.config.Project + "/zones/" + zone + "/instances/" + name)
	}
	f.terminate(v, isGraceful(c))
	return f.operation(f.begin("delete", scopeOf(c))), nil
}

// isGraceful reports whether a call that deletes VMs lets them shut down gracefully.
func isGraceful(c *call) bool { return c.URL.Query().Get("noGracefulShutdown") != "true" }

// terminate deletes a VM, as soon as its shutdown is over. It reports whether the cloud does,
// since it may lose a deletion that it has accepted.
func (f *Front) terminate(v *vm, graceful bool) bool {
	if v.graceful = graceful && v.grace > 0; v.graceful {
		f.world.TerminateAfter(v.inWorld, v.grace)
	} else {
		f.world.Terminate(v.inWorld)
	}
	in := f.instances(true)[v.inWorld]
	v.deleted = in.Ending || in.Phase == cloudsim.Terminated
	if in.Phase == cloudsim.Terminated {
		delete(f.vms, v.key())
	}
	return v.deleted
}

type bulkInsertJSON struct {
	Count                  string              `json:"count"`
	MinCount               string              `json:"minCount"`
	NamePattern            string              `json:"namePattern"`
	SourceInstanceTemplate string              `json:"sourceInstanceTemplate"`
	PerInstanceProperties  map[string]struct{} `json:"perInstanceProperties"`
	InstanceProperties     struct {
		MachineType         string            `json:"machineType"`
		Labels              map[string]string `json:"labels"`
		Scheduling          schedulingJSON    `json:"scheduling"`
		ResourcePolicies    []string          `json:"resourcePolicies"`
		ReservationAffinity *affinityJSON     `json:"reservationAffinity"`
	} `json:"instanceProperties"`
}

var (
	rfc1035    = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)
	labelKey   = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	labelValue = regexp.MustCompile(`^[a-z0-9_-]{0,63}$`)
)

// bulkInsert makes minCount VMs at least, or none.
func (f *Front) bulkInsert(c *call) (any, *cloudsim.Error) {
	var in bulkInsertJSON
	if refused := c.read(&in); refused != nil {
		return nil, refused
	}
	count, err := strconv.Atoi(in.Count)
	if err != nil || count < 1 || count > 5000 {
		return nil, invalid("resource.count", in.Count, "Must be between 1 and 5000.")
	}
	least := count
	if in.MinCount != "" {
		if least, err = strconv.Atoi(in.MinCount); err != nil || least < 1 || least > count {
			return nil, invalid("resource.minCount", in.MinCount, "Must be between 1 and count.")
		}
	}
	m, refused := f.bulkMachine(&in)
	if refused != nil {
		return nil, refused
	}
	zone := c.PathValue("zone")
	if refused := f.consume(&m, in.InstanceProperties.ReservationAffinity, zone); refused != nil {
		return nil, refused
	}
	if refused := f.apply(&m, in.InstanceProperties.ResourcePolicies, zone, count); refused != nil {
		return nil, refused
	}
	if len(in.PerInstanceProperties) != count {
		return nil, invalid("resource.perInstanceProperties", strconv.Itoa(len(in.PerInstanceProperties)), "There must be one for each instance.")
	}
	names := slices.Sorted(maps.Keys(in.PerInstanceProperties))
	for _, name := range names {
		if !rfc1035.MatchString(name) {
			return nil, invalid("resource.perInstanceProperties", name, "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'")
		}
		if f.vms[zone+"/"+name] != nil {
			return nil, refusal(http.StatusConflict, "alreadyExists", "The resource 'projects/%s/zones/%s/instances/%s' already exists",
				f.config.Project, zone, name)
		}
	}
	op := f.begin("bulkInsert", scopeOf(c))
	op.target = count
	if op.err = f.mayActAs(); op.err != nil {
		return f.operation(op), nil
	}
	made, short := f.launch(m, zone, names, 0, nil)
	op.created = len(made)
	if short != nil && len(made) < least {
		op.err = asOpError(short, zone)
		for _, v := range made {
			// They are there, and paid for, until the operation has rolled them back.
			v.onTermination = terminationDelete
			f.world.EndAt(v.inWorld, f.endOf(op))
		}
	}
	f.settle()
	return f.operation(op), nil
}

// bulkMachine is the template with what the call overrides.
func (f *Front) bulkMachine(in *bulkInsertJSON) (machine, *cloudsim.Error) {
	t, refused := f.templateOf(in.SourceInstanceTemplate)
	if refused != nil {
		return machine{}, refused
	}
	m := machine{template: t, machineType: t.MachineType, labels: maps.Clone(t.Labels), policy: t.PlacementPolicy,
		onTermination: in.InstanceProperties.Scheduling.InstanceTerminationAction}
	if m.labels == nil {
		m.labels = map[string]string{}
	}
	for k, v := range in.InstanceProperties.Labels {
		if !labelKey.MatchString(k) || !labelValue.MatchString(v) {
			return machine{}, invalid("resource.instanceProperties.labels", k+"="+v,
				"Keys and values are lower-case letters, digits, hyphens and underscores, 63 at most.")
		}
		m.labels[k] = v
	}
	if model := in.InstanceProperties.Scheduling.ProvisioningModel; model != "" && model != cmp.Or(t.ProvisioningModel, modelStandard) {
		return machine{}, invalid("resource.instanceProperties.scheduling.provisioningModel", model, "It differs from the template's.")
	}
	if mt := in.InstanceProperties.MachineType; mt != "" {
		m.machineType = mt
	}
	if f.machineType(m.machineType) == nil {
		return machine{}, invalid("resource.instanceProperties.machineType", m.machineType, "Machine type does not exist.")
	}
	if m.onTermination != "" && t.ProvisioningModel != modelSpot {
		return machine{}, invalid("resource.instanceProperties.scheduling.instanceTerminationAction", m.onTermination,
			"Only Spot instances have one here.")
	}
	return m, nil
}
