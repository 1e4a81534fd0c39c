package cache

// DirtyStatuses are the objects whose status may be outdated.
type DirtyStatuses struct {
	ClusterQueues map[*ClusterQueue]bool
	LocalQueues   map[*LocalQueue]bool
	Checks        bool
	// Trees: cohorts may have been added, deleted or moved.
	Trees bool
}

func NewDirtyStatuses() DirtyStatuses {
	return DirtyStatuses{ClusterQueues: map[*ClusterQueue]bool{}, LocalQueues: map[*LocalQueue]bool{}}
}

func (t *DirtyStatuses) add(w *Workload) {
	if w.Queue != nil {
		t.ClusterQueues[w.Queue] = true
	}
	if w.Local != nil {
		t.LocalQueues[w.Local] = true
	}
}
