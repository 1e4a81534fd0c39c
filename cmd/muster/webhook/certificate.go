package webhook

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"slices"
	"time"
)

const (
	// validity of a certificate, and how long before its end another takes its place.
	validity = 365 * 24 * time.Hour
	renewal  = 30 * 24 * time.Hour
	// skew is by how much the clocks of kube-apiserver and muster may differ.
	skew = time.Hour
	// bundled is the maximum number of certificates that kube-apiserver trusts: a few processes, and the ones before them.
	bundled = 8
)

const certificateBlock = "CERTIFICATE"

// certify makes a certificate for the hosts, signed by its own key, which never leaves the
// process.
func certify(hosts []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: "muster-webhook"},
		NotBefore:    now.Add(-skew),
		NotAfter:     now.Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	for _, host := range hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing a certificate for %v: %w", hosts, err)
	}
	leaf, err := x509.ParseCertificate(raw)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key, Leaf: leaf}, nil
}

// isGood reports whether a certificate is for all hosts and does not end soon.
func isGood(c *tls.Certificate, hosts []string, now time.Time) bool {
	return c != nil && now.Before(c.Leaf.NotAfter.Add(-renewal)) &&
		!slices.ContainsFunc(hosts, func(host string) bool { return c.Leaf.VerifyHostname(host) != nil })
}

// bundle puts a certificate before the trusted ones. It drops expired certificates, the oldest ones above the maximum, and invalid data.
func bundle(trusted []byte, own *x509.Certificate, now time.Time) []byte {
	var kept []*x509.Certificate
	for block, rest := pem.Decode(trusted); block != nil; block, rest = pem.Decode(rest) {
		if c, err := x509.ParseCertificate(block.Bytes); err == nil && now.Before(c.NotAfter) {
			kept = append(kept, c)
		}
	}
	// Where it stays if it is there, or processes would write by turns for ever.
	if !slices.ContainsFunc(kept, own.Equal) {
		kept = slices.Insert(kept, 0, own)
	}
	var out bytes.Buffer
	for _, c := range kept[:min(len(kept), bundled)] {
		out.Write(pem.EncodeToMemory(&pem.Block{Type: certificateBlock, Bytes: c.Raw}))
	}
	return out.Bytes()
}
