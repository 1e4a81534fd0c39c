// Command muster-dashboard serves a web page about a cluster: its pending jobs, its node
// groups and their costs. It reads the cluster with its own rights, decides by the code that
// Muster itself runs, and changes nothing.
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
