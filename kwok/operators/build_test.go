package operators

import (
	"archive/zip"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// published is an operator whose module is in a GOPROXY of the test's own. It requires a library that is not there.
func published(t *testing.T, program string) definition {
	t.Helper()
	const requirements = "go 1.24\n\nrequire example.com/library v1.0.0\n"
	const sum = "h1:47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU="
	const module, version = "example.com/operator", "v1.0.0"
	versions := filepath.Join(t.TempDir(), module, "@v")
	if err := os.MkdirAll(versions, 0o755); err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	z := zip.NewWriter(&archive)
	for name, text := range map[string]string{
		"go.mod": "module " + module + "\n\n" + requirements, "cmd/main.go": program, "crds/kinds.yaml": "kind: CustomResourceDefinition\n",
		"go.sum": "example.com/library v1.0.0 " + sum + "\nexample.com/library v1.0.0/go.mod " + sum + "\n",
	} {
		f, err := z.Create(module + "@" + version + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		".info": `{"Version": "` + version + `"}`, ".mod": "module " + module + "\n\n" + requirements, ".zip": archive.String(),
	} {
		if err := os.WriteFile(filepath.Join(versions, version+name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("GOPROXY", "file://"+strings.TrimSuffix(versions, "/"+module+"/@v"))
	t.Setenv("GONOSUMDB", "*")
	t.Setenv("GOFLAGS", "-modcacherw")
	t.Setenv("GOMODCACHE", t.TempDir())
	d := definition{name: "operator", module: module, version: version, command: "./cmd", manifests: []string{"crds"}}
	_, err := download(t.Context(), t.TempDir(), d)
	if err == nil {
		t.Fatal("a module without a pinned sum is taken")
	}
	_, d.sum, _ = strings.Cut(err.Error(), "has the sum ")
	d.sum, _, _ = strings.Cut(d.sum, " ")
	return d
}

func TestAnOperatorIsBuiltOnce(t *testing.T) {
	d := published(t, "package main\n\nfunc main() { println(\"serves\") }\n")
	s := store(filepath.Join(t.TempDir(), "built"))
	var progress strings.Builder
	b, err := s.build(t.Context(), d, &progress)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(progress.String(), "Building the operator operator v1.0.0 from example.com/operator") {
		t.Errorf("progress: %s", progress.String())
	}
	if output, err := exec.Command(b.program()).CombinedOutput(); err != nil || string(output) != "serves\n" {
		t.Errorf("it says %q (%v), want serves", output, err)
	}
	crds, err := b.objects("crds")
	if err != nil || len(crds) != 1 {
		t.Errorf("it has the CRDs %v (%v), want one", crds, err)
	}

	t.Setenv("PATH", "")
	progress.Reset()
	if _, err := s.build(t.Context(), d, &progress); err != nil || progress.Len() > 0 {
		t.Errorf("the second time: %v %s", err, progress.String())
	}
	d.manifests = append(d.manifests, "webhooks.yaml") // as a later Muster may
	if _, err := s.build(t.Context(), d, &progress); err == nil || !strings.Contains(err.Error(), "install Go") {
		t.Errorf("error %v, want one that says to install Go", err)
	}
}

func TestAnOperatorThatCannotBeBuiltSaysWhy(t *testing.T) {
	d := published(t, "package main\n\nfunc main() { serve() }\n")
	s := store(t.TempDir())
	if _, err := s.build(t.Context(), d, t.Output()); err == nil || !strings.Contains(err.Error(), "undefined: serve") {
		t.Errorf("error %v, want the compiler's", err)
	}
	d.sum = "h1:other"
	if _, err := s.build(t.Context(), d, t.Output()); err == nil || !strings.Contains(err.Error(), "pinned") {
		t.Errorf("error %v, want one about the pinned sum", err)
	}
	if left, err := os.ReadDir(string(s)); err != nil || len(left) > 0 {
		t.Errorf("left: %v (%v)", left, err)
	}
}

// TestWhatCannotBeDownloadedIsLeftOut, and what can be but is not built is an error.
func TestWhatCannotBeDownloadedIsLeftOut(t *testing.T) {
	all := definitions
	t.Cleanup(func() { definitions = all })
	for name, c := range map[string]struct {
		program       string
		change        func(*definition)
		want          []string
		skips, refuse string
	}{
		"it is built":                 {program: "package main\n\nfunc main() {}\n", want: []string{"operator", "other"}},
		"its module is not there":     {program: "package main\n", change: func(d *definition) { d.module = "example.com/absent" }, skips: "absent"},
		"a library of it is not":      {program: "package main\n\nimport _ \"example.com/library\"\n\nfunc main() {}\n", skips: "library"},
		"it is not what was pinned":   {program: "package main\n", change: func(d *definition) { d.sum = "h1:other" }, refuse: "pinned"},
		"the compiler refuses it":     {program: "package main\n\nfunc main() { serve() }\n", refuse: "undefined: serve"},
		"its program is not in there": {program: "package main\n", change: func(d *definition) { d.command = "./missing" }, refuse: "missing"},
	} {
		t.Run(name, func(t *testing.T) {
			d := published(t, c.program)
			if c.change != nil {
				c.change(&d)
			}
			other := d
			other.name, other.manifests, other.needs = "other", nil, []string{"operator"}
			definitions = []definition{d, other}
			t.Setenv(HomeVariable, t.TempDir())
			var progress strings.Builder
			built, err := Build(t.Context(), &progress, Names()...)
			if !slices.Equal(built, c.want) || (err != nil) != (c.refuse != "") || c.refuse != "" && !strings.Contains(err.Error(), c.refuse) {
				t.Errorf("built %v with the error %v, want %v and %q", built, err, c.want, c.refuse)
			}
			for _, operator := range []string{"operator", "other"} {
				skipped := strings.Contains(progress.String(), "SKIP: the operator "+operator+" cannot be downloaded")
				if skipped != (c.skips != "") || !strings.Contains(progress.String(), c.skips) {
					t.Errorf("it is told\n%s\nwant %s to be left out for %q", progress.String(), operator, c.skips)
				}
			}
		})
	}
}
