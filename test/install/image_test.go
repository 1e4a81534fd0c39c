package install

import (
	"archive/tar"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/muster-dev/muster/test/pressure"
	"github.com/muster-dev/muster/test/testbed"
)

// run runs a program at the top of the repository, and returns what it prints.
func run(t *testing.T, env []string, name string, args ...string) string {
	t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Dir, cmd.Env = "../..", append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// registry serves one of this machine until the end of the test, with an empty base image for both architectures.
func registry(t *testing.T, crane string) (address, base string) {
	t.Helper()
	address = testbed.FreeAddress(t)
	server := exec.Command(crane, "registry", "serve", "--address", address, "--disk", t.TempDir())
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill() // nothing is written any more
		_ = server.Wait()
	})
	ctx, cancel := pressure.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := testbed.Poll(ctx, func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}); err != nil {
		t.Fatalf("the registry at %s does not answer: %v", address, err)
	}
	layer := filepath.Join(t.TempDir(), "empty.tar")
	f, err := os.Create(layer)
	if err != nil {
		t.Fatal(err)
	}
	if err := tar.NewWriter(f).Close(); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	base = address + "/base:empty"
	run(t, nil, crane, "append", "--oci-empty-base", "-f", layer, "-t", address+"/base:raw")
	index := []string{"index", "append", "-t", base}
	for _, arch := range []string{"amd64", "arm64"} {
		one := address + "/base:" + arch
		run(t, nil, crane, "mutate", address+"/base:raw", "--set-platform", "linux/"+arch, "--user", "65532", "-t", one)
		index = append(index, "-m", one)
	}
	run(t, nil, crane, index...)
	return address, base
}

// mostToPull is the size of an image that nodes in a hurry pull in a second or two. It has no base here, which adds 1 MB.
const mostToPull = 30_000_000

// TestTheImage is built without the Internet, runs as a user without rights, has an SBOM, and says
// its version.
func TestTheImage(t *testing.T) {
	crane, ko := program(t, "MUSTER_CRANE_BIN"), program(t, "MUSTER_KO_BIN")
	address, base := registry(t, crane)
	began := time.Now()
	run(t, []string{"VERSION=v1.2.3", "KO_DOCKER_REPO=" + address, "KO_DEFAULTBASEIMAGE=" + base},
		ko, "build", "--base-import-paths", "--platform", "linux/amd64", "--tags", "v1.2.3", "--sbom", "spdx", "./cmd/muster")
	image := address + "/muster:v1.2.3"
	t.Logf("built in %s", time.Since(began).Round(time.Second))

	var config struct {
		Config struct {
			User       string
			Entrypoint []string
		}
	}
	if err := json.Unmarshal([]byte(run(t, nil, crane, "config", image)), &config); err != nil {
		t.Fatal(err)
	}
	if config.Config.User != "65532" || len(config.Config.Entrypoint) != 1 {
		t.Errorf("its configuration is %+v", config.Config)
	}
	var manifest struct {
		Layers []struct{ Size int64 }
	}
	if err := json.Unmarshal([]byte(run(t, nil, crane, "manifest", image)), &manifest); err != nil {
		t.Fatal(err)
	}
	var size int64
	for _, l := range manifest.Layers {
		size += l.Size
	}
	t.Logf("the image has %.1f MB to pull", float64(size)/1e6)
	if size > mostToPull {
		t.Errorf("the image has %d bytes to pull, want at most %d: see TestTheProgramHasNoMethodsThatNothingCalls", size, mostToPull)
	}
	digest := strings.TrimSpace(run(t, nil, crane, "digest", image))
	sbom := run(t, nil, crane, "export", fmt.Sprintf("%s/muster:%s.sbom", address, strings.Replace(digest, ":", "-", 1)), "-")
	if !strings.Contains(sbom, "SPDX") || !strings.Contains(sbom, "sigs.k8s.io/controller-runtime") {
		t.Errorf("its SBOM is %.300s", sbom)
	}

	root := t.TempDir()
	tarball := filepath.Join(t.TempDir(), "muster.tar")
	run(t, nil, crane, "export", image, tarball)
	run(t, nil, "tar", "-xf", tarball, "-C", root)
	binary := filepath.Join(root, config.Config.Entrypoint[0])
	if out := run(t, nil, binary, "version"); !strings.HasPrefix(out, "muster v1.2.3 ") {
		t.Errorf("it says %q, want muster v1.2.3", out)
	}
	if info := run(t, nil, "go", "version", "-m", binary); !strings.Contains(info, "CGO_ENABLED=0") {
		t.Error("it needs the libraries of a distribution")
	}
	startedByRunc(t, root, config.Config.Entrypoint[0])
}

// startedByRunc starts the image as a container, where there is a runc and a right to use it:
// read-only, without capabilities, as the user 65532.
func startedByRunc(t *testing.T, root, entrypoint string) {
	t.Helper()
	runc, err := exec.LookPath("runc")
	if err != nil || os.Geteuid() != 0 {
		t.Log("not started as a container: there is no runc, or no right to use it")
		return
	}
	bundle := t.TempDir()
	if err := os.Rename(root, filepath.Join(bundle, "rootfs")); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(bundle, "rootfs", "proc"), 0o755); err != nil {
		t.Fatal(err)
	}
	spec := map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"user": map[string]any{"uid": 65532, "gid": 65532}, "args": []string{entrypoint, "version"}, "cwd": "/", "noNewPrivileges": true,
		},
		"root":   map[string]any{"path": "rootfs", "readonly": true},
		"mounts": []any{map[string]any{"destination": "/proc", "type": "proc", "source": "proc"}},
		"linux":  map[string]any{"namespaces": []any{map[string]any{"type": "pid"}, map[string]any{"type": "mount"}}},
	}
	text, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bundle, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	out := run(t, nil, runc, "--root", t.TempDir(), "run", "--bundle", bundle, fmt.Sprintf("muster-%d", os.Getpid()))
	t.Logf("as a container it says after %s: %s", time.Since(began).Round(time.Millisecond), out)
	if !strings.HasPrefix(out, "muster v1.2.3 ") {
		t.Errorf("as a container it says %q", out)
	}
}
