package page

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
)

// The most entries of each list of the first page.
const (
	shownNames   = 5  // of a group of names
	maxGroups    = 20 // of names that are not as they should be
	maxLeftovers = 20
	maxEvents    = 20
	maxAlike     = 200 // events that are read for them
	maxTold      = 10  // secondaries that are behind, and held leases
	maxHeld      = 20  // held leases on their own page

	scannedZones = 1000             // of services, which are read for the list of zones
	behindAfter  = 60 * time.Second // the lag of a secondary that needs attention
)

// attention is what may need a person. Each row has a part of the first sentence, so the two never contradict each other.
type attention struct {
	rows      []*row
	bad, slow []string // parts of the first sentence, of which those in slow mend themselves
	rest      int
}

// front is the first page: whether all is well, what needs attention, and how things have been.
func (v *view) front(ctx context.Context) error {
	if v.Query != "" {
		return v.names(ctx)
	}
	totals, err := v.Totals(ctx)
	if err != nil {
		return err
	}
	c, err := v.Configuration(ctx)
	if err != nil {
		return err
	}
	a, err := v.attention(ctx, c, totals)
	if err != nil {
		return err
	}
	v.judge(a, c, totals)
	if len(a.rows) > 0 {
		v.Sections = append(v.Sections, &section{Title: "amiss", Rows: a.rows, Rest: a.rest})
	}
	for _, collect := range []func(*view, context.Context, mesh.Configuration, map[string]uint64) (*section, error){(*view).frontZones, (*view).counted, (*view).leftovers, (*view).latest} {
		s, err := collect(v, ctx, c, totals)
		if err != nil {
			return err
		}
		if len(s.Rows) > 0 || s.None != "" || s.Counts != nil {
			v.Sections = append(v.Sections, s)
		}
	}
	v.Sections = append(v.Sections, &section{Title: "host", Host: v.host()})
	return nil
}

// judge says in one sentence whether all is well.
func (v *view) judge(a attention, c mesh.Configuration, totals map[string]uint64) {
	waiting, published := totals[string(reconcile.Pending)]+totals[string(reconcile.Withdrawing)], totals[string(reconcile.Published)]
	if waiting > 0 {
		a.slow = append([]string{v.Say("n waiting", waiting)}, a.slow...)
	}
	parts := strings.Join(append(a.bad, a.slow...), v.Say("comma"))
	why := ""
	if paused := c.Paused(); paused.Code != "" {
		why, v.Advice = paused.Detail.In(v.in), v.Say("do manual")
		if !c.Enabled {
			v.Advice = v.Say("do off")
		}
	}
	bad, unset := len(a.bad) > 0, c.Provider == "" && totals["services"] == 0
	leaving := totals[string(reconcile.Leftover)] + totals[string(reconcile.Withdrawn)]
	v.Level = "busy"
	id, args := "busy", []any{parts, published}
	switch {
	case why != "" && parts != "":
		id, args = "paused beside", []any{why, parts}
	case why != "":
		id, args = "paused", []any{why}
	case bad:
		id, args = "not well", []any{parts}
	case unset && leaving > 0:
		id, args = "leaving", []any{leaving}
	case unset:
		id, args = "not configured", nil
	case parts == "":
		v.Level, id, args = "good", "well", []any{published}
	}
	if v.Verdict = v.Say(id, args...); bad {
		v.Level = "bad"
	}
}

// tell adds a row, and a part of the first sentence with a number unless that is 0.
func (a *attention) tell(v *view, level, id string, n int, rows ...*row) {
	a.rows = append(a.rows, rows...)
	switch {
	case n == 0:
	case level == "bad":
		a.bad = append(a.bad, v.Say(id, n))
	default:
		a.slow = append(a.slow, v.Say(id, n))
	}
}

