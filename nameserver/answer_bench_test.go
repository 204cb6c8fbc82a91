package nameserver

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"meshddns/dnswire"
	"meshddns/zonecache"
)

// kept is a backend that answers from memory, as the program's does.
type kept struct{ cache *zonecache.Cache }

func (k kept) Look(_ context.Context, name, txt []byte) (Found, error) {
	found, _ := k.cache.Look(name, txt)
	return Found(found), nil
}

func (kept) Addresses(context.Context) []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("192.0.2.1")}
}

// keptServer is a server of some names in one zone, beside some others.
func keptServer(t testing.TB, names, zones int) *Server {
	t.Helper()
	cache := zonecache.New()
	t.Cleanup(cache.Free)
	set := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	set(cache.SetZone([]byte(name("example.com")), 1, true))
	for i := 1; i < zones; i++ {
		set(cache.SetZone([]byte(name(fmt.Sprintf("z%d.example.net", i))), 1, true))
	}
	data := binary.BigEndian.AppendUint16(nil, 76)
	data = append(data, dnswire.TXTData([]string{strings.Repeat("x", 75)})...)
	for i := range names {
		set(cache.Set([]byte(name(fmt.Sprintf("_mesh.office%d.example.com", i))), 60, data))
	}
	return &Server{backend: kept{cache}, log: slog.New(slog.DiscardHandler)}
}

// asked are queries with EDNS for names of a form.
func asked(form string, numbers int) [][]byte {
	packets := make([][]byte, 1<<12)
	for i := range packets {
		query := question("TXT " + fmt.Sprintf(form, i*7919%numbers))
		query.Additional = []dnswire.RR{dnswire.EDNS{UDPSize: 1232}.RR()}
		packets[i] = query.Pack()
	}
	return packets
}

const (
	hitForm  = "_mesh.office%d.example.com"
	noneForm = "none%d.example.com"
)

var deepForm = strings.Repeat("a.", 115) + noneForm

// BenchmarkAnswer is all of a query but the system's calls. Beside the clock's time
// it gives the processor's, which does not depend on what else runs.
func BenchmarkAnswer(b *testing.B) {
	for _, test := range []struct {
		what         string
		names, zones int
		form         string
	}{
		{"hit", 10_000, 1, hitForm},
		{"none", 10_000, 1, noneForm},
		{"none/118-labels", 10_000, 1, deepForm},
		{"none/10000-services", 10_000, 10_000, noneForm},
		{"hit/1000000-names", 1_000_000, 1, hitForm},
	} {
		b.Run(test.what, func(b *testing.B) {
			s := keptServer(b, test.names, test.zones)
			packets, buffer := asked(test.form, test.names), make([]byte, 0, maxUDP)
			b.ReportAllocs()
			begun := processor()
			for i := 0; b.Loop(); i++ {
				buffer = s.answer(b.Context(), buffer[:0], packets[i%len(packets)], asker{limit: maxUDP})
			}
			b.ReportMetric(float64(processor()-begun)/float64(b.N), "cpu-ns/op")
		})
	}
}

func processor() time.Duration {
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
