package arguments

import (
	"io"
	"testing"

	"github.com/spf13/cobra"
)

func TestWhatIsWrongWithArguments(t *testing.T) {
	run := func(*cobra.Command, []string) error { return nil }
	for _, tt := range []struct {
		args []string
		want string
	}{
		{args: nil},
		{args: []string{"list"}},
		{args: []string{"show", "mine"}},
		{args: []string{"lits"}, want: "\"lits\" is no command of `tool`; did you mean list?\nSee `tool --help`"},
		{args: []string{"other"}, want: "\"other\" is no command of `tool`\nSee `tool --help`"},
		{args: []string{"list", "all", "now"}, want: "`tool list` takes no arguments, and got \"all now\"\nSee `tool list --help`"},
		{args: []string{"show"}, want: "`tool show` takes the name of a scenario, and got 0 arguments\nSee `tool show --help`"},
		{args: []string{"compare", "a"}, want: "`tool compare` takes a report before and one after, and got 1 argument\nSee `tool compare --help`"},
	} {
		root := &cobra.Command{Use: "tool", Args: Of, RunE: run, SilenceErrors: true, SilenceUsage: true}
		root.AddCommand(
			&cobra.Command{Use: "list", Args: None, RunE: run},
			&cobra.Command{Use: "show", Args: These("the name of a scenario"), RunE: run},
			&cobra.Command{Use: "compare", Args: These("a report before", "one after"), RunE: run},
		)
		root.SetArgs(append([]string{}, tt.args...))
		root.SetOut(io.Discard)
		got := ""
		if err := root.Execute(); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%q: %s, want %s", tt.args, got, tt.want)
		}
	}
}
