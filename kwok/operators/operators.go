package operators

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/muster-dev/muster/kwok/cluster"
)

// definition is one operator.
type definition struct {
	// name selects it, kinds are the kinds that it serves, and note is printed after them.
	name  string
	kinds []string
	note  string

	// module, version and sum, as in go.sum, pin what is built; command is the package of its program.
	module, version, sum, command string

	// manifests are the files and folders of the module that are kept with the program. The first has its CRDs.
	manifests []string

	// namespace is where its project installs it.
	namespace string

	// needs are operators without which it cannot do its work.
	needs []string

	components []component
}

// component is a process of an operator: of its program, or of a stand-in.
type component struct {
	name      string
	isStandIn bool

	// settings are those in a place, with what was built.
	settings func(built, cluster.Place) (cluster.Settings, error)
}

// definitions are in the order of the help.
var definitions = []definition{jobset, kubeflow, trainer, ray, mpi, lws, appwrapper, spark}

// Names lists the operators.
func Names() []string {
	var names []string
	for _, d := range definitions {
		names = append(names, d.name)
	}
	return names
}

// Describe returns a line for each operator: its name, what it serves and its version.
func Describe() string {
	var lines strings.Builder
	for _, d := range definitions {
		fmt.Fprintf(&lines, "  %-11s %s (%s)\n", d.name, strings.Join(d.kinds, ", ")+d.note, d.version)
	}
	return lines.String()
}

// Lacking returns the name of the operator that serves a kind of jobs, unless it is one of these or they need it. It is empty
// for kinds of no operator, too.
func Lacking(kind string, names []string) string {
	chosen, _ := choose(names) // a name that is unknown serves nothing
	serves := func(d definition) bool { return slices.Contains(d.kinds, kind) }
	i := slices.IndexFunc(definitions, serves)
	if i < 0 || slices.ContainsFunc(chosen, serves) {
		return ""
	}
	return definitions[i].name
}

// Add runs the operators of these names in a cluster, and those that they need. Operators that are not built yet on this machine are
// built, which takes minutes each; progress reports it.
func Add(ctx context.Context, config *cluster.Config, progress io.Writer, names ...string) error {
	chosen, err := choose(names)
	if err != nil {
		return err
	}
	store, err := defaultStore()
	if err != nil {
		return err
	}
	for _, d := range chosen {
		b, err := store.build(ctx, d, progress)
		if err != nil {
			return err
		}
		for _, c := range d.components {
			operator := cluster.Operator{
				Name: c.name, Program: b.program(), Namespace: d.namespace,
				Settings: func(p cluster.Place) (cluster.Settings, error) { return c.settings(b, p) },
			}
			if c.isStandIn {
				operator.Program = ""
			}
			config.Operators = append(config.Operators, operator)
		}
	}
	return nil
}

// Build builds the operators of these names, and those that they need, if their modules can be downloaded. It returns the names of those
// that are built, and reports the others on progress. It returns an error if a downloaded operator cannot be built.
func Build(ctx context.Context, progress io.Writer, names ...string) (built []string, err error) {
	store, err := defaultStore()
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		chosen, failure := choose([]string{name})
		for _, d := range chosen {
			if failure == nil {
				_, failure = store.build(ctx, d, progress)
			}
		}
		switch {
		case failure == nil:
			built = append(built, name)
		case errors.Is(failure, errNotDownloaded):
			fmt.Fprintf(progress, "SKIP: the operator %s cannot be downloaded, so what needs it is left out: %v\n", name, failure)
		default:
			err = errors.Join(err, failure)
		}
	}
	return built, err
}

// choose returns the definitions of the names and of what they need, each once, what is needed first.
func choose(names []string) ([]definition, error) {
	var chosen []definition
	for _, name := range names {
		i := slices.IndexFunc(definitions, func(d definition) bool { return d.name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no operator %q: the operators are %s", name, strings.Join(Names(), ", "))
		}
		needed, err := choose(definitions[i].needs)
		if err != nil {
			return nil, err
		}
		for _, d := range append(needed, definitions[i]) {
			if !slices.ContainsFunc(chosen, func(other definition) bool { return other.name == d.name }) {
				chosen = append(chosen, d)
			}
		}
	}
	return chosen, nil
}
