package web

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/daemon"
	"meshddns/test/support"
)

// signed is a certificate and its key.
type signed struct {
	cert *x509.Certificate
	key  crypto.Signer
}

// newSigned makes a certificate for 127.0.0.1 that is valid until a time. Without a signer it signs itself, and others.
func newSigned(t testing.TB, key crypto.Signer, until time.Time, by *signed, changes ...func(*x509.Certificate)) *signed {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "test"}, NotBefore: until.Add(-400 * 24 * time.Hour), NotAfter: until, IsCA: by == nil, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, change := range changes {
		change(template)
	}
	signer := &signed{template, key}
	if by != nil {
		signer = by
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer.cert, key.Public(), signer.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &signed{cert, key}
}

func ecKey(t testing.TB) crypto.Signer {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func (s *signed) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.cert.Raw}))
}

func (s *signed) keyPEM(t testing.TB) string {
	t.Helper()
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))
}

// put replaces a file by rename, as certbot and lego do, with a mode.
func put(t testing.TB, path, text string, mode os.FileMode) {
	t.Helper()
	if err := errors.Join(os.WriteFile(path+".new", []byte(text), mode), os.Chmod(path+".new", mode), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// write puts the pair into the files of a Certificate.
func (s *signed) write(t testing.TB, c *Certificate) {
	t.Helper()
	put(t, c.Chain, s.pem(), 0o644)
	put(t, c.Key, s.keyPEM(t), 0o600)
}

// files returns a Certificate whose files have a pair.
func files(t testing.TB, s *signed) *Certificate {
	t.Helper()
	dir := t.TempDir()
	c := &Certificate{Chain: filepath.Join(dir, "chain.pem"), Key: filepath.Join(dir, "key.pem")}
	s.write(t, c)
	if err := c.Reload(nil); err != nil {
		t.Fatal(err)
	}
	return c
}

func inAYear() time.Time { return time.Now().Add(365 * 24 * time.Hour).Truncate(time.Second) }

// serveTLS serves a handler at an address with TLS.
func serveTLS(t testing.TB, config func() *tls.Config, log *slog.Logger, h http.HandlerFunc) (address string, s *Server, stop func()) {
	t.Helper()
	listeners, err := Listen(ListenConfig{List: []string{"tls:127.0.0.1:0"}})
	if err != nil {
		t.Fatal(err)
	}
	s = NewServer(ServerConfig{Listeners: listeners, ShutdownTime: patience, Log: log, TLS: config})
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, Handlers{TCP: h}) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(stop)
	if s.Addrs()[0] != "tls:"+listeners[0].Addr().String() {
		t.Errorf("the addresses are %v", s.Addrs())
	}
	return listeners[0].Addr().String(), s, stop
}

func hello(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "hello ", r.Proto) }

// trusting returns a client that makes a connection for each request.
func trusting(authority *signed, own ...tls.Certificate) *http.Client {
	pool := x509.NewCertPool()
	pool.AddCert(authority.cert)
	return &http.Client{Timeout: patience, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, Certificates: own, ClientSessionCache: tls.NewLRUClientSessionCache(8)},
	}}
}

