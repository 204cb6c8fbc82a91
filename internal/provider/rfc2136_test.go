package provider

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/secrets"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// testTTL is the TTL of the values that the tests add.
const testTTL = 60

func newClient(t testing.TB, addr, key, secret string) *RFC2136 {
	t.Helper()
	c, err := NewRFC2136(Credentials{AccessKeyID: key, AccessKeySecret: secrets.Secret(secret), Endpoint: addr})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func rightClient(t testing.TB, s servertest.Server) *RFC2136 {
	return newClient(t, s.Addr, servertest.Key, servertest.Secret)
}

// wantKind checks the kind and the text of a failure, which must not contain a secret.
func wantKind(t testing.TB, err error, kind Kind, words ...string) {
	t.Helper()
	t.Log(err)
	if err == nil {
		t.Errorf("no error, want %s", kind)
		return
	}
	if KindOf(err) != kind {
		t.Errorf("kind %s, want %s: %v", KindOf(err), kind, err)
	}
	text := fmt.Sprintf("%v %+v %#v %q", err, err, err, err)
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q does not say %q", err, w)
		}
	}
	for _, secret := range []string{servertest.Secret, servertest.Secret512, servertest.ReadOnly} {
		octets, _ := base64.StdEncoding.DecodeString(secret)
		for _, form := range []string{secret, string(octets), fmt.Sprintf("%x", octets), fmt.Sprint(octets)} {
			if strings.Contains(text, form) {
				t.Errorf("the secret is in %s", text)
			}
		}
	}
}

func read(t testing.TB, c *RFC2136, name string) RRset {
	t.Helper()
	set, err := c.Read(t.Context(), servertest.Zone, name, TXT)
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// change reads and changes a name, and fails the test when it cannot.
func change(t testing.TB, c *RFC2136, name string, add, remove []Value) {
	t.Helper()
	err := c.Change(t.Context(), Change{
		Zone: servertest.Zone, Name: name, Type: TXT, Seen: read(t, c, name), Add: add, Remove: remove, TTL: testTTL,
	})
	if err != nil {
		t.Fatal(err)
	}
}

// sorted gives values in a form that can be compared: each string quoted.
func sorted[V ~[]string](values []V) []string {
	var texts []string
	for _, v := range values {
		texts = append(texts, fmt.Sprintf("%q", []string(v)))
	}
	slices.Sort(texts)
	return texts
}

// wantValues checks the values at a name, as the client and any resolver read them.
func wantValues(t testing.TB, c *RFC2136, s servertest.Server, name string, want ...Value) {
	t.Helper()
	if got := sorted(read(t, c, name).Values); !slices.Equal(got, sorted(want)) {
		t.Errorf("read %q, want %q", got, sorted(want))
	}
	if got := sorted(s.Values(t, name)); !slices.Equal(got, sorted(want)) {
		t.Errorf("public %q, want %q", got, sorted(want))
	}
}

func TestRFC2136LetterCase(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		c := rightClient(t, s)
		zone, err := c.Zone(t.Context(), "_mesh.OFFICE.Example.COM.")
		if err != nil || zone != servertest.Zone {
			t.Fatalf("zone %q, %v", zone, err)
		}
		change(t, c, "_mesh.Office.example.com", []Value{{"Value"}}, nil)
		change(t, c, "_MESH.office.EXAMPLE.com", []Value{{"value"}}, nil)
		wantValues(t, c, s, "_mesh.oFFICE.example.com", Value{"Value"}, Value{"value"})
		if s.Name == "PowerDNS" {
			// It compares values without case and finds each twice, so this set
			// can never be the one that a change expects: nothing is changed.
			err := c.Change(t.Context(), Change{Zone: zone, Name: "_mesh.office.example.com", Type: TXT, Seen: read(t, c, "_mesh.office.example.com"), Remove: []Value{{"Value"}}})
			wantKind(t, err, Changed)
			wantValues(t, c, s, "_mesh.office.example.com", Value{"Value"}, Value{"value"})
			return
		}
		change(t, c, "_mesh.office.example.com", nil, []Value{{"Value"}})
		wantValues(t, c, s, "_mesh.office.example.com", Value{"value"})
	})
}

