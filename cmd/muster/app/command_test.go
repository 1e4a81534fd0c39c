package app

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestFlagsThatCannotBeMeantAreRefusedWithAFix(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		want string
	}{
		{"a half that muster does not have", []string{"--controllers", "provisioning,scheduling"}, `no half "scheduling"; choose among provisioning, queueing`},
		{"nothing to run", []string{"--controllers", ""}, "name at least one of provisioning, queueing"},
		{"a class that nobody serves", []string{"--provisioning-classes", "queued-provisioning.gke.io"}, `"queued-provisioning.gke.io" is no class that muster can serve`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := NewCommand()
			c.SetArgs(append(tc.args, "--kubeconfig", filepath.Join(t.TempDir(), "none")))
			if err := c.Execute(); err == nil || !strings.HasPrefix(err.Error(), tc.args[0]+": ") || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("muster %s: %v; want an error that begins with the flag and says %q", strings.Join(tc.args, " "), err, tc.want)
			}
		})
	}
}
