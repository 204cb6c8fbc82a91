package mesh

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

const ownerName, ownerP = "_mesh.p.example.com", "p.example.com"

// eachGround calls try with each combination of what else may lie at P or below it.
func eachGround(try func(Ground)) {
	for _, inner := range []string{"", ownerP, "deep.p.example.com"} {
		for _, own := range []string{"", ownerName, ownerP, "_acme-challenge.p.example.com"} {
			for _, program := range []Program{{}, {Hosts: []string{ownerP}}, {Hosts: []string{"ip4p.p.example.com"}}, {Hosts: []string{"ns1.deep." + ownerP}}, {Catalog: "_dnsaddr.p.example.com"}, {Catalog: ownerP}} {
				try(Ground{inner, own, program})
			}
		}
	}
}

// someClaims are all lists of at most three claims. Those of one service have one network, because they have one prefix.
func someClaims() (all [][]Claim) {
	var each []Claim
	for _, c := range []Claim{{Service: "a", Network: "1"}, {Service: "b", Network: "1"}, {Service: "c", Network: "2"}} {
		for bits := range 8 {
			c.Tenant, c.Releasing, c.Waits = bits&1 > 0, bits&2 > 0, bits&4 > 0
			each = append(each, c)
		}
	}
	all = [][]Claim{nil}
	for from := 0; from < len(all); from++ {
		for _, c := range each {
			if len(all[from]) < 3 {
				all = append(all, append(slices.Clone(all[from]), c))
			}
		}
	}
	return all[1:]
}

// TestOwners tries every list of claims on every ground, at every kind of owner name.
func TestOwners(t *testing.T) {
	names := []string{ownerName, ownerP, "*." + ownerP, "_x._udp." + ownerP, "ip4p." + ownerP, "_dnsaddr." + ownerP, ChallengeName(ownerP)}
	lists, tried := someClaims(), 0
	eachGround(func(g Ground) {
		for _, claims := range lists {
			if len(claims) == 3 && (g.Inner != "" || len(g.Program.Hosts) > 0 || g.Program.Catalog != "") {
				continue // of these each claim is judged alone
			}
			owners := OwnersOf(ownerName, g, claims)
			holder := owners.Holder
			for _, owner := range names {
				for at, c := range claims {
					tried++
					got, want := owners.Title(at, owner, typeTXT), wantTitle(g, claims, at, holder, owner)
					if got != want {
						t.Fatalf("%+v at %s on %+v: claim %d has title %d, want %d", claims, owner, g, at, got, want)
					}
					if len(claims) == 3 || c.Releasing {
						continue
					}
					for _, later := range []Claim{{Service: "d", Network: c.Network, Tenant: true, Waits: true}, {Service: "d", Network: c.Network, Tenant: true}, {Service: "d", Network: c.Network}} {
						if after := OwnersOf(ownerName, g, append(slices.Clone(claims), later)).Title(at, owner, typeTXT); holder >= 0 && !claims[holder].Waits && after != got {
							t.Fatalf("%+v at %s on %+v: %+v changes the title of claim %d from %d to %d", claims, owner, g, later, at, got, after)
						}
					}
				}
			}
		}
	})
	t.Logf("%d titles", tried)
}

// wantTitle is the rule in the words of docs/security.md, a row at a time.
func wantTitle(g Ground, claims []Claim, at, holder int, owner string) Title {
	c := claims[at]
	active := func(c Claim) bool { return !c.Releasing }
	switch held := slices.IndexFunc(claims, func(c Claim) bool { return active(c) && !c.Waits }); {
	case held >= 0 && holder != held, held < 0 && holder >= 0 && g.Own == ownerName && claims[holder].Tenant:
		panic(fmt.Sprint("the holder is wrong: ", claims, holder))
	case holder < 0 && slices.ContainsFunc(claims, func(c Claim) bool { return active(c) && (!c.Tenant || g.Own != ownerName) }):
		panic(fmt.Sprint("nobody holds the name: ", claims))
	}
	joins := holder >= 0 && active(c) && (at == holder || c.Network == claims[holder].Network && (!c.Tenant || c.Service == claims[holder].Service))
	hostBelow := slices.ContainsFunc(g.Program.Hosts, func(host string) bool { return strings.HasSuffix(host, "."+ownerP) })
	inProgram := g.Program.has(ownerP) || g.Program.has(owner) || hostBelow && owner == ChallengeName(ownerP)
	switch {
	case !joins:
		return Contested
	case owner == ownerName && (g.Own != owner || c.Tenant):
		return Owned
	case owner == ownerName:
		return Warned
	case inProgram:
		return Barred
	case owner == g.Own && c.Tenant:
		return Contested
	case g.Inner != "" && c.Tenant:
		return Barred
	case owner == g.Own, g.Inner != "":
		return Warned
	}
	return Owned
}
