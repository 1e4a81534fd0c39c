package purchases

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/muster-dev/muster/provisioning/when"
)

// Seen are the machines that a process has seen of each request, by its UID, including those that are no longer listed.
type Seen map[types.UID]map[machine]*purchase

type machine struct{ group, name string }

// purchase contains the machines that had the same name.
type purchase struct {
	started time.Time
	made    []Machine
	gone    bool
}

// Add counts a machine of a launch for a request once. A machine with the name of an earlier one that ended before it started
// counts again; a machine that was only missing from lists for a while does not.
func (s Seen) Add(request types.UID, launch, group, name string, started time.Time) {
	if s[request] == nil {
		s[request] = map[machine]*purchase{}
	}
	key := machine{group, name}
	p := s[request][key]
	switch {
	case p == nil:
		p = &purchase{made: []Machine{{Mark(group, name, time.Time{}), CallMark(group, launch), started}}}
		s[request][key] = p
	case p.gone && !p.started.IsZero() && started.After(p.started):
		p.made = append(p.made, Machine{Mark(group, name, started), CallMark(group, launch), started})
	}
	p.gone, p.started = false, when.Latest(p.started, started)
}

// Gone records that a machine is no longer listed.
func (s Seen) Gone(request types.UID, group, name string) {
	if p := s[request][machine{group, name}]; p != nil {
		p.gone = true
	}
}

// Of returns all machines seen for the request, in order.
func (s Seen) Of(request types.UID) (made []Machine) {
	for _, p := range s[request] {
		made = append(made, p.made...)
	}
	slices.SortFunc(made, func(a, b Machine) int { return cmp.Compare(a.Mark, b.Mark) })
	return made
}

// Forget forgets the machines of requests that are over.
func (s Seen) Forget(over func(types.UID) bool) {
	maps.DeleteFunc(s, func(request types.UID, _ map[machine]*purchase) bool { return over(request) })
}

// Carried has the purchases for the deleted requests of a Workload, by the UID of the Workload: each of its attempts to get capacity has
// its own request.
type Carried map[types.UID]carried

type carried struct {
	record Record
	at     time.Time
}

// carriedFor is how long the purchases of a deleted request count for the next one of its Workload.
const carriedFor = 24 * time.Hour

// Of returns the purchases for a Workload.
func (c Carried) Of(workload types.UID) Record { return c[workload].record }

// End takes over the record of a deleted request, with the machines that were seen of it. If its gang ran, nothing is carried over.
func (c Carried) End(workload types.UID, record Record, made []Machine, ran bool, now time.Time) {
	record = cmp.Or(record, c.Of(workload)).With(made)
	delete(c, workload)
	if record.Bought() > 0 && !ran && workload != "" {
		c[workload] = carried{record, now}
	}
}

// Forget forgets the purchases that no request was made after.
func (c Carried) Forget(now time.Time) {
	maps.DeleteFunc(c, func(_ types.UID, o carried) bool { return now.Sub(o.at) > carriedFor })
}
