// Command kubectl-muster is the plugin `kubectl muster`: it explains why a job waits and
// what would unblock it, lists the queues, the node groups and their costs, and simulates.
// It reads the cluster with its caller's rights and decides by the code that Muster runs,
// so it answers while Muster is down. Jobs and queues are changed only by the commands for that.
//
// Package cmd/view reads and decides; the files here parse arguments and print the answers.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

func main() {
	// Without a logger a client prints a warning with its stack after half a minute, amid what --watch shows.
	log.SetLogger(logr.Discard())
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := newRootCommand(clock.RealClock{}).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