func fetch(client *http.Client, address string) (string, error) {
	answer, err := client.Get("https://" + address + "/")
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// Each kind of key serves curl, which checks the certificate.
func TestKindsOfKeys(t *testing.T) {
	support.Need(t, "curl")
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for name, key := range map[string]crypto.Signer{"RSA": rsaKey, "ECDSA": ecKey(t), "Ed25519": edKey} {
		c := files(t, newSigned(t, key, inAYear(), nil))
		address, _, _ := serveTLS(t, c.API, slog.New(slog.DiscardHandler), hello)
		out, err := exec.Command("curl", "-sS", "--max-time", "20", "--cacert", c.Chain, "-w", " %{http_version}", "https://"+address+"/").CombinedOutput()
		if string(out) != "hello HTTP/1.1 1.1" || err != nil {
			t.Errorf("%s: %s, %v", name, out, err)
		}
	}
}

// TLS 1.2 and 1.3 with forward secrecy, HTTP/1.1 also for a client that prefers HTTP/2, no older version, no weak cipher, no
// renegotiation and no session that could outlive a replaced authority.
func TestProtocols(t *testing.T) {
	support.Need(t, "openssl")
	c := files(t, newSigned(t, ecKey(t), inAYear(), nil))
	address, _, _ := serveTLS(t, c.API, slog.New(slog.DiscardHandler), hello)
	for _, test := range []struct {
		input, args string
		want        []string
		refused     bool
	}{
		{"Q\n", "-tls1_3 -alpn h2,http/1.1", []string{"TLSv1.3", "ALPN protocol: http/1.1", "Verify return code: 0"}, false},
		{"Q\n", "-tls1_2 -alpn http/1.1", []string{"TLSv1.2", "ECDHE-ECDSA-AES128-GCM-SHA256", "ALPN protocol: http/1.1", "Secure Renegotiation IS supported"}, false},
		{"Q\n", "-tls1_2 -reconnect", []string{"New, TLSv1.2"}, false},
		{"Q\n", "-tls1_1 -cipher ALL:@SECLEVEL=0", []string{"alert protocol version"}, true},
		{"Q\n", "-tls1_2 -cipher AES128-GCM-SHA256:AES256-SHA:aNULL:eNULL:@SECLEVEL=0", []string{"alert handshake failure"}, true},
		{"Q\n", "-tls1_3 -alpn h2", []string{"alert no application protocol"}, true},
		{"R\n", "-tls1_2", []string{"RENEGOTIATING", "alert unexpected message"}, true},
	} {
		cmd := exec.Command("openssl", append([]string{"s_client", "-connect", address, "-CAfile", c.Chain}, strings.Fields(test.args)...)...)
		cmd.Stdin = strings.NewReader(test.input)
		out, err := cmd.CombinedOutput()
		if (err != nil) != test.refused {
			t.Errorf("%s: %v\n%s", test.args, err, out)
		}
		for _, want := range test.want {
			if !strings.Contains(string(out), want) {
				t.Errorf("%s: %q is missing in\n%s", test.args, want, out)
			}
		}
		if strings.Contains(string(out), "Reused, TLSv1.2") {
			t.Errorf("%s: a session is resumed\n%s", test.args, out)
		}
	}
}

// No request fails while pairs are replaced, and the new pair is used after it.
func TestReplacedPair(t *testing.T) {
	authority := newSigned(t, ecKey(t), inAYear(), nil)
	c := files(t, newSigned(t, ecKey(t), inAYear(), authority))
	address, _, _ := serveTLS(t, c.API, slog.New(slog.DiscardHandler), hello)
	client := trusting(authority)
	var asking sync.WaitGroup
	for range 4 {
		asking.Go(func() {
			for range 250 {
				if text, err := fetch(client, address); err != nil || text != "hello HTTP/1.1" {
					t.Errorf("%q, %v", text, err)
				}
			}
		})
	}
	var last *signed
	for range 20 {
		last = newSigned(t, ecKey(t), inAYear(), authority)
		put(t, c.Chain, last.pem(), 0o644)
		if err := c.Reload(nil); err == nil || !strings.HasSuffix(err.Error(), "private key does not match public key") {
			t.Errorf("between the two renames: %v", err)
		}
		put(t, c.Key, last.keyPEM(t), 0o600)
		if err := c.Reload(nil); err != nil {
			t.Error(err)
		}
	}
	asking.Wait()
	answer, err := client.Get("https://" + address)
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if !answer.TLS.PeerCertificates[0].Equal(last.cert) {
		t.Error("the last certificate is not in use")
	}
}

// A key that others may read is refused, as a token file is.
func TestKeyMode(t *testing.T) {
	c := files(t, newSigned(t, ecKey(t), inAYear(), nil))
	for mode, ok := range map[os.FileMode]bool{0o600: true, 0o400: true, 0o604: false, 0o444: false, 0o620: false} {
		if err := os.Chmod(c.Key, mode); err != nil {
			t.Fatal(err)
		}
		if err := c.Reload(nil); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%s has mode %04o", c.Key, mode)) {
			t.Errorf("%04o: %v", mode, err)
		}
	}
}

