package install

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"
)

// TestTheRelease makes all of a release, as `make release` does, without the Internet: each artifact is there and is listed with its
// checksum, the programs say the version, the charts name the images, which are there for both architectures.
func TestTheRelease(t *testing.T) {
	crane := program(t, "MUSTER_CRANE_BIN")
	program(t, "MUSTER_HELM_BIN")
	const version = "v0.0.0-test"
	address, base := registry(t, crane)
	dist := t.TempDir()
	began := time.Now()
	run(t, []string{"KO_DEFAULTBASEIMAGE=" + base}, "make", "release", "VERSION="+version, "DIST="+dist, "REGISTRY="+address)
	t.Logf("made in %s", time.Since(began).Round(time.Second))

	sums := checksums(t, dist)
	platforms := krewPlatforms(t, dist, version, sums)
	if len(platforms) < 5 {
		t.Errorf("the plugin is there for %v", platforms)
	}
	want := []string{"checksums.txt", "muster.yaml", "muster-0.0.0-test.tgz", "muster-crds-0.0.0-test.tgz", "muster-linux-amd64",
		"muster-linux-arm64"}
	for _, p := range platforms {
		want = append(want, "kubectl-muster-"+p+".tar.gz")
	}
	var got []string
	entries, err := os.ReadDir(dist)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		got = append(got, e.Name())
		if sums[e.Name()] == "" && e.Name() != "checksums.txt" && e.Name() != "muster.yaml" {
			t.Errorf("%s has no checksum", e.Name())
		}
	}
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("there is %v\nwant     %v", got, want)
	}

	if runtime.GOOS == "linux" {
		saysVersion(t, filepath.Join(dist, "muster-linux-"+runtime.GOARCH), version)
		unpacked := t.TempDir()
		run(t, nil, "tar", "-xzf", filepath.Join(dist, fmt.Sprintf("kubectl-muster-linux-%s.tar.gz", runtime.GOARCH)), "-C", unpacked)
		saysVersion(t, filepath.Join(unpacked, "kubectl-muster"), version)
		for _, file := range []string{"LICENSE", "NOTICE", "kubectl_complete-muster"} {
			if _, err := os.Stat(filepath.Join(unpacked, file)); err != nil {
				t.Errorf("the plugin's archive lacks %s", file)
			}
		}
	}

	charts := "oci://" + address + "/charts/"
	if out, err := helm(t, "template", "muster-crds", charts+"muster-crds", "--version", "0.0.0-test", "--plain-http", "--kube-version",
		"1.36"); err != nil {
		t.Error(out)
	}
	out, err := helm(t, "template", "muster", charts+"muster", "--version", "0.0.0-test", "--plain-http", "--kube-version", "1.36", "--set",
		fmt.Sprintf("dashboard.enabled=true,image.repository=%[1]s/muster,dashboard.image.repository=%[1]s/muster-dashboard", address))
	if err != nil {
		t.Fatal(out)
	}
	for _, name := range []string{"muster", "muster-dashboard"} {
		image := fmt.Sprintf("%s/%s:%s", address, name, version)
		if !strings.Contains(out, "image: "+image+"\n") && !strings.Contains(out, fmt.Sprintf("image: %q\n", image)) {
			t.Errorf("the chart does not run %s", image)
		}
		ofBothArchitectures(t, crane, image)
	}
}

// checksums reads the checksums of a release, and verifies the files.
func checksums(t *testing.T, dist string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dist, "checksums.txt"))
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		content, err := os.ReadFile(filepath.Join(dist, name))
		if err != nil {
			t.Errorf("%q: %v", line, err)
		} else if is := fmt.Sprintf("%x", sha256.Sum256(content)); is != sum {
			t.Errorf("%s has the checksum %s, listed is %s", name, is, sum)
		}
		out[name] = sum
	}
	return out
}

// krewPlatforms are those of Krew's manifest, as os-arch, whose archives are those of the release.
func krewPlatforms(t *testing.T, dist, version string, sums map[string]string) (out []string) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dist, "muster.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var plugin struct {
		Spec struct {
			Version   string
			Platforms []struct {
				Selector    struct{ MatchLabels map[string]string }
				URI, Sha256 string
			}
		}
	}
	if err := yaml.Unmarshal(text, &plugin); err != nil {
		t.Fatal(err)
	}
	if plugin.Spec.Version != version {
		t.Errorf("Krew's manifest is of %q", plugin.Spec.Version)
	}
	for _, p := range plugin.Spec.Platforms {
		if sum := sums[filepath.Base(p.URI)]; sum == "" || sum != p.Sha256 || !strings.Contains(p.URI, "/"+version+"/") {
			t.Errorf("Krew's manifest has %s with the checksum %s; that of the file is %q", p.URI, p.Sha256, sum)
		}
		out = append(out, p.Selector.MatchLabels["os"]+"-"+p.Selector.MatchLabels["arch"])
	}
	return out
}

func saysVersion(t *testing.T, path, version string) {
	t.Helper()
	if err := os.Chmod(path, 0o755); err != nil { //nolint:gosec // it is a program
		t.Fatal(err)
	}
	if out := run(t, nil, path, "version"); !strings.Contains(out, " "+version+" ") {
		t.Errorf("%s says %q, want %s", filepath.Base(path), out, version)
	}
}

// ofBothArchitectures checks that an image is there for each, as its user and with an SBOM.
func ofBothArchitectures(t *testing.T, crane, image string) {
	t.Helper()
	var index struct {
		Manifests []struct {
			Digest   string
			Platform struct{ Architecture string }
		}
	}
	if err := json.Unmarshal([]byte(run(t, nil, crane, "manifest", image)), &index); err != nil {
		t.Fatal(err)
	}
	var architectures []string
	name, _, _ := strings.Cut(image[strings.LastIndex(image, "/"):], ":")
	repository := image[:strings.LastIndex(image, "/")] + name
	for _, m := range index.Manifests {
		architectures = append(architectures, m.Platform.Architecture)
		var config struct{ Config struct{ User string } }
		if err := json.Unmarshal([]byte(run(t, nil, crane, "config", repository+"@"+m.Digest)), &config); err != nil {
			t.Fatal(err)
		}
		if config.Config.User != "65532" {
			t.Errorf("%s for %s runs as %q", image, m.Platform.Architecture, config.Config.User)
		}
		sbom := run(t, nil, crane, "export", fmt.Sprintf("%s:%s.sbom", repository, strings.Replace(m.Digest, ":", "-", 1)), "-")
		if !strings.Contains(sbom, "SPDX") {
			t.Errorf("the SBOM of %s for %s is %.300s", image, m.Platform.Architecture, sbom)
		}
	}
	if slices.Sort(architectures); !slices.Equal(architectures, []string{"amd64", "arm64"}) {
		t.Errorf("%s is there for %v", image, architectures)
	}
}
