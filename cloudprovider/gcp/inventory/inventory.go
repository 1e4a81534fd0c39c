// Package inventory lists the machines: what is Muster's by its name, to which NodeGroup it belongs, and what lists do not
// show yet. It keeps the last state of each zone and managed instance group that was listed.
//
// A member is an instance that a managed instance group has made; a machine beside one was made by a bulk insert from its template. A
// resize request that waits is a hold, in place of its machines.
package inventory

import (
	"context"
	"sync"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/cloudprovider/gcp/api"
	"github.com/muster-dev/muster/cloudprovider/poll"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
)

// Config is what an Inventory works with.
type Config struct {
	// Project is always listed, in addition to the projects of NodeGroups: machines of deleted NodeGroups may remain in it.
	Project string
	// Cluster and ClusterUID become labels of the machines that Muster makes.
	Cluster, ClusterUID string
	// NodeGroups lists the NodeGroups of the cluster, of all providers.
	NodeGroups func(context.Context) ([]*v1alpha1.NodeGroup, error)
	Clock      clock.PassiveClock
}

// Inventory lists machines and remembers what it has seen of them.
type Inventory struct {
	Names  Names
	config Config
	cloud  *api.Client

	mu sync.Mutex
	// seen are the groups that there are or have been, by name: what was launched in a
	// group that has been deleted since is still to be listed and terminated.
	seen map[string]seenGroup
	// members has the members of managed instance groups as they were last listed.
	members map[api.Manager]members
	// beside counts the machines that stood beside managed instance groups when their zone was last listed.
	beside map[zone]map[string]int
	// starts has when members of managed instance groups were started, by their paths. The cloud reports no such time for members.
	starts map[api.Manager]map[string]start

	// touched are the managed instance groups whose members have just changed.
	touched *poll.Recent[api.Manager, struct{}]
	// silent are the zones and regions whose lists were not answered a moment ago, and why.
	silent *poll.Recent[string, error]
	// fresh contains the names of machines requested by bulk inserts, by the managed instance group beside which they were
	// launched. Lists may not include them yet, and limits must count them.
	fresh *poll.Grouped[api.Manager, string, struct{}]
}

// zone of a project.
type zone struct{ project, name string }

// New returns an Inventory. It makes no call.
func New(cloud *api.Client, c Config) *Inventory {
	return &Inventory{
		Names: NewNames(c.ClusterUID), config: c, cloud: cloud, seen: map[string]seenGroup{}, members: map[api.Manager]members{},
		beside: map[zone]map[string]int{}, starts: map[api.Manager]map[string]start{},
		touched: poll.NewRecent[api.Manager, struct{}](poll.Grace, c.Clock), silent: poll.NewRecent[string, error](silence, c.Clock),
		fresh: poll.NewGrouped[api.Manager, string, struct{}](poll.Grace, c.Clock),
	}
}