// TestDoubts: what clients would refuse is told of a certificate, once for each chain.
func TestDoubts(t *testing.T) {
	const url = "http://authority.example/issuer"
	issued := func(c *x509.Certificate) { c.Issuer.CommonName, c.IssuingCertificateURL = "x", []string{url} }
	ca := func(c *x509.Certificate) { c.IsCA, c.Subject.CommonName = true, "intermediate" }
	root := newSigned(t, ecKey(t), inAYear(), nil)
	intermediate := newSigned(t, ecKey(t), inAYear(), root, ca)
	const unknown = "x509: certificate signed by unknown authority"
	leaf := newSigned(t, ecKey(t), inAYear(), intermediate, issued)
	private := newSigned(t, ecKey(t), inAYear(), root)
	usage := func(all ...x509.ExtKeyUsage) *signed {
		return newSigned(t, ecKey(t), inAYear(), root, func(c *x509.Certificate) { c.ExtKeyUsage = all })
	}
	named := newSigned(t, ecKey(t), inAYear(), root, func(c *x509.Certificate) { c.DNSNames = []string{"*.example.com"} })
	bare := newSigned(t, ecKey(t), inAYear(), root, func(c *x509.Certificate) { c.IPAddresses = nil })
	for what, test := range map[string]struct {
		leaf   *signed
		behind []*signed
		listen string
		want   string
	}{
		"whole":                    {leaf, []*signed{intermediate}, "", ""},
		"with the root":            {leaf, []*signed{intermediate, root}, "", ""},
		"in another order":         {leaf, []*signed{root, intermediate}, "", ""},
		"the leaf alone":           {leaf, nil, "", unknown},
		"the leaf twice":           {leaf, []*signed{leaf}, "", unknown},
		"another intermediate":     {leaf, []*signed{root}, "", unknown},
		"of a private root":        {private, nil, "tls:127.0.0.1:1 tls:0.0.0.0:1 tls::1 tls:[::]:1 x.example:1 unix:/x", ""},
		"signed by itself":         {root, nil, "", ""},
		"any usage":                {usage(x509.ExtKeyUsageAny), nil, "", ""},
		"no usage":                 {usage(), nil, "", ""},
		"for clients only":         {usage(x509.ExtKeyUsageClientAuth), nil, "", "x509: certificate specifies an incompatible key usage"},
		"the name of the listener": {named, nil, "tls:a.example.com:1 tls:B.Example.Com:2", ""},
		"another name":             {named, nil, "127.0.0.1:1 tls:a.example.com:1 tls:a.example.net:2", "x509: certificate is valid for *.example.com, not a.example.net"},
		"no name":                  {bare, nil, "tls:a.example.com:1", "x509: certificate is not valid for any names, but wanted to match a.example.com"},
	} {
		c := files(t, root)
		c.Listen = strings.Fields(test.listen)
		test.leaf.write(t, c)
		text := test.leaf.pem()
		for _, s := range test.behind {
			text += s.pem()
		}
		put(t, c.Chain, text, 0o644)
		log := &support.Log{}
		for range 2 {
			if err := c.Reload(slog.New(slog.NewTextHandler(log, nil))); err != nil {
				t.Fatal(err)
			}
		}
		if got := strings.Trim(fmt.Sprint(c.Doubts()), "[]"); got != test.want || strings.Count(log.String(), `level=WARN msg="`+Doubtful+`" error=`) != len(c.Doubts()) {
			t.Errorf("%s: %s\nlogged:\n%s", what, got, log)
		}
	}
}

// TestLongChain: curl takes a chain of 100 KiB, and one of an octet more is refused, because curl does not take it.
func TestLongChain(t *testing.T) {
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := files(t, newSigned(t, key, inAYear(), nil))
	padded := func(octets int) *signed {
		return newSigned(t, key, inAYear(), nil, func(c *x509.Certificate) {
			c.SerialNumber, c.ExtraExtensions = big.NewInt(1), []pkix.Extension{{Id: []int{1, 3, 6, 1, 4, 1, 32473, 1}, Value: make([]byte, octets)}}
		})
	}
	const some = 90_000
	rest := maxChain - 9 - len(padded(some).cert.Raw)
	for more, refused := range []string{"", c.Chain + ": 1 certificates of 102401 octets: clients take 102400 at most"} {
		padded(some+rest+more).write(t, c)
		if err := c.Reload(nil); (err != nil) != (refused != "") || err != nil && err.Error() != refused {
			t.Error(err)
		}
		pair, err := tls.LoadX509KeyPair(c.Chain, c.Key)
		if err != nil {
			t.Fatal(err)
		}
		address, _, _ := serveTLS(t, func() *tls.Config { return &tls.Config{Certificates: []tls.Certificate{pair}} }, slog.New(slog.DiscardHandler), hello)
		if out, err := exec.Command("curl", "-ksS", "https://"+address).CombinedOutput(); (err != nil) != (refused != "") {
			t.Errorf("%d octets more: %s, %v", more, out, err)
		}
	}
}

