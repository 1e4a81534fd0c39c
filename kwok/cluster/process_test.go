package cluster

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"
)

const patience = 10 * time.Second

func TestKilledProcessIsStartedAgain(t *testing.T) {
	p := startProcess(t, "while :; do sleep 0.05; done")
	first := awaitPhase(t, p, Up)
	if err := p.send(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	second := await(t, p, func(s ComponentState) bool { return s.Phase == Up && s.PID != first.PID })
	if second.Restarts != 1 || second.LastExit != "signal: killed" {
		t.Errorf("restarts %d after %q, want 1 after a kill", second.Restarts, second.LastExit)
	}
}

func TestPausedProcessStaysDownUntilResumed(t *testing.T) {
	p := startProcess(t, "while :; do sleep 0.05; done")
	awaitPhase(t, p, Up)
	p.pause()
	if state := awaitPhase(t, p, Paused); state.PID != 0 || state.Restarts != 0 {
		t.Errorf("paused with process %d and %d restarts, want none of either", state.PID, state.Restarts)
	}
	if err := p.send(syscall.SIGKILL); !errors.Is(err, ErrNoProcess) {
		t.Errorf("killing what is down: %v", err)
	}
	p.resume()
	awaitPhase(t, p, Up)
}

func TestFrozenProcessGoesOnWhereItWas(t *testing.T) {
	p := startProcess(t, "trap 'exit 7' TERM; while :; do echo beat; sleep 0.01; done")
	first := awaitPhase(t, p, Up)
	beats := func() int {
		text, err := os.ReadFile(p.log)
		if err != nil {
			return 0
		}
		return len(text)
	}
	await(t, p, func(ComponentState) bool { return beats() > 0 })
	if err := p.send(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	// The signal takes effect a moment after it was sent.
	still := -1
	await(t, p, func(ComponentState) bool {
		before := still
		still = beats()
		time.Sleep(50 * time.Millisecond)
		return before == still && beats() == still
	})
	if err := p.send(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	await(t, p, func(ComponentState) bool { return beats() > still })
	if err := p.send(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	p.stop(context.Background(), patience)
	if state := p.state(); state.Restarts != 0 || state.LastExit != "exit status 7" || first.PID == 0 {
		t.Errorf("%d restarts, exit %q; want the first process to have heard that it should stop", state.Restarts, state.LastExit)
	}
}

func TestStopSignalsFirstAndKillsAfterTheGracePeriod(t *testing.T) {
	cases := map[string]struct {
		script string
		grace  time.Duration
		want   string
	}{
		"one that listens":     {script: "trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done", grace: patience, want: "exit status 7"},
		"one that is deaf":     {script: "trap '' TERM; echo up; while :; do sleep 0.05; done", grace: 100 * time.Millisecond, want: "signal: killed"},
		"one that just sleeps": {script: "echo up; while :; do sleep 0.05; done", grace: patience, want: "signal: terminated"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			p := startProcess(t, c.script)
			await(t, p, func(ComponentState) bool { text, _ := os.ReadFile(p.log); return len(text) > 0 })
			p.stop(context.Background(), c.grace)
			state := p.state()
			if state.Phase != Stopped || state.PID != 0 || state.LastExit != c.want {
				t.Errorf("phase %s, process %d, exit %q; want it stopped with %q", state.Phase, state.PID, state.LastExit, c.want)
			}
		})
	}
}

func TestStopDoesNotWaitForTheNextStart(t *testing.T) {
	p := startProcess(t, "exit 1")
	await(t, p, func(s ComponentState) bool { return s.Restarts >= 3 })
	began := time.Now()
	p.stop(context.Background(), patience)
	if took := time.Since(began); took > patience/2 {
		t.Errorf("stopping took %s", took)
	}
}

func TestComponentsAreShieldedFromTheEnvironment(t *testing.T) {
	got := childEnvironment([]string{"HOME=/root", "ETCD_DATA_DIR=/x", "KWOK_CONFIG=/x", "KUBECONFIG=/x", "AWS_PROFILE=mine",
		"GOOGLE_APPLICATION_CREDENTIALS=/x"}, "/data")
	if want := []string{"HOME=/root", "KWOK_WORKDIR=/data"}; !slices.Equal(got[:len(want)], want) ||
		slices.Contains(got, "AWS_PROFILE=mine") || !slices.Contains(got, "AWS_ACCESS_KEY_ID=sandbox") {
		t.Errorf("environment %v, want %v and credentials for simulated clouds alone", got, want)
	}
}

func startProcess(t *testing.T, script string) *process {
	t.Helper()
	spawn := newSpawner()
	dir := t.TempDir()
	program := writeScript(t, script)
	p := newProcess("test", spawn, filepath.Join(dir, "log"), func() *exec.Cmd { return exec.Command(program) })
	go p.run()
	t.Cleanup(func() {
		p.stop(context.Background(), 0)
		spawn.close()
	})
	return p
}

func awaitPhase(t *testing.T, p *process, want Phase) ComponentState {
	t.Helper()
	return await(t, p, func(s ComponentState) bool { return s.Phase == want })
}

// await polls until the state is as wanted. The processes are real, so no clock can be injected.
func await(t *testing.T, p *process, wanted func(ComponentState) bool) ComponentState {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		state := p.state()
		if wanted(state) {
			return state
		}
		if time.Now().After(deadline) {
			t.Fatalf("still %+v after %s", state, patience)
		}
	}
}
