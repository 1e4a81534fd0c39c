package scenario

import (
	"embed"
	"fmt"
	"slices"
	"strings"
)

//go:embed library/*.yaml
var library embed.FS

// Names of the scenarios in the library, sorted.
func Names() []string {
	entries, err := library.ReadDir("library")
	if err != nil {
		panic(err) // it is part of the program
	}
	var out []string
	for _, e := range entries {
		out = append(out, strings.TrimSuffix(e.Name(), ".yaml"))
	}
	slices.Sort(out)
	return out
}

// Text of a scenario of the library, with the comments that explain its bound.
func Text(name string) ([]byte, error) {
	text, err := library.ReadFile("library/" + name + ".yaml")
	if err != nil {
		return nil, fmt.Errorf("the library has no scenario %q: it has %s", name, strings.Join(Names(), ", "))
	}
	return text, nil
}