// A FIFO in the place of a file is an error. Reading it would wait for its writer, and nothing would end that.
func TestFileThatIsAFIFO(t *testing.T) {
	c := files(t, newSigned(t, ecKey(t), inAYear(), nil))
	fifo := filepath.Join(t.TempDir(), "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, wrong := range map[string]*Certificate{
		"the chain": {Chain: fifo, Key: c.Key}, "the key": {Chain: c.Chain, Key: fifo}, "the authority": {Chain: c.Chain, Key: c.Key, Authority: fifo},
	} {
		ended := make(chan error, 1)
		go func() { ended <- wrong.Reload(nil) }()
		select {
		case err := <-ended:
			if err == nil || err.Error() != fifo+" is not a regular file" {
				t.Errorf("%s: %v", what, err)
			}
		case <-time.After(patience):
			t.Errorf("%s is still being read", what)
		}
	}
}

// The API asks for a certificate of the authority that its file has now, the listener of nodes for none.
func TestClientCertificate(t *testing.T) {
	own := newSigned(t, ecKey(t), inAYear(), nil)
	c := files(t, own)
	c.Authority = filepath.Join(filepath.Dir(c.Key), "clients.pem")
	first, second := newSigned(t, ecKey(t), inAYear(), nil), newSigned(t, ecKey(t), inAYear(), nil)
	log := &support.Log{}
	api, _, _ := serveTLS(t, c.API, slog.New(slog.NewTextHandler(log, nil)), hello)
	nodes, _, _ := serveTLS(t, c.Nodes, slog.New(slog.DiscardHandler), hello)
	client := func(by *signed) *http.Client {
		leaf := newSigned(t, ecKey(t), inAYear(), by)
		return trusting(own, tls.Certificate{Certificate: [][]byte{leaf.cert.Raw}, PrivateKey: leaf.key})
	}
	ofFirst, ofSecond, none := client(first), client(second), trusting(own)
	for i, authority := range []*signed{first, second} {
		put(t, c.Authority, authority.pem(), 0o644)
		if err := c.Reload(nil); err != nil {
			t.Fatal(err)
		}
		for j, client := range []*http.Client{ofFirst, ofSecond, none} {
			for range 2 { // the second one could resume a session
				if _, err := fetch(client, api); (err == nil) != (i == j) {
					t.Errorf("authority %d, client %d: %v", i, j, err)
				}
				if _, err := fetch(client, nodes); err != nil {
					t.Errorf("a node: %v", err)
				}
			}
		}
	}
	support.Eventually(t, patience, "the refusal is logged", func() bool {
		return strings.Contains(log.String(), `msg="TLS handshake failed" who=127.0.0.1 `)
	})
	put(t, c.Authority, "none", 0o644)
	if err := c.Reload(nil); err == nil || err.Error() != c.Authority+": no certificate in PEM" {
		t.Error(err)
	}
	if _, err := fetch(ofSecond, api); err != nil {
		t.Errorf("what was does not stay: %v", err)
	}
}

