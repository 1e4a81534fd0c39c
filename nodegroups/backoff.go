package nodegroups

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// handling is the effect of a class of failures on later launches.
type handling struct {
	// first is how long launches wait after one failure. The time doubles with each consecutive failure, up to most, or up to
	// longestInVain if machines were bought.
	first, most time.Duration
	// sized failures depend on the number of machines: smaller launches may continue. Sizes are compared by powers of two, or by the
	// number of machines if the failure is exact: a rack has room for 6 machines or for 7.
	sized, exact bool
	// isEvidence is set if the failure is evidence for the chance of the next launch: the machines were not available, or were lost.
	isEvidence bool
	// remedy is what a person must do; empty if waiting may help.
	remedy string
	// vain failures happen after machines were bought: each costs their price. One with unbilled may also happen before.
	vain, unbilled bool
	// patience is the number of consecutive failures after which a person must act, if waiting may help until then. From there on the
	// group is not used for the time stopped.
	patience int32
}

const (
	// stopped is how long a group is not used after too many failures: each try costs the price of its machines.
	stopped = 24 * time.Hour
	// longestInVain bounds the pauses after launches in vain, which double from the first on. A gang that tries whenever it may buys
	// machines in vain about ten times in the first nine hours, and four times a day from then on, with or without a budget.
	longestInVain = 6 * time.Hour
)

// handlings by class. A stockout may be over in half a minute; quota, addresses,
// credentials and configuration wait for a person. A machine is the likelier lost the more
// there are, while nodes that do not join in time are mostly a fault of image or
// network, which costs the machines' price each time, however few they are.
var handlings = map[v1alpha1.ErrorClass]handling{
	v1alpha1.Stockout: {first: 30 * time.Second, most: 10 * time.Minute, sized: true, isEvidence: true},
	v1alpha1.Lost:     {first: 30 * time.Second, sized: true, isEvidence: true, vain: true},
	v1alpha1.Timeout: {first: 30 * time.Second, isEvidence: true, vain: true, patience: 3,
		remedy: "an admin must find out why nodes of the group do not become ready, and correct the image, the network or the spec of " +
			"the NodeGroup, " + triesAgain},
	// The placement in the cloud changes as other machines come and go, and each try costs their price.
	v1alpha1.Scattered: {first: time.Minute, sized: true, exact: true, isEvidence: true, vain: true},
	v1alpha1.Throttle:  {first: 5 * time.Second, most: time.Minute},
	// It takes two minutes to notice that a cloud does not answer: the other groups of that cloud and those of others are tried before it
	// is tried again.
	v1alpha1.Outage: {first: 5 * time.Minute, most: 10 * time.Minute},
	v1alpha1.Quota: {first: 5 * time.Minute, most: 30 * time.Minute, sized: true,
		remedy: "the owner of the cloud account must ask for a higher quota, or an admin lower spec.maxNodes to what the quota allows"},
	v1alpha1.Network: {first: time.Minute, most: 10 * time.Minute, sized: true,
		remedy: "the owner of the network must give the subnet more addresses, or free some"},
	v1alpha1.Auth: {first: 5 * time.Minute, most: 30 * time.Minute,
		remedy: "the owner of the cloud account must renew Muster's credentials or allow it this call"},
	v1alpha1.Config: {first: 5 * time.Minute, most: 30 * time.Minute, vain: true, unbilled: true,
		remedy: "an admin must correct the spec of the NodeGroup, or what it refers to in the cloud, " + triesAgain},
}

// triesAgain says how an administrator ends the backoff of a group: a correction in the cloud does not show in every spec.
const triesAgain = "and annotate the NodeGroup with a new value of " + v1alpha1.RepairedAnnotation + " unless its template or network " +
	"has changed: then the next launch tries at once"

func handlingOf(class v1alpha1.ErrorClass) handling {
	if h, ok := handlings[class]; ok {
		return h
	}
	return handlings[v1alpha1.Config]
}

// NeedsPerson reports whether what the backoff is for does not pass by itself.
func NeedsPerson(b *v1alpha1.Backoff) bool {
	h := handlingOf(b.Class)
	return h.remedy != "" && b.Failures >= h.patience
}

// isBroken reports whether what the backoff is for does not pass by itself, nor when fewer machines are in use.
func isBroken(b *v1alpha1.Backoff) bool { return NeedsPerson(b) && !handlingOf(b.Class).sized }

// pause returns how long launches wait after so many consecutive failures. machines says whether the last of them left machines.
func (h handling) pause(failures int32, machines bool) time.Duration {
	if h.patience > 0 && failures >= h.patience {
		return stopped
	}
	d, most := h.first, h.most
	if h.vain && (machines || !h.unbilled) {
		most = longestInVain
	}
	for ; failures > 1 && d < most; failures-- {
		d *= 2
	}
	return min(d, most)
}

// forgotten is how long after its end a backoff is kept: a failure after that is again the first in a row.
const forgotten = time.Hour

// remembered returns the backoffs that are not forgotten by then.
func remembered(list []v1alpha1.Backoff, then time.Time) []v1alpha1.Backoff {
	return slices.DeleteFunc(slices.Clone(list), func(b v1alpha1.Backoff) bool {
		return then.Sub(b.Until.Time) >= forgotten
	})
}

