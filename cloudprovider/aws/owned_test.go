package aws

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/cloudprovider/aws/api"
	"github.com/muster-dev/muster/cloudprovider/aws/inventory"
	"github.com/muster-dev/muster/kwok/cloudsim"
	simaws "github.com/muster-dev/muster/kwok/cloudsim/aws"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// ownedGroup is a simulated AWS with a group that is launched by LaunchInstances.
func ownedGroup(t *testing.T, world cloudsim.Config, change ...func(*simaws.Config)) (*sim, *v1alpha1.NodeGroup) {
	t.Helper()
	s := newSim(t, world, account(change...))
	g := nodeGroup(v1alpha1.AWSLaunchInstances, v1alpha1.OnDemand)
	s.groups = []*v1alpha1.NodeGroup{g}
	return s, g
}

// refuseTags has the next calls refused that tag machines.
func (s *sim) refuseTags(code string, calls int) {
	s.world.HitNext(cloudsim.CallFault{
		Cloud: v1alpha1.ProviderAWS, Action: "CreateTags", Type: cloudsim.CallRefused,
		Error: &cloudsim.Error{Status: 400, Code: code, Message: "The instance ID does not exist"},
	}, calls)
}

// listedAs counts what a process lists, by what it is.
func listedAs(list []cloudprovider.Machine) map[string]int {
	out := map[string]int{}
	for _, m := range list {
		switch {
		case m.State >= cloudprovider.Terminated:
		case m.Hold:
			out["hold"]++
		case m.Unattributed:
			out["unattributed"]++
		case m.Launch != "":
			out["launched"]++
		default:
			out["the group's own"]++
		}
	}
	return out
}

func wantListed(t *testing.T, what string, p *Provider, s *sim, want map[string]int) {
	t.Helper()
	if diff := cmp.Diff(want, listedAs(s.listed(p))); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// A machine that was made a moment ago is not known everywhere, and CreateTags is throttled like other calls: the tags are tried again
// inside the call.
func TestTagsAreTriedAgainInsideTheCall(t *testing.T) {
	for _, code := range []string{"InvalidInstanceID.NotFound", "RequestLimitExceeded"} {
		t.Run(code, func(t *testing.T) {
			s, g := ownedGroup(t, plenty())
			s.refuseTags(code, api.TagTries-1)
			p := s.provider()
			if machines := s.launched(p, g, 4); len(machines) != 4 {
				t.Errorf("got %d machines, want 4", len(machines))
			}
			wantListed(t, "after the call", p, s, map[string]int{"launched": 4})
		})
	}
}

// A call whose machines cannot be tagged is repeated soon: it returns no machines, with which it would look complete. Meanwhile the
// machines are held, also by a process that has just begun.
func TestALaunchIsNotThroughBeforeItsMachinesAreTagged(t *testing.T) {
	s, g := ownedGroup(t, plenty())
	s.refuseTags("InvalidInstanceID.NotFound", api.TagTries)
	p := s.provider()
	machines, err := p.Launch(t.Context(), request(g, 4, token))
	if err == nil || cloudprovider.Refusal(err) != nil || len(machines) > 0 || s.live() != 4 {
		t.Fatalf("got %v and %v, and %d machines are alive: want an error without machines, and 4", machines, err, s.live())
	}
	s.clock.Step(2 * time.Minute)
	for _, p := range []*Provider{p, s.provider()} {
		wantListed(t, "before the machines are tagged", p, s, map[string]int{"hold": 1, "unattributed": 4})
	}
	if machines := s.launched(s.provider(), g, 4); len(machines) != 4 {
		t.Errorf("got %d machines, want 4", len(machines))
	}
	wantListed(t, "after that", p, s, map[string]int{"launched": 4})
	if s.live() != 4 {
		t.Errorf("%d machines are alive, want 4", s.live())
	}
}

// network calls a function after each response.
type network func(call string)

func (n network) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	out, err := http.DefaultTransport.RoundTrip(r)
	call, _ := url.ParseQuery(string(body))
	n(call.Get("Action"))
	return out, err
}

