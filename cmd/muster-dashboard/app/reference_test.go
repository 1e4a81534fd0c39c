package app

import (
	"testing"

	"github.com/muster-dev/muster/test/reference"
)

func TestTheReferenceOfCommandsIsTrue(t *testing.T) {
	reference.Check(t, NewCommand(), "../../../docs/commands/muster-dashboard.md",
		"./cmd/muster-dashboard/app -run TestTheReferenceOfCommandsIsTrue")
}