// attention collects what may need a person: zones that are down with their names, other names, and the rest.
func (v *view) attention(ctx context.Context, c mesh.Configuration, totals map[string]uint64) (a attention, err error) {
	groups, total, more, err := v.Amiss(ctx, maxGroups)
	if err != nil {
		return a, err
	}
	for _, state := range []reconcile.PlaceState{reconcile.Failed, reconcile.Conflict, reconcile.None} {
		a.tell(v, "bad", "n "+string(state), int(totals[string(state)]))
	}
	a.rest = total
	own, ownFault, err := v.ownRow(ctx, c)
	if err != nil {
		return a, err
	}
	zones := v.downZones()
	for _, z := range zones {
		r, all := v.zoneRow(z.ZoneState, true), mesh.AmissGroup{}
		for i, g := range groups {
			if g.Count > 0 && z.has(g.Provider, g.Zone, g.Fault) {
				all.Count, all.First = all.Count+g.Count, append(all.First, g.First...)
				groups[i].Count = 0
			}
		}
		a.rest -= all.Count
		if z.has(c.Provider, c.Zone, ownFault) {
			all.Count, ownFault.Code = all.Count+1, ""
		}
		if all.First = all.First[:min(shownNames, len(all.First))]; all.Count > 0 {
			v.addGroup(r, all, more)
		}
		a.rows = append(a.rows, r)
	}
	a.tell(v, "bad", "n down", len(zones))
	for _, g := range groups {
		if g.Count > 0 {
			r := (&row{Title: msg.Printable(g.Zone), Level: "busy"}).faulty(g.Fault, v.in)
			if g.Provider != "" { // else the reason says why there is none, or that the name is another one's
				r.Facts = []string{providerTitle(g.Provider, v.in)}
			}
			if g.Bad {
				r.Level = "bad"
			}
			v.addGroup(r, g, more)
			a.rows = append(a.rows, r)
			a.rest -= g.Count
		}
	}
	if ownFault.Code != "" {
		a.rows = append(a.rows, own)
	}
	for _, collect := range []func(*view, context.Context, *attention) error{(*view).provisioning, (*view).targets, (*view).heldLeases, (*view).behind, (*view).hidden} {
		if err := collect(v, ctx, &a); err != nil {
			return a, err
		}
	}
	return a, nil
}

// addGroup adds the number of a group's names and the first of them.
func (v *view) addGroup(r *row, g mesh.AmissGroup, atLeast bool) {
	id := "n names"
	if atLeast {
		id = "n names at least"
	}
	if r.State == "" {
		r.State = v.Say(id, g.Count)
	} else {
		r.Facts = append(r.Facts, v.Say(id, g.Count))
	}
	for _, u := range g.First {
		r.Links = append(r.Links, link{msg.Printable(u.Name), v.usageLink(u.ID)})
	}
	if g.Count > len(g.First) && len(g.First) > 0 {
		r.Links = append(r.Links, link{v.Say("all in state"), v.Link("names", "state", g.First[0].Publish.State)})
	}
}

// downZone is a zone of a provider that is down, and the domains in it.
type downZone struct {
	reconcile.ZoneState
	domains []string
}

// has reports whether names of a domain at a provider fail because the zone is down.
func (z downZone) has(provider, domain string, f mesh.Fault) bool {
	return z.Provider == provider && slices.Contains(z.domains, domain) && sameCause(f.Code, z.Fault.Code)
}

// downZones returns the zones that are down, each once, although names below several domains meet it.
func (v *view) downZones() (zones []downZone) {
	down := append([]reconcile.ZoneState{}, v.down...)
	sort.SliceStable(down, func(i, j int) bool { return len(apexOf(down[i])) < len(apexOf(down[j])) })
	for _, z := range down {
		i := 0
		for i < len(zones) && (zones[i].Provider != z.Provider || zones[i].Zone != apexOf(z) && (z.Apex != "" || !strings.HasSuffix(z.Zone, "."+zones[i].Zone))) {
			i++
		}
		if i == len(zones) {
			zones = append(zones, downZone{ZoneState: z})
			zones[i].Zone = apexOf(z)
		}
		zones[i].domains = append(zones[i].domains, z.Zone)
		if z.Since.Before(zones[i].Since) {
			zones[i].Since = z.Since
		}
	}
	return zones
}

func apexOf(z reconcile.ZoneState) string { return cmp.Or(z.Apex, z.Zone) }

// sameCause reports whether two codes are for one cause: an overloaded server sometimes does not answer and sometimes refuses.
func sameCause(a, b string) bool {
	passing := []string{string(msg.Network), string(msg.Temporary)}
	return a == b || slices.Contains(passing, a) && slices.Contains(passing, b)
}

// ownRow returns the row of the configuration's own record, and the reason if it is not as it should be.
func (v *view) ownRow(ctx context.Context, c mesh.Configuration) (r *row, fault mesh.Fault, err error) {
	if c.Provider == "" {
		return &row{}, fault, nil
	}
	name := c.RecordName()
	state, err := v.Names(ctx, []string{name})
	if err != nil {
		return r, fault, err
	}
	own := string(reconcile.OwnState(state, v.Addresses()))
	r = &row{Title: name, Facts: []string{v.Say("own record")}}
	r.Level, r.State = v.stateOf(own)
	places, err := v.Places(ctx, name)
	for _, p := range places {
		if value := cmp.Or(p.Place.Standing, p.Place.Doubt.Value); p.Place.Sibling == (reconcile.Sibling{}) && mesh.Network(value) == "" {
			if p.Place.Standing != "" {
				r.Values = []pair{{v.Say("standing"), msg.Printable(p.Place.Standing)}}
			}
			if r.When = v.stored(p.At); p.Place.Fault.Code != "" {
				fault = v.oneText(name, mesh.Fault(p.Place.Fault))
			}
		}
	}
	r = r.faulty(fault, v.in)
	if own == string(reconcile.Published) {
		fault = mesh.Fault{}
	}
	return r, fault, err
}

