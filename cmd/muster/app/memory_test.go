package app

import (
	"math"
	"runtime/debug"
	"testing"
	"testing/fstest"
)

func TestTheCollectorHasTheLimitOfTheContainer(t *testing.T) {
	for name, tt := range map[string]struct {
		max  string
		env  map[string]string
		want int64
		gc   int
	}{
		"a limit":                 {"1000000\n", nil, 900000, gcPercent},
		"no limit":                {"max\n", nil, math.MaxInt64, gcPercent},
		"no control group":        {"", nil, math.MaxInt64, gcPercent},
		"the environment says so": {"1000000\n", map[string]string{"GOMEMLIMIT": "1GiB", "GOGC": "100"}, math.MaxInt64, 100},
	} {
		t.Run(name, func(t *testing.T) {
			gc := debug.SetGCPercent(100)
			limit := debug.SetMemoryLimit(math.MaxInt64)
			defer func() { debug.SetGCPercent(gc); debug.SetMemoryLimit(limit) }()
			files := fstest.MapFS{}
			if tt.max != "" {
				files["memory.max"] = &fstest.MapFile{Data: []byte(tt.max)}
			}
			limitMemory(files, func(name string) string { return tt.env[name] })
			if got := debug.SetMemoryLimit(-1); got != tt.want {
				t.Errorf("the limit is %d, want %d", got, tt.want)
			}
			if got := debug.SetGCPercent(100); got != tt.gc {
				t.Errorf("the collector's percentage is %d, want %d", got, tt.gc)
			}
		})
	}
}
