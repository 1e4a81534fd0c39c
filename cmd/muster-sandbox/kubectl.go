package main

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // for kubeconfigs that the user gives
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlplugin "k8s.io/kubectl/pkg/cmd/plugin"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
)

func newKubectlCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "kubectl [ARGUMENTS]",
		Short: "Run the built-in kubectl on a running sandbox",
		Long: `Run the built-in kubectl with the administrator's kubeconfig of a running sandbox. All
arguments after "kubectl" are passed on, but a --name that comes first. With --kubeconfig
among them it works on any other cluster.`,
		Example: `  muster-sandbox kubectl get nodes
  muster-sandbox --name lab kubectl apply -f job.yaml`,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			args = o.takeName(args)
			if needsCluster(args) {
				state, err := o.find()
				if err != nil {
					return err
				}
				if err := os.Setenv("KUBECONFIG", state.Kubeconfig); err != nil {
					return err
				}
			}
			return runKubectl(args)
		},
	}
}

// takeName sets the sandbox's name if it is the first argument, and returns the others. kubectl has no flag --name before its command.
func (o *options) takeName(args []string) []string {
	if len(args) > 1 && args[0] == "--name" {
		o.name = args[1]
		return args[2:]
	}
	if len(args) > 0 && strings.HasPrefix(args[0], "--name=") {
		o.name = strings.TrimPrefix(args[0], "--name=")
		return args[1:]
	}
	return args
}

// needsCluster is false for calls that bring a kubeconfig of their own, that only ask kubectl about itself, or that only
// put manifests together.
func needsCluster(args []string) bool {
	if len(args) == 0 || args[0] == "help" || args[0] == "kustomize" || strings.HasPrefix(args[0], "__complete") {
		return false
	}
	return !slices.ContainsFunc(args, func(arg string) bool {
		name, _, _ := strings.Cut(arg, "=")
		return name == "--kubeconfig" || name == "--help" || name == "-h" || name == "--client"
	})
}

// runKubectl does not return if kubectl fails: it prints its errors in its own way, and exits with its own codes.
func runKubectl(args []string) error {
	// kubectl reads the arguments of the process to find plugins and its verbosity.
	os.Args = append([]string{"kubectl"}, args...)
	command := kubectl.NewDefaultKubectlCommandWithArgs(kubectl.KubectlOptions{
		PluginHandler: kubectl.NewDefaultPluginHandler(kubectlplugin.ValidPluginFilenamePrefixes),
		Arguments:     os.Args,
		IOStreams:     genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr},
	})
	if err := cli.RunNoErrOutput(command); err != nil {
		kubectlutil.CheckErr(err)
	}
	return nil
}
