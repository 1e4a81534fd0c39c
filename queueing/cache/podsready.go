package cache

// BlocksAdmission says that nothing is admitted while pods of another Workload are
// not ready.
func (s *Settings) BlocksAdmission() bool {
	c := s.Config.WaitForPodsReady
	return c != nil && c.BlockAdmission != nil && *c.BlockAdmission
}

// podsReady takes a Workload out of those whose pods are awaited. The last one lets all go
// that was held back.
func (s *Cache) podsReady(w *Workload) {
	if s.PodsNotReady[w.Object.UID] == nil {
		return
	}
	delete(s.PodsNotReady, w.Object.UID)
	if len(s.PodsNotReady) == 0 && s.BlocksAdmission() {
		for _, t := range s.Trees {
			t.Released = true
		}
	}
}
