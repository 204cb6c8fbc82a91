package provider

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// RFC2136 is a client of a DNS server that accepts dynamic updates (RFC 2136) signed with TSIG
// (RFC 8945), such as BIND, Knot and PowerDNS. It is safe for concurrent use.
//
// Queries are signed too, so that a wrong key shows before a write. The client trusts an answer about
// names and records only if its signature verifies. Unsigned errors count as hints that can delay a
// change: PowerDNS and Knot do not sign all errors, and no server can sign for a wrong key. Two
// unsigned errors together, to a query and to an update over TCP, prove that a zone is gone, because
// Knot signs nothing without a zone.
type RFC2136 struct {
	server string // host:port
	key    dns.Key
	now    func() time.Time

	mu        sync.Mutex
	neighbour map[dns.Name]map[Type][]string // by parent: the data of an unregistered name below it
	changes   int
}

const (
	exchangeTime = 10 * time.Second // limit for one question and its answer
	maxString    = 255              // octets of a character-string, RFC 1035, section 3.3
	maxName      = 255              // octets of a name on the wire, RFC 1035, section 2.3.4
)

// NewRFC2136 makes a client. AccessKeyID is the name of the key, with the algorithm and a colon before
// it if that is not hmac-sha256. AccessKeySecret is the secret in base64. Endpoint is the server, host
// or host:port.
func NewRFC2136(c Credentials) (*RFC2136, error) {
	server, err := serverAddress(c.Endpoint)
	if err != nil {
		return nil, &Error{Kind: Invalid, Detail: "endpoint", Err: err}
	}
	key, err := dns.ParseKey(c.AccessKeyID, string(c.AccessKeySecret))
	if err != nil {
		return nil, &Error{Kind: Invalid, Detail: msg.Say("key"), Err: err}
	}
	return &RFC2136{server: server, key: key, now: time.Now, neighbour: map[dns.Name]map[Type][]string{}}, nil
}

// serverAddress parses host, host:port, or an IPv6 address with or without brackets. The default port
// is 53.
func serverAddress(endpoint string) (string, error) {
	if endpoint == "" {
		return "", msg.Errorf("the DNS server is missing: want host or host:port")
	}
	host, port := endpoint, "53"
	if h, p, err := net.SplitHostPort(endpoint); err == nil {
		host, port = h, p
	} else if strings.HasPrefix(endpoint, "[") && strings.HasSuffix(endpoint, "]") {
		host = endpoint[1 : len(endpoint)-1]
	}
	if number, err := strconv.ParseUint(port, 10, 16); err != nil || number == 0 {
		return "", msg.Errorf("%q has no port from 1 to 65535", shownEndpoint(endpoint))
	}
	if !isHost(host) {
		return "", msg.Errorf("%q is not host or host:port, with an IPv6 address in brackets", shownEndpoint(endpoint))
	}
	return net.JoinHostPort(host, port), nil
}

// shownEndpoint shortens an endpoint for an error. No valid host and port are longer.
func shownEndpoint(text string) string { return text[:min(len(text), 300)] }

func isHost(text string) bool {
	if _, err := netip.ParseAddr(text); err == nil {
		return true
	}
	_, err := dns.ParseName(text)
	return err == nil && text != "." && !strings.ContainsFunc(text, func(r rune) bool {
		letter := 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
		return !letter && !('0' <= r && r <= '9') && !strings.ContainsRune("-_.", r)
	})
}

// Zone returns the apex of the zone on the server that contains name. It fails with ZoneNotFound if
// there is none, or if the zone delegates the name. Knot reports a missing zone to any key, even a wrong one.
func (c *RFC2136) Zone(ctx context.Context, name string) (string, error) {
	owner, err := ownerName(name)
	if err != nil {
		return "", err
	}
	var refusal error
	for at := owner; at == owner || at.Parent() != dns.Root; at = at.Parent() {
		answer, err := c.query(ctx, at, dns.TypeSOA)
		if cut, ok := errors.AsType[referral](err); ok && at.Within(cut.at) { // of a zone above, which the server has or not
			refusal = err
			if at = cut.at; at == dns.Root {
				break
			}
			continue
		}
		if KindOf(err) == Permission {
			if refusal = c.absent(ctx, at, err); KindOf(refusal) != ZoneNotFound {
				return "", refusal
			}
			refusal = err
			continue
		}
		if err != nil {
			return "", err
		}
		if apex, ok := apexAbove(answer, owner); ok {
			return nameText(apex), delegatedBy(apex, refusal)
		}
	}
	detail := msg.Textf("%s serves no zone that contains %s", c.server, nameText(owner))
	return "", &Error{Kind: ZoneNotFound, Detail: detail, Err: refusal}
}

