// Command kubectl-muster is the plugin `kubectl muster`: it tells why a job waits, what
// would unblock it, who is in the queues and what machines can be had. It reads the
// cluster with its caller's own rights and decides by the very code that Muster runs,
// so it answers while Muster is down, and changes nothing.
//
// picture.go decides, and the files explain_*.go put it in words: objects and a time go
// in, an answer comes out. read.go reads the cluster for them.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"k8s.io/utils/clock"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := newRootCommand(clock.RealClock{}).ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
