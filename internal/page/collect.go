package page

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
)

// The most entries of each list.
const (
	maxAmiss     = 50
	maxLeftovers = 20
	maxEvents    = 20
	maxZones     = 20
	maxFound     = 20
	maxHistory   = 50

	scannedZones = 1000 // of services, which are read for the list of zones
)

// amissStates are the states of a usage that may need a person, in the order of the list.
var amissStates = []reconcile.PlaceState{reconcile.Failed, reconcile.Conflict, reconcile.None, reconcile.Withdrawing, reconcile.Pending}

// overview collects what the page shows without a search.
func (p *Page) overview(ctx context.Context, in msg.Language) (*overview, error) {
	if err := p.Health(ctx); err != nil {
		return nil, err
	}
	totals, err := p.Totals(ctx)
	if err != nil {
		return nil, err
	}
	configuration, err := p.Configuration(ctx)
	if err != nil {
		return nil, err
	}
	o := &overview{in: in, Versions: p.versions(), Addresses: p.hostAddresses(in)}
	for _, collect := range []func() error{
		func() (err error) { o.Zones, err = p.zoneStates(ctx, configuration, in); return err },
		func() (err error) { o.Amiss, err = p.amiss(ctx, configuration, totals, in); return err },
		func() (err error) { o.Leftovers, err = p.leftovers(ctx, totals, in); return err },
		func() (err error) {
			o.Events, err = p.history(ctx, events.Filter{Newest: true}, maxEvents, in)
			return err
		},
		func() (err error) { o.Chart, err = p.chart(ctx, totals, in); return err },
	} {
		if err := collect(); err != nil {
			return nil, err
		}
	}
	o.count(totals)
	now := p.condition(totals, configuration)
	if now.stopped, err = p.Stopped(ctx); err != nil {
		return nil, err
	}
	o.judge(now)
	return o, nil
}

// condition collects what the first sentence is about.
func (p *Page) condition(totals map[string]uint64, c mesh.Configuration) condition {
	return condition{
		totals: totals, configured: c.Provider != "" || totals["services"] > 0, off: c.Provider != "" && !c.Enabled,
		down: len(p.DownZones()), hidden: p.Addresses().Hidden, faults: p.Faults(),
	}
}

func (p *Page) versions() []string {
	return []string{"meshddns " + p.Program, "SQLite " + p.SQLite, "schema " + strconv.Itoa(p.Schema)}
}

// hostAddresses tells this host's addresses, and whether they are known now.
func (p *Page) hostAddresses(in msg.Language) (all []address) {
	known := p.Addresses()
	for _, family := range []struct {
		name      string
		last, now netip.Addr
	}{{"IPv4", known.Last.IPv4, known.Now.IPv4}, {"IPv6", known.Last.IPv6, known.Now.IPv6}} {
		a := address{Family: family.name}
		switch {
		case !family.last.IsValid():
			a.Note = say(in, "address unknown")
		case family.now != family.last:
			a.Address, a.Note = family.last.String(), say(in, "address old")
		default:
			a.Address = family.last.String()
		}
		all = append(all, a)
	}
	return all
}

// zoneStates lists the zones that are down, then those of the configuration and of services.
func (p *Page) zoneStates(ctx context.Context, c mesh.Configuration, in msg.Language) (list list[zoneLine], err error) {
	var up, unknown []zoneLine
	for _, z := range p.DownZones() {
		list.add(newZoneLine(z, true, in))
	}
	all, err := p.Zones(ctx, scannedZones)
	if c.Provider != "" {
		all = slices.Insert(all, 0, mesh.ServiceZone{Zone: c.Zone, Provider: c.Provider, AccountID: c.AccountID})
	}
	seen := map[[2]string]bool{}
	for _, z := range all {
		account := mesh.Service{Zone: z.Zone, AccountID: z.AccountID}.AccountOf(c)
		if z.AccountID == 0 && account != 0 {
			z.Provider = c.Provider
		}
		state, known := p.Zone(account, z.Zone)
		if at := [2]string{z.Provider, z.Zone}; !seen[at] && state.Fault.Code == "" {
			seen[at] = true
			line := newZoneLine(reconcile.ZoneState{Provider: z.Provider, Zone: z.Zone, Since: state.Since}, known, in)
			if known {
				up = append(up, line)
			} else {
				unknown = append(unknown, line)
			}
		}
	}
	list.add(up...)
	list.add(unknown...)
	return list, err
}

