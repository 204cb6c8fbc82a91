package nameserver

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/dns"
)

// Peers are the servers that may transfer zones. Concurrent calls must be safe.
type Peers interface {
	// Key returns the key with a name, which has letters in lower case.
	Key(name dns.Name) (key dns.Key, ok bool)
	// May reports whether a peer may transfer a zone. key is the name of the key that has signed the
	// request, "" for none.
	May(from netip.Addr, key, apex dns.Name) bool
	// Names tells that a peer has a version of a zone, and reports whether it got it from this process.
	Names(from netip.Addr, key, apex dns.Name, serial uint32) (sent bool)
	// Fetched tells that a peer has got a version of a zone.
	Fetched(from netip.Addr, key, apex dns.Name, serial uint32)
}

// Versions are the zones as they are transferred. Concurrent calls must be safe.
type Versions interface {
	// Version calls read with one version of a zone, which does not change meanwhile. It returns
	// ErrNoZone if there is none.
	Version(ctx context.Context, apex dns.Name, read func(Version) error) error
}

// ErrNoZone is the error of a Versions for a name that is not the apex of a zone.
var ErrNoZone = errors.New("no such zone")

// Version is one version of a zone. The server adds SOA, NS and its own addresses.
type Version struct {
	Serial  uint32
	Catalog bool                     // a catalog zone (RFC 9432): the server adds SOA only
	Inner   []dns.Name               // apexes of zones within the zone, which it delegates to this server
	Records iter.Seq2[dns.RR, error] // the data of a record may be overwritten by the next one
	// Changes returns the changes since a version, the oldest first; nil if they are not known, so
	// that the zone has to be sent whole. sent tells that the peer got that version from this process.
	Changes func(since uint32, sent bool) (iter.Seq2[Change, error], error)
}

// Change is what a version of a zone has changed (RFC 1995).
type Change struct {
	Before, After  uint32 // serials
	Removed, Added []dns.RR
}

const (
	maxTransfers = 8
	maxOfPeer    = 4  // transfers at once to one peer
	maxAsked     = 64 // requests of one peer that have or wait for a place: the connections of one address
	// waitTime bounds the wait for a place. Knot waits five seconds for an answer.
	waitTime = 4 * time.Second
	// transferTime bounds a transfer. The WAL of the database grows until it ends.
	transferTime = 2 * time.Minute
	// messageRoom bounds the records of a message. One record more and TSIG fit behind them.
	messageRoom = 60_000 - maxRecord
	// maxRecord bounds a record: a name, and the data of a TXT record that is published.
	maxRecord = 2048
)

// transferKind is what a peer is sent.
type transferKind int

const (
	whole transferKind = iota
	incremental
	current // the SOA record only
)

var kindNames = [...]string{whole: "axfr", incremental: "ixfr", current: "current"}

// peer is the sender of requests for transfers: the holder of a key, from wherever it asks, or else an address.
type peer struct {
	address netip.Addr
	key     dns.Name
}

// turns are taken by the transfers of a peer: those that have or wait for a place, and those that have one.
type turns struct{ asked, running chan struct{} }

// transfers are the places of transfers, and figures of those that have ended.
type transfers struct {
	places chan struct{} // taken by all transfers
	mu     sync.Mutex
	peers  map[peer]turns

	sent, failed [len(kindNames)]atomic.Uint64
	refused      atomic.Uint64
	octets       atomic.Uint64
}

func newTransfers() *transfers {
	return &transfers{places: make(chan struct{}, maxTransfers), peers: map[peer]turns{}}
}

// count counts a transfer that has ended.
func (t *transfers) count(kind transferKind, octets uint64, err error) {
	t.octets.Add(octets)
	if err != nil {
		t.failed[kind].Add(1)
	} else {
		t.sent[kind].Add(1)
	}
}

