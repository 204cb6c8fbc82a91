package secondary

import (
	"context"
	"database/sql"
	"encoding/base64"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
	"meshddns/test/support"
)

// TestMain lets eight tests run at once, because many of them wait for the pauses between messages.
func TestMain(m *testing.M) {
	flag.Parse()
	flag.Set("test.parallel", "8")
	os.Exit(m.Run())
}

// crashing is a serial at which the zones panic.
const crashing = 13

// world is a notifier of zones whose serials the test sets.
type world struct {
	*Notifier
	t       *testing.T
	exec    func(statement string)
	mu      sync.Mutex
	serials map[string]uint32
	broken  error  // of MovePast and All
	asked   func() // is called for each message
}

func newWorld(t *testing.T) *world {
	t.Helper()
	tables, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "x.db"), sqlite.Schema{
		Tables: string(tables), First: func(context.Context, *sql.Tx) error { return nil }, Oldest: 1,
	}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	w := &world{t: t, serials: map[string]uint32{}, asked: func() {}}
	w.exec = func(statement string) {
		t.Helper()
		if _, err := db.Writer.Exec(statement); err != nil {
			t.Fatal(err)
		}
	}
	w.Notifier = NewNotifier(NewTable(db), w, netip.MustParseAddr("127.0.0.1"), events.New(db.Reader, db.Tx, time.Now, func(int64) {}), slog.New(slog.DiscardHandler))
	db.Subscribe(w.Committed)
	return w
}

// run lets the notifier work until the test ends.
func (w *world) run() {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-ended })
}

func (w *world) All(context.Context) (map[string]uint32, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]uint32{}
	for zone, serial := range w.serials {
		all[zone] = serial
	}
	return all, w.broken
}

func (w *world) SOA(_ context.Context, zone string) (soa dns.RR, serial uint32, ok bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.asked()
	if serial, ok = w.serials[zone]; serial == crashing {
		panic("injected")
	}
	apex, _ := dns.ParseName(zone)
	data := dns.SOA{MName: apex, RName: apex, Serial: serial}
	return dns.RR{Name: apex, Type: dns.TypeSOA, Class: dns.ClassIN, Data: data.Data()}, serial, ok, nil
}

func (w *world) MovePast(_ context.Context, zone string, serial uint32) error {
	if w.broken != nil {
		return w.broken
	}
	w.move(zone, serial+1)
	return nil
}

// move gives a zone a serial, and tells of it.
func (w *world) move(zone string, serial uint32) {
	w.mu.Lock()
	w.serials[zone] = serial
	w.mu.Unlock()
	w.Moved(zone, serial)
}

// peer is a secondary that the test plays: it has its own key, and does with a message what the test
// says.
type peer struct {
	Secondary
	heard atomic.Int64 // messages
	last  atomic.Uint32
	has   atomic.Uint32 // the serial in its answers to queries; 0: it refuses
	asked atomic.Int64  // queries

	broken atomic.Bool // it answers queries with SERVFAIL

	unsigned atomic.Bool // its answers to queries are not signed, as those of another host
}

// peer starts a secondary, and registers it. answer returns the rcode of the answer to a message; false
// means none.
func (w *world) peer(id string, answer func(n int64) (dns.Rcode, bool)) *peer {
	w.t.Helper()
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { socket.Close() })
	s, err := Secondary{
		ID: id, Address: socket.LocalAddr().String(), KeyName: id + ".example", Secret: secretOf(id),
	}.Check(msg.English)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &peer{Secondary: s}
	go p.serve(w.t, socket, answer)
	if _, err := w.Save(w.t.Context(), s); err != nil {
		w.t.Fatal(err)
	}
	return p
}

func secretOf(id string) secrets.Masked {
	return secrets.Masked(base64.StdEncoding.EncodeToString([]byte("the secret of " + id)))
}

