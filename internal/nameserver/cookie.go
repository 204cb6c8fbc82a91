package nameserver

import (
	"crypto/subtle"
	"encoding/binary"
	"net/netip"
	"time"

	"meshddns/internal/dnswire"
)

// EDNS options that are answered (IANA, "DNS EDNS0 Option Codes").
const (
	optionNSID   = 3  // RFC 5001
	optionCookie = 10 // RFC 7873
)

// Sizes and times of cookies (RFC 7873, section 4; RFC 9018, section 4).
const (
	clientCookie    = 8
	minServerCookie = 8
	maxServerCookie = 32
	serverCookie    = 16 // ours: version, three reserved octets, time, hash
	cookieVersion   = 1
	cookieAge       = time.Hour
	cookieAhead     = 5 * time.Minute // of a server with the same secret whose clock is fast
)

// options are what a query's EDNS options ask for.
type options struct {
	cookie []byte // nil without one; the client's, or that and a server's
	known  bool   // the server's cookie is ours: the client's address is not forged
	nsid   bool
}

// readOptions reads the options of EDNS version 0. A cookie of a length that
// cannot be is ErrFormat; of several the first counts (RFC 7873, section 5.2).
func (s *Server) readOptions(edns dnswire.EDNS, from asker) (o options, err error) {
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
		case code == optionCookie && o.cookie == nil:
			length := len(data) - clientCookie
			if length != 0 && (length < minServerCookie || length > maxServerCookie) {
				return options{}, dnswire.ErrFormat
			}
			o.cookie, o.known = data, s.knows(data, from)
		}
	}
	return o, nil
}

// knows reports whether a cookie is one that this server gave the client within the last hour.
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

// appendHash appends the hash of all that stands before it in a cookie, and of
// the client's address.
func (s *Server) appendHash(data, before []byte, client netip.Addr) []byte {
	var message [clientCookie + serverCookie - 8 + 16]byte
	hashed, _ := client.WithZone("").AppendBinary(append(message[:0], before...)) // never fails
	return binary.LittleEndian.AppendUint64(data, sipHash(&s.secret, hashed))
}

// appendOptions appends the options of the answer. The server's cookie is always
// a new one, so that clients never hold one that is about to end.
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

// cookieOnly gives the rcode of a query without a question, which asks for a
// cookie or whether one is good (RFC 7873, section 5.4).
func (o options) cookieOnly() dnswire.Rcode {
	if len(o.cookie) > clientCookie && !o.known {
		return dnswire.RcodeBadCookie
	}
	return dnswire.RcodeSuccess
}

// slipped gives the reply above the limit that shows the way: with the cookie
// that comes along, or else over TCP.
func (o options) slipped() (rcode dnswire.Rcode, truncated bool) {
	if o.cookie != nil {
		return dnswire.RcodeBadCookie, false
	}
	return dnswire.RcodeSuccess, true
}