func (t *transfers) writeMetrics(page *daemon.Page) {
	page.Family("meshddns_dns_transfers_total", "counter", "Transfers of zones over TCP: whole (axfr), their changes (ixfr), or only the serial, because the peer is up to date (current).")
	for kind, name := range kindNames {
		label := daemon.Label{Name: "kind", Value: name}
		page.Figure(t.sent[kind].Load(), label, daemon.Label{Name: "result", Value: "sent"})
		page.Figure(t.failed[kind].Load(), label, daemon.Label{Name: "result", Value: "failed"})
	}
	page.Single("meshddns_dns_transfers_refused_total", "counter", "Queries for transfers over TCP that were refused.", t.refused.Load())
	page.Single("meshddns_dns_transfer_octets_total", "counter", "Octets of the messages of transfers.", t.octets.Load())
}

// ask takes a place among those of a peer that have or wait for one. It reports false if there is none.
func (t *transfers) ask(to peer) (own turns, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	own, known := t.peers[to]
	if !known {
		own = turns{make(chan struct{}, maxAsked), make(chan struct{}, maxOfPeer)}
		t.peers[to] = own
	}
	select {
	case own.asked <- struct{}{}:
		return own, true
	default:
		return own, false
	}
}

// begin waits for a place for a transfer to a peer. It reports false if there is none in time, and at once for
// one request too many: a key comes from many addresses, and must not take the connections of other clients.
func (t *transfers) begin(ctx context.Context, to peer) (end func(), ok bool) {
	own, ok := t.ask(to)
	if !ok {
		return nil, false
	}
	taken := []chan struct{}{}
	end = func() {
		for _, places := range taken {
			<-places
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if <-own.asked; len(own.asked) == 0 {
			delete(t.peers, to)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, waitTime)
	defer cancel()
	for _, places := range []chan struct{}{own.running, t.places} {
		select {
		case places <- struct{}{}:
			taken = append(taken, places)
		case <-ctx.Done():
			end()
			return nil, false
		}
	}
	return end, true
}

// transferred is what a peer was sent and may not have read yet; zero: nothing.
type transferred struct {
	key, apex dns.Name
	serial    uint32
}

// transfer answers a query for a zone or its changes over TCP. It reports false for another query, and
// for one that is refused.
func (s *Server) transfer(ctx context.Context, conn net.Conn, packet []byte, from asker) (sent transferred, done bool, err error) {
	q := &dns.Query{}
	if s.versions == nil || q.Read(packet) != nil || q.Response || q.Opcode != dns.OpcodeQuery || !q.HasQuestion ||
		q.Class != dns.ClassIN || q.Type != dns.TypeAXFR && q.Type != dns.TypeIXFR {
		return sent, false, nil
	}
	t := &transfer{server: s, conn: conn, query: q, apex: dns.Name(q.Name)}
	t.signature, err = dns.CheckSignature(packet, s.peers.Key, from.at)
	key := keyOf(t.signature)
	since, known := askedSerial(packet)
	if err != nil || t.signature != nil && t.signature.Error != dns.RcodeSuccess || !s.peers.May(from.address, key, t.apex) ||
		q.Type == dns.TypeIXFR && !known {
		s.transfers.refused.Add(1)
		return sent, false, nil
	}
	end, ok := s.transfers.begin(ctx, cmp.Or(peer{key: key}, peer{address: from.address}))
	if !ok {
		s.transfers.refused.Add(1)
		return sent, false, nil
	}
	defer end()
	if asked, _ := s.readOptions(q.EDNS, from); asked.expire {
		t.options = appendExpire(nil)
	}
	ctx, cancel := context.WithTimeout(ctx, transferTime)
	defer cancel()
	defer time.AfterFunc(transferTime, func() { conn.Close() }).Stop() // ctx does not end a write to a peer that reads slowly
	err = s.versions.Version(ctx, t.apex, func(v Version) error {
		t.static = s.staticRecords(ctx, t.apex, v)
		if q.Type == dns.TypeAXFR {
			return t.send(t.whole(v))
		}
		return t.sendSince(v, since, s.peers.Names(from.address, key, t.apex, since))
	})
	if errors.Is(err, ErrNoZone) {
		return sent, false, nil
	}
	s.transfers.count(t.kind, t.octets, err)
	if err == nil {
		s.answered[dns.RcodeSuccess].Add(1)
		s.tcp.count(t.reply.Bytes(), from.at)
	} else if !errors.As(err, new(*net.OpError)) && !errors.Is(err, context.Canceled) {
		s.failed(ctx, dns.Question{Name: t.apex, Type: q.Type, Class: q.Class}, err)
	}
	return transferred{key, t.apex, t.serial}, true, err
}

// mayTransfer reports whether the asker may transfer the zone of the question.
func (s *Server) mayTransfer(r *request, from asker) bool {
	return s.peers != nil && s.peers.May(from.address, keyOf(r.signature), dns.Name(r.query.Name))
}

// incrementally answers a query for changes that transfer does not answer. Over UDP a single SOA record
// tells the peer to ask over TCP (RFC 1995, section 2).
func (s *Server) incrementally(ctx context.Context, r *request, packet []byte, from asker) (dns.Rcode, dns.Mark) {
	if _, known := askedSerial(packet); !known {
		return dns.RcodeFormErr, r.reply.Mark()
	}
	if from.tcp() {
		return dns.RcodeRefused, r.reply.Mark()
	}
	r.query.Type = dns.TypeSOA
	return s.resolve(ctx, r, from)
}

// appendExpire appends the time after which a secondary gives up a zone: that of the SOA record, for
// this is the primary (RFC 7314, section 3.2).
func appendExpire(options []byte) []byte {
	return binary.BigEndian.AppendUint32(append(options, 0, optionExpire, 0, 4), soaExpire)
}

// keyOf returns the name of the key of a signature, "" for none.
func keyOf(s *dns.Signature) dns.Name {
	if s == nil {
		return ""
	}
	return s.Key
}

// askedSerial returns the serial in the authority section of a query for changes (RFC 1995, section 3).
func askedSerial(packet []byte) (serial uint32, ok bool) {
	m, err := dns.ParseMessage(packet)
	if err != nil || len(m.Authority) != 1 {
		return 0, false
	}
	soa, err := dns.ParseSOA(m.Authority[0])
	return soa.Serial, err == nil
}

// newer reports whether a serial is later than another one (RFC 1982, section 3.2).
func newer(serial, than uint32) bool { return int32(serial-than) > 0 }

// SOA returns the SOA record of a version of a zone.
func (s *Server) SOA(apex dns.Name, serial uint32) dns.RR {
	soa := dns.SOA{
		MName: s.hostIn(apex), RName: below("hostmaster", apex), Serial: serial,
		Refresh: soaRefresh, Retry: soaRetry, Expire: soaExpire, Minimum: soaMinimum,
	}
	return dns.RR{Name: apex, Type: dns.TypeSOA, Class: dns.ClassIN, TTL: min(soaTTL, soaMinimum), Data: soa.Data()}
}

// staticRecords returns the records of a version that the server itself has: SOA first, then NS, the
// addresses of its own name, and the delegations of inner zones.
func (s *Server) staticRecords(ctx context.Context, apex dns.Name, v Version) (all []dns.RR) {
	all = append(all, s.SOA(apex, v.Serial))
	if v.Catalog {
		return all
	}
	hosts := map[dns.Name]bool{}
	for _, zone := range append([]dns.Name{apex}, v.Inner...) {
		for _, name := range append([]dns.Name{s.hostIn(zone)}, s.others...) {
			all = append(all, dns.RR{Name: zone, Type: dns.TypeNS, Class: dns.ClassIN, TTL: nsTTL, Data: []byte(name)})
		}
		hosts[s.hostIn(zone)] = true
	}
	addresses := s.backend.Addresses(ctx)
	for name := range hosts {
		for _, address := range addresses {
			if name.Within(apex) && address.IsValid() {
				all = append(all, addressRecord(name, address))
			}
		}
	}
	return all
}

// addressRecord returns the A or AAAA record of a valid address.
func addressRecord(owner dns.Name, address netip.Addr) dns.RR {
	address = address.Unmap()
	t := dns.TypeAAAA
	if address.Is4() {
		t = dns.TypeA
	}
	return dns.RR{Name: owner, Type: t, Class: dns.ClassIN, TTL: addressTTL, Data: address.AsSlice()}
}

// transfer is an answer that may take many messages.
type transfer struct {
	server    *Server
	conn      net.Conn
	query     *dns.Query
	apex      dns.Name
	signature *dns.Signature
	static    []dns.RR
	options   []byte // EDNS options of each message
	kind      transferKind
	serial    uint32 // of the version that was sent
	octets    uint64
	reply     dns.Packer
	begun     bool // reply has a message
}

// sendSince sends the changes since another version, the whole zone if they are not known. A peer that
// has this version or a later one gets the SOA record only.
func (t *transfer) sendSince(v Version, since uint32, sent bool) error {
	if !newer(v.Serial, since) {
		t.kind = current
		return t.send(func(func(dns.RR, error) bool) {})
	}
	changes, err := v.Changes(since, sent)
	if err != nil {
		return err
	}
	if changes == nil {
		return t.send(t.whole(v))
	}
	t.kind = incremental
	return t.send(t.changes(changes))
}

// send sends records, and the SOA record at the end.
func (t *transfer) send(records iter.Seq2[dns.RR, error]) error {
	soa, err := dns.ParseSOA(t.static[0])
	if err != nil {
		return err
	}
	t.serial = soa.Serial
	for rr, err := range records {
		if err != nil {
			return err
		}
		if err := t.add(rr); err != nil {
			return err
		}
	}
	if err := t.add(t.static[0]); err != nil {
		return err
	}
	return t.flush()
}

// whole returns the records of a whole zone without its last one (RFC 5936, section 2.2). As in an answer, the server's own name
// has only the server's addresses.
func (t *transfer) whole(v Version) iter.Seq2[dns.RR, error] {
	return func(yield func(dns.RR, error) bool) {
		for _, rr := range t.static {
			if !yield(rr, nil) {
				return
			}
		}
		v.Records(func(rr dns.RR, err error) bool {
			own := err == nil && (rr.Type == dns.TypeA || rr.Type == dns.TypeAAAA) && string(rr.Name.Fold()) == string(t.server.hostIn(t.apex))
			return own || yield(rr, err)
		})
	}
}

// changes returns the records of changes without the last one (RFC 1995, section 4).
func (t *transfer) changes(all iter.Seq2[Change, error]) iter.Seq2[dns.RR, error] {
	return func(yield func(dns.RR, error) bool) {
		if !yield(t.static[0], nil) {
			return
		}
		for c, err := range all {
			if err != nil {
				yield(dns.RR{}, err)
				return
			}
			for _, part := range [][]dns.RR{{t.server.SOA(t.apex, c.Before)}, c.Removed, {t.server.SOA(t.apex, c.After)}, c.Added} {
				for _, rr := range part {
					if !yield(rr, nil) {
						return
					}
				}
			}
		}
	}
}

// add appends a record to the open message, or to a new one.
func (t *transfer) add(rr dns.RR) error {
	if t.begun && t.reply.Len() > messageRoom {
		if err := t.flush(); err != nil {
			return err
		}
	}
	if !t.begun {
		t.reply.Begin(t.reply.Bytes()[:0], t.query)
		t.begun = true
	}
	t.reply.Record(dns.SectionAnswer, rr)
	return nil
}

// flush sends the open message.
func (t *transfer) flush() error {
	if !t.begun {
		return nil
	}
	t.begun = false
	if t.server.over != nil && t.server.over() {
		return net.ErrClosed
	}
	if t.query.HasEDNS {
		edns := dns.EDNS{UDPSize: maxUDP, DO: t.query.EDNS.DO, Options: t.options}
		t.reply.Record(dns.SectionAdditional, edns.RR())
	}
	t.reply.Flags(true, false, dns.RcodeSuccess)
	message := t.reply.Bytes()
	if t.signature != nil {
		message = t.signature.Sign(message, time.Now())
	}
	t.octets += uint64(len(message))
	return dns.WriteTCP(t.conn, message)
}