// apexAbove returns the owner of the SOA record of the zone that contains owner. The record is in the
// answer section at the apex, else in the authority section. Behind an alias the authority section is
// about the zone of the target, so apexAbove finds nothing.
func apexAbove(answer dns.Message, owner dns.Name) (dns.Name, bool) {
	if _, ok := alias(answer); ok {
		return "", false
	}
	for _, rr := range slices.Concat(answer.Answers, answer.Authority) {
		if rr.Type == dns.TypeSOA && rr.Name != dns.Root && owner.Within(rr.Name) {
			return rr.Name, true
		}
	}
	return "", false
}

func alias(answer dns.Message) (dns.RR, bool) {
	at := slices.IndexFunc(answer.Answers, func(rr dns.RR) bool {
		return rr.Type == dns.TypeCNAME || rr.Type == dns.TypeDNAME
	})
	if at < 0 {
		return dns.RR{}, false
	}
	return answer.Answers[at], true
}

// Types returns the types of records that the client has.
func (c *RFC2136) Types() []Type { return allTypes }

// Read returns the values of a type at a name. An alias or a delegation at or above the name is an error: an
// update there would report success, and no resolver would see its value.
func (c *RFC2136) Read(ctx context.Context, zone, name string, t Type) (RRset, error) {
	if err := CheckType(c, t); err != nil {
		return RRset{}, err
	}
	apex, err := ownerName(zone)
	if err != nil {
		return RRset{}, err
	}
	owner, err := ownerName(name)
	if err != nil {
		return RRset{}, err
	}
	answer, err := c.query(ctx, owner, t.Wire())
	if KindOf(err) == Permission {
		err = c.absent(ctx, apex, err)
	}
	if err != nil {
		return RRset{}, cmp.Or(delegatedBy(apex, err), err)
	}
	if len(answer.Answers) > 0 && owner.Fold() != apex.Fold() { // the apex itself always exists
		wildcard, err := c.fromWildcard(ctx, owner, t, answer)
		if err != nil || wildcard {
			return RRset{}, err
		}
	}
	if rr, ok := alias(answer); ok {
		target := nameText(dns.Name(rr.Data))
		if rr.Name.Fold() != owner.Fold() { // a DNAME above the name
			detail := msg.Textf("%s is an alias: %s points to %s", name, nameText(rr.Name), target)
			return RRset{}, &Error{Kind: Conflict, Detail: detail, hidden: true}
		}
		return RRset{}, aliased(name, target)
	}
	for _, rr := range answer.Authority {
		if rr.Type == dns.TypeSOA && rr.Name.Fold() != apex.Fold() {
			detail := msg.Textf("%s is in zone %s of %s, not in %s", name, nameText(rr.Name), c.server, zone)
			return RRset{}, &Error{Kind: ZoneNotFound, Detail: detail}
		}
	}
	return valuesAt(answer, owner, t)
}

// fromWildcard reports whether an answer was made from a wildcard ("*.example.com"), so that the name
// itself has no records. It compares the answer with that for an unregistered name below the same
// parent. If the name exists, its parent does too, and only the wildcard directly below the parent
// answers for that other name. Otherwise the same wildcard further up answers for both.
func (c *RFC2136) fromWildcard(ctx context.Context, owner dns.Name, t Type, answer dns.Message) (bool, error) {
	data := dataAt(owner, answer)
	if len(data) == 0 {
		return false, nil
	}
	other, err := c.askNeighbour(ctx, owner.Parent().Fold(), t)
	return err == nil && slices.Equal(data, other), err
}

// askNeighbour returns the data of an unregistered name below parent. It asks the server once for each
// parent and type, until a change may have altered the data.
func (c *RFC2136) askNeighbour(ctx context.Context, parent dns.Name, t Type) ([]string, error) {
	c.mu.Lock()
	data, ok := c.neighbour[parent][t]
	changes := c.changes
	c.mu.Unlock()
	neighbour, fits := parent.Child(rand.Text())
	if ok || !fits {
		return data, nil
	}
	answer, err := c.query(ctx, neighbour, t.Wire())
	if err != nil {
		return nil, err
	}
	data = dataAt(neighbour, answer)
	c.mu.Lock()
	defer c.mu.Unlock()
	if changes == c.changes {
		if c.neighbour[parent] == nil {
			c.neighbour[parent] = map[Type][]string{}
		}
		c.neighbour[parent][t] = data
	}
	return data, nil
}

