// Readers of clients whose code cannot be run here, written down from its rules.

package clients

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/miekg/dns"
)

// ask returns the records at a name, over UDP with EDNS, and over TCP when the answer is truncated.
func (w *world) ask(name string, typ uint16) ([]dns.RR, error) {
	question := new(dns.Msg).SetQuestion(name+".", typ)
	question.SetEdns0(1232, false)
	client := &dns.Client{Timeout: patience}
	answer, _, err := client.Exchange(question, w.dns)
	if err == nil && answer.Truncated {
		client.Net = "tcp"
		answer, _, err = client.Exchange(question, w.dns)
	}
	if err != nil {
		return nil, err
	}
	if answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNameError {
		return nil, fmt.Errorf("%s: %s", name, dns.RcodeToString[answer.Rcode])
	}
	return answer.Answer, nil
}

// easyTierTXT is EasyTier's txt://: the first record, its first character-string, split at spaces; each
// word that parses as a URL is an endpoint.
func (w *world) easyTierTXT() ([]string, error) {
	records, err := w.ask(w.full(), dns.TypeTXT)
	if err != nil || len(records) == 0 {
		return nil, err
	}
	var all []string
	for word := range strings.SplitSeq(records[0].(*dns.TXT).Txt[0], " ") {
		if u, err := url.Parse(word); err == nil && u.Scheme != "" {
			all = append(all, word)
		}
	}
	return all, nil
}

// easyTierTypes are the labels of EasyTier's srv://.
var easyTierTypes = []string{"tcp", "udp", "wg", "quic", "ws", "wss", "faketcp"}

// easyTierSRV is EasyTier's srv://. It takes the priority as the weight of a draw, and ends when the sum
// is 0.
func (w *world) easyTierSRV() ([]string, error) {
	sum := 0
	found := map[string]bool{}
	for _, scheme := range easyTierTypes {
		records, err := w.ask("_easytier._"+scheme+"."+w.parent, dns.TypeSRV)
		if err != nil {
			return nil, err
		}
		for _, record := range records {
			srv := record.(*dns.SRV)
			if srv.Port == 0 {
				continue
			}
			hosts, err := w.resolved(srv.Target, srv.Port)
			if err != nil {
				return nil, err
			}
			for _, host := range hosts {
				found[scheme+"://"+host] = true
			}
			sum += int(srv.Priority)
		}
	}
	if len(found) > 0 && sum == 0 {
		return nil, errors.New("EasyTier panics: the sum of the priorities is 0")
	}
	var all []string
	for endpoint := range found {
		all = append(all, endpoint)
	}
	return all, nil
}

// fetch sends a request as EasyTier does, and follows no redirect.
func (w *world) fetch(address string) (*http.Response, string, error) {
	request, err := http.NewRequest("GET", address, nil)
	if err != nil {
		return nil, "", err
	}
	request.Header.Set("User-Agent", "easytier/2.4.5")
	request.Header.Set("X-Network-Name", "berlin")
	request.Close = true
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := http.DefaultTransport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		return nil, "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	return answer, string(body), err
}

// easyTierHTTP is EasyTier's http://, answered with a list: each line that parses is an endpoint.
func (w *world) easyTierHTTP() ([]string, error) {
	answer, body, err := w.fetch(w.node + "/d/" + w.full())
	if err != nil || answer.StatusCode == http.StatusNotFound {
		return nil, err
	}
	if answer.StatusCode/100 != 2 {
		return nil, fmt.Errorf("status %d", answer.StatusCode)
	}
	var all []string
	for line := range strings.Lines(body) {
		line = strings.TrimSpace(line)
		if u, err := url.Parse(line); err == nil && u.Scheme != "" {
			all = append(all, line)
		}
	}
	return all, nil
}

// easyTierRedirect is EasyTier's http://, answered with a redirect: the endpoint is its Location, unless
// that is a page.
func (w *world) easyTierRedirect() ([]string, error) {
	answer, _, err := w.fetch(w.node + "/d/" + w.full() + "?one=1")
	if err != nil || answer.StatusCode == http.StatusNotFound {
		return nil, err
	}
	u, err := url.Parse(answer.Header.Get("Location"))
	if err != nil || answer.StatusCode/100 != 3 || !u.IsAbs() {
		return nil, fmt.Errorf("status %d, Location %q", answer.StatusCode, answer.Header.Get("Location"))
	}
	for _, values := range u.Query() {
		for _, value := range values {
			if inner, err := url.Parse(value); err == nil && inner.Scheme != "" {
				return []string{value}, nil
			}
		}
	}
	return []string{answer.Header.Get("Location")}, nil
}

// vnt is vnt's txt: one question over UDP without EDNS. Each string must be a literal socket address.
func (w *world) vnt() ([]string, error) {
	question, err := new(dns.Msg).SetQuestion(w.parent+".", dns.TypeTXT).Pack()
	if err != nil {
		return nil, err
	}
	conn, err := net.DialTimeout("udp", w.dns, patience)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := errors.Join(conn.SetDeadline(later()), sent(conn.Write(question))); err != nil {
		return nil, err
	}
	buffer := make([]byte, 512)
	n, err := conn.Read(buffer)
	if err != nil {
		return nil, err
	}
	var answer dns.Msg
	if err := answer.Unpack(buffer[:n]); err != nil {
		return nil, err
	}
	var all []string
	for _, record := range answer.Answer {
		for _, text := range record.(*dns.TXT).Txt {
			at, err := netip.ParseAddrPort(text)
			if err != nil {
				return nil, fmt.Errorf("vnt gives up: %w", err)
			}
			all = append(all, at.String())
		}
	}
	return all, nil
}

// iroh is iroh's lookup of an endpoint id. One string that it does not know fails all of it.
func (w *world) iroh() ([]string, error) {
	records, err := w.ask("_iroh."+w.irohID+"."+w.parent, dns.TypeTXT)
	var all []string
	for _, record := range records {
		key, value, ok := strings.Cut(strings.Join(record.(*dns.TXT).Txt, ""), "=")
		switch {
		case !ok || key != "relay" && key != "addr" && key != "user-data":
			return nil, fmt.Errorf("iroh gives up: %s", record)
		case key == "addr":
			at, err := netip.ParseAddrPort(value)
			if err != nil {
				continue // dropped without a word
			}
			all = append(all, at.String())
		}
	}
	return all, err
}

// natmap is the reader of IP4P: 2001::<port>:<high 16 bits>:<low 16 bits>.
func (w *world) natmap() ([]string, error) {
	records, err := w.ask("ip4p."+w.parent, dns.TypeAAAA)
	var all []string
	for _, record := range records {
		addr, ok := netip.AddrFromSlice(record.(*dns.AAAA).AAAA.To16())
		octets := addr.As16()
		if !ok || octets[0] != 0x20 || octets[1] != 0x01 || addr.StringExpanded()[5:24] != "0000:0000:0000:0000" {
			return nil, fmt.Errorf("%s is no IP4P", addr)
		}
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte(octets[12:])), uint16(octets[10])<<8|uint16(octets[11]))
		all = append(all, at.String())
	}
	return all, err
}

// sent drops the count of octets of a write.
func sent(_ int, err error) error { return err }
