package main

import (
	"fmt"
	"os"
)

// runComponent is how the supervisor starts its children: this program, run again as one of them. args are the
// component's name and its own arguments.
func runComponent(args []string) int {
	if len(args) == 0 {
		fmt.Fprintln(os.Stderr, "muster-sandbox: the component is missing; to start some components, use `muster-sandbox up --only LIST`")
		return 1
	}
	program, ok := programs()[args[0]]
	if !ok {
		fmt.Fprintf(os.Stderr, "muster-sandbox: unknown component %q\n", args[0])
		return 1
	}
	os.Args = args
	return program()
}