// oneText returns the fault of a name: that of its zone if the zone is down for the same cause.
func (v *view) oneText(name string, f mesh.Fault) mesh.Fault {
	if f.Code == "" {
		return f
	}
	for _, z := range v.down {
		if f.Code != z.Fault.Code && strings.HasSuffix("."+name, "."+z.Zone) && sameCause(f.Code, z.Fault.Code) {
			return mesh.Fault(z.Fault)
		}
	}
	return f
}

// provisioning tells of faults of the provisioning file.
func (v *view) provisioning(ctx context.Context, a *attention) error {
	n := int(v.Faults())
	if n == 0 {
		return nil
	}
	r := &row{Title: v.Say("provisioning"), Level: "bad", State: v.Say("n faults", n), Do: v.Say("do provisioning")}
	last, err := v.Events.Page(ctx, events.Filter{Kind: string(events.ProvisionRefused), Newest: true}, 1)
	for _, e := range last {
		r.When, r.Why = v.clock(e.At), reasonOf(e.Detail.Fault, v.in)
	}
	a.tell(v, "bad", "n faults", n, r)
	return err
}

// targets tells of targets of notifications that are not well.
func (v *view) targets(ctx context.Context, a *attention) error {
	rows, levels := map[string][]*row{}, map[string]string{"stopped": "bad", "retrying": "busy"}
	err := v.Targets(ctx, func(id, kind, state, since string, next time.Time, f mesh.Fault) {
		r := &row{Title: id, Level: levels[state], State: v.Say("target " + state), When: v.stored(since), Facts: []string{kind}, Why: reasonOf(f, v.in), Do: v.Say("do " + state)}
		if !next.IsZero() {
			r.Facts = append(r.Facts, v.Say("next try", v.clock(next)))
		}
		rows[state] = append(rows[state], r)
	})
	for _, state := range []string{"stopped", "retrying"} {
		a.tell(v, levels[state], "n "+state, len(rows[state]), rows[state]...)
	}
	return err
}

// heldLeases tells of leases whose time is over and whose endpoints stay.
func (v *view) heldLeases(ctx context.Context, a *attention) error {
	first, n, err := v.Held(ctx, maxTold)
	if n == 0 || err != nil {
		return err
	}
	r := &row{Title: v.Say("held leases"), Link: v.Link("nodes"), Level: "bad", State: v.Say("n leases", n), Why: v.Say("about held"), Do: v.Say("do held")}
	for _, l := range first {
		r.Links = append(r.Links, link{msg.Printable(l.Name) + " " + l.Slot, v.usageLink(l.UsageID)})
	}
	a.tell(v, "bad", "n held", n, r)
	return nil
}

// behind tells of secondaries that have been late with a zone for a minute.
func (v *view) behind(ctx context.Context, a *attention) error {
	var rows []*row
	err := v.Secondaries(ctx, 1, v.in, func(id, address string, z mesh.SecondaryZone) {
		if z.Lag >= int64(behindAfter/time.Second) {
			rows = append(rows, &row{
				Title: id, Link: v.Link("zones"), Level: "bad", State: v.Say("behind"), Facts: facts(address, z.Zone, v.Say("lag", v.span(z.Lag))),
				Why: z.Error, Do: v.Say("do behind"),
			})
		}
	})
	n := len(rows)
	a.tell(v, "bad", "n behind", n, rows[:min(n, maxTold)]...)
	return err
}

// hidden tells that no resolver finds the built-in zones, and that clients will not accept the certificate for long.
func (v *view) hidden(ctx context.Context, a *attention) error {
	if leaf, soon := v.Certificate(); soon {
		text := msg.ID(events.CertificateExpiring).In(v.in)
		a.bad = append(a.bad, text)
		a.rows = append(a.rows, &row{Title: v.Say("certificate"), Level: "bad", State: text, When: v.clock(leaf.NotAfter), Do: v.Say("do certificate")})
	}
	hidden, err := v.Hidden(ctx)
	if hidden {
		a.bad = append(a.bad, v.Say("hidden"))
		a.rows = append(a.rows, &row{Title: v.Say("built-in zones"), Level: "bad", State: v.Say("hidden"), Do: advice(v.in, string(msg.ZoneUnreachable))})
	}
	return err
}

