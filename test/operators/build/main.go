// Command build builds the operators that a sandbox can run and prints the names of those that it has, in the format of MUSTER_OPERATORS.
// An operator that cannot be downloaded is left out. If one cannot be built, the command builds the others and then fails.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/muster-dev/muster/kwok/operators"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	built, err := operators.Build(ctx, os.Stderr, operators.Names()...)
	stop()
	fmt.Fprintln(os.Stdout, strings.Join(built, ","))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
