package node

import (
	"cmp"
	"errors"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"meshddns/internal/envelope"
	"meshddns/internal/hostaddr"
	"meshddns/internal/lease"
	"meshddns/internal/msg"
)

// The codes of dyndns2. "911" has the status 503, because inadyn's custom rule ends the daemon for
// any other text with a status below 500. 429 and "abuse" would make clients stop for good.
const (
	codeGood     = "good"
	codeSame     = "nochg"
	codeNoHost   = "nohost"
	codeNotFQDN  = "notfqdn"
	codeBadAuth  = "badauth"
	codeTrouble  = "911"
	maxHosts     = 20
	keepFamily   = "preserve"
	offlineValue = "YES"
)

// dyndns answers a client of dyndns2: a line for each host, in the order of the request. ddclient
// reads line n as the answer about host n.
func (s *Server) dyndns(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query() // a FRITZ!Box escapes nothing, so a part that is malformed is left out
	user, _ := basic(r)
	l, err := s.authenticate(r, cmp.Or(tokenOf(r), query.Get("password")))
	if err != nil {
		s.refuseDyndns(w, err)
		return
	}
	r = as(r, l)
	hosts := hostsOf(cmp.Or(query.Get("hostname"), user))
	if len(hosts) == 0 {
		writeCodes(w, http.StatusOK, codeNotFQDN)
		return
	}
	lines, err := s.update(r, l, query, hosts)
	if err != nil {
		s.troubled(r, err)
		s.refuseDyndns(w, s.told(r, err))
		return
	}
	writeCodes(w, http.StatusOK, lines...)
}

// refuseDyndns answers a request that is refused as a whole.
func (s *Server) refuseDyndns(w http.ResponseWriter, err error) {
	failure := s.adapter.Failure(err)
	if failure.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", `Basic realm="meshddns"`)
		writeCodes(w, http.StatusUnauthorized, codeBadAuth)
		return
	}
	writeCodes(w, http.StatusServiceUnavailable, codeTrouble)
}

// troubled logs why a lease is not renewed, because the client is told a bare code.
func (s *Server) troubled(r *http.Request, err error) {
	if _, early := errors.AsType[*lease.TooSoonError](err); !early {
		s.refused(r, err)
	}
}

// writeCodes writes lines of text with their length: ddclient reads no chunked answer.
func writeCodes(w http.ResponseWriter, status int, lines ...string) {
	text := strings.Join(lines, "\n") + "\n"
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.WriteHeader(status)
	w.Write([]byte(text))
}

// hostsOf returns the host names of a list.
func hostsOf(list string) (hosts []string) {
	for host := range strings.SplitSeq(list, ",") {
		if host = strings.TrimSpace(host); host != "" && len(hosts) < maxHosts {
			hosts = append(hosts, host)
		}
	}
	return hosts
}

// update renews the lease, if a host is its own, and returns a line for each host.
func (s *Server) update(r *http.Request, l lease.Lease, query url.Values, hosts []string) (lines []string, err error) {
	own := ""
	for _, host := range hosts {
		if !l.Has(host) || l.Releasing {
			lines = append(lines, codeNoHost)
			continue
		}
		if own == "" {
			if own, err = s.updateOwn(r, l, query); err != nil {
				return nil, err
			}
		}
		lines = append(lines, own)
	}
	return lines, nil
}

// updateOwn renews the lease and returns the line about it.
func (s *Server) updateOwn(r *http.Request, l lease.Lease, query url.Values) (line string, err error) {
	var endpoints, shown []string
	if !strings.EqualFold(query.Get("offline"), offlineValue) {
		if endpoints, shown, err = s.wanted(r, l, query); err != nil {
			return "", err
		}
	}
	renewal, err := s.Leases.Renew(r.Context(), l, endpoints, clientOf(r))
	if err != nil {
		return "", err
	}
	code := codeSame
	if renewal.Changed {
		code = codeGood
		s.adapter.Audit(r, nil)
	}
	return strings.TrimSpace(code + " " + strings.Join(shown, ",")), nil
}

// wanted returns the endpoints that a query asks for, and their addresses.
func (s *Server) wanted(r *http.Request, l lease.Lease, query url.Values) (endpoints, shown []string, err error) {
	asked, err := readAddresses(query)
	if err != nil {
		return nil, nil, err
	}
	if len(asked.addresses) == 0 && !asked.keep4 && !asked.keep6 {
		client := clientOf(r)
		if !hostaddr.IsPublic(client) {
			return nil, nil, envelope.Fail(msg.LeaseNoAddress, client.String())
		}
		asked.addresses = []netip.Addr{client}
	}
	if asked.keep4 {
		endpoints = append(endpoints, l.OfFamily(true)...)
	}
	if len(asked.addresses) > 0 {
		made, err := s.Leases.Addressed(r.Context(), l, asked.addresses)
		if err != nil {
			return nil, nil, err
		}
		endpoints = append(endpoints, made...)
	}
	if asked.keep6 {
		endpoints = append(endpoints, l.OfFamily(false)...)
	}
	for _, a := range asked.addresses {
		shown = append(shown, a.String())
	}
	return endpoints, shown, nil
}

// asked has the addresses of a query.
type asked struct {
	addresses    []netip.Addr
	keep4, keep6 bool // the endpoints with addresses of the family stay
}

// readAddresses reads myip and myipv6: lists of addresses, "preserve", or nothing.
func readAddresses(query url.Values) (a asked, err error) {
	for _, name := range []string{"myip", "myipv6"} {
		for text := range strings.SplitSeq(strings.Join(query[name], ","), ",") {
			switch text = strings.TrimSpace(text); {
			case text == "":
			case strings.EqualFold(text, keepFamily) && name == "myip":
				a.keep4 = true
			case strings.EqualFold(text, keepFamily):
				a.keep6 = true
			default:
				address, err := netip.ParseAddr(text)
				if address = address.Unmap(); err != nil || !usable(address) {
					return a, envelope.Fail(msg.QueryInvalid, name, "203.0.113.7 | 2001:db8::7")
				}
				a.addresses = append(a.addresses, address)
			}
		}
	}
	return a, nil
}
