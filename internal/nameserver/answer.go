package nameserver

import (
	"context"
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"meshddns/internal/dns"
)

// Times of the records that every zone has, in seconds. Resolvers cache the lack of a name
// for the smaller of soaTTL and soaMinimum (RFC 2308), so they see a new name after a
// minute. Secondaries are told of each change; refresh, retry and expire count when that fails
// (RFC 1912, section 2.2).
const (
	soaTTL     = 60
	soaMinimum = 60
	soaRefresh = 3600
	soaRetry   = 300
	soaExpire  = 1209600
	nsTTL      = 300  // resolvers prefer it to the delegation's TTL, so they find a renamed server in minutes
	addressTTL = 60   // this host's address may change at any time
	hinfoTTL   = 3600 // the answer to ANY never changes
)

// Sizes of UDP messages.
const (
	minUDP = 512  // every client accepts it (RFC 1035, section 4.2.1)
	maxUDP = 1232 // fits in every IPv6 path without fragments: 1280 minus the headers
)

// asker is the origin of a query.
type asker struct {
	address netip.Addr
	limit   int // the transport's largest answer: maxUDP or dns.MaxMessage
	at      time.Time
}

func (a asker) tcp() bool { return a.limit > maxUDP }

// request is the work on one query. The server reuses requests, so an answer makes no
// garbage.
type request struct {
	query         dns.Query
	options       []byte // EDNS options of the answer
	reply         dns.Packer
	found         Found
	records       []byte // the memory of found.Records
	authoritative bool
	truncated     bool
	apex          dns.Name // of the zone that host and hostmaster belong to
	host          dns.Name // the server's name in the zone
	hostmaster    dns.Name
	others        []dns.Name   // further servers, in NS records after host
	addresses     []netip.Addr // this host's, if the answer may need them
	atHost        bool         // the name is the server's own
	signature     *dns.Signature
}

// answer appends the answer to one message to a buffer. It appends nothing if there is no answer.
func (s *Server) answer(ctx context.Context, buffer, packet []byte, from asker) []byte {
	r, ok := s.requests.Get().(*request)
	if !ok {
		r = &request{others: s.others}
	}
	defer s.requests.Put(r)
	q := &r.query
	err := q.Read(packet)
	if len(packet) < dns.HeaderSize || q.Response {
		return buffer // two servers could answer each other for ever
	}
	asked, optionsErr := s.readOptions(q.EDNS, from)
	limited := !from.tcp() && !asked.known && !s.rates.allow(from.address, from.at)
	if limited && !s.rates.slip() {
		return buffer
	}
	r.reply.Begin(buffer, q)
	r.options = s.appendOptions(r.options[:0], asked, from)
	r.authoritative, r.truncated = false, false
	question := r.reply.Mark()
	courtesy := question
	if r.signature = nil; q.Signed && s.peers != nil && err == nil {
		r.signature, err = dns.CheckSignature(packet, s.peers.Key, from.at)
	}
	if asked.expire && q.Type == dns.TypeSOA && s.mayTransfer(r, from) {
		r.options = appendExpire(r.options)
	}
	var rcode dns.Rcode
	switch {
	case q.Opcode != dns.OpcodeQuery:
		rcode = dns.RcodeNotImp // even if the message does not parse: other opcodes may have other formats
	case err != nil || optionsErr != nil || !q.HasQuestion && !(noQuestion(packet) && asked.cookie != nil):
		rcode = dns.RcodeFormErr
	case q.EDNS.Version > 0:
		rcode = dns.RcodeBadVers
	case q.Signed && (r.signature == nil || r.signature.Error != dns.RcodeSuccess):
		rcode = dns.RcodeNotAuth
	case limited:
		rcode, r.truncated = asked.slipped()
	case !q.HasQuestion:
		rcode = asked.cookieOnly()
	case q.Type == dns.TypeIXFR && s.mayTransfer(r, from):
		rcode, courtesy = s.incrementally(ctx, r, packet, from)
	default:
		rcode, courtesy = s.resolve(ctx, r, from)
	}
	s.answered[rcode].Add(1)
	space := room(from.limit, q.EDNS)
	if r.signature == nil {
		r.fit(question, courtesy, rcode, space)
		return r.reply.Bytes()
	}
	r.fit(question, courtesy, rcode, space-r.signature.Size())
	answer := r.reply.Bytes()
	if len(answer)-len(buffer)+r.signature.Size() > space { // the names in TSIG alone may fill a small message
		return answer
	}
	return append(answer[:len(buffer)], r.signature.Sign(answer[len(buffer):], from.at)...)
}

