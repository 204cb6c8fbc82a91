package page

import (
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/web"
)

const (
	maxValues = 600 // characters of the values of one record
	maxDetail = 120 // characters of other texts
)

// names is the page of usages: all, those of a state or service, or those that a search finds.
func (v *view) names(ctx context.Context) error {
	v.Title = v.Say("names")
	find := mesh.Search{State: v.query.Get("state"), Service: v.query.Get("service")}
	if find.State != "" && !slices.Contains(reconcile.UsageStates, reconcile.PlaceState(find.State)) {
		return web.Fail(msg.QueryInvalid, "state", reconcile.StateChoices())
	}
	after, err := v.cursor()
	if err != nil {
		return err
	}
	s := &section{Title: v.Title, None: "no names"}
	if v.Query != "" {
		v.Title += ": " + v.Query
		s.Title, s.None = "found", "nothing found"
		find.Names = mesh.Meant(v.Query)
		if !strings.Contains(find.Names[0], ".") {
			find.Prefix, find.Names = find.Names[0], nil
		}
		if number, err := strconv.ParseUint(v.Query, 10, 64); err == nil {
			find.Network = sql.Null[mesh.NetworkID]{V: mesh.NetworkID(number), Valid: true}
		}
	}
	if find.Service != "" {
		s.Lead = v.Say("of service", msg.Printable(find.Service))
	}
	for _, state := range append([]reconcile.PlaceState{""}, reconcile.UsageStates...) {
		l := link{v.Say("state " + string(state)), v.Link("names", "state", string(state), "service", find.Service, "q", v.Query)}
		if string(state) == find.State {
			l.URL = ""
		}
		s.Links = append(s.Links, l)
	}
	usages, err := v.Usages(ctx, find, after, pageRows+1)
	if err != nil {
		return err
	}
	if s.Rows, err = v.usageRows(ctx, usages); err != nil {
		return err
	}
	if after == 0 && find.Service == "" {
		if s.Rows, err = v.besides(ctx, find, s.Rows); err != nil {
			return err
		}
	}
	s.next = func(last *row) string {
		return v.Link("names", "state", find.State, "service", find.Service, "q", v.Query, "after", last.cursor)
	}
	v.Sections = []*section{s.first(pageRows)}
	return nil
}

// besides adds what has a name and is no usage: the configuration's own record, and names that were released.
func (v *view) besides(ctx context.Context, find mesh.Search, rows []*row) ([]*row, error) {
	c, err := v.Configuration(ctx)
	if err != nil {
		return nil, err
	}
	own, _, err := v.ownRow(ctx, c)
	if _, text := v.stateOf(find.State); err == nil && own.Title != "" && (v.Query == "" || slices.Contains(find.Names, own.Title)) && (find.State == "" || own.State == text) {
		rows = append([]*row{own}, rows...)
	}
	taken := map[string]bool{}
	for _, r := range rows {
		taken[r.Title] = true
	}
	for _, name := range find.Names {
		if taken[name] {
			continue
		}
		history, err := v.Events.Page(ctx, events.Filter{Name: name, Newest: true}, 1)
		if err != nil {
			return nil, err
		}
		if len(history) > 0 && find.State == "" {
			rows = append(rows, &row{Title: name, Link: v.Link("events", "name", name), Level: "idle", State: v.Say("not reserved"), Links: []link{{v.Say("history"), v.Link("events", "name", name)}}})
		}
	}
	return rows, err
}

// usageRows tells of usages: what stands, and what is wanted where that differs; endpoints that live and that are dead.
func (v *view) usageRows(ctx context.Context, usages []mesh.Usage) (rows []*row, err error) {
	var names []string
	for _, u := range usages {
		names = append(names, u.Name)
	}
	slices.Sort(names)
	names = slices.Compact(names)
	state, err := v.Names(ctx, names)
	if err != nil {
		return nil, err
	}
	for _, u := range usages {
		at, _ := slices.BinarySearch(names, u.Name)
		one := state
		one.Names = state.Names[at : at+1]
		rows = append(rows, v.usageRow(u, one))
	}
	return rows, nil
}

