package queueing

// SetBudget sets what a cycle may evaluate, so that tests see how cycles share their work.
func (s *State) SetBudget(n int) { s.budget = n }
