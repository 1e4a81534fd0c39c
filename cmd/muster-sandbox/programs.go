package main

import (
	"github.com/spf13/cobra"

	dashboard "github.com/muster-dev/muster/cmd/muster-dashboard/app"
	"github.com/muster-dev/muster/cmd/muster/app"
	"github.com/muster-dev/muster/cmd/muster/clouds"
	"github.com/muster-dev/muster/kwok/cloudsim/server"
	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/cluster/components"
	"github.com/muster-dev/muster/kwok/operators/standin"
)

// programs are the components by name: the cluster's, ours, and what stands in for the world of operators.
func programs() map[string]components.Program {
	all := components.Programs()
	all[cluster.Muster] = components.FromCommand(func() *cobra.Command { return app.NewCommand(clouds.Connect) })
	all[cluster.Standby], all[cluster.Dispatcher] = all[cluster.Muster], all[cluster.Muster]
	all[cluster.Dashboard] = components.FromCommand(dashboard.NewCommand)
	all[cluster.Clouds] = components.FromCommand(server.NewCommand)
	all[standin.RayDashboard] = components.FromCommand(standin.NewRayDashboardCommand)
	all[standin.SparkSubmit] = components.FromCommand(standin.NewSparkSubmitCommand)
	all[standin.SparkDrivers] = components.FromCommand(standin.NewSparkDriversCommand)
	return all
}
