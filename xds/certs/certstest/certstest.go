// Package certstest makes certificates for tests: an authority, and what it signs, as files and in memory. Keys are on a
// curve, so that making one takes well under a millisecond. Each [Authority] is for one test.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	tb   testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM is the authority's own certificate.
	PEM []byte
}

// Pair is a certificate and its key, in PEM.
type Pair struct{ Cert, Key []byte }

// New returns an authority that nobody knows yet.
func New(tb testing.TB) *Authority {
	tb.Helper()
	a := &Authority{tb: tb, key: newKey(tb)}
	template := &x509.Certificate{
		SerialNumber: serial(tb), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: time.Now().Add(48 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.PEM = a.sign(template, template, &a.key.PublicKey)
	return a
}

// Server returns a certificate for localhost and the loopback addresses, good until the time.
func (a *Authority) Server(until time.Time) Pair {
	a.tb.Helper()
	return a.pair(&x509.Certificate{
		Subject: pkix.Name{CommonName: "server"}, NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	})
}

// Client returns a certificate for a client with a common name and URIs, good until the time.
func (a *Authority) Client(until time.Time, name string, uris ...string) Pair {
	a.tb.Helper()
	template := &x509.Certificate{
		Subject: pkix.Name{CommonName: name}, NotAfter: until, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	for _, text := range uris {
		u, err := url.Parse(text)
		if err != nil {
			a.tb.Fatal(err)
		}
		template.URIs = append(template.URIs, u)
	}
	return a.pair(template)
}

func (a *Authority) pair(template *x509.Certificate) Pair {
	a.tb.Helper()
	key := newKey(a.tb)
	template.SerialNumber, template.NotBefore = serial(a.tb), time.Now().Add(-24*time.Hour)
	_, cert := a.sign(template, a.cert, &key.PublicKey)
	der, err := x509.MarshalECPrivateKey(key)
	if err != nil {
		a.tb.Fatal(err)
	}
	return Pair{Cert: cert, Key: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})}
}

func (a *Authority) sign(template, parent *x509.Certificate, key *ecdsa.PublicKey) (*x509.Certificate, []byte) {
	a.tb.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, key, a.key)
	if err != nil {
		a.tb.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.tb.Fatal(err)
	}
	return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func newKey(tb testing.TB) *ecdsa.PrivateKey {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		tb.Fatal(err)
	}
	return key
}

func serial(tb testing.TB) *big.Int {
	tb.Helper()
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

// Write puts the content into a file, which appears whole, by a rename, and returns its path.
func Write(tb testing.TB, content []byte, elements ...string) string {
	tb.Helper()
	path := filepath.Join(elements...)
	next := path + ".next"
	if err := os.WriteFile(next, content, 0o600); err != nil {
		tb.Fatal(err)
	}
	if err := os.Rename(next, path); err != nil {
		tb.Fatal(err)
	}
	return path
}
