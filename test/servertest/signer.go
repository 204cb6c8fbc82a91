package servertest

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"slices"
	"time"

	"meshddns/internal/dns"
)

// Signer signs the messages of an answer as RFC 8945, section 5.3.1, says,
// with Key.
type Signer struct {
	pending []byte // what the next MAC covers before the message
	first   bool
}

// NewSigner makes one for the answer to a request with a MAC.
func NewSigner(requestMAC []byte) *Signer {
	return &Signer{pending: lengthened(requestMAC), first: true}
}

func lengthened(mac []byte) []byte {
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(mac))), mac...)
}

// Next gives the next message, with a signature or only covered by the one that follows.
func (s *Signer) Next(message []byte, signed bool) []byte {
	s.pending = append(s.pending, message...)
	if !signed {
		return message
	}
	const key, algorithm = "\x08mesh-key\x00", "\x0bhmac-sha256\x00"
	timers := binary.BigEndian.AppendUint64(nil, uint64(time.Now().Unix()))[2:]
	timers = binary.BigEndian.AppendUint16(timers, 300)
	covered := append(s.pending, timers...)
	if s.first {
		covered = slices.Concat(s.pending, []byte(key+"\x00\xff\x00\x00\x00\x00"+algorithm), timers, make([]byte, 4))
	}
	secret, _ := base64.StdEncoding.DecodeString(Secret)
	h := hmac.New(sha256.New, secret)
	h.Write(covered)
	mac := h.Sum(nil)
	s.pending, s.first = lengthened(mac), false
	data := slices.Concat([]byte(algorithm), timers, lengthened(mac), message[:2], make([]byte, 4))
	record := slices.Concat([]byte(key+"\x00\xfa\x00\xff\x00\x00\x00\x00"), binary.BigEndian.AppendUint16(nil, uint16(len(data))), data)
	message = append(slices.Clone(message), record...)
	binary.BigEndian.PutUint16(message[10:], binary.BigEndian.Uint16(message[10:])+1)
	return message
}

// Fails is an answer that only says that a request has failed, signed or not.
func Fails(rcode dns.Rcode, signed bool) func(request dns.Message, answer []byte) []byte {
	return func(request dns.Message, _ []byte) []byte {
		m := dns.Message{ID: request.ID, Response: true, Opcode: request.Opcode, Rcode: rcode, Questions: request.Questions}
		if !signed {
			return m.Pack()
		}
		return NewSigner(macOf(request)).Next(m.Pack(), true)
	}
}

// macOf gives the MAC of a request (RFC 8945, section 4.2).
func macOf(m dns.Message) []byte {
	const before = len("\x0bhmac-sha256\x00") + 6 + 2 // algorithm, time, fudge
	data := m.Additional[len(m.Additional)-1].Data[before:]
	return data[2 : 2+binary.BigEndian.Uint16(data)]
}
