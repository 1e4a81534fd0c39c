package framework

import (
	"context"
	"errors"
	"fmt"
	"net"
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
)

// muster is a process that queues in the suite's cluster, with the rights of its service account.
type muster struct {
	command *exec.Cmd
	ended   chan struct{}
	mirror  context.CancelFunc
}

// startMuster returns when it serves.
func startMuster(ctx context.Context, server *rest.Config, settings []byte, schedules bool) (*muster, error) {
	dir := os.Getenv(dirVariable)
	kubeconfig, file := filepath.Join(dir, "muster.kubeconfig"), filepath.Join(dir, "muster.yaml")
	if err := writeKubeconfig(ctx, server, kubeconfig, schedules); err != nil {
		return nil, err
	}
	if err := os.WriteFile(file, settings, 0o600); err != nil {
		return nil, err
	}
	log, err := os.OpenFile(filepath.Join(dir, "muster.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	fmt.Fprintf(log, "--- starting with\n%s---\n", settings)
	health, metrics, err := freeAddresses()
	if err != nil {
		return nil, err
	}
	m := &muster{ended: make(chan struct{})}
	m.command = exec.Command(os.Getenv(binaryVariable), "--config="+file, "--kubeconfig="+kubeconfig, "--provisioning=false",
		"--leader-elect=false",
		"--metrics-bind-address="+metrics, "--metrics-secure=false", "--health-probe-bind-address="+health)
	m.command.Stdout, m.command.Stderr = log, log
	// A muster whose suite is killed goes, too.
	m.command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := m.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(m.ended)
		_ = m.command.Wait() // how it ended is in its log
	}()
	if err := m.serves(ctx, health); err != nil {
		m.stop()
		return nil, err
	}
	mirroring, cancel := context.WithCancel(context.Background())
	m.mirror = cancel
	go mirrorMetrics(mirroring, "http://"+metrics+"/metrics", schedules)
	return m, nil
}

func (m *muster) serves(ctx context.Context, health string) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if answer, err := http.Get("http://" + health + "/readyz"); err == nil {
			answer.Body.Close()
			if answer.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-m.ended:
			return errors.New("muster ended at its start: see muster.log")
		case <-ctx.Done():
			return errors.New("muster does not serve: see muster.log")
		}
	}
}

// stop ends the process, if there is one.
func (m *muster) stop() {
	if m == nil {
		return
	}
	if m.mirror != nil {
		m.mirror()
	}
	_ = m.command.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	select {
	case <-m.ended:
	case <-time.After(patience):
		_ = m.command.Process.Kill()
		<-m.ended
	}
}

// writeKubeconfig writes the credentials of Muster's service account, or of an account that may not reserve quota.
func writeKubeconfig(ctx context.Context, server *rest.Config, path string, schedules bool) error {
	user := &clientcmdapi.AuthInfo{
		ClientCertificateData: server.CertData, ClientKeyData: server.KeyData, ClientCertificate: server.CertFile, ClientKey: server.KeyFile,
		Impersonate: impersonation.UserName, ImpersonateGroups: impersonation.Groups, ImpersonateUserExtra: impersonation.Extra,
	}
	if schedules {
		set, err := kubernetes.NewForConfig(server)
		if err != nil {
			return err
		}
		seconds := int64(6 * 60 * 60)
		token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds}}
		token, err = set.CoreV1().ServiceAccounts("muster-system").CreateToken(ctx, "muster", token, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("getting a token of Muster's service account: %w", err)
		}
		user = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	}
	out := clientcmdapi.NewConfig()
	out.Clusters["suite"] = &clientcmdapi.Cluster{
		Server: server.Host, CertificateAuthorityData: server.CAData, CertificateAuthority: server.CAFile,
	}
	out.AuthInfos["muster"] = user
	out.Contexts["suite"] = &clientcmdapi.Context{Cluster: "suite", AuthInfo: "muster"}
	out.CurrentContext = "suite"
	return clientcmd.WriteToFile(*out, path)
}

func freeAddresses() (a, b string, err error) {
	first, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer first.Close()
	second, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", "", err
	}
	defer second.Close()
	return first.Addr().String(), second.Addr().String(), nil
}