// forget drops the remembered neighbours that a change of the name may have altered, even a refused
// change: the first record at a name hides all names above it from the wildcards.
func (c *RFC2136) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	owner, err := ownerName(name)
	for err == nil && owner != dns.Root {
		owner = owner.Parent().Fold()
		delete(c.neighbour, owner)
	}
}

// dataAt returns the data of the answers at a name, sorted.
func dataAt(owner dns.Name, answer dns.Message) []string {
	var data []string
	for _, rr := range answer.Answers {
		if rr.Name.Fold() == owner.Fold() {
			data = append(data, string(rr.Data))
		}
	}
	slices.Sort(data)
	return data
}

func valuesAt(answer dns.Message, owner dns.Name, t Type) (RRset, error) {
	var set RRset
	for _, rr := range answer.Answers {
		if rr.Type != t.Wire() || rr.Class != dns.ClassIN || rr.Name.Fold() != owner.Fold() {
			continue
		}
		value, err := t.ParseData(rr.Data)
		if err != nil {
			return RRset{}, &Error{Kind: BadAnswer, Detail: msg.Textf("%s record at %s", string(t), nameText(owner)), Err: err}
		}
		set.TTL = rr.TTL
		set.Values = append(set.Values, value)
	}
	return set, nil
}

// Authority returns the server itself, which resolvers ask without a key.
func (c *RFC2136) Authority(context.Context, string) (Authority, error) {
	return Authority{Server: c.server}, nil
}

var typeNames = map[dns.Type]string{dns.TypeSOA: "SOA", dns.TypeTXT: "TXT", dns.TypeA: "A", dns.TypeAAAA: "AAAA", dns.TypeSRV: "SRV"}

// query asks for records. It returns only a signed NOERROR or NXDOMAIN from an authoritative server.
func (c *RFC2136) query(ctx context.Context, name dns.Name, t dns.Type) (dns.Message, error) {
	call := msg.Textf("query %s %s at %s", nameText(name), typeNames[t], c.server)
	question := dns.Question{Name: name, Type: t, Class: dns.ClassIN}
	answer, signed, err := c.exchange(ctx, call, dns.Exchange, dns.Message{Questions: []dns.Question{question}})
	if err != nil {
		return dns.Message{}, err
	}
	if answer.Rcode != dns.RcodeSuccess && answer.Rcode != dns.RcodeNXDomain {
		return dns.Message{}, rcodeError(call, queryErrors, answer.Rcode, signed)
	}
	if !answer.Authoritative {
		return dns.Message{}, &Error{Kind: ZoneNotFound, Detail: call, Err: notAuthoritative(answer)}
	}
	return answer, nil
}

func notAuthoritative(answer dns.Message) error {
	for _, rr := range answer.Authority {
		if rr.Type == dns.TypeNS {
			return referral{msg.Errorf("%s is delegated to other servers", nameText(rr.Name)), rr.Name.Fold()}
		}
	}
	return msg.Errorf("the server does not serve the zone itself")
}

// referral is the error of an answer with the NS records of other servers.
type referral struct {
	error
	at dns.Name // of the NS records
}

func (r referral) Unwrap() error { return r.error }

// delegatedBy returns the error of a name below a delegation if the error is a referral of the zone.
func delegatedBy(apex dns.Name, err error) error {
	if cut, ok := errors.AsType[referral](err); ok && cut.at != apex.Fold() && cut.at.Within(apex) {
		return Delegated(nameText(cut.at))
	}
	return nil
}

type sender func(ctx context.Context, server string, message []byte) ([]byte, error)

