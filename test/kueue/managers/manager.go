// Package managers runs the managers of queues that tests put on a sandbox as
// processes of their own: a stock Kueue, unmodified, with the manifests and the
// rights that it comes with; and Muster, where it is measured beside that.
package managers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/muster-dev/muster/test/pressure"
	"github.com/muster-dev/muster/test/testbed"
)

// patience is the timeout for a manager to serve, and to end.
const patience = 60 * time.Second

// Manager is a process that works on the cluster as a service account, with the
// rights of that and no others.
type Manager struct {
	name, dir          string
	namespace, account string
	// command gets the flag --kubeconfig appended.
	command []string
	// health is the port that serves /readyz; 0 where none does.
	health int
	// metrics is the port that serves /metrics; 0 where none does.
	metrics int
	// prepare is called after each start, before the manager is expected to serve.
	prepare func(context.Context) error

	running *exec.Cmd
}

// newManager gives the manager its credentials.
func newManager(ctx context.Context, server *rest.Config, m Manager) (*Manager, error) {
	set, err := kubernetes.NewForConfig(server)
	if err != nil {
		return nil, err
	}
	hours := int64(2 * time.Hour / time.Second)
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}
	if token, err = set.CoreV1().ServiceAccounts(m.namespace).CreateToken(ctx, m.account, token, metav1.CreateOptions{}); err != nil {
		return nil, fmt.Errorf("getting a token of service account %s/%s: %w", m.namespace, m.account, err)
	}
	account := rest.AnonymousClientConfig(server)
	account.BearerToken = token.Status.Token
	return &m, m.actAs(account)
}

// actAs gives the manager these credentials.
func (m *Manager) actAs(user *rest.Config) error {
	kubeconfig := filepath.Join(m.dir, m.name+".kubeconfig")
	m.command = append(m.command, "--kubeconfig="+kubeconfig)
	return WriteKubeconfig(kubeconfig, user)
}

// WriteKubeconfig writes a file with a server's address and a user's credentials.
func WriteKubeconfig(path string, user *rest.Config) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["sandbox"] = &clientcmdapi.Cluster{Server: user.Host, CertificateAuthorityData: user.CAData}
	config.AuthInfos["user"] = &clientcmdapi.AuthInfo{Token: user.BearerToken, ClientCertificateData: user.CertData,
		ClientKeyData: user.KeyData}
	config.Contexts["sandbox"] = &clientcmdapi.Context{Cluster: "sandbox", AuthInfo: "user"}
	config.CurrentContext = "sandbox"
	return clientcmd.WriteToFile(*config, path)
}

// Metrics returns the metrics of the manager, as text; empty while it does not respond.
func (m *Manager) Metrics() string {
	answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/metrics", m.metrics))
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return ""
	}
	return string(text)
}

// Log is the path of the manager's log.
func (m *Manager) Log() string { return filepath.Join(m.dir, m.name+".log") }

// Start returns when the manager serves. Where it holds a lease it ends by itself
// when it loses that, so it does not outlive the cluster of a test that was killed.
func (m *Manager) Start(ctx context.Context) error {
	log, err := os.OpenFile(m.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	m.running = exec.Command(m.command[0], m.command[1:]...)
	m.running.Dir, m.running.Stdout, m.running.Stderr = m.dir, log, log
	if err := m.running.Start(); err != nil {
		m.running = nil
		return fmt.Errorf("starting %s: %w", m.name, err)
	}
	ctx, cancel := pressure.WithTimeout(ctx, patience)
	defer cancel()
	if m.prepare != nil {
		if err := m.prepare(ctx); err != nil {
			return err
		}
	}
	if m.health == 0 {
		return nil
	}
	err = testbed.Poll(ctx, func() bool {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", m.health))
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	if err != nil {
		testbed.Tail(m.Log())
		return fmt.Errorf("waiting for %s to serve: %w", m.name, err)
	}
	return nil
}

// Stop ends the manager gracefully, if it runs, and returns its usage.
func (m *Manager) Stop() Usage {
	if m == nil || m.running == nil {
		return Usage{}
	}
	out := Usage{PeakBytes: peakMemory(m.running.Process.Pid)}
	_ = m.running.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	ended := time.AfterFunc(patience, func() { _ = m.running.Process.Kill() })
	defer ended.Stop()
	_ = m.running.Wait() // how it ended is in its log
	out.CPU = m.running.ProcessState.UserTime() + m.running.ProcessState.SystemTime()
	m.running = nil
	return out
}

// Kill ends the manager as a crash would, until Start.
func (m *Manager) Kill() {
	_ = m.running.Process.Kill() // it may have ended by itself
	_ = m.running.Wait()
}

// Usage is what a process took from its start to its end.
type Usage struct {
	CPU time.Duration
	// PeakBytes is the peak of the resident memory; 0 where the system does not report it.
	PeakBytes int64
}