// amiss lists the names that are not as they should be, with the reasons.
func (p *Page) amiss(ctx context.Context, c mesh.Configuration, totals map[string]uint64, in msg.Language) (list list[nameLine], err error) {
	if c.Provider != "" {
		own, err := p.ownRecord(ctx, c)
		if err != nil {
			return list, err
		}
		if own.Publish.State != string(reconcile.Published) && own.Publish.Fault.Code != "" {
			list.add(newNameLine(own, in))
		}
	}
	for _, state := range amissStates {
		usages, err := p.InState(ctx, state, maxAmiss)
		if err != nil {
			return list, err
		}
		unread := int(totals[string(state)]) - len(usages)
		if state == reconcile.Withdrawing || state == reconcile.Pending { // well until a try has failed
			usages, unread = slices.DeleteFunc(usages, func(u mesh.Usage) bool { return u.Publish.Fault.Code == "" }), 0
		}
		for _, u := range usages {
			list.add(newNameLine(u, in))
		}
		list.More += max(0, unread)
	}
	return list.first(maxAmiss), nil
}

// ownRecord returns the configuration's own record as a usage.
func (p *Page) ownRecord(ctx context.Context, c mesh.Configuration) (u mesh.Usage, err error) {
	u.Name = c.RecordName()
	state, err := p.Names(ctx, []string{u.Name})
	if err != nil {
		return u, err
	}
	u.Publish.State = string(reconcile.OwnState(state, p.Addresses()))
	for _, place := range state.Names[0].Places {
		if place.Fault.Code != "" && mesh.Network(cmp.Or(place.Standing, place.Doubt.Value)) == "" {
			u.Publish.Fault, u.Publish.Attempts = mesh.Fault(place.Fault), place.Attempts
		}
	}
	return u, nil
}

func (p *Page) leftovers(ctx context.Context, totals map[string]uint64, in msg.Language) (list list[leftoverLine], err error) {
	places, err := p.Leftovers(ctx, 0, maxLeftovers)
	for _, place := range places {
		list.add(newLeftoverLine(place, in))
	}
	list.More = max(0, int(totals[string(reconcile.Leftover)])-len(places))
	return list, err
}

// history lists events.
func (p *Page) history(ctx context.Context, f events.Filter, limit int, in msg.Language) (list list[eventLine], err error) {
	page, err := p.Events.Page(ctx, f, limit)
	for _, e := range page {
		list.add(newEventLine(e, in))
	}
	return list, err
}

// search collects the usages of a network id, and those with a full name or prefix.
func (p *Page) search(ctx context.Context, query string, in msg.Language) (*found, error) {
	f := &found{in: in}
	usages, err := p.matching(ctx, query)
	if err != nil {
		return nil, err
	}
	f.More = max(0, len(usages)-maxFound)
	names := map[string]bool{}
	for _, u := range usages[:len(usages)-f.More] {
		line := foundLine{nameLine: newNameLine(u, in), Value: u.Publish.Value, Network: networkText(u.Network)}
		if !names[u.Name] {
			names[u.Name] = true
			if line.History, err = p.history(ctx, events.Filter{Name: u.Name, Newest: true}, maxHistory, in); err != nil {
				return nil, err
			}
		}
		f.Rows = append(f.Rows, line)
	}
	for _, name := range mesh.Meant(query) {
		if names[name] {
			continue
		}
		history, err := p.history(ctx, events.Filter{Name: name, Newest: true}, maxHistory, in)
		if err != nil {
			return nil, err
		}
		if len(history.Rows) > 0 { // no usage has the name now
			f.Rows = append(f.Rows, foundLine{nameLine: nameLine{Name: name, State: say(in, "not reserved")}, History: history})
		}
	}
	return f, nil
}

// matching reads the usages that a query is about, each once, and one more than are shown.
func (p *Page) matching(ctx context.Context, query string) (all []mesh.Usage, err error) {
	names := mesh.Meant(query)
	if name := names[0]; !strings.Contains(name, ".") {
		if names, err = p.Prefixed(ctx, name, maxFound+1); err != nil {
			return nil, err
		}
		names = slices.Compact(names)
	}
	for _, name := range names {
		usages, err := p.Named(ctx, name, maxFound+1)
		if err != nil {
			return nil, err
		}
		all = append(all, usages...)
	}
	if number, err := strconv.ParseUint(query, 10, 64); err == nil {
		usages, err := p.OfNetwork(ctx, mesh.NetworkID(number), maxFound+1)
		if err != nil {
			return nil, err
		}
		all = append(all, usages...)
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Seq < all[j].Seq })
	return slices.CompactFunc(all, func(a, b mesh.Usage) bool { return a.Seq == b.Seq }), nil
}

// chart collects the numbers of names over the last day.
func (p *Page) chart(ctx context.Context, totals map[string]uint64, in msg.Language) (*chart, error) {
	now := p.Now()
	since := now.Add(-chartTime)
	samples, err := p.samples(ctx, since.Add(-sampleEvery))
	if err != nil {
		return nil, err
	}
	marks, err := p.Events.Counts(ctx, since, markSpan, markKinds...)
	samples = slices.DeleteFunc(samples, func(s sample) bool { return s.at.After(now) })
	return newChart(append(samples, sample{at: now, counts: totals}), marks, since, in), err
}

// clock shows a time in UTC, to the second.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05")
}

// stored shows a time that the database has as text.
func stored(text string) string {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return text
	}
	return clock(t)
}
