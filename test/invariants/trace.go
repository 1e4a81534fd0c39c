package invariants

import (
	"fmt"
	"time"

	"github.com/muster-dev/muster/test/invariants/promises"
)

// longestTrace is how many versions a trace has: those of some minutes in a cluster that is busy.
const longestTrace = 5000

// trace is a ring of the last versions that a merger has fed to its Checker.
type trace struct {
	ring []entry
	next int
}

// entry is a version without its object, which would keep all of it in memory.
type entry struct {
	time            time.Time
	kind            promises.Kind
	namespace, name string
	revision        uint64
	deleted         bool
}

func (t *trace) add(e promises.Event) {
	one := entry{e.Time, promises.KindOf(e.Object), e.Object.GetNamespace(), e.Object.GetName(), e.Revision, e.Deleted}
	if len(t.ring) < longestTrace {
		t.ring = append(t.ring, one)
		return
	}
	t.ring[t.next] = one
	t.next = (t.next + 1) % longestTrace
}

// lines are the versions, the oldest first.
func (t *trace) lines() (out []string) {
	for i := range t.ring {
		e := t.ring[(t.next+i)%len(t.ring)]
		change := "written"
		if e.deleted {
			change = "deleted"
		}
		out = append(out, fmt.Sprintf("%s revision %d: %s %s/%s %s", e.time.UTC().Format("15:04:05.000"), e.revision, e.kind, e.namespace,
			e.name, change))
	}
	return out
}
