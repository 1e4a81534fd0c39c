// Command muster is the manager: the provisioner of ProvisioningRequests and the
// queue admitter, in one process.
package main

import (
	"fmt"
	"os"

	"github.com/muster-dev/muster/cmd/muster/app"
)

func main() {
	if err := app.NewCommand().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "muster:", err)
		os.Exit(1)
	}
}
