package main

import (
	"testing"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/test/reference"
)

func TestTheReferenceOfCommandsIsTrue(t *testing.T) {
	reference.Check(t, newRootCommand(clock.RealClock{}), "../../docs/commands/kubectl-muster.md",
		"./cmd/kubectl-muster -run TestTheReferenceOfCommandsIsTrue")
}
