package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// ComponentCommand is the hidden command of the sandbox binary that becomes the component named by its first argument.
const ComponentCommand = "component"

const (
	// A component that died comes back after firstPause; each further death soon after doubles the wait, to longestPause.
	firstPause   = 100 * time.Millisecond
	longestPause = 5 * time.Second

	// A process that lived this long is no longer taken to fail at its start.
	settled = 10 * time.Second
)

// process keeps one component running: whenever its process ends, another is started, until it is stopped.
type process struct {
	name  string
	cmd   func() *exec.Cmd
	spawn *spawner
	log   string

	// changed is called after each change of the state, and died with a line for people when a process ended by itself.
	changed func()
	died    func(string)

	mu       sync.Mutex
	phase    Phase
	wanted   Phase // Up, Paused or Stopped
	running  *exec.Cmd
	exited   chan struct{} // closed when running has ended
	restarts int
	lastExit string

	// nudge wakes the loop when wanted has changed. It has room for one, since one is enough.
	nudge chan struct{}

	// done is closed when the loop has ended and no process is left.
	done chan struct{}
}

// newProcess describes a component without starting it.
func newProcess(name string, spawn *spawner, log string, cmd func() *exec.Cmd) *process {
	return &process{
		name:    name,
		cmd:     cmd,
		spawn:   spawn,
		log:     log,
		changed: func() {},
		died:    func(string) {},
		phase:   Starting,
		wanted:  Up,
		nudge:   make(chan struct{}, 1),
		done:    make(chan struct{}),
	}
}

// childEnvironment drops variables that would change a component: etcd and KWOK read every setting from the environment too, and KWOK
// reads a file in the user's home unless another folder is set. It also drops credentials of real clouds; a sandbox has those of the
// simulated clouds.
func childEnvironment(environment []string, dir string) []string {
	kept := slices.DeleteFunc(slices.Clone(environment), func(entry string) bool {
		return slices.ContainsFunc([]string{"ETCD_", "KWOK_", "KUBE", "AWS_", "GOOGLE_"}, func(prefix string) bool {
			return strings.HasPrefix(entry, prefix)
		})
	})
	return append(kept, "KWOK_WORKDIR="+dir,
		"AWS_ACCESS_KEY_ID=sandbox", "AWS_SECRET_ACCESS_KEY=sandbox", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE="+os.DevNull, "AWS_SHARED_CREDENTIALS_FILE="+os.DevNull)
}

// isComponent reports whether a process is that component of the sandbox in dir, and not another process that got its number.
func isComponent(pid int, name, dir string) bool {
	args := commandLine(pid)
	i := slices.Index(args, ComponentCommand)
	isOwn := i >= 0 && i+1 < len(args) && args[i+1] == name
	isOperator := len(args) > 0 && args[0] == name
	return (isOwn || isOperator) && strings.Contains(strings.Join(args, " "), dir)
}

// run starts the component and keeps it running until stop. It is called once.
func (p *process) run() {
	defer close(p.done)
	pause := firstPause
	for p.await() {
		started := time.Now()
		err := p.runOnce()
		if !p.ended(err) {
			continue
		}
		if time.Since(started) > settled {
			pause = firstPause
		}
		select {
		case <-time.After(pause):
		case <-p.nudge:
		}
		pause = min(2*pause, longestPause)
	}
}

// await returns true when a process is wanted, and false when none will be again.
func (p *process) await() bool {
	for {
		p.mu.Lock()
		wanted := p.wanted
		if wanted != Up {
			p.phase = wanted
		}
		p.mu.Unlock()
		switch wanted {
		case Up:
			return true
		case Stopped:
			p.changed()
			return false
		}
		p.changed()
		<-p.nudge
	}
}

// ErrNoProcess says that a component is down, so that nothing can be done to its process.
var ErrNoProcess = errors.New("no process runs")

// errUnwanted says that no process was started, since none is wanted any more.
var errUnwanted = errors.New("not wanted")

// runOnce starts a process and returns when it has ended.
func (p *process) runOnce() error {
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening its log: %w", err)
	}
	defer log.Close()
	cmd := p.cmd()
	cmd.Stdout, cmd.Stderr = log, log

	// Under the lock, so that a change of wanted is either seen here or sees the process.
	p.mu.Lock()
	if p.wanted != Up {
		p.mu.Unlock()
		return errUnwanted
	}
	err = p.spawn.start(cmd)
	if err == nil {
		p.running, p.exited, p.phase = cmd, make(chan struct{}), Up
	}
	p.mu.Unlock()
	if err != nil {
		return fmt.Errorf("starting it: %w", err)
	}
	p.changed()
	err = cmd.Wait()
	if err == nil {
		return errors.New("ended by itself")
	}
	return err
}

// ended notes the end of a process and reports whether it was unexpected.
func (p *process) ended(err error) bool {
	if errors.Is(err, errUnwanted) {
		return false
	}
	p.mu.Lock()
	if p.running != nil {
		p.running = nil
		close(p.exited)
	}
	unasked := p.wanted == Up
	p.phase = p.wanted
	if unasked {
		p.phase = Restarting
		p.restarts++
	}
	p.lastExit = err.Error()
	p.mu.Unlock()
	p.changed()
	if unasked {
		p.died(fmt.Sprintf("%s died (%v) and is started again; its log is %s", p.name, err, p.log))
	}
	return unasked
}

// want sets what is wanted and sends the running process a signal if that is not to be up. It returns at once.
func (p *process) want(wanted Phase, signal syscall.Signal) {
	p.mu.Lock()
	if p.wanted != Stopped {
		p.wanted = wanted
	}
	if wanted != Up && p.running != nil {
		_ = p.running.Process.Signal(signal)          // it may have ended just now
		_ = p.running.Process.Signal(syscall.SIGCONT) // one that is frozen hears nothing
	}
	p.mu.Unlock()
	select {
	case p.nudge <- struct{}{}:
	default:
	}
}

// send sends the running process a signal and leaves wanted as it is: a process that dies of it is restarted.
func (p *process) send(signal syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.running == nil {
		return fmt.Errorf("%s: %w: it is %s", p.name, ErrNoProcess, p.phase)
	}
	if err := p.running.Process.Signal(signal); err != nil {
		return fmt.Errorf("sending %s to %s: %w", signal, p.name, err)
	}
	return nil
}

// pause ends the process as a crash would and keeps the component down until resume. It returns when it is down.
func (p *process) pause() {
	p.want(Paused, syscall.SIGKILL)
	p.mu.Lock()
	running, exited := p.running, p.exited
	p.mu.Unlock()
	if running != nil {
		<-exited
		p.changed() // the end may be recorded and not announced yet
	}
}

// resume ends a pause.
func (p *process) resume() { p.want(Up, 0) }

// stop ends the component for good: it sends a signal, and kills after the grace period, or once ctx is done.
func (p *process) stop(ctx context.Context, grace time.Duration) {
	p.want(Stopped, syscall.SIGTERM)
	select {
	case <-p.done:
		return
	case <-time.After(grace):
	case <-ctx.Done():
	}
	p.want(Stopped, syscall.SIGKILL)
	<-p.done
}

func (p *process) state() ComponentState {
	p.mu.Lock()
	defer p.mu.Unlock()
	state := ComponentState{Name: p.name, Phase: p.phase, Restarts: p.restarts, LastExit: p.lastExit, Log: p.log}
	if p.running != nil {
		state.PID = p.running.Process.Pid
	}
	return state
}
