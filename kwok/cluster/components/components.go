// Package components holds the programs that make up a sandbox's cluster: etcd, the Kubernetes control plane and the
// KWOK controller, each as its own project's main function would run it. Only the command muster-sandbox imports this
// package, since it brings all of Kubernetes with it.
package components

import (
	"os"
	_ "time/tzdata" // the time zones of CronJobs, for machines that have none installed

	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // metrics of the API clients
	_ "k8s.io/component-base/metrics/prometheus/version"  // the build_info metric
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Program runs until a signal stops it, and returns the exit code. Its arguments are in os.Args, where etcd and KWOK read them.
type Program func() int

// Programs returns the programs by component name.
func Programs() map[string]Program {
	return map[string]Program{
		"etcd":                    etcd,
		"kube-apiserver":          FromCommand(apiserver.NewAPIServerCommand),
		"kube-controller-manager": FromCommand(controllermanager.NewControllerManagerCommand),
		"kube-scheduler":          FromCommand(func() *cobra.Command { return scheduler.NewSchedulerCommand() }),
		"kwok":                    kwok,
	}
}

// FromCommand makes a program of a command. The command is made only when it runs, since making it sets up the global
// flags and feature gates of its process.
func FromCommand(newCommand func() *cobra.Command) Program {
	return func() int { return cli.Run(newCommand()) }
}

func etcd() int {
	etcdmain.Main(os.Args)
	return 0
}
