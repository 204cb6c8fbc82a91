package dns

import "encoding/binary"

// Packer writes the answer to a query into a buffer, record by record. It compresses owner
// names, and names in the data of NS and SOA records, against the question's name (RFC
// 1035, section 4.1.4). RFC 3597, section 4, forbids that in the data of newer types.
type Packer struct {
	buffer   []byte
	start    int // offset of the message in buffer
	question []byte
	record   int // offset of the length of the open record's data
}

// Section is one of the three sections with records.
type Section int

// Sections of a message.
const (
	SectionAnswer     Section = iota // RFC 1035, section 4.1
	SectionAuthority                 // RFC 1035, section 4.1
	SectionAdditional                // RFC 1035, section 4.1
)

// Begin appends the header of the answer and the question to a buffer, and writes to that
// buffer from now on.
func (p *Packer) Begin(buffer []byte, q *Query) {
	p.start, p.question = len(buffer), q.Name
	header := Message{ID: q.ID, Response: true, Opcode: q.Opcode, RecursionDesired: q.RecursionDesired}
	var fixed [HeaderSize]byte
	binary.BigEndian.PutUint16(fixed[:], header.ID)
	binary.BigEndian.PutUint16(fixed[2:], header.flags())
	p.buffer = append(buffer, fixed[:]...)
	if q.HasQuestion {
		p.buffer[p.start+5] = 1
		p.buffer = append(p.buffer, q.Asked...)
		p.uint16(uint16(q.Type))
		p.uint16(uint16(q.Class))
	}
}

// Flags sets the parts of the header that are known at the end.
func (p *Packer) Flags(authoritative, truncated bool, rcode Rcode) {
	m := Message{Authoritative: authoritative, Truncated: truncated, Rcode: rcode & 15}
	at := p.buffer[p.start+2:]
	binary.BigEndian.PutUint16(at, binary.BigEndian.Uint16(at)|m.flags())
}

// Len returns the length of the message so far, in octets.
func (p *Packer) Len() int { return len(p.buffer) - p.start }

// Bytes returns the buffer, with the message at its end.
func (p *Packer) Bytes() []byte { return p.buffer }

// Mark is a position in a message, to which Cut can cut the message.
type Mark struct {
	length int
	counts uint64
}

// Mark returns the present position.
func (p *Packer) Mark() Mark {
	return Mark{length: len(p.buffer), counts: binary.BigEndian.Uint64(p.buffer[p.start+4:])}
}

// Cut removes all records after a mark.
func (p *Packer) Cut(m Mark) {
	p.buffer = p.buffer[:m.length]
	binary.BigEndian.PutUint64(p.buffer[p.start+4:], m.counts)
}

// Record appends a record. It does not compress names in the data.
func (p *Packer) Record(s Section, rr RR) {
	p.begin(s, rr.Name, rr.Type, rr.Class, rr.TTL)
	p.buffer = append(p.buffer, rr.Data...)
	p.end()
}

// Answer appends a record of the question's name to the answer section.
func (p *Packer) Answer(t Type, ttl uint32, data []byte) {
	p.beginHere(0, SectionAnswer, t, ClassIN, ttl)
	p.buffer = append(p.buffer, data...)
	p.end()
}

// NS appends an NS record of the question's name to the answer section.
func (p *Packer) NS(host Name, ttl uint32) {
	p.beginHere(0, SectionAnswer, TypeNS, ClassIN, ttl)
	p.name(host)
	p.end()
}

// SOA appends the SOA record of the zone whose apex begins at the given octet of the
// question's name.
func (p *Packer) SOA(s Section, apex int, ttl uint32, soa SOA) {
	p.beginHere(apex, s, TypeSOA, ClassIN, ttl)
	p.name(soa.MName)
	p.name(soa.RName)
	for _, n := range [...]uint32{soa.Serial, soa.Refresh, soa.Retry, soa.Expire, soa.Minimum} {
		p.buffer = binary.BigEndian.AppendUint32(p.buffer, n)
	}
	p.end()
}

func (p *Packer) uint16(n uint16) { p.buffer = binary.BigEndian.AppendUint16(p.buffer, n) }

func (p *Packer) begin(s Section, owner Name, t Type, c Class, ttl uint32) {
	p.name(owner)
	p.fixed(s, t, c, ttl)
}

// beginHere begins a record whose owner begins at the given octet of the question's name.
func (p *Packer) beginHere(at int, s Section, t Type, c Class, ttl uint32) {
	p.pointTo(at)
	p.fixed(s, t, c, ttl)
}

func (p *Packer) fixed(s Section, t Type, c Class, ttl uint32) {
	count := p.buffer[p.start+6+2*int(s):]
	binary.BigEndian.PutUint16(count, binary.BigEndian.Uint16(count)+1)
	p.uint16(uint16(t))
	p.uint16(uint16(c))
	p.buffer = binary.BigEndian.AppendUint32(p.buffer, ttl)
	p.record = len(p.buffer)
	p.uint16(0)
}

func (p *Packer) end() {
	binary.BigEndian.PutUint16(p.buffer[p.record:], uint16(len(p.buffer)-p.record-2))
}

// name appends a name, whose letters are in lower case. The part at its end that the
// question's name ends in too becomes a pointer.
func (p *Packer) name(n Name) {
	for len(n) > 1 {
		if at, ok := p.inQuestion(n); ok {
			p.pointTo(at)
			return
		}
		label := 1 + int(n[0])
		p.buffer = append(p.buffer, n[:label]...)
		n = n[label:]
	}
	p.buffer = append(p.buffer, 0)
}

// pointTo appends a pointer to the given octet of the question's name.
func (p *Packer) pointTo(at int) {
	if at >= len(p.question)-1 {
		p.buffer = append(p.buffer, 0) // the root is shorter than a pointer to it
		return
	}
	p.uint16(uint16(0xC000 | (HeaderSize + at)))
}

// inQuestion returns the octet of the question's name from which on it equals a name.
func (p *Packer) inQuestion(n Name) (at int, ok bool) {
	at = len(p.question) - len(n)
	if at < 0 || string(p.question[at:]) != string(n) {
		return 0, false
	}
	label := 0
	for label < at {
		label += 1 + int(p.question[label])
	}
	return at, label == at // else the name begins within a label of the question's name
}
