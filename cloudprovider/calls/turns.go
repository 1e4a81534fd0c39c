package calls

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// timeout is how long a launch waits for others into its group. They may take long while the cloud does not respond, and the caller has
// other launches to make.
const timeout = 20 * time.Second

// Turns lets one launch at a time into each group.
type Turns struct {
	// taken has a chan struct{} by group. While it is full, a launch is in flight.
	taken sync.Map
}

// Take waits for a short time until no other launch into the group is in flight.
func (t *Turns) Take(ctx context.Context, group string) (release func(), err error) {
	v, _ := t.taken.LoadOrStore(group, make(chan struct{}, 1))
	turn := v.(chan struct{})
	wait := time.NewTimer(timeout)
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
