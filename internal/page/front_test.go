package page

import (
	"context"
	"crypto/x509"
	"database/sql"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
)

// has gives the world a total of names by state, in place of its own ones.
func (w *world) has(totals map[string]uint64) {
	w.Totals = func(context.Context) (map[string]uint64, error) { return totals, nil }
}

// TestVerdict has the first sentence in each state of the program, and no other one that contradicts it.
func TestVerdict(t *testing.T) {
	on := mesh.Configuration{Provider: "builtin", Enabled: true, SyncMode: mesh.Auto}
	for _, test := range []struct {
		totals   map[string]uint64
		config   mesh.Configuration
		change   func(w *world)
		sentence string
	}{
		{nil, mesh.Configuration{}, nil, `busy"><span>Nothing is configured yet: there is no configuration and no service.<`},
		{nil, on, nil, `good"><span>All is well: names published: 0.<`},
		{map[string]uint64{"withdrawn": 2, "leftover": 1}, mesh.Configuration{}, nil, `busy"><span>Everything is being withdrawn: values that may stand: 3.<`},
		{map[string]uint64{"published": 4, "pending": 1, "withdrawing": 2}, on, nil, `busy"><span>Work is in progress: names that wait: 3; names published: 4.<`},
		{map[string]uint64{"failed": 4, "conflict": 1, "none": 2, "pending": 1}, on, func(w *world) { w.Faults = func() int64 { return 3 } },
			`bad"><span>Not all is well: names failed: 4, names in conflict: 1, names without a provider: 2, faults in the provisioning file: 3, names that wait: 1.<`},
		{nil, on, func(w *world) { w.Hidden = func(context.Context) (bool, error) { return true, nil } }, `bad"><span>Not all is well: no resolver finds the built-in zones.<`},
		{nil, on, func(w *world) {
			w.Certificate = func() (*x509.Certificate, bool) { return &x509.Certificate{}, true }
		}, `bad"><span>Not all is well: TLS certificate ends soon or has ended.<`},
		{nil, on, func(w *world) {
			w.Certificate = func() (*x509.Certificate, bool) { return &x509.Certificate{}, false }
		}, `good"><span>All is well: names published: 0.<`},
		{nil, mesh.Configuration{Provider: "builtin", SyncMode: mesh.Auto}, nil, `busy"><span>Publishing is paused: enabled is false in the configuration.<`},
		{nil, mesh.Configuration{Provider: "builtin", Enabled: true, SyncMode: "sometimes"}, nil, `busy"><span>Publishing is paused: POST /api/v1/ddns/sync publishes.<`},
		{map[string]uint64{"failed": 4}, mesh.Configuration{Provider: "builtin"}, nil, `bad"><span>Publishing is paused: enabled is false in the configuration; names failed: 4.<`},
		{nil, on, func(w *world) {
			w.Targets = told("retrying", "stopped")
		}, `bad"><span>Not all is well: notification targets stopped: 1, notification targets that try again: 1.<`},
		{nil, on, func(w *world) {
			w.Targets = told("retrying")
		}, `busy"><span>Work is in progress: notification targets that try again: 1; names published: 0.<`},
		{nil, on, func(w *world) {
			w.Held = func(context.Context, int) ([]mesh.NodeLease, int, error) { return nil, 7, nil }
			w.Secondaries = func(_ context.Context, limit int, _ msg.Language, tell func(string, string, mesh.SecondaryZone)) error {
				tell("ns2", "192.0.2.2:53", mesh.SecondaryZone{Zone: "a.example", Lag: 60})
				tell("ns3", "192.0.2.3:53", mesh.SecondaryZone{Zone: "a.example", Lag: 59})
				return nil
			}
		}, `bad"><span>Not all is well: leases held: 7, secondaries behind: 1.<`},
	} {
		w := newWorld(t)
		w.config = test.config
		w.has(test.totals)
		if test.change != nil {
			test.change(w)
		}
		page := w.want("/", `<p class="verdict `+test.sentence)
		if told := strings.Contains(page, "<h2>Needs attention</h2>"); told && !strings.Contains(test.sentence, "Not all") && !strings.Contains(test.sentence, "try again") {
			t.Errorf("%s, and something needs attention:\n%s", test.sentence, page)
		}
		if paused := strings.Contains(test.sentence, "paused"); paused != strings.Contains(page, `<p class="do">Set enabled`) && paused != strings.Contains(page, `<p class="do">The mode is manual: write once`) {
			t.Errorf("%s does not say what to do", test.sentence)
		}
	}
}

