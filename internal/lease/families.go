package lease

import (
	"net/netip"
	"net/url"
	"slices"
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

// Keep says what a renewal does with the endpoints of each family that it does not tell itself.
type Keep [families]Keeping

// Keeping says what a renewal does with the endpoints of a family.
type Keeping int

// By default a renewal withdraws what it does not tell.
const (
	Withdraw Keeping = iota
	Stay             // as long as the lease's time after the last renewal that told the family
	Preserve         // as Stay, and their time starts again
)

// familyOf returns the family of an endpoint.
func familyOf(endpoint string) Family {
	u, err := url.Parse(endpoint)
	if err != nil {
		return IPv4 // a row of an older program
	}
	if address, err := netip.ParseAddr(u.Hostname()); err == nil {
		return familyOfAddress(address.Unmap())
	}
	return IPv4
}

// ofFamily returns the endpoints of a family.
func ofFamily(all []string, f Family) (endpoints []string) {
	for _, text := range all {
		if familyOf(text) == f {
			endpoints = append(endpoints, text)
		}
	}
	return endpoints
}

// changedFamilies reports which families have other endpoints after a change. A change of their order only
// is one of all families, so that no change is free of the limit.
func changedFamilies(before, after []string) (changed [families]bool) {
	for f := range families {
		changed[f] = !slices.Equal(ofFamily(before, f), ofFamily(after, f))
	}
	if changed == [families]bool{} {
		return [families]bool{true, true}
	}
	return changed
}

// merged returns told endpoints with those of the lease that stay. One that an older program has stored, and that is not
// permitted any more, does not.
func (t *Table) merged(l Lease, told []string, keep Keep, now time.Time) []string {
	var kept [families][]string
	known := t.clocks.read(l.Seq)
	for f := range families {
		if keep[f] == Preserve || keep[f] == Stay && known.fresh(f, now) {
			kept[f] = slices.DeleteFunc(ofFamily(l.Endpoints, f), func(text string) bool { return l.check(text) != nil })
		}
	}
	return slices.Concat(kept[IPv4], told, kept[IPv6])
}
