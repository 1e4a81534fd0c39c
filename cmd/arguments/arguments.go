// Package arguments checks the arguments of commands: what is wrong with them is said with what helps.
package arguments

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// None is for commands that take only flags.
func None(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return fmt.Errorf("`%s` takes no arguments, and got %q\nSee `%[1]s --help`", command.CommandPath(), strings.Join(args, " "))
}

// These are for commands that take as many arguments as are named.
func These(names ...string) cobra.PositionalArgs {
	return func(command *cobra.Command, args []string) error {
		if len(args) == len(names) {
			return nil
		}
		wants := strings.Join(names, " and ")
		return fmt.Errorf("`%s` takes %s, and got %s\nSee `%[1]s --help`", command.CommandPath(), wants, counted(len(args)))
	}
}

// Of a command that has others it says which of those was meant, maybe.
func Of(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	meant := ""
	if command.SuggestionsMinimumDistance <= 0 {
		command.SuggestionsMinimumDistance = 2
	}
	if likely := command.SuggestionsFor(args[0]); len(likely) > 0 {
		meant = fmt.Sprintf("; did you mean %s?", strings.Join(likely, " or "))
	}
	return fmt.Errorf("%q is no command of `%s`%s\nSee `%[2]s --help`", args[0], command.CommandPath(), meant)
}

func counted(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return fmt.Sprintf("%d arguments", n)
}
