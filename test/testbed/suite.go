package testbed

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"testing"

	"github.com/muster-dev/muster/test/invariants/promises"
	"github.com/muster-dev/muster/test/pressure"
)

// The variables that name the programs that tests run; `make test` builds and sets them.
const (
	SandboxVariable = "MUSTER_SANDBOX_BIN"
	KueueVariable   = "MUSTER_KUEUE_BIN"
)

// Suite is the tests of a package that share a cluster.
type Suite struct {
	// Parallel, if set, is how many tests run at a time where -parallel does not say: they wait for
	// much of their time, so it may be more than there are cores.
	Parallel int
	// Programs are the variables without which the tests are skipped.
	Programs []string
	// Start starts the cluster, whose files are in dir, and watches its promises.
	Start func(ctx context.Context, dir string) (*Cluster, error)
	// Stop, if set, stops what Start has started beside the cluster, and returns its log.
	Stop func() (log string)
	// Needed are the checks that a run of all tests must have had something to judge by.
	Needed []promises.Check
}

// Run is for a TestMain: it runs the tests, judges the promises, and keeps the logs where anything failed.
func (s Suite) Run(m *testing.M) (code int) {
	for _, v := range s.Programs {
		if os.Getenv(v) == "" {
			fmt.Printf("SKIP: %s does not name a program: run `make test` or `make test-more`, which build it\n", v) //nolint:forbidigo // a test's own output
			return 0
		}
	}
	failed := func(err error) bool {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
		return err != nil
	}
	// The command line is read later, when the tests run.
	if s.Parallel > 0 && failed(flag.Set("test.parallel", strconv.Itoa(s.Parallel))) {
		return code
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "muster-tests-")
	if failed(err) {
		return code
	}
	defer func() { failed(os.RemoveAll(dir)) }()
	c, err := s.Start(ctx, dir)
	if c != nil {
		defer func() { failed(c.Stop(context.Background())) }()
	}
	if failed(err) {
		return code
	}
	code = m.Run()
	var logs []string
	if s.Stop != nil {
		logs = append(logs, s.Stop())
	}
	c.Watcher.Stop()
	if flag.Lookup("test.run").Value.String() != "" {
		s.Needed = nil
	}
	c.Watcher.Check(findings{&code}, s.Needed...)
	fmt.Fprintln(os.Stderr, "Promises watched:", c.Watcher.Stats())
	fmt.Fprintln(os.Stderr, "Machine:", pressure.Shared())
	if code != 0 {
		Tail(logs...)
		c.Keep(findings{&code}, "suite")
	}
	return code
}

// findings prints what the watch finds once all tests are over.
type findings struct{ code *int }

func (findings) Helper() {}

func (findings) Logf(format string, args ...any) { fmt.Fprintf(os.Stderr, format+"\n", args...) }

func (f findings) Errorf(format string, args ...any) {
	*f.code = 1
	fmt.Fprintf(os.Stderr, format+"\n", args...)
}
