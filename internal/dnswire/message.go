// Package dnswire reads and writes DNS messages (RFC 1035), as far as an
// authoritative server and a dynamic update client need them: questions,
// resource records, EDNS(0) (RFC 6891), TSIG (RFC 8945) and TXT data.
//
// Parsing takes any bytes: it allocates no more than the message justifies,
// follows compression pointers only backwards, and returns ErrFormat for
// everything that is not one whole message.
package dnswire

import (
	"encoding/binary"
	"fmt"

	"meshddns/internal/msg"
)

// Type is the type of a resource record, or of a question.
type Type uint16

// The types that are used here (IANA, "Domain Name System (DNS) Parameters").
const (
	TypeA     Type = 1
	TypeNS    Type = 2
	TypeCNAME Type = 5
	TypeSOA   Type = 6
	TypePTR   Type = 12
	TypeHINFO Type = 13
	TypeTXT   Type = 16
	TypeAAAA  Type = 28
	TypeDNAME Type = 39
	TypeOPT   Type = 41
	TypeDS    Type = 43
	TypeTKEY  Type = 249
	TypeTSIG  Type = 250
	TypeIXFR  Type = 251
	TypeAXFR  Type = 252
	TypeMAILB Type = 253
	TypeMAILA Type = 254
	TypeANY   Type = 255
)

// Class is the class of a record; NONE and ANY have meanings of their own in
// a dynamic update (RFC 2136, section 2.4).
type Class uint16

const (
	ClassIN   Class = 1
	ClassNONE Class = 254
	ClassANY  Class = 255
)

// Opcode is the kind of a query.
type Opcode uint8

const (
	OpcodeQuery  Opcode = 0
	OpcodeUpdate Opcode = 5
)

// Rcode is the outcome of a query; those above 15 need EDNS or TSIG.
type Rcode uint16

const (
	RcodeSuccess   Rcode = 0
	RcodeFormErr   Rcode = 1
	RcodeServFail  Rcode = 2
	RcodeNXDomain  Rcode = 3
	RcodeNotImp    Rcode = 4
	RcodeRefused   Rcode = 5
	RcodeYXDomain  Rcode = 6
	RcodeYXRRSet   Rcode = 7
	RcodeNXRRSet   Rcode = 8
	RcodeNotAuth   Rcode = 9
	RcodeNotZone   Rcode = 10
	RcodeBadVers   Rcode = 16 // as an extended rcode, RFC 6891
	RcodeBadSig    Rcode = 16 // as a TSIG error, RFC 8945
	RcodeBadKey    Rcode = 17
	RcodeBadTime   Rcode = 18
	RcodeBadTrunc  Rcode = 22
	RcodeBadCookie Rcode = 23 // RFC 7873
)

var rcodeNames = map[Rcode]string{
	0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED", 6: "YXDOMAIN",
	7: "YXRRSET", 8: "NXRRSET", 9: "NOTAUTH", 10: "NOTZONE", 16: "BADSIG", 17: "BADKEY", 18: "BADTIME", 22: "BADTRUNC", 23: "BADCOOKIE",
}

// String gives the mnemonic. Sixteen reads as the TSIG error BADSIG.
func (r Rcode) String() string {
	if name, ok := rcodeNames[r]; ok {
		return name
	}
	return fmt.Sprintf("RCODE%d", uint16(r))
}

// Question is one entry of the question section, in an update the zone.
type Question struct {
	Name  Name
	Type  Type
	Class Class
}

// RR is a resource record. Data is the RDATA without compression: names in
// the data of NS, CNAME, PTR, DNAME and SOA records are expanded by Parse.
type RR struct {
	Name  Name
	Type  Type
	Class Class
	TTL   uint32
	Data  []byte
}

// Message is a DNS message. In a dynamic update the sections hold the
// prerequisites, the updates and the additional data (RFC 2136, section 2).
type Message struct {
	ID                 uint16
	Response           bool
	Opcode             Opcode
	Authoritative      bool
	Truncated          bool
	RecursionDesired   bool
	RecursionAvailable bool
	Rcode              Rcode // the header's four bits
	Questions          []Question
	Answers            []RR
	Authority          []RR
	Additional         []RR
}

// HeaderSize is the size of the fixed part that begins every message.
const HeaderSize = 12

// MaxMessage is the largest message: TCP frames it with 16 bits.
const MaxMessage = 65535

// ErrFormat is the error for bytes that are not one whole DNS message.
var ErrFormat = msg.Errorf("malformed DNS message")

const (
	flagResponse           = 1 << 15
	flagAuthoritative      = 1 << 10
	flagTruncated          = 1 << 9
	flagRecursionDesired   = 1 << 8
	flagRecursionAvailable = 1 << 7
)

// ParseHeader reads the fixed part only: enough to tell whether and how a
// message that Parse refuses can be answered.
func ParseHeader(data []byte) (Message, error) {
	if len(data) < HeaderSize {
		return Message{}, ErrFormat
	}
	flags := binary.BigEndian.Uint16(data[2:])
	return Message{
		ID:                 binary.BigEndian.Uint16(data),
		Response:           flags&flagResponse != 0,
		Opcode:             Opcode(flags >> 11 & 15),
		Authoritative:      flags&flagAuthoritative != 0,
		Truncated:          flags&flagTruncated != 0,
		RecursionDesired:   flags&flagRecursionDesired != 0,
		RecursionAvailable: flags&flagRecursionAvailable != 0,
		Rcode:              Rcode(flags & 15),
	}, nil
}

