// Package clients reads what the program publishes with the clients' own code, where that can be run, and
// with readers written down from their rules elsewhere.
//
//	MESHDDNS_CLIENT_SETS=1000 go test -v .     so many sets of endpoints with something to read in each format
package clients

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// patience bounds one question of a reader.
const patience = 10 * time.Second

func later() time.Time { return time.Now().Add(patience) }

// world is where the readers look.
type world struct {
	dns    string // address of the DNS server
	node   string // URL of the node listener
	parent string // <prefix>.<domain>
	irohID string

	resolver *net.Resolver
}

// full returns the full record name.
func (w *world) full() string { return "_mesh." + w.parent }

// reading is what one client reads of a format.
type reading struct {
	client, format string
	read           func() ([]string, error)
	want           []string
	one            bool // the client takes one of the wanted
}

// readings are all clients, with what they have to read after a change.
func (w *world) readings(r round, l *lighthouse) []reading {
	tcp := r.wanted("srv:"+service+"._tcp", of(endpoint.host, "tcp", "ws", "wss"))
	nebula := r.wanted("a", nebulas)
	return []reading{
		{"EasyTier txt", "mesh1", w.easyTierTXT, r.wanted("mesh1", endpoint.String), false},
		{"EasyTier http", "urls", w.easyTierHTTP, r.wanted("urls", endpoint.String), false},
		{"EasyTier http, redirected", "urls", w.easyTierRedirect, r.wanted("urls", endpoint.String), true},
		{"EasyTier srv", "easytier-srv", w.easyTierSRV, r.wanted("easytier-srv", of(endpoint.String, easyTierTypes...)), false},
		{"vnt", "hostport", w.vnt, r.hostPorts(w.parent), false},
		{"Xray txt", "hostport", w.xrayTXT, r.hostPorts(w.parent), true},
		{"Xray srv", "srv:" + service + "._tcp", w.xraySRV, tcp, true},
		{"go-discover tcp", "srv:" + service + "._tcp", func() ([]string, error) { return w.discover("tcp") }, tcp, false},
		{"go-discover udp", "srv:" + service + "._udp", func() ([]string, error) { return w.discover("udp") },
			r.wanted("srv:"+service+"._udp", of(endpoint.host, "udp", "quic", "wg")), false},
		{"Nebula", "a", func() ([]string, error) { return l.read(nebula) }, nebula, false},
		{"natmap", "ip4p", w.natmap, r.wanted("ip4p", ip4p), false},
		{"libp2p", "dnsaddr", w.libp2p, r.multiaddrs(), false},
		{"iroh", "iroh", w.iroh, r.irohs(), false},
	}
}

// check reads, and says what is not as it should be.
func (r reading) check() error {
	got, err := r.read()
	switch {
	case err != nil:
		return err
	case r.one && len(got) == 1 && slices.Contains(r.want, got[0]):
		return nil
	case !same(got, r.want):
		return fmt.Errorf("read %d of %d, differences: %s", len(got), len(r.want), difference(got, r.want))
	}
	return nil
}

// number reads a number of the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return n
}

// TestClients changes the endpoints, the formats and the peer of a usage at random. After each change
// every client reads exactly what the rules say.
func TestClients(t *testing.T) {
	seed := number(t, "MESHDDNS_CLIENT_SEED", 1)
	random := rand.New(rand.NewPCG(uint64(seed), 0))
	sets := number(t, "MESHDDNS_CLIENT_SETS", 25)
	a := start(t)
	w := a.world
	l, err := w.startNebula(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	filled := map[string]int{} // how often a format had something to read
	rounds, readings, differences := 0, 0, 0
	for ; fewest(filled) < sets && differences < 10; rounds++ {
		if rounds > 20*sets {
			t.Fatalf("after %d changes the formats had something to read so often: %v", rounds, filled)
		}
		r := randomRound(random)
		a.change(t, r)
		had := map[string]bool{}
		for _, reading := range w.readings(r, l) {
			if err := reading.check(); err != nil {
				differences++
				t.Errorf("seed %d, change %d: %s: %v\nendpoints %q\nformats %q", seed, rounds, reading.client, err, r.texts(), r.formats)
			}
			readings++
			had[reading.format] = had[reading.format] || len(reading.want) > 0
		}
		for format, something := range had {
			if something {
				filled[format]++
			}
		}
	}
	t.Logf("%d differences in %d readings by %d readers after %d changes, at least %d sets in each of %d formats",
		differences, readings, readings/max(rounds, 1), rounds, fewest(filled), len(formats))
}

// fewest returns how often the rarest format had something to read.
func fewest(filled map[string]int) int {
	least := filled[formats[0]]
	for _, format := range formats {
		least = min(least, filled[format])
	}
	return least
}
