package nameserver

import (
	"crypto/subtle"
	"encoding/binary"
	"math/bits"
	"net/netip"
	"time"

	"meshddns/internal/dns"
)

// EDNS options that the server answers (IANA, "DNS EDNS0 Option Codes").
const (
	optionNSID   = 3  // RFC 5001
	optionExpire = 9  // RFC 7314
	optionCookie = 10 // RFC 7873
)

// Sizes and times of cookies (RFC 7873, section 4; RFC 9018, section 4).
const (
	clientCookie    = 8
	minServerCookie = 8
	maxServerCookie = 32
	serverCookie    = 16 // this server's: version, three reserved octets, time, hash
	cookieVersion   = 1
	cookieAge       = time.Hour
	cookieAhead     = 5 * time.Minute // a server with the same secret may have a fast clock
)

// options are the EDNS options of a query that the server answers.
type options struct {
	cookie []byte // the client's cookie, perhaps with a server's; nil: none
	known  bool   // the server's cookie is this server's, so the client's address is not forged
	nsid   bool
	expire bool
}

// readOptions reads the options of EDNS version 0. A cookie of an invalid length is
// ErrFormat. Of several cookies the first counts (RFC 7873, section 5.2).
func (s *Server) readOptions(edns dns.EDNS, from asker) (o options, err error) {
	if edns.Version > 0 {
		return options{}, nil
	}
	for rest := edns.Options; len(rest) > 0; {
		end := 4 + int(binary.BigEndian.Uint16(rest[2:]))
		code, data := binary.BigEndian.Uint16(rest), rest[4:end]
		rest = rest[end:]
		switch {
		case code == optionNSID:
			o.nsid = s.nsid != ""
		case code == optionExpire:
			o.expire = s.versions != nil
		case code == optionCookie && o.cookie == nil:
			length := len(data) - clientCookie
			if length != 0 && (length < minServerCookie || length > maxServerCookie) {
				return options{}, dns.ErrFormat
			}
			o.cookie, o.known = data, s.knows(data, from)
		}
	}
	return o, nil
}

// knows reports whether this server gave the cookie to the client within cookieAge.
func (s *Server) knows(cookie []byte, from asker) bool {
	if len(cookie) != clientCookie+serverCookie || cookie[clientCookie] != cookieVersion {
		return false
	}
	made := binary.BigEndian.Uint32(cookie[clientCookie+4:])
	age := time.Duration(int32(uint32(from.at.Unix())-made)) * time.Second // RFC 1982, as RFC 9018 asks
	if age > cookieAge || age < -cookieAhead {
		return false
	}
	hashed := clientCookie + serverCookie - 8
	right := s.appendHash(make([]byte, 0, 8), cookie[:hashed], from.address)
	return subtle.ConstantTimeCompare(right, cookie[hashed:]) == 1
}

// appendHash appends the hash of the preceding octets of a cookie and of the client's
// address.
func (s *Server) appendHash(data, before []byte, client netip.Addr) []byte {
	var message [clientCookie + serverCookie - 8 + 16]byte
	hashed, _ := client.WithZone("").AppendBinary(append(message[:0], before...)) // never fails
	return binary.LittleEndian.AppendUint64(data, sipHash(&s.secret, hashed))
}

// appendOptions appends the options of the answer. The server's cookie is always new, so
// clients do not keep a cookie that is about to expire.
func (s *Server) appendOptions(data []byte, o options, from asker) []byte {
	if o.cookie != nil {
		data = append(data, 0, optionCookie, 0, clientCookie+serverCookie)
		start := len(data)
		data = append(data, o.cookie[:clientCookie]...)
		data = append(data, cookieVersion, 0, 0, 0)
		data = binary.BigEndian.AppendUint32(data, uint32(from.at.Unix()))
		data = s.appendHash(data, data[start:], from.address)
	}
	if o.nsid {
		data = append(data, 0, optionNSID, 0, byte(len(s.nsid)))
		data = append(data, s.nsid...)
	}
	return data
}

// cookieOnly returns the rcode of a query without a question: the client asks for a cookie,
// or checks one (RFC 7873, section 5.4).
func (o options) cookieOnly() dns.Rcode {
	if len(o.cookie) > clientCookie && !o.known {
		return dns.RcodeBadCookie
	}
	return dns.RcodeSuccess
}

// slipped returns the reply to a query above the rate limit: a client with cookies is told
// to ask again with the new cookie, any other client to use TCP.
func (o options) slipped() (rcode dns.Rcode, truncated bool) {
	if o.cookie != nil {
		return dns.RcodeBadCookie, false
	}
	return dns.RcodeSuccess, true
}

// sipHash computes SipHash-2-4 (Aumasson and Bernstein, 2012): a keyed 64-bit hash that is
// fast for short messages and unpredictable without the key.
func sipHash(key *[16]byte, message []byte) uint64 {
	k0, k1 := binary.LittleEndian.Uint64(key[:]), binary.LittleEndian.Uint64(key[8:])
	s := sipState{k0 ^ 0x736f6d6570736575, k1 ^ 0x646f72616e646f6d, k0 ^ 0x6c7967656e657261, k1 ^ 0x7465646279746573}
	last := uint64(len(message)) << 56
	for ; len(message) >= 8; message = message[8:] {
		s.compress(binary.LittleEndian.Uint64(message))
	}
	for i, octet := range message {
		last |= uint64(octet) << (8 * i)
	}
	s.compress(last)
	s[2] ^= 0xff
	for range 4 {
		s.round()
	}
	return s[0] ^ s[1] ^ s[2] ^ s[3]
}

type sipState [4]uint64

func (s *sipState) compress(word uint64) {
	s[3] ^= word
	s.round()
	s.round()
	s[0] ^= word
}

func (s *sipState) round() {
	s[0] += s[1]
	s[1] = bits.RotateLeft64(s[1], 13) ^ s[0]
	s[0] = bits.RotateLeft64(s[0], 32)
	s[2] += s[3]
	s[3] = bits.RotateLeft64(s[3], 16) ^ s[2]
	s[0] += s[3]
	s[3] = bits.RotateLeft64(s[3], 21) ^ s[0]
	s[2] += s[1]
	s[1] = bits.RotateLeft64(s[1], 17) ^ s[2]
	s[2] = bits.RotateLeft64(s[2], 32)
}
