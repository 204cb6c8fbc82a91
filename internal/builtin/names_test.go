package builtin

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"
	"time"

	"meshddns/internal/nameserver"
)

// wire gives a name in wire form.
func wire(name string) []byte {
	var w []byte
	for label := range strings.SplitSeq(name, ".") {
		w = append(append(w, byte(len(label))), label...)
	}
	return append(w, 0)
}

func newCache(t testing.TB) *names {
	c := newNames()
	t.Cleanup(c.Free)
	return c
}

// model is what a cache has to be, in the plainest way.
type model struct {
	data  map[string]string
	zones map[string]uint32
}

func (m model) look(name string) (found nameserver.Found) {
	for at := name; at != ""; {
		if serial, ok := m.zones[at]; ok && found.Apex == 0 {
			found.Apex, found.Serial = len(wire(at)), serial
		} else if ok && found.Above == 0 {
			found.Above, found.AboveSerial = len(wire(at)), serial
		}
		_, at, _ = strings.Cut(at, ".")
	}
	for other := range m.data {
		found.Exists = found.Exists || other == name || strings.HasSuffix(other, "."+name)
	}
	for other := range m.zones {
		found.Exists = found.Exists || other == name || strings.HasSuffix(other, "."+name)
	}
	found.Records = []byte(m.data[name])
	if len(found.Records) > 0 {
		found.TTL = uint32(len(found.Records))
	}
	return found
}

func (m model) check(t *testing.T, c *names, name string) {
	t.Helper()
	got, ok := c.Look(wire(name), []byte("before"))
	want := m.look(name)
	if !ok || !bytes.Equal(got.Records, append([]byte("before"), want.Records...)) {
		t.Fatalf("%s has %q, %t, want %q", name, got.Records, ok, want.Records)
	}
	got.Records, want.Records = nil, nil
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s is %+v, want %+v", name, got, want)
	}
}

// Random changes of names and zones, above and below each other.
func TestCacheIsTheModel(t *testing.T) {
	t.Parallel()
	c, m := newCache(t), model{map[string]string{}, map[string]uint32{}}
	random := rand.New(rand.NewPCG(1, 2))
	name := func() string {
		labels := make([]string, 1+random.IntN(5))
		for i := range labels {
			labels[i] = string(rune('a' + random.IntN(3)))
		}
		return strings.Join(labels, ".")
	}
	change := func() error {
		n := name()
		switch random.IntN(6) {
		case 0:
			m.zones[n] = random.Uint32()
			return c.SetZone(wire(n), m.zones[n], true)
		case 1:
			delete(m.zones, n)
			return c.SetZone(wire(n), 0, false)
		case 2, 3:
			delete(m.data, n)
			return c.Set(wire(n), 0, nil)
		}
		m.data[n] = strings.Repeat("d", 1+random.IntN(300))
		return c.Set(wire(n), uint32(len(m.data[n])), []byte(m.data[n]))
	}
	for range 20_000 {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		m.check(t, c, name())
		if names, _ := c.Size(); names != len(m.data) {
			t.Fatalf("%d names, want %d", names, len(m.data))
		}
	}
	for n := range m.data {
		c.Set(wire(n), 0, nil)
	}
	for n := range m.zones {
		c.SetZone(wire(n), 0, false)
	}
	for i := range c.shards {
		if used := c.shards[i].used; used != 0 {
			t.Errorf("shard %d has %d entries of nothing", i, used)
		}
	}
}

const typicalTXT = 76 // octets of RDATA

// typical is the data of a name as this program publishes it.
func typical(number int) []byte {
	data := binary.BigEndian.AppendUint16(nil, typicalTXT)
	return fmt.Appendf(data, "\x4b%075d", number)
}

func fill(t testing.TB, c *names, from, to int) {
	t.Helper()
	if err := c.SetZone(wire("example.com"), 1, true); err != nil {
		t.Fatal(err)
	}
	for i := from; i < to; i++ {
		if err := c.Set(wire(fmt.Sprintf("_mesh.office-%d.example.com", i)), 60, typical(i)); err != nil {
			t.Fatal(err)
		}
	}
}

