package main

import (
	"testing"

	"github.com/muster-dev/muster/test/reference"
)

func TestTheReferenceOfCommandsIsTrue(t *testing.T) {
	reference.Check(t, newRootCommand(), "../../docs/commands/muster-sandbox.md",
		"./cmd/muster-sandbox -run TestTheReferenceOfCommandsIsTrue")
}
