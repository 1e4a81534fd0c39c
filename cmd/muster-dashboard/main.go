// Command muster-dashboard serves a page about a cluster: who waits in its queues and
// until when, what machines could be had, and what all of it costs. It reads the cluster
// with rights of its own, decides by the code that Muster itself runs, and changes
// nothing.
package main

import (
	"fmt"
	"os"

	"github.com/muster-dev/muster/cmd/muster-dashboard/app"
)

func main() {
	if err := app.NewCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "muster-dashboard:", err)
		os.Exit(1)
	}
}
