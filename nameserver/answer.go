package nameserver

import (
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"time"

	"meshddns/dnswire"
)

// Times of the records that every zone has, in seconds.
const (
	soaTTL     = 60      // RFC 2308: resolvers keep the lack of a name for the smaller of the two,
	soaMinimum = 60      // so a name that is published now is seen in a minute
	soaRefresh = 3600    // nobody transfers the zone:
	soaRetry   = 600     // the three only have to
	soaExpire  = 1209600 // satisfy zone checkers (RFC 1912, section 2.2)
	nsTTL      = 300     // resolvers prefer it to the delegation's: a renamed server is found in minutes
	addressTTL = 60      // this host's address changes, or there would be no use for the program
	hinfoTTL   = 3600    // what stands for ANY never changes
)

// Sizes of UDP messages.
const (
	minUDP = 512  // what everyone takes, RFC 1035, section 4.2.1
	maxUDP = 1232 // fits in every IPv6 path unfragmented: 1280 less the headers
)

// answerTimeout bounds the backend's work for one query; resolvers have asked
// again by then.
const answerTimeout = 2 * time.Second

// asker is where a query comes from.
type asker struct {
	address netip.Addr
	limit   int // the transport's size of an answer: maxUDP or dnswire.MaxMessage
	at      time.Time
}

func (a asker) tcp() bool { return a.limit > maxUDP }

// answer gives the packed answer to one message, nil for none.
func (s *Server) answer(ctx context.Context, packet []byte, from asker) []byte {
	query, err := dnswire.Parse(packet)
	if len(packet) < dnswire.HeaderSize || query.Response {
		return nil // an answer to an answer could go back and forth for ever
	}
	reply := dnswire.Message{ID: query.ID, Response: true, Opcode: query.Opcode, RecursionDesired: query.RecursionDesired}
	questions := binary.BigEndian.Uint16(packet[4:])
	if questions == 1 {
		reply.Questions = query.Questions // none if it could not be read
	}
	pseudo, pseudoErr := s.readPseudo(query, from)
	limited := !from.tcp() && !pseudo.asked.known && !s.limits.allow(from.address, from.at)
	if limited && !s.limits.slip() {
		return nil
	}
	var rcode dnswire.Rcode
	switch {
	case query.Opcode != dnswire.OpcodeQuery:
		rcode = dnswire.RcodeNotImp // even if it does not parse: other opcodes may have other formats
	case err != nil || pseudoErr != nil || len(reply.Questions) != 1 && (questions > 0 || pseudo.asked.cookie == nil):
		rcode = dnswire.RcodeFormErr
	case pseudo.edns.Version > 0:
		rcode = dnswire.RcodeBadVers
	case pseudo.signed:
		rcode = dnswire.RcodeNotAuth
	case limited:
		rcode = s.slipped(pseudo.asked, &reply)
	case questions == 0:
		rcode = pseudo.asked.cookieOnly()
	default:
		rcode = s.resolve(ctx, reply.Questions[0], &reply)
	}
	s.answered[rcode].Add(1)
	reply.Rcode = rcode & 15
	return fit(reply, pseudo.reply(rcode, s.appendOptions(nil, pseudo.asked, from)), room(from.limit, pseudo.edns))
}

// slipped makes a reply that is above the limit one that shows the way: with the
// cookie that comes along, or over TCP.
func (s *Server) slipped(asked options, reply *dnswire.Message) dnswire.Rcode {
	if asked.cookie != nil {
		return dnswire.RcodeBadCookie
	}
	reply.Truncated = true
	return dnswire.RcodeSuccess
}

// pseudo is what a query says outside its question.
type pseudo struct {
	edns       dnswire.EDNS
	hasEDNS    bool
	asked      options
	unknownKey dnswire.RR // answers a TSIG: no key is held here
	signed     bool
}

