package nameserver

import (
	"context"
	"net/netip"
	"time"
)

// AnswerTime bounds a backend's work for one query. By then resolvers have asked again.
const AnswerTime = 2 * time.Second

// Found is the data at a name. The zone that contains the name is given by the length of
// its apex, which is the end of the name.
type Found struct {
	Apex        int // octets of the apex of the longest zone that contains the name; 0: no zone does
	Serial      uint32
	Above       int // octets of the apex of the next zone around that one; 0: none
	AboveSerial uint32
	Exists      bool // the name has data, or others lie below it (RFC 8020)
	TTL         uint32
	Records     []byte // RDATA of each record, after its type and its length in two octets each
}

// Backend is the source of the answers. Concurrent calls must be safe.
type Backend interface {
	// Look returns the data at a name, which is in wire form with letters in lower case. It
	// appends to buffer for the result's Records. It takes at most AnswerTime.
	Look(ctx context.Context, name []byte, buffer []byte) (Found, error)
	// Addresses returns this host's addresses, the answer for the server's name.
	Addresses(ctx context.Context) []netip.Addr
}