// Parse reads one whole message. On ErrFormat the header fields, and the
// questions as far as they were readable, are filled in.
func Parse(data []byte) (Message, error) {
	m, err := ParseHeader(data)
	if err != nil {
		return m, err
	}
	r := reader{data: data, at: HeaderSize}
	for range binary.BigEndian.Uint16(data[4:]) {
		q := Question{Name: r.name(), Type: Type(r.uint16()), Class: Class(r.uint16())}
		if r.failed {
			return m, ErrFormat
		}
		m.Questions = append(m.Questions, q)
	}
	for i, section := range []*[]RR{&m.Answers, &m.Authority, &m.Additional} {
		for range binary.BigEndian.Uint16(data[6+2*i:]) {
			rr := r.rr()
			if r.failed {
				return m, ErrFormat
			}
			*section = append(*section, rr)
		}
	}
	if r.at != len(data) {
		return m, ErrFormat
	}
	return m, nil
}

// reader walks over a message; the first fault makes all that follows zero.
type reader struct {
	data   []byte
	at     int
	failed bool
}

func (r *reader) bytes(n int) []byte {
	if r.failed || n > len(r.data)-r.at {
		r.failed = true
		return nil
	}
	r.at += n
	return r.data[r.at-n : r.at]
}

func (r *reader) uint16() uint16 {
	if b := r.bytes(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (r *reader) uint32() uint32 {
	if b := r.bytes(4); b != nil {
		return binary.BigEndian.Uint32(b)
	}
	return 0
}

func (r *reader) uint48() uint64 {
	return uint64(r.uint16())<<32 | uint64(r.uint32())
}

// maxPointers is how many compression pointers a name can use: one a label.
// Without it a message of nothing but pointers to pointers takes time that
// grows with the square of its length.
const maxPointers = maxName / 2

// name reads a name. Every compression pointer must lead to before the last
// one's target, so reading ends.
func (r *reader) name() Name {
	var wire []byte
	at, limit, after := r.at, r.at, -1 // after: where the name ends in place, once a pointer has left it
	pointers := 0
	for !r.failed && at < len(r.data) {
		length := int(r.data[at])
		end := at + 1 + length
		switch {
		case length == 0:
			r.at = at + 1
			if after >= 0 {
				r.at = after
			}
			return Name(wire) + Root
		case length <= maxLabel && end <= len(r.data) && len(wire)+1+length+1 <= maxName:
			wire = append(wire, r.data[at:end]...)
			at = end
		case length >= 0xC0 && at+1 < len(r.data):
			if after < 0 {
				after = at + 2
			}
			at = (length&0x3F)<<8 | int(r.data[at+1])
			pointers++
			r.failed = at >= limit || pointers > maxPointers
			limit = at
		default:
			r.failed = true
		}
	}
	r.failed = true
	return ""
}

func (r *reader) rr() RR {
	rr := RR{Name: r.name(), Type: Type(r.uint16()), Class: Class(r.uint16()), TTL: r.uint32()}
	length := int(r.uint16())
	if r.failed || length > len(r.data)-r.at {
		r.failed = true
		return rr
	}
	// The data must end where its length says, names expanded or not.
	end := r.at + length
	inner := reader{data: r.data[:end], at: r.at}
	rr.Data = inner.rdata(rr.Type, length)
	r.failed = inner.failed || inner.at != end
	r.at = end
	return rr
}

func (r *reader) rdata(t Type, length int) []byte {
	if length == 0 { // a prerequisite or a deletion has none (RFC 2136, section 2.4)
		return nil
	}
	switch t {
	case TypeNS, TypeCNAME, TypePTR, TypeDNAME:
		return []byte(r.name())
	case TypeSOA:
		return append([]byte(r.name()+r.name()), r.bytes(20)...)
	}
	return append([]byte(nil), r.bytes(length)...)
}

// Pack gives the message in wire form. An owner name that is the end of the
// first question's name is written as a pointer into it, which also gives it
// the letter case of the question; no other name is compressed.
func (m *Message) Pack() []byte {
	data := make([]byte, HeaderSize, 512)
	binary.BigEndian.PutUint16(data, m.ID)
	binary.BigEndian.PutUint16(data[2:], m.flags())
	for i, count := range []int{len(m.Questions), len(m.Answers), len(m.Authority), len(m.Additional)} {
		binary.BigEndian.PutUint16(data[4+2*i:], uint16(count))
	}
	for _, q := range m.Questions {
		data = append(data, q.Name...)
		data = binary.BigEndian.AppendUint16(data, uint16(q.Type))
		data = binary.BigEndian.AppendUint16(data, uint16(q.Class))
	}
	for _, section := range [][]RR{m.Answers, m.Authority, m.Additional} {
		for _, rr := range section {
			data = m.appendRR(data, rr)
		}
	}
	return data
}

func (m *Message) flags() uint16 {
	flags := uint16(m.Opcode&15)<<11 | uint16(m.Rcode&15)
	for _, f := range []struct {
		set bool
		bit uint16
	}{
		{m.Response, flagResponse},
		{m.Authoritative, flagAuthoritative},
		{m.Truncated, flagTruncated},
		{m.RecursionDesired, flagRecursionDesired},
		{m.RecursionAvailable, flagRecursionAvailable},
	} {
		if f.set {
			flags |= f.bit
		}
	}
	return flags
}

func (m *Message) appendRR(data []byte, rr RR) []byte {
	if offset, ok := m.inQuestion(rr.Name); ok {
		data = binary.BigEndian.AppendUint16(data, 0xC000|uint16(HeaderSize+offset))
	} else {
		data = append(data, rr.Name...)
	}
	data = binary.BigEndian.AppendUint16(data, uint16(rr.Type))
	data = binary.BigEndian.AppendUint16(data, uint16(rr.Class))
	data = binary.BigEndian.AppendUint32(data, rr.TTL)
	data = binary.BigEndian.AppendUint16(data, uint16(len(rr.Data)))
	return append(data, rr.Data...)
}

// inQuestion says where the first question's name ends in the given name.
func (m *Message) inQuestion(name Name) (offset int, ok bool) {
	if len(m.Questions) == 0 || name == Root {
		return 0, false
	}
	q := m.Questions[0].Name
	return len(q) - len(name), q.Within(name)
}

// SOA is the data of a start of authority (RFC 1035, section 3.3.13); the
// times are seconds.
type SOA struct {
	MName, RName                            Name
	Serial, Refresh, Retry, Expire, Minimum uint32
}

// Data gives the RDATA.
func (s SOA) Data() []byte {
	data := []byte(s.MName + s.RName)
	for _, n := range []uint32{s.Serial, s.Refresh, s.Retry, s.Expire, s.Minimum} {
		data = binary.BigEndian.AppendUint32(data, n)
	}
	return data
}

// TXTData gives the RDATA of a TXT record, each string being one
// character-string of at most 255 octets.
func TXTData(strings []string) []byte {
	var data []byte
	for _, s := range strings {
		data = append(append(data, byte(len(s))), s...)
	}
	return data
}

// ParseTXT gives the character-strings of a TXT record's RDATA.
func ParseTXT(data []byte) ([]string, error) {
	if len(data) == 0 {
		return nil, ErrFormat
	}
	var strings []string
	for len(data) > 0 {
		end := 1 + int(data[0])
		if end > len(data) {
			return nil, ErrFormat
		}
		strings = append(strings, string(data[1:end]))
		data = data[end:]
	}
	return strings, nil
}

// EDNS is what an OPT pseudo-record says (RFC 6891).
type EDNS struct {
	UDPSize  uint16 // the largest UDP message the sender takes
	Extended uint8  // the upper eight bits of the rcode
	Version  uint8
	DO       bool   // DNSSEC OK, RFC 3225
	Options  []byte // each a code, a length and as many octets
}

const flagDO = 1 << 15

// RR gives the OPT record.
func (e EDNS) RR() RR {
	ttl := uint32(e.Extended)<<24 | uint32(e.Version)<<16
	if e.DO {
		ttl |= flagDO
	}
	return RR{Name: Root, Type: TypeOPT, Class: Class(e.UDPSize), TTL: ttl, Data: e.Options}
}

// EDNS gives what the message's OPT record says, and whether it has one. More
// than one, one with another owner than the root or outside the additional
// section, and broken options are ErrFormat.
func (m *Message) EDNS() (EDNS, bool, error) {
	options, inAdditional := m.find(TypeOPT)
	if len(options) == 0 {
		return EDNS{}, false, nil
	}
	found := options[0]
	if len(options) > 1 || !inAdditional || found.Name != Root || !wholeOptions(found.Data) {
		return EDNS{}, true, ErrFormat
	}
	return found.edns(), true, nil
}

func (rr RR) edns() EDNS {
	return EDNS{
		UDPSize:  uint16(rr.Class),
		Extended: uint8(rr.TTL >> 24),
		Version:  uint8(rr.TTL >> 16),
		DO:       rr.TTL&flagDO != 0,
		Options:  rr.Data,
	}
}

// find gives the records of a type in all sections, and whether the first of
// them stands in the additional section.
func (m *Message) find(t Type) (found []RR, inAdditional bool) {
	for i, section := range [][]RR{m.Answers, m.Authority, m.Additional} {
		for _, rr := range section {
			if rr.Type != t {
				continue
			}
			if found == nil {
				inAdditional = i == 2
			}
			found = append(found, rr)
		}
	}
	return found, inAdditional
}

// wholeOptions reports whether an OPT record's data is a list of options,
// each a code, a length and as many octets (RFC 6891, section 6.1.2).
func wholeOptions(data []byte) bool {
	r := reader{data: data}
	for r.at < len(data) && !r.failed {
		r.uint16()
		r.bytes(int(r.uint16()))
	}
	return !r.failed
}
