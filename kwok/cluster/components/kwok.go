package components

import (
	"context"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/kwok/pkg/config"
	"sigs.k8s.io/kwok/pkg/kwok/cmd"
	"sigs.k8s.io/kwok/pkg/log"
	"sigs.k8s.io/kwok/pkg/utils/signals"

	"github.com/muster-dev/muster/kwok/driver"
)

// kwok reads its flags twice: once for the log and the configuration files, whose settings become the defaults of its
// command, and once for the command itself.
func kwok() int {
	early := pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	early.ParseErrorsAllowlist.UnknownFlags = true
	early.Usage = func() {}
	ctx, logger := log.InitFlags(signals.SetupSignalContext(), early)
	ctx, err := config.InitFlags(ctx, early)
	if err != nil {
		logger.Error("Read the configuration", "err", err)
		return 1
	}
	// The Kubernetes components leave a --version of another type here, on which KWOK's command would stumble.
	pflag.CommandLine = pflag.NewFlagSet("kwok", pflag.ContinueOnError)
	go publishDevices(ctx)
	command := cmd.NewCommand(ctx)
	command.PersistentFlags().AddFlagSet(early)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("Run", "err", err)
		return 1
	}
	return 0
}

// publishDevices simulates the DRA drivers of KWOK nodes, with KWOK's own credentials.
func publishDevices(ctx context.Context) {
	kubeconfig := ""
	for _, arg := range os.Args {
		if file, ok := strings.CutPrefix(arg, "--kubeconfig="); ok {
			kubeconfig = file
		}
	}
	access, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err == nil {
		access.QPS, access.Burst = -1, -1
		d := &driver.Driver{Client: kubernetes.NewForConfigOrDie(access), Clock: clock.RealClock{}}
		err = d.Run(ctx)
	}
	if err != nil {
		log.FromContext(ctx).Error("Publish devices", "err", err)
	}
}
