package cloudprovider

import "context"

// QuotaReader is a cloud whose accounts have quotas for concurrent use.
type QuotaReader interface {
	// Quotas returns the quotas that machines of the groups count against. An error means that they are unknown.
	Quotas(ctx context.Context, groups []Found) ([]Quota, error)
}

// Quota limits what an account may run at a time.
type Quota struct {
	// Name in the cloud, with the code or the location that a request for an increase needs.
	Name string
	// Unit that it counts, for example vCPUs.
	Unit string
	// Limit is negative if the cloud reports none for these machines. Used is negative if the cloud does not report the use.
	Limit, Used int64
	Needs       []QuotaNeed
}

// QuotaNeed is what machines of a group count against a quota.
type QuotaNeed struct {
	Group string
	// Each machine counts Each. Machines is the maximum number of machines: spec.maxNodes.
	Each, Machines int64
}

// Needed is the sum for all machines of the groups.
func (q *Quota) Needed() (sum int64) {
	for _, n := range q.Needs {
		sum += n.Each * n.Machines
	}
	return sum
}

// Allows is how many machines of a group fit the quota without the other groups. The used part may be machines of the group itself.
func (q *Quota) Allows(n QuotaNeed) int64 {
	if n.Each == 0 {
		return n.Machines
	}
	return min(n.Machines, q.Limit/n.Each)
}