func noQuestion(packet []byte) bool { return binary.BigEndian.Uint16(packet[4:]) == 0 }

// room returns the largest size of an answer, in octets (RFC 6891, section 6.2.3).
func room(limit int, edns dns.EDNS) int {
	if limit > maxUDP {
		return limit // TCP
	}
	return max(minUDP, min(int(edns.UDPSize), limit))
}

// fit ends a reply with OPT and TSIG. If the reply is too long, fit first cuts the
// addresses in the additional section, because they are optional (RFC 2181, section 9).
// Then it cuts all records and sets TC. At last it leaves out TSIG, whose names alone may
// fill a small message.
func (r *request) fit(question, courtesy dns.Mark, rcode dns.Rcode, room int) {
	end := r.reply.Mark()
	r.tail(rcode, true)
	if r.reply.Len() > room && courtesy != end {
		r.reply.Cut(courtesy)
		r.tail(rcode, true)
	}
	if r.reply.Len() > room {
		r.truncated = true
		r.reply.Cut(question)
		r.tail(rcode, true)
	}
	if r.reply.Len() > room {
		r.reply.Cut(question)
		r.tail(rcode, false)
	}
	r.reply.Flags(r.authoritative, r.truncated, rcode)
}

// tail appends the last records of a reply: OPT if the query has one, then TSIG, which must
// be the last record.
func (r *request) tail(rcode dns.Rcode, signed bool) {
	if r.query.HasEDNS {
		edns := dns.EDNS{UDPSize: maxUDP, Extended: uint8(rcode >> 4), DO: r.query.EDNS.DO, Options: r.options}
		r.reply.Record(dns.SectionAdditional, edns.RR())
	}
	if rcode == dns.RcodeNotAuth && signed && r.signature == nil {
		r.reply.Record(dns.SectionAdditional, r.query.UnknownKey)
	}
}

// resolve answers a question of class IN, or returns the rcode of a refusal. It also
// returns the mark after which all records are optional.
func (s *Server) resolve(ctx context.Context, r *request, from asker) (dns.Rcode, dns.Mark) {
	q, nothing := &r.query, r.reply.Mark()
	if rcode := refusal(q); rcode != dns.RcodeSuccess {
		return rcode, nothing
	}
	found, err := s.look(ctx, r, from)
	if err != nil {
		s.failed(ctx, dns.Question{Name: dns.Name(q.Asked), Type: q.Type, Class: q.Class}, err)
		return dns.RcodeServFail, nothing
	}
	if found.Apex == 0 {
		return dns.RcodeRefused, nothing
	}
	if cap(found.Records) <= maxKept {
		r.records = found.Records
	}
	s.place(ctx, r, found)
	r.authoritative = true
	r.answers()
	courtesy := r.reply.Mark()
	if courtesy == nothing {
		r.soa(dns.SectionAuthority)
		courtesy = r.reply.Mark()
	} else if q.Type == dns.TypeNS {
		r.appendAddresses(dns.SectionAdditional, r.host, dns.TypeA, dns.TypeAAAA)
	}
	if !s.exists(ctx, r) {
		return dns.RcodeNXDomain, courtesy
	}
	return dns.RcodeSuccess, courtesy
}

// look returns the data at the name of a question. The catalog zone is there for peers only.
func (s *Server) look(ctx context.Context, r *request, from asker) (Found, error) {
	name := r.query.Name
	if s.catalog == "" || string(name) != string(s.catalog) || !s.mayTransfer(r, from) {
		return s.backend.Look(ctx, name, r.records[:0])
	}
	found := Found{Apex: len(name), Exists: true, Records: r.records[:0]}
	ctx, cancel := context.WithTimeout(ctx, AnswerTime)
	defer cancel()
	err := s.versions.Version(ctx, s.catalog, func(v Version) error {
		found.Serial = v.Serial
		return nil
	})
	return found, err
}

// maxKept bounds the memory that a request keeps for its next use.
const maxKept = 64 << 10

// refusal returns the rcode of a question that needs no zone, RcodeSuccess for other questions.
func refusal(q *dns.Query) dns.Rcode {
	switch t := q.Type; {
	case q.Class != dns.ClassIN, t == dns.TypeAXFR, t == dns.TypeIXFR:
		return dns.RcodeRefused
	case t == dns.TypeANY:
		return dns.RcodeSuccess
	case t == dns.TypeTKEY, t == dns.TypeMAILA, t == dns.TypeMAILB:
		return dns.RcodeNotImp
	case t == 0, t == dns.TypeOPT, 128 <= t && t <= 255:
		return dns.RcodeFormErr // types of records that never stand at a name (RFC 6895, section 3.1)
	}
	return dns.RcodeSuccess
}

