package lease

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Family is a family of addresses. An endpoint whose host is a name belongs to IPv4.
type Family int

// The families of addresses.
const (
	IPv4 Family = iota
	IPv6
	families
)

// part is what a client may tell alone of the endpoints of a lease: those of a scheme with addresses of a family.
type part struct {
	scheme string
	family Family
}

func partOf(endpoint string) part {
	scheme, host, _ := strings.Cut(endpoint, "://")
	at, _ := netip.ParseAddrPort(host)
	return part{scheme, familyOfAddress(at.Addr().Unmap())}
}

// Keep says what a renewal does with the stored endpoints that it does not tell itself.
type Keep struct {
	Family [families]Keeping
	Scheme string // of all that the renewal is about: the others stay; "" for all
}

// Keeping says what a renewal does with the endpoints of a part.
type Keeping int

// By default a renewal withdraws what it does not tell.
const (
	Withdraw Keeping = iota
	Stay             // as long as the lease's time after the last renewal that told the part
	Preserve         // as Stay, and their time starts again
)

func (k Keep) of(p part) Keeping {
	if k.Scheme != "" && k.Scheme != p.scheme {
		return Stay
	}
	return k.Family[p.family]
}

// changedParts returns the parts that have other endpoints after a change. A change of their order only
// is one of all parts, so that no change is free of the limit.
func changedParts(before, after []string) (changed []part) {
	all := map[part][2][]string{}
	for i, endpoints := range [][]string{before, after} {
		for _, text := range endpoints {
			both := all[partOf(text)]
			both[i] = append(both[i], text)
			all[partOf(text)] = both
		}
	}
	for p, both := range all {
		if !slices.Equal(both[0], both[1]) {
			changed = append(changed, p)
		}
	}
	if changed == nil {
		return slices.Collect(maps.Keys(all))
	}
	return changed
}

// merged returns told endpoints with those of the lease that stay. The told ones stand where those that they replace have
// stood, else behind IPv4. One that an older program has stored, and that is not permitted any more, does not stay.
func (t *Table) merged(l Lease, told []string, keep Keep, now time.Time) (endpoints []string) {
	at, known := -1, t.clocks.read(l.Seq)
	for _, text := range l.Endpoints {
		p := partOf(text)
		switch k := keep.of(p); {
		case (k == Preserve || k == Stay && known.fresh(p, now)) && l.check(text) == nil:
			endpoints = append(endpoints, text)
		case k == Withdraw && at < 0:
			at = len(endpoints)
		}
	}
	if at < 0 {
		at = len(endpoints)
		if six := slices.IndexFunc(endpoints, func(text string) bool { return partOf(text).family == IPv6 }); six >= 0 {
			at = six
		}
	}
	return slices.Insert(endpoints, at, told...)
}
