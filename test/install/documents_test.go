package install

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/test/testbed"
)

// Commands in documents: sh blocks are run, console blocks are only checked.
var (
	block  = regexp.MustCompile("(?ms)^ *```(sh|console)\n(.*?)^ *```$")
	shell  = regexp.MustCompile("(?m)^ *```(bash|shell|zsh)$")
	inline = regexp.MustCompile("`--set ([^`]+)`")
	named  = regexp.MustCompile("`((?:bin/)?(?:muster-sandbox|kubectl muster|muster) [^`\\n]+)`") // a command in a sentence
	word   = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
)

// documents are those for users, by their path.
func documents(t *testing.T) map[string]string {
	t.Helper()
	paths, err := filepath.Glob("../../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	nested, err := filepath.Glob("../../docs/*/*.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, path := range append(slices.Concat(paths, nested), "../../README.md", "../../deploy/monitoring/README.md") {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		out[path] = string(text)
	}
	return out
}

// TestCommandsOfDocumentsExist: programs know their flags, charts their values, and the files are
// there. Without Helm its own commands are not looked at.
func TestCommandsOfDocumentsExist(t *testing.T) {
	for _, variable := range []string{"MUSTER_BIN", "MUSTER_PLUGIN_BIN", testbed.SandboxVariable} {
		program(t, variable)
	}
	checked := 0
	for path, text := range documents(t) {
		if m := shell.FindStringSubmatch(text); m != nil {
			t.Errorf("%s has a block of %s: make it sh, whose commands are run, or console, which are looked at", path, m[1])
		}
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			for line := range strings.Lines(strings.ReplaceAll(m[2], "\\\n", " ")) {
				line, _, _ = strings.Cut(line, " # ")
				for command := range strings.SplitSeq(line, " | ") {
					words := words(command)
					if len(words) == 0 {
						continue
					}
					checked++
					if wrong := wrongWith(t, words); wrong != "" {
						t.Errorf("%s: %s: %s", path, strings.TrimSpace(command), wrong)
					}
				}
			}
		}
		for _, m := range named.FindAllStringSubmatch(text, -1) {
			checked++
			if wrong := wrongWith(t, words(m[1])); wrong != "" {
				t.Errorf("%s: `%s`: %s", path, m[1], wrong)
			}
		}
		for _, m := range inline.FindAllStringSubmatch(text, -1) {
			checked++
			if !hasHelm() {
				continue
			}
			of := chart
			if slices.Contains([]string{"provisioning=false", "queueing=false", "kwok=true"}, m[1]) {
				of = crds
			}
			if out, err := helm(t, "template", "muster", of, "--kube-version", "1.36", "--set", m[1]); err != nil {
				t.Errorf("%s: --set %s: %s", path, m[1], out)
			}
		}
	}
	if checked < 120 {
		t.Errorf("%d commands were found in the documents: the pattern finds no more", checked)
	}
}

func hasHelm() bool { return os.Getenv("MUSTER_HELM_BIN") != "" }

// words are those of a command, without quotes, redirections and variables before it.
func words(command string) (out []string) {
	for _, w := range word.FindAllString(command, -1) {
		switch {
		case w == ">" || w == "#" || strings.HasPrefix(w, "#"):
			return out
		case len(out) == 0 && regexp.MustCompile(`^[A-Z_]+=`).MatchString(w):
		default:
			out = append(out, strings.NewReplacer("'", "", `"`, "").Replace(w))
		}
	}
	return out
}

// wrongWith returns what is wrong with a command; empty if nothing is.
func wrongWith(t *testing.T, words []string) string {
	t.Helper()
	for i, w := range words {
		file, named := strings.CutPrefix(w, "file://")
		if !named && i > 0 && slices.Contains([]string{"-f", "-k", "--file"}, words[i-1]) && strings.HasPrefix(w, "deploy") {
			file, named = w, true
		}
		if named {
			if _, err := os.Stat("../../" + file); err != nil {
				return err.Error()
			}
		}
	}
	switch name, rest := words[0], words[1:]; name {
	case "helm":
		if hasHelm() {
			return rendered(t, rest)
		}
	case "muster":
		return known(t, program(t, "MUSTER_BIN"), rest)
	case "bin/muster-sandbox", "muster-sandbox":
		return known(t, program(t, testbed.SandboxVariable), rest)
	case "kubectl":
		if len(rest) > 0 && rest[0] == "muster" {
			return known(t, program(t, "MUSTER_PLUGIN_BIN"), rest[1:])
		}
	case "make":
		text, err := os.ReadFile("../../Makefile")
		if err != nil {
			return err.Error()
		}
		if len(rest) > 0 && !strings.Contains(string(text), "\n"+rest[0]+":") {
			return "there is no such target"
		}
	case "go", "aws", "gcloud", "cluster-autoscaler", "muster-dashboard", "export", "git":
	default:
		return "which program is " + name + "? Teach this test to look at its commands"
	}
	return ""
}

// helps are those of commands that were looked at.
var helps = map[string]string{}

// known looks for flags in the help of a command.
func known(t *testing.T, path string, args []string) string {
	t.Helper()
	sub := args
	for i, a := range args {
		if strings.HasPrefix(a, "-") {
			sub = args[:i]
			break
		}
		if a == "kubectl" {
			return "" // of the sandbox, with the flags of kubectl
		}
	}
	of := path + " " + strings.Join(sub, " ")
	help, asked := helps[of]
	if !asked {
		out, err := exec.Command(path, append(slices.Clone(sub), "--help")...).CombinedOutput()
		if err != nil {
			return fmt.Sprintf("%v: %s", err, out)
		}
		help = string(out)
		helps[of] = help
	}
	if len(sub) > 0 && !strings.Contains(help, sub[0]) {
		return "there is no command " + sub[0]
	}
	for _, a := range args[len(sub):] {
		flag, _, _ := strings.Cut(a, "=")
		if strings.HasPrefix(a, "-") && !regexp.MustCompile(`(?m)^ +(-\w, )?`+regexp.QuoteMeta(flag)+`\b`).MatchString(help) {
			return "there is no flag " + flag
		}
	}
	return ""
}

// rendered renders what Helm would install.
func rendered(t *testing.T, args []string) string {
	t.Helper()
	if len(args) < 3 || args[0] != "install" && args[0] != "upgrade" {
		return ""
	}
	path := filepath.Join("../../deploy/charts", filepath.Base(args[2]))
	if _, err := os.Stat(path); err != nil {
		return err.Error()
	}
	args = slices.DeleteFunc(slices.Clone(args[3:]), func(a string) bool { return a == "--create-namespace" || a == "--reuse-values" })
	if out, err := helm(t, append([]string{"template", "muster", path, "--kube-version", "1.36"}, args...)...); err != nil {
		return out
	}
	return ""
}

// TestDocumentsRun runs the sh blocks of each document in order, on a sandbox, as a literal
// reader would.
func TestDocumentsRun(t *testing.T) {
	sandbox, plugin := program(t, testbed.SandboxVariable), program(t, "MUSTER_PLUGIN_BIN")
	dir, bin := t.TempDir(), t.TempDir()
	t.Setenv("MUSTER_SANDBOX_HOME", t.TempDir())
	t.Setenv("MUSTER_SANDBOX", "docs")
	repository, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	kubectl := fmt.Sprintf("#!/bin/sh\n[ \"$1\" = muster ] && { shift; exec %s \"$@\"; }\nexec %s kubectl \"$@\"\n", plugin, sandbox)
	if err := os.WriteFile(filepath.Join(bin, "kubectl"), []byte(kubectl), 0o755); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Join(repository, "deploy"), filepath.Join(dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	up := exec.Command(sandbox, "up")
	log, err := os.Create(filepath.Join(bin, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	up.Stdout, up.Stderr = log, log
	if err := up.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = up.Process.Signal(os.Interrupt) // it may have ended
		_ = up.Wait()                       // its end is in its log
	}()
	kubeconfig := regexp.MustCompile(`export KUBECONFIG=(\S+)`)
	if err := testbed.Poll(t.Context(), func() bool {
		text, err := os.ReadFile(log.Name())
		m := kubeconfig.FindSubmatch(text)
		if m != nil {
			t.Setenv("KUBECONFIG", string(m[1]))
		}
		return err != nil || m != nil
	}); err != nil {
		t.Fatal(err)
	}
	ran := 0
	for path, text := range documents(t) {
		var script strings.Builder
		for _, m := range block.FindAllStringSubmatch(text, -1) {
			if m[1] == "sh" {
				script.WriteString(m[2])
			}
		}
		if script.Len() == 0 {
			continue
		}
		ran++
		began := time.Now()
		cmd := exec.CommandContext(t.Context(), "bash", "-euxo", "pipefail", "-c", script.String())
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
		t.Logf("%s: %s", path, time.Since(began).Round(time.Second))
	}
	if ran < 2 {
		t.Errorf("%d documents have commands to run, want 2", ran)
	}
}
