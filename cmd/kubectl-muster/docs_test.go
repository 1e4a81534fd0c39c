package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/utils/clock"

	"github.com/muster-dev/muster/queueing/jobs/kinds"
)

// inDocs is a command of the plugin in a code span or a line of a code block.
var inDocs = regexp.MustCompile("(?m)`kubectl muster ([^`\n]*)`|^kubectl muster ([^#|\n]*)")

// TestDocsNameCommandsThatExist parses every command that the documents name, with its arguments and flags.
func TestDocsNameCommandsThatExist(t *testing.T) {
	found := 0
	for _, pattern := range []string{"../../*.md", "../../docs/*.md", "../../docs/*/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			if strings.HasPrefix(path, "../../docs/commands/") {
				continue // it is written from the commands
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for _, m := range inDocs.FindAllStringSubmatch(string(text), -1) {
				line := strings.TrimSpace(m[1] + m[2])
				if line == "" || strings.Contains(line, "…") {
					continue
				}
				found++
				command, args, err := newRootCommand(clock.RealClock{}).Find(strings.Fields(line))
				if err == nil {
					err = command.ParseFlags(args)
				}
				// A document may name a command alone, without the arguments that it takes.
				if args := command.Flags().Args(); err == nil && len(args) > 0 {
					err = command.ValidateArgs(args)
				}
				if err != nil && !strings.Contains(err.Error(), "flag needs an argument") { // the flag alone is named
					t.Errorf("%s names `kubectl muster %s`: %v", path, line, err)
				}
			}
		}
	}
	if found < 20 {
		t.Errorf("the documents name %d commands: they are not found any more", found)
	}
}

// TestDocsNameTheOperatorsOfEachKind, with the versions that Muster is tested with.
func TestDocsNameTheOperatorsOfEachKind(t *testing.T) {
	text, err := os.ReadFile("../../docs/compatibility.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	_, table, _ := strings.Cut(string(text), "| kind | operator | version |\n")
	for line := range strings.Lines(table) {
		cells := strings.Split(strings.Trim(line, "| \n"), " | ")
		if len(cells) != 3 {
			continue
		}
		for kind := range strings.SplitSeq(cells[0], ", ") {
			named[kind] = true
			if of, known := kinds.OperatorOf(kind); !known || of.Name != cells[1] || of.Version != cells[2] {
				t.Errorf("docs/compatibility.md has %s %s for %s, which is tested with %s %s", cells[1], cells[2], kind, of.Name, of.Version)
			}
		}
	}
	for _, k := range kinds.All() {
		if gvk := k.GroupVersionKind(); !named[gvk.Kind] {
			if of, known := kinds.OperatorOf(gvk.Kind); known {
				t.Errorf("docs/compatibility.md lacks %s of %s", gvk.Kind, of.Name)
			}
		}
	}
}