// A list takes several calls. Machines that get their tags between two of them are in neither the list of tagged machines nor among
// those without tags. They would be reported as gone, and the launch would count as failed.
func TestMachinesThatAreTaggedDuringAListAreInIt(t *testing.T) {
	s, g := ownedGroup(t, plenty())
	s.refuseTags("InvalidInstanceID.NotFound", api.TagTries)
	if _, err := s.provider().Launch(t.Context(), request(g, 4, token)); err == nil {
		t.Fatal("the launch is through")
	}
	s.clock.Step(2 * time.Minute)
	tag := sync.OnceFunc(func() { s.launched(s.provider(), g, 4) })
	p := s.providerWith(func(c *Config) {
		c.Transport = network(func(call string) {
			if call == "DescribeInstances" {
				tag()
			}
		})
	})
	wantListed(t, "while they are tagged", p, s, map[string]int{"hold": 1, "launched": 4})
	wantListed(t, "after that", p, s, map[string]int{"launched": 4})
}

// The intent stays until lists show the tags, and is ended by a list of the process that acts: without it a process that has just begun
// would take the machines for the group's own, and a repeated call that fills the group would be refused.
func TestAnIntentOutlastsTheLagOfTags(t *testing.T) {
	s, g := ownedGroup(t, plenty(tagLag(time.Minute)), func(c *simaws.Config) { c.Groups[0].Max = 4 })
	p := s.provider()
	s.launched(p, g, 4)
	standby := s.providerThat(func() error { return fmt.Errorf("another process acts") })
	for _, p := range []*Provider{p, s.provider(), standby} {
		wantListed(t, "before the tags are shown", p, s, map[string]int{"hold": 1, "unattributed": 4})
	}
	next := s.provider()
	if machines, err := next.Launch(t.Context(), request(g, 4, token)); err != nil || len(machines) != 4 {
		t.Errorf("the next process gets %v and %v, want the 4 machines", machines, err)
	}
	s.clock.Step(time.Minute)
	for _, p := range []*Provider{standby, next} {
		wantListed(t, "once they are", p, s, map[string]int{"launched": 4})
	}
	if n := s.world.Calls(v1alpha1.ProviderAWS)["DeleteTags"]; n != 1 {
		t.Errorf("the intent was dropped %d times, want once, by the process that acts", n)
	}
}

// A machine that the group launches by itself while an intent is on it may be of the intent. It is listed on, and is the group's own
// again once the intent has ended.
func TestTheGroupsOwnMachinesDuringALaunch(t *testing.T) {
	s, g := ownedGroup(t, plenty())
	p := s.provider()
	s.front.Grow(group, 1)
	wantListed(t, "a machine that is younger than any list of intents", p, s, map[string]int{"unattributed": 1})
	s.clock.Step(inventory.Skew)
	wantListed(t, "an older one", p, s, map[string]int{"the group's own": 1})
	s.front.Grow(group, 1)
	s.refuseTags("InvalidInstanceID.NotFound", api.TagTries)
	if _, err := p.Launch(t.Context(), request(g, 2, token)); err == nil {
		t.Fatal("the launch is through")
	}
	s.clock.Step(time.Hour)
	wantListed(t, "during the launch", p, s, map[string]int{"hold": 1, "the group's own": 1, "unattributed": 3})
	s.launched(p, g, 2)
	wantListed(t, "after it", p, s, map[string]int{"launched": 2, "the group's own": 2})
}

// The end of an intent terminates what its call has made, except for machines that run pods or are booked: those are tagged, and listed
// under their launch.
func TestTheEndOfAnIntentSparesWhatIsInUse(t *testing.T) {
	for name, lag := range map[string]time.Duration{"tags are shown at once": 0, "tags are shown late": time.Minute} {
		for used := range 3 {
			t.Run(fmt.Sprintf("%s, %d in use", name, used), func(t *testing.T) {
				s, g := ownedGroup(t, plenty(tagLag(lag)))
				s.refuseTags("InvalidInstanceID.NotFound", api.TagTries)
				if _, err := s.provider().Launch(t.Context(), request(g, 2, token)); err == nil {
					t.Fatal("the launch is through")
				}
				var inUse []string
				p := s.providerWith(func(c *Config) {
					c.InUse = func(_ context.Context, machines []cloudprovider.Machine) (map[string]bool, error) {
						out := map[string]bool{}
						for _, m := range machines[:used] {
							if m.Launch != token || m.Group != g.Name || !strings.HasPrefix(m.ProviderID, "aws:///"+zone+"/i-") {
								t.Errorf("the machine in question is %+v", m)
							}
							out[m.Name] = true
							inUse = append(inUse, m.Name)
						}
						return out, nil
					}
				})
				for range 3 {
					if holds := held(s.listed(p)); len(holds) > 0 {
						if err := p.Terminate(t.Context(), g.Name, holds); err != nil {
							t.Fatal(err)
						}
					}
					s.clock.Step(time.Minute)
				}
				if s.live() != used || s.alive()[token] != used {
					t.Errorf("alive are %v, want %d that bear the launch", s.alive(), used)
				}
				for _, m := range s.listed(s.provider()) {
					if m.State < cloudprovider.Terminated && (m.Launch != token || !slices.Contains(inUse, m.Name)) {
						t.Errorf("%+v is listed, want the machines in use under their launch", m)
					}
				}
			})
		}
	}
}

