package lease

import (
	"cmp"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/web"
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
	updatePath   = "/nic/update"
	maxHosts     = 20
	keepFamily   = "preserve"
	offlineValue = "YES"
)

// dyndns answers a client of dyndns2: a line for each host, in the order of the request. ddclient
// reads line n as the answer about host n.
func (s *Nodes) dyndns(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query() // a FRITZ!Box escapes nothing, so a part that is malformed is left out
	user, _ := basic(r)
	l, err := s.authenticate(r, query.Get("password"), tokenOf(r))
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
		s.refused(r, err) // because the client is told a bare code
		s.refuseDyndns(w, err)
		return
	}
	writeCodes(w, http.StatusOK, lines...)
}

// refuseDyndns answers a request that is refused as a whole.
func (s *Nodes) refuseDyndns(w http.ResponseWriter, err error) {
	failure := web.FailureOf(err, s.Broken)
	if failure.Status == http.StatusUnauthorized {
		web.OfferSchemes(w.Header(), true)
		writeCodes(w, http.StatusUnauthorized, codeBadAuth)
		return
	}
	writeCodes(w, http.StatusServiceUnavailable, codeTrouble)
}

// writeCodes writes lines of text with their length: ddclient reads no chunked answer.
func writeCodes(w http.ResponseWriter, status int, lines ...string) {
	text := strings.Join(lines, "\n") + "\n"
	web.Private(w.Header(), "text/plain; charset=utf-8")
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
func (s *Nodes) update(r *http.Request, l Lease, query url.Values, hosts []string) (lines []string, err error) {
	own := ""
	for _, host := range hosts {
		if !l.Has(host) || l.Releasing {
			lines = append(lines, codeNoHost)
			continue
		}
		if own == "" {
			own, err = s.updateOwn(r, l, query)
			if err = s.judged(r, l, err); err != nil {
				return nil, err
			}
		}
		lines = append(lines, own)
	}
	return lines, nil
}

// updateOwn renews the lease and returns the line about it.
func (s *Nodes) updateOwn(r *http.Request, l Lease, query url.Values) (line string, err error) {
	var endpoints []string
	var a asked
	if !strings.EqualFold(query.Get("offline"), offlineValue) {
		if endpoints, a, err = s.wanted(r, l, query); err != nil {
			return "", err
		}
	}
	renewal, err := s.Leases.Renew(r.Context(), l, endpoints, Keep{Family: a.keep}, clientOf(r))
	if err != nil {
		return "", err
	}
	code := codeSame
	if renewal.Changed {
		code = codeGood
		s.adapter.Audit(r, nil)
	}
	return strings.TrimSpace(code + " " + a.shown()), nil
}

// wanted returns the endpoints that a query tells, and what it asks for.
func (s *Nodes) wanted(r *http.Request, l Lease, query url.Values) (endpoints []string, a asked, err error) {
	if a, err = readAddresses(query); err != nil {
		return nil, a, err
	}
	if len(a.addresses) == 0 && a.keep == [families]Keeping{} {
		client := clientOf(r)
		if !mesh.IsPublic(client) {
			return nil, a, web.Fail(msg.LeaseNoAddress, client.String())
		}
		a.addresses = []netip.Addr{client}
	}
	a.passOver(l)
	a.keepOthers()
	if len(a.addresses) > 0 {
		endpoints, err = s.Leases.Addressed(r.Context(), l, a.addresses)
	}
	return endpoints, a, err
}

// asked is what a query asks for.
type asked struct {
	addresses []netip.Addr
	keep      [families]Keeping
}

// passOver passes over a family of which the lease permits no address, beside one of which it permits some: a router behind
// a carrier's NAT sends its private IPv4 address too.
func (a *asked) passOver(l Lease) {
	permits := func(address netip.Addr) bool { return mesh.Permits(l.CIDRs, address) }
	permitted := slices.DeleteFunc(slices.Clone(a.addresses), func(address netip.Addr) bool { return !permits(address) })
	if len(permitted) == 0 {
		return
	}
	a.addresses = slices.DeleteFunc(a.addresses, func(address netip.Addr) bool {
		return !slices.ContainsFunc(permitted, func(p netip.Addr) bool { return p.Is6() == address.Is6() })
	})
}

// shown returns the addresses as an answer has them.
func (a asked) shown() string {
	var all []string
	for _, address := range a.addresses {
		all = append(all, address.String())
	}
	return strings.Join(all, ",")
}

// keepOthers keeps the families without an address: many routers send each family in a request of its own.
func (a *asked) keepOthers() {
	for f := range a.keep {
		if a.keep[f] == Withdraw {
			a.keep[f] = Stay
		}
	}
	for _, address := range a.addresses {
		a.keep[familyOfAddress(address)] = Withdraw
	}
}

func familyOfAddress(a netip.Addr) Family {
	if a.Is6() {
		return IPv6
	}
	return IPv4
}

// readAddresses reads myip and myipv6: lists of addresses, "preserve", or nothing. Beside an address it passes over
// what is none, because routers send "no", 0.0.0.0 or a prefix for the family that they do not have.
func readAddresses(query url.Values) (a asked, err error) {
	for f, name := range []string{IPv4: "myip", IPv6: "myipv6"} {
		for text := range strings.SplitSeq(strings.Join(query[name], ","), ",") {
			text = strings.TrimSpace(text)
			address, fault := netip.ParseAddr(text)
			switch address = address.Unmap(); {
			case text == "":
			case strings.EqualFold(text, keepFamily):
				a.keep[f] = Preserve
			case fault != nil || !usable(address):
				err = web.Fail(msg.QueryInvalid, name, "203.0.113.7 | 2001:db8::7")
			default:
				a.addresses = append(a.addresses, address)
			}
		}
	}
	if len(a.addresses) > 0 {
		err = nil
	}
	return a, err
}
