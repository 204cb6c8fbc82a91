// The certificate of the listeners with TLS, and their handshakes.

package web

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"slices"
	"sync/atomic"
	"syscall"
	"time"

	"meshddns/internal/connlimit"
	"meshddns/internal/daemon"
)

const (
	lookTime  = time.Minute         // between two looks at the files
	earlyTime = 14 * 24 * time.Hour // before its end, when a certificate counts as one that ends soon
)

// Certificate is the certificate of the listeners with TLS, from PEM files. A nil Certificate is none.
type Certificate struct {
	Chain, Key  string // paths
	Authority   string // path of what signs clients' certificates, which the API then requires; "": it requires none
	Credentials string // the directory of credentials, as for OpenTokens
	current     atomic.Pointer[tls.Config]
}

// Reload reads the files for the next connections. On an error it keeps what it has. The key's file must be as private
// as a token file; an expired certificate is no error. No session is resumed, so a replaced authority counts at once.
func (c *Certificate) Reload() error {
	chain, err := os.ReadFile(c.Chain)
	if err != nil {
		return err
	}
	key, err := openPrivate(c.Key, c.Credentials)
	if err != nil {
		return err
	}
	defer key.Close()
	text, _ := io.ReadAll(key) // a part of a key is none
	pair, err := tls.X509KeyPair(chain, text)
	if err != nil {
		return fmt.Errorf("%s and %s: %w", c.Chain, c.Key, err)
	}
	next := &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"http/1.1"}, SessionTicketsDisabled: true}
	if c.Authority != "" {
		next.ClientAuth, next.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
		if text, err := os.ReadFile(c.Authority); err != nil || !next.ClientCAs.AppendCertsFromPEM(text) {
			return cmp.Or(err, fmt.Errorf("%s: no certificate in PEM", c.Authority))
		}
	}
	c.current.Store(next)
	return nil
}

// API and Nodes return the settings of the next connection, for ServerConfig.TLS.
func (c *Certificate) API() *tls.Config { return c.current.Load() }

func (c *Certificate) Nodes() *tls.Config {
	config := c.API().Clone()
	config.ClientAuth = tls.NoClientCert
	return config
}

// Watch reads the files every minute until ctx ends. Every minute it calls note for a certificate that ends within 14 days,
// until note returns nil for it.
func (c *Certificate) Watch(ctx context.Context, log *slog.Logger, note func(context.Context, *x509.Certificate) error) error {
	var reading, noting daemon.Fault
	for noted := (*x509.Certificate)(nil); c != nil; {
		if leaf, soon := c.Ends(); soon && !leaf.Equal(noted) {
			err := note(ctx, leaf)
			if noting.Note(log, "the end of the certificate is not noted", err); err == nil {
				noted = leaf
			}
		}
		select {
		case <-time.After(lookTime):
		case <-ctx.Done():
			return nil
		}
		reading.Note(log, "the certificate is not read again: what was stays", c.Reload())
	}
	return nil
}

// Ends returns the certificate, nil if there is none, and whether it ends within 14 days.
func (c *Certificate) Ends() (leaf *x509.Certificate, soon bool) {
	if c == nil {
		return nil, false
	}
	leaf = c.API().Certificates[0].Leaf
	return leaf, time.Until(leaf.NotAfter) <= earlyTime
}

// WriteMetrics writes the end of the certificate.
func (c *Certificate) WriteMetrics(page *daemon.Page) {
	if leaf, _ := c.Ends(); leaf != nil {
		page.Family("meshddns_tls_certificate_expiry_timestamp_seconds", "gauge", "End of the certificate of the listeners with TLS.")
		page.Time(leaf.NotAfter)
	}
}

// tlsListener is the listener of an address with TLSPrefix. Package systemd has one of its own.
type tlsListener struct{ *net.TCPListener }

func (tlsListener) TLS() {}

// HasTLS reports whether the clients of a listener speak TLS, because it has a method TLS.
func HasTLS(l net.Listener) bool {
	_, ok := l.(interface{ TLS() })
	return ok
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
	if err := c.Handshake(); err != nil {
		gone := func(silence error) bool { return errors.Is(err, silence) }
		if !slices.ContainsFunc([]error{io.EOF, io.ErrUnexpectedEOF, os.ErrDeadlineExceeded, net.ErrClosed, syscall.ECONNRESET, syscall.EPIPE}, gone) {
			c.lines.Log(slog.LevelWarn, "TLS handshake failed", "tls_handshake", "who", c.limited.RemoteAddr(), "error", err)
		}
		if plain, ok := errors.AsType[tls.RecordHeaderError](err); ok && plain.Conn != nil && plain.RecordHeader[0] >= 'A' {
			io.WriteString(plain.Conn, "HTTP/1.0 400 Bad Request\r\n\r\nThis address takes https:// only.\n")
		}
		return 0, err
	}
	c.limited.Rest()
	return c.Conn.Read(p)
}
