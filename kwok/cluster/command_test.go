package cluster_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/kwok/cluster"
)

// upCommand is a running `muster-sandbox up` with a registry of its own.
type upCommand struct {
	t     *testing.T
	cmd   *exec.Cmd
	home  string
	log   string
	ended chan error
}

func startCommand(t *testing.T, home string, only ...string) *upCommand {
	t.Helper()
	up := &upCommand{t: t, home: home, log: filepath.Join(t.TempDir(), "up.log"), ended: make(chan error, 1)}
	log, err := os.Create(up.log)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	up.cmd = exec.Command(binary(t), "up", "--only", strings.Join(only, ","))
	up.cmd.Env = append(os.Environ(), cluster.HomeVariable+"="+home)
	up.cmd.Stdout, up.cmd.Stderr = log, log
	if err := up.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { up.ended <- up.cmd.Wait() }()
	t.Cleanup(func() { _ = up.cmd.Process.Kill() })
	return up
}

func (u *upCommand) registry() cluster.Registry { return cluster.NewRegistry(u.home) }

func (u *upCommand) output() string {
	text, err := os.ReadFile(u.log)
	if err != nil {
		u.t.Fatal(err)
	}
	return string(text)
}

func (u *upCommand) awaitLine(part string) {
	u.t.Helper()
	for deadline := time.Now().Add(soon); !strings.Contains(u.output(), part); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			u.t.Fatalf("no line with %q within %s:\n%s", part, soon, u.output())
		}
	}
}

// children are the processes of the components that run now.
func (u *upCommand) children() []int {
	u.t.Helper()
	state, err := u.registry().Find(cluster.DefaultName)
	if err != nil {
		u.t.Fatal(err)
	}
	var pids []int
	for _, component := range state.Components {
		if component.PID != 0 {
			pids = append(pids, component.PID)
		}
	}
	return pids
}

func (u *upCommand) wait() error {
	u.t.Helper()
	select {
	case err := <-u.ended:
		return err
	case <-time.After(soon):
		u.t.Fatalf("still running after %s:\n%s", soon, u.output())
		return nil
	}
}