// place sets the zone that answers, and the position of the name in it. The DS of a zone
// belongs to the zone around it, if that is served too, because resolvers accept it from no
// other zone (RFC 4035, section 3.1.4.1).
func (s *Server) place(ctx context.Context, r *request, found Found) {
	name := r.query.Name
	around := name[len(name)-found.Above:]
	inner := found.Apex == len(name) && found.Above > 0
	if inner && r.query.Type == dns.TypeDS {
		found = Found{Apex: found.Above, Serial: found.AboveSerial, Exists: true}
	}
	r.found = found
	apex := name[len(name)-found.Apex:]
	if string(apex) != string(r.apex) {
		r.apex = dns.Name(apex)
		r.host, r.hostmaster = s.hostIn(r.apex), below("hostmaster", r.apex)
	}
	// The server's name in the zone around may itself be the apex of a zone, which must not
	// hide its address.
	r.atHost = string(name) == string(r.host) || inner && string(name) == string(s.hostIn(dns.Name(around)))
	r.addresses = nil
	if r.atHost || r.query.Type == dns.TypeNS && hasSuffix(r.host, apex) {
		r.addresses = s.backend.Addresses(ctx)
	}
}

func (r *request) atApex() bool { return r.found.Apex == len(r.query.Name) }

// exists reports whether the name is in the zone. A name with names below it exists even
// without data (RFC 8020), also a name above the host. The host exists while it has an address.
func (s *Server) exists(ctx context.Context, r *request) bool {
	return r.atApex() || r.found.Exists ||
		(r.atHost || hasSuffix(r.host, r.query.Name)) && slices.ContainsFunc(s.backend.Addresses(ctx), netip.Addr.IsValid)
}

// hasSuffix reports whether a name is zone or lies below it. Both have letters in lower case.
func hasSuffix(name dns.Name, zone []byte) bool {
	for len(name) > len(zone) {
		name = name.Parent()
	}
	return string(name) == string(zone)
}

// answers appends the RRset of the question. The answer to ANY is one HINFO record (RFC
// 8482, section 4.2), because a large answer would help reflection attacks.
func (r *request) answers() {
	switch t := r.query.Type; t {
	case dns.TypeANY:
		if r.atApex() || len(r.found.Records) > 0 || r.atHost && len(r.addresses) > 0 {
			r.reply.Answer(dns.TypeHINFO, hinfoTTL, dns.TXTData([]string{"RFC8482", ""}))
		}
	case dns.TypeSOA:
		if r.atApex() {
			r.soa(dns.SectionAnswer)
		}
	case dns.TypeNS:
		if r.atApex() {
			r.reply.NS(r.host, nsTTL)
			for _, other := range r.others {
				r.reply.NS(other, nsTTL)
			}
		}
	default:
		if r.atHost && (t == dns.TypeA || t == dns.TypeAAAA) {
			r.appendAddresses(dns.SectionAnswer, dns.Name(r.query.Name), t) // alone: what a usage stored there is never mixed in
			return
		}
		r.stored(t)
	}
}

// stored appends the stored records of a type.
func (r *request) stored(t dns.Type) {
	const head = 4
	for rest := r.found.Records; len(rest) > 0; {
		end := head + int(binary.BigEndian.Uint16(rest[2:]))
		if dns.Type(binary.BigEndian.Uint16(rest)) == t {
			r.reply.Answer(t, r.found.TTL, rest[head:end])
		}
		rest = rest[end:]
	}
}

// appendAddresses appends the host's A and AAAA records of the given types.
func (r *request) appendAddresses(section dns.Section, owner dns.Name, types ...dns.Type) {
	for _, address := range r.addresses {
		for _, t := range types {
			if rr := addressRecord(owner, address); rr.Type == t && address.IsValid() {
				r.reply.Record(section, rr)
			}
		}
	}
}

// soa appends the zone's SOA record. In an answer without data it tells resolvers how long
// they may cache the lack (RFC 2308, section 3).
func (r *request) soa(section dns.Section) {
	r.reply.SOA(section, len(r.query.Name)-r.found.Apex, min(soaTTL, soaMinimum), dns.SOA{
		MName: r.host, RName: r.hostmaster, Serial: r.found.Serial,
		Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minimum: soaMinimum,
	})
}
