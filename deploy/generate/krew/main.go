// Command krew fills in the template of the plugin's manifest for a release: its version, and the
// address and checksum of each archive. `make release` runs it.
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"
	"text/template"
)

func main() {
	if len(os.Args) != 3 {
		fmt.Fprintln(os.Stderr, "usage: krew VERSION CHECKSUMS < template > manifest")
		os.Exit(2)
	}
	if err := run(os.Stdout, os.Stdin, os.Args[1], os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "krew:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, in io.Reader, version, checksums string) error {
	text, err := io.ReadAll(in)
	if err != nil {
		return err
	}
	sums, err := read(checksums)
	if err != nil {
		return err
	}
	uriAndSum := func(address, tag string) (string, error) {
		uri := strings.ReplaceAll(address, "{{ .TagName }}", tag)
		sum := sums[uri[strings.LastIndex(uri, "/")+1:]]
		if sum == "" {
			return "", fmt.Errorf("%s has no checksum for %s", checksums, uri)
		}
		return "uri: " + uri + "\n    sha256: " + sum, nil
	}
	manifest, err := template.New("").Funcs(template.FuncMap{"addURIAndSha": uriAndSum}).Parse(string(text))
	if err != nil {
		return err
	}
	return manifest.Execute(out, map[string]string{"TagName": version})
}

// read returns the checksums of a file as sha256sum writes it, by name.
func read(path string) (map[string]string, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]string{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if sum, name, ok := strings.Cut(lines.Text(), "  "); ok {
			out[name] = sum
		}
	}
	return out, lines.Err()
}
