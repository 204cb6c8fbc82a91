package dns

import "encoding/binary"

// Query is the parts of a query that a server needs. Read can reuse it for many messages,
// and then makes no garbage. Its slices are valid until the next Read.
type Query struct {
	ID               uint16
	Response         bool
	Opcode           Opcode
	RecursionDesired bool
	// The question, if there is exactly one and it could be read.
	HasQuestion bool
	Asked       []byte // its name in the client's letter case, in wire form
	Name        []byte // the same with letters in lower case
	Type        Type
	Class       Class
	EDNS        EDNS
	HasEDNS     bool
	// UnknownKey is the TSIG record of the answer if Signed is set, because the server holds no key.
	UnknownKey RR
	Signed     bool

	asked, name [maxName]byte
}

// Read reads one whole message. With ErrFormat it still reads the parts that an answer
// needs, unless the message is shorter than a header.
func (q *Query) Read(data []byte) error {
	if q.readPlain(data) {
		return nil
	}
	m, err := ParseMessage(data)
	q.readHeader(m)
	if len(data) >= HeaderSize && binary.BigEndian.Uint16(data[4:]) == 1 && len(m.Questions) == 1 {
		asked := m.Questions[0]
		q.setQuestion([]byte(asked.Name), asked.Type, asked.Class)
	}
	var ednsErr, tsigErr error
	q.EDNS, q.HasEDNS, ednsErr = m.EDNS()
	q.UnknownKey, q.Signed, tsigErr = m.RefuseKey()
	if err != nil || ednsErr != nil || tsigErr != nil {
		return ErrFormat
	}
	return nil
}

func (q *Query) readHeader(m Message) {
	q.ID, q.Response, q.Opcode, q.RecursionDesired = m.ID, m.Response, m.Opcode, m.RecursionDesired
	q.HasQuestion, q.Asked, q.Name, q.Type, q.Class = false, nil, nil, 0, 0
	q.EDNS, q.HasEDNS, q.UnknownKey, q.Signed = EDNS{}, false, RR{}, false
}

func (q *Query) setQuestion(name []byte, t Type, c Class) {
	q.HasQuestion, q.Type, q.Class = true, t, c
	q.Asked = q.asked[:copy(q.asked[:], name)]
	q.Name = q.name[:len(name)]
	for i, octet := range name {
		if 'A' <= octet && octet <= 'Z' {
			octet += 'a' - 'A'
		}
		q.Name[i] = octet
	}
}

// The counts of a message with one question and at most one additional record.
const (
	plainCounts = 1 << 48
	plainMask   = 1<<64 - 2
)

// optSize is the size of an OPT record without options, in octets.
const optSize = 11

// readPlain reads a query of the usual form: one question without compression, and at most
// an OPT record. It reports false for any other message.
func (q *Query) readPlain(data []byte) bool {
	if len(data) < HeaderSize || binary.BigEndian.Uint64(data[4:])&plainMask != plainCounts {
		return false
	}
	end := HeaderSize
	for end < len(data) && 0 < data[end] && data[end] <= maxLabel {
		end += 1 + int(data[end])
	}
	if end >= len(data) || data[end] != 0 || end-HeaderSize >= maxName || len(data)-end < 5 {
		return false
	}
	header, _ := ParseHeader(data)
	q.readHeader(header)
	rest := data[end+5:]
	if data[11] == 1 && !q.readOPT(rest) || data[11] == 0 && len(rest) > 0 {
		return false
	}
	q.setQuestion(data[HeaderSize:end+1], Type(binary.BigEndian.Uint16(data[end+1:])), Class(binary.BigEndian.Uint16(data[end+3:])))
	return true
}

// readOPT reads an OPT record. It reports false if data is anything else.
func (q *Query) readOPT(data []byte) bool {
	if len(data) < optSize || data[0] != 0 || Type(binary.BigEndian.Uint16(data[1:])) != TypeOPT {
		return false
	}
	options := data[optSize:]
	if int(binary.BigEndian.Uint16(data[9:])) != len(options) || !wholeOptions(options) {
		return false
	}
	opt := RR{Class: Class(binary.BigEndian.Uint16(data[3:])), TTL: binary.BigEndian.Uint32(data[5:]), Data: options}
	q.EDNS, q.HasEDNS = opt.edns(), true
	return true
}
