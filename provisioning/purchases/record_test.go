package purchases

import (
	"fmt"
	"testing"
	"time"
)

// TestTheRecordFits into a value of provisioningClassDetails, and counts on when it is full.
func TestTheRecordFits(t *testing.T) {
	var p Record
	var marks []string
	for i := range 20_000 {
		marks = append(marks, Mark("gpu", fmt.Sprint("i-", i), time.Time{}))
	}
	p = p.With(marks).With(marks[15_000:])
	if got := p.Bought(); got < 19_900 || got > 20_000 { // marks are short: a few machines share one
		t.Errorf("%d machines are counted", got)
	}
	if n := len(p.Encode()); n > 32_768 {
		t.Errorf("the record has %d characters", n)
	}
}
