// The listeners: their addresses, the modes of unix sockets, and TLS with its certificate.

package web

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"meshddns/internal/connlimit"
	"meshddns/internal/daemon"
)

// ListenConfig has the addresses for Listen.
type ListenConfig struct {
	List  []string // host:port, tls:host:port or unix:/path
	Group string   // group of unix sockets, by name or number; "": the program's own
	Flag  string   // that gave the list, for errors
	Token bool     // clients need a token, so addresses that are not loopback are allowed
}

// unixPrefix is the prefix of a unix socket's address, and TLSPrefix that of an address with TLS.
const unixPrefix, TLSPrefix = "unix:", "tls:"

// IsTCP reports whether an address, as ListenConfig or Server.Addrs has it, is not that of a unix socket.
func IsTCP(address string) bool {
	_, _, err := net.SplitHostPort(strings.TrimPrefix(address, TLSPrefix))
	return err == nil && !strings.HasPrefix(address, unixPrefix)
}

// InClear returns the addresses at which a network can read what clients send.
func InClear(addresses []string) []string {
	return slices.DeleteFunc(slices.Clone(addresses), func(address string) bool {
		return strings.HasPrefix(address, TLSPrefix) || !IsTCP(address) || Loopback(address)
	})
}

// socketMode is the mode of a socket's file, which alone limits the clients: its user and
// group may connect.
const socketMode = 0o660

// CheckAddress returns an error for a unix socket without a file, because no file mode limits its clients.
func CheckAddress(address string) error {
	path, ok := strings.CutPrefix(address, unixPrefix)
	switch {
	case !ok:
		return nil
	case path == "":
		return fmt.Errorf("%q has no path: want unix:/path", address)
	case path[0] == '@' || path[0] == 0:
		return fmt.Errorf("%q is abstract and has no file whose mode would guard it: want unix:/path", address)
	}
	return nil
}

// Listen binds all addresses. On an error it binds none.
func Listen(c ListenConfig) (listeners []net.Listener, err error) {
	for _, address := range c.List {
		listener, err := c.listen(address)
		if err == nil {
			listeners = append(listeners, listener)
			if err = Guarded(listener, c.Token); err != nil {
				err = fmt.Errorf("%s: %q %w", c.Flag, address, err)
			}
		}
		if err != nil {
			for _, l := range listeners {
				l.Close()
			}
			return nil, err
		}
	}
	return listeners, nil
}

// Guarded returns an error for an abstract unix socket, and without a token for a TCP address
// that is not loopback.
func Guarded(listener net.Listener, token bool) error {
	if address, ok := listener.Addr().(*net.UnixAddr); ok {
		return CheckAddress(unixPrefix + address.Name)
	}
	if !token && !Loopback(listener.Addr().String()) {
		return errors.New("is not a loopback address: -token-file is required")
	}
	return nil
}

// networkOf limits 0.0.0.0 to IPv4, because package net would listen on [::], which accepts both families.
func networkOf(address string) string {
	if a, err := netip.ParseAddrPort(address); err == nil && a.Addr().Is4() {
		return "tcp4"
	}
	return "tcp"
}

func (c ListenConfig) listen(address string) (net.Listener, error) {
	path, ok := strings.CutPrefix(address, unixPrefix)
	if !ok {
		address, secure := strings.CutPrefix(address, TLSPrefix)
		listener, err := net.Listen(networkOf(address), address)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: %w", c.Flag, err)
		case secure:
			return tlsListener{listener.(*net.TCPListener)}, nil
		}
		return listener, nil
	}
	group, err := GroupID(c.Group)
	if err != nil {
		return nil, err
	}
	return listenUnix(path, group)
}

// GroupID returns the number of a group given by number or name, -1 for "".
func GroupID(text string) (int, error) {
	if text == "" {
		return -1, nil
	}
	if id, err := strconv.ParseUint(text, 10, 31); err == nil {
		return int(id), nil
	}
	group, err := user.LookupGroup(text)
	if err != nil {
		return 0, fmt.Errorf("-socket-group %q: want the name or number of a group of this host: %w", text, err)
	}
	return strconv.Atoi(group.Gid)
}

// listenUnix binds a unix socket. It replaces a socket file that refuses connections, the rest
// of a killed program. Until the group is set, only the owner can connect.
func listenUnix(path string, group int) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		conn, err := net.Dial("unix", path)
		switch {
		case err == nil:
			return nil, errors.Join(fmt.Errorf("%s: another program listens there", path), conn.Close())
		case !errors.Is(err, syscall.ECONNREFUSED):
			return nil, fmt.Errorf("%s may be in use by another program: stop that, or remove the file: %w", path, err)
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	mode := socketMode
	if group >= 0 {
		mode = 0o600
	}
	old := syscall.Umask(0o777 &^ mode)
	listener, err := net.Listen("unix", path)
	syscall.Umask(old)
	if err == nil && group >= 0 {
		if err := giveToGroup(path, group); err != nil {
			return nil, errors.Join(fmt.Errorf("give %s to group %d: %w", path, group, err), listener.Close())
		}
	}
	return listener, err
}

