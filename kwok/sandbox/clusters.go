package sandbox

import (
	"fmt"

	"github.com/muster-dev/muster/kwok/cluster"
)

// Manager is the name of the cluster that jobs are given to, in a set of several.
const Manager = "manager"

// MostWorkers is how many clusters a MultiKueueConfig may name.
const MostWorkers = 20

// Worker is the name of a cluster that jobs run in; the first has the number 1.
func Worker(number int) string { return fmt.Sprintf("worker-%d", number) }

// Clusters are a manager and its workers, all as one cluster of the configuration would be; but nothing runs at the
// manager, so it has neither a scheduler nor machines, and no page has a cluster of its own.
func Clusters(config cluster.Config, workers int) cluster.SetConfig {
	set := cluster.SetConfig{
		Name: config.Name, DataDir: config.DataDir, Kubeconfig: config.Kubeconfig, Registry: config.Registry, Progress: config.Progress,
	}
	config.DataDir, config.Kubeconfig, config.Registry, config.Progress = "", "", cluster.Registry{}, nil
	config.Dashboard = false
	manager := config
	manager.Name, manager.Only = Manager, []string{cluster.Etcd, cluster.APIServer, cluster.ControllerManager, cluster.Muster}
	set.Clusters = []cluster.Config{manager}
	for number := range workers {
		worker := config
		worker.Name = Worker(number + 1)
		set.Clusters = append(set.Clusters, worker)
	}
	return set
}
