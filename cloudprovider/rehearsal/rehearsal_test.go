package rehearsal

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// cloud is one whose machines run at once, unless something is wrong.
type cloud struct {
	slow time.Duration // of a launch

	mu      sync.Mutex
	alive   map[string]cloudprovider.Machine
	observe func(cloudprovider.Machine)

	refusal error
	// boots: its machines never run. keeps: it accepts to terminate and does not. missing permissions.
	boots, keeps bool
	missing      []string
	// unlisted: its lists fail.
	unlisted bool
	lists    time.Duration
}

func (c *cloud) Launch(_ context.Context, r cloudprovider.LaunchRequest) (out []cloudprovider.Machine, _ error) {
	<-time.After(c.slow)
	if c.refusal != nil {
		return nil, c.refusal
	}
	for i := range r.Count {
		m := cloudprovider.Machine{Name: fmt.Sprint("m-", i), ProviderID: fmt.Sprint("id-", i), Launch: r.Token, State: cloudprovider.Running}
		if c.boots {
			m.State = cloudprovider.Booting
		}
		c.mu.Lock()
		c.alive[m.Name] = m
		c.mu.Unlock()
		out = append(out, m)
	}
	return out, nil
}

func (c *cloud) Terminate(_ context.Context, _ string, names []string) error {
	for _, name := range names {
		c.mu.Lock()
		m := c.alive[name]
		if !c.keeps {
			delete(c.alive, name)
		}
		c.mu.Unlock()
		if !c.keeps {
			m.State = cloudprovider.Gone
			c.observe(m)
		}
	}
	return nil
}

func (c *cloud) Watch(ctx context.Context, observe func(cloudprovider.Machine), synced func()) error {
	c.mu.Lock()
	c.observe = observe
	c.mu.Unlock()
	synced()
	<-ctx.Done()
	return nil
}

// ListedAt implements cloudprovider.Lister: each time is later than the last, unless lists fail.
func (c *cloud) ListedAt(*v1alpha1.NodeGroup) time.Time {
	if !c.unlisted {
		c.lists++
	}
	return time.Unix(0, int64(c.lists))
}

func (c *cloud) MissingPermissions(context.Context) ([]string, error) { return c.missing, nil }

func (c *cloud) Discover(context.Context) (cloudprovider.Discovery, error) {
	return cloudprovider.Discovery{}, errors.New("no answer")
}

func TestRun(t *testing.T) {
	refusal := &cloudprovider.Error{Class: v1alpha1.Quota, Code: "VcpuLimitExceeded"}
	for _, tc := range []struct {
		name  string
		cloud *cloud
		nodes map[string]bool
		want  []string // parts of the error; none for success
		left  int
	}{
		{name: "all goes well", cloud: &cloud{}, nodes: map[string]bool{"id-0": true, "id-1": true}},
		{name: "the cloud answers late", cloud: &cloud{slow: time.Minute}, nodes: map[string]bool{"id-0": true, "id-1": true}},
		{name: "the cloud refuses", cloud: &cloud{refusal: refusal}, want: []string{"launch: VcpuLimitExceeded"}},
		{name: "machines do not run", cloud: &cloud{boots: true}, want: []string{"run: not within 1m0s"}},
		{name: "a node does not join", cloud: &cloud{}, nodes: map[string]bool{"id-0": true}, want: []string{"join: not within 1m0s"}},
		{name: "machines stay", cloud: &cloud{keeps: true}, nodes: map[string]bool{"id-0": true, "id-1": true}, left: 2,
			want: []string{"terminate: left after 3m0s, TERMINATE THEM YOURSELF: [m-0 m-1]"}},
		{name: "lists fail, so that nothing is proved", cloud: &cloud{unlisted: true}, nodes: map[string]bool{"id-0": true, "id-1": true},
			want: []string{"terminate: the cloud has not listed", "look for machines of launch t yourself"}},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := tc.cloud
			c.alive = map[string]cloudprovider.Machine{}
			var steps []string
			took := map[string]time.Duration{}
			l := Launch{
				Group: &v1alpha1.NodeGroup{ObjectMeta: metav1.ObjectMeta{Name: "gpu"}}, Machines: 2, Token: "t", Patience: time.Minute,
				Nodes:  func(context.Context) (map[string]bool, error) { return tc.nodes, nil },
				Clock:  clock.RealClock{},
				Report: func(s Step) { steps, took[s.Name] = append(steps, s.Name), s.Took },
			}
			err := l.Run(t.Context(), c)
			if (err == nil) != (len(tc.want) == 0) {
				t.Errorf("%s: the error is %v", tc.name, err)
			}
			for _, part := range tc.want {
				if err != nil && !strings.Contains(err.Error(), part) {
					t.Errorf("%s: the error is %q, which does not say %q", tc.name, err, part)
				}
			}
			if took["launch"] < c.slow {
				t.Errorf("%s: the launch is said to have taken %s, and took %s", tc.name, took["launch"], c.slow)
			}
			if len(c.alive) != tc.left || steps[len(steps)-1] != "terminate" {
				t.Errorf("%s: %d machines are left, want %d; the steps were %v", tc.name, len(c.alive), tc.left, steps)
			}
		})
	}
}

func TestExamine(t *testing.T) {
	c := Examine(t.Context(), &cloud{missing: []string{"ec2:CreateFleet"}})
	if c.Sound() || !c.Examined || len(c.Missing) != 1 || len(c.Failed) != 1 {
		t.Errorf("the check is %+v", c)
	}
}

// TestAQuotaThatAllowsNoMachine of a group is wrong, one that does not allow all of them is only reported.
func TestAQuotaThatAllowsNoMachine(t *testing.T) {
	for _, tc := range []struct {
		limit int64
		want  bool
	}{{-1, true}, {0, false}, {191, false}, {192, true}, {100_000, true}} {
		c := Check{Quotas: []cloudprovider.Quota{{Limit: tc.limit, Needs: []cloudprovider.QuotaNeed{{Group: "gpu", Each: 192, Machines: 4},
			{Group: "closed", Each: 1000}}}}}
		if c.Sound() != tc.want {
			t.Errorf("with a limit of %d the account is sound: %t, want %t", tc.limit, c.Sound(), tc.want)
		}
	}
}