// giveToGroup sets the group and the mode of a socket's file. Another user may be
// able to put a file of that name into the folder, so giveToGroup follows no link and
// changes only the file that it has opened, if that is a socket.
func giveToGroup(path string, group int) error {
	const openPath, atEmptyPath = 0x200000, 0x1000 // O_PATH and AT_EMPTY_PATH, which package syscall lacks
	fd, err := syscall.Open(path, openPath|syscall.O_NOFOLLOW|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer syscall.Close(fd)
	var info syscall.Stat_t
	if err := syscall.Fstat(fd, &info); err != nil {
		return err
	}
	if info.Mode&syscall.S_IFMT != syscall.S_IFSOCK {
		return fmt.Errorf("%s is not a socket", path)
	}
	if err := syscall.Fchownat(fd, "", -1, group, atEmptyPath); err != nil {
		return err
	}
	return syscall.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), socketMode)
}

// Doubtful is the warning about Doubts.
const Doubtful = "clients may refuse the TLS certificate: want one for servers, with the names of the listeners, and those up to its authority behind it"

const (
	lookTime  = time.Minute         // between two looks at the files
	maxChain  = 100 << 10           // octets of certificates that OpenSSL takes (SSL_CTX_set_max_cert_list)
	earlyTime = 14 * 24 * time.Hour // the longest time before its end in which a certificate counts as one that ends soon
)

// Certificate is the certificate of the listeners with TLS, from PEM files. A nil Certificate is none.
type Certificate struct {
	Chain, Key string   // paths
	Authority  string   // path of what signs clients' certificates, which the API then requires; "": it requires none
	Listen     []string // the addresses of the listeners, whose names it has to have
	api, nodes atomic.Pointer[tls.Config]
}

// Reload reads the files for the next connections. On an error it keeps what it has. The key's file must be as private
// as a token file; an expired certificate is no error. Doubts about another chain than before are logged. No session is resumed, so a replaced authority counts at once.
func (c *Certificate) Reload(log *slog.Logger) error {
	for _, path := range []string{c.Chain, c.Authority} { // OpenPrivate checks the key
		if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
			return fmt.Errorf("%s is not a regular file", path)
		}
	}
	chain, err := os.ReadFile(c.Chain)
	if err != nil {
		return err
	}
	key, err := OpenPrivate(c.Key)
	if err != nil {
		return err
	}
	defer key.Close()
	text, _ := io.ReadAll(key) // a part of a key is none
	pair, err := tls.X509KeyPair(chain, text)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.Chain, c.Key, err)
	}
	// The size of the message of TLS 1.3 (RFC 8446, section 4.4.2).
	if size := 4 + 5*len(pair.Certificate) + len(bytes.Join(pair.Certificate, nil)); size > maxChain {
		return fmt.Errorf("%s: %d certificates of %d octets: clients take %d at most", c.Chain, len(pair.Certificate), size, maxChain)
	}
	next := &tls.Config{
		Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"},
		SessionTicketsDisabled: true, DynamicRecordSizingDisabled: true, // each record may take connlimit.Config.WriteTime
	}
	nodes := next.Clone()
	if c.Authority != "" {
		next.ClientAuth, next.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if text, err := os.ReadFile(c.Authority); err != nil || !next.ClientCAs.AppendCertsFromPEM(text) {
			return cmp.Or(err, fmt.Errorf("%s: no certificate in PEM", c.Authority))
		}
	}
	before := c.api.Swap(next)
	c.nodes.Store(nodes)
	if before != nil && !slices.EqualFunc(before.Certificates[0].Certificate, pair.Certificate, bytes.Equal) {
		c.logDoubts(log)
	}
	return nil
}

// API and Nodes return the settings of the next connection, for ServerConfig.TLS.
func (c *Certificate) API() *tls.Config   { return c.api.Load() }
func (c *Certificate) Nodes() *tls.Config { return c.nodes.Load() }

