// Package dns has the names and the messages of DNS (RFC 1035) for an authoritative server and a dynamic
// update client: names in text and in wire form, questions, resource records, EDNS(0) (RFC 6891),
// TSIG (RFC 8945) and TXT data.
//
// Parsing accepts any bytes. It allocates memory in proportion to the message, follows
// compression pointers only backwards, and returns ErrFormat for everything except one
// whole message.
package dns

import (
	"encoding/binary"
	"fmt"
	"slices"

	"meshddns/internal/msg"
)

// Type is the type of a resource record, or of a question.
type Type uint16

// The types that this program uses (IANA, "Domain Name System (DNS) Parameters").
const (
	TypeA     Type = 1   // RFC 1035, section 3.4.1
	TypeNS    Type = 2   // RFC 1035, section 3.3.11
	TypeCNAME Type = 5   // RFC 1035, section 3.3.1
	TypeSOA   Type = 6   // RFC 1035, section 3.3.13
	TypePTR   Type = 12  // RFC 1035, section 3.3.12
	TypeHINFO Type = 13  // RFC 1035, section 3.3.2
	TypeTXT   Type = 16  // RFC 1035, section 3.3.14
	TypeAAAA  Type = 28  // RFC 3596
	TypeSRV   Type = 33  // RFC 2782
	TypeDNAME Type = 39  // RFC 6672
	TypeOPT   Type = 41  // RFC 6891
	TypeDS    Type = 43  // RFC 4034, section 5
	TypeTKEY  Type = 249 // RFC 2930
	TypeTSIG  Type = 250 // RFC 8945
	TypeIXFR  Type = 251 // RFC 1995
	TypeAXFR  Type = 252 // RFC 5936
	TypeMAILB Type = 253 // RFC 1035, section 3.2.3
	TypeMAILA Type = 254 // RFC 1035, section 3.2.3
	TypeANY   Type = 255 // RFC 1035, section 3.2.3, "*"
	TypeCAA   Type = 257 // RFC 8659
)

// Class is the class of a record. NONE and ANY have special meanings in a dynamic update
// (RFC 2136, section 2.4).
type Class uint16

// Classes of records and questions.
const (
	ClassIN   Class = 1   // RFC 1035, section 3.2.4
	ClassNONE Class = 254 // RFC 2136, section 1.3
	ClassANY  Class = 255 // RFC 1035, section 3.2.5, "*"
)

// Opcode is the kind of a query.
type Opcode uint8

// Kinds of queries.
const (
	OpcodeQuery  Opcode = 0 // RFC 1035, section 4.1.1
	OpcodeNotify Opcode = 4 // RFC 1996
	OpcodeUpdate Opcode = 5 // RFC 2136, section 1.3
)

// Rcode is the outcome of a query. Rcodes above 15 need EDNS or TSIG.
type Rcode uint16

// Outcomes of a query.
const (
	RcodeSuccess   Rcode = 0  // RFC 1035, section 4.1.1
	RcodeFormErr   Rcode = 1  // RFC 1035, section 4.1.1
	RcodeServFail  Rcode = 2  // RFC 1035, section 4.1.1
	RcodeNXDomain  Rcode = 3  // RFC 1035, section 4.1.1, "name error"
	RcodeNotImp    Rcode = 4  // RFC 1035, section 4.1.1
	RcodeRefused   Rcode = 5  // RFC 1035, section 4.1.1
	RcodeYXDomain  Rcode = 6  // RFC 2136, section 2.2
	RcodeYXRRSet   Rcode = 7  // RFC 2136, section 2.2
	RcodeNXRRSet   Rcode = 8  // RFC 2136, section 2.2
	RcodeNotAuth   Rcode = 9  // RFC 2136, section 2.2; RFC 8945 for TSIG
	RcodeNotZone   Rcode = 10 // RFC 2136, section 2.2
	RcodeBadVers   Rcode = 16 // RFC 6891, section 9: an extended rcode
	RcodeBadSig    Rcode = 16 // RFC 8945, section 3: a TSIG error
	RcodeBadKey    Rcode = 17 // RFC 8945, section 3
	RcodeBadTime   Rcode = 18 // RFC 8945, section 3
	RcodeBadTrunc  Rcode = 22 // RFC 8945, section 3
	RcodeBadCookie Rcode = 23 // RFC 7873, section 8
)

