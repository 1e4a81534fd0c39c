package sandbox

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/kwok/cloudsim/server"
)

func TestTheCloudsOfASandboxAreThoseOfTheSimulator(t *testing.T) {
	c, err := server.Read(clouds)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := server.New(c, clock.RealClock{}); err != nil {
		t.Fatal(err)
	}
}