// Doubts says why clients would refuse the certificate. Whether its issuer is a root that clients have is not known, except
// that an issuer which is to be fetched is none.
func (c *Certificate) Doubts() []error {
	leaf, _ := c.Ends()
	if leaf == nil {
		return nil
	}
	same := func(der []byte) bool { return bytes.Equal(der, leaf.Raw) }
	others, issuers := slices.DeleteFunc(slices.Clone(c.API().Certificates[0].Certificate), same), x509.NewCertPool()
	for _, der := range others {
		issuers.AppendCertsFromPEM(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	if len(others) == 0 && len(leaf.IssuingCertificateURL) == 0 {
		issuers.AddCert(leaf)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: issuers, CurrentTime: leaf.NotAfter})
	faults := []error{err}
	for _, address := range c.Listen {
		host, _, _ := net.SplitHostPort(strings.TrimPrefix(address, TLSPrefix))
		if _, named := netip.ParseAddr(host); named != nil && host != "" && strings.HasPrefix(address, TLSPrefix) {
			faults = append(faults, leaf.VerifyHostname(host))
		}
	}
	return slices.DeleteFunc(faults, func(err error) bool { return err == nil })
}

func (c *Certificate) logDoubts(log *slog.Logger) {
	for _, err := range c.Doubts() {
		log.Warn(Doubtful, "error", err)
	}
}

// Watch reads the files every minute until ctx ends. Every minute it calls note for a certificate that ends soon,
// until note returns nil for it; note may be nil.
func (c *Certificate) Watch(ctx context.Context, log *slog.Logger, note func(context.Context, *x509.Certificate) error) error {
	var reading, noting daemon.Fault
	c.logDoubts(log)
	for noted := (*x509.Certificate)(nil); c != nil; {
		if leaf, soon := c.Ends(); soon && !leaf.Equal(noted) {
			var err error
			if note != nil {
				err = note(ctx, leaf)
			}
			if noting.Note(log, "the end of the certificate is not noted", err); err == nil {
				noted = leaf
				log.Warn("the TLS certificate ends soon or has ended: replace the files of -tls-cert and -tls-key", "not_after", leaf.NotAfter)
			}
		}
		select {
		case <-time.After(lookTime):
		case <-ctx.Done():
			return nil
		}
		reading.Note(log, "the certificate is not read again: what was stays", c.Reload(log))
	}
	return nil
}

// Ends returns the certificate, nil if there is none, and whether it ends soon.
func (c *Certificate) Ends() (leaf *x509.Certificate, soon bool) {
	if c == nil || c.API() == nil {
		return nil, false
	}
	leaf = c.API().Certificates[0].Leaf
	return leaf, !time.Now().Before(endsSoon(leaf))
}

// endsSoon returns the time from which on a certificate ends soon: the last third of its life, earlyTime at most. Clients of
// ACME authorities renew before that.
func endsSoon(leaf *x509.Certificate) time.Time {
	return leaf.NotAfter.Add(-min(earlyTime, leaf.NotAfter.Sub(leaf.NotBefore)/3))
}

// WriteMetrics writes the end of the certificate, and from when on it ends soon.
func (c *Certificate) WriteMetrics(page *daemon.Page) {
	if leaf, _ := c.Ends(); leaf != nil {
		page.Family("meshddns_tls_certificate_ends_soon_timestamp_seconds", "gauge", "From when on the certificate has to be replaced.")
		page.Time(endsSoon(leaf))
		page.Family("meshddns_tls_certificate_expiry_timestamp_seconds", "gauge", "End of the certificate of the listeners with TLS.")
		page.Time(leaf.NotAfter)
	}
}

// tlsListener is the listener of an address with TLSPrefix. Package systemd has one of its own.
type tlsListener struct{ *net.TCPListener }

func (tlsListener) TLS() {}

// prefixOf returns TLSPrefix if the clients of a listener speak TLS, which its method TLS marks, else "".
func prefixOf(l net.Listener) string {
	if _, ok := l.(interface{ TLS() }); ok {
		return TLSPrefix
	}
	return ""
}

// handshakes gives the connections of a listener TLS.
type handshakes struct {
	net.Listener
	config func() *tls.Config
	lines  *RefusalLines
}

func (l handshakes) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &secured{tls.Server(c, l.config()), c.(*connlimit.Conn), l.lines}, nil
}

// secured is a connection with TLS, which net/http does not see. Its first Read makes the handshake in the time for a
// header. A failed one is logged with RefusalLines, unless the client was silent or went away. Then the connection is idle.
type secured struct {
	*tls.Conn
	limited *connlimit.Conn
	lines   *RefusalLines
}

func (c *secured) Read(p []byte) (int, error) {
	if c.ConnectionState().HandshakeComplete {
		return c.Conn.Read(p)
	}
	err := c.Handshake()
	if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && plain.Conn != nil && plain.RecordHeader[0] >= 'A' {
		io.WriteString(plain.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThis address takes https:// only.\n")
	}
	gone := []error{nil, io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE}
	if !slices.ContainsFunc(gone, func(gone error) bool { return errors.Is(err, gone) }) {
		c.lines.Log(slog.LevelWarn, "TLS handshake failed", "tls_handshake", "who", c.limited.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap(), "error", cut(err.Error()))
	}
	c.limited.Rest()
	return c.Conn.Read(p) // which returns the error of the handshake, too
}
