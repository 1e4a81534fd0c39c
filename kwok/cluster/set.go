package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// SetConfig says which sandboxes to start as one, such as the clusters of a MultiKueue.
type SetConfig struct {
	// Name, DataDir, Kubeconfig, Registry and Progress are what they are in a Config, for all clusters together: each has
	// a folder of its name in DataDir, and Kubeconfig gets a context for each.
	Name       string
	DataDir    string
	Kubeconfig string
	Registry   Registry
	Progress   io.Writer

	// Clusters are in the order of their start. Kubeconfig starts with the first as its current context. The Name of each is its name in
	// the set: the registry has it as NAME-CLUSTER.
	Clusters []Config

	// Connect, if set, connects the clusters once all of them are ready, before the set is.
	Connect func(context.Context, *Set) error
}

// Set is several sandboxes that run as one, seen from their supervisor. The registry has a state of the set that lists its clusters, and
// a state of each cluster.
type Set struct {
	config   SetConfig
	lock     *fileLock
	state    State
	clusters []*Cluster // the started ones, in this order

	stopOnce sync.Once
	stopErr  error
}

// StartSet starts the sandboxes one after another, since the start of one takes all that two processors give, and returns
// when all are ready. ctx governs the start only; if it ends early, all that was started is killed. The caller must Stop
// what it started.
func StartSet(ctx context.Context, config SetConfig) (*Set, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	s := &Set{config: config}
	if err := s.start(ctx); err != nil {
		now, cancel := context.WithCancel(context.Background())
		cancel()
		return nil, errors.Join(err, s.Stop(now))
	}
	return s, nil
}

// complete returns the configuration with its defaults filled in and each cluster's own, or what the user has to change
// about it.
func (c SetConfig) complete() (SetConfig, error) {
	whole, err := Config{Name: c.Name, DataDir: c.DataDir, Kubeconfig: c.Kubeconfig, Registry: c.Registry, Progress: c.Progress}.complete()
	if err != nil {
		return c, err
	}
	c.Name, c.DataDir, c.Kubeconfig, c.Registry, c.Progress = whole.Name, whole.DataDir, whole.Kubeconfig, whole.Registry, whole.Progress
	if len(c.Clusters) == 0 {
		return c, errors.New("a set has one cluster at least")
	}
	c.Clusters = slices.Clone(c.Clusters)
	processes := 0
	for i, one := range c.Clusters {
		if one.DataDir != "" || one.Kubeconfig != "" || one.Registry != (Registry{}) || one.Progress != nil {
			return c, fmt.Errorf("the cluster %s has what is the whole set's: DataDir, Kubeconfig, Registry and Progress", one.Name)
		}
		one.context, one.set, one.Registry, one.Progress = one.Name, c.Name, c.Registry, c.Progress
		if c.DataDir != "" {
			one.DataDir = filepath.Join(c.DataDir, one.Name)
		}
		one.Name = c.Name + "-" + one.Name
		if c.Clusters[i], err = one.complete(); err != nil {
			return c, err
		}
		processes += len(c.Clusters[i].Only) + len(one.Operators)
	}
	if available, known := availableMemory(); known {
		return c, checkMemory(len(c.Clusters), processes, available)
	}
	return c, nil
}

// componentMemory is what a component is reckoned to take, with its part of etcd's data: half more than the 140 MiB that
// the 16 of a manager and two workers took each, when idle, of what was available. (What each has resident is more, for
// that counts the program, which they share.)
const componentMemory = 200 << 20

// checkMemory refuses to start what the machine would have to kill processes for.
func checkMemory(clusters, processes int, available int64) error {
	if need := int64(processes) * componentMemory; need > available {
		return fmt.Errorf("%d clusters need %.1f GiB of memory and this machine has %.1f GiB available: start fewer clusters, or end other "+
			"programs", clusters, gibibytes(need), gibibytes(available))
	}
	return nil
}

func gibibytes(bytes int64) float64 { return float64(bytes) / (1 << 30) }