// exchange sends a signed message and returns the answer. It returns an unsigned answer only if that is
// an error.
func (c *RFC2136) exchange(ctx context.Context, call msg.Text, send sender, message dns.Message) (answer dns.Message, signed bool, err error) {
	message.ID = randomID()
	request, mac := c.key.Sign(message.Pack(), c.now())
	if len(request) > dns.MaxMessage {
		return answer, false, &Error{Kind: Invalid, Detail: msg.Textf("%s: the values do not fit into one message", call), Unmade: true}
	}
	ctx, cancel := context.WithTimeout(ctx, exchangeTime)
	defer cancel()
	data, err := send(ctx, c.server, request)
	if errors.Is(err, dns.ErrFormat) {
		return answer, false, &Error{Kind: BadAnswer, Detail: call, Err: err}
	}
	if err != nil {
		return answer, false, &Error{Kind: Network, Detail: call, Err: err}
	}
	answer, err = dns.ParseMessage(data)
	if err != nil || answer.Truncated {
		return answer, false, &Error{Kind: BadAnswer, Detail: msg.Textf("%s: the answer is not whole", call), Err: err}
	}
	err = c.key.Verify(data, mac, c.now())
	if errors.Is(err, dns.ErrUnsigned) && isFailure(message.Opcode, answer.Rcode) {
		return answer, false, nil
	}
	return answer, err == nil, c.verifyError(call, err)
}

func randomID() uint16 {
	var id [2]byte
	rand.Read(id[:])
	return binary.BigEndian.Uint16(id[:])
}

// isFailure reports whether an rcode means only that a call failed. The NXDOMAIN of a query means that
// the name has no records.
func isFailure(opcode dns.Opcode, rcode dns.Rcode) bool {
	return rcode != dns.RcodeSuccess && (rcode != dns.RcodeNXDomain || opcode == dns.OpcodeUpdate)
}

// verifyError returns the error for an answer whose signature does not verify.
func (c *RFC2136) verifyError(call msg.Text, err error) error {
	if err == nil {
		return nil
	}
	failure := &Error{Kind: BadAnswer, Detail: call, Err: err}
	reported, ok := errors.AsType[*dns.TSIGError](err)
	if !ok {
		return failure
	}
	failure.Unmade = reported.Signed
	switch reported.Code {
	case dns.RcodeBadKey: // Knot sends it also for a key without rights
		failure.Kind = BadCredentials
		failure.Detail = msg.Textf("%s: the server does not take key %s with this algorithm here", call, nameText(c.key.Name))
	case dns.RcodeBadSig:
		failure.Kind = BadCredentials
		failure.Detail = msg.Textf("%s: the server has another secret for key %s", call, nameText(c.key.Name))
	case dns.RcodeBadTime:
		failure.Kind = ClockSkew
		if !reported.ServerTime.IsZero() {
			failure.Detail = msg.Textf("%s: the server's time minus ours is %+d s", call, reported.ServerTime.Unix()-c.now().Unix())
		}
	}
	if !reported.Signed {
		failure.Detail = msg.Textf("%s (unsigned)", failure.Detail)
	}
	return failure
}

// meaning is the meaning of an rcode for a call.
type meaning struct {
	kind  Kind
	words string
}

var queryErrors = map[dns.Rcode]meaning{
	dns.RcodeFormErr:  {Invalid, "the server does not take signed queries"},
	dns.RcodeServFail: {Temporary, "the server has a fault"},
	dns.RcodeNotImp:   {Invalid, "the server does not take signed queries"},
	dns.RcodeRefused:  {Permission, "the server has no such zone, or not for this key"},
	dns.RcodeNotAuth:  {BadCredentials, "the server does not accept the key"},
}

// rcodeError returns the error for an rcode. For a key that it does not accept, PowerDNS sends only an
// unsigned REFUSED or NOTAUTH.
func rcodeError(call msg.Text, meanings map[dns.Rcode]meaning, rcode dns.Rcode, signed bool) *Error {
	m, ok := meanings[rcode]
	if !ok {
		m = meaning{BadAnswer, "an answer that is not expected here"}
	}
	failure := &Error{Kind: m.kind, Detail: msg.Textf("%s: %s: %s", call, rcode, msg.Say(m.words))}
	failure.Unmade = signed && m.kind != Temporary && m.kind != BadAnswer
	if !signed {
		failure.Detail = msg.Textf("%s, or the key's name, algorithm or secret, or the clock, is wrong", failure.Detail)
		failure.Err = dns.ErrUnsigned
	}
	return failure
}

// ownerName parses a name that can have records.
func ownerName(text string) (dns.Name, error) {
	name, err := dns.ParseName(text)
	if err != nil {
		return "", &Error{Kind: Invalid, Detail: msg.Say("name"), Err: err}
	}
	if name == dns.Root {
		return "", &Error{Kind: Invalid, Detail: msg.Say("the root is no name for records")}
	}
	return name, nil
}

// nameText returns a name in lower case and without the final dot.
func nameText(name dns.Name) string { return strings.TrimSuffix(name.Fold().String(), ".") }
