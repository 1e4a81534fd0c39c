package calls

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// patience is how long a launch waits for others into its group. They may take long while the cloud does not answer, and the caller
// has other launches to make.
const patience = 20 * time.Second

// Turns lets one launch at a time into each group.
type Turns struct {
	// taken are of chan struct{} by group: while one is full, a launch is under way.
	taken sync.Map
}

// Take waits until no other launch into the group is under way, but not for long.
func (t *Turns) Take(ctx context.Context, group string) (release func(), err error) {
	v, _ := t.taken.LoadOrStore(group, make(chan struct{}, 1))
	turn := v.(chan struct{})
	wait := time.NewTimer(patience)
	defer wait.Stop()
	select {
	case turn <- struct{}{}:
		return func() { <-turn }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-wait.C:
		return nil, fmt.Errorf("other launches into %s are still under way", group)
	}
}
