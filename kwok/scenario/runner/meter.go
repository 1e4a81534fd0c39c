package runner

import (
	"context"

	"github.com/muster-dev/muster/kwok/cluster"
)

// meter adds up what components count of themselves, over their deaths.
type meter struct {
	cluster *cluster.Cluster
	last    counts
	total   counts
}

func newMeter(ctx context.Context, c *cluster.Cluster) (*meter, error) {
	last, err := count(ctx, c, newCounts())
	return &meter{cluster: c, last: last, total: newCounts()}, err
}

// read adds what was counted since by the components that answer.
func (m *meter) read(ctx context.Context) error {
	now, err := count(ctx, m.cluster, m.last)
	m.total.add(now.minus(m.last))
	m.last = now
	return err
}

// dies reads before a component begins to count from zero.
func (m *meter) dies(ctx context.Context, component string) {
	_ = m.read(ctx)
	m.last.forget(component)
}

// close reads for the last time, once all are there that a fault may have come to.
func (m *meter) close(ctx context.Context) error {
	for _, component := range m.cluster.State().Components {
		if err := m.cluster.WaitReady(ctx, component.Name); err != nil {
			return err
		}
	}
	return m.read(ctx)
}
