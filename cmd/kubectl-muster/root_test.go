package main

import (
	"path/filepath"
	"strings"
	"testing"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// said is what a command prints.
func said(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out strings.Builder
	command := newRootCommand(clocktesting.NewFakeClock(noon))
	command.SetArgs(args)
	command.SetOut(&out)
	err := command.ExecuteContext(t.Context())
	return out.String(), err
}

// TestWithoutAKubeconfig no command tries localhost:8080, which is what kubectl's libraries do.
func TestWithoutAKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "config")
	t.Setenv("KUBECONFIG", file)
	for _, args := range [][]string{
		{"queue"}, {"explain", "job/train"}, {"cost"}, {"capacity"}, {"racks"}, {"clusters"}, {"simulate", "--without-zone", "a"},
	} {
		_, err := said(t, args...)
		if want := "no cluster is configured: there is none in " + file; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args[0], err, want)
		}
	}
	if _, err := said(t, "queue", "--server", "http://127.0.0.1:1"); err == nil || strings.Contains(err.Error(), "no cluster is configured") {
		t.Errorf("with a server: %v", err)
	}
}

// TestHelpLeavesOutTheFlagsOfAllCommands, which fill a screen, and names the command that lists them.
func TestHelpLeavesOutTheFlagsOfAllCommands(t *testing.T) {
	for _, c := range []struct{ command, names string }{
		{"", "options     List the flags of all commands"}, {"queue", "kubectl muster options"}, {"simulate", "kubectl muster options"},
	} {
		help, err := said(t, append(strings.Fields(c.command), "--help")...)
		if err != nil || strings.Contains(help, "--as-group") || !strings.Contains(help, c.names) {
			t.Errorf("%q (%v):\n%s", c.command, err, help)
		}
	}
	if help, _ := said(t, "simulate", "--help"); !strings.Contains(help, "--without-zone") {
		t.Errorf("its own flags are missing:\n%s", help)
	}
	flags, err := said(t, "options")
	if err != nil {
		t.Fatal(err)
	}
	lacks(t, flags, "--as-group", "--namespace", "--context", "--config")
}

func TestTheNamespaceOfAFlagHasToExist(t *testing.T) {
	p := pictureOf(nil)
	for name, want := range map[string]string{"": "", "default": "", "nosuch": `--namespace="nosuch": the cluster has no such namespace`} {
		o := &options{config: newConfigFlags()}
		o.config.Namespace = &name
		if err := o.given(p); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
}

func TestAClusterQueueIsExplained(t *testing.T) {
	for _, args := range [][]string{{"clusterqueue/team"}, {"cq", "team"}, {"ClusterQueues.kueue.x-k8s.io/team"}} {
		if name, ok := nameIn(clusterQueueNames, args); !ok || name != "team" {
			t.Errorf("%v names ClusterQueue %q: %t", args, name, ok)
		}
	}
	for _, args := range [][]string{{"team"}, {"job/team"}, {"cq/"}, {"cq"}} {
		if name, ok := nameIn(clusterQueueNames, args); ok {
			t.Errorf("%v names ClusterQueue %q", args, name)
		}
	}
	objects := []client.Object{flavor("h100"), capacity(), group("h100", 8, nil), team("team", checked, "h100=64"),
		running("big", "team", 6, nil), waiting("a", 4, nil), waiting("b", 4, nil), waiting("huge", 9, nil)}
	c := &fakeCluster{objects: objects}
	o := &options{config: newConfigFlags(), clock: clocktesting.NewFakeClock(noon)}
	a, err := o.explainClusterQueue(t.Context(), c.client(t), "default", "team")
	if err != nil {
		t.Fatal(err)
	}
	lacks(t, printed(t, a), "ClusterQueue team has 1 job admitted, and 3 wait.",
		"Jobs that wait\n- cannot start as specified: 1 job\n- waits for quota: 2 jobs", "- flavor h100: 48 of 64 nvidia.com/gpu")
	if _, err := o.explainClusterQueue(t.Context(), c.client(t), "default", "teem"); err == nil ||
		!strings.Contains(err.Error(), `ClusterQueue "teem" does not exist; those that do: team`) {
		t.Errorf("of one that is not there: %v", err)
	}
}
