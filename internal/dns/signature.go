package dns

import (
	"crypto/hmac"
	"encoding/binary"
	"time"
)

// Signature is the TSIG record of a request, as a server sees it (RFC 8945, section 5.2). Its answer
// is signed with Sign.
type Signature struct {
	Key   Name  // name of the key
	Error Rcode // RcodeSuccess if the request comes from the holder of the key, else the TSIG error

	key      Key
	request  tsig
	previous []byte // MAC of the request, then of the last message of the answer
	later    bool   // a message of the answer is signed
}

// minMAC is the smallest MAC that a request may have, in octets (RFC 8945, section 5.2.2.1).
const minMAC = 10

// CheckSignature checks the TSIG record of a request, nil if it has none. find returns the key with a
// name, which has letters in lower case. ErrFormat means that the record is broken, or not the last one.
func CheckSignature(request []byte, find func(Name) (Key, bool), now time.Time) (*Signature, error) {
	m, err := ParseMessage(request)
	if err != nil {
		return nil, ErrFormat
	}
	if _, signed, err := m.RefuseKey(); err != nil || !signed {
		return nil, err
	}
	rr, start, err := lastTSIG(request)
	if err != nil {
		return nil, ErrFormat
	}
	algorithm, t, err := parseTSIG(rr.Data)
	if err != nil {
		return nil, err
	}
	s := &Signature{Key: rr.Name.Fold(), Error: RcodeBadKey, key: Key{Name: rr.Name, algorithm: algorithm}, request: t}
	key, ok := find(s.Key)
	if !ok || key.algorithm != algorithm.Fold() {
		return s, nil
	}
	want := (&Stream{key: key}).sum(request[:start], t)
	if len(t.mac) > len(want) || len(t.mac) < max(minMAC, len(want)/2) {
		return nil, ErrFormat
	}
	s.key, s.Error = key, RcodeBadSig
	if !hmac.Equal(t.mac, want[:len(t.mac)]) {
		return s, nil
	}
	s.previous, s.Error = t.mac, RcodeBadTrunc
	if len(t.mac) < len(want) {
		return s, nil
	}
	if s.Error = RcodeSuccess; !t.timely(now) {
		s.Error = RcodeBadTime
	}
	return s, nil
}

// Size returns the octets that Sign adds to a message at most.
func (s *Signature) Size() int {
	mac, other := 0, 0
	if s.previous != nil {
		mac = s.key.hash().Size()
	}
	if s.Error == RcodeBadTime {
		other = timeSize
	}
	return len(s.key.Name) + 10 + len(s.key.algorithm) + 16 + mac + other
}

// Sign returns a packed message of the answer with its TSIG record. The MAC of a later message covers
// the one before (RFC 8945, section 5.3.1). An answer to a key that is not known, or to a wrong MAC, is
// not signed (section 5.3.2).
func (s *Signature) Sign(message []byte, now time.Time) []byte {
	t := tsig{time: uint64(now.Unix()), fudge: uint16(tsigFudge / time.Second), originalID: s.request.originalID, error: s.Error}
	if s.Error == RcodeBadTime {
		t.time, t.other = s.request.time, binary.BigEndian.AppendUint64(nil, uint64(now.Unix()))[8-timeSize:]
	}
	if s.previous != nil {
		variables := s.key.variables(t)
		if s.later {
			variables = appendTime(nil, t)
		}
		h := s.key.digest(s.previous)
		h.Write(message)
		h.Write(variables)
		t.mac = h.Sum(nil)
		s.previous, s.later = t.mac, true
	}
	return s.key.seal(message, t)
}

// timeSize is the size of the server's time in a BADTIME error, in octets.
const timeSize = 6
