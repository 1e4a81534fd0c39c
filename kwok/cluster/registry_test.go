package cluster

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestNameIsClaimedOnce(t *testing.T) {
	r := NewRegistry(t.TempDir())
	lock, err := r.claim("lab")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.writeState(State{Name: "lab", PID: 4711}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.claim("lab"); err == nil || !strings.Contains(err.Error(), "process 4711") ||
		!strings.Contains(err.Error(), "down --name lab") {
		t.Errorf("second claim: %v, want an error that names the owner and says what to do", err)
	}
	other, err := r.claim("other")
	if err != nil {
		t.Errorf("another name beside it: %v", err)
	} else if err := other.release(); err != nil {
		t.Error(err)
	}
	if state, err := r.Find("lab"); err != nil || state.PID != 4711 {
		t.Errorf("Find = %v, %v, want the state of process 4711", state, err)
	}
	if err := lock.release(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(r.lockPath("lab")); err == nil {
		t.Error("the released lock was left behind")
	}
}

func TestLockIsOnTheFileAtItsPath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := lockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !isLocked(path) {
		t.Error("a held lock does not show")
	}
	if _, err := tryLockFile(path); !errors.Is(err, errLocked) {
		t.Errorf("second lock: %v, want errLocked", err)
	}
	if err := first.release(); err != nil {
		t.Fatal(err)
	}
	if isLocked(path) {
		t.Error("a released lock shows as held")
	}
	second, err := lockFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer second.release()
	if !isLocked(path) {
		t.Error("the lock after a release is on a file that is gone")
	}
}

func TestMissingSandboxNamesTheOthers(t *testing.T) {
	r := NewRegistry(t.TempDir())
	var missing *NotRunningError
	if _, err := r.Find("lab"); !errors.As(err, &missing) || !strings.Contains(err.Error(), "up --name lab") {
		t.Errorf("error %v, want one that says how to start it", err)
	}
	lock, err := r.claim("other")
	if err != nil {
		t.Fatal(err)
	}
	defer lock.release()
	if err := r.writeState(State{Name: "other"}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Find("lab"); !errors.As(err, &missing) || len(missing.Others) != 1 || missing.Others[0] != "other" {
		t.Errorf("error %v, want one that names the sandbox that runs", err)
	}
}

// A supervisor that was killed leaves a state file without a lock. On some systems its components live on.
func TestWhatAKilledSandboxLeftIsCleared(t *testing.T) {
	r := NewRegistry(t.TempDir())
	dir := t.TempDir()
	orphan := startScript(t, dir, Etcd)
	stranger := startScript(t, t.TempDir(), APIServer)
	temporary := filepath.Join(t.TempDir(), "memory")
	if err := os.MkdirAll(temporary, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(r.path("lab"), 0o700); err != nil {
		t.Fatal(err)
	}
	state := State{Name: "lab", Dir: dir, Temporary: []string{temporary}, Components: []ComponentState{
		{Name: Etcd, PID: orphan.Process.Pid},
		{Name: APIServer, PID: stranger.Process.Pid}, // its number was given to another process since
	}}
	if err := r.writeState(state); err != nil {
		t.Fatal(err)
	}

	var missing *NotRunningError
	if _, err := r.Find("lab"); !errors.As(err, &missing) || !missing.Cleared {
		t.Errorf("Find = %v, want an error that tells of the clearing", err)
	}
	if err := orphan.Wait(); err == nil || err.Error() != "signal: killed" {
		t.Errorf("the orphan ended with %v, want it killed", err)
	}
	if commandLine(stranger.Process.Pid) == nil {
		t.Error("a stranger was killed")
	}
	for _, path := range []string{temporary, r.statePath("lab"), r.lockPath("lab")} {
		if _, err := os.Stat(path); err == nil {
			t.Errorf("%s was left behind", path)
		}
	}
	if _, err := r.claim("lab"); err != nil {
		t.Errorf("the name cannot be used again: %v", err)
	}
}

// startScript starts a process that has the arguments of a component of the sandbox in dir and does nothing.
func startScript(t *testing.T, dir, component string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(writeScript(t, "while :; do sleep 0.05; done"), ComponentCommand, component, "--data-dir="+dir)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func writeScript(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	return path
}