// Where the caller may not tag, the machines of a launch that was given up go all the same, and so does the intent.
func TestAnIntentEndsWithoutTags(t *testing.T) {
	s, g := ownedGroup(t, plenty(), func(c *simaws.Config) { c.Denied = []string{"ec2:CreateTags"} })
	p := s.provider()
	if _, err := p.Launch(t.Context(), request(g, 2, token)); err == nil || s.live() != 2 {
		t.Fatalf("got %v, and %d machines are alive", err, s.live())
	}
	if n := s.world.Calls(v1alpha1.ProviderAWS)["CreateTags"]; n != 1 {
		t.Errorf("a denial was tried %d times, want once", n)
	}
	if err := p.Terminate(t.Context(), g.Name, held(s.listed(p))); err != nil || s.live() > 0 {
		t.Errorf("got %v, and %d machines are alive", err, s.live())
	}
	wantListed(t, "after the termination", p, s, map[string]int{})
}

// Machines that EC2 does not list yet have not gone: the intent stays until they are listed, so that nothing of the call is left behind.
func TestMachinesThatAreNotListedYetHaveNotGone(t *testing.T) {
	s, g := ownedGroup(t, plenty(lag(5*time.Minute)))
	s.refuseTags("InvalidInstanceID.NotFound", api.TagTries)
	if _, err := s.provider().Launch(t.Context(), request(g, 2, token)); err == nil {
		t.Fatal("the launch is through")
	}
	p := s.provider()
	holds := held(s.listed(p))
	s.world.IgnoreTerminations(2)
	if err := p.Terminate(t.Context(), g.Name, holds); err == nil {
		t.Error("the hold is terminated while its machines are not listed yet")
	}
	if got := held(s.listed(p)); !slices.Equal(got, holds) {
		t.Errorf("the holds are %v, want %v", got, holds)
	}
	for range 8 {
		s.clock.Step(time.Minute)
		_ = p.Terminate(t.Context(), g.Name, held(s.listed(p))) // it is repeated until the machines are listed
	}
	if s.live() > 0 {
		t.Errorf("%d machines are alive", s.live())
	}
	wantListed(t, "in the end", p, s, map[string]int{})
}

// The clock of Muster may be wrong: what a call may have made is found by the times of AWS.
func TestAClockThatIsWrong(t *testing.T) {
	for _, ahead := range []time.Duration{10 * time.Minute, -10 * time.Minute} {
		t.Run(ahead.String(), func(t *testing.T) {
			s, g := ownedGroup(t, plenty())
			handler := s.server.Config.Handler
			s.server.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Date", time.Now().Add(-ahead).UTC().Format(http.TimeFormat))
				handler.ServeHTTP(w, r)
			})
			s.front.Grow(group, 1)
			s.clock.Step(time.Hour)
			wrong := func() *Provider {
				return s.providerWith(func(c *Config) { c.Clock = clocktesting.NewFakeClock(s.clock.Now().Add(ahead)) })
			}
			p := wrong()
			s.refuseTags("InvalidInstanceID.NotFound", api.TagTries)
			if _, err := p.Launch(t.Context(), request(g, 2, token)); err == nil {
				t.Fatal("the launch is through")
			}
			for name, p := range map[string]*Provider{"the process": p, "the next": wrong()} {
				wantListed(t, name, p, s, map[string]int{"hold": 1, "unattributed": 2, "the group's own": 1})
			}
			if machines := s.launched(wrong(), g, 2); len(machines) != 2 || s.live() != 3 {
				t.Errorf("got %d machines, %d are alive", len(machines), s.live())
			}
		})
	}
}
