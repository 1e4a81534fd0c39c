package cluster

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"
)

// Probe is how to check whether a component serves. It is part of the state file, so that other processes can check, too.
type Probe struct {
	URL string `json:"url"`

	// CA is the file of the authority that signed the component's certificate; empty for plain HTTP.
	CA string `json:"ca,omitempty"`

	// Certificate and Key are files for a component that requires a client certificate.
	Certificate string `json:"certificate,omitempty"`
	Key         string `json:"key,omitempty"`

	// Listens is an address that has to take connections, too; empty for none.
	Listens string `json:"listens,omitempty"`
}

func etcdProbe(p plan) Probe {
	return Probe{
		URL:         "https://" + p.address(Etcd) + "/health",
		CA:          p.certificate(etcdCA),
		Certificate: p.certificate(etcdClientCert),
		Key:         p.key(etcdClientCert),
	}
}

func secureProbe(port, path string) func(plan) Probe {
	return func(p plan) Probe {
		return Probe{URL: "https://" + p.address(port) + path, CA: p.certificate(clusterCA)}
	}
}

func plainProbe(port, path string) func(plan) Probe {
	return func(p plan) Probe { return Probe{URL: "http://" + p.address(port) + path} }
}

// Check returns nil if the component answers that it serves.
func (p Probe) Check(ctx context.Context) error {
	client, err := p.client()
	if err != nil {
		return err
	}
	// Each check opens a connection, since a kept one could outlive the process that it checks.
	defer client.CloseIdleConnections()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.URL, nil)
	if err != nil {
		return fmt.Errorf("asking %s: %w", p.URL, err)
	}
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answered %s", p.URL, response.Status)
	}
	return p.dial(ctx)
}

func (p Probe) dial(ctx context.Context) error {
	if p.Listens == "" {
		return nil
	}
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.Listens)
	if err != nil {
		return err
	}
	return connection.Close()
}

func (p Probe) client() (*http.Client, error) {
	const timeout = 2 * time.Second
	if p.CA == "" {
		return &http.Client{Transport: &http.Transport{}, Timeout: timeout}, nil
	}
	authority, err := os.ReadFile(p.CA)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate of the sandbox's authority: %w", err)
	}
	config := &tls.Config{RootCAs: x509.NewCertPool(), MinVersion: tls.VersionTLS12}
	if !config.RootCAs.AppendCertsFromPEM(authority) {
		return nil, errors.New("there is no certificate in " + p.CA)
	}
	if p.Certificate != "" {
		pair, err := tls.LoadX509KeyPair(p.Certificate, p.Key)
		if err != nil {
			return nil, fmt.Errorf("reading a client certificate: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return &http.Client{Transport: &http.Transport{TLSClientConfig: config}, Timeout: timeout}, nil
}
