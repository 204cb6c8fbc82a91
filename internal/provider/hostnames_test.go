package provider

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"meshddns/internal/secrets"
	"meshddns/test/servertest"
)

// belowPrefix are the changes of a usage below a prefix, in the formats with addresses and services: those that servers
// with a check of host names refuse if the prefix has an underscore, and those that they take.
func belowPrefix(prefix string) (addresses, services, others []Change) {
	at := prefix + "." + servertest.Zone
	addresses = []Change{
		{Type: A, Name: at, Add: []Value{{"192.0.2.1"}}},
		{Type: AAAA, Name: at, Add: []Value{{"2001:db8::1"}}},
		{Type: AAAA, Name: "ip4p." + at, Add: []Value{{"2001::2b02:c000:201"}}},
		{Type: A, Name: "192-0-2-1." + at, Add: []Value{{"192.0.2.1"}}},
	}
	services = []Change{{Type: SRV, Name: "_easytier._tcp." + at, Add: []Value{{"1 1 11010 192-0-2-1." + at}}}}
	others = []Change{
		{Type: TXT, Name: "_mesh." + at, Add: []Value{{"v=mesh1"}}},
		{Type: TXT, Name: at, Add: []Value{{"192.0.2.1:11010"}}},
		{Type: SRV, Name: "_nodes._tcp." + at, Add: []Value{{"1 1 11010 host.example.net"}}},
		{Type: SRV, Name: "_none._tcp." + at, Add: []Value{{"0 0 0 ."}}},
	}
	for _, all := range [][]Change{addresses, services, others} {
		for i := range all {
			all[i].Zone, all[i].TTL = servertest.Zone, testTTL
		}
	}
	return addresses, services, others
}

// wantHostNames makes changes one by one, and then all prefixes at once, and checks the failures: refused are the changes
// below prefixes that are no host names.
func wantHostNames(t *testing.T, client interface {
	DNS
	BatchChanger
}, refuses func(addresses, services []Change) []Change) {
	t.Helper()
	refused := map[string]bool{}
	var single, batch []Change
	for i, prefix := range []string{"office", "my_office", "_mesh-ndi", "-office", "office-"} {
		addresses, services, others := belowPrefix(prefix)
		single = append(append(append(single, addresses...), services...), others...)
		more, moreServices, moreOthers := belowPrefix("many." + prefix)
		batch = append(append(append(batch, more...), moreServices...), moreOthers...)
		if i > 0 {
			for _, ch := range append(refuses(addresses, services), refuses(more, moreServices)...) {
				refused[fmt.Sprint(ch.Type, ch.Name)] = true
			}
		}
	}
	errs := make([]error, len(single))
	for i, ch := range single {
		errs[i] = client.Change(t.Context(), ch)
	}
	errs = append(errs, client.ChangeAll(t.Context(), batch)...)
	for i, ch := range append(single, batch...) {
		want := Kind("")
		if refused[fmt.Sprint(ch.Type, ch.Name)] {
			want = NameNotAllowed
		}
		if err := errs[i]; KindOf(err) != want || err != nil && !Unmade(err) {
			t.Errorf("%s %s: %v, want %q", ch.Name, ch.Type, err, want)
		}
	}
}

func noneOf(_, _ []Change) []Change { return nil }

// TestRFC2136HostNames: BIND checks host names, the other servers do not. What is beside such names in one message is made.
func TestRFC2136HostNames(t *testing.T) {
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		refuses := noneOf
		if s.Name == "BIND" {
			refuses = func(addresses, services []Change) []Change { return append(addresses, services...) }
		}
		wantHostNames(t, rightClient(t, s), refuses)
	})
}

// TestRFC2136CheckNames has the statement that docs/providers.md tells of.
func TestRFC2136CheckNames(t *testing.T) {
	t.Parallel()
	const statement = "check-names ignore;"
	page, err := os.ReadFile("../../docs/providers.md")
	if err != nil || !strings.Contains(string(page), statement) {
		t.Errorf("docs/providers.md does not have %q: %v", statement, err)
	}
	wantHostNames(t, rightClient(t, servertest.BINDWith(t, statement)), noneOf)
}

// TestRFC2136HostNamesNotGranted: below a name that the key may not change, the right is the reason, whatever the name is.
func TestRFC2136HostNamesNotGranted(t *testing.T) {
	t.Parallel()
	s := servertest.BIND(t)
	c := newClient(t, s.Addr, servertest.PartKey, servertest.PartSecret)
	outside, _, _ := belowPrefix("_mesh-ndi")
	within, _, _ := belowPrefix("_mesh-ndi.part")
	wantKind(t, c.Change(t.Context(), outside[0]), Permission, "the key may not change this")
	wantKind(t, c.Change(t.Context(), within[0]), NameNotAllowed, "REFUSED", "check-names")
	changes := append(outside, within...)
	for i, err := range c.ChangeAll(t.Context(), changes) {
		want := Permission
		if i >= len(outside) {
			want = NameNotAllowed
		}
		if KindOf(err) != want {
			t.Errorf("%s %s: %v, want %s", changes[i].Name, changes[i].Type, err, want)
		}
	}
}

// TestRFC2136ManyHostNames: names that BIND refuses do not use up the refusals after which a client gives up the others.
func TestRFC2136ManyHostNames(t *testing.T) {
	s := servertest.BIND(t)
	address, count := counted(t, s.Addr)
	c := newClient(t, address, servertest.Key, servertest.Secret)
	var changes []Change
	for i := range 150 {
		addresses, _, others := belowPrefix(fmt.Sprintf("_mesh-%d", i))
		changes = append(changes, addresses[0], others[0])
	}
	for i, err := range c.ChangeAll(t.Context(), changes) {
		if want := []Kind{NameNotAllowed, ""}[i%2]; KindOf(err) != want {
			t.Fatalf("%s %s: %v, want %q", changes[i].Name, changes[i].Type, err, want)
		}
	}
	if got := count.Load(); got > 4 {
		t.Errorf("%d messages, want all, each part, and the question for the right", got)
	}
}

// TestPowerDNSHostNames: the API checks the targets of services only.
func TestPowerDNSHostNames(t *testing.T) {
	t.Parallel()
	s := servertest.PowerDNS(t)
	client, err := NewPowerDNS(Credentials{AccessKeyID: "localhost", AccessKeySecret: secrets.Secret(s.APIKey), Endpoint: s.API})
	if err != nil {
		t.Fatal(err)
	}
	wantHostNames(t, client, func(_, services []Change) []Change { return services })
	_, services, _ := belowPrefix("_again")
	wantKind(t, client.Change(t.Context(), services[0]), NameNotAllowed, "non-hostname content 192-0-2-1._again.example.com")
}
