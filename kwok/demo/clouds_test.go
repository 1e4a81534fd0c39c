package demo

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/kwok/cloudsim/server"
)

func TestTheCloudsOfTheStoriesAreThoseOfTheSimulator(t *testing.T) {
	c, err := server.Read(Clouds)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(c, clock.RealClock{}); err != nil {
		t.Fatal(err)
	}
}
