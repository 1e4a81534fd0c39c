package discover

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// fewAtATime is how many facts of one kind are read again by a discovery, where each needs a call of its own. Discovery takes place every
// minute, so those of 200 groups are read every 50 minutes, and those of few at each discovery.
const fewAtATime = 4

// facts are what discoveries have read and need not read each time.
type facts struct {
	// mu is held by a discovery.
	mu sync.Mutex
	// versions of launch templates by ID and number, which do not change.
	versions map[string]*ec2types.LaunchTemplateVersion
	// refreshing reports whether an instance refresh of a group is in progress, by name of the group.
	refreshing slowly[bool]
	// nodegroups are those of EKS, by nodegroupKey.
	nodegroups slowly[nodegroup]
	offered    offered
}

// offeredFor is how long it is good for what AWS offers.
const offeredFor = 10 * time.Minute

// offered caches instance types, the zones that sell them, and subnets.
type offered struct {
	kinds, subnets []string
	at             time.Time
	types          map[string]*ec2types.InstanceTypeInfo
	where          map[string]ec2types.Subnet
	// sold are the zones that sell a type.
	sold map[string]map[string]bool
}

// slowly keeps facts that change seldom and need one call each.
type slowly[T any] struct{ known map[string]fact[T] }

type fact[T any] struct {
	value T
	at    time.Time
}

// read reads the facts that are not known, and those few that were read longest ago. What could not be read again stays as it is. It
// forgets all others, and stops at an error.
func (s *slowly[T]) read(now time.Time, keys []string, read func(key string) (T, error)) error {
	known := map[string]fact[T]{}
	var missing []string
	for _, key := range keys {
		if f, ok := s.known[key]; ok {
			known[key] = f
		} else if !slices.Contains(missing, key) {
			missing = append(missing, key)
		}
	}
	oldest := slices.SortedFunc(maps.Keys(known), func(a, b string) int {
		return cmp.Or(known[a].at.Compare(known[b].at), strings.Compare(a, b))
	})
	s.known = known
	for _, key := range append(missing, oldest[:min(fewAtATime, len(oldest))]...) {
		value, err := read(key)
		if err != nil {
			return err
		}
		known[key] = fact[T]{value, now}
	}
	return nil
}

// of returns a fact.
func (s *slowly[T]) of(key string) (value T, ok bool) {
	f, ok := s.known[key]
	return f.value, ok
}
