package version

import (
	"bytes"
	"runtime/debug"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

func TestTheVersionIsThatOfTheReleaseOrTheCommit(t *testing.T) {
	at := func(version string, settings ...debug.BuildSetting) *debug.BuildInfo {
		return &debug.BuildInfo{GoVersion: "go1.26.8", Main: debug.Module{Version: version}, Settings: settings}
	}
	commit := debug.BuildSetting{Key: "vcs.revision", Value: "c0ffee"}
	for name, tc := range map[string]struct {
		release string
		info    *debug.BuildInfo
		want    Build
	}{
		"a release":              {"v1.2.3", at("v1.2.3-0.2026-c0ffee", commit), Build{"v1.2.3", "c0ffee", "go1.26.8"}},
		"a commit":               {"", at("v0.0.0-2026-c0ffee", commit), Build{"v0.0.0-2026-c0ffee", "c0ffee", "go1.26.8"}},
		"a commit, with changes": {"", at("v0.0.0-2026-c0ffee+dirty", commit, debug.BuildSetting{Key: "vcs.modified", Value: "true"}), Build{"v0.0.0-2026-c0ffee+dirty", "c0ffee-dirty", "go1.26.8"}},
		"a test":                 {"", at("(devel)"), Build{"unknown", "unknown", "go1.26.8"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, read(tc.release, tc.info)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestFlagAndCommandSayTheSame(t *testing.T) {
	var said [2]string
	for i, arg := range []string{"version", "--version"} {
		cmd := &cobra.Command{Use: "muster", RunE: func(*cobra.Command, []string) error { return nil }}
		AddTo(cmd)
		var out bytes.Buffer
		cmd.SetOut(&out)
		cmd.SetArgs([]string{arg})
		if err := cmd.Execute(); err != nil {
			t.Fatal(err)
		}
		said[i] = out.String()
	}
	if want := "muster " + Get().String() + "\n"; said[0] != want || said[1] != want {
		t.Errorf("`version` says %q, --version %q, want %q", said[0], said[1], want)
	}
}
