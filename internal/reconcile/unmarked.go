package reconcile

import (
	"context"
	"slices"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/provider"
)

// findUnmarked adds to a search, after a restore, the values without a mark that no place knows and that may be ours. They stand at owner
// names of usages whose value with our mark stands, and of orphans. They are stored, so each is found once; only a person makes them ours.
func (e *Engine) findUnmarked(ctx context.Context, found *search) error {
	restored, err := e.config.Database.Restored(ctx)
	if err != nil || !restored {
		return err
	}
	conns, formats, orphans := map[int64]*connection{}, slices.Clone(mesh.PlainFormats), found.orphans
	found.swept = !slices.ContainsFunc(found.undone, func(u unsearched) bool { return transient(u.fault) })
	err = e.pages(ctx, func(names []string) error {
		for part := range slices.Chunk(names, singleNames) {
			state, err := e.config.Database.State(ctx, part)
			if err != nil {
				return err
			}
			var homes []Record
			for _, t := range Desired(state, e.config.Addresses()) {
				for _, r := range t.Records {
					if !r.Sibling.marked() || r.withdraws() || r.made == nil || r.Account.Builtin() {
						continue
					}
					formats = append(formats, r.made.formats...)
					slices.Sort(formats)
					formats = slices.Compact(formats)
					formats = formats[:min(len(formats), 2*mesh.MaxFormats)]
					if found.swept = found.swept && (r.stands() || r.Place.State == Conflict); r.stands() {
						homes = append(homes, homesOf(r.Place, r.made.formats, r.made.endpoints, wantedAt(t.Name).title)...)
					}
				}
			}
			if err := e.lookUnmarked(ctx, homes, conns, found); err != nil {
				return err
			}
		}
		return nil
	})
	for i := 0; i < len(orphans) && err == nil; i++ {
		p := orphans[i]
		if p.Fault.Code != "" || p.Account.Builtin() {
			continue
		}
		var endpoints []mesh.Endpoint
		for _, word := range strings.Fields(p.Standing) {
			endpoints = append(endpoints, mesh.Endpoint{Text: word})
		}
		err = e.lookUnmarked(ctx, homesOf(p, formats, endpoints, func(Sibling) mesh.Title { return mesh.Owned }), conns, found)
	}
	return err
}

// homesOf returns withdrawals at the owner names of a value with our mark. They remove nothing, because their places know no value.
func homesOf(marked Place, formats []string, endpoints []mesh.Endpoint, title func(Sibling) mesh.Title) (all []Record) {
	for _, set := range mesh.Homes(formats, below(marked.Name), endpoints) {
		if s := siblingOf(set); title(s).Publishes() {
			p := Place{Name: marked.Name, Account: marked.Account, Zone: marked.Zone, ZoneID: marked.ZoneID, State: Leftover, Doubt: Doubt{Value: marked.Standing, More: true}}
			all = append(all, homeAt(p, s))
		}
	}
	return all
}

func homeAt(p Place, s Sibling) Record {
	p.Sibling = s
	return Record{Name: p.Name, Sibling: s, Account: p.Account, Domain: p.Zone, Place: p, goal: goal{sibling: true}}
}

// lookUnmarked reads what stands at some homes, and then at the targets of services there.
func (e *Engine) lookUnmarked(ctx context.Context, homes []Record, conns map[int64]*connection, found *search) error {
	for asked := map[Place]bool{}; len(homes) > 0; {
		items, err := e.look(ctx, homes, conns)
		if err != nil {
			return err
		}
		homes = nil
		for _, i := range items {
			var values []string
			p, s := i.record.Place, i.record.Sibling
			for _, v := range i.seen.Values {
				text := v.Text()
				if asked[p] || !mesh.MayMake(s.Owner, string(s.Type), text) {
					continue
				}
				values = append(values, text)
				if target := text[strings.LastIndexByte(text, ' ')+1:]; s.Type == provider.SRV && dns.Within(target, below(p.Name)) {
					homes = append(homes, homeAt(p, Sibling{target, provider.A}), homeAt(p, Sibling{target, provider.AAAA}))
				}
			}
			asked[p], found.swept = true, found.swept && !transient(i.fault)
			p.Standing, p.Doubt, p.Fault = siblingText(mesh.Network(p.Doubt.Value), values), Doubt{}, Fault{Code: CodeMaybeOurs}
			if isNew, err := e.config.Database.AddUnmarked(ctx, &p); err != nil {
				return err
			} else if isNew {
				found.orphans = append(found.orphans, p)
			}
		}
	}
	return nil
}