func TestRFC2136Changed(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		c, name := rightClient(t, s), "moved.example.com"
		s.Update(t, "add "+name+` 60 TXT "one"`, "add "+name+` 60 TXT "two"`)
		for _, seen := range [][]Value{nil, {{"one"}}, {{"one"}, {"two"}, {"three"}}, {{"one"}, {"t", "wo"}}} {
			for _, add := range [][]Value{nil, {{"ours"}}} {
				err := c.Change(t.Context(), Change{
					Zone: servertest.Zone, Name: name, Type: TXT, Seen: RRset{Values: seen}, Add: add, Remove: []Value{{"one"}}, TTL: testTTL,
				})
				wantKind(t, err, Changed, name, s.Addr)
			}
		}
		wantValues(t, c, s, name, Value{"one"}, Value{"two"})
		err := c.Change(t.Context(), Change{Zone: servertest.Zone, Name: "none.example.com", Type: TXT, Seen: RRset{Values: []Value{{"one"}}}})
		wantKind(t, err, Changed)
	})
}

// TestRFC2136Wildcard publishes below wildcards, whose values and aliases seem to be at every name
// without a record.
func TestRFC2136Wildcard(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		c := rightClient(t, s)
		for _, name := range []string{"a.wild.example.com", "_mesh.b.wild.example.com", "a.detour.example.com", "_mesh.b.detour.example.com"} {
			if set := read(t, c, name); len(set.Values) > 0 {
				t.Errorf("%s has %q, want nothing", name, set.Values)
			}
			change(t, c, name, []Value{{"ours"}}, nil)
			wantValues(t, c, s, name, Value{"ours"})
			change(t, c, name, []Value{{"more"}}, nil)
			change(t, c, name, nil, []Value{{"ours"}})
			wantValues(t, c, s, name, Value{"more"})
		}
		if got := s.TXT(t, "any.wild.example.com"); !slices.Equal(got, []string{`"from a wildcard"`}) {
			t.Errorf("the wildcard gives %q", got)
		}
	})
}

// counted forwards everything to a server, and counts the questions: UDP datagrams and TCP connections.
func counted(t *testing.T, server string) (address string, count *atomic.Int64) {
	t.Helper()
	return relayCounted(t, server, func(answer []byte) []byte { return answer })
}

func relayCounted(t *testing.T, server string, spoil func(answer []byte) []byte) (address string, count *atomic.Int64) {
	t.Helper()
	count = new(atomic.Int64)
	return relay(t, server, spoil, count), count
}

// TestRFC2136Neighbour counts the questions that tell a wildcard's answers.
func TestRFC2136Neighbour(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		address, count := counted(t, s.Addr)
		c := newClient(t, address, servertest.Key, servertest.Secret)
		for _, name := range []string{"a.wild.example.com", "B.wild.example.com", "c.WILD.example.com"} {
			if set := read(t, c, name); len(set.Values) > 0 {
				t.Errorf("%s has %q, want nothing", name, set.Values)
			}
		}
		if got := count.Load(); got != 4 {
			t.Errorf("%d questions for three names and their neighbour", got)
		}
		// The neighbours of a.b.wild lose the wildcard with its first value.
		name, same := "a.b.wild.example.com", Value{"from a wildcard"}
		change(t, c, name, []Value{same}, nil)
		wantValues(t, c, s, name, same)
		count.Store(0)
		for range 3 {
			read(t, c, name)
		}
		if got := count.Load(); got != 3 {
			t.Errorf("%d questions for one name whose neighbours are known", got)
		}
		s.Update(t, "delete "+name+" TXT", "add e.b.wild.example.com 60 TXT e")
		err := c.Change(t.Context(), Change{Zone: servertest.Zone, Name: name, Type: TXT, Seen: RRset{Values: []Value{same}}})
		wantKind(t, err, Changed)
		wantValues(t, c, s, name)
	})
}

// keyCase is a key, and the servers' answers to it. If a server checks the key by its policy alone, a
// query succeeds.
type keyCase struct {
	name, key, secret string
	ahead             time.Duration // of this host's clock
	query, update     map[string]Kind
}

func keyCases() []keyCase {
	all := func(bind, knot, powerDNS Kind) map[string]Kind {
		return map[string]Kind{"BIND": bind, "Knot": knot, "PowerDNS": powerDNS}
	}
	// PowerDNS does not tell why it refuses a key.
	bad, badUpdate := all(BadCredentials, BadCredentials, BadCredentials), all(BadCredentials, BadCredentials, Permission)
	late, lateUpdate := all(ClockSkew, ClockSkew, BadCredentials), all(ClockSkew, ClockSkew, Permission)
	return []keyCase{
		{name: "right", key: servertest.Key, secret: servertest.Secret},
		{name: "right, spelt otherwise", key: "HMAC-SHA256:MESH-Key.", secret: servertest.Secret},
		{name: "sha512", key: servertest.Key512, secret: servertest.Secret512},
		{name: "clock 250 s ahead", key: servertest.Key, secret: servertest.Secret, ahead: 250 * time.Second},
		{name: "wrong secret", key: servertest.Key, secret: servertest.Secret512, query: bad, update: badUpdate},
		{name: "unknown", key: "stranger", secret: servertest.Secret, query: bad, update: badUpdate},
		{name: "other algorithm", key: "hmac-sha512:" + servertest.Key, secret: servertest.Secret, query: bad, update: badUpdate},
		{name: "without rights", key: servertest.ReadOnlyKey, secret: servertest.ReadOnly,
			query: all("", BadCredentials, ""), update: all(Permission, BadCredentials, Permission)},
		{name: "clock ahead", key: servertest.Key, secret: servertest.Secret, ahead: 1000 * time.Second, query: late, update: lateUpdate},
		{name: "clock behind", key: servertest.Key, secret: servertest.Secret, ahead: -1000 * time.Second, query: late, update: lateUpdate},
	}
}

func TestRFC2136Keys(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		serial := s.Serial(t)
		for _, k := range keyCases() {
			t.Run(k.name, func(t *testing.T) {
				c := newClient(t, s.Addr, k.key, k.secret)
				c.now = func() time.Time { return time.Now().Add(k.ahead) }
				testKey(t, c, s, k)
			})
		}
		if s.Serial(t) != serial {
			t.Errorf("serial %q, was %q: something was changed", s.Serial(t), serial)
		}
	})
}

func testKey(t *testing.T, c *RFC2136, s servertest.Server, k keyCase) {
	check := func(err error, kind Kind) {
		t.Helper()
		if kind == "" && err != nil {
			t.Error(err)
		}
		if kind != "" {
			wantKind(t, err, kind, "example.com", s.Addr)
		}
		if kind == ClockSkew {
			wantSkew(t, err, -int(k.ahead.Seconds()))
		}
	}
	_, err := c.Zone(t.Context(), "_mesh.a.example.com")
	check(err, k.query[s.Name])
	_, err = c.Read(t.Context(), servertest.Zone, "keep.example.com", TXT)
	check(err, k.query[s.Name])
	// A change of nothing proves the rights, at a name with records and at one without.
	err = c.Change(t.Context(), Change{Type: TXT, Zone: servertest.Zone, Name: "_mesh.a.example.com"})
	check(err, k.update[s.Name])
	seen := RRset{Values: []Value{{"existing value"}}}
	err = c.Change(t.Context(), Change{Zone: servertest.Zone, Name: "keep.example.com", Type: TXT, Seen: seen})
	check(err, k.update[s.Name])
	if k.update != nil {
		err = c.Change(t.Context(), Change{Zone: servertest.Zone, Name: "_mesh.a.example.com", Type: TXT, Add: []Value{{"ours"}}, TTL: testTTL})
		check(err, k.update[s.Name])
	}
}

// wantSkew checks the difference of the clocks, which the time of the call itself changes a little.
func wantSkew(t *testing.T, err error, seconds int) {
	t.Helper()
	var difference int
	_, words, _ := strings.Cut(err.Error(), "server's time minus ours is ")
	if _, err := fmt.Sscanf(words, "%d s", &difference); err != nil || max(seconds-difference, difference-seconds) > 30 {
		t.Errorf("clock difference %d (%v), want %d", difference, err, seconds)
	}
}

func TestRFC2136Outside(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		c := rightClient(t, s)
		add := []Value{{"ours"}}
		for _, ch := range []Change{
			{Zone: "example.com", Name: "a.example.org", Type: TXT, Add: add},
			{Type: TXT, Zone: "example.com", Name: "a.example.org"},
			{Zone: "example.com", Name: "notexample.com", Type: TXT, Add: add},
		} {
			wantKind(t, c.Change(t.Context(), ch), Invalid, "outside the zone", ch.Name, ch.Zone)
		}
		for _, ch := range []Change{
			{Zone: "example.org", Name: "a.example.org", Type: TXT, Add: add},
			{Zone: "a.example.com", Name: "b.a.example.com", Type: TXT, Add: add},
			{Type: TXT, Zone: "com", Name: "keep.example.com"},
		} {
			wantKind(t, c.Change(t.Context(), ch), ZoneNotFound, "NOTAUTH", ch.Name, ch.Zone)
		}
		_, err := c.Read(t.Context(), "example.org", "a.example.org", TXT)
		wantKind(t, err, ZoneNotFound, "no such zone")
	})
}

