package kueue

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// program is a process that works on the cluster as a service account, with the
// rights of that and no others.
type program struct {
	name, dir          string
	namespace, account string
	// command gets the flag --kubeconfig appended.
	command []string
	// health is the port that serves /readyz.
	health int
	// prepare is called after each start, before the program is expected to serve.
	prepare func(context.Context) error

	running *exec.Cmd
}

// newProgram gives the program its credentials.
func newProgram(ctx context.Context, p program) (*program, error) {
	hours := int64(2 * time.Hour / time.Second)
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &hours}}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: p.account}}
	if err := kube.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, fmt.Errorf("getting a token of service account %s/%s: %w", p.namespace, p.account, err)
	}
	server := running.RESTConfig()
	config := clientcmdapi.NewConfig()
	config.Clusters["sandbox"] = &clientcmdapi.Cluster{Server: server.Host, CertificateAuthorityData: server.CAData}
	config.AuthInfos["account"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["sandbox"] = &clientcmdapi.Context{Cluster: "sandbox", AuthInfo: "account"}
	config.CurrentContext = "sandbox"
	kubeconfig := filepath.Join(p.dir, p.name+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, kubeconfig); err != nil {
		return nil, err
	}
	p.command = append(p.command, "--kubeconfig="+kubeconfig)
	return &p, nil
}

func (p *program) log() string { return filepath.Join(p.dir, p.name+".log") }

// start returns when the program serves. It holds a lease and ends by itself when
// it loses that, so it does not outlive the cluster of a test that was killed.
func (p *program) start(ctx context.Context) error {
	log, err := os.OpenFile(p.log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	p.running = exec.Command(p.command[0], p.command[1:]...)
	p.running.Dir, p.running.Stdout, p.running.Stderr = p.dir, log, log
	if err := p.running.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", p.name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if p.prepare != nil {
		if err := p.prepare(ctx); err != nil {
			return err
		}
	}
	err = poll(ctx, func() bool {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d/readyz", p.health))
		if err != nil {
			return false
		}
		answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	if err != nil {
		tail(p.log())
		return fmt.Errorf("waiting for %s to serve: %w", p.name, err)
	}
	return nil
}

// stop ends the program in good order, if it runs.
func (p *program) stop() {
	if p == nil || p.running == nil {
		return
	}
	_ = p.running.Process.Signal(syscall.SIGTERM) // it may have ended by itself
	ended := time.AfterFunc(patience, func() { _ = p.running.Process.Kill() })
	defer ended.Stop()
	_ = p.running.Wait() // how it ended is in its log
	p.running = nil
}

// kill ends the program as a crash would, until start.
func (p *program) kill() {
	_ = p.running.Process.Kill() // it may have ended by itself
	_ = p.running.Wait()
}

// tail prints the end of a log.
func tail(path string) {
	const most = 16 << 10
	text, err := os.ReadFile(path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	fmt.Fprintf(os.Stderr, "The end of %s:\n%s\n", path, text[max(0, len(text)-most):])
}

// poll returns when the condition holds, or with the reason why it is not waited for any more.
func poll(ctx context.Context, holds func() bool) error {
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for !holds() {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-ticker.C:
		}
	}
	return nil
}
