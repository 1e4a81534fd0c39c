package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/muster-dev/muster/deploy"
)

const (
	// interval is the time between two checks of the registration; retry is the time after a failed one.
	interval = time.Minute
	retry    = 2 * time.Second
)

// Config configures the webhook.
type Config struct {
	Address  string
	Policies []*deploy.Policy
	// Namespaces in which policies act, by the name of the policy, where the configuration of
	// muster says so.
	Namespaces map[string]*metav1.LabelSelector
	// Params has the objects that policies have as their parameters.
	Params client.Reader
	// Client writes the registration. Each process writes its own certificate, so it is no leader's
	// alone.
	Client client.Client
	Clock  clock.WithTicker
}

// Add has the manager serve the webhook, and be ready once kube-apiserver trusts it.
func Add(mgr ctrl.Manager, c Config) error {
	r := &registration{Config: c}
	host, port, err := split(c.Address)
	if err != nil {
		return err
	}
	server := webhook.NewServer(webhook.Options{Host: host, Port: port, TLSOpts: []func(*tls.Config){
		func(t *tls.Config) { t.GetCertificate, t.MinVersion = r.certificate, tls.VersionTLS12 },
	}})
	if err := register(server, c.Policies, c.Params); err != nil {
		return err
	}
	for _, runnable := range []interface{ Start(context.Context) error }{server, r} {
		if err := mgr.Add(runnable); err != nil {
			return err
		}
	}
	return mgr.AddReadyzCheck("webhook", r.ready)
}

// Validate returns an error if nothing can listen on the address.
func Validate(address string) error {
	_, _, err := split(address)
	return err
}

func split(address string) (host string, port int, err error) {
	host, text, err := net.SplitHostPort(address)
	if err == nil {
		port, err = strconv.Atoi(text)
	}
	if err != nil || port < 1 || port > 65535 {
		return "", 0, fmt.Errorf("%q is no address with a port from 1 to 65535; give one such as :9443", address)
	}
	return host, port, nil
}

// registration keeps in the MutatingWebhookConfiguration what only this process has: its certificate, beside those of other processes, and
// the namespaces of its configuration.
type registration struct {
	Config

	mu sync.Mutex
	// serving is nil until kube-apiserver trusts it.
	serving *tls.Certificate
	// next takes its place once kube-apiserver trusts it; of Start alone.
	next *tls.Certificate
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: all processes serve.
func (r *registration) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. A registration that cannot be found or changed at the start ends the process, since its user has
// requested it.
func (r *registration) Start(ctx context.Context) error {
	logger := ctrl.Log.WithName("webhook")
	for {
		wait := interval
		switch err := r.write(ctx); {
		case err == nil:
		case r.ready(nil) != nil && (apierrors.IsNotFound(err) || apierrors.IsForbidden(err)):
			return fmt.Errorf("--webhook-bind-address needs what `muster manifests --webhook` prints; install it, or leave the flag out: %w", err)
		default:
			wait = retry
			logger.Info("The webhook could not be registered, trying again", "error", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-r.Clock.After(wait):
		}
	}
}

// write brings the registration up to date.
func (r *registration) write(ctx context.Context) error {
	current := &admissionv1.MutatingWebhookConfiguration{}
	if err := r.Client.Get(ctx, client.ObjectKey{Name: deploy.WebhookConfiguration}, current); err != nil {
		return err
	}
	if hosts := hosts(current); !isGood(r.next, hosts, r.Clock.Now()) {
		var err error
		if r.next, err = certify(hosts, r.Clock.Now()); err != nil {
			return err
		}
	}
	wanted := current.DeepCopy()
	for i := range wanted.Webhooks {
		w := &wanted.Webhooks[i]
		w.ClientConfig.CABundle = bundle(w.ClientConfig.CABundle, r.next.Leaf, r.Clock.Now())
		for _, p := range r.Policies {
			if namespaces, selected := r.Namespaces[p.Name]; selected && p.WebhookName() == w.Name {
				w.NamespaceSelector = deploy.OutsideSystem(namespaces)
			}
		}
	}
	if !equality.Semantic.DeepEqual(current, wanted) {
		// Its resourceVersion keeps what another process writes at the same time.
		if err := r.Client.Update(ctx, wanted); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.serving = r.next
	return nil
}

func (r *registration) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.serving == nil {
		return nil, errors.New("the webhook is not registered yet")
	}
	return r.serving, nil
}

func (r *registration) ready(*http.Request) error {
	_, err := r.certificate(nil)
	return err
}

// hosts returns the host names by which kube-apiserver calls the webhooks.
func hosts(c *admissionv1.MutatingWebhookConfiguration) (out []string) {
	for _, w := range c.Webhooks {
		host := ""
		if s := w.ClientConfig.Service; s != nil {
			host = s.Name + "." + s.Namespace + ".svc"
		} else if w.ClientConfig.URL != nil {
			if u, err := url.Parse(*w.ClientConfig.URL); err == nil {
				host = u.Hostname()
			}
		}
		if host != "" && !slices.Contains(out, host) {
			out = append(out, host)
		}
	}
	return out
}
