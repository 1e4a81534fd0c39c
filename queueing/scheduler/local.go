package scheduler

import (
	"github.com/muster-dev/muster/queueing/cache"
)

// localLine are Workloads of one LocalQueue, in their order.
type localLine struct {
	local *cache.LocalQueue
	rest  []*cache.Workload
}

// localLinesOf divides Workloads by LocalQueue.
func localLinesOf(list []*cache.Workload) []*localLine {
	var out []*localLine
	of := map[*cache.LocalQueue]*localLine{}
	for _, w := range list {
		if of[w.Local] == nil {
			of[w.Local] = &localLine{local: w.Local}
			out = append(out, of[w.Local])
		}
		of[w.Local].rest = append(of[w.Local].rest, w)
	}
	return out
}

// before says that the first of a lot comes before that of another one.
func (a *localLine) before(b *localLine) bool {
	if a.local.Usage != b.local.Usage {
		return a.local.Usage < b.local.Usage
	}
	return cache.Less(a.rest[0], b.rest[0])
}
