package cache

// BlocksAdmission reports whether Workloads wait while pods of an admitted Workload are not ready.
func (s *Settings) BlocksAdmission() bool {
	c := s.Config.WaitForPodsReady
	return c != nil && c.BlockAdmission != nil && *c.BlockAdmission
}

// podsReady removes a Workload from PodsNotReady. Once none is left, the blocked Workloads are evaluated.
func (s *Cache) podsReady(w *Workload) {
	if s.PodsNotReady[w.Object.UID] == nil {
		return
	}
	delete(s.PodsNotReady, w.Object.UID)
	if len(s.PodsNotReady) == 0 && s.BlocksAdmission() {
		for _, t := range s.Trees {
			t.QuotaReleased = true
		}
	}
}
