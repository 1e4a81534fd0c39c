package runner

import (
	"context"

	"github.com/muster-dev/muster/kwok/cluster"
)

// meter adds up what components count of themselves, over their deaths.
type meter struct {
	cluster *cluster.Cluster
	// last is what each component had counted when it last answered. One without an entry counts from zero.
	last  map[string]counts
	total counts
}

func newMeter(ctx context.Context, c *cluster.Cluster) (*meter, error) {
	last, err := count(ctx, c)
	return &meter{cluster: c, last: last, total: newCounts()}, err
}

// read adds what was counted since by the components that answer.
func (m *meter) read(ctx context.Context) error {
	now, err := count(ctx, m.cluster)
	m.add(now)
	return err
}

func (m *meter) add(now map[string]counts) {
	for name, c := range now {
		m.total.add(c.minus(m.last[name]))
		m.last[name] = c
	}
}

// dies reads before a component begins to count from zero.
func (m *meter) dies(ctx context.Context, component string) {
	_ = m.read(ctx)
	delete(m.last, component)
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
