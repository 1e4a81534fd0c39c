package brownouts

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/muster-dev/muster/kwok/cloudsim"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// outage is a time in which something is wrong with a cloud.
type outage struct {
	from, until time.Duration
	what        string
	begin       func(*day) (end func())
}

func (o outage) String() string { return fmt.Sprintf("%s–%s %s", o.from, o.until, o.what) }

// launchCalls make machines, or hold places for them: those of all groups.
var launchCalls = map[v1alpha1.Provider][]string{
	v1alpha1.ProviderAWS: {"CreateCapacityReservation", "CreateFleet", "LaunchInstances", "RunInstances"},
	v1alpha1.ProviderGCP: {"instances.bulkInsert", "instanceGroupManagers.createInstances", "regionInstanceGroupManagerResizeRequests.insert"},
}

// outagesOf returns the outages of a seed, by their start. The last one ends before the day does. Most start when a gang arrives or its
// machines boot.
func outagesOf(r *rand.Rand, gangs []*gang) (out []outage) {
	for _, g := range gangs {
		from := max(0, g.at+time.Duration(r.IntN(300)-120)*time.Second)
		o := outage{from: from, until: from + time.Duration(2+r.IntN(40))*time.Minute}
		if o.until > dayLength || r.IntN(4) == 0 {
			continue
		}
		o.what, o.begin = harm(r, []v1alpha1.Provider{v1alpha1.ProviderAWS, v1alpha1.ProviderAWS, v1alpha1.ProviderGCP}[r.IntN(3)])
		out = append(out, o)
	}
	slices.SortFunc(out, func(a, b outage) int { return int(a.from - b.from) })
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
	switch r.IntN(11) {
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
		zones, away := []string{"us-east-1a", "us-east-1b"}, func(d *day, zones ...string) { d.amazon.SetUnreachable(zones...) }
		if cloud == v1alpha1.ProviderGCP {
			zones, away = []string{"us-central1-a", "us-central1-b"}, func(d *day, zones ...string) { d.google.SetUnreachable(zones...) }
		}
		zone := zones[r.IntN(2)]
		return "zone " + zone + " is away", func(d *day) func() {
			away(d, zone)
			return func() { away(d) }
		}
	case 6:
		what, fault.Type = "calls are slow", cloudsim.CallSlow
		fault.Delay.Duration = time.Duration(1+r.IntN(45)) * time.Second
	case 7:
		what, fault.Type = "half of the calls take longer than anybody waits", cloudsim.CallLate
		fault.Percent, fault.Delay.Duration = 50, time.Duration(1+r.IntN(5))*time.Minute
	case 8:
		what, fault.Type = "calls are denied", cloudsim.CallRefused
		fault.Error = errorOf(
			cloudsim.Error{Status: 403, Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation."},
			cloudsim.Error{Status: 403, Code: "forbidden", Message: "Required 'compute.instances.create' permission for 'projects/lab'"})
		return fmt.Sprintf("%s: %s", cloud, what), denied(fault)
	case 9:
		what, fault.Type = "credentials have expired", cloudsim.CallRefused
		fault.Error = errorOf(cloudsim.Error{Status: 403, Code: "ExpiredToken", Message: "The security token included in the request is expired"},
			cloudsim.Error{Status: 401, Code: "authError", Message: "Invalid Credentials"})
		return fmt.Sprintf("%s: %s", cloud, what), denied(fault)
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

// denied begins a fault that only a person ends: that of the credentials of a cloud.
func denied(fault cloudsim.CallFault) func(*day) func() {
	return func(d *day) func() {
		d.denied[fault.Cloud] = true
		return d.world.Harm(fault)
	}
}

// lastOf is when the last of the outages ends.
func lastOf(outages []outage) (last time.Duration) {
	for _, o := range outages {
		last = max(last, o.until)
	}
	return last
}
