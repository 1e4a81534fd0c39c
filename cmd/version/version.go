// Package version reports which build a program is.
package version

import (
	"cmp"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/muster-dev/muster/cmd/arguments"
)

// release is set by the linker, to the tag that a release is built from:
// -X github.com/muster-dev/muster/cmd/version.release=v1.2.3.
var release string

// Build is what a program was built from.
type Build struct {
	// Version is the tag of a release. Between releases it is the version that Go derives from
	// the last tag and the commit, or "unknown" where the sources were no repository.
	Version string
	// Revision is the commit, with the suffix -dirty if the sources had been changed since.
	Revision string
	// Go is the version of the compiler.
	Go string
}

// Get returns the build of the program that runs.
func Get() Build {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{}
	}
	return read(release, info)
}

func read(release string, info *debug.BuildInfo) Build {
	out := Build{Version: release, Go: cmp.Or(info.GoVersion, runtime.Version())}
	if v := info.Main.Version; out.Version == "" && v != "(devel)" {
		out.Version = v
	}
	out.Version = cmp.Or(out.Version, "unknown")
	settings := map[string]string{}
	for _, s := range info.Settings {
		settings[s.Key] = s.Value
	}
	out.Revision = cmp.Or(settings["vcs.revision"], "unknown")
	if settings["vcs.modified"] == "true" {
		out.Revision += "-dirty"
	}
	return out
}

func (b Build) String() string {
	return fmt.Sprintf("%s (commit %s, %s)", b.Version, b.Revision, b.Go)
}

// AddTo gives a command the flag --version and the subcommand version. The flag is not cobra's
// own, which cannot be beside that of Kubernetes' components in one program, as the sandbox is.
func AddTo(cmd *cobra.Command) {
	tell := func() { fmt.Fprintln(cmd.OutOrStdout(), cmd.DisplayName(), Get()) }
	asked := cmd.Flags().Bool("version", false, "print the version and exit")
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *asked {
			tell()
			return nil
		}
		return run(cmd, args)
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  arguments.None,
		Run:   func(*cobra.Command, []string) { tell() },
	})
}
