package externalgrpc

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/cloudprovider"
	"github.com/muster-dev/muster/nodegroups/v1alpha1"
	"github.com/muster-dev/muster/provisioning/when"
)

const (
	// listEvery is the interval between two lists of open launches, beside those after a request.
	listEvery = 30 * time.Second
	// retryFirst is the delay before a failed call is repeated, and retryLongest the longest one.
	retryFirst   = time.Second
	retryLongest = 30 * time.Second
	// settle is how long after the last call of a launch its machines may appear: the call may take a minute, and lists may lag by
	// another two.
	settle = 5 * time.Minute
)

// Scaler carries out the requests of cluster-autoscalers.
type Scaler struct {
	Client client.Client
	// Live reads past any cache: the number of a launch must not be used twice.
	Live      client.Reader
	Providers map[v1alpha1.Provider]cloudprovider.Provider
	Clock     clock.WithTicker

	machines *machines
	// recorded receives a value when a launch was recorded.
	recorded chan struct{}
	// began is when this process started to watch.
	began time.Time
	// synced is closed once all clouds have listed their machines.
	synced chan struct{}

	mu sync.Mutex
	// running are the launches with a call in flight, by token.
	running map[string]bool
}

// NewScaler returns a Scaler of the clouds.
func NewScaler(kube client.Client, live client.Reader, providers map[v1alpha1.Provider]cloudprovider.Provider,
	clock clock.WithTicker) *Scaler {
	return &Scaler{
		Client: kube, Live: live, Providers: providers, Clock: clock, machines: newMachines(),
		recorded: make(chan struct{}, 1), synced: make(chan struct{}), running: map[string]bool{},
	}
}

// Start watches the clouds, and makes the calls of open launches, until ctx is done.
func (s *Scaler) Start(ctx context.Context) error {
	var work, listed sync.WaitGroup
	defer work.Wait()
	s.began = s.Clock.Now()
	for name, p := range s.Providers {
		listed.Add(1)
		work.Go(func() {
			if err := p.Watch(ctx, s.machines.observe, sync.OnceFunc(listed.Done)); err != nil && ctx.Err() == nil {
				log.FromContext(ctx).Error(err, "Watching a cloud's machines has ended", "provider", name)
			}
		})
	}
	go func() {
		listed.Wait()
		close(s.synced)
	}()
	select {
	case <-ctx.Done():
		return nil
	case <-s.synced:
	}
	for {
		if err := s.list(ctx, &work); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("Looking for open launches will be retried", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.recorded:
		case <-s.Clock.After(listEvery):
		}
	}
}

// list starts the calls of open launches, and tidies up after others.
func (s *Scaler) list(ctx context.Context, work *sync.WaitGroup) error {
	list := &v1alpha1.NodeGroupList{}
	if err := s.Live.List(ctx, list); err != nil {
		return fmt.Errorf("listing NodeGroups: %w", err)
	}
	var errs []error
	for i := range list.Items {
		group := &list.Items[i]
		if group.Spec.ScaledBy != v1alpha1.ScaledByClusterAutoscaler {
			continue
		}
		r, err := read(group)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, l := range r.Open {
			token := l.token(group)
			if l.Refused == nil && l.GivenUp == nil && s.begin(token) {
				work.Go(func() {
					defer s.end(token)
					s.launch(ctx, group.Name, l.Number, token)
				})
			}
		}
		errs = append(errs, s.tidyUp(ctx, group, &r))
	}
	return errors.Join(errs...)
}

// begin reports whether the call of that token is not under way yet; it is from then on.
func (s *Scaler) begin(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[token] {
		return false
	}
	s.running[token] = true
	return true
}

func (s *Scaler) isRunning(token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running[token]
}

func (s *Scaler) end(token string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.running, token)
}