func (s *Server) readPseudo(query dnswire.Message, from asker) (p pseudo, err error) {
	var optionsErr, tsigErr error
	p.edns, p.hasEDNS, err = query.EDNS()
	p.asked, optionsErr = s.readOptions(p.edns, from)
	p.unknownKey, p.signed, tsigErr = query.RefuseKey()
	return p, errors.Join(err, optionsErr, tsigErr)
}

// reply gives the records that end a reply: OPT for a query that has one,
// then TSIG, which must be the last.
func (p pseudo) reply(rcode dnswire.Rcode, options []byte) []dnswire.RR {
	var records []dnswire.RR
	if p.hasEDNS {
		edns := dnswire.EDNS{UDPSize: maxUDP, Extended: uint8(rcode >> 4), DO: p.edns.DO, Options: options}
		records = append(records, edns.RR())
	}
	if rcode == dnswire.RcodeNotAuth {
		records = append(records, p.unknownKey)
	}
	return records
}

// room gives the size that an answer may have (RFC 6891, section 6.2.3).
func room(limit int, edns dnswire.EDNS) int {
	if limit > maxUDP {
		return limit // TCP
	}
	return max(minUDP, min(int(edns.UDPSize), limit))
}

// fit packs a reply, OPT and TSIG at its end. For what is too long, addresses
// in the additional section go first: they are a courtesy (RFC 2181, section
// 9). Then the records go and TC says so. At last TSIG goes, whose names may
// alone fill a small message.
func fit(reply dnswire.Message, tail []dnswire.RR, room int) []byte {
	courtesy := reply.Additional
	reply.Additional = append(courtesy[:len(courtesy):len(courtesy)], tail...)
	packed := reply.Pack()
	if len(packed) > room && len(courtesy) > 0 {
		reply.Additional = tail
		packed = reply.Pack()
	}
	if len(packed) > room {
		reply.Truncated, reply.Answers, reply.Authority = true, nil, nil
		packed = reply.Pack()
	}
	if len(packed) > room {
		reply.Additional = tail[:len(tail)-1]
		packed = reply.Pack()
	}
	return packed
}

// resolve answers a question of class IN or says why not.
func (s *Server) resolve(ctx context.Context, q dnswire.Question, reply *dnswire.Message) dnswire.Rcode {
	if rcode := refusal(q); rcode != dnswire.RcodeSuccess {
		return rcode
	}
	// A query that has come is answered also when the server is being stopped.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerTimeout)
	defer cancel()
	v, ok, err := s.look(ctx, q)
	if err != nil {
		s.failed(ctx, q, err)
		return dnswire.RcodeServFail
	}
	if !ok {
		return dnswire.RcodeRefused
	}
	reply.Authoritative = true
	reply.Answers = v.answers(q)
	if len(reply.Answers) == 0 {
		reply.Authority = []dnswire.RR{v.soa()}
	} else if q.Type == dnswire.TypeNS {
		reply.Additional = v.addressRecords(v.host, dnswire.TypeA, dnswire.TypeAAAA)
	}
	if !v.exists() {
		return dnswire.RcodeNXDomain
	}
	return dnswire.RcodeSuccess
}

// refusal gives the rcode of a question that no zone is searched for.
func refusal(q dnswire.Question) dnswire.Rcode {
	switch t := q.Type; {
	case q.Class != dnswire.ClassIN, t == dnswire.TypeAXFR, t == dnswire.TypeIXFR:
		return dnswire.RcodeRefused
	case t == dnswire.TypeANY:
		return dnswire.RcodeSuccess
	case t == dnswire.TypeTKEY, t == dnswire.TypeMAILA, t == dnswire.TypeMAILB:
		return dnswire.RcodeNotImp
	case t == 0, t == dnswire.TypeOPT, 128 <= t && t <= 255:
		return dnswire.RcodeFormErr // types of records that never stand at a name (RFC 6895, section 3.1)
	}
	return dnswire.RcodeSuccess
}

// view is one name of a zone as answers need it, names with letters in lower case.
type view struct {
	apex, name, host dnswire.Name
	hosts            []dnswire.Name // in NS; the first is host, the server itself
	serial           uint32
	node             Node
	addresses        []netip.Addr // the host's
}