// A thousand failed handshakes make a line of the first, and one that counts the others. A client of plain HTTP is told.
func TestFailedHandshakesAreLogged(t *testing.T) {
	c := files(t, newSigned(t, ecKey(t), inAYear(), nil))
	log := &support.Log{}
	address, _, stop := serveTLS(t, c.API, slog.New(slog.NewTextHandler(log, nil)), hello)
	begun := time.Now()
	for range 1000 {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		conn.SetDeadline(time.Now().Add(patience))
		io.WriteString(conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		answer, _ := io.ReadAll(conn)
		if conn.Close(); string(answer) != "HTTP/1.0 400 Bad Request\r\n\r\nThis address takes https:// only.\n" {
			t.Fatalf("%q", answer)
		}
	}
	for range 10 { // probes of load balancers, which send nothing, are not logged
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
		}
	}
	stop()
	lines, most := strings.Count(log.String(), "\n"), 2+int(time.Since(begun)/linePause)
	if lines > most || strings.Count(log.String(), "level=WARN") != lines || strings.Contains(log.String(), "EOF") {
		t.Errorf("%d lines, at most %d\n%s", lines, most, log)
	}
	if !strings.Contains(log.String(), "first record does not look like a TLS handshake") {
		t.Error(log)
	}
}

// What a client puts into a handshake does not fill the log.
func TestLongHandshakeFault(t *testing.T) {
	c := files(t, newSigned(t, ecKey(t), inAYear(), nil))
	log := &support.Log{}
	address, _, stop := serveTLS(t, c.API, slog.New(slog.NewTextHandler(log, nil)), hello)
	conn, err := tls.Dial("tcp", address, &tls.Config{InsecureSkipVerify: true, NextProtos: slices.Repeat([]string{strings.Repeat("\x01", 255)}, 200)})
	if err == nil {
		conn.Close()
		t.Error("a client without HTTP/1.1 is served")
	}
	stop()
	if n := len(log.String()); n < 100 || n > 2*maxShown+200 {
		t.Errorf("%d octets: %.500s", n, log)
	}
}

// A connection after its handshake is idle: a stop does not wait for a request of it. A silent one that has begun
// its handshake ends with the time for a header.
func TestHandshakePhases(t *testing.T) {
	t.Parallel()
	own := newSigned(t, ecKey(t), inAYear(), nil)
	c := files(t, own)
	address, s, stop := serveTLS(t, c.API, slog.New(slog.DiscardHandler), hello)
	pool := x509.NewCertPool()
	pool.AddCert(own.cert)
	conn, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	begun := time.Now()
	half, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	defer half.Close()
	half.Write([]byte{22, 3, 1, 2, 0, 1}) // the begin of a ClientHello
	half.SetDeadline(begun.Add(patience))
	if _, err := half.Read(make([]byte, 1)); err == nil || time.Since(begun) < headerTime || time.Since(begun) > headerTime+support.Slowest*time.Second {
		t.Errorf("a half-open handshake ends with %v after %v", err, time.Since(begun))
	}
	idle, err := tls.Dial("tcp", address, &tls.Config{RootCAs: pool})
	if err != nil {
		t.Fatal(err)
	}
	defer idle.Close()
	support.Eventually(t, patience, "the first one has had its time", func() bool { open, _, _ := s.limiter.Counts(); return open == 1 })
	begun = time.Now()
	if stop(); time.Since(begun) > soon {
		t.Errorf("the stop waits for %v", time.Since(begun))
	}
}

// wire is a connection whose input a test looks at.
type wire struct {
	net.Conn
	read bytes.Buffer
}

func (w *wire) Read(p []byte) (int, error) {
	n, err := w.Conn.Read(p)
	w.read.Write(p[:n])
	return n, err
}

// An answer is sent in records of 16 KiB, each of which may take as long as 32 KiB without TLS.
func TestRecords(t *testing.T) {
	own := newSigned(t, ecKey(t), inAYear(), nil)
	address, _, _ := serveTLS(t, files(t, own).API, slog.New(slog.DiscardHandler), func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 160<<10)) })
	var seen *wire
	client := trusting(own)
	client.Transport.(*http.Transport).DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, address)
		seen = &wire{Conn: c}
		return seen, err
	}
	if text, err := fetch(client, address); err != nil || len(text) != 160<<10 {
		t.Fatalf("%d octets, %v", len(text), err)
	}
	records, full := 0, 0
	for all := seen.read.Bytes(); len(all) >= 5; records++ {
		length := int(all[3])<<8 | int(all[4])
		if all = all[min(len(all), 5+length):]; length > 16<<10 {
			full++
		}
	}
	if records > 30 || full < 9 {
		t.Errorf("%d records, %d of 16 KiB", records, full)
	}
}

