// Values without a mark that may be from before a restore: no place knows them. Only a person makes them ours.

package reconcile

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/provider"
)

// unmarkedNames is the number of names at which unmarked looks at a time.
const unmarkedNames = 64

// unmarked looks for values without a mark that may be ours from before a restore.
type unmarked struct {
	engine  *Engine
	conns   map[int64]*connection
	formats map[string]bool // that a name without a usage may have had
	offers  []Place         // new ones
	whole   bool            // everything could be read
}

// findUnmarked adds to a search, after a restore, the values without a mark that may be ours: at the owner names of usages whose value
// with our mark stands, and of the orphans that it has found. It stores them, so that each is found once.
func (e *Engine) findUnmarked(ctx context.Context, found *search) error {
	restored, err := e.config.Database.Restored(ctx)
	if err != nil || !restored {
		return err
	}
	u := unmarked{engine: e, conns: map[int64]*connection{}, formats: map[string]bool{}, whole: true}
	for _, format := range mesh.PlainFormats {
		u.formats[format] = true
	}
	err = e.pages(ctx, func(names []string) error {
		for part := range slices.Chunk(names, unmarkedNames) {
			if err := u.ofUsages(ctx, part); err != nil {
				return err
			}
		}
		return nil
	})
	orphans := slices.DeleteFunc(slices.Clone(found.orphans), func(p Place) bool { return p.Fault.Code != "" || p.Account.Builtin() })
	for part := range slices.Chunk(orphans, unmarkedNames) {
		if err == nil {
			err = u.ofOrphans(ctx, part)
		}
	}
	unlisted := []string{string(provider.Invalid), string(provider.Permission)} // faults of zones that no key can list
	found.orphans, found.swept = append(found.orphans, u.offers...), u.whole && !slices.ContainsFunc(found.undone, func(z unsearched) bool {
		return !slices.Contains(unlisted, z.fault.Code)
	})
	return err
}

// ofUsages looks at the owner names of usages.
func (u *unmarked) ofUsages(ctx context.Context, names []string) error {
	state, err := u.engine.config.Database.State(ctx, names)
	if err != nil {
		return err
	}
	var homes []Record
	for _, t := range Desired(state, u.engine.config.Addresses()) {
		title := wantedAt(t.Name).title
		for _, r := range t.Records {
			switch {
			case !r.Sibling.marked() || r.withdraws() || r.made == nil || r.Account.Builtin():
			case !r.stands():
				u.whole = u.whole && r.Place.State == Conflict
			default:
				homes = append(homes, slices.DeleteFunc(homesOf(r.Place, r.made.formats, r.made.endpoints), func(r Record) bool { return !title(r.Sibling).Publishes() })...)
				for _, format := range r.made.formats {
					u.formats[format] = u.formats[format] || len(u.formats) < 2*mesh.MaxFormats
				}
			}
		}
	}
	return u.look(ctx, homes)
}

// ofOrphans looks at the owner names that orphans may have, in all formats that usages have.
func (u *unmarked) ofOrphans(ctx context.Context, orphans []Place) error {
	var homes []Record
	for _, p := range orphans {
		var endpoints []mesh.Endpoint
		for _, word := range strings.Fields(p.Standing) {
			endpoints = append(endpoints, mesh.Endpoint{Text: word})
		}
		maps.DeleteFunc(u.formats, func(_ string, may bool) bool { return !may })
		homes = append(homes, homesOf(p, slices.Sorted(maps.Keys(u.formats)), endpoints)...)
	}
	return u.look(ctx, homes)
}

// homesOf returns what is looked at for a value with our mark.
func homesOf(marked Place, formats []string, endpoints []mesh.Endpoint) (all []Record) {
	for _, set := range mesh.Homes(formats, below(marked.Name), endpoints) {
		all = append(all, homeOf(marked, siblingOf(set)))
	}
	return all
}

// homeOf returns a withdrawal that removes nothing, because its place knows no value.
func homeOf(marked Place, s Sibling) Record {
	p := Place{Name: marked.Name, Sibling: s, Account: marked.Account, Zone: marked.Zone, ZoneID: marked.ZoneID, State: Leftover}
	p.Doubt = Doubt{Value: cmp.Or(marked.Standing, marked.Doubt.Value), More: true}
	return Record{Name: p.Name, Sibling: s, Account: p.Account, Domain: p.Zone, Place: p, goal: goal{sibling: true}}
}

// look reads what stands at some homes, then at the targets of services there, and stores what may be ours.
func (u *unmarked) look(ctx context.Context, homes []Record) error {
	var offers []Place
	for asked := map[Place]bool{}; len(homes) > 0; {
		homes = slices.DeleteFunc(homes, func(r Record) bool {
			again := asked[r.Place]
			asked[r.Place] = true
			return again
		})
		items, err := u.engine.look(ctx, homes, u.conns)
		if err != nil {
			return err
		}
		homes = nil
		for _, i := range items {
			var values []string
			p := i.record.Place
			for _, v := range i.seen.Values {
				if !mesh.MayMake(p.Sibling.Owner, string(p.Sibling.Type), v.Text()) {
					continue
				}
				values = append(values, v.Text())
				if target := v.Text()[strings.LastIndexByte(v.Text(), ' ')+1:]; p.Sibling.Type == provider.SRV && dns.Within(target, below(p.Name)) {
					homes = append(homes, homeOf(p, Sibling{target, provider.A}), homeOf(p, Sibling{target, provider.AAAA}))
				}
			}
			u.whole = u.whole && !transient(i.fault)
			p.Standing, p.Doubt, p.Fault = siblingText(mesh.Network(p.Doubt.Value), values), Doubt{}, Fault{Code: CodeMaybeOurs}
			if len(values) > 0 {
				offers = append(offers, p)
			}
		}
	}
	offers, err := u.engine.config.Database.AddUnmarked(ctx, offers)
	u.offers = append(u.offers, offers...)
	return err
}
