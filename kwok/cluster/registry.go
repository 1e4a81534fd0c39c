package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// HomeVariable is the environment variable that moves the default registry to another folder.
const HomeVariable = "MUSTER_SANDBOX_HOME"

// Registry is the folder in which running sandboxes are recorded, one folder below it for each name.
type Registry struct{ dir string }

// NewRegistry returns the registry in a folder, which is made when first needed.
func NewRegistry(dir string) Registry { return Registry{dir: dir} }

// DefaultRegistry is in the folder that $MUSTER_SANDBOX_HOME names, else in the user's cache folder.
func DefaultRegistry() (Registry, error) {
	if home := os.Getenv(HomeVariable); home != "" {
		absolute, err := filepath.Abs(home)
		if err != nil {
			return Registry{}, fmt.Errorf("resolving $%s: %w", HomeVariable, err)
		}
		return NewRegistry(absolute), nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return Registry{}, fmt.Errorf("finding a folder to record running sandboxes in (set $%s to one): %w", HomeVariable, err)
	}
	return NewRegistry(filepath.Join(cache, "muster-sandbox")), nil
}

func (r Registry) orDefault() (Registry, error) {
	if r.dir == "" {
		return DefaultRegistry()
	}
	return r, nil
}

func (r Registry) path(name string) string      { return filepath.Join(r.dir, name) }
func (r Registry) lockPath(name string) string  { return filepath.Join(r.dir, name, "lock") }
func (r Registry) statePath(name string) string { return filepath.Join(r.dir, name, "state.json") }

// NotRunningError says that no sandbox of that name runs.
type NotRunningError struct {
	Name string

	// Others are the names of the sandboxes that do run.
	Others []string

	// Cleared is set if one of that name had been killed, and what it left was cleared away just now.
	Cleared bool
}

func (e *NotRunningError) Error() string {
	text := fmt.Sprintf("no sandbox named %q is running", e.Name)
	if e.Cleared {
		text += " (one was killed; what it left behind has been cleared away)"
	}
	if len(e.Others) > 0 {
		return text + "; choose one that is with --name: " + strings.Join(e.Others, ", ")
	}
	if e.Name == DefaultName {
		return text + ": start one with `muster-sandbox up`"
	}
	return text + ": start it with `muster-sandbox up --name " + e.Name + "`"
}

// Find returns the state of the running sandbox of that name, or a *NotRunningError.
func (r Registry) Find(name string) (State, error) {
	if !validName.MatchString(name) {
		return State{}, &NotRunningError{Name: name}
	}
	cleared, err := r.clearIfStale(name)
	if err != nil {
		return State{}, err
	}
	if isLocked(r.lockPath(name)) {
		return r.readState(name)
	}
	missing := &NotRunningError{Name: name, Cleared: cleared}
	states, err := r.List()
	for _, state := range states {
		missing.Others = append(missing.Others, state.Name)
	}
	return State{}, errors.Join(missing, err)
}

// List returns the states of all running sandboxes, in the order of their names.
func (r Registry) List() ([]State, error) {
	entries, err := os.ReadDir(r.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading the list of running sandboxes: %w", err)
	}
	var states []State
	for _, entry := range entries {
		if !isLocked(r.lockPath(entry.Name())) {
			continue
		}
		if state, err := r.readState(entry.Name()); err == nil {
			states = append(states, state)
		}
	}
	return states, nil
}

func (r Registry) readState(name string) (State, error) {
	text, err := os.ReadFile(r.statePath(name))
	if errors.Is(err, fs.ErrNotExist) {
		return State{}, fmt.Errorf("the sandbox %q is only just starting or already stopping: try again in a moment", name)
	}
	if err != nil {
		return State{}, fmt.Errorf("reading the state of the sandbox %q: %w", name, err)
	}
	var state State
	if err := json.Unmarshal(text, &state); err != nil {
		return State{}, fmt.Errorf("reading the state of the sandbox %q: %w", name, err)
	}
	return state, nil
}

// claim locks the name until the lock is released.
func (r Registry) claim(name string) (*fileLock, error) {
	r.clearAllStale()
	if err := os.MkdirAll(r.path(name), 0o700); err != nil {
		return nil, fmt.Errorf("making a folder to record the sandbox in (set $%s to one you may write to): %w", HomeVariable, err)
	}
	lock, err := lockFile(r.lockPath(name))
	if errors.Is(err, errLocked) {
		return nil, r.nameTaken(name)
	}
	if err != nil {
		return nil, fmt.Errorf("recording the sandbox (set $%s to a folder you may write to): %w", HomeVariable, err)
	}
	return lock, nil
}

func (r Registry) nameTaken(name string) error {
	owner := ""
	if state, err := r.readState(name); err == nil {
		owner = fmt.Sprintf(" (process %d)", state.PID)
	}
	return fmt.Errorf("a sandbox named %q is already running%s: use it, stop it with `muster-sandbox down --name %s`, or start another "+
		"beside it with --name OTHER",
		name, owner, name)
}

// clearAllStale clears what killed sandboxes of any name left. What cannot be cleared now is met again by the next.
func (r Registry) clearAllStale() {
	entries, _ := os.ReadDir(r.dir)
	for _, entry := range entries {
		_, _ = r.clearIfStale(entry.Name())
	}
}

// clearIfStale removes the state of a sandbox whose supervisor is gone, with the processes and files that it left, and
// reports whether there was one.
func (r Registry) clearIfStale(name string) (bool, error) {
	if _, err := os.Stat(r.statePath(name)); err != nil {
		return false, nil
	}
	lock, err := tryLockFile(r.lockPath(name))
	if errors.Is(err, errLocked) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("clearing what a killed sandbox left: %w", err)
	}
	defer lock.release()
	state, err := r.readState(name)
	if err != nil {
		// Its owner has stopped it since the check, or the file is unusable.
		return false, os.RemoveAll(r.statePath(name))
	}
	for _, member := range state.Clusters {
		if _, err := r.clearIfStale(member); err != nil {
			return true, err
		}
	}
	for _, component := range state.Components {
		if component.PID > 0 && isComponent(component.PID, component.Name, state.Dir) {
			_ = syscall.Kill(component.PID, syscall.SIGKILL)
		}
	}
	if state.Copy != "" {
		removeKubeconfigCopy(state.Copy, state.Server)
	}
	for _, path := range append(state.Temporary, r.statePath(name)) {
		if err := os.RemoveAll(path); err != nil {
			return true, fmt.Errorf("clearing what a killed sandbox left: %w", err)
		}
	}
	return true, nil
}
