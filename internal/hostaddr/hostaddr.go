// Package hostaddr finds this host's public addresses, for the placeholders of endpoints, such as {ipv4} and
// {wan2.ipv6}. It asks the Linux kernel (rtnetlink, /proc/self/net), a web service or a file.
package hostaddr

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"meshddns/internal/daemon"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

// Family is an IP address family, 4 or 6.
type Family int

// The two address families.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// Source is where the address of one family comes from: one origin, or several of which two have to agree. The
// zero Source has no address.
type Source struct {
	family  Family
	origins []origin
}

// ParseSource reads the text of the -ipv4 or -ipv6 flag: none, or origins separated by commas: auto, interface:NAME,
// url:URL, file:PATH or an address. Its errors do not contain a URL, because it may have a password or a token.
func ParseSource(f Family, text string) (Source, error) {
	s := Source{family: f}
	if text == "none" {
		return s, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		o, err := parseOrigin(f, strings.TrimSpace(part))
		if err == nil {
			err = s.add(o)
		}
		if err != nil {
			return Source{}, err
		}
	}
	return s, nil
}

// add adds an origin. It refuses one that the source has, because it would agree with itself.
func (s *Source) add(o origin) error {
	if slices.ContainsFunc(s.origins, o.same) {
		return fmt.Errorf("%s is given twice", o)
	}
	s.origins = append(s.origins, o)
	return nil
}

// Named is a source with a name, for the placeholders {name.ipv4} and {name.ipv6}.
type Named struct {
	Name       string
	IPv4, IPv6 Source
}

// ParseNamed reads the values of the -addr flag: name=origin, of which several may have one name. An address is of its
// own family; any other origin is asked for both families.
func ParseNamed(texts []string) (all []Named, err error) {
	for _, text := range texts {
		name, origin, found := strings.Cut(text, "=")
		if !found || !mesh.IsSource(name) {
			return nil, fmt.Errorf("%swant NAME=SOURCE, such as wan2=interface:ppp1; NAME has 1 to 32 of a-z, 0-9 and -, and is not ipv4 or ipv6", shown(text))
		}
		at := slices.IndexFunc(all, func(n Named) bool { return n.Name == name })
		if at < 0 {
			at = len(all)
			all = append(all, Named{Name: name, IPv4: Source{family: IPv4}, IPv6: Source{family: IPv6}})
		}
		if err := all[at].add(origin); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return all, nil
}

func (n *Named) add(text string) error {
	fixed, err := netip.ParseAddr(text)
	for _, s := range []*Source{&n.IPv4, &n.IPv6} {
		if err == nil && fixed.Is4() != (s.family == IPv4) {
			continue
		}
		o, err := parseOrigin(s.family, text)
		if err == nil {
			err = s.add(o)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// asks reports whether a look asks a web service.
func (s Source) asks() bool {
	return slices.ContainsFunc(s.origins, func(o origin) bool { return o.url != nil })
}

// isNone reports whether the source is none.
func (s Source) isNone() bool { return len(s.origins) == 0 }

// String returns the text of the flag. Of a URL it returns only the host, because the rest may be a secret.
func (s Source) String() string {
	if s.isNone() {
		return "none"
	}
	var all []string
	for _, o := range s.origins {
		all = append(all, o.String())
	}
	return strings.Join(all, ",")
}

// finding is the result of one look at a source.
type finding struct {
	addr    netip.Addr // the zero Addr: none
	note    msg.Text   // why there is none, or a remark; "": nothing
	verdict Verdict    // of the address, or of one that was seen and not taken; "": none was seen
}

// look finds the current address. It is not an error if the host has none (without a default route, or with only private
// addresses under auto).
func (s Source) look(ctx context.Context) (finding, error) {
	f, err := s.find(ctx)
	if err != nil {
		return finding{}, err
	}
	if f.addr.IsValid() {
		f.verdict = verdictOf(f.addr)
	}
	if mesh.IsPrivate(f.addr) {
		f.note = msg.Textf("%s is %s: it is published, and reached from its own network only", f.addr, kind(f.addr))
	}
	return f, nil
}

func (s Source) find(ctx context.Context) (finding, error) {
	switch len(s.origins) {
	case 0:
		return finding{}, nil
	case 1:
		return s.origins[0].look(ctx, s.family)
	}
	all := make([]told, len(s.origins))
	var looks sync.WaitGroup
	for i, o := range s.origins {
		looks.Go(func() {
			all[i].by = o
			all[i].err = daemon.Call(func() (err error) {
				all[i].finding, err = o.look(ctx, s.family)
				return err
			})
		})
	}
	looks.Wait()
	return agreed(all), ctx.Err()
}

// told is what an origin told.
type told struct {
	by origin
	finding
	err error
}

// text describes it for a note.
func (t told) text() msg.Text {
	switch {
	case t.err != nil:
		return msg.TextOf(t.err)
	case t.addr.IsValid():
		return msg.Textf("%s has %s", t.by, t.addr)
	}
	return msg.Textf("%s: %s", t.by, t.note)
}

// agreed returns the address that most origins tell, at least two. Addresses that equally many tell differ.
func agreed(all []told) finding {
	votes := map[netip.Addr]int{}
	var best finding
	most, tie := 0, false
	for _, t := range all {
		if t.addr.IsValid() {
			votes[t.addr]++
		}
		if n := votes[t.addr]; n > most {
			best.addr, most, tie = t.addr, n, false
		} else if n == most && t.addr != best.addr {
			tie = true
		}
		if best.verdict == "" {
			best.verdict = t.verdict
		}
	}
	if most > 1 && !tie {
		return finding{addr: best.addr}
	}
	words := all[0].text()
	for _, t := range all[1:] {
		words = msg.Textf("%s, and %s", words, t.text())
	}
	if len(votes) > 1 {
		return finding{note: msg.Textf("the sources differ: %s", words), verdict: Differs}
	}
	return finding{note: msg.Textf("two sources have to agree: %s", words), verdict: best.verdict}
}
