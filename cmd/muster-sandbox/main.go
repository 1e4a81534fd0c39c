// Command muster-sandbox is a whole Kubernetes cluster with simulated machines and muster on one machine, in one
// program and without containers. Its parts live in kwok/cluster; here are the commands.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/muster-dev/muster/kwok/cluster"
)

func main() {
	if len(os.Args) > 1 && os.Args[1] == cluster.ComponentCommand {
		os.Exit(runComponent(os.Args[2:]))
	}
	// The Kubernetes components leave flags of theirs here, which every command would offer as its own.
	pflag.CommandLine = pflag.NewFlagSet(os.Args[0], pflag.ExitOnError)
	log.SetLogger(logr.Discard()) // the commands report by what they print
	err := newRootCommand().Execute()
	var code exitCode
	switch {
	case errors.As(err, &code):
		os.Exit(int(code))
	case err != nil:
		fmt.Fprintln(os.Stderr, "muster-sandbox:", err)
		os.Exit(1)
	}
}

// exitCode is the end of a command that has already said what there is to say.
type exitCode int

func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }
