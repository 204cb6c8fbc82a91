package reconcile

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/provider"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// publicAt makes a public DNS whose only resolver is a server's address.
func publicAt(t *testing.T, address string) Public {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return Public{Port: port, Root: servertest.Zone, Patience: time.Second, Resolver: servertest.Resolver(address)}
}

func TestDelegated(t *testing.T) {
	s := servertest.BIND(t)
	public, nobody := publicAt(t, s.Addr), publicAt(t, support.FreeAddress(t))
	closed := public
	closed.Root = "root-of-another-world." + servertest.Zone
	for _, test := range []struct {
		name    string
		public  Public
		zone    string
		servers []string
		want    provider.Kind
	}{
		{"servers not told", public, servertest.Zone, nil, ""},
		{"the same server", public, servertest.Zone, []string{"NS1.Example.COM.", "ns2.example.net"}, ""},
		{"other servers", public, servertest.Zone, []string{"dns1.example.net"}, NotDelegated},
		{"no such zone", public, "nowhere." + servertest.Zone, nil, NotDelegated},
		{"a name without name servers", public, "keep." + servertest.Zone, nil, NotDelegated},
		{"a resolver that knows no root", closed, "nowhere." + servertest.Zone, nil, NoResolver},
		{"servers that do not answer for it", public, "example.org", nil, NotDelegated},
		{"no resolver", nobody, servertest.Zone, nil, NoResolver},
	} {
		if err := test.public.delegated(t.Context(), test.zone, test.servers); provider.KindOf(err) != test.want {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

func TestSees(t *testing.T) {
	s := servertest.BIND(t)
	public, nobody := publicAt(t, s.Addr), publicAt(t, support.FreeAddress(t))
	value := provider.Value{"existing value"}
	see := func(p Public, a provider.Authority, zone, name string, v provider.Value) provider.Kind {
		ctx, cancel := context.WithTimeout(t.Context(), support.Limit)
		defer cancel()
		return provider.KindOf(p.sees(ctx, a, zone, name, v))
	}
	for _, test := range []struct {
		name      string
		public    Public
		authority provider.Authority
		zone      string
		value     provider.Value
		want      provider.Kind
	}{
		{"by delegation", public, provider.Authority{}, servertest.Zone, value, ""},
		{"at the server", nobody, provider.Authority{Server: s.Addr}, servertest.Zone, value, ""},
		{"another value", public, provider.Authority{}, servertest.Zone, provider.Value{"another"}, ValueMissing},
		{"not delegated", public, provider.Authority{}, "keep." + servertest.Zone, value, NotDelegated},
		{"no resolver", nobody, provider.Authority{}, servertest.Zone, value, NoResolver},
	} {
		if test.public.Patience = support.Limit; test.want == ValueMissing {
			test.public.Patience = 2 * lookupTime // is waited for
		}
		if got := see(test.public, test.authority, test.zone, "keep."+servertest.Zone, test.value); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestSeesLate has the value come when somebody already waits for it.
func TestSeesLate(t *testing.T) {
	s := servertest.BIND(t)
	public := publicAt(t, s.Addr)
	public.Patience = support.Limit
	waits := make(chan struct{})
	dial := public.Resolver.Dial
	var once bool
	public.Resolver.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		if !once {
			once = true
			close(waits)
		}
		return dial(ctx, network, address)
	}
	seen := make(chan error, 1)
	go func() {
		seen <- public.sees(t.Context(), provider.Authority{}, servertest.Zone, "late."+servertest.Zone, provider.Value{"late"})
	}()
	<-waits
	s.Add(t, "late."+servertest.Zone, []string{"late"})
	if err := <-seen; err != nil {
		t.Error(err)
	}
}

// TestSeesBesideSilence has a server that says nothing before one that answers.
func TestSeesBesideSilence(t *testing.T) {
	silent, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	servers := []string{silent.LocalAddr().String(), servertest.BIND(t).Addr}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	sees := func(text string) func(context.Context, string) error {
		return func(ctx context.Context, server string) error {
			set, _, err := ask(ctx, server, "keep."+servertest.Zone, dns.TypeTXT, dns.ParseTXT)
			return see(set, provider.Value{text}, err)
		}
	}
	if err := anyOf(ctx, servers, sees("existing value")); err != nil {
		t.Error(err)
	}
	if err := anyOf(ctx, servers[1:], sees("another")); provider.KindOf(err) != ValueMissing {
		t.Error(err)
	}
}

// failing is a client whose calls fail as they are told to.
type failing struct{ zone, read, change error }

func (f failing) Zone(context.Context, string) (string, error) { return "example.com", f.zone }

func (f failing) Types() []provider.Type { return nil }

func (f failing) Read(context.Context, string, string, provider.Type) (provider.RRset, error) {
	return provider.RRset{}, f.read
}

func (f failing) Change(context.Context, provider.Change) error { return f.change }

func (f failing) Authority(context.Context, string) (provider.Authority, error) {
	return provider.Authority{Server: "127.0.0.1:1"}, nil
}

// TestCulprit has each call fail in each way: the kind and the call tell which
// item it is about.
func TestCulprit(t *testing.T) {
	const ok = ""
	for _, test := range []struct {
		kind               provider.Kind
		zone, read, change string // the item that fails
	}{
		{provider.Network, "network", "network", "network"},
		{provider.Throttled, "network", "network", "network"},
		{provider.BadAnswer, "network", "network", "network"},
		{provider.BadCredentials, "auth", "auth", "auth"},
		{provider.ClockSkew, "auth", "auth", "auth"},
		{provider.Permission, "auth", "auth", "auth"},
		{provider.ZoneNotFound, "zone", "zone", "zone"},
		{provider.Invalid, "zone", "record", "record"},
		{provider.Quota, "zone", "record", "record"},
		{provider.Conflict, "zone", "record", "record"},
		{provider.Changed, "network", "network", ok}, // somebody else writes: the key was accepted
	} {
		err := &provider.Error{Kind: test.kind}
		for want, client := range map[*string]failing{&test.zone: {zone: err}, &test.read: {read: err}, &test.change: {change: err}} {
			connected := &Probe{}
			connected.Connect(t.Context(), client, "example.com", "example.com")
			got := ok
			for _, item := range connected.Items {
				if item.Err != nil {
					got = item.Name
				}
			}
			if got != *want {
				t.Errorf("%s of %+v: item %q, want %q", test.kind, client, got, *want)
			}
		}
	}
}

// cutting is a client of a zone that delegates a part of it.
type cutting struct{ failing }

func (cutting) Delegated(_ context.Context, _, domain string) (string, error) { return domain, nil }

// TestBelowDelegation: the record fails where no resolver would see it.
func TestBelowDelegation(t *testing.T) {
	connected := &Probe{}
	connected.Connect(t.Context(), cutting{}, "mesh.example.com", "mesh.example.com")
	if last := connected.Items[len(connected.Items)-1]; last.Name != "record" || provider.KindOf(last.Err) != provider.Conflict {
		t.Errorf("%+v", connected.Items)
	}
}

// TestUnknownStep has a step that cannot say anything: the next are made.
func TestUnknownStep(t *testing.T) {
	test := &Probe{}
	test.Step("unknown", func() error { return &provider.Error{Kind: NoResolver} })
	test.Step("next", func() error { return nil })
	test.Step("fails", func() error { return &provider.Error{Kind: provider.Network} })
	test.Step("last", func() error { t.Error("made"); return nil })
	want := []ProbeItem{{Name: "unknown", Skipped: true}, {Name: "next"}, {Name: "fails"}, {Name: "last", Skipped: true}}
	for i, item := range test.Items {
		if item.Name != want[i].Name || item.Skipped != want[i].Skipped {
			t.Errorf("%+v, want %+v", item, want[i])
		}
	}
}

// pages is a journal in memory.
type pages struct{ added, ended []ProbeRecord }

func (j *pages) Add(_ context.Context, p ProbeRecord) error { j.added = append(j.added, p); return nil }
func (j *pages) End(_ context.Context, p ProbeRecord) error { j.ended = append(j.ended, p); return nil }

// once is a client whose provider fails to write, and keeps the value or not.
type once struct {
	late
	err  error
	made bool
}

func (o *once) Change(ctx context.Context, c provider.Change) error {
	if len(c.Add) > 0 && !o.made {
		return o.err
	}
	o.late.Change(ctx, c)
	if len(c.Add) > 0 {
		return o.err
	}
	return nil
}

func (o *once) Authority(context.Context, string) (provider.Authority, error) {
	return provider.Authority{Server: "127.0.0.1:1"}, nil
}

// TestJournal has the journal know of a probe before it is written, and forget it only
// when nothing of it can come any more.
func TestJournal(t *testing.T) {
	lost, refused := &provider.Error{Kind: provider.Network}, &provider.Error{Kind: provider.Quota, Unmade: true}
	for name, c := range map[string]struct {
		client provider.DNS
		ended  bool
	}{
		"written":              {&once{made: true}, true},
		"made, answer lost":    {&once{made: true, err: lost}, true},
		"not there after that": {&once{err: lost}, false},
		"refused":              {&once{err: refused}, true},
		"never shown":          {&once{late: late{looks: 1 << 30}, made: true, err: lost}, false},
		"no zone":              {failing{zone: refused}, false},
		"hidden, not written":  {failing{read: &provider.Error{Kind: provider.Conflict}}, false},
	} {
		journal := &pages{}
		test := &Probe{Owner: "5f0c2a91d3be", Journal: journal}
		test.Write(t.Context(), c.client, "example.com", 60)
		if begun := name != "no zone" && name != "hidden, not written"; begun != (len(journal.added) == 1) || c.ended != (len(journal.ended) == 1) {
			t.Errorf("%s: %+v", name, journal)
		}
	}
}

// late is a client whose provider shows what it has taken after some looks.
type late struct {
	failing
	value provider.Value
	looks int
}

func (l *late) Read(context.Context, string, string, provider.Type) (set provider.RRset, _ error) {
	if l.looks--; l.looks < 0 && l.value != nil {
		set.Values = []provider.Value{l.value}
	}
	return set, nil
}

func (l *late) Change(_ context.Context, c provider.Change) error {
	if len(c.Add) > 0 {
		l.value = c.Add[0]
		return &provider.Error{Kind: provider.Temporary, Err: provider.ErrUnseen}
	}
	l.value = nil
	return nil
}

// TestCleanUpLate has the value of the test come when the write has failed.
func TestCleanUpLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := &late{looks: 10}
		test := &Probe{Journal: &pages{}}
		test.Write(t.Context(), client, "example.com", 60)
		if last := test.Items[len(test.Items)-1]; last.Name != "cleanup" || last.Err != nil || client.value != nil {
			t.Errorf("%+v, and %q is left", last, client.value)
		}
		client = &late{looks: 1 << 30}
		test = &Probe{Journal: &pages{}}
		test.Write(t.Context(), client, "example.com", 60)
		if last := test.Items[len(test.Items)-1]; provider.KindOf(last.Err) != provider.Temporary {
			t.Errorf("%+v, want that it may still be there", last)
		}
	})
}

// flaky is a client whose provider breaks connections, or gives answers that are not whole,
// for a while after the write.
type flaky struct {
	late
	broken int
	kind   provider.Kind
}

func (f *flaky) Change(ctx context.Context, c provider.Change) error {
	if len(c.Remove) > 0 {
		if f.broken--; f.broken >= 0 {
			return &provider.Error{Kind: f.kind}
		}
	}
	return f.late.Change(ctx, c)
}

// mute is a client whose provider refuses once to take the value away, and then says
// nothing any more.
type mute struct {
	late
	asked bool
}

func (m *mute) Change(ctx context.Context, c provider.Change) error {
	switch {
	case len(c.Add) > 0:
		return m.late.Change(ctx, c)
	case !m.asked:
		m.asked = true
		return &provider.Error{Kind: provider.Temporary, Detail: "disk full"}
	}
	<-ctx.Done()
	return &provider.Error{Kind: provider.Network, Err: ctx.Err()}
}

// TestCleanUpSaysWhy has the time end in the middle of a try: what the provider has said
// before is the reason.
func TestCleanUpSaysWhy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test := &Probe{Journal: &pages{}}
		test.Write(t.Context(), &mute{}, "example.com", 60)
		last := test.Items[len(test.Items)-1]
		if e, ok := errors.AsType[*provider.Error](last.Err); !ok || last.Name != "cleanup" || e.Detail != "disk full" {
			t.Errorf("%+v", last)
		}
	})
}

// TestCleanUpAgain has the clean-up fail as often as it may: the value goes, or the
// item says that it stays.
func TestCleanUpAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, fault := range []provider.Kind{provider.Network, provider.BadAnswer} {
			for broken, kind := range map[int]provider.Kind{3: "", 1 << 30: fault} {
				client := &flaky{broken: broken, kind: fault}
				test := &Probe{Journal: &pages{}}
				test.Write(t.Context(), client, "example.com", 60)
				last := test.Items[len(test.Items)-1]
				if left := client.value != nil; last.Name != "cleanup" || provider.KindOf(last.Err) != kind || left != (kind != "") {
					t.Errorf("%s %d times: %+v, and %q is left", fault, broken, last, client.value)
				}
			}
		}
	})
}