// An address without TLS beyond loopback is one at which tokens can be read.
func TestInClear(t *testing.T) {
	all := []string{"127.0.0.1:1", "[::1]:1", "localhost:1", "unix:/run/x", "/run/x", "unix:x", "x.sock", "tls:0.0.0.0:1", "0.0.0.0:1", "[::]:2", ":3", "host.example:4"}
	if got := fmt.Sprint(InClear(all)); got != "[0.0.0.0:1 [::]:2 :3 host.example:4]" {
		t.Error(got)
	}
}

// A certificate ends soon in the last third of its life, 14 days at most.
func TestEndsSoon(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Now()
	for life, early := range map[time.Duration]time.Duration{time.Hour: 20 * time.Minute, 6 * day: 2 * day, 42 * day: 14 * day, 90 * day: 14 * day, 3650 * day: 14 * day} {
		leaf := &x509.Certificate{NotBefore: now, NotAfter: now.Add(life)}
		if got := leaf.NotAfter.Sub(endsSoon(leaf)); got != early {
			t.Errorf("one of %v ends soon %v before its end, want %v", life, got, early)
		}
	}
}

// Watch looks once a minute, tells a pair that does not fit once, and notes each certificate once from 14 days before its end on.
func TestWatch(t *testing.T) {
	keys := []crypto.Signer{ecKey(t), ecKey(t)}
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := &Certificate{Chain: filepath.Join(dir, "chain.pem"), Key: filepath.Join(dir, "key.pem")}
		first := newSigned(t, keys[0], time.Now().Add(earlyTime+90*time.Second), nil)
		first.write(t, c)
		if err := c.Reload(nil); err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex // of noted and fails
		var noted []*x509.Certificate
		var fails error
		log := &support.Log{}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			ended <- c.Watch(ctx, slog.New(slog.NewTextHandler(log, nil)), func(_ context.Context, leaf *x509.Certificate) error {
				mu.Lock()
				defer mu.Unlock()
				noted = append(noted, leaf)
				return fails
			})
		}()
		pass := func(minutes, want int) {
			t.Helper()
			<-time.After(time.Duration(minutes) * lookTime)
			synctest.Wait()
			mu.Lock()
			defer mu.Unlock()
			if len(noted) != want {
				t.Errorf("noted %d times, want %d", len(noted), want)
			}
		}
		<-time.After(time.Second)
		if pass(1, 0); time.Until(first.cert.NotAfter) <= earlyTime {
			t.Error("the test is late")
		}
		pass(1, 1)
		pass(10, 1)
		second := newSigned(t, keys[1], time.Now().Add(-time.Hour), nil) // an expired one is served, too
		put(t, c.Chain, second.pem(), 0o644)
		fail := func(with error) {
			mu.Lock()
			defer mu.Unlock()
			fails = with
		}
		fail(errors.New("disk full"))
		pass(10, 1)
		if leaf, _ := c.Ends(); !leaf.Equal(first.cert) || strings.Count(log.String(), "\n") != 2 || !strings.Contains(log.String(), "private key does not match public key") {
			t.Errorf("logged:\n%s", log)
		}
		second.write(t, c)
		pass(3, 4) // a minute later, and again each minute
		fail(nil)
		pass(10, 5)
		mu.Lock()
		defer mu.Unlock()
		if !noted[4].Equal(second.cert) || strings.Count(log.String(), "disk full") != 1 || strings.Count(log.String(), `level=WARN msg="the TLS certificate ends soon or has ended: replace`) != 2 {
			t.Errorf("logged:\n%s", log)
		}
		var page bytes.Buffer
		c.WriteMetrics(daemon.NewPage(&page))
		for name, at := range map[string]time.Time{"expiry": second.cert.NotAfter, "ends_soon": second.cert.NotAfter.Add(-earlyTime)} {
			if want := fmt.Sprintf("meshddns_tls_certificate_%s_timestamp_seconds %d\n", name, at.Unix()); !strings.Contains(page.String(), want) {
				t.Errorf("%swant %s", page.String(), want)
			}
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	var none *Certificate
	if err := none.Watch(t.Context(), nil, nil); err != nil {
		t.Error(err)
	}
	none.WriteMetrics(nil)
}
