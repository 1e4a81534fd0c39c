package main

import (
	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/cluster/components"
)

// programs are the components by name: the cluster's, and ours.
func programs() map[string]components.Program {
	all := components.Programs()
	all[cluster.Muster] = components.FromCommand(app.NewCommand)
	return all
}
