package cache_test

import (
	"testing"

	"github.com/muster-dev/muster/test/queues"
)

func TestScenarios(t *testing.T) { queues.RunScenarios(t) }
