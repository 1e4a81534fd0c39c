package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
)

// openProxies puts what the configuration wants between the musters and kube-apiserver. Each muster has a proxy of its
// own, so that requests can be attributed.
func (c *Cluster) openProxies(cluster *authority) error {
	if c.config.Proxy == nil {
		return nil
	}
	next, err := c.backend(cluster)
	if err != nil {
		return err
	}
	serving, err := tls.LoadX509KeyPair(c.plan.certificate(servingCert), c.plan.key(servingCert))
	if err != nil {
		return fmt.Errorf("reading the certificate of kube-apiserver for its proxies: %w", err)
	}
	c.plan.proxies = map[string]string{}
	for _, name := range []string{Muster, Standby} {
		if !c.plan.runs(name) {
			continue
		}
		listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
		if err != nil {
			return fmt.Errorf("listening as the proxy between %s and kube-apiserver: %w", name, err)
		}
		server := &http.Server{
			Handler:   c.config.Proxy(name, next),
			TLSConfig: &tls.Config{Certificates: []tls.Certificate{serving}, MinVersion: tls.VersionTLS12},
			HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: proxyStreams},
			ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, 0),
		}
		c.proxies = append(c.proxies, server)
		c.plan.proxies[name] = listener.Addr().String()
		go func() { _ = server.ServeTLS(listener, "", "") }() // it ends when it is closed
	}
	return nil
}

// proxyStreams is how many concurrent requests a component may have: more than any has watches and writes.
const proxyStreams = 4000

// backend passes requests on to kube-apiserver, with the credentials that they bear. Where that gives no answer, the
// connection is cut, as it would be without a proxy.
func (c *Cluster) backend(cluster *authority) (http.Handler, error) {
	target, err := url.Parse(c.plan.server())
	if err != nil {
		return nil, fmt.Errorf("the address of kube-apiserver: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(cluster.pem.certificate) {
		return nil, errors.New("the certificate of the sandbox's authority is none")
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true,
		},
		FlushInterval: -1, // watches are told of each change at once
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}