func TestRFC2136InvalidValues(t *testing.T) {
	c := newClient(t, support.FreeAddress(t), servertest.Key, servertest.Secret)
	long := Value{strings.Repeat("x", 256)}
	huge := make([]Value, 300)
	for n := range huge {
		huge[n] = Value{fmt.Sprintf("%03d%s", n, strings.Repeat("x", 250))}
	}
	for name, ch := range map[string]Change{
		"no string":        {Zone: "example.com", Name: "a.example.com", Type: TXT, Add: []Value{{}}},
		"long string":      {Zone: "example.com", Name: "a.example.com", Type: TXT, Add: []Value{long}},
		"long seen":        {Zone: "example.com", Name: "a.example.com", Type: TXT, Seen: RRset{Values: []Value{long}}},
		"no string to go":  {Zone: "example.com", Name: "a.example.com", Type: TXT, Remove: []Value{{}}},
		"too much":         {Zone: "example.com", Name: "a.example.com", Type: TXT, Add: huge},
		"no name":          {Type: TXT, Zone: "example.com"},
		"no zone":          {Type: TXT, Name: "a.example.com"},
		"name not a name":  {Type: TXT, Zone: "example.com", Name: "a..example.com"},
		"one value 64 KiB": {Zone: "example.com", Name: "a.example.com", Type: TXT, Add: []Value{slices.Repeat(Value{strings.Repeat("x", 255)}, 257)}},
	} {
		t.Run(name, func(t *testing.T) { wantKind(t, c.Change(t.Context(), ch), Invalid) })
	}
}

func TestNewRFC2136(t *testing.T) {
	for endpoint, want := range map[string]string{
		"192.0.2.1":               "192.0.2.1:53",
		"192.0.2.1:5353":          "192.0.2.1:5353",
		"ns1.example.com":         "ns1.example.com:53",
		"ns1.example.com.:54":     "ns1.example.com.:54",
		"ns_1":                    "ns_1:53",
		"2001:db8::1":             "[2001:db8::1]:53",
		"[2001:db8::1]":           "[2001:db8::1]:53",
		"[2001:db8::1]:5353":      "[2001:db8::1]:5353",
		"fe80::1%eth0":            "[fe80::1%eth0]:53",
		"":                        "",
		"ns1.example.com:":        "",
		"ns1.example.com:0":       "",
		"ns1.example.com:65536":   "",
		"ns1.example.com:domain":  "",
		":53":                     "",
		"[]":                      "",
		".":                       "",
		"a..b":                    "",
		"2001:db8::1:2:3:4:5:6:7": "",
		"dns://ns1.example.com":   "",
		"ns1.example.com/zone":    "",
		"two words":               "",
	} {
		c, err := NewRFC2136(Credentials{AccessKeyID: servertest.Key, AccessKeySecret: servertest.Secret, Endpoint: endpoint})
		if want == "" {
			wantKind(t, err, Invalid, "endpoint")
		} else if err != nil || c.server != want {
			t.Errorf("endpoint %q: %+v, %v; want %q", endpoint, c, err, want)
		}
	}
	for _, k := range [][2]string{
		{"", servertest.Secret}, {"md17:key", servertest.Secret}, {"a..b", servertest.Secret}, {servertest.Key, ""},
		{servertest.Key, "not base64 " + servertest.Secret}, {servertest.Key, servertest.Secret[1:]},
	} {
		_, err := NewRFC2136(Credentials{AccessKeyID: k[0], AccessKeySecret: secrets.Secret(k[1]), Endpoint: "192.0.2.1"})
		wantKind(t, err, Invalid)
		if k[1] != "" && strings.Contains(err.Error(), k[1]) {
			t.Errorf("the secret is in %q", err)
		}
	}
}

// relay stands between the client and a server and spoils answers. An answer
// that spoil gives as nil is not sent; the TCP connection is then closed.
func relay(t *testing.T, server string, spoil func(answer []byte) []byte, counts ...*atomic.Int64) string {
	t.Helper()
	var known sync.Map // a datagram that is sent again, because the answer takes long, is not another question
	count := func() {
		for _, c := range counts {
			c.Add(1)
		}
	}
	return servertest.Listen(t, func(conn net.Conn) {
		count()
		relayTCP(conn, server, spoil)
	}, func(query []byte) []byte {
		if _, again := known.LoadOrStore(string(query), true); !again {
			count()
		}
		answer, err := dns.Exchange(context.Background(), server, query)
		if err != nil {
			return nil
		}
		return spoil(answer)
	})
}

