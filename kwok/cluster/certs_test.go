package cluster

import (
	"crypto/tls"
	"crypto/x509"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestCertificatesAreGoodForTheirPurpose(t *testing.T) {
	l := testLayout(t)
	cluster, err := prepareCertificates(l)
	if err != nil {
		t.Fatal(err)
	}
	user, err := cluster.client("jane", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	if err := writePair(l, "jane", user); err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		authority, file string
		name            string // for servers
		usage           x509.ExtKeyUsage
		refused         bool
	}{
		"kube-apiserver by address":        {authority: clusterCA, file: servingCert, name: "127.0.0.1", usage: x509.ExtKeyUsageServerAuth},
		"kube-apiserver by localhost":      {authority: clusterCA, file: servingCert, name: "localhost", usage: x509.ExtKeyUsageServerAuth},
		"kube-apiserver by service":        {authority: clusterCA, file: servingCert, name: "kubernetes.default.svc", usage: x509.ExtKeyUsageServerAuth},
		"kube-apiserver by any other name": {authority: clusterCA, file: servingCert, name: "example.com", usage: x509.ExtKeyUsageServerAuth, refused: true},
		"etcd":                             {authority: etcdCA, file: etcdServerCert, name: "127.0.0.1", usage: x509.ExtKeyUsageServerAuth},
		"kube-apiserver to etcd":           {authority: etcdCA, file: etcdClientCert, usage: x509.ExtKeyUsageClientAuth},
		"a user to kube-apiserver":         {authority: clusterCA, file: "jane", usage: x509.ExtKeyUsageClientAuth},
		"a user to etcd":                   {authority: etcdCA, file: "jane", usage: x509.ExtKeyUsageClientAuth, refused: true},
		"a user posing as a server":        {authority: clusterCA, file: "jane", name: "127.0.0.1", usage: x509.ExtKeyUsageServerAuth, refused: true},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			pair, err := tls.LoadX509KeyPair(l.certificate(c.file), l.key(c.file))
			if err != nil {
				t.Fatal(err)
			}
			// OpenSSL takes a certificate whose name is that of its authority for one that signs itself.
			if pair.Leaf.Subject.String() == pair.Leaf.Issuer.String() {
				t.Errorf("it has the name of its authority, %s", pair.Leaf.Issuer)
			}
			roots := x509.NewCertPool()
			authority, err := os.ReadFile(l.certificate(c.authority))
			if err != nil {
				t.Fatal(err)
			}
			roots.AppendCertsFromPEM(authority)
			_, err = pair.Leaf.Verify(x509.VerifyOptions{DNSName: c.name, Roots: roots, KeyUsages: []x509.ExtKeyUsage{c.usage}})
			if refused := err != nil; refused != c.refused {
				t.Errorf("refused = %v (%v), want %v", refused, err, c.refused)
			}
		})
	}
}

func TestUserCertificateNamesUserAndGroups(t *testing.T) {
	authority, err := newAuthority("test")
	if err != nil {
		t.Fatal(err)
	}
	pair, err := authority.client("jane", "system:masters", "staff")
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := tls.X509KeyPair(pair.certificate, pair.key)
	if err != nil {
		t.Fatal(err)
	}
	subject := loaded.Leaf.Subject
	if subject.CommonName != "jane" || !slices.Contains(subject.Organization, "system:masters") ||
		!slices.Contains(subject.Organization, "staff") {
		t.Errorf("subject = %v, want user jane in system:masters and staff", subject)
	}
	if left := time.Until(loaded.Leaf.NotAfter); left < 300*24*time.Hour {
		t.Errorf("good for %s, want most of a year", left)
	}
}

// Tokens and kubeconfigs that were handed out must stay good when a sandbox is started again on its data.
func TestSecondStartKeepsAuthoritiesAndServiceAccountKey(t *testing.T) {
	l := testLayout(t)
	kept := []string{l.certificate(clusterCA), l.key(clusterCA), l.certificate(etcdCA), l.key(serviceAccountKey)}
	read := func() (texts []string) {
		if _, err := prepareCertificates(l); err != nil {
			t.Fatal(err)
		}
		for _, path := range kept {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			texts = append(texts, string(text))
		}
		return texts
	}
	first, second := read(), read()
	for i, path := range kept {
		if first[i] != second[i] {
			t.Errorf("%s was made anew", path)
		}
	}
}

func TestKeysAreForTheirOwnerOnly(t *testing.T) {
	l := testLayout(t)
	if _, err := prepareCertificates(l); err != nil {
		t.Fatal(err)
	}
	keys, err := filepath.Glob(filepath.Join(l.dir, "pki", "*.key"))
	if err != nil || len(keys) == 0 {
		t.Fatalf("no keys (%v)", err)
	}
	for _, key := range keys {
		info, err := os.Stat(key)
		if err != nil {
			t.Fatal(err)
		}
		if info.Mode().Perm() != 0o600 {
			t.Errorf("%s has mode %v, want 0600", key, info.Mode().Perm())
		}
	}
}

func testLayout(t *testing.T) layout {
	t.Helper()
	dir := t.TempDir()
	l := layout{dir: dir, logDir: filepath.Join(dir, "logs"), etcdDir: filepath.Join(dir, "etcd")}
	if err := l.create(); err != nil {
		t.Fatal(err)
	}
	return l
}
