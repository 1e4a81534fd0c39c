package testbed

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/muster-dev/muster/kwok/cluster"
	"github.com/muster-dev/muster/kwok/operators"
)

// OperatorsVariable lists the operators whose tests run, or is "all": the first run builds them, which takes minutes for
// each.
const OperatorsVariable = "MUSTER_OPERATORS"

// WantedOperators returns the operators that the variable names.
func WantedOperators() []string {
	switch list := os.Getenv(OperatorsVariable); list {
	case "":
		return nil
	case "all":
		return operators.Names()
	default:
		return strings.Split(list, ",")
	}
}

// NeedOperators skips a test unless all of these are wanted.
func NeedOperators(t *testing.T, names ...string) {
	t.Helper()
	wanted := WantedOperators()
	for _, name := range names {
		if !slices.Contains(wanted, name) {
			t.Skipf("%s does not name %s: run `make operators`, which builds and names all operators", OperatorsVariable, name)
		}
	}
}

// AddOperators has these run in the test's own cluster, or skips the test.
func AddOperators(t *testing.T, c *cluster.Config, names ...string) {
	t.Helper()
	NeedOperators(t, names...)
	if err := operators.Add(t.Context(), c, t.Output(), names...); err != nil {
		t.Fatal(err)
	}
}
