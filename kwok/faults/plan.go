package faults

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/muster-dev/muster/kwok/cluster"
)

// Plan is what goes wrong, and when.
type Plan struct {
	// Seed of all that is random: jitter, and which requests are hit.
	Seed uint64 `json:"seed,omitempty"`
	// Faults each come at their own times; several may be in force at once.
	Faults []Fault `json:"faults"`
}

// Type of a fault.
type Type string

// What can go wrong.
const (
	// Kill ends the target as a crash would. It is started again.
	Kill Type = "Kill"
	// Freeze stops the target where it is, its connections open, for a while.
	Freeze Type = "Freeze"
	// CutWatches ends the watches that are open at the time.
	CutWatches Type = "CutWatches"
	// Refuse answers requests with an error; they have no effect.
	Refuse Type = "Refuse"
	// LoseAnswers lets requests have their effect and cuts the connection in place of
	// an answer.
	LoseAnswers Type = "LoseAnswers"
	// DelayAnswers lets requests have their effect and answers late.
	DelayAnswers Type = "DelayAnswers"
	// DelayEvents delays the events of watches, so that caches are stale.
	DelayEvents Type = "DelayEvents"
	// HoldRequests lets requests wait until the fault is over. They then take effect, unless
	// the client has disconnected.
	HoldRequests Type = "HoldRequests"
	// Disconnect closes all connections of the target, and refuses all its requests.
	Disconnect Type = "Disconnect"
)

// rules say what a type of fault takes beside its target and its times.
var rules = map[Type]struct {
	process, lasts, percent, delay, code bool
}{
	Kill:         {process: true},
	Freeze:       {process: true, lasts: true},
	CutWatches:   {},
	Refuse:       {lasts: true, percent: true, code: true},
	LoseAnswers:  {lasts: true, percent: true},
	DelayAnswers: {lasts: true, percent: true, delay: true},
	DelayEvents:  {lasts: true, percent: true, delay: true},
	HoldRequests: {lasts: true, percent: true},
	Disconnect:   {lasts: true},
}

// Fault is one way to go wrong, once or again and again.
type Fault struct {
	Type Type `json:"type"`
	// Target is the component that dies or freezes; for faults of requests, the muster
	// that makes them.
	Target string `json:"target"`

	// At is when it comes first, from the beginning.
	At metav1.Duration `json:"at,omitempty"`
	// Every is how often it comes from then on; zero means once.
	Every metav1.Duration `json:"every,omitempty"`
	// Jitter is by how much each occurrence may be late.
	Jitter metav1.Duration `json:"jitter,omitempty"`
	// For is how long each occurrence lasts.
	For metav1.Duration `json:"for,omitempty"`

	// Percent of the requests that are hit; nil means all.
	Percent *int32 `json:"percent,omitempty"`
	// Verbs and Resources of the requests that may be hit, such as patch and
	// provisioningrequests/status; empty means all.
	Verbs     []string `json:"verbs,omitempty"`
	Resources []string `json:"resources,omitempty"`
	// Delay of answers and events.
	Delay metav1.Duration `json:"delay,omitempty"`
	// Code of refusals, and RetryAfter, which comes with 429 and 503; zero means that
	// nothing is said of it.
	Code       int             `json:"code,omitempty"`
	RetryAfter metav1.Duration `json:"retryAfter,omitempty"`
}

// codes of refusals, with the reasons that kube-apiserver gives.
var codes = map[int]metav1.StatusReason{
	http.StatusConflict:            metav1.StatusReasonConflict,
	http.StatusTooManyRequests:     metav1.StatusReasonTooManyRequests,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
	http.StatusServiceUnavailable:  metav1.StatusReasonServiceUnavailable,
	http.StatusGatewayTimeout:      metav1.StatusReasonTimeout,
}

// verbs are those of kube-apiserver's own records.
var verbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}

// musters are the components whose requests go through a gate.
var musters = []string{cluster.Muster, cluster.Standby}

const (
	// leastEvery keeps a plan from having more occurrences than memory holds.
	leastEvery = time.Second
	// mostTime is short enough for times to be added up.
	mostTime = 365 * 24 * time.Hour
)

// Reach is what there is for faults to come to.
type Reach struct {
	// Components that run.
	Components []string
	// Resources that the musters among them request; empty means unknown.
	Resources []string
}

// Validate says what cannot be meant, or comes to nothing, by field.
func (p *Plan) Validate(path *field.Path, reach Reach) (errs field.ErrorList) {
	if len(p.Faults) == 0 {
		errs = append(errs, field.Required(path.Child("faults"), "a plan without faults tests nothing; give one at least"))
	}
	for i := range p.Faults {
		errs = append(errs, p.Faults[i].validate(path.Child("faults").Index(i), reach)...)
	}
	return errs
}

