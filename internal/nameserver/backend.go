package nameserver

import (
	"context"
	"net/netip"
	"time"
)

// AnswerTime bounds a backend's work for one query; resolvers have asked again
// by then.
const AnswerTime = 2 * time.Second

// Found is what the zones hold at a name. The zone that contains the name is told
// by the length of its apex, which is the name's end.
type Found struct {
	Apex        int // octets of the apex of the longest zone that contains the name; 0: no zone does
	Serial      uint32
	Above       int // octets of the apex of the next zone around that one; 0: none
	AboveSerial uint32
	Exists      bool // the name has data, or others lie below it (RFC 8020)
	TTL         uint32
	TXT         []byte // RDATA of each TXT record behind its length in two octets
}

// Backend is where the answers come from. Calls may overlap.
type Backend interface {
	// Look gives what is at a name, which is in wire form with letters in lower
	// case. It appends to txt for the result's TXT. It takes AnswerTime at most,
	// and is not cut short by ctx: a query that has come is answered also when
	// the server is being stopped.
	Look(ctx context.Context, name []byte, txt []byte) (Found, error)
	// Addresses are this host's own, answered for the server's name.
	Addresses(ctx context.Context) []netip.Addr
}
