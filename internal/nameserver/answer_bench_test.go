package nameserver

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"meshddns/internal/dns"
)

// kept is a backend of one zone that answers from memory and makes no garbage.
type kept struct {
	apex []byte
	data map[string][]byte
}

func (k kept) Look(_ context.Context, name, txt []byte) (found Found, _ error) {
	if !bytes.HasSuffix(name, k.apex) {
		return Found{Records: txt}, nil
	}
	data, exists := k.data[string(name)]
	return Found{Apex: len(k.apex), Serial: 1, Exists: exists, TTL: 60, Records: append(txt, data...)}, nil
}

func (kept) Addresses(context.Context) []netip.Addr {
	return []netip.Addr{netip.MustParseAddr("192.0.2.1")}
}

// keptServer is a server of some names in one zone.
func keptServer(names int) *Server {
	k := kept{[]byte(name("example.com")), map[string][]byte{}}
	data := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, uint16(dns.TypeTXT)), 76)
	data = append(data, dns.TXTData([]string{strings.Repeat("x", 75)})...)
	for i := range names {
		k.data[string(name(fmt.Sprintf(hitForm, i)))] = data
	}
	return &Server{backend: k, log: slog.New(slog.DiscardHandler)}
}

// asked are queries with EDNS for names of a form.
func asked(form string, numbers int) [][]byte {
	packets := make([][]byte, 1<<12)
	for i := range packets {
		query := question("TXT " + fmt.Sprintf(form, i*7919%numbers))
		query.Additional = []dns.RR{dns.EDNS{UDPSize: 1232}.RR()}
		packets[i] = query.Pack()
	}
	return packets
}

const (
	hitForm  = "_mesh.office%d.example.com"
	noneForm = "none%d.example.com"
)

var deepForm = strings.Repeat("a.", 115) + noneForm

// BenchmarkAnswer is all of a query except the system's calls and the zones' own work. Beside
// the clock's time it gives the processor's, which does not depend on what else runs.
func BenchmarkAnswer(b *testing.B) {
	for what, form := range map[string]string{"hit": hitForm, "none": noneForm, "none/118-labels": deepForm} {
		b.Run(what, func(b *testing.B) {
			const names = 10_000
			s := keptServer(names)
			packets, buffer := asked(form, names), make([]byte, 0, maxUDP)
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
