package cloudprovider

import "context"

// QuotaReader is a cloud whose accounts have quotas of what may run at a time.
type QuotaReader interface {
	// Quotas returns those that machines of the groups count against. An error means that they are unknown.
	Quotas(ctx context.Context, groups []Found) ([]Quota, error)
}

// Quota bounds what runs in an account at a time.
type Quota struct {
	// Name in the cloud, with the code or the place by which a request for more names it.
	Name string
	// Unit that it counts, for example vCPUs.
	Unit string
	// Limit is negative if the cloud reports none for these machines, and Used if it does not report what is used.
	Limit, Used int64
	Needs       []QuotaNeed
}

// QuotaNeed is what machines of a group count against a quota.
type QuotaNeed struct {
	Group string
	// Each machine counts so much. Machines is how many there may be: spec.maxNodes.
	Each, Machines int64
}

// Needed is what all machines of the groups count.
func (q *Quota) Needed() (sum int64) {
	for _, n := range q.Needs {
		sum += n.Each * n.Machines
	}
	return sum
}

// Allows is how many machines of a group fit the quota, with none of the others. What is used may be machines of the group itself.
func (q *Quota) Allows(n QuotaNeed) int64 {
	if n.Each == 0 {
		return n.Machines
	}
	return min(n.Machines, q.Limit/n.Each)
}