// A name takes little, and what goes gives its memory back: names that come and
// go leave nothing.
func TestMemoryOfNames(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
	const names, most = 100_000, 130
	c := newCache(t)
	fill(t, c, 0, names)
	count, octets := c.Size()
	if count != names || octets > names*most {
		t.Errorf("%d names take %d octets each", count, octets/names)
	}
	for round := range 5 {
		for i := range names {
			c.Set(wire(fmt.Sprintf("_mesh.office-%d.example.com", round*names+i)), 60, nil)
			c.Set(wire(fmt.Sprintf("_mesh.office-%d.example.com", (round+1)*names+i)), 60, typical(i))
		}
	}
	// As much as a third of the data may be of names that have gone.
	if count, octets := c.Size(); count != names || octets > names*most*4/3 {
		t.Errorf("after names have come and gone %d take %d octets each", count, octets/names)
	}
	for i := range names {
		c.Set(wire(fmt.Sprintf("_mesh.office-%d.example.com", 5*names+i)), 60, nil)
	}
	if _, octets := c.Size(); octets > shards*3*memoryPage {
		t.Errorf("without names it takes %d octets", octets)
	}
}

// What looks while the memory is given back finds nothing, and does not fault.
func TestFreeWhileLooking(t *testing.T) {
	c := newNames()
	fill(t, c, 0, 1000)
	ended, begun := make(chan bool), make(chan bool, 1)
	go func() {
		for ok := true; ok; {
			_, ok = c.Look(wire("_mesh.office-1.example.com"), nil)
			select {
			case begun <- true:
			default:
			}
		}
		close(ended)
	}()
	<-begun
	c.Free()
	<-ended
	if err := c.Set(wire("a"), 1, typical(1)); err != nil {
		t.Error(err)
	}
}

// processor gives the processor time that the process has taken: what the clock
// says depends on what else runs.
func processor() time.Duration {
	var used syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &used)
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

func benchmarkLook(b *testing.B, names int, name func(i int) string) {
	c := newCache(b)
	fill(b, c, 0, names)
	asked := make([][]byte, 1<<14)
	for i := range asked {
		asked[i] = wire(name(i))
	}
	txt := make([]byte, 0, 512)
	b.ReportAllocs()
	begun := processor()
	for i := 0; b.Loop(); i++ {
		c.Look(asked[i%len(asked)], txt)
	}
	b.ReportMetric(float64(processor()-begun)/float64(b.N), "cpu-ns/op")
}

func BenchmarkLook(b *testing.B) {
	for _, names := range []int{10_000, 1_000_000} {
		hit := func(i int) string { return fmt.Sprintf("_mesh.office-%d.example.com", i*7919%names) }
		b.Run(fmt.Sprint(names, "/hit"), func(b *testing.B) { benchmarkLook(b, names, hit) })
		none := func(i int) string { return fmt.Sprintf("none-%d.example.com", i) }
		b.Run(fmt.Sprint(names, "/none"), func(b *testing.B) { benchmarkLook(b, names, none) })
		deep := func(i int) string { return strings.Repeat("a.", 110) + fmt.Sprintf("n%d.example.com", i) }
		b.Run(fmt.Sprint(names, "/deep"), func(b *testing.B) { benchmarkLook(b, names, deep) })
	}
}

func BenchmarkSet(b *testing.B) {
	c := newCache(b)
	name, data := wire("_mesh.office-00000000.example.com"), typical(1)
	b.ReportAllocs()
	begun := processor()
	for i := 0; b.Loop(); i++ {
		copy(name[14:], fmt.Appendf(nil, "%08d", i%1_000_000))
		c.Set(name, 60, data)
	}
	b.ReportMetric(float64(processor()-begun)/float64(b.N), "cpu-ns/op")
	names, octets := c.Size()
	b.ReportMetric(float64(octets)/float64(names), "B/name")
}
