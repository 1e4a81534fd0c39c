package architecture

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// maxBytes is how large a file may be that is committed: programs are larger, and stay in the history of every clone.
const maxBytes = 1 << 20

// TestNoFileIsLarge: of the files in git.
func TestNoFileIsLarge(t *testing.T) {
	root := filepath.Join("..", "..")
	out, err := exec.CommandContext(t.Context(), "git", "-C", root, "ls-files", "-z").Output()
	if err != nil {
		t.Skipf("this is no clone: %v", err)
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		info, err := os.Stat(filepath.Join(root, name))
		if err == nil && info.Size() > maxBytes {
			t.Errorf("%s has %d bytes; %d are allowed: is it a program?", name, info.Size(), maxBytes)
		}
	}
}
