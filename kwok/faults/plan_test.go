package faults

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/muster-dev/muster/kwok/cluster"
)

func decode(t *testing.T, text string) *Plan {
	t.Helper()
	p := &Plan{}
	if err := yaml.UnmarshalStrict([]byte(text), p); err != nil {
		t.Fatal(err)
	}
	return p
}

// all is a sandbox in which everything runs.
var all = Reach{Components: cluster.ComponentNames()}

func TestAFaultComesOnlyToWhatThereIs(t *testing.T) {
	some := Reach{Components: []string{"etcd", "muster"}, Resources: []string{"nodes", "nodes/status"}}
	for name, tc := range map[string]struct{ plan, want string }{
		"a component that runs":              {`faults: [{type: Kill, target: etcd}]`, ""},
		"a component that does not run":      {`faults: [{type: Kill, target: dashboard}]`, `faults[0].target: Unsupported value: "dashboard": supported values: "etcd", "muster"`},
		"requests of a muster that runs not": {`faults: [{type: CutWatches, target: muster-standby}]`, `faults[0].target: Unsupported value: "muster-standby": supported values: "muster"`},
		"what is asked for":                  {`faults: [{type: CutWatches, target: muster, resources: [nodes]}]`, ""},
		"what nobody asks for":               {`faults: [{type: CutWatches, target: muster, resources: [nodes, node]}]`, `faults[0].resources[1]: Unsupported value: "node": supported values: "nodes", "nodes/status"`},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := decode(t, tc.plan).Validate(nil, some).ToAggregate(); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("told %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPlansThatCannotBeMeantAreRefusedByField(t *testing.T) {
	for name, tc := range map[string]struct{ plan, want string }{
		"nothing goes wrong":            {`{}`, "faults: Required"},
		"no such type":                  {`faults: [{type: Explode, target: muster}]`, `faults[0].type: Unsupported value: "Explode": supported values: "CutWatches"`},
		"no such component":             {`faults: [{type: Kill, target: kubelet}]`, `faults[0].target: Unsupported value: "kubelet"`},
		"requests of who has no gate":   {`faults: [{type: CutWatches, target: kwok}]`, `faults[0].target: Unsupported value: "kwok": supported values: "muster", "muster-standby"`},
		"frozen for ever":               {`faults: [{type: Freeze, target: etcd}]`, "faults[0].for: Required value: type Freeze needs it"},
		"dead for a while":              {`faults: [{type: Kill, target: etcd, for: 1s}]`, `faults[0].for: Invalid value: "1s": type Kill does not take it`},
		"before the beginning":          {`faults: [{type: Kill, target: etcd, at: -1s}]`, `faults[0].at: Invalid value: "-1s": must not be negative`},
		"without a pause":               {`faults: [{type: Kill, target: etcd, every: 999ms}]`, `faults[0].every: Invalid value: "999ms": is too short to recover in between; give 1s or more`},
		"later than can be added up":    {`faults: [{type: Kill, target: etcd, jitter: 8761h}]`, `faults[0].jitter: Invalid value: "8761h0m0s": is longer than a year`},
		"a delay of nothing":            {`faults: [{type: DelayEvents, target: muster, for: 1s}]`, "faults[0].delay: Required"},
		"refused without a code":        {`faults: [{type: Refuse, target: muster, for: 1s}]`, "faults[0].code: Invalid value: 0: must be one of [409 429 500 503 504]"},
		"a code of what is not refused": {`faults: [{type: Disconnect, target: muster, for: 1s, code: 409}]`, "faults[0].code: Invalid value: 409: type Disconnect does not take it"},
		"when to try again a conflict":  {`faults: [{type: Refuse, target: muster, for: 1s, code: 409, retryAfter: 1s}]`, `faults[0].retryAfter: Invalid value: "1s"`},
		"more than all":                 {`faults: [{type: LoseAnswers, target: muster, for: 1s, percent: 101}]`, "faults[0].percent: Invalid value: 101: must be from 1 to 100"},
		"a part of a death":             {`faults: [{type: Kill, target: muster, percent: 50}]`, "faults[0].percent: Invalid value: 50: type Kill does not take it"},
		"requests of a process":         {`faults: [{type: Kill, target: muster, resources: [nodes]}]`, "faults[0].verbs: Invalid value"},
		"a verb of HTTP":                {`faults: [{type: CutWatches, target: muster}, {type: LoseAnswers, target: muster, for: 1s, verbs: [POST]}]`, `faults[1].verbs[0]: Unsupported value: "POST"`},
	} {
		t.Run(name, func(t *testing.T) {
			err := decode(t, tc.plan).Validate(nil, all).ToAggregate()
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("the plan is refused with %v, want %q", err, tc.want)
			}
		})
	}
}

const everything = `
seed: 7
faults:
- {type: Kill, target: muster, at: 10s, every: 20s, jitter: 10s}
- {type: Freeze, target: kube-apiserver, at: 5s, for: 2s}
- {type: CutWatches, target: muster, every: 7s, resources: [nodes]}
- {type: Refuse, target: muster-standby, at: 1s, for: 3s, percent: 10, code: 429, retryAfter: 1s, verbs: [patch]}
- {type: DelayEvents, target: muster, at: 5s, for: 1s, delay: 300ms}
`

func TestAPlanComesTheSameForTheSameSeed(t *testing.T) {
	p := decode(t, everything)
	if err := p.Validate(nil, all).ToAggregate(); err != nil {
		t.Fatal(err)
	}
	coming := p.Occurrences(time.Minute)
	if diff := cmp.Diff(coming, decode(t, everything).Occurrences(time.Minute)); diff != "" {
		t.Errorf("the second time it is another (-first +second):\n%s", diff)
	}
	p.Seed++
	other := p.Occurrences(time.Minute)
	times := map[Type]int{}
	last, differ := time.Duration(0), false
	for i, o := range coming {
		times[o.Type]++
		if o.Begins < last || o.Begins >= time.Minute {
			t.Errorf("%s comes after %s, behind what comes after %s", o, o.Begins, last)
		}
		last = o.Begins
		differ = differ || i >= len(other) || o.Begins != other[i].Begins
	}
	if !differ {
		t.Error("another seed gives the same times")
	}
	if diff := cmp.Diff(map[Type]int{Kill: 3, Freeze: 1, CutWatches: 9, Refuse: 1, DelayEvents: 1}, times); diff != "" {
		t.Errorf("how often each comes (-want +got):\n%s", diff)
	}
}

func TestAFaultComesNoEarlierThanItsTimeAndNoLaterThanItsJitter(t *testing.T) {
	p := &Plan{Faults: []Fault{{Type: Kill, Target: "muster", At: after(3), Every: after(10), Jitter: after(4)}}}
	for i, o := range p.Occurrences(time.Hour) {
		if early := 3*time.Second + time.Duration(i)*10*time.Second; o.Begins < early || o.Begins > early+4*time.Second {
			t.Errorf("occurrence %d comes after %s, want it between %s and 4s later", i, o.Begins, early)
		}
	}
}

func TestNothingBeginsAfterTheEnd(t *testing.T) {
	for seed := range uint64(100) {
		p := &Plan{Seed: seed, Faults: []Fault{{Type: Kill, Target: "muster", At: after(3), Jitter: after(4)}}}
		for _, o := range p.Occurrences(5 * time.Second) {
			if o.Begins >= 5*time.Second {
				t.Errorf("with seed %d it comes after %s, which is over by then", seed, o.Begins)
			}
		}
	}
}

func after(seconds int) metav1.Duration {
	return metav1.Duration{Duration: time.Duration(seconds) * time.Second}
}