var rcodeNames = map[Rcode]string{
	0: "NOERROR", 1: "FORMERR", 2: "SERVFAIL", 3: "NXDOMAIN", 4: "NOTIMP", 5: "REFUSED", 6: "YXDOMAIN",
	7: "YXRRSET", 8: "NXRRSET", 9: "NOTAUTH", 10: "NOTZONE", 16: "BADSIG", 17: "BADKEY", 18: "BADTIME", 22: "BADTRUNC", 23: "BADCOOKIE",
}

// String returns the mnemonic. 16 is the TSIG error BADSIG.
func (r Rcode) String() string {
	if name, ok := rcodeNames[r]; ok {
		return name
	}
	return fmt.Sprintf("RCODE%d", uint16(r))
}

// Question is one entry of the question section. In an update it is the zone.
type Question struct {
	Name  Name
	Type  Type
	Class Class
}

// RR is a resource record. TTL is in seconds. Data is the RDATA without compression: Parse
// expands names in the data of NS, CNAME, PTR, DNAME, SOA and SRV records.
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

// HeaderSize is the size of the header of every message, in octets.
const HeaderSize = 12

// MaxMessage is the size of the largest message, in octets: TCP frames it with 16 bits.
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

// ParseHeader reads only the header. It is enough to answer a message that Parse refuses.
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

