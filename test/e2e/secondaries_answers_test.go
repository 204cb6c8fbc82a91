package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/dns"
	"meshddns/test/support"
)

// TestAnswersAlike: Knot, with the zones that it transferred, gives the same answers as the program: rcode,
// AA, answer and authority. Left out are ANY, which RFC 8482 leaves open, and the additional section.
func TestAnswersAlike(t *testing.T) {
	notShort(t)
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	ip(t, "link set lo up")
	s := newSecondaries(t, filepath.Join(t.TempDir(), "meshddns.db"), makers[0])
	s.call(200, "POST", "/api/v1/ddns/services", `{"id":"inner","name":"inner","config":{"domain":"inner.mesh.example.com","provider":"builtin"}}`)
	s.call(200, "POST", usagesPath+"?wait=20", `{"service_id":"inner","prefix_mode":"custom","custom_prefix":"deep","network_id":9}`)
	s.fill(300)
	s.rest(meshZone, "inner.mesh.example.com")
	s.alike(number(t, "MESHDDNS_ALIKE", support.Count(1_500, 4_000)))
	s.stop()
	s.ipv4 = "none"
	s.start()
	s.rest(meshZone, "inner.mesh.example.com")
	s.alike(1000)
}

// alike asks the program and Knot.
func (s *secondaries) alike(count int) {
	t := s.t
	t.Helper()
	random := rand.New(rand.NewPCG(19, uint64(count)))
	kinds := []dns.Type{dns.TypeTXT, dns.TypeTXT, dns.TypeSOA, dns.TypeNS, dns.TypeA, dns.TypeAAAA, dns.TypeDS, dns.TypePTR, 257}
	rcodes := map[dns.Rcode]int{}
	for range count {
		name, kind := askedName(random), kinds[random.IntN(len(kinds))]
		ours, theirs := answerOf(t, primaryDNS, name, kind), answerOf(t, makers[0].address, name, kind)
		if ours.text != theirs.text {
			t.Errorf("%s type %d: the program says\n%s\nKnot says\n%s", name, kind, ours.text, theirs.text)
		}
		rcodes[ours.rcode]++
	}
	t.Logf("%v", rcodes)
	if rcodes[dns.RcodeSuccess] < count/10 || rcodes[dns.RcodeNXDomain] < count/10 || rcodes[dns.RcodeRefused] < count/100 {
		t.Error("too few answers of a kind")
	}
}

// askedName gives a name that is there, or is not, or has others below it, in any letter case.
func askedName(random *rand.Rand) string {
	labels := []string{
		fmt.Sprintf("_mesh.n%d.mesh.example.com", 1+random.IntN(400)), fmt.Sprintf("n%d.mesh.example.com", 1+random.IntN(400)),
		fmt.Sprintf("x%d.mesh.example.com", random.IntN(100)), "mesh.example.com", "inner.mesh.example.com", "_mesh.deep.inner.mesh.example.com",
		"deep.inner.mesh.example.com", "_mesh.inner.mesh.example.com", "no.inner.mesh.example.com", "ns.mesh.example.com", "ns.inner.mesh.example.com",
		"*.mesh.example.com", "example.com", "elsewhere.example.org", fmt.Sprintf("a._mesh.n%d.mesh.example.com", 1+random.IntN(400)),
	}
	name := []byte(labels[random.IntN(len(labels))])
	for i, c := range name {
		if 'a' <= c && c <= 'z' && random.IntN(4) == 0 {
			name[i] = c - 'a' + 'A'
		}
	}
	return string(name)
}

// said is an answer: its rcode, and as text what is compared.
type said struct {
	rcode dns.Rcode
	text  string
}

func answerOf(t *testing.T, server, name string, kind dns.Type) said {
	t.Helper()
	asked, err := dns.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	q := dns.Message{ID: 7, Questions: []dns.Question{{Name: asked, Type: kind, Class: dns.ClassIN}}}
	packed, err := dns.Exchange(t.Context(), server, q.Pack())
	if err != nil {
		t.Fatalf("%s at %s: %v", name, server, err)
	}
	m, err := dns.ParseMessage(packed)
	if err != nil {
		t.Fatal(err)
	}
	lines := []string{fmt.Sprintf("%v AA %v", m.Rcode, m.Authoritative)}
	for section, records := range map[string][]dns.RR{"answer": m.Answers, "authority": m.Authority} {
		for _, rr := range records {
			lines = append(lines, fmt.Sprintf("%s %s %d %d %x", section, strings.ToLower(rr.Name.String()), rr.TTL, rr.Type, rr.Data))
		}
	}
	slices.Sort(lines[1:])
	return said{m.Rcode, strings.Join(lines, "\n")}
}
