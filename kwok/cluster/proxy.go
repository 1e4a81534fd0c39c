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
	"os"
)

// openProxies puts what the configuration wants between the musters and kube-apiserver. Each muster has a proxy of its
// own, so that requests can be attributed.
func (c *Cluster) openProxies() error {
	if c.config.Proxy == nil {
		return nil
	}
	c.plan.proxies = map[string]string{}
	for _, name := range []string{Muster, Standby} {
		if !c.plan.runs(name) {
			continue
		}
		server, err := c.OpenProxy(func(next http.Handler) http.Handler { return c.config.Proxy(name, next) })
		if err != nil {
			return fmt.Errorf("between %s and kube-apiserver: %w", name, err)
		}
		c.plan.proxies[name] = server
	}
	return nil
}

// OpenProxy returns one more URL of kube-apiserver, with between in front of it: between serves the requests of the client, and next
// forwards a request. It ends with the cluster.
func (c *Cluster) OpenProxy(between func(next http.Handler) http.Handler) (string, error) {
	next, err := c.backend()
	if err != nil {
		return "", err
	}
	serving, err := tls.LoadX509KeyPair(c.plan.certificate(servingCert), c.plan.key(servingCert))
	if err != nil {
		return "", fmt.Errorf("reading the certificate of kube-apiserver for its proxy: %w", err)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return "", fmt.Errorf("listening as a proxy: %w", err)
	}
	server := &http.Server{
		Handler:   between(next),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{serving}, MinVersion: tls.VersionTLS12},
		HTTP2:     &http.HTTP2Config{MaxConcurrentStreams: proxyStreams},
		ErrorLog:  slog.NewLogLogger(slog.DiscardHandler, 0),
	}
	c.proxies = append(c.proxies, server)
	go func() { _ = server.ServeTLS(listener, "", "") }() // it ends when it is closed
	return "https://" + listener.Addr().String(), nil
}

// proxyStreams is how many concurrent requests a component may have: more than any has watches and writes.
const proxyStreams = 4000

// backend passes requests on to kube-apiserver, with the credentials that they bear. Where that gives no answer, the
// connection is cut, as it would be without a proxy.
func (c *Cluster) backend() (http.Handler, error) {
	target, err := url.Parse(c.plan.server())
	if err != nil {
		return nil, fmt.Errorf("the address of kube-apiserver: %w", err)
	}
	authority, err := os.ReadFile(c.plan.certificate(clusterCA))
	if err != nil {
		return nil, fmt.Errorf("reading the sandbox's authority: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(authority) {
		return nil, errors.New("the certificate of the sandbox's authority is none")
	}
	return &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: &http.Transport{
			TLSClientConfig:   &tls.Config{RootCAs: authorities, MinVersion: tls.VersionTLS12},
			ForceAttemptHTTP2: true,
		},
		FlushInterval: -1, // watches deliver each change at once
		ErrorLog:      slog.NewLogLogger(slog.DiscardHandler, 0),
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}, nil
}
