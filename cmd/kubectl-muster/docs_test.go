package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/utils/clock"
)

// inDocs is a command of the plugin in a code span or a line of a code block.
var inDocs = regexp.MustCompile("(?m)`kubectl muster ([^`\n]*)`|^kubectl muster ([^#|\n]*)")

// TestDocsNameCommandsThatExist parses every command that the documents name, with its arguments and flags.
func TestDocsNameCommandsThatExist(t *testing.T) {
	found := 0
	for _, pattern := range []string{"../../*.md", "../../docs/*.md"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
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