// tidyUp terminates machines of launches that were given up, and reservations that no launch waits for: they are billed, and the
// autoscaler cannot see them. It closes a launch that was given up when no more machines can appear.
func (s *Scaler) tidyUp(ctx context.Context, group *v1alpha1.NodeGroup, r *record) error {
	there := s.machines.of(group, r)
	waiting := map[string]bool{}
	var unwanted []string
	var settled []int
	for i := range r.Open {
		l := &r.Open[i]
		token := l.token(group)
		running := s.isRunning(token)
		waiting[token] = running || l.Refused == nil && l.GivenUp == nil
		left := false
		for _, m := range there.living {
			if m.Launch == token && l.unwanted(m.Name) {
				unwanted, left = append(unwanted, m.Name), true
			}
		}
		if l.GivenUp != nil && !left && !running && s.Clock.Since(when.Latest(*l.GivenUp, s.began)) >= settle {
			settled = append(settled, l.Number)
		}
	}
	for _, h := range there.holds {
		if h.Launch != "" && !waiting[h.Launch] {
			unwanted = append(unwanted, h.Name)
		}
	}
	if provider := s.Providers[group.Spec.Provider]; len(unwanted) > 0 && provider != nil {
		if err := provider.Terminate(ctx, group.Name, unwanted); err != nil {
			return fmt.Errorf("terminating what was given up in NodeGroup %s: %w", group.Name, err)
		}
	}
	if len(settled) == 0 {
		return nil
	}
	return s.change(ctx, group.Name, func(_ *v1alpha1.NodeGroup, r *record) error {
		for _, n := range settled {
			r.close(n)
		}
		return nil
	})
}

// launch calls the cloud until it has answered and that is on record, or the launch is given up.
func (s *Scaler) launch(ctx context.Context, name string, number int, token string) {
	logger := log.FromContext(ctx).WithValues("group", name, "launch", token)
	for pause := retryFirst; ctx.Err() == nil; pause = min(2*pause, retryLongest) {
		over, err := s.call(ctx, name, number, token)
		if over {
			return
		}
		if err != nil && ctx.Err() == nil {
			logger.Info("A launch for a cluster-autoscaler will be retried", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
		case <-s.Clock.After(pause):
		}
	}
}

// call makes the call of a launch once. over reports whether the launch needs no more calls.
func (s *Scaler) call(ctx context.Context, name string, number int, token string) (over bool, err error) {
	group := &v1alpha1.NodeGroup{}
	if err := s.Live.Get(ctx, client.ObjectKey{Name: name}, group); err != nil {
		return apierrors.IsNotFound(err), err
	}
	r, err := read(group)
	if err != nil {
		return false, err
	}
	l := r.find(number)
	if l == nil || l.Refused != nil || l.GivenUp != nil || l.token(group) != token {
		return true, nil
	}
	var made []cloudprovider.Machine
	refusal := &cloudprovider.Error{Class: v1alpha1.Config, Code: "ProviderNotAvailable",
		Message: fmt.Sprintf("this muster cannot reach provider %q: is its CRD or its configuration missing?", group.Spec.Provider)}
	if provider := s.Providers[group.Spec.Provider]; provider != nil {
		made, err = provider.Launch(ctx, cloudprovider.LaunchRequest{
			Group: group, Count: l.Count, Token: token, Request: "cluster-autoscaler/" + name,
		})
		if refusal = cloudprovider.Refusal(err); err != nil && refusal == nil {
			return false, err
		}
	}
	count := 0
	for _, m := range made {
		s.machines.observe(m)
		if !m.Hold {
			count++
		}
	}
	err = s.change(ctx, name, func(_ *v1alpha1.NodeGroup, r *record) error {
		r.answered(number, count, refusal)
		return nil
	})
	if err == nil {
		said := []any{"group", name, "launch", token, "requested", l.Count, "made", count}
		if refusal != nil {
			said = append(said, "refusal", refusal.Error())
		}
		log.FromContext(ctx).Info("The cloud has answered a launch for a cluster-autoscaler", said...)
	}
	return err == nil, err
}

// change changes the record of a group by what the API server has of it.
func (s *Scaler) change(ctx context.Context, name string, change func(*v1alpha1.NodeGroup, *record) error) error {
	return retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		group := &v1alpha1.NodeGroup{}
		if err := s.Live.Get(ctx, client.ObjectKey{Name: name}, group); err != nil {
			return fmt.Errorf("reading NodeGroup %s: %w", name, err)
		}
		r, err := read(group)
		if err != nil {
			return err
		}
		changed := group.DeepCopy()
		if err := change(changed, &r); err != nil {
			return err
		}
		r.write(changed)
		if changed.Annotations[v1alpha1.AutoscalerLaunchesAnnotation] == group.Annotations[v1alpha1.AutoscalerLaunchesAnnotation] {
			return nil
		}
		return s.Client.Patch(ctx, changed, client.MergeFromWithOptions(group, client.MergeFromWithOptimisticLock{}))
	})
}
