// Command muster is the manager: the provisioner of ProvisioningRequests and the
// queue admitter, in one process.
package main

import (
	"fmt"
	"os"

	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/cmd/muster/clouds"
)

func main() {
	if err := app.NewCommand(clouds.Connect).Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "muster:", err)
		os.Exit(1)
	}
}