// serve checks each message and answers it.
func (p *peer) serve(t *testing.T, socket net.PacketConn, answer func(n int64) (dns.Rcode, bool)) {
	buffer := make([]byte, 4096)
	for {
		size, from, err := socket.ReadFrom(buffer)
		if err != nil {
			return
		}
		request := buffer[:size]
		m, err := dns.ParseMessage(request)
		signature, bad := dns.CheckSignature(request, func(name dns.Name) (dns.Key, bool) { return p.key, name == p.key.Name }, time.Now())
		if err != nil || bad != nil || signature == nil || signature.Error != dns.RcodeSuccess {
			t.Errorf("%s hears %+v, %v, %v, %+v", p.ID, m, err, bad, signature)
			return
		}
		if m.Opcode == dns.OpcodeQuery {
			reply := dns.Message{ID: m.ID, Response: true, Rcode: dns.RcodeRefused, Questions: m.Questions}
			if serial := p.has.Load(); serial > 0 {
				soa := dns.SOA{MName: dns.Root, RName: dns.Root, Serial: serial}
				reply.Rcode, reply.Answers = dns.RcodeSuccess, []dns.RR{{Name: m.Questions[0].Name, Type: dns.TypeSOA, Class: dns.ClassIN, Data: soa.Data()}}
			}
			if p.broken.Load() {
				reply.Rcode, reply.Answers = dns.RcodeServFail, nil
			}
			p.asked.Add(1)
			if p.unsigned.Load() {
				socket.WriteTo(reply.Pack(), from)
				continue
			}
			socket.WriteTo(signature.Sign(reply.Pack(), time.Now()), from)
			continue
		}
		if m.Opcode != dns.OpcodeNotify || !m.Authoritative || len(m.Answers) != 1 {
			t.Errorf("%s hears %+v", p.ID, m)
			return
		}
		soa, err := dns.ParseSOA(m.Answers[0])
		if err != nil {
			t.Error(err)
		}
		p.last.Store(soa.Serial)
		if rcode, ok := answer(p.heard.Add(1)); ok {
			reply := dns.Message{ID: m.ID, Response: true, Opcode: m.Opcode, Rcode: rcode, Questions: m.Questions}
			socket.WriteTo(signature.Sign(reply.Pack(), time.Now()), from)
		}
	}
}

// fetch tells that a peer has a version.
func (w *world) fetch(p *peer, zone string, serial uint32) {
	apex, _ := dns.ParseName(zone)
	w.Fetched(p.at.Addr(), p.key.Name, apex, serial)
}

func (w *world) state(p *peer, zone string) mesh.SecondaryZone {
	zones, _ := w.All(w.t.Context())
	for _, z := range w.show(p.Secondary, zones, 0).States {
		if z.Zone == zone {
			return z
		}
	}
	w.t.Fatalf("%s has no zone %s", p.ID, zone)
	return mesh.SecondaryZone{}
}

// TestNotify: a peer is told of a change until it has fetched it, whether it answers or not, and no other
// peer is told for it.
func TestNotify(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	yes := func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true }
	well := w.peer("well", yes)
	deaf := w.peer("deaf", func(int64) (dns.Rcode, bool) { return 0, false })
	hostile := w.peer("hostile", func(int64) (dns.Rcode, bool) { return dns.RcodeRefused, true })
	w.serials["example.com"] = 7
	w.run()
	for _, p := range []*peer{well, deaf, hostile} {
		support.Eventually(t, support.Limit, p.ID+" is told at the start", func() bool { return p.last.Load() == 7 })
	}
	w.fetch(well, "example.com", 7)
	w.move("example.com", 8)
	support.Eventually(t, support.Limit, "all are told of the change", func() bool {
		return well.last.Load() == 8 && deaf.last.Load() == 8 && hostile.last.Load() == 8
	})
	w.fetch(well, "example.com", 8)
	support.Eventually(t, support.Limit, "no message is under way", func() bool { return !w.Find("well").follower.state("example.com").busy })
	heard := well.heard.Load()
	support.Eventually(t, support.Limit, "the peers that have not fetched are told again", func() bool { return deaf.heard.Load() >= 3 && hostile.heard.Load() >= 3 })
	if s := w.state(well, "example.com"); s.Fetched == nil || *s.Fetched != 8 || s.Lag != 0 || s.Error != "" || well.heard.Load() != heard {
		t.Errorf("well: %+v, told %d and %d times", s, heard, well.heard.Load())
	}
	if s := w.state(deaf, "example.com"); s.Fetched != nil || s.Error == "" || s.NotifiedAt == "" {
		t.Errorf("deaf: %+v", s)
	}
	if s := w.state(hostile, "example.com"); !strings.HasPrefix(s.Error, "NOTIFY 被拒绝: REFUSED: 辅助服务器不接受") {
		t.Errorf("hostile: %+v", s)
	}
	w.fetch(deaf, "example.com", 7)
	if s := w.state(deaf, "example.com"); s.Fetched == nil || *s.Fetched != 7 {
		t.Errorf("deaf has an old version: %+v", s)
	}
}

