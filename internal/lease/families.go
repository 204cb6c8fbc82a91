package lease

import (
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

// changedParts returns the parts that have other endpoints after a change. None is a change of their order only, which
// counts as one of all parts, so that no change is free of the limit.
func changedParts(before, after []string) (changed []part) {
	of := func(all []string, p part) []string {
		return slices.DeleteFunc(slices.Clone(all), func(text string) bool { return partOf(text) != p })
	}
	for _, text := range slices.Concat(before, after) {
		if p := partOf(text); !slices.Equal(of(before, p), of(after, p)) {
			changed = append(changed, p)
		}
	}
	return changed
}

// merged returns told endpoints with those of the lease that stay, of which IPv4 is first; the told ones are in the place of
// those that they replace. One that an older program has stored, and that is not permitted any more, does not stay.
func (t *Table) merged(l Lease, told []string, keep Keep, now time.Time) (all []string) {
	at, known := len(l.Endpoints), t.clocks.read(l.Seq)
	for _, text := range l.Endpoints {
		p := partOf(text)
		switch k := keep.of(p); {
		case (k == Preserve || k == Stay && known.fresh(p, now)) && l.check(text) == nil:
			all = append(all, text)
		case k == Withdraw:
			at = min(at, len(all))
		}
	}
	if len(all) == 0 {
		return told
	}
	all = slices.Insert(all, min(at, len(all)), told...)
	slices.SortStableFunc(all, func(a, b string) int { return int(partOf(a).family - partOf(b).family) })
	return all
}
