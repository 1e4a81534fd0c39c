package loop

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/muster-dev/muster/nodegroups"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/nodeset"
	"github.com/muster-dev/muster/provisioning/planner"
	"github.com/muster-dev/muster/queueing/workload"
)

// provider is a provisioner whose group can launch from a time on. No event reports that.
type provider struct {
	advice
	from time.Time
	// taken counts the snapshots.
	taken int
}

func (p *provider) Snapshot(now time.Time) *planner.Snapshot {
	p.taken++
	machine := nodegroups.Resources{corev1.ResourceCPU: 4000, corev1.ResourcePods: 110}
	group := nodegroups.Group{Name: "pool", CapacityType: v1alpha1.OnDemand, Max: 4, Promised: machine, Allocatable: machine}
	if now.Before(p.from) {
		b := v1alpha1.Backoff{Class: v1alpha1.Stockout, AtLeast: 1}
		b.Until.Time = p.from
		group.Backoffs = []v1alpha1.Backoff{b}
	}
	return planner.NewSnapshot(now, nodeset.New(), []nodegroups.Group{group}, nil)
}

// TestMachinesThatTimeBrings are seen when their time comes, in a cluster in which nothing else happens.
func TestMachinesThatTimeBrings(t *testing.T) {
	w := newWorld(t, nil, queueOf("4", capacityRule)...)
	p := &provider{from: start.Add(time.Minute)}
	w.loop.capacity.source = p
	w.create(workloadOf("train", "4"))
	w.run(50 * time.Second)
	if workload.HasQuota(w.workload("train")) {
		t.Fatal("it has quota, and no machine can be had")
	}
	taken := p.taken
	w.run(time.Minute)
	if !workload.HasQuota(w.workload("train")) {
		t.Errorf("machines can be had for a minute, and it waits: %v", w.workload("train").Status.Conditions)
	}
	if more := p.taken - taken; more > 3 {
		t.Errorf("advice was taken %d more times", more)
	}
}

// TestAProvisionerThatComesLater serves the checks that could not be before.
func TestAProvisionerThatComesLater(t *testing.T) {
	w := newWorld(t, nil, append(queueOf("4", capacityRule), workloadOf("train", "4"))...)
	w.loop.state.WithoutProvisioner()
	w.run(5 * time.Second)
	if workload.HasQuota(w.workload("train")) {
		t.Fatal("it has quota, and nothing serves its check")
	}
	w.loop.Join()
	w.run(5 * time.Second)
	if !workload.HasQuota(w.workload("train")) {
		t.Errorf("it waits: %v", w.workload("train").Status.Conditions)
	}
}