// ParseMessage reads one whole message. With ErrFormat it still returns the header fields and the
// questions that it could read.
func ParseMessage(data []byte) (Message, error) {
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

// reader reads a message from front to back. After the first fault it returns zero values.
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

// maxPointers bounds the compression pointers of a name: one for each label. Without it, a
// message of pointers to pointers would take time that grows with the square of its length.
const maxPointers = maxName / 2

// name reads a name. Each compression pointer must point before the target of the one
// before, so reading ends.
func (r *reader) name() Name {
	var wire []byte
	at, limit, after := r.at, r.at, -1 // after: the offset behind the first pointer, where the record goes on
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
	// The data must end exactly at its length, even if names in it are expanded.
	end := r.at + length
	inner := reader{data: r.data[:end], at: r.at}
	rr.Data = inner.rdata(rr.Type, length)
	r.failed = inner.failed || inner.at != end
	r.at = end
	return rr
}

func (r *reader) rdata(t Type, length int) []byte {
	if length == 0 { // a prerequisite or a deletion has no data (RFC 2136, section 2.4)
		return nil
	}
	switch t {
	case TypeNS, TypeCNAME, TypePTR, TypeDNAME:
		return []byte(r.name())
	case TypeSOA:
		return append([]byte(r.name()+r.name()), r.bytes(20)...)
	case TypeSRV: // some servers compress the target, which RFC 2782 forbids
		return append(slices.Clone(r.bytes(6)), r.name()...)
	}
	return append([]byte(nil), r.bytes(length)...)
}

// Pack returns the message in wire form. It writes an owner name that is the end of the
// first question's name as a pointer to it, which also gives the owner name the letter case
// of the question. It compresses no other name.
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

// AppendRR appends a record without compression.
func AppendRR(data []byte, rr RR) []byte { return (&Message{}).appendRR(data, rr) }

// ParseRRs returns records that AppendRR has appended to each other. An error is ErrFormat.
func ParseRRs(data []byte) (all []RR, err error) {
	r := reader{data: data}
	for r.at < len(data) && !r.failed {
		all = append(all, r.rr())
	}
	if r.failed {
		return nil, ErrFormat
	}
	return all, nil
}

// inQuestion returns the offset in the first question's name from which on it equals the given name.
func (m *Message) inQuestion(name Name) (offset int, ok bool) {
	if len(m.Questions) == 0 || name == Root {
		return 0, false
	}
	q := m.Questions[0].Name
	return len(q) - len(name), q.Within(name)
}

// SOA is the data of an SOA record (RFC 1035, section 3.3.13). The times are in seconds.
type SOA struct {
	MName, RName                            Name
	Serial, Refresh, Retry, Expire, Minimum uint32
}

// Data returns the RDATA.
func (s SOA) Data() []byte {
	data := []byte(s.MName + s.RName)
	for _, n := range []uint32{s.Serial, s.Refresh, s.Retry, s.Expire, s.Minimum} {
		data = binary.BigEndian.AppendUint32(data, n)
	}
	return data
}

// ParseSOA returns the data of an SOA record. An error is ErrFormat.
func ParseSOA(rr RR) (SOA, error) {
	r := reader{data: rr.Data}
	s := SOA{MName: r.name(), RName: r.name(), Serial: r.uint32(), Refresh: r.uint32(), Retry: r.uint32(), Expire: r.uint32(), Minimum: r.uint32()}
	if rr.Type != TypeSOA || r.failed || r.at != len(rr.Data) {
		return SOA{}, ErrFormat
	}
	return s, nil
}

// SRVData is the data of an SRV record (RFC 2782).
type SRVData struct {
	Priority, Weight, Port uint16
	Target                 Name
}

// ParseSRV returns the data of an SRV record without compression. An error is ErrFormat.
func ParseSRV(data []byte) (SRVData, error) {
	r := reader{data: data}
	s := SRVData{Priority: r.uint16(), Weight: r.uint16(), Port: r.uint16(), Target: r.name()}
	if r.failed || r.at != len(data) {
		return SRVData{}, ErrFormat
	}
	return s, nil
}

// TXTData returns the RDATA of a TXT record. Each string becomes one character-string, and
// must have at most 255 octets.
func TXTData(strings []string) []byte {
	var data []byte
	for _, s := range strings {
		data = append(append(data, byte(len(s))), s...)
	}
	return data
}

// ParseTXT returns the character-strings of a TXT record's RDATA. An error is ErrFormat.
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

// ParseCAA returns the flags (an octet), the folded tag and the value of a CAA record (RFC 8659, section 4.1). An error is ErrFormat.
func ParseCAA(data []byte) ([]string, error) {
	if len(data) < 2 || data[1] == 0 || len(data)-2 < int(data[1]) {
		return nil, ErrFormat
	}
	end := 2 + int(data[1])
	return []string{string(data[:1]), foldASCII(string(data[2:end])), string(data[end:])}, nil
}

// EDNS is the content of an OPT pseudo-record (RFC 6891).
type EDNS struct {
	UDPSize  uint16 // the largest UDP message that the sender accepts, in octets
	Extended uint8  // the upper eight bits of the rcode
	Version  uint8
	DO       bool   // DNSSEC OK (RFC 3225)
	Options  []byte // each option is a code, a length and as many octets
}

const flagDO = 1 << 15

// RR returns the OPT record.
func (e EDNS) RR() RR {
	ttl := uint32(e.Extended)<<24 | uint32(e.Version)<<16
	if e.DO {
		ttl |= flagDO
	}
	return RR{Name: Root, Type: TypeOPT, Class: Class(e.UDPSize), TTL: ttl, Data: e.Options}
}

// EDNS returns the content of the message's OPT record, and whether it has one. ErrFormat
// means more than one OPT record, one with another owner than the root, one outside the
// additional section, or broken options.
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

// find returns the records of a type in all sections, and whether the first of them is in
// the additional section.
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

// wholeOptions reports whether an OPT record's data is a list of options: each is a code, a
// length and as many octets (RFC 6891, section 6.1.2).
func wholeOptions(data []byte) bool {
	r := reader{data: data}
	for r.at < len(data) && !r.failed {
		r.uint16()
		r.bytes(int(r.uint16()))
	}
	return !r.failed
}
