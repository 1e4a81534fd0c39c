package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/muster-dev/muster/kwok/cluster"
)

// diary notes what is done to processes, and when.
type diary struct {
	began time.Time
	mu    sync.Mutex
	lines []string
	err   error
}

func (d *diary) note(what, component string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%s %s %s", time.Since(d.began), what, component))
	return d.err
}

func (d *diary) Kill(c string) error   { return d.note("kill", c) }
func (d *diary) Freeze(c string) error { return d.note("freeze", c) }
func (d *diary) Thaw(c string) error   { return d.note("thaw", c) }

const rough = `
faults:
- {type: Freeze, target: etcd, at: 1s, for: 5s}
- {type: Kill, target: muster, at: 2s, every: 3s}
- {type: Disconnect, target: muster, at: 3s, for: 1s}
`

func TestAPlanIsPlayedInItsTimes(t *testing.T) {
	for name, tc := range map[string]struct {
		stop time.Duration
		want []string
		took time.Duration
	}{
		"to its end":       {stop: time.Hour, want: []string{"1s freeze etcd", "2s kill muster", "5s kill muster", "6s thaw etcd"}, took: 6 * time.Second},
		"until it is over": {stop: 4 * time.Second, want: []string{"1s freeze etcd", "2s kill muster", "4s thaw etcd"}, took: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.stop)
				defer cancel()
				d, g := &diary{began: time.Now()}, NewGate(1)
				var told []string
				if err := Run(ctx, decode(t, rough), 6*time.Second, d, g, func(o Occurrence) { told = append(told, o.String()) }); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tc.want, d.lines); diff != "" {
					t.Errorf("what was done (-want +got):\n%s", diff)
				}
				if took := time.Since(d.began); took != tc.took {
					t.Errorf("it took %s, want %s", took, tc.took)
				}
				if told[0] != "Freeze etcd for 5s" || len(told) < 3 {
					t.Errorf("told: %q", told)
				}
				if o := send(g, "GET", nodes); o.Code != 200 {
					t.Errorf("a fault is still in force: %+v", o)
				}
			})
		})
	}
}

func TestWhatIsDownAnywayIsLeftAlone(t *testing.T) {
	for err, want := range map[error]string{
		fmt.Errorf("etcd: %w", cluster.ErrNoProcess): "",
		errors.New("no permission"):                  "Freeze etcd for 5s: no permission",
	} {
		synctest.Test(t, func(t *testing.T) {
			got := Run(t.Context(), decode(t, rough), 6*time.Second, &diary{began: time.Now(), err: err}, NewGate(1), nil)
			if want == "" && got != nil || want != "" && (got == nil || !strings.Contains(got.Error(), want)) {
				t.Errorf("processes say %v, the run %v; want %q", err, got, want)
			}
		})
	}
}
