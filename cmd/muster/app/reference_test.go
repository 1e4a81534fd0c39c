package app

import (
	"testing"

	"github.com/muster-dev/muster/test/reference"
)

func TestTheReferenceOfCommandsIsTrue(t *testing.T) {
	reference.Check(t, NewCommand(nil), "../../../docs/commands/muster.md", "./cmd/muster/app -run TestTheReferenceOfCommandsIsTrue")
}
