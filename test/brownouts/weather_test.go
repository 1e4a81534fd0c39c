package brownouts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// window is a time in which something is wrong with a cloud.
type window struct {
	from, until time.Duration
	what        string
	begin       func(*day) (end func())
}

func (w window) String() string { return fmt.Sprintf("%s–%s %s", w.from, w.until, w.what) }

// launchCalls make machines.
var launchCalls = map[v1alpha1.Provider][]string{
	v1alpha1.ProviderAWS: {"CreateFleet", "LaunchInstances", "RunInstances"},
	v1alpha1.ProviderGCP: {"instances.bulkInsert", "regionInstances.bulkInsert", "regionInstanceGroupManagers.createInstances"},
}

// windows of a seed, by their beginning, the last of which ends before the day does. Most begin when a gang comes or its machines boot.
func windows(r *rand.Rand, gangs []*gang) (out []window) {
	for _, g := range gangs {
		from := max(0, g.at+time.Duration(r.IntN(300)-120)*time.Second)
		w := window{from: from, until: from + time.Duration(2+r.IntN(40))*time.Minute}
		if w.until > dayLength || r.IntN(4) == 0 {
			continue
		}
		w.what, w.begin = harm(r, []v1alpha1.Provider{v1alpha1.ProviderAWS, v1alpha1.ProviderAWS, v1alpha1.ProviderGCP}[r.IntN(3)])
		out = append(out, w)
	}
	slices.SortFunc(out, func(a, b window) int { return int(a.from - b.from) })
	return out
}

// harm is what happens to the calls of a cloud.
func harm(r *rand.Rand, cloud v1alpha1.Provider) (what string, begin func(*day) func()) {
	errorOf := func(aws, gcp cloudsim.Error) *cloudsim.Error {
		if cloud == v1alpha1.ProviderAWS {
			return &aws
		}
		return &gcp
	}
	fault := cloudsim.CallFault{Cloud: cloud}
	switch r.IntN(9) {
	case 0:
		what, fault.Type = "calls fail", cloudsim.CallRefused
		fault.Error = errorOf(cloudsim.Error{Status: 503, Code: "InternalError", Message: "An internal error has occurred"},
			cloudsim.Error{Status: 503, Code: "backendError", Message: "Backend Error"})
	case 1:
		what, fault.Type = "calls hang", cloudsim.CallUnanswered
	case 2:
		what, fault.Type = "calls are throttled", cloudsim.CallRefused
		fault.Error = errorOf(cloudsim.Error{Status: 503, Code: "RequestLimitExceeded", Message: "Request limit exceeded."},
			cloudsim.Error{Status: 403, Code: "rateLimitExceeded", Message: "Rate Limit Exceeded"})
	case 3:
		what, fault.Type = "connections break", cloudsim.CallLost
	case 4:
		what, fault.Type, fault.Percent = "half of the replies are lost", cloudsim.ReplyLost, 50
	case 5:
		if cloud == v1alpha1.ProviderGCP {
			zone := []string{"us-central1-a", "us-central1-b"}[r.IntN(2)]
			return "zone " + zone + " is away", func(d *day) func() {
				d.google.SetUnreachable(zone)
				return func() { d.google.SetUnreachable() }
			}
		}
		fallthrough
	case 6:
		what, fault.Type = "calls are slow", cloudsim.CallSlow
		fault.Delay.Duration = time.Duration(1+r.IntN(45)) * time.Second
	case 7:
		what, fault.Type = "half of the calls take longer than anybody waits", cloudsim.CallLate
		fault.Percent, fault.Delay.Duration = 50, time.Duration(1+r.IntN(5))*time.Minute
	default:
		what, fault.Type = "launches fail", cloudsim.CallRefused
		fault.Error = errorOf(cloudsim.Error{Status: 500, Code: "InternalError", Message: "An internal error has occurred"},
			cloudsim.Error{Status: 503, Code: "backendError", Message: "Backend Error"})
		return fmt.Sprintf("%s: %s", cloud, what), func(d *day) func() {
			var ends []func()
			for _, action := range launchCalls[cloud] {
				f := fault
				f.Action = action
				ends = append(ends, d.world.Harm(f))
			}
			return func() {
				for _, end := range ends {
					end()
				}
			}
		}
	}
	return fmt.Sprintf("%s: %s", cloud, what), func(d *day) func() { return d.world.Harm(fault) }
}

// lastOf is when the last of the windows ends.
func lastOf(weather []window) (last time.Duration) {
	for _, w := range weather {
		last = max(last, w.until)
	}
	return last
}
