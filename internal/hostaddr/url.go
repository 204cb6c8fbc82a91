package hostaddr

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"meshddns/internal/msg"
)

const (
	askTime      = 10 * time.Second
	maxHeader    = 16 << 10 // octets of all header fields
	maxAnswer    = 256      // octets; an answer of this length is not an address
	maxRedirects = 5
)

var errRedirect = msg.Errorf("redirected too often or to a URL that is not safe to follow")

// ask returns the client address that a web service reports. It connects over family f and without a proxy,
// because the service would see the proxy's address.
func ask(ctx context.Context, f Family, u *url.URL) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	text, err := fetch(ctx, f, u)
	if err != nil {
		return netip.Addr{}, err
	}
	a, err := netip.ParseAddr(strings.TrimSpace(text))
	if err != nil {
		return netip.Addr{}, msg.Errorf("the answer is not one address")
	}
	return a, checkAddr(f, a)
}

func fetch(ctx context.Context, f Family, u *url.URL) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return "", cause(ctx, err)
	}
	request.Header.Set("Accept", "text/plain")
	response, err := client(f).Do(request)
	if err != nil {
		return "", cause(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", msg.Errorf("status %d", response.StatusCode)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return "", cause(ctx, err)
	}
	if len(body) == maxAnswer {
		return "", msg.Errorf("the answer is too long for an address")
	}
	return string(body), nil
}

func client(f Family) *http.Client {
	dial := func(ctx context.Context, _, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, fmt.Sprintf("tcp%d", f), addr)
	}
	return &http.Client{
		Transport:     &http.Transport{DialContext: dial, DisableKeepAlives: true, MaxResponseHeaderBytes: maxHeader},
		CheckRedirect: checkRedirect,
	}
}

// checkRedirect allows a redirect with the same scheme or to https. After a redirect from https to http an attacker on the
// path could choose the address.
func checkRedirect(next *http.Request, via []*http.Request) error {
	last := via[len(via)-1]
	safe := next.URL.Scheme == "https" || next.URL.Scheme == last.URL.Scheme
	if !safe || len(via) > maxRedirects {
		return errRedirect
	}
	return nil
}

// cause returns the part of an error that cannot contain the URL, because its password or token must not get into a log.
// url.Error prints the URL, and errors that quote the server may echo it.
func cause(ctx context.Context, err error) error {
	var network *net.OpError
	var certificate *tls.CertificateVerificationError
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errRedirect):
		return errRedirect
	case errors.As(err, &network):
		return network
	case errors.As(err, &certificate):
		return certificate
	}
	return msg.Errorf("no valid HTTP answer")
}
