package page

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"sort"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/web"
)

// zones is the page of zones and secondaries.
func (v *view) zones(ctx context.Context) error {
	v.Title = v.Say("zones")
	c, err := v.Configuration(ctx)
	if err != nil {
		return err
	}
	zones, err := v.zoneList(ctx, c)
	if err != nil {
		return err
	}
	secondaries := &section{Title: "secondaries", None: "no secondaries"}
	err = v.Secondaries(ctx, pageRows, v.in, func(id, address string, z mesh.SecondaryZone) {
		r := &row{Title: msg.Printable(z.Zone), Level: "good", State: v.Say("up to date"), Facts: []string{id, address, v.Say("serial", z.Serial)}, Why: z.Error}
		switch {
		case z.Fetched == nil:
			r.Level, r.State = "busy", v.Say("not fetched")
		case z.Lag > 0:
			r.Level, r.State = "busy", v.Say("behind")
		}
		if z.Fetched != nil {
			r.Facts = append(r.Facts, v.Say("fetched", *z.Fetched))
		}
		if z.Lag > 0 {
			r.Facts = append(r.Facts, v.Say("lag", v.span(z.Lag)))
		}
		if z.Lag >= int64(behindAfter/time.Second) {
			r.Level, r.Do = "bad", v.Say("do behind")
		}
		secondaries.Rows = append(secondaries.Rows, r)
	})
	level := func(i int) string { return secondaries.Rows[i].Level } // "bad" comes before "busy" and "good"
	sort.SliceStable(secondaries.Rows, func(i, j int) bool { return level(i) < level(j) })
	v.Sections = []*section{zones, secondaries}
	return err
}

// zoneList lists the zones that are down, then those of the configuration and of services.
func (v *view) zoneList(ctx context.Context, c mesh.Configuration) (*section, error) {
	s := &section{Title: "zones", None: "no zones", keep: 2}
	var up, unknown []*row
	for _, z := range v.downZones() {
		r := v.zoneRow(z.ZoneState, true)
		if z.domains[0] != z.Zone || len(z.domains) > 1 {
			r.Facts = append(r.Facts, short(v.Say("domains", strings.Join(z.domains, v.Say("comma"))), maxDetail))
		}
		s.Rows = append(s.Rows, r)
	}
	all, err := v.Zones(ctx, scannedZones)
	if c.Provider != "" {
		all = append([]mesh.ServiceZone{{Zone: c.Zone, Provider: c.Provider, AccountID: c.AccountID}}, all...)
	}
	seen := map[[2]string]bool{}
	for _, z := range all {
		account := mesh.Service{Zone: z.Zone, AccountID: z.AccountID}.AccountOf(c)
		if z.AccountID == 0 && account != 0 {
			z.Provider = c.Provider
		}
		state, known := v.Zone(account, z.Zone)
		if at := [2]string{z.Provider, z.Zone}; !seen[at] && state.Fault.Code == "" {
			seen[at] = true
			state.Provider, state.Zone = z.Provider, z.Zone
			if r := v.zoneRow(state, known); known {
				up = append(up, r)
			} else {
				unknown = append(unknown, r)
			}
		}
	}
	s.Rows = append(append(s.Rows, up...), unknown...)
	return s, err
}

func (v *view) zoneRow(z reconcile.ZoneState, known bool) *row {
	r := &row{Title: msg.Printable(z.Zone), Level: "good", State: v.Say("zone ok"), When: v.clock(z.Since), Facts: []string{providerTitle(z.Provider, v.in)}}
	switch {
	case !known:
		r.Level, r.State = "idle", v.Say("zone unknown")
	case z.Fault.Code != "":
		r.Level, r.State = "bad", v.Say("zone down")
	case z.Warning.Code != "":
		r.Level, z.Fault = "busy", z.Warning
	}
	if z.Apex != "" && z.Apex != z.Zone {
		r.Facts = append(r.Facts, v.Say("apex", msg.Printable(z.Apex)))
	}
	if left, limited := v.left[z.Provider]; limited {
		r.Facts = append(r.Facts, v.Say("writes left", left))
	}
	return r.faulty(mesh.Fault(z.Fault), v.in)
}

// nodes is the page of leases: those that are held, then all in the order of the reservations and slots.
func (v *view) nodes(ctx context.Context) error {
	v.Title = v.Say("tab nodes")
	number, slot, _ := strings.Cut(v.query.Get("after"), ".")
	usage, err := strconv.ParseInt(number, 10, 64)
	if number != "" && err != nil {
		return web.Fail(msg.QueryInvalid, "after", msg.Phrase{ID: msg.WantCursor})
	}
	if number == "" {
		held, n, err := v.Held(ctx, maxHeld)
		if err != nil {
			return err
		}
		if n > 0 {
			v.Sections = []*section{{Title: "held leases", Lead: "about held", Rows: v.leaseRows(held), Rest: n - len(held)}}
		}
	}
	leases, err := v.Leases(ctx, usage, slot, pageRows+1)
	s := &section{Title: "all leases", Lead: "about leases", None: "no leases", Rows: v.leaseRows(leases)}
	s.next = func(last *row) string { return v.Link("nodes", "after", last.cursor) }
	v.Sections = append(v.Sections, s.first(pageRows))
	return err
}