// TestNoErrorAfterFetch: a peer that has fetched all has no error, neither before it answers nor after it, whatever it answers.
func TestNoErrorAfterFetch(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var self atomic.Pointer[peer]
	late := w.peer("late", func(n int64) (dns.Rcode, bool) {
		if n == 2 {
			w.fetch(self.Load(), "example.com", 7)
			if s := w.state(self.Load(), "example.com"); s.Error != "" {
				t.Errorf("before the answer: %+v", s)
			}
		}
		return dns.RcodeRefused, true
	})
	self.Store(late)
	w.serials["example.com"] = 7
	w.run()
	support.Eventually(t, support.Limit, "the first answer is an error", func() bool { return w.state(late, "example.com").Error != "" })
	support.Eventually(t, support.Limit, "the second one ends", func() bool {
		return late.heard.Load() == 2 && !w.Find("late").follower.state("example.com").busy
	})
	if s := w.state(late, "example.com"); s.Error != "" || s.Lag != 0 {
		t.Errorf("%+v", s)
	}
}

// TestCauses: the error of a message says what to check.
func TestCauses(t *testing.T) {
	for _, test := range []struct {
		rcode     dns.Rcode
		signature error
		want      string
	}{
		{dns.RcodeNotAuth, &dns.TSIGError{Code: dns.RcodeBadSig}, "no valid answer to NOTIFY: BADSIG: the secondary has another key_secret for this key_name"},
		{dns.RcodeNotAuth, &dns.TSIGError{Code: dns.RcodeBadKey}, "no valid answer to NOTIFY: BADKEY: the secondary has no key of this key_name with this key_algorithm"},
		{dns.RcodeSuccess, dns.ErrUnsigned, "no valid answer to NOTIFY: NOERROR: compare the key with the secondary's, and see its log"},
	} {
		if err := because(errNoAnswer, test.rcode, test.signature); err.Error() != test.want || !errors.Is(err, errNoAnswer) {
			t.Errorf("%v, want %s", err, test.want)
		}
	}
}

// TestCrash has the work for one zone crash: that is the zone's fault at its secondary, and the other zones
// are told. The zone is tried again.
func TestCrash(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.peer("p", func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true })
	w.serials["crash.example"] = crashing
	w.run()
	support.Eventually(t, support.Limit, "the crash is told", func() bool { return w.state(p, "crash.example").Error == "panic: injected" })
	w.move("example.com", 8)
	support.Eventually(t, support.Limit, "the other zone is told", func() bool { return p.last.Load() == 8 })
	w.move("crash.example", 14)
	support.Eventually(t, support.Limit, "the zone is told when it crashes no more", func() bool { return p.last.Load() == 14 })
}

// TestFetchedBeforeTheMessage: a peer that fetches the version before a change, after the change, is told
// of the change all the same.
func TestFetchedBeforeTheMessage(t *testing.T) {
	w := newWorld(t)
	p := w.peer("p", func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true })
	w.fetch(p, "example.com", 1)
	w.move("example.com", 2)
	w.fetch(p, "example.com", 1)
	if s := w.Find(p.ID).follower.state("example.com"); s.due.IsZero() || !s.behind() {
		t.Errorf("%+v", s)
	}
}

