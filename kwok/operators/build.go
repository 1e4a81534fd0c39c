package operators

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"
)

// HomeVariable names the folder in which built operators are kept, if not the user's cache folder.
const HomeVariable = "MUSTER_SANDBOX_OPERATORS"

// reportPeriod is the time between two lines about a build that goes on.
const reportPeriod = 15 * time.Second

// errNotDownloaded: the network, or the proxy of modules, has not given what an operator is built of.
var errNotDownloaded = errors.New("not downloaded")

// store is the folder of built operators, one folder below it for each version of each.
type store string

func defaultStore() (store, error) {
	if home := os.Getenv(HomeVariable); home != "" {
		absolute, err := filepath.Abs(home)
		return store(absolute), err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding a folder to keep built operators in (set $%s to one): %w", HomeVariable, err)
	}
	return store(filepath.Join(cache, "muster-sandbox-operators")), nil
}

// built is the folder of one built operator.
type built struct {
	dir  string
	name string
}

func (b built) program() string { return filepath.Join(b.dir, b.name) }

func (b built) manifest(path string) string { return filepath.Join(b.dir, "manifests", path) }

// isComplete reports whether all is there: a later Muster may keep more manifests of the same version.
func (b built) isComplete(d definition) bool {
	for _, path := range d.manifests {
		if _, err := os.Stat(b.manifest(path)); err != nil {
			return false
		}
	}
	_, err := os.Stat(b.program())
	return err == nil
}

// build returns what was built earlier, or builds it. Two builds at a time are harmless: the folder appears whole.
func (s store) build(ctx context.Context, d definition, progress io.Writer) (built, error) {
	b := built{dir: filepath.Join(string(s), d.name+"@"+d.version), name: d.name}
	if b.isComplete(d) {
		return b, nil
	}
	if _, err := exec.LookPath("go"); err != nil {
		return b, fmt.Errorf("building the operator %s %s takes the program go, which is not in $PATH: install Go, or copy the folder %s from a "+
			"machine that has built it", d.name, d.version, b.dir)
	}
	if err := os.MkdirAll(string(s), 0o755); err != nil {
		return b, fmt.Errorf("making a folder for built operators (set $%s to one you may write to): %w", HomeVariable, err)
	}
	temporary, err := os.MkdirTemp(string(s), ".building-")
	if err != nil {
		return b, fmt.Errorf("making a folder for built operators (set $%s to one you may write to): %w", HomeVariable, err)
	}
	defer func() { _ = os.RemoveAll(temporary) }() // what is left does no harm
	module, err := download(ctx, temporary, d)
	if err != nil {
		return b, err
	}
	made := built{dir: filepath.Join(temporary, "built"), name: d.name}
	if err := compile(ctx, module, made.program(), d, progress); err != nil {
		return b, err
	}
	for _, path := range d.manifests {
		if err := copyManifests(filepath.Join(module, path), made.manifest(path)); err != nil {
			return b, fmt.Errorf("keeping the manifests of %s: %w", d.name, err)
		}
	}
	if err := os.RemoveAll(b.dir); err != nil {
		return b, fmt.Errorf("removing an incomplete build: %w", err)
	}
	if err := os.Rename(made.dir, b.dir); err != nil && !b.isComplete(d) {
		return b, fmt.Errorf("keeping the built operator %s: %w", d.name, err)
	}
	return b, nil
}

// download returns the folder of the module, after a comparison with the pinned sum. It runs in a folder without a go.mod,
// so that no other module's requirements count.
func download(ctx context.Context, dir string, d definition) (string, error) {
	cmd := exec.CommandContext(ctx, "go", "mod", "download", "-json", d.module+"@"+d.version)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off")
	output, err := cmd.Output()
	var answer struct{ Dir, Sum, Error string }
	if jsonErr := json.Unmarshal(output, &answer); jsonErr != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return "", failure(d, errors.Join(err, jsonErr).Error())
	}
	if answer.Error != "" {
		return "", failure(d, answer.Error)
	}
	if answer.Sum != d.sum {
		return "", fmt.Errorf("the module %s@%s has the sum %s and not %s, which is pinned: it is not what its project published", d.module,
			d.version, answer.Sum, d.sum)
	}
	return answer.Dir, nil
}

// failure is the error of a download. A sum that differs from the published one is no fault of the network.
func failure(d definition, why string) error {
	if strings.Contains(why, "SECURITY ERROR") || strings.Contains(why, "checksum mismatch") {
		return fmt.Errorf("downloading %s@%s: %s", d.module, d.version, why)
	}
	return fmt.Errorf("downloading %s@%s: %w: %s", d.module, d.version, errNotDownloaded, why)
}

// isOfProxy reports whether an error of go is that a file of a module proxy, with this part in its address, could not be read.
func isOfProxy(why string) bool {
	return strings.Contains(why, "/@v/") || strings.Contains(why, "GOPROXY=off")
}

// compile builds the program in its module's own folder, so with the dependencies that its project has chosen, and at a
// low priority, since it takes all cores for minutes.
func compile(ctx context.Context, module, program string, d definition, progress io.Writer) error {
	args := []string{"go", "-C", module, "build", "-v", "-ldflags", "-s -w", "-o", program, d.command}
	if nice, err := exec.LookPath("nice"); err == nil {
		args = append([]string{nice, "-n", "10"}, args...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), "GOWORK=off")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return err
	}
	began := time.Now()
	fmt.Fprintf(progress, "Building the operator %s %s from %s: once on this machine, a few minutes\n", d.name, d.version, d.module)
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("building the operator %s: %w", d.name, err)
	}
	var packages atomic.Int64
	done := make(chan struct{})
	go func() {
		ticker := time.NewTicker(reportPeriod)
		defer ticker.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticker.C:
				fmt.Fprintf(progress, "  %s: %d packages compiled in %s\n", d.name, packages.Load(), time.Since(began).Round(time.Second))
			}
		}
	}()
	problems := follow(stderr, &packages)
	err = cmd.Wait()
	close(done)
	if ctx.Err() != nil {
		return fmt.Errorf("building the operator %s: %w", d.name, context.Cause(ctx))
	}
	why := strings.Join(problems, "\n")
	switch {
	case err != nil && isOfProxy(why):
		return failure(d, why)
	case err != nil:
		return fmt.Errorf("building the operator %s: %w\n%s", d.name, err, why)
	}
	fmt.Fprintf(progress, "Built the operator %s in %s\n", d.name, time.Since(began).Round(time.Second))
	return nil
}

// follow counts the packages that go names, one a line, and returns the last lines that are something else.
func follow(stderr io.Reader, packages *atomic.Int64) []string {
	const most = 20
	var others []string
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		line := lines.Text()
		if strings.ContainsAny(line, " \t:") || strings.HasPrefix(line, "#") {
			others = append(others, line)
			others = others[max(0, len(others)-most):]
			continue
		}
		packages.Add(1)
	}
	return others
}

// copyManifests copies a file, or a folder of files.
func copyManifests(from, to string) error {
	info, err := os.Stat(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	if info.IsDir() {
		return os.CopyFS(to, os.DirFS(from))
	}
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