// TestAttention: what is in the first sentence is told below it, with the time, the reason and what to do.
func TestAttention(t *testing.T) {
	w := newWorld(t)
	w.has(nil)
	w.Targets = told("stopped", "retrying")
	w.Faults = func() int64 { return 2 }
	w.Held = func(context.Context, int) ([]mesh.NodeLease, int, error) {
		return []mesh.NodeLease{{Name: "_mesh.a.example", UsageID: "id-1", Slot: "home"}}, 4, nil
	}
	w.happened(events.Event{Kind: events.ProvisionRefused, Detail: events.Detail{Fault: mesh.Fault{Code: string(msg.NotProvisioned), Detail: "line 3"}}})
	w.want("/", "Needs attention", "<b>Provisioning file</b>", "faults in the provisioning file: 2", "(0 s ago)", "line 3", "send SIGHUP",
		"notifications stopped", "(7 min ago) · ntfy · next try 2026-03-04 14:09:00 +02:00 (in 2 min)", "the provider cannot be reached", "save it again", "notifications are tried again",
		`./nodes">Held leases<`, "leases: 4", `./names/id-1">_mesh.a.example home<`)
}

// TestGroups: names are told by zone and reason, with a number and the first names; a zone that is down with its names.
func TestGroups(t *testing.T) {
	w := newWorld(t)
	w.config = mesh.Configuration{Provider: "alidns", Enabled: true, SyncMode: mesh.Auto}
	w.has(map[string]uint64{"failed": 2001, "conflict": 2, "published": 1})
	first := func(n int) (all []mesh.Usage) {
		for i := range n {
			all = append(all, mesh.Usage{ID: fmt.Sprint("id-", i), Name: fmt.Sprintf("_mesh.p%d.a.example", i), Publish: mesh.Publishing{State: "failed"}})
		}
		return all
	}
	atLeast := false
	w.Amiss = func(context.Context, int) ([]mesh.AmissGroup, int, bool, error) {
		return []mesh.AmissGroup{
			{Zone: "a.example", Provider: "alidns", Bad: true, Fault: mesh.Fault{Code: "network", Detail: "no route"}, Count: 2001, First: first(5)},
			{Zone: "a.example", Provider: "alidns", Bad: true, Fault: mesh.Fault{Code: "conflict"}, Count: 2, First: first(2)},
			{Zone: "c.example", Provider: "", Fault: mesh.Fault{Code: "writes_used_up"}, Count: 1, First: first(1)},
		}, 2010, atLeast, nil
	}
	w.want("/", "Needs attention", "<b>a.example</b>", `bad">names: 2001<`, "the provider cannot be reached: no route", "Check this host", `./names/id-0">_mesh.p0.a.example<`, "_mesh.p4.a.example", `./names?state=failed">all ...<`,
		"<b>a.example</b>", `bad">names: 2<`, "<b>c.example</b>", `busy">names: 1<`, "and 6 more", "!p5.a.example", "!Nothing.", "!no provider")
	atLeast = true
	w.want("/", "names: at least 2001")

	// One failure, one text: that of the zone, which sometimes does not answer and sometimes refuses.
	w.DownZones = func() []reconcile.ZoneState {
		return []reconcile.ZoneState{{Provider: "alidns", Zone: "a.example", Since: w.at.Add(-time.Hour), Fault: reconcile.Fault{Code: "temporary", Detail: "503"}}}
	}
	page := w.want("/", "zones down: 1.", "<b>a.example</b>", ">down<", "(1 h ago)", "names: at least 2001", "the provider has a temporary fault: 503", "_mesh.p0.a.example", "<b>a.example</b>", "names: at least 2<", "!no route")
	if n := strings.Count(page, "temporary fault: 503"); n != 1 {
		t.Errorf("the reason is told %d times", n)
	}
	w.Usages = func(context.Context, mesh.Search, int64, int) ([]mesh.Usage, error) {
		return []mesh.Usage{{Name: "_mesh.p0.a.example", Publish: mesh.Publishing{State: "failed", Fault: mesh.Fault{Code: "network", Detail: "no route"}}}}, nil
	}
	w.want("/names", "temporary fault: 503", "!no route")
}

// TestOneZoneBelowTwoDomains: a provider's zone is down once, whatever the number of domains in it.
func TestOneZoneBelowTwoDomains(t *testing.T) {
	w := newWorld(t)
	w.has(nil)
	fault := reconcile.Fault{Code: "network"}
	w.DownZones = func() []reconcile.ZoneState {
		return []reconcile.ZoneState{
			{Provider: "alidns", Zone: "a.example.com", Apex: "example.com", Since: w.at, Fault: fault},
			{Provider: "alidns", Zone: "b.example.com", Apex: "example.com", Since: w.at, Fault: fault},
			{Provider: "alidns", Zone: "c.example.com", Since: w.at, Fault: fault}, // whose apex is not found yet
			{Provider: "alidns", Zone: "badexample.com", Since: w.at, Fault: fault},
			{Provider: "route53", Zone: "a.example.com", Since: w.at, Fault: fault},
		}
	}
	w.want("/", "zones down: 3.")
}

