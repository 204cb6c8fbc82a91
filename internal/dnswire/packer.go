package dnswire

import "encoding/binary"

// Packer writes the answer to a query into a buffer, record by record. Owner
// names, and names in the data of NS and SOA records, are compressed against the
// question's name (RFC 1035, section 4.1.4); no other type's data may be (RFC
// 3597, section 4).
type Packer struct {
	buffer   []byte
	start    int // of the message in buffer
	question []byte
	record   int // where the length of the open record's data stands
}

// Section is one of the three that records stand in.
type Section int

const (
	SectionAnswer Section = iota
	SectionAuthority
	SectionAdditional
)

// Begin appends a header and the question to a buffer.
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

// Flags sets what is known at the end.
func (p *Packer) Flags(authoritative, truncated bool, rcode Rcode) {
	m := Message{Authoritative: authoritative, Truncated: truncated, Rcode: rcode & 15}
	at := p.buffer[p.start+2:]
	binary.BigEndian.PutUint16(at, binary.BigEndian.Uint16(at)|m.flags())
}

// Len gives the octets of the message so far.
func (p *Packer) Len() int { return len(p.buffer) - p.start }

// Bytes gives the buffer, with the message at its end.
func (p *Packer) Bytes() []byte { return p.buffer }

// Mark is a point of a message that it can be cut to.
type Mark struct {
	length int
	counts uint64
}

// Mark gives the point that is reached.
func (p *Packer) Mark() Mark {
	return Mark{length: len(p.buffer), counts: binary.BigEndian.Uint64(p.buffer[p.start+4:])}
}

// Cut takes all away that came after a mark.
func (p *Packer) Cut(m Mark) {
	p.buffer = p.buffer[:m.length]
	binary.BigEndian.PutUint64(p.buffer[p.start+4:], m.counts)
}

// Record appends a record with data that holds no compressed name.
func (p *Packer) Record(s Section, rr RR) {
	p.begin(s, rr.Name, rr.Type, rr.Class, rr.TTL)
	p.buffer = append(p.buffer, rr.Data...)
	p.end()
}

// Answer appends a record of the name that was asked for.
func (p *Packer) Answer(t Type, ttl uint32, data []byte) {
	p.beginHere(0, SectionAnswer, t, ClassIN, ttl)
	p.buffer = append(p.buffer, data...)
	p.end()
}

// NS appends a name server of the name that was asked for.
func (p *Packer) NS(host Name, ttl uint32) {
	p.beginHere(0, SectionAnswer, TypeNS, ClassIN, ttl)
	p.name(host)
	p.end()
}

// SOA appends the start of authority of the zone that begins at an octet of the
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

// beginHere begins a record whose owner begins at an octet of the question's name.
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

// name appends a name, letters in lower case: what it ends in that the
// question's name ends in too is a pointer.
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

// pointTo refers to the question's name from one of its octets on.
func (p *Packer) pointTo(at int) {
	if at >= len(p.question)-1 {
		p.buffer = append(p.buffer, 0) // the root is shorter than a pointer to it
		return
	}
	p.uint16(uint16(0xC000 | (HeaderSize + at)))
}

// inQuestion says at which octet of the question's name a name is its end.
func (p *Packer) inQuestion(n Name) (at int, ok bool) {
	at = len(p.question) - len(n)
	if at < 0 || string(p.question[at:]) != string(n) {
		return 0, false
	}
	label := 0
	for label < at {
		label += 1 + int(p.question[label])
	}
	return at, label == at // else it lies across the borders of labels
}