func (s *Set) start(ctx context.Context) error {
	if s.config.Kubeconfig != "" {
		if err := checkKubeconfigCopy(s.config.Kubeconfig); err != nil {
			return err
		}
	}
	lock, err := s.config.Registry.claim(s.config.Name)
	if err != nil {
		return err
	}
	s.lock = lock
	path := s.config.Registry.path(s.config.Name)
	s.state = State{
		Name: s.config.Name, PID: os.Getpid(), Started: time.Now(), Copy: s.config.Kubeconfig, Dir: path,
		Kubeconfig: filepath.Join(path, "kubeconfig.yaml"),
	}
	s.state.Temporary = []string{s.state.Kubeconfig}
	for _, one := range s.config.Clusters {
		s.state.Clusters = append(s.state.Clusters, one.Name)
	}
	for i, one := range s.config.Clusters {
		if err := s.config.Registry.writeState(s.state); err != nil {
			return err
		}
		fmt.Fprintf(s.config.Progress, "Starting %s, cluster %d of %d\n", one.context, i+1, len(s.config.Clusters))
		started, err := Start(ctx, one)
		if err != nil {
			return fmt.Errorf("starting the cluster %s: %w", one.context, err)
		}
		s.clusters = append(s.clusters, started)
		s.state.Server = s.clusters[0].plan.server()
		if err := s.writeKubeconfigs(); err != nil {
			return err
		}
	}
	if s.config.Connect != nil {
		if err := s.config.Connect(ctx, s); err != nil {
			return err
		}
	}
	s.state.Ready = true
	return s.config.Registry.writeState(s.state)
}

// writeKubeconfigs puts the administrator's contexts of all clusters into one file, and its copy.
func (s *Set) writeKubeconfigs() error {
	all := clientcmdapi.NewConfig()
	for _, c := range s.clusters {
		one, err := clientcmd.LoadFromFile(c.Kubeconfig())
		if err != nil {
			return fmt.Errorf("reading the kubeconfig of %s: %w", c.config.context, err)
		}
		name := c.config.context
		cluster := kubeconfigMark + "-" + name
		all.Clusters[cluster], all.AuthInfos[name] = one.Clusters[kubeconfigMark], one.AuthInfos[admin]
		all.Contexts[name] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: name}
	}
	all.CurrentContext = s.clusters[0].config.context
	text, err := clientcmd.Write(*all)
	if err != nil {
		return fmt.Errorf("writing the kubeconfig of all clusters: %w", err)
	}
	if err := writeFile(s.state.Kubeconfig, text); err != nil {
		return err
	}
	if s.state.Copy == "" {
		return nil
	}
	return writeCopy(s.state.Copy, text)
}

// Cluster is the one of that name in the set; nil if there is none.
func (s *Set) Cluster(name string) *Cluster {
	i := slices.IndexFunc(s.clusters, func(c *Cluster) bool { return c.config.context == name })
	if i < 0 {
		return nil
	}
	return s.clusters[i]
}

// State is what the registry holds of the set.
func (s *Set) State() State { return s.state }

// Contexts returns the names of the clusters in the set, which are the contexts of its kubeconfig.
func (s *Set) Contexts() []string {
	var out []string
	for _, one := range s.config.Clusters {
		out = append(out, one.context)
	}
	return out
}

// Stop ends all clusters at once, each as its own Stop does. Stopping again does nothing and returns the same.
func (s *Set) Stop(ctx context.Context) error {
	s.stopOnce.Do(func() {
		if s.lock == nil {
			return // the name belongs to another sandbox
		}
		failures := make([]error, len(s.clusters))
		var group sync.WaitGroup
		for i, c := range s.clusters {
			group.Go(func() { failures[i] = c.Stop(ctx) })
		}
		group.Wait()
		s.stopErr = errors.Join(append(failures, s.config.Registry.leave(s.state, []lock{s.lock}))...)
	})
	return s.stopErr
}

// Members are the states of the clusters of a set that run now; of a sandbox that is no set, its own.
func (r Registry) Members(state State) ([]State, error) {
	if len(state.Clusters) == 0 {
		return []State{state}, nil
	}
	var out []State
	for _, name := range state.Clusters {
		member, err := r.Find(name)
		if errors.As(err, new(*NotRunningError)) {
			continue // not started yet
		}
		if err != nil {
			return nil, err
		}
		out = append(out, member)
	}
	return out, nil
}