// leaseRows tells of leases.
func (v *view) leaseRows(leases []mesh.NodeLease) (rows []*row) {
	for _, l := range leases {
		r := &row{Title: msg.Printable(l.Name), Link: v.usageLink(l.UsageID), Level: leaseLevels[l.State], State: v.Say("lease " + l.State), cursor: fmt.Sprint(l.Usage, ".", l.Slot)}
		r.Facts = []string{v.Say("slot", l.Slot)}
		if l.ACME {
			r.Facts = append(r.Facts, v.Say("acme"))
		}
		if !l.Renewed.IsZero() {
			r.Facts = append(r.Facts, v.Say("renewed", v.clock(l.Renewed), l.From))
		}
		if l.State == "live" && !l.Ends.IsZero() {
			r.Facts = append(r.Facts, v.Say("ends", v.clock(l.Ends)))
		}
		if len(l.Endpoints) > 0 {
			r.Values = []pair{{"", short(strings.Join(l.Endpoints, " "), maxReason)}}
		}
		rows = append(rows, r)
	}
	return rows
}

// events is the page of events, the newest first.
func (v *view) events(ctx context.Context) error {
	v.Title = v.Say("events")
	kind, name := v.query.Get("kind"), mesh.Meant(v.query.Get("name"))[0]
	if kind != "" && !events.GoodPattern(kind) {
		return web.Fail(msg.QueryInvalid, "kind", "record.*, zone.*, ...")
	}
	before, err := v.cursor()
	if err != nil {
		return err
	}
	s, err := v.eventList(ctx, events.Filter{Kind: kind, Name: name, Newest: true, Before: before}, pageRows+1)
	if name != "" {
		s.Lead = v.Say("events of", msg.Printable(name))
	}
	for _, group := range eventGroups {
		l := link{v.Say("group " + group), v.Link("events", "kind", group, "name", name)}
		if group == kind {
			l.URL = ""
		}
		s.Links = append(s.Links, l)
	}
	s.next = func(last *row) string { return v.Link("events", "kind", kind, "name", name, "after", last.cursor) }
	v.Sections = []*section{s.first(pageRows)}
	return err
}

// cursor returns the number behind which a list goes on.
func (v *view) cursor() (after int64, err error) {
	_, after, err = web.PageQuery(url.Values{"cursor": {v.query.Get("after")}})
	return after, err
}

// eventGroups are the patterns of kinds that have a link.
var eventGroups = []string{"", "record.*", "zone.*", "usage.*", "service.*", "configuration.*", "lease.*", "endpoint.*", "secondary.*", "leftover.*", "provision.*"}

// eventList lists events.
func (v *view) eventList(ctx context.Context, f events.Filter, limit int) (*section, error) {
	s := &section{Title: "events", None: "no events", Class: "events"}
	page, err := v.Events.Page(ctx, f, limit)
	for _, e := range page {
		s.Rows = append(s.Rows, v.eventRow(e))
	}
	return s, err
}

// eventRow says what happened: to what, how many, what has changed, why, and by whom.
func (v *view) eventRow(e events.Event) *row {
	r := &row{When: v.clock(e.At), Level: eventLevels[e.Kind], State: msg.ID(e.Kind).In(v.in), Title: msg.Printable(cmp.Or(e.Name, e.ServiceID)), cursor: strconv.FormatInt(e.Seq, 10)}
	switch {
	case e.UsageID != "" || strings.HasPrefix(string(e.Kind), "record."):
		r.Link = v.Link("names", "q", e.Name)
	case e.ServiceID != "":
		r.Link = v.Link("names", "service", e.ServiceID)
	}
	number, by := "", ""
	if e.Detail.Count > 0 {
		number = v.Say(cmp.Or(counted[e.Kind], "entries"), e.Detail.Count)
	}
	if e.By != "" {
		by = v.Say("by", e.By)
	}
	changes := short(strings.Join(events.Changes(e.Detail), v.Say("comma")), maxReason)
	all := facts(msg.Printable(e.Detail.Record), msg.ProviderIn(v.in, e.Detail.Provider).Title, number, changes, reasonOf(e.Detail.Fault, v.in), by)
	r.Facts = facts(strings.Join(all, " · "))
	return r
}

// counted has the texts of numbers in events that are not of entries.
var counted = map[events.Kind]string{
	events.LeaseHeld: "n leases", events.SecondaryBehind: "n zones", events.SecondaryCaughtUp: "n zones",
}
