package cluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// Cluster is a running sandbox, seen from its supervisor.
type Cluster struct {
	config    Config
	plan      plan
	rest      *rest.Config
	processes []*process // in start order
	spawn     *spawner
	progress  *progress
	locks     []lock
	proxies   []*http.Server

	// background is ended by endBackground at the stop; working counts what runs under it.
	background    context.Context
	endBackground context.CancelFunc
	working       sync.WaitGroup

	// started is the processes whose loop runs. It grows during the start only.
	startedMu sync.Mutex
	started   []*process

	stateMu sync.Mutex
	state   State

	stopOnce sync.Once
	stopErr  error
}

// Start starts a sandbox and returns when it is ready: all components serve, the manifests are installed, and pods can
// be made in the default namespace. ctx governs the start only; if it ends early, all that was started is killed.
// The caller must Stop what it started.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	c := &Cluster{
		config:   config,
		spawn:    newSpawner(),
		progress: &progress{started: time.Now(), out: config.Progress},
		state:    State{Name: config.Name},
	}
	c.background, c.endBackground = context.WithCancel(context.Background())
	if err := c.prepare(); err != nil {
		return nil, errors.Join(err, c.abort())
	}
	if err := c.launch(ctx); err != nil {
		return nil, errors.Join(err, c.abort())
	}
	return c, nil
}

// prepare does all that comes before the first process: locks, folders, ports, certificates, settings.
func (c *Cluster) prepare() error {
	if c.config.Kubeconfig != "" {
		if err := checkKubeconfigCopy(c.config.Kubeconfig); err != nil {
			return err
		}
	}
	if err := c.lock(); err != nil {
		return err
	}
	c.plan.selected, c.plan.audit, c.plan.webhook = c.config.Only, c.config.Audit, c.config.Webhook
	c.plan.controlPlaneFlags, c.plan.musterFlags = slices.Concat(c.config.ControlPlaneFlags, c.config.gates()), c.config.MusterFlags
	c.plan.gatedAPIs = c.config.gatedAPIs()
	c.plan.settings, c.plan.typeChecking = len(c.config.Settings) > 0 || c.plan.runs(Clouds), c.config.TypeChecking
	ports, lock, err := assignPorts(c.config.ports(), c.config.Port)
	if err != nil {
		return err
	}
	c.plan.ports, c.locks = ports, append(c.locks, lock)
	if err := c.placeFiles(); err != nil {
		return err
	}
	authority, err := prepareCertificates(c.plan.layout)
	if err != nil {
		return err
	}
	if err := c.openProxies(); err != nil {
		return err
	}
	if err := writeKubeconfigs(c.plan, authority); err != nil {
		return err
	}
	if c.rest, err = clientcmd.BuildConfigFromFlags("", c.Kubeconfig()); err != nil {
		return fmt.Errorf("reading the sandbox's kubeconfig: %w", err)
	}
	c.rest.QPS, c.rest.Burst = 2000, 4000
	if err := writeSettings(c.plan, c.config); err != nil {
		return err
	}
	if err := c.placeOperators(authority); err != nil {
		return err
	}
	for _, name := range c.plan.selected {
		c.addProcess(name)
	}
	for _, operator := range c.config.Operators {
		c.addProcess(operator.Name)
	}
	c.saveState()
	c.progress.step("folders, ports and certificates are there")
	return nil
}

// lock takes the name, and the data folder if it is one that stays.
func (c *Cluster) lock() error {
	lock, err := c.config.Registry.claim(c.config.Name)
	if err != nil {
		return err
	}
	c.locks = append(c.locks, lock)
	if c.config.DataDir == "" {
		return nil
	}
	if err := os.MkdirAll(c.config.DataDir, 0o700); err != nil {
		return fmt.Errorf("making the data folder (give one you may write to with --data-dir): %w", err)
	}
	lock, err = lockFile(filepath.Join(c.config.DataDir, "lock"))
	if errors.Is(err, errLocked) {
		return fmt.Errorf("the data in %s is in use by another sandbox: stop that one (see `muster-sandbox status --all`), or choose another "+
			"folder with --data-dir", c.config.DataDir)
	}
	if err != nil {
		return fmt.Errorf("taking the data folder (give one you may write to with --data-dir): %w", err)
	}
	c.locks = append(c.locks, lock)
	return nil
}

// placeFiles decides where all files are, records it for a later cleanup, and makes the folders.
func (c *Cluster) placeFiles() error {
	registered := c.config.Registry.path(c.config.Name)
	c.state = State{
		Name:    c.config.Name,
		PID:     os.Getpid(),
		Started: c.progress.started,
		Server:  c.plan.server(),
		Copy:    c.config.Kubeconfig,
		Set:     c.config.set,
	}
	if c.config.DataDir != "" {
		c.plan.layout = layout{dir: c.config.DataDir, logDir: filepath.Join(c.config.DataDir, "logs"),
			etcdDir: filepath.Join(c.config.DataDir, "etcd")}
	} else {
		// The logs of a start that failed outlive it, so they lie beside what goes at the end.
		dir := filepath.Join(registered, "data")
		if err := os.RemoveAll(dir); err != nil {
			return fmt.Errorf("clearing the data of an earlier sandbox: %w", err)
		}
		c.state.Temporary = []string{dir}
		c.plan.layout = layout{dir: dir, logDir: filepath.Join(registered, "logs"), etcdDir: filepath.Join(dir, "etcd")}
		if memory := memoryDir("muster-sandbox-" + c.config.Name + "-"); memory != "" {
			c.state.Temporary = append(c.state.Temporary, memory)
			c.plan.etcdDir = memory
		}
	}
	c.state.Dir = c.plan.dir
	c.state.Kubeconfig = c.plan.kubeconfig(admin)
	c.saveState()
	return c.plan.create()
}