func relayTCP(conn net.Conn, server string, spoil func(answer []byte) []byte) {
	query, err := dns.ReadTCP(conn)
	if err != nil {
		return
	}
	up, err := net.Dial("tcp", server)
	if err != nil {
		return
	}
	defer up.Close()
	go func() {
		io.Copy(io.Discard, conn) // until the client closes
		up.Close()
	}()
	dns.WriteTCP(up, query)
	for answer, err := dns.ReadTCP(up); err == nil; answer, err = dns.ReadTCP(up) {
		if answer = spoil(answer); answer == nil {
			return
		}
		dns.WriteTCP(conn, answer)
	}
}

// unsigned drops the TSIG record.
func unsigned(answer []byte) []byte {
	m, err := dns.ParseMessage(answer)
	if err != nil {
		return nil
	}
	m.Additional = slices.DeleteFunc(m.Additional, func(rr dns.RR) bool { return rr.Type == dns.TypeTSIG })
	return m.Pack()
}

// flip changes the answer's bits from at on, counted from the end when negative.
func flip(at int, bits byte) func([]byte) []byte {
	return func(answer []byte) []byte {
		answer = slices.Clone(answer)
		answer[(at+len(answer))%len(answer)] ^= bits
		return answer
	}
}

// The last octets of a message are those of a TSIG record: the end of the
// MAC, the original ID, the error and the length of other data.
const (
	lastOfMAC = -7
	lowOfID   = 1
	lowOfCode = 3
)

func TestRFC2136SpoiledAnswers(t *testing.T) {
	s := servertest.BIND(t)
	for _, test := range []struct {
		name          string
		spoil         func([]byte) []byte
		query, update Kind
	}{
		{"as it is", func(answer []byte) []byte { return answer }, "", ""},
		{"unsigned", unsigned, BadAnswer, BadAnswer},
		{"a bit of the MAC", flip(lastOfMAC, 1), BadAnswer, BadAnswer},
		{"a bit of the rcode", flip(lowOfCode, 5), BadAnswer, BadAnswer},
		{"cut short", func(answer []byte) []byte { return answer[:len(answer)-1] }, BadAnswer, BadAnswer},
		{"unsigned NXDOMAIN", func(answer []byte) []byte { return unsigned(flip(lowOfCode, 3)(answer)) }, BadAnswer, Changed},
		{"unsigned SERVFAIL", func(answer []byte) []byte { return unsigned(flip(lowOfCode, 2)(answer)) }, Temporary, Temporary},
		{"unsigned NOTIMP", func(answer []byte) []byte { return unsigned(flip(lowOfCode, 4)(answer)) }, Invalid, Invalid},
		{"unsigned, no such code", func(answer []byte) []byte { return unsigned(flip(lowOfCode, 15)(answer)) }, BadAnswer, BadAnswer},
	} {
		t.Run(test.name, func(t *testing.T) {
			c := newClient(t, relay(t, s.Addr, test.spoil), servertest.Key, servertest.Secret)
			_, err := c.Read(t.Context(), servertest.Zone, "keep.example.com", TXT)
			wantOutcome(t, err, test.query)
			err = c.Change(t.Context(), Change{Type: TXT, Zone: servertest.Zone, Name: "_mesh.a.example.com"})
			wantOutcome(t, err, test.update)
		})
	}
}

func wantOutcome(t *testing.T, err error, kind Kind) {
	t.Helper()
	if kind != "" {
		wantKind(t, err, kind, "example.com")
	} else if err != nil {
		t.Error(err)
	}
}

// TestRFC2136LostAnswer makes a change without an answer: only a read tells that it was made.
func TestRFC2136LostAnswer(t *testing.T) {
	t.Parallel()
	s := servertest.BIND(t)
	name := "lost.example.com"
	c := newClient(t, relay(t, s.Addr, func([]byte) []byte { return nil }), servertest.Key, servertest.Secret)
	err := c.Change(t.Context(), Change{Zone: servertest.Zone, Name: name, Type: TXT, Add: []Value{{"ours"}}, TTL: testTTL})
	wantKind(t, err, Network, name)
	wantValues(t, rightClient(t, s), s, name, Value{"ours"})
}

