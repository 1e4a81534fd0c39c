package cluster

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

const (
	// admin is the user of the kubeconfig that people get.
	admin = "admin"

	// kubeconfigMark names the cluster and the context in each kubeconfig, and distinguishes our files from a user's own.
	kubeconfigMark = "muster-sandbox"
)

// users are the users with a certificate, each with its name and groups. Components that act as service accounts have a
// token.
var users = []struct {
	file   string
	name   string
	groups []string
}{
	{file: admin, name: "muster-sandbox-admin", groups: []string{"system:masters"}},
	{file: ControllerManager, name: "system:kube-controller-manager"},
	{file: Scheduler, name: "system:kube-scheduler"},
	// It simulates the kubelets of all machines, so it needs the rights of all of them.
	{file: Kwok, name: "muster-sandbox-kwok", groups: []string{"system:masters"}},
}

func writeKubeconfigs(p plan, cluster *authority) error {
	for _, user := range users {
		pair, err := cluster.client(user.name, user.groups...)
		if err != nil {
			return err
		}
		info := &clientcmdapi.AuthInfo{ClientCertificateData: pair.certificate, ClientKeyData: pair.key}
		if err := writeKubeconfig(p, cluster, user.file, info); err != nil {
			return err
		}
	}
	for component := range accounts {
		if err := writeKubeconfig(p, cluster, component, &clientcmdapi.AuthInfo{TokenFile: p.token(component)}); err != nil {
			return err
		}
	}
	return nil
}

func writeKubeconfig(p plan, cluster *authority, user string, info *clientcmdapi.AuthInfo) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[kubeconfigMark] = &clientcmdapi.Cluster{
		Server:                   p.serverFor(user),
		CertificateAuthorityData: cluster.pem.certificate,
	}
	config.AuthInfos[user] = info
	config.Contexts[kubeconfigMark] = &clientcmdapi.Context{Cluster: kubeconfigMark, AuthInfo: user}
	config.CurrentContext = kubeconfigMark
	text, err := clientcmd.Write(*config)
	if err != nil {
		return fmt.Errorf("writing the kubeconfig of %s: %w", user, err)
	}
	return writeFile(p.kubeconfig(user), text)
}

func (p plan) server() string { return "https://" + p.address(APIServer) }

// serverFor is where a user finds kube-apiserver.
func (p plan) serverFor(user string) string {
	if server, ok := p.proxies[user]; ok {
		return server
	}
	return p.server()
}

// checkKubeconfigCopy refuses to write over a kubeconfig that is not a sandbox's: people keep their access to real
// clusters in such files.
func checkKubeconfigCopy(path string) error {
	config, err := clientcmd.LoadFromFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Dir(path)); err != nil {
			return fmt.Errorf("the folder for --kubeconfig %s is not there: make it first: %w", path, err)
		}
		return nil
	}
	if err != nil || !isOurs(config) {
		return fmt.Errorf("%s is there already and was not written by a sandbox: give --kubeconfig another file, or move that one away", path)
	}
	return nil
}

// isOurs reports whether all clusters in a kubeconfig are sandboxes.
func isOurs(config *clientcmdapi.Config) bool {
	for name := range config.Clusters {
		if name != kubeconfigMark && !strings.HasPrefix(name, kubeconfigMark+"-") {
			return false
		}
	}
	return len(config.Clusters) > 0
}

// removeKubeconfigCopy removes the copy if it still is the one of the given server, and not that of a later sandbox.
func removeKubeconfigCopy(path, server string) {
	config, err := clientcmd.LoadFromFile(path)
	if err != nil || !isOurs(config) {
		return
	}
	for _, cluster := range config.Clusters {
		if cluster.Server == server {
			_ = os.Remove(path) // what cannot be removed does no harm: it leads nowhere
		}
	}
}