func (f *Fault) validate(path *field.Path, reach Reach) (errs field.ErrorList) {
	rule, known := rules[f.Type]
	if !known {
		var types []Type
		for t := range rules {
			types = append(types, t)
		}
		slices.Sort(types)
		return field.ErrorList{field.NotSupported(path.Child("type"), f.Type, types)}
	}
	targets := slices.Clone(reach.Components)
	if !rule.process {
		targets = slices.DeleteFunc(targets, func(c string) bool { return !slices.Contains(musters, c) })
	}
	if !slices.Contains(targets, f.Target) {
		errs = append(errs, field.NotSupported(path.Child("target"), f.Target, targets))
	}
	for _, d := range []struct {
		name          string
		value         time.Duration
		needed, taken bool
	}{
		{"at", f.At.Duration, false, true},
		{"every", f.Every.Duration, false, true},
		{"jitter", f.Jitter.Duration, false, true},
		{"for", f.For.Duration, rule.lasts, rule.lasts},
		{"delay", f.Delay.Duration, rule.delay, rule.delay},
		{"retryAfter", f.RetryAfter.Duration, false, f.Code == http.StatusTooManyRequests || f.Code == http.StatusServiceUnavailable},
	} {
		switch {
		case d.value < 0:
			errs = append(errs, field.Invalid(path.Child(d.name), d.value.String(), "must not be negative"))
		case d.value == 0 && d.needed:
			errs = append(errs, field.Required(path.Child(d.name), fmt.Sprintf("type %s needs it; give 500ms for example", f.Type)))
		case d.value > 0 && !d.taken:
			errs = append(errs, field.Invalid(path.Child(d.name), d.value.String(), fmt.Sprintf("type %s does not take it; leave it out", f.Type)))
		case d.value > mostTime:
			errs = append(errs, field.Invalid(path.Child(d.name), d.value.String(), "is longer than a year; give less"))
		}
	}
	if every := f.Every.Duration; every > 0 && every < leastEvery {
		errs = append(errs, field.Invalid(path.Child("every"), every.String(),
			fmt.Sprintf("is too short to recover in between; give %s or more", leastEvery)))
	}
	if f.Percent != nil && (*f.Percent < 1 || *f.Percent > 100) {
		errs = append(errs, field.Invalid(path.Child("percent"), *f.Percent, "must be from 1 to 100"))
	}
	if f.Percent != nil && !rule.percent {
		errs = append(errs, field.Invalid(path.Child("percent"), *f.Percent, fmt.Sprintf("type %s does not take it; leave it out", f.Type)))
	}
	if rule.process && len(f.Verbs)+len(f.Resources) > 0 {
		errs = append(errs, field.Invalid(path.Child("verbs"), f.Verbs,
			fmt.Sprintf("type %s comes to a process, not to requests; leave verbs and resources out", f.Type)))
	}
	for i, v := range f.Verbs {
		if !slices.Contains(verbs, v) {
			errs = append(errs, field.NotSupported(path.Child("verbs").Index(i), v, verbs))
		}
	}
	for i, r := range f.Resources {
		if !rule.process && len(reach.Resources) > 0 && !slices.Contains(reach.Resources, r) {
			errs = append(errs, field.NotSupported(path.Child("resources").Index(i), r, reach.Resources))
		}
	}
	if _, ok := codes[f.Code]; rule.code && !ok {
		var known []int
		for c := range codes {
			known = append(known, c)
		}
		slices.Sort(known)
		errs = append(errs, field.Invalid(path.Child("code"), f.Code, fmt.Sprintf("must be one of %v", known)))
	} else if !rule.code && f.Code != 0 {
		errs = append(errs, field.Invalid(path.Child("code"), f.Code, fmt.Sprintf("type %s does not take it; leave it out", f.Type)))
	}
	return errs
}

// Occurrence is a fault at one of its times.
type Occurrence struct {
	Fault
	// Begins counts from the beginning.
	Begins time.Duration
}

func (o Occurrence) String() string {
	text := fmt.Sprintf("%s %s", o.Type, o.Target)
	if o.Code != 0 {
		text += fmt.Sprintf(" with %d", o.Code)
	}
	if o.For.Duration > 0 {
		text += fmt.Sprintf(" for %s", o.For.Duration)
	}
	return text
}

// Occurrences are all that begin within the time, in their order; those of one moment
// in the order of the plan.
func (p *Plan) Occurrences(within time.Duration) (out []Occurrence) {
	for i, f := range p.Faults {
		random := rand.New(rand.NewPCG(p.Seed, uint64(i)))
		for at := f.At.Duration; at < within; at += f.Every.Duration {
			late := time.Duration(random.Int64N(int64(f.Jitter.Duration) + 1))
			if at+late < within {
				out = append(out, Occurrence{Fault: f, Begins: at + late})
			}
			if f.Every.Duration == 0 {
				break
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Occurrence) int { return cmp.Compare(a.Begins, b.Begins) })
	return out
}