// TestTakenIsServed: a version that a peer was sent counts as taken when the peer answers with it or with a later one, as
// one that signs does, or refuses to answer. An older one, or SERVFAIL, is a lag, and is not repeated by messages.
func TestTakenIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.peer("p", acknowledges)
	w.serials["example.com"] = 7
	w.run()
	support.Eventually(t, support.Limit, "a message", func() bool { return p.last.Load() == 7 })
	for i, answer := range []uint32{8, 100, 0} {
		serial := uint32(8 + i)
		w.move("example.com", serial)
		support.Eventually(t, support.Limit, "a message", func() bool { return p.last.Load() == serial })
		heard, asked := p.heard.Load(), p.asked.Load()
		p.has.Store(serial - 1)
		w.fetch(p, "example.com", serial)
		for _, answers := range []int64{loading + 1, loading + 2} { // with the older version, then with SERVFAIL
			support.Eventually(t, support.Limit, "an answer", func() bool { return p.asked.Load() >= asked+answers && w.state(p, "example.com").Error != "" })
			lag, _ := w.Find(p.ID).follower.lag(time.Now())
			if s := w.state(p, "example.com"); w.taken("example.com", time.Millisecond) || *s.Fetched != serial || lag == 0 || p.heard.Load() != heard {
				t.Errorf("version %d is taken before it is served, or %d messages: %+v", serial, p.heard.Load()-heard, s)
			}
			p.broken.Store(true)
		}
		p.broken.Store(false)
		p.has.Store(answer)
		if !w.taken("example.com", support.Limit) {
			t.Errorf("version %d is not taken", serial)
		}
		if s := w.state(p, "example.com"); s.Lag != 0 || s.Error != "" {
			t.Errorf("version %d: %+v", serial, s)
		}
	}
}

// TestQuiet: a peer without NOTIFY may transfer, hears nothing, is not waited for and never behind.
func TestQuiet(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.peer("p", acknowledges)
	w.serials["example.com"] = 7
	w.run()
	support.Eventually(t, support.Limit, "a message", func() bool { return p.last.Load() == 7 })
	notify := func(on bool) {
		p.Notify = &on
		if _, err := w.Save(t.Context(), p.Secondary); err != nil {
			t.Fatal(err)
		}
		f := w.Find(p.ID).follower
		support.Eventually(t, support.Limit, "the setting counts", func() bool {
			f.mu.Lock()
			defer f.mu.Unlock()
			return f.quiet != on
		})
	}
	notify(false)
	p.has.Store(6)
	w.move("example.com", 8)
	w.fetch(p, "example.com", 8)
	w.move("example.com", 9)
	apex, _ := dns.ParseName("example.com")
	lag, late := w.Find(p.ID).follower.lag(time.Now().Add(time.Hour))
	if s := w.state(p, "example.com"); !w.May(p.at.Addr(), p.key.Name, apex) || !w.Names(p.at.Addr(), p.key.Name, apex, 8) ||
		!w.taken("example.com", support.Limit) || lag+time.Duration(late) != 0 || s.Lag != 0 || *s.Fetched != 8 {
		t.Errorf("%+v, lag %v, %d", s, lag, late)
	}
	heard, asked := p.last.Load(), p.asked.Load()
	notify(true)
	support.Eventually(t, support.Limit, "it is told again", func() bool { return p.last.Load() == 9 })
	if heard != 7 || asked != 0 {
		t.Errorf("it was told of %d, and asked %d times", heard, asked)
	}
}

