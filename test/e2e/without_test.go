package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/test/testbed"
)

// kills is how often muster is killed in each story, at moments spread over the course of a job of about three seconds: its gang is
// launched, boots, joins, is booked, runs and is scaled down. test/simulation kills it at every write.
var kills = flag.Int("kills", 4, "how often muster is killed in each story of a test that kills it")

// recovery is how long muster may take to be back at work once it serves.
const recovery = 5 * time.Second

// The seed is fixed, so that a failure can be reproduced at the same moments.
const seed = 2026

// TestMusterIsAway for moments, in a cluster of its own: nothing is lost, and nothing that
// does without it is in its way.
func TestMusterIsAway(t *testing.T) {
	t.Parallel()
	c := alone(t, "away", withClouds())
	for _, story := range []struct {
		name string
		tell func(*site)
	}{
		{"killed launching", killedLaunching},
		{"killed launching on a cloud", killedLaunchingOnACloud},
		{"killed admitting", killedAdmitting},
		{"paused while a pod comes", pausedWhileAPodComes},
		{"paused while a machine is lost", pausedWhileAMachineIsLost},
	} {
		t.Run(story.name, func(t *testing.T) { story.tell(&site{testbed.NewSite(t, c)}) })
	}
}

// kill kills muster, some time after what the test is about has begun.
func (s *site) kill(after time.Duration) {
	s.Helper()
	<-time.After(after)
	restarts := s.restarts(cluster.Muster)
	s.Watcher.StandStill(time.Now().Add(recovery))
	if err := s.Kill(cluster.Muster); err != nil {
		s.Fatal(err)
	}
	s.standStill(func() bool { return s.restarts(cluster.Muster) > restarts })
}

// standStill holds the bounds until muster serves, which may take long where other clusters start, and a moment more.
// It does not wait for that.
func (s *site) standStill(gone func() bool) {
	var working sync.WaitGroup
	s.Cleanup(working.Wait)
	working.Go(func() {
		for serves := false; !serves && s.Context().Err() == nil; {
			s.Watcher.StandStill(time.Now().Add(recovery))
			ctx, cancel := context.WithTimeout(s.Context(), recovery/5)
			serves = s.WaitReady(ctx, cluster.Muster) == nil && gone()
			if !serves {
				<-ctx.Done()
			}
			cancel()
		}
		s.Watcher.StandStill(time.Now().Add(recovery))
	})
}

// back waits until muster serves.
func (s *site) back() {
	s.Helper()
	if err := s.WaitReady(s.Context(), cluster.Muster); err != nil {
		s.Fatal(err)
	}
}

// paused does what it is given while muster is down.
func (s *site) paused(do func()) {
	s.Helper()
	s.Watcher.StandStill(time.Now().Add(time.Minute))
	if err := s.Pause(cluster.Muster); err != nil {
		s.Fatal(err)
	}
	defer func() {
		if err := s.Resume(cluster.Muster); err != nil {
			s.Error(err)
		}
		s.standStill(func() bool { return true })
	}()
	do()
}

func killedLaunching(s *site) {
	random := rand.New(rand.NewPCG(seed, seed))
	spot := s.Group("-spot", func(g *v1alpha1.NodeGroup) { g.Spec.CapacityType, g.Spec.Kwok.Holds = v1alpha1.Spot, new(int32(3)) })
	steady := s.Group("-steady", nil)
	s.queue(spot, steady)
	step := 3 * time.Second / time.Duration(*kills)
	for i := range *kills {
		after := time.Duration(i)*step + time.Duration(random.Int64N(int64(step)))
		s.Logf("killing muster %s after the job's creation", after)
		j := s.job(fmt.Sprintf("job-%d", i), 4, nil)
		s.kill(after)
		s.complete(j)
		s.Empty(spot.Name, steady.Name)
		s.back()
	}
}