// TestOwnRecord: the configuration's record is told once, with its time, and is no name that is not listed.
func TestOwnRecord(t *testing.T) {
	w := newWorld(t)
	w.config = mesh.Configuration{Provider: "alidns", Domain: "example.com", TXTRecordName: "@", Zone: "example.com", AccountID: 1, Enabled: true, SyncMode: mesh.Auto}
	w.has(map[string]uint64{"failed": 3})
	w.Amiss = func(context.Context, int) ([]mesh.AmissGroup, int, bool, error) {
		return []mesh.AmissGroup{{Zone: "a.example", Bad: true, Fault: mesh.Fault{Code: "quota"}, Count: 2, First: []mesh.Usage{{Name: "a"}, {Name: "b"}}}}, 2, false, nil
	}
	place := reconcile.Place{Name: "example.com", State: reconcile.Failed, Fault: reconcile.Fault{Code: "quota"}}
	w.Names = func(context.Context, []string) (reconcile.State, error) {
		return reconcile.State{Configured: true, Names: []reconcile.Name{{Name: "example.com", Own: &reconcile.Own{Account: reconcile.Account{ID: 1, Provider: "alidns"}, Domain: "example.com"}, Places: []reconcile.Place{place}}}}, nil
	}
	w.Places = func(context.Context, string) ([]reconcile.StoredPlace, error) {
		return []reconcile.StoredPlace{{Place: place, At: "2026-03-04T12:04:00.000Z"}}, nil
	}
	page := w.want("/", "names failed: 3.", "names: 2", "<b>example.com</b>", "2026-03-04 14:04:00 +02:00 (3 min ago)", "record", "!more</p>")
	if strings.Count(page, "<b>example.com</b>") != 1+1 { // and in the list of zones
		t.Error(page)
	}
}

// TestZeroIsNotRed: a number of 0 has no colour.
func TestZeroIsNotRed(t *testing.T) {
	w := newWorld(t)
	w.has(map[string]uint64{"published": 0, "failed": 0})
	w.want("/", `<dt>published</dt><dd><a href="./names?state=published">0<`, `<dt>failed</dt><dd><a href="./names?state=failed">0<`, "There is no name yet.")
	w.has(map[string]uint64{"published": 1, "failed": 2})
	w.want("/", `<dd class="good"><a href="./names?state=published">1<`, `<dd class="bad"><a href="./names?state=failed">2<`, "the chart begins with the second one")
}

// TestEvents has each kind of change in words, with the record that it is about, and never in JSON.
func TestEvents(t *testing.T) {
	w := newWorld(t)
	object := func(text string) []byte { return []byte(text) }
	for want, e := range map[string]events.Event{
		`record changed</span> <b><a href="./names?q=a.example">a.example</a></b> <small>x → y · by token 2`:                           {Kind: events.RecordChanged, Name: "a.example", By: "token 2", Detail: events.Detail{Before: events.JSON("x"), After: events.JSON("y")}},
		`<small>_nodes._tcp.a.example SRV · Dynamic update (RFC 2136, TSIG): BIND, Knot, PowerDNS · 1 1 1 h.`:                          {Kind: events.RecordPublished, Name: "_mesh.a.example", Detail: events.Detail{Record: "_nodes._tcp.a.example SRV", Provider: "rfc2136", After: events.JSON("1 1 1 h.")}},
		`./names?service=office">office</a></b> <small>enabled: true → false, domain: a → b, txt_endpoints: tcp://a:1, tcp://b:2 → -<`: {Kind: events.ServiceChanged, ServiceID: "office", Detail: events.Detail{Before: object(`{"same":1,"enabled":true,"domain":"a","txt_endpoints":["tcp://a:1","tcp://b:2"]}`), After: object(`{"same":1,"enabled":false,"domain":"b","txt_endpoints":[]}`)}},
		`<small>domain: a.example, max_retries: 3<`:                            {Kind: events.ConfigurationChanged, Detail: events.Detail{After: object(`{"domain":"a.example","max_retries":3,"txt_endpoints":[]}`)}},
		`<small>slot: home, endpoints: - → tcp://a:1<`:                         {Kind: events.LeaseRenewed, Detail: events.Detail{Before: object(`{"id":"1","slot":"home","endpoints":[]}`), After: object(`{"id":"1","slot":"home","endpoints":["tcp://a:1"]}`)}},
		`<small>ipv4: 192.0.2.1 → 192.0.2.2, named: - → wan ipv4 192.0.2.3<`:   {Kind: events.AddressChanged, Detail: events.Detail{Before: object(`{"ipv4":"192.0.2.1"}`), After: object(`{"ipv4":"192.0.2.2","named":{"wan":{"ipv4":"192.0.2.3"}}}`)}},
		`<small>Alibaba Cloud DNS · the provider cannot be reached: no route<`: {Kind: events.ZoneDown, Name: "a.example", Detail: events.Detail{Provider: "alidns", Fault: mesh.Fault{Code: "network", Detail: "no route"}}},
		`<small>entries: 3<`: {Kind: events.ProvisionApplied, Detail: events.Detail{Count: 3}},
	} {
		w := newWorld(t)
		w.must(w.db.Tx(events.By(t.Context(), e.By), func(ctx context.Context, tx *sql.Tx) error { return w.Events.Add(ctx, tx, e) }))
		w.want("/events", want, `!{"`)
	}
	w.happened(slices.Repeat([]events.Event{{Kind: events.RecordFailed, Name: "a.example"}}, 60)...)
	w.happened(events.Event{Kind: events.ZoneDown, Name: "b.example"})
	w.want("/events", "zone down", "record failed", `./events?after=12`)
	w.want("/events?after=12", "record failed", "!zone down", "!>next<")
	w.want("/events?kind=zone.*", "<strong>zones</strong>", "zone down", "!record failed", "!>next<")
	w.want("/events?name=A.example.", "Events of a.example.", "record failed", "!zone down", "after=11&name=a.example")
	for _, target := range []string{"/events?kind=nothing", "/events?after=x", "/names?state=x", "/names?after=-1", "/nodes?after=x"} {
		if code := w.get(target).Code; code != http.StatusBadRequest {
			t.Errorf("%s: %d", target, code)
		}
	}
}

