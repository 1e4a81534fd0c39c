package cluster

import (
	"fmt"
	"os"
	"path/filepath"
)

// layout is where the files of one sandbox lie. The folder is the user's --data-dir, or a temporary one.
type layout struct {
	dir     string
	logDir  string
	etcdDir string
}

func (l layout) certificate(name string) string { return filepath.Join(l.dir, "pki", name+".crt") }
func (l layout) key(name string) string         { return filepath.Join(l.dir, "pki", name+".key") }
func (l layout) kubeconfig(user string) string {
	return filepath.Join(l.dir, "kubeconfig", user+".yaml")
}
func (l layout) token(component string) string {
	return filepath.Join(l.dir, "kubeconfig", component+".token")
}
func (l layout) schedulerConfig() string {
	return filepath.Join(l.dir, "config", "kube-scheduler.yaml")
}
func (l layout) auditPolicy() string  { return filepath.Join(l.dir, "config", "audit.yaml") }
func (l layout) auditLog() string     { return l.log("audit") }
func (l layout) cloudsConfig() string { return filepath.Join(l.dir, "config", "clouds.yaml") }
func (l layout) musterConfig() string { return filepath.Join(l.dir, "config", "muster.yaml") }
func (l layout) kwokConfig() string   { return filepath.Join(l.dir, "config", "kwok.yaml") }
func (l layout) log(component string) string {
	return filepath.Join(l.logDir, component+".log")
}

func (l layout) operator(name string) string { return filepath.Join(l.dir, "operators", name) }

// create makes the folders, readable by their owner only since they hold private keys, and empties the logs of an
// earlier run.
func (l layout) create() error {
	if err := os.RemoveAll(l.logDir); err != nil {
		return fmt.Errorf("clearing old logs (give a folder you may write to with --data-dir): %w", err)
	}
	for _, dir := range []string{l.dir, l.logDir, l.etcdDir, filepath.Join(l.dir, "pki"), filepath.Join(l.dir, "kubeconfig"),
		filepath.Join(l.dir, "config")} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("making a folder for the sandbox (give one you may write to with --data-dir): %w", err)
		}
	}
	return nil
}

// writeFile replaces a file in one step, so that a reader sees the old text or the new one, never a part.
func writeFile(path string, data []byte) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	defer os.Remove(temporary.Name()) // fails once the file has its final name
	if _, err := temporary.Write(data); err != nil {
		temporary.Close()
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := temporary.Close(); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	if err := os.Rename(temporary.Name(), path); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return nil
}