// TestAhead: a peer that has a later version, from a database that is lost, makes the zone move past it
// once, whether it names the version or has to be asked. A version that is much later does not.
func TestAhead(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	yes := func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true }
	asked, naming := w.peer("asked", yes), w.peer("naming", yes)
	asked.has.Store(100)
	w.serials["example.com"], w.serials["example.net"] = 7, 7
	w.run()
	support.Eventually(t, support.Limit, "a serial after the one of the peer that is asked", func() bool { return asked.last.Load() == 101 })
	asked.has.Store(200) // such as that of a server that signs the zone
	name := func(serial uint32) bool {
		apex, _ := dns.ParseName("example.com")
		return w.Names(naming.at.Addr(), naming.key.Name, apex, serial)
	}
	name(101 + maxAhead + 1)
	name(150)
	support.Eventually(t, support.Limit, "a serial after the one that was named", func() bool { return naming.last.Load() == 151 })
	w.fetch(naming, "example.com", 151)
	if !name(151) || name(150) {
		t.Error("it is not known which version was sent")
	}
	heard := asked.heard.Load()
	support.Eventually(t, support.Limit, "the peer is asked again", func() bool { return asked.heard.Load() > heard+3 })
	if serials := all(w); serials["example.com"] > 201 {
		t.Errorf("serials %v", serials)
	}
	asked.has.Store(all(w)["example.com"])
	support.Eventually(t, support.Limit, "the version that the peer says to have", func() bool {
		return w.state(asked, "example.com").Lag == 0 && w.state(asked, "example.com").Fetched != nil
	})
}

func all(w *world) map[string]uint32 {
	all, _ := w.All(w.t.Context())
	return all
}

// TestUnsignedAnswer: an answer without a signature says nothing about the version that a secondary has.
func TestUnsignedAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.peer("p", func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true })
	p.unsigned.Store(true)
	p.has.Store(100)
	w.serials["example.com"] = 7
	w.run()
	support.Eventually(t, support.Limit, "a message after the one with whose answer the version is asked for", func() bool { return p.heard.Load() > 2 })
	if serials := all(w); serials["example.com"] != 7 || w.state(p, "example.com").Fetched != nil {
		t.Errorf("serials %v, %+v", serials, w.state(p, "example.com"))
	}
}

// TestNoticesSwap: the notice of an earlier commit, and the end of an earlier transfer, may come later.
func TestNoticesSwap(t *testing.T) {
	w := newWorld(t)
	p := w.peer("p", func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true })
	w.Moved("example.com", 9)
	w.Moved("example.com", 8)
	if s := w.Find(p.ID).follower.state("example.com"); s.serial != 9 {
		t.Errorf("after an earlier notice: %+v", s)
	}
	w.fetch(p, "example.com", 9)
	w.fetch(p, "example.com", 8)
	if s := w.Find(p.ID).follower.state("example.com"); s.fetched != 9 {
		t.Errorf("after an earlier transfer: %+v", s)
	}
}

// TestCopyIsTheLast: after any order of commits the copy in memory is what is stored.
func TestCopyIsTheLast(t *testing.T) {
	w := newWorld(t)
	body := Secondary{ID: "p", Address: "127.0.0.1:5300", KeyName: "p.example", Secret: secretOf("p")}
	s, err := body.Check(msg.English)
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		var both sync.WaitGroup
		both.Go(func() { w.Save(t.Context(), s) })
		both.Go(func() { w.Delete(t.Context(), "p") })
		both.Wait()
		if stored, err := w.Table.All(t.Context()); err != nil || len(stored) != len(w.Known()) {
			t.Fatalf("%d are stored, and %d in memory: %v", len(stored), len(w.Known()), err)
		}
	}
}

// TestAheadAndDeaf: a peer that names a later version, and does not answer, makes the zone move once.
func TestAheadAndDeaf(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.peer("deaf", func(int64) (dns.Rcode, bool) { return 0, false })
	w.serials["example.com"] = 7
	w.run()
	support.Eventually(t, support.Limit, "a message", func() bool { return p.heard.Load() > 0 })
	apex, _ := dns.ParseName("example.com")
	w.Names(p.at.Addr(), p.key.Name, apex, 100)
	support.Eventually(t, support.Limit, "messages about the serial after it", func() bool { return p.last.Load() == 101 && p.heard.Load() > 3 })
	if serials := all(w); serials["example.com"] != 101 {
		t.Errorf("serials %v", serials)
	}
}

