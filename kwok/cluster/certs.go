package cluster

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"time"
)

// The files below pki/, each a NAME.crt and a NAME.key. etcd has an authority of its own: with a shared one, the
// holder of any certificate of the cluster could read and write its store, bypassing the API server.
const (
	clusterCA         = "ca"
	servingCert       = "serving"
	etcdCA            = "etcd-ca"
	etcdServerCert    = "etcd-server"
	etcdClientCert    = "etcd-client"
	serviceAccountKey = "service-account"
)

const (
	authorityLifetime   = 10 * 365 * 24 * time.Hour
	certificateLifetime = 365 * 24 * time.Hour

	// clockSlack dates certificates back, for machines whose clock is set back a little.
	clockSlack = time.Hour
)

// keyPair is a certificate and its key, both as PEM.
type keyPair struct{ certificate, key []byte }

// authority signs the certificates of a sandbox.
type authority struct {
	certificate *x509.Certificate
	signer      crypto.Signer
	pem         keyPair
}

func newAuthority(name string) (*authority, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: name},
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := sign(template, template, key.Public(), key, authorityLifetime)
	if err != nil {
		return nil, fmt.Errorf("making the authority %s: %w", name, err)
	}
	return parseAuthority(keyPair{encode("CERTIFICATE", der), keyPEM})
}

func parseAuthority(pair keyPair) (*authority, error) {
	certificateBlock, _ := pem.Decode(pair.certificate)
	keyBlock, _ := pem.Decode(pair.key)
	if certificateBlock == nil || keyBlock == nil {
		return nil, errors.New("not PEM")
	}
	certificate, err := x509.ParseCertificate(certificateBlock.Bytes)
	if err != nil {
		return nil, err
	}
	signer, err := x509.ParseECPrivateKey(keyBlock.Bytes)
	if err != nil {
		return nil, err
	}
	return &authority{certificate: certificate, signer: signer, pem: pair}, nil
}

// server makes a certificate for a server on this machine. etcd's server is its own client too, when its gateway and
// its peers call it.
func (a *authority) server(name string, dnsNames ...string) (keyPair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: name},
		DNSNames:    append([]string{"localhost"}, dnsNames...),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
}

// client makes a certificate that names a user and its groups.
func (a *authority) client(user string, groups ...string) (keyPair, error) {
	return a.issue(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
}

func (a *authority) issue(template *x509.Certificate) (keyPair, error) {
	key, keyPEM, err := newKey()
	if err != nil {
		return keyPair{}, err
	}
	template.KeyUsage = x509.KeyUsageDigitalSignature
	der, err := sign(template, a.certificate, key.Public(), a.signer, certificateLifetime)
	if err != nil {
		return keyPair{}, fmt.Errorf("making a certificate for %s: %w", template.Subject.CommonName, err)
	}
	return keyPair{encode("CERTIFICATE", der), keyPEM}, nil
}

func sign(template, parent *x509.Certificate, public crypto.PublicKey, signer crypto.Signer, lifetime time.Duration) ([]byte, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-clockSlack)
	template.NotAfter = time.Now().Add(lifetime)
	return x509.CreateCertificate(rand.Reader, template, parent, public, signer)
}

// newKey writes its key in the form that kube-apiserver can also take a public key from, as it does for service accounts.
func newKey() (crypto.Signer, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, fmt.Errorf("making a key: %w", err)
	}
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		return nil, nil, fmt.Errorf("encoding a key: %w", err)
	}
	return key, encode("EC PRIVATE KEY", der), nil
}

func encode(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

// prepareCertificates writes what the components need and returns the cluster's authority, which signs its users.
// Authorities and the service account key of an earlier run are used again, so that tokens and kubeconfigs handed out
// then stay valid; everything else is recreated.
func prepareCertificates(l layout) (*authority, error) {
	cluster, err := keepAuthority(l, clusterCA, "muster-sandbox")
	if err != nil {
		return nil, err
	}
	store, err := keepAuthority(l, etcdCA, "muster-sandbox-etcd")
	if err != nil {
		return nil, err
	}
	if err := keepServiceAccountKey(l); err != nil {
		return nil, err
	}
	for _, want := range []struct {
		file string
		make func() (keyPair, error)
	}{
		{servingCert, func() (keyPair, error) {
			return cluster.server("kube-apiserver", "kubernetes", "kubernetes.default", "kubernetes.default.svc",
				"kubernetes.default.svc.cluster.local")
		}},
		{etcdServerCert, func() (keyPair, error) { return store.server("etcd") }},
		{etcdClientCert, func() (keyPair, error) { return store.client("kube-apiserver") }},
	} {
		pair, err := want.make()
		if err != nil {
			return nil, err
		}
		if err := writePair(l, want.file, pair); err != nil {
			return nil, err
		}
	}
	return cluster, nil
}

func keepAuthority(l layout, file, name string) (*authority, error) {
	certificate, certificateErr := os.ReadFile(l.certificate(file))
	key, keyErr := os.ReadFile(l.key(file))
	if errors.Is(certificateErr, fs.ErrNotExist) || errors.Is(keyErr, fs.ErrNotExist) {
		made, err := newAuthority(name)
		if err != nil {
			return nil, err
		}
		return made, writePair(l, file, made.pem)
	}
	if err := errors.Join(certificateErr, keyErr); err != nil {
		return nil, fmt.Errorf("reading the sandbox's authority: %w", err)
	}
	kept, err := parseAuthority(keyPair{certificate, key})
	if err != nil {
		return nil, fmt.Errorf("reading %s and its key (remove both to have new ones made): %w", l.certificate(file), err)
	}
	return kept, nil
}

func keepServiceAccountKey(l layout) error {
	path := l.key(serviceAccountKey)
	if _, err := os.Stat(path); err == nil {
		return nil
	}
	_, key, err := newKey()
	if err != nil {
		return err
	}
	return writeFile(path, key)
}

func writePair(l layout, name string, pair keyPair) error {
	if err := writeFile(l.key(name), pair.key); err != nil {
		return err
	}
	return writeFile(l.certificate(name), pair.certificate)
}