// counted has the names by state, now and over the last day.
func (v *view) counted(ctx context.Context, _ mesh.Configuration, totals map[string]uint64) (s *section, err error) {
	s = &section{Title: "names"}
	for _, state := range reconcile.UsageStates {
		n := totals[string(state)]
		if n == 0 && state != reconcile.Published && state != reconcile.Failed {
			continue
		}
		level, text := v.stateOf(string(state))
		if n == 0 {
			level = ""
		}
		s.Counts = append(s.Counts, count{text, v.Link("names", "state", string(state)), level, n})
	}
	s.Counts = append(s.Counts, count{v.Say("leases"), v.Link("nodes"), "", totals["leases"]}, count{v.Say("services"), v.Link("zones"), "", totals["services"]})
	s.Chart, err = v.chart(ctx, totals)
	return s, err
}

// chart collects the numbers of names over the last day.
func (v *view) chart(ctx context.Context, totals map[string]uint64) (*chart, error) {
	since := v.now.Add(-chartTime)
	samples, err := v.samples(ctx, since.Add(-sampleEvery))
	if err != nil {
		return nil, err
	}
	marks, err := v.Events.Counts(ctx, since, markSpan, markKinds...)
	samples = slices.DeleteFunc(samples, func(s sample) bool { return s.at.After(v.now) })
	return newChart(append(samples, sample{at: v.now, counts: totals}), marks, since, v.in), err
}

// frontZones lists the zones, those that are down first.
func (v *view) frontZones(ctx context.Context, c mesh.Configuration, _ map[string]uint64) (*section, error) {
	s, err := v.zoneList(ctx, c)
	for i := range s.Rows {
		s.Rows[i].Why, s.Rows[i].Do = "", "" // which stand above
	}
	s.keep = 0
	return s.first(maxEvents), err
}

func (v *view) leftovers(ctx context.Context, _ mesh.Configuration, totals map[string]uint64) (*section, error) {
	s := &section{Title: "leftovers", Lead: "about leftovers"}
	places, err := v.Leftovers(ctx, 0, maxLeftovers)
	for _, p := range places {
		r := &row{Title: msg.Printable(p.Place.Name), Level: "busy", When: v.stored(p.Since), Facts: []string{providerTitle(p.Place.Account.Provider, v.in)}}
		s.Rows = append(s.Rows, r.faulty(mesh.Fault(p.Place.Fault), v.in))
	}
	s.Rest = max(0, int(totals[string(reconcile.Leftover)])-len(places))
	return s, err
}

// latest lists the last events. Three or more of one kind, reason and caller that follow each other are one entry, because an
// outage would fill the list.
func (v *view) latest(ctx context.Context, _ mesh.Configuration, _ map[string]uint64) (*section, error) {
	page, err := v.Events.Page(ctx, events.Filter{Newest: true}, maxAlike)
	s := &section{Title: "latest", None: "no events", Class: "events"}
	for first, next := 0, 0; first < len(page) && len(s.Rows) < maxEvents; first = next {
		for next = first + 1; next < len(page) && alike(page[first], page[next]); {
			next++
		}
		r := v.eventRow(page[first])
		if next == first+2 {
			next--
		} else if next > first+2 {
			r.Facts = append(r.Facts, v.Say("more alike", next-first-1))
		}
		s.Rows = append(s.Rows, r)
	}
	return s, err
}

// alike reports whether two events are of one kind, reason and caller.
func alike(a, b events.Event) bool {
	return a.Kind == b.Kind && a.By == b.By && a.Detail.Provider == b.Detail.Provider && a.Detail.Fault.Code == b.Detail.Fault.Code
}

// host tells this host's addresses, whether they are known now, and the versions.
func (v *view) host() []pair {
	known := v.Addresses()
	shown := func(last, now netip.Addr) string {
		switch {
		case !last.IsValid():
			return v.Say("address unknown")
		case last != now:
			return last.String() + v.Say("comma") + v.Say("address old")
		}
		return last.String()
	}
	return []pair{
		{"IPv4", shown(known.Last.IPv4, known.Now.IPv4)}, {"IPv6", shown(known.Last.IPv6, known.Now.IPv6)},
		{v.Say("versions"), fmt.Sprintf("meshddns %s, SQLite %s, schema %d", v.Program, v.SQLite, v.Schema)},
	}
}