// look asks the backend for what an answer needs; ok is false outside every zone.
func (s *Server) look(ctx context.Context, q dnswire.Question) (v view, ok bool, err error) {
	name := q.Name.Fold()
	zone, ok, err := s.backend.Zone(ctx, name)
	if err != nil || !ok {
		return view{}, false, err
	}
	v = view{apex: zone.Apex.Fold(), name: name, serial: zone.Serial}
	v.hosts = s.hostsIn(v.apex)
	v.host = v.hosts[0]
	if v.node, err = s.backend.Node(ctx, v.apex, name); err != nil {
		return view{}, false, err
	}
	if v.host.Within(v.apex) && (name == v.host || q.Type == dnswire.TypeNS) {
		v.addresses = s.backend.Addresses(ctx)
	}
	return v, true, nil
}

// exists reports whether the name is in the zone. A name that others lie
// below is, with or without data (RFC 8020), also one above the host.
func (v view) exists() bool {
	return v.name == v.apex || v.node.Exists || len(v.node.TXT) > 0 || v.host.Within(v.name)
}

// answers gives the RRset that is asked for. To ANY the answer is that it is
// not answered (RFC 8482, section 4.2): the sum of all would serve reflected attacks.
func (v view) answers(q dnswire.Question) []dnswire.RR {
	if q.Type != dnswire.TypeANY {
		return v.records(q.Name, q.Type)
	}
	for _, t := range []dnswire.Type{dnswire.TypeSOA, dnswire.TypeTXT, dnswire.TypeA, dnswire.TypeAAAA} {
		if len(v.records(q.Name, t)) > 0 {
			data := dnswire.TXTData([]string{"RFC8482", ""})
			return []dnswire.RR{{Name: q.Name, Type: dnswire.TypeHINFO, Class: dnswire.ClassIN, TTL: hinfoTTL, Data: data}}
		}
	}
	return nil
}

// records gives the RRset of one type at the name, which owner spells as asked.
func (v view) records(owner dnswire.Name, t dnswire.Type) []dnswire.RR {
	var found []dnswire.RR
	switch {
	case t == dnswire.TypeSOA && v.name == v.apex:
		found = append(found, v.soa())
	case t == dnswire.TypeNS && v.name == v.apex:
		for _, host := range v.hosts {
			found = append(found, dnswire.RR{Name: owner, Type: t, Class: dnswire.ClassIN, TTL: nsTTL, Data: []byte(host)})
		}
	case t == dnswire.TypeTXT:
		for _, data := range v.node.TXT {
			found = append(found, dnswire.RR{Name: owner, Type: t, Class: dnswire.ClassIN, TTL: v.node.TTL, Data: data})
		}
	case v.name == v.host:
		found = v.addressRecords(owner, t)
	}
	return found
}

// addressRecords gives those of the host's A and AAAA records that have one of the types.
func (v view) addressRecords(owner dnswire.Name, types ...dnswire.Type) []dnswire.RR {
	var found []dnswire.RR
	for _, address := range v.addresses {
		address = address.Unmap()
		for _, t := range types {
			if t == dnswire.TypeA && address.Is4() || t == dnswire.TypeAAAA && address.Is6() {
				found = append(found, dnswire.RR{Name: owner, Type: t, Class: dnswire.ClassIN, TTL: addressTTL, Data: address.AsSlice()})
			}
		}
	}
	return found
}

// soa is the zone's start of authority; in answers without data it says how
// long the lack may be kept (RFC 2308, section 3).
func (v view) soa() dnswire.RR {
	data := dnswire.SOA{
		MName: v.host, RName: below("hostmaster", v.apex), Serial: v.serial,
		Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minimum: soaMinimum,
	}.Data()
	return dnswire.RR{Name: v.apex, Type: dnswire.TypeSOA, Class: dnswire.ClassIN, TTL: min(soaTTL, soaMinimum), Data: data}
}