// TestApart: many changes of a zone are one message a second.
func TestApart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := w.peer("p", func(int64) (dns.Rcode, bool) { return dns.RcodeSuccess, true })
	w.run()
	began := time.Now()
	for n := range uint32(500) {
		w.move("example.com", n+1)
	}
	support.Eventually(t, support.Limit, "the last version is told", func() bool { return p.last.Load() == 500 })
	if most := int64(time.Since(began)/apart) + 2; p.heard.Load() > most {
		t.Errorf("%d messages, want %d at most", p.heard.Load(), most)
	}
}

// TestMay: the address and the key must both fit, and the zone be one that the secondary takes.
func TestMay(t *testing.T) {
	w := newWorld(t)
	for _, b := range []Secondary{
		{ID: "a", Address: "192.0.2.1", KeyName: "a.example", Secret: secretOf("a"), Zones: []string{"example.com"}},
		{ID: "b", Address: "192.0.2.2", KeyName: "b.example", Secret: secretOf("b")},
		{ID: "near", Address: "10.1.2.3"},
		{ID: "far", Address: "203.0.113.9"},
		{ID: "host", Address: "192.0.2.1", From: []string{"198.51.100.0/24", "2001:db8:1::/48", "fe80::/10"}, KeyName: "host.example", Secret: secretOf("host"), Zones: []string{"hosted.example"}},
		{ID: "two", Address: "192.0.2.1", From: []string{"198.51.100.128/25"}, KeyName: "two.example", Secret: secretOf("two")},
	} {
		s, err := b.Check(msg.English)
		if err != nil {
			t.Fatal(b, err)
		}
		if _, err := w.Save(t.Context(), s); err != nil {
			t.Fatal(b, err)
		}
	}
	name := func(text string) dns.Name {
		if text == "" {
			return ""
		}
		n, _ := dns.ParseName(text)
		return n
	}
	for _, test := range []struct {
		from, key, zone string
		want            bool
	}{
		{"192.0.2.1", "a.example", "example.com", true},
		{"192.0.2.1", "a.example", "other.example", false},
		{"192.0.2.1", "b.example", "example.com", false},
		{"192.0.2.2", "a.example", "example.com", false},
		{"192.0.2.2", "b.example", "other.example", true},
		{"::ffff:192.0.2.2", "b.example", "other.example", true},
		{"192.0.2.1", "", "example.com", false},
		{"10.1.2.3", "", "example.com", true},
		{"10.1.2.3", "a.example", "example.com", false},
		{"203.0.113.9", "", "example.com", false},
		{"192.0.2.1", "host.example", "hosted.example", true},
		{"198.51.100.7", "host.example", "hosted.example", true},
		{"198.51.100.7", "host.example", "example.com", false},
		{"::ffff:198.51.100.7", "host.example", "hosted.example", true},
		{"2001:db8:1::7", "host.example", "hosted.example", true},
		{"fe80::7%eth0", "host.example", "hosted.example", true},
		{"198.51.100.7", "", "hosted.example", false},
		{"198.51.100.7", "a.example", "example.com", false},
		{"198.51.101.0", "host.example", "hosted.example", false},
		{"2001:db8:2::7", "host.example", "hosted.example", false},
		{"198.51.100.200", "two.example", "example.com", true},
		{"198.51.100.100", "two.example", "example.com", false},
	} {
		if got := w.May(netip.MustParseAddr(test.from), name(test.key), name(test.zone)); got != test.want {
			t.Errorf("%+v: %v", test, got)
		}
	}
	if err := w.Delete(t.Context(), "b"); err != nil || w.May(netip.MustParseAddr("192.0.2.2"), name("b.example"), name("example.com")) {
		t.Errorf("a deleted secondary may transfer: %v", err)
	}
	for n := range MaxSecondaries {
		s, err := Secondary{ID: fmt.Sprintf("n%d", n), Address: "10.0.0.1"}.Check(msg.English)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Save(t.Context(), s); err != nil && (n < MaxSecondaries-5 || err != ErrTooMany) {
			t.Errorf("secondary %d: %v", n, err)
		}
	}
}