// sizeOf a launch of so many machines.
func (h handling) sizeOf(requested int32) int32 {
	if h.exact {
		return max(requested, 1)
	}
	return smallest(int(requested))
}

// backOff returns the backoffs after a failure. news is false, and nothing changes, if such a launch had to wait already: it was in flight
// when the failure came that started the backoff, so both have the same cause. Ten gangs that launch in an empty pool at the same moment
// have seen one stockout, not ten in a row.
func backOff(list []v1alpha1.Backoff, a v1alpha1.LaunchAttempt) (out []v1alpha1.Backoff, news bool) {
	h := handlingOf(a.Class)
	b := v1alpha1.Backoff{Class: a.Class, AtLeast: 1, Level: a.Level, Failures: 1, Message: a.Message}
	if h.sized {
		b.AtLeast = h.sizeOf(a.Requested)
	}
	for _, o := range list {
		if o.Class != b.Class || o.Level != b.Level || o.AtLeast > b.AtLeast {
			continue
		}
		if a.Time.Before(&o.Until) {
			return list, false
		}
		// A stockout of fewer machines includes more machines.
		b.Failures = max(b.Failures, o.Failures+1)
	}
	b.Until = metav1.NewTime(a.Time.Add(h.pause(b.Failures, a.Got > 0)))
	out = slices.DeleteFunc(slices.Clone(list), func(o v1alpha1.Backoff) bool {
		return o.Class == b.Class && o.AtLeast == b.AtLeast && o.Level == b.Level
	})
	out = append(out, b)
	slices.SortFunc(out, func(x, y v1alpha1.Backoff) int {
		return cmp.Or(cmp.Compare(x.Class, y.Class), cmp.Compare(x.AtLeast, y.AtLeast), cmp.Compare(x.Level, y.Level))
	})
	return out, true
}

// disproved returns the backoffs without those that a success has disproved: of all classes, for launches of this size and smaller, and of
// the same level or of none. A backoff that is not over yet stays: a launch that it would have delayed started before that failure, and is
// no evidence for the time after.
func disproved(list []v1alpha1.Backoff, success v1alpha1.LaunchAttempt) []v1alpha1.Backoff {
	return slices.DeleteFunc(slices.Clone(list), func(b v1alpha1.Backoff) bool {
		return b.AtLeast <= handlingOf(b.Class).sizeOf(success.Requested) && (b.Level == "" || b.Level == success.Level) &&
			!success.Time.Before(&b.Until)
	})
}

// BlockedUntil returns the time before which no launch of n machines may use the group, and why; zero if there is no backoff. The time may
// be over. level is the node label whose single domain the launch requires; empty for none.
func (g *Group) BlockedUntil(n int, level string) (until time.Time, why string) {
	last := g.lastBackoff(n, level, func(*v1alpha1.Backoff) bool { return true })
	if last == nil {
		return time.Time{}, ""
	}
	return last.Until.Time, WhyBackoff(last)
}

// LastInVain is why a launch of n machines is likely to be in vain: the last one was, which has cost the price of its machines, and none
// of that size has succeeded since. It is empty where none was. The backoff after it may be over.
func (g *Group) LastInVain(n int, level string) (why string) {
	last := g.lastBackoff(n, level, func(b *v1alpha1.Backoff) bool { return InVain(b.Class) })
	if last == nil {
		return ""
	}
	return WhyBackoff(last)
}

// InVain reports whether machines had been bought before a launch failed in that way.
func InVain(class v1alpha1.ErrorClass) bool { return handlingOf(class).vain }

// lastBackoff returns the backoff for a launch of n machines that ends last, among those that count; nil for none.
func (g *Group) lastBackoff(n int, level string, counts func(*v1alpha1.Backoff) bool) (last *v1alpha1.Backoff) {
	for i := range g.Backoffs {
		if b := &g.Backoffs[i]; int(b.AtLeast) <= max(n, 1) && (b.Level == "" || b.Level == level) && counts(b) &&
			(last == nil || b.Until.After(last.Until.Time)) {
			last = b
		}
	}
	return last
}

// WhyBackoff says what failed, which launches wait, and whether a person must act.
func WhyBackoff(b *v1alpha1.Backoff) string {
	out := cmp.Or(b.Message, fmt.Sprintf("the last launch failed (%s)", b.Class))
	if b.Failures > 1 {
		out += fmt.Sprintf(", the %s failure in a row", Ordinal(int(b.Failures)))
	}
	if b.AtLeast > 1 {
		out += fmt.Sprintf("; launches of fewer than %d machines need not wait", b.AtLeast)
	}
	if b.Level != "" {
		out += fmt.Sprintf("; launches that need not be within one domain of %s need not wait", b.Level)
	}
	if NeedsPerson(b) {
		out += "; " + handlingOf(b.Class).remedy
	}
	return out
}

// Ordinal is n as people count: 1st, 2nd, 3rd, 4th.
func Ordinal(n int) string {
	suffix := "th"
	if n%100 < 11 || n%100 > 13 {
		switch n % 10 {
		case 1:
			suffix = "st"
		case 2:
			suffix = "nd"
		case 3:
			suffix = "rd"
		}
	}
	return fmt.Sprint(n, suffix)
}