// usageRow tells of one usage. The state has its name only.
func (v *view) usageRow(u mesh.Usage, state reconcile.State) *row {
	r := &row{Title: msg.Printable(u.Name), Link: v.usageLink(u.ID), When: v.stored(u.Publish.At), cursor: strconv.FormatInt(u.Seq, 10)}
	r.Level, r.State = v.stateOf(u.Publish.State)
	attempts := ""
	if u.Publish.Fault.Code != "" && u.Publish.Attempts > 0 {
		attempts = v.Say("attempts", u.Publish.Attempts)
	}
	r.Facts = facts(attempts, networkText(v, u.Network), v.Say("service", u.ServiceID))
	for _, known := range state.Names[0].Usages {
		if known.ID == u.ID {
			all, dead := len(known.Endpoints)+len(known.Leased), len(known.Dead)
			if dead > 0 {
				r.Facts = append(r.Facts, v.Say("endpoints count", max(0, all-dead), dead))
			} else { // without a check no endpoint is known to live
				r.Facts = append(r.Facts, v.Say("endpoints number", all))
			}
		}
	}
	if u.Publish.Value != "" {
		r.Values = append(r.Values, pair{v.Say("standing"), msg.Printable(u.Publish.Value)})
	}
	if u.Publish.State != string(reconcile.Published) {
		if wanted := reconcile.FormatStates(state, u.ID, v.Addresses()); len(wanted) > 0 && wanted[0].Values[0] != u.Publish.Value {
			r.Values = append(r.Values, pair{v.Say("wanted"), msg.Printable(wanted[0].Values[0])})
		}
	}
	return r.faulty(v.oneText(u.Name, u.Publish.Fault), v.in)
}

func networkText(v *view, n sql.Null[mesh.NetworkID]) string {
	if !n.Valid {
		return ""
	}
	return v.Say("network", n.V.String())
}

// name is the page of one usage.
func (v *view) name(ctx context.Context) error {
	u, err := v.Usage(ctx, v.id)
	if err != nil {
		return err
	}
	v.Title = msg.Printable(u.Name)
	state, err := v.Names(ctx, []string{u.Name})
	if err != nil {
		return err
	}
	checked, err := v.Endpoints(ctx, u.Seq, v.in)
	if err != nil {
		return err
	}
	leases, err := v.Leases(ctx, u.Seq, "", pageRows+1)
	if err != nil {
		return err
	}
	own := 0 // the others are of later usages
	for own < len(leases) && leases[own].UsageID == u.ID {
		own++
	}
	history, err := v.eventList(ctx, events.Filter{About: u.ID, Newest: true}, pageRows+1)
	if err != nil {
		return err
	}
	history.Title = "history"
	history.next = func(last *row) string { return v.Link("events", "name", u.Name, "after", last.cursor) }
	first := v.usageRow(u, state)
	first.Title = ""
	if u.Description != "" {
		first.Facts = append(first.Facts, short(u.Description, maxDetail))
	}
	records := reconcile.FormatStates(state, u.ID, v.Addresses())
	var now reconcile.Usage
	for _, known := range state.Names[0].Usages {
		if known.ID == u.ID {
			now = known
		}
	}
	v.Sections = []*section{
		{Title: v.Title, Rows: []*row{first}},
		{Title: "records", None: "no records", Rows: v.recordRows(u.Name, records), keep: 1},
		{Title: "in clients", None: "no clients", Clients: clientsOf(u, now, records)},
		(&section{Title: "endpoints", None: "no endpoints", Rows: v.endpointRows(now, checked)}).first(pageRows),
		(&section{Title: "leases", None: "no leases", Rows: v.leaseRows(leases[:own])}).first(pageRows),
		history.first(pageRows),
	}
	return nil
}

