// Command generate writes the Grafana dashboards, as JSON that Grafana imports. Run it by `make generate`.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

const out = "deploy/charts/muster/files/dashboards"

func main() {
	if err := run(out); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}

// run writes all dashboards into an emptied folder.
func run(folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, b := range boards {
		built, err := b.build()
		if err != nil {
			return fmt.Errorf("dashboard %s: %w", b.name, err)
		}
		text, err := json.MarshalIndent(built, "", "  ")
		if err != nil {
			return fmt.Errorf("dashboard %s: %w", b.name, err)
		}
		if err := os.WriteFile(filepath.Join(folder, b.name+".json"), append(text, '\n'), 0o644); err != nil {
			return err
		}
	}
	return nil
}
