package conntest

import (
	"context"
	"net"
	"testing"
	"time"

	"meshddns/provider"
	"meshddns/provider/servertest"
)

// publicAt makes a public DNS whose only resolver is a server's address.
func publicAt(t *testing.T, address string) Public {
	t.Helper()
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	return Public{Port: port, Root: servertest.Zone, Patience: time.Second, Resolver: &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}}
}

func closedPort(t *testing.T) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	return conn.LocalAddr().String()
}

func TestDelegated(t *testing.T) {
	s := servertest.BIND(t)
	public, nobody := publicAt(t, s.Addr), publicAt(t, closedPort(t))
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
		{"refused", public, "example.org", nil, NoResolver},
		{"no resolver", nobody, servertest.Zone, nil, NoResolver},
	} {
		if err := test.public.delegated(t.Context(), test.zone, test.servers); provider.KindOf(err) != test.want {
			t.Errorf("%s: %v, want %q", test.name, err, test.want)
		}
	}
}

func TestSees(t *testing.T) {
	s := servertest.BIND(t)
	public, nobody := publicAt(t, s.Addr), publicAt(t, closedPort(t))
	value := provider.TXT{"existing value"}
	see := func(p Public, a provider.Authority, zone, name string, v provider.TXT) provider.Kind {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		return provider.KindOf(p.sees(ctx, a, zone, name, v))
	}
	for _, test := range []struct {
		name      string
		public    Public
		authority provider.Authority
		zone      string
		value     provider.TXT
		want      provider.Kind
	}{
		{"by delegation", public, provider.Authority{}, servertest.Zone, value, ""},
		{"at the server", nobody, provider.Authority{Server: s.Addr}, servertest.Zone, value, ""},
		{"another value", public, provider.Authority{}, servertest.Zone, provider.TXT{"another"}, ValueMissing},
		{"not delegated", public, provider.Authority{}, "keep." + servertest.Zone, value, NotDelegated},
		{"no resolver", nobody, provider.Authority{}, servertest.Zone, value, NoResolver},
	} {
		if got := see(test.public, test.authority, test.zone, "keep."+servertest.Zone, test.value); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// TestSeesLate has the value come when somebody already waits for it.
func TestSeesLate(t *testing.T) {
	s := servertest.BIND(t)
	public := publicAt(t, s.Addr)
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
		seen <- public.sees(t.Context(), provider.Authority{}, servertest.Zone, "late."+servertest.Zone, provider.TXT{"late"})
	}()
	<-waits
	s.Add(t, "late."+servertest.Zone, []string{"late"})
	if err := <-seen; err != nil {
		t.Error(err)
	}
}

// TestUnknownStep has a step that cannot say anything: the next are made.
func TestUnknownStep(t *testing.T) {
	test := &Test{}
	test.Step("unknown", func() error { return &provider.Error{Kind: NoResolver} })
	test.Step("next", func() error { return nil })
	test.Step("fails", func() error { return &provider.Error{Kind: provider.Network} })
	test.Step("last", func() error { t.Error("made"); return nil })
	want := []Item{{Name: "unknown", Skipped: true}, {Name: "next"}, {Name: "fails"}, {Name: "last", Skipped: true}}
	for i, item := range test.Items {
		if item.Name != want[i].Name || item.Skipped != want[i].Skipped {
			t.Errorf("%+v, want %+v", item, want[i])
		}
	}
}