// recordRows tells of the records of a usage.
func (v *view) recordRows(name string, records []reconcile.FormatState) (rows []*row) {
	for _, f := range records {
		r := &row{Title: msg.Printable(f.Name), Facts: []string{string(f.Type), f.Format}}
		r.Level, r.State = v.stateOf(string(f.State))
		if len(f.Values) > 1 {
			r.Facts = append(r.Facts, v.Say("values", len(f.Values)))
		}
		r.Values = []pair{{"", short(strings.Join(f.Values, v.Say("comma")), maxValues)}}
		if len(f.LeftOut) > 0 {
			r.Facts = append(r.Facts, v.Say("left out", len(f.LeftOut)))
		}
		for _, l := range f.LeftOut {
			reason := l.Reason.In(v.in)
			if l.Reason == mesh.TooMany {
				reason = v.Say("too many")
			}
			label, last := v.Say("is left out", short(reason, maxDetail)), len(r.Values)-1
			if r.Values[last].Label != label {
				r.Values = append(r.Values, pair{label, short(l.Endpoint.Text, maxDetail)})
			} else if len(r.Values[last].Text) < maxValues {
				r.Values[last].Text += v.Say("comma") + short(l.Endpoint.Text, maxDetail)
			}
		}
		rows = append(rows, r.faulty(v.oneText(name, mesh.Fault(f.Fault)), v.in))
	}
	return rows
}

// endpointRows tells of the endpoints of a usage: with a check what it has shown, else only which there are.
func (v *view) endpointRows(now reconcile.Usage, checked []mesh.CheckedEndpoint) (rows []*row) {
	if len(checked) == 0 {
		for _, text := range now.Endpoints {
			checked = append(checked, mesh.CheckedEndpoint{Endpoint: text})
		}
		for _, e := range now.Leased {
			checked = append(checked, mesh.CheckedEndpoint{Endpoint: e.Text, Slot: e.Slot})
		}
	}
	for _, e := range checked {
		r := &row{Title: short(e.Endpoint, maxDetail), Level: "idle", State: v.Say("unchecked"), When: v.stored(e.Since), Why: short(e.Error, maxReason)}
		if e.Alive != nil {
			r.Level, r.State = "bad", v.Say("dead")
			if *e.Alive {
				r.Level, r.State = "good", v.Say("alive")
			}
		}
		if e.Slot != "" {
			r.Facts = []string{v.Say("slot", e.Slot)}
		}
		rows = append(rows, r)
	}
	return rows
}

// clients is what to type in clients: the formats that are published, and the names in them.
type clients struct {
	Name, Below, Peer string // Below is the name below the first label
	Has               map[string]bool
	Services          []service
}

// service is an SRV record that is published: "_nodes._tcp", "nodes", "tcp".
type service struct{ Labels, Service, Proto string }

// clientsOf returns the formats of a usage that are published, nil without one.
func clientsOf(u mesh.Usage, now reconcile.Usage, records []reconcile.FormatState) *clients {
	c := &clients{Name: u.Name, Below: strings.TrimPrefix(u.Name, mesh.Label+"."), Peer: u.Options.PeerID, Has: map[string]bool{}}
	for _, f := range records {
		for format := range strings.SplitSeq(f.Format, ",") {
			stands, met := c.Has[format]
			c.Has[format] = f.State == reconcile.Published && (stands || !met)
		}
	}
	c.Has[mesh.URLs] = len(records) > 0 && slices.Contains(now.Formats, mesh.URLs)
	some := c.Has[mesh.Mesh1]
	for _, format := range now.Formats {
		some = some || c.Has[format]
		if labels, srv := strings.CutPrefix(format, mesh.SRV); srv && c.Has[format] {
			name, proto, _ := strings.Cut(strings.ReplaceAll(labels, "_", ""), ".")
			c.Services = append(c.Services, service{labels, name, proto})
		}
	}
	if !some {
		return nil
	}
	return c
}
