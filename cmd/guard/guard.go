// Package guard decides which requests a server of Muster's answers: those that name a host
// which is the server's, and, where others than the users of the machine can reach it, those
// whose token the cluster accepts and whose user may get the path.
package guard

import (
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/metrics/filters"
)

// Loopback reports whether only the machine itself can reach an address, such as
// 127.0.0.1:8090. Without a host an address is that of all networks.
func Loopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// Hosts passes on requests for an address, for localhost, or for one of the names. A page of
// another site can have a browser request its own name with an address of ours behind it,
// and read the answer; it cannot do so with a name that is not its own.
func Hosts(names []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		host = strings.TrimSuffix(strings.ToLower(host), ".")
		known := host == "localhost" || net.ParseIP(strings.Trim(host, "[]")) != nil ||
			slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, host) })
		if !known {
			http.Error(w, fmt.Sprintf("The host %q is not served here: ask for localhost or an address, or give the name to --allowed-hosts", host),
				http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Authenticated passes on requests with a bearer token that the cluster knows, of a user that
// may get the path below prefix there. A prefix keeps the paths of a server apart from those
// of the API server, for which the same rights would stand.
func Authenticated(config *rest.Config, log logr.Logger, prefix string, next http.Handler) (http.Handler, error) {
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	cluster := &answers{next: client.Transport}
	if cluster.next == nil {
		cluster.next = http.DefaultTransport
	}
	client = &http.Client{Transport: cluster, Timeout: client.Timeout} // the one above may be that of all
	filter, err := filters.WithAuthenticationAndAuthorization(config, client)
	if err != nil {
		return nil, err
	}
	served := http.StripPrefix(prefix, next)
	asked, err := filter(log, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		served.ServeHTTP(w.(*reply).ResponseWriter, r)
	}))
	if err != nil {
		return nil, err
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		below := r.Clone(r.Context())
		below.URL.Path, below.URL.RawPath = prefix+r.URL.Path, ""
		asked.ServeHTTP(&reply{ResponseWriter: w, cluster: cluster}, below)
	}), nil
}

// answers notes whether the cluster has answered the last question about a user.
type answers struct {
	next   http.RoundTripper
	silent atomic.Bool
}

func (a *answers) RoundTrip(r *http.Request) (*http.Response, error) {
	out, err := a.next.RoundTrip(r)
	a.silent.Store(err != nil || out.StatusCode >= http.StatusInternalServerError)
	return out, err
}

// reply is what the filter answers by itself. It takes every token that the cluster does not know for an error of the server; it is one
// of the client, unless the cluster was silent.
type reply struct {
	http.ResponseWriter
	cluster *answers
}

func (w *reply) WriteHeader(status int) {
	switch {
	case status != http.StatusInternalServerError:
	case w.cluster.silent.Load():
		status = http.StatusServiceUnavailable
	default:
		w.Header().Set("WWW-Authenticate", "Bearer")
		status = http.StatusUnauthorized
	}
	w.ResponseWriter.WriteHeader(status)
}
