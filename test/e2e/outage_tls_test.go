package e2e

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"testing"
	"time"
)

// authority signs the certificates of the gates. The program trusts it and no other.
type authority struct {
	file string // the certificate, as the program reads it
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T, file string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{file: file, key: key}
	a.cert = &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the authority of a test"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	return a
}

// leaf is a certificate; change makes it a wrong one.
func (a *authority) leaf(t *testing.T, change func(c *x509.Certificate), alone bool) *tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "a provider"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{slowName},
	}
	change(c)
	parent, signer := a.cert, a.key
	if alone {
		parent, signer = c, key
	}
	der, err := x509.CreateCertificate(rand.Reader, c, parent, key.Public(), signer)
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// certificates are the right one, under "", and those of the faults.
func (a *authority) certificates(t *testing.T) map[string]*tls.Certificate {
	return map[string]*tls.Certificate{
		"":            a.leaf(t, func(*x509.Certificate) {}, false),
		"wrong name":  a.leaf(t, func(c *x509.Certificate) { c.IPAddresses, c.DNSNames = nil, []string{"example.org"} }, false),
		"expired":     a.leaf(t, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, false),
		"self-signed": a.leaf(t, func(*x509.Certificate) {}, true),
	}
}