// TestAlike: three events of one kind and reason that follow each other are one of the last events, until another one comes.
func TestAlike(t *testing.T) {
	w := newWorld(t)
	failed := events.Event{Kind: events.RecordFailed, Name: "a.example", Detail: events.Detail{Provider: "rfc2136", Fault: mesh.Fault{Code: "network"}}}
	other, published := failed, events.Event{Kind: events.RecordPublished, Name: "c.example"}
	other.Detail.Fault.Code = "credentials"
	w.happened(failed, failed)
	w.happened(slices.Repeat([]events.Event{failed}, 90)...)
	w.happened(other, published, published)
	page := w.want("/", "record published", "record published", "record failed", "record failed", "and 91 more like it")
	if n := strings.Count(page, "record failed<"); n != 2 {
		t.Errorf("%d rows of failures\n%s", n, page)
	}
}

// TestDownWithAll: a zone that is down has one number of names, with the configuration's own record, and five of them.
func TestDownWithAll(t *testing.T) {
	w := newWorld(t)
	w.config = mesh.Configuration{Provider: "rfc2136", Domain: "example.com", TXTRecordName: "@", Zone: "example.com", AccountID: 1, Enabled: true, SyncMode: mesh.Auto}
	w.has(map[string]uint64{"failed": 2001})
	fault := mesh.Fault{Code: "network"}
	w.Amiss = func(context.Context, int) (all []mesh.AmissGroup, total int, more bool, err error) {
		for _, zone := range []string{"a.example.com", "b.example.com"} {
			first := slices.Repeat([]mesh.Usage{{Name: "_mesh.x." + zone, Publish: mesh.Publishing{State: "failed"}}}, 5)
			all = append(all, mesh.AmissGroup{Zone: zone, Provider: "rfc2136", Bad: true, Fault: fault, Count: 1000, First: first})
		}
		return all, 2000, false, nil
	}
	w.DownZones = func() (all []reconcile.ZoneState) {
		for _, zone := range []string{"a.example.com", "b.example.com", "example.com"} {
			all = append(all, reconcile.ZoneState{Provider: "rfc2136", Zone: zone, Since: w.at, Fault: reconcile.Fault(fault)})
		}
		return all
	}
	place := reconcile.Place{Name: "example.com", State: reconcile.Failed, Fault: reconcile.Fault(fault)}
	w.Places = func(context.Context, string) ([]reconcile.StoredPlace, error) {
		return []reconcile.StoredPlace{{Place: place}}, nil
	}
	page := w.want("/", "names failed: 2001, zones down: 1.", "<b>example.com</b>", "names: 2001<", "all ...", "domains: example.com, a.example.com, b.example.com<", "!more</p>", "!own record")
	if n := strings.Count(page, ">_mesh.x."); n != 5 || strings.Count(page, "names: ") != 1 {
		t.Errorf("%d names\n%s", n, page)
	}
}