func TestRFC2136Network(t *testing.T) {
	s := servertest.BIND(t)
	add := Change{Zone: servertest.Zone, Name: "a.example.com", Type: TXT, Add: []Value{{"ours"}}, TTL: testTTL}
	t.Run("refused", func(t *testing.T) {
		c := newClient(t, support.FreeAddress(t), servertest.Key, servertest.Secret)
		_, err := c.Zone(t.Context(), "a.example.com")
		wantKind(t, err, Network, "refused")
		wantKind(t, c.Change(t.Context(), add), Network, "refused")
	})
	t.Run("no such host", func(t *testing.T) {
		c := newClient(t, "ns1.invalid:53", servertest.Key, servertest.Secret)
		_, err := c.Zone(t.Context(), "a.example.com")
		wantKind(t, err, Network, "ns1.invalid")
		wantKind(t, c.Change(t.Context(), add), Network, "ns1.invalid")
	})
	t.Run("another ID", func(t *testing.T) {
		c := newClient(t, relay(t, s.Addr, flip(lowOfID, 1)), servertest.Key, servertest.Secret)
		wantKind(t, c.Change(t.Context(), add), BadAnswer)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := c.Read(ctx, servertest.Zone, "a.example.com", TXT)
		wantKind(t, err, Network)
	})
	t.Run("cancelled", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := rightClient(t, s).Read(ctx, servertest.Zone, "a.example.com", TXT)
		wantKind(t, err, Network)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v is not context.Canceled", err)
		}
	})
}

// TestRFC2136BadStream has servers that accept a connection and then answer
// with something that is no message.
func TestRFC2136BadStream(t *testing.T) {
	for name, test := range map[string]struct {
		write string
		close bool
		kind  Kind
	}{
		"silence":              {"", false, Network},
		"half a length":        {"\x00", true, Network},
		"closed halfway":       {"\x00\x64half of what was said", true, Network},
		"stopped halfway":      {"\x00\x64half of what was said", false, Network},
		"garbage":              {"\x00\x07garbage", true, BadAnswer},
		"garbage of some size": {"\x00\x40" + strings.Repeat("garbage!", 8), true, BadAnswer},
		"empty message":        {"\x00\x00", true, BadAnswer},
		"another protocol":     {"HTTP/1.1 400 Bad Request\r\n\r\n", true, Network},
	} {
		t.Run(name, func(t *testing.T) {
			c := newClient(t, stream(t, test.write, test.close), servertest.Key, servertest.Secret)
			limit := support.Limit
			if !test.close {
				limit = 200 * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			err := c.Change(ctx, Change{Type: TXT, Zone: servertest.Zone, Name: "a.example.com"})
			wantKind(t, err, test.kind, "a.example.com")
			if !test.close && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%v is not context.DeadlineExceeded", err)
			}
		})
	}
}

// stream writes one text on each connection, once it has read a message.
func stream(t *testing.T, text string, closes bool) string {
	t.Helper()
	return servertest.Listen(t, func(conn net.Conn) {
		dns.ReadTCP(conn)
		io.WriteString(conn, text)
		if !closes {
			io.Copy(io.Discard, conn) // until the client gives up
		}
	}, nil)
}

// TestRFC2136Message reads an update as the server would.
func TestRFC2136Message(t *testing.T) {
	m, err := updateMessage(Change{
		Zone: "example.com", Name: "a.example.com", Type: TXT, Seen: RRset{TTL: 300, Values: []Value{{"old"}, {"a", "b"}}},
		Add: []Value{{"new"}, {"both"}}, Remove: []Value{{"old"}, {"both"}}, TTL: testTTL,
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, rr := range slices.Concat(m.Answers, m.Authority) {
		got = append(got, fmt.Sprintf("%s %d %d %d %q", rr.Name, rr.Class, rr.Type, rr.TTL, rr.Data))
	}
	want := []string{
		`a.example.com. 254 5 0 ""`,
		`a.example.com. 1 16 0 "\x03old"`,
		`a.example.com. 1 16 0 "\x01a\x01b"`,
		`a.example.com. 254 16 0 "\x03old"`,
		`a.example.com. 254 16 0 "\x04both"`,
		`a.example.com. 1 16 60 "\x03new"`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q\nwant %q", got, want)
	}
	if opcode := binary.BigEndian.Uint16(m.Pack()[2:]) >> 11; opcode != uint16(dns.OpcodeUpdate) {
		t.Errorf("opcode %d", opcode)
	}
}