func (c *Cluster) addProcess(name string) {
	component := c.plan.component(name)
	program, args := component.program, component.args(c.plan)
	if program == "" {
		program, args = c.config.Binary, append([]string{ComponentCommand, name}, args...)
	}
	p := newProcess(name, c.spawn, c.plan.log(name), func() *exec.Cmd {
		cmd := exec.Command(program, args...)
		if component.program != "" {
			cmd.Args[0] = name // by which it is found again
		}
		cmd.Dir = c.plan.dir
		cmd.Env = append(childEnvironment(os.Environ(), c.plan.dir), component.env...)
		cmd.SysProcAttr = childAttributes()
		return cmd
	})
	p.changed = c.saveState
	p.died = c.progress.line
	c.processes = append(c.processes, p)
}

// saveState brings the state file up to date. It is for other processes; if it cannot be written, the sandbox runs on.
func (c *Cluster) saveState() {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	c.state.Components = nil
	for _, p := range c.processes {
		state := p.state()
		state.Probe = c.plan.component(p.name).probe(c.plan)
		c.state.Components = append(c.state.Components, state)
	}
	_ = c.config.Registry.writeState(c.state)
}

// Kubeconfig is the path of the administrator's kubeconfig.
func (c *Cluster) Kubeconfig() string { return c.plan.kubeconfig(admin) }

// RESTConfig is for clients with the administrator's rights; the caller owns it. Its rate limit is high enough not to influence what a
// test measures.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.rest) }

// Kill ends a component as a crash would (SIGKILL). It is started again.
func (c *Cluster) Kill(component string) error {
	p, err := c.process(component)
	if err != nil {
		return err
	}
	return p.send(syscall.SIGKILL)
}

// Freeze stops a component where it is (SIGSTOP), until Thaw: it keeps its connections and does not answer. It takes
// effect a moment later.
func (c *Cluster) Freeze(component string) error {
	p, err := c.process(component)
	if err != nil {
		return err
	}
	return p.send(syscall.SIGSTOP)
}

// Thaw lets a component go on that was frozen.
func (c *Cluster) Thaw(component string) error {
	p, err := c.process(component)
	if err != nil {
		return err
	}
	return p.send(syscall.SIGCONT)
}

// Pause ends a component as a crash would and keeps it down until Resume.
func (c *Cluster) Pause(component string) error {
	p, err := c.process(component)
	if err != nil {
		return err
	}
	p.pause()
	return nil
}

// Resume starts a component that was paused. It does not wait until it serves; WaitReady does.
func (c *Cluster) Resume(component string) error {
	p, err := c.process(component)
	if err != nil {
		return err
	}
	p.resume()
	return nil
}

// WaitReady returns when the component says that it serves.
func (c *Cluster) WaitReady(ctx context.Context, component string) error {
	p, err := c.process(component)
	if err != nil {
		return err
	}
	return c.awaitReady(ctx, p)
}

// Logs is the path of a component's log, which goes on when the component is started again.
func (c *Cluster) Logs(component string) string { return c.plan.log(component) }

// AuditLog returns the path of the log of all writes, or "" if the configuration has none.
func (c *Cluster) AuditLog() string { return c.plan.auditLog() }

// MusterMetrics is where Muster serves its metrics, as an http URL.
func (c *Cluster) MusterMetrics() string {
	return "http://" + c.plan.address(musterMetrics) + "/metrics"
}

// StandbyMetrics is where the second Muster serves its metrics, as an http URL.
func (c *Cluster) StandbyMetrics() string {
	return "http://" + c.plan.address(standbyMetrics) + "/metrics"
}

// DashboardURL is where the page is; empty where it is not started.
func (c *Cluster) DashboardURL() string {
	if !c.plan.runs(Dashboard) {
		return ""
	}
	return "http://" + c.plan.address(Dashboard)
}

// MusterConfig is the file of muster's settings; empty where it has none beside its flags.
func (c *Cluster) MusterConfig() string {
	if !c.plan.settings {
		return ""
	}
	return c.plan.musterConfig()
}

// CloudsURL is the URL of the reports of the simulated clouds.
func (c *Cluster) CloudsURL() string { return "http://" + c.plan.address(Clouds) }

// State is what the registry holds of this sandbox.
func (c *Cluster) State() State {
	c.stateMu.Lock()
	defer c.stateMu.Unlock()
	state := c.state
	state.Components = slices.Clone(state.Components)
	return state
}

// Status reports of each component whether it runs and serves, and its memory.
func (c *Cluster) Status(ctx context.Context) []ComponentStatus { return c.State().Measure(ctx) }

func (c *Cluster) process(name string) (*process, error) {
	i := slices.IndexFunc(c.processes, func(p *process) bool { return p.name == name })
	if i < 0 {
		var names []string
		for _, p := range c.processes {
			names = append(names, p.name)
		}
		return nil, fmt.Errorf("this sandbox has no component %q: it has %v", name, names)
	}
	return c.processes[i], nil
}
