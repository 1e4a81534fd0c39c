package page

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// TestUPlotIsAsItsAuthorsReleasedIt: these are the sums of the files in the npm package
// uplot 1.6.32.
func TestUPlotIsAsItsAuthorsReleasedIt(t *testing.T) {
	for name, want := range map[string]string{
		"uPlot.esm.js":  "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
		"uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
	} {
		text, err := assets.ReadFile("assets/uplot/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has the sum %x", name, sum)
		}
	}
	if licence, err := assets.ReadFile("assets/uplot/LICENSE"); err != nil || !strings.Contains(string(licence), "The MIT License") {
		t.Errorf("its licence is not there: %v", err)
	}
}

// elsewhere is an address of another site; the namespaces of SVG are names and no
// addresses.
var elsewhere = regexp.MustCompile(`https?://[a-z0-9.]+`)

// TestAssetsNameNoOtherSite: nothing of ours may be asked of another server, nor parse what
// a cluster says as HTML.
func TestAssetsNameNoOtherSite(t *testing.T) {
	err := fs.WalkDir(assets, "assets", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || strings.Contains(name, "/uplot/") {
			return err
		}
		text, err := assets.ReadFile(name)
		if err != nil {
			return err
		}
		for _, address := range elsewhere.FindAllString(string(text), -1) {
			if address != "http://www.w3.org" {
				t.Errorf("%s names %s", name, address)
			}
		}
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s uses %s: make nodes with el of dom.js", name, bad)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
