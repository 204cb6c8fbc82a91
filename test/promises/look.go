package promises

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// version gives a function whose value changes with each write by another.
func (h *host) version() func() int {
	h.t.Helper()
	h.Settle()
	db, err := sql.Open("sqlite3", "file:"+h.Path+"?_busy_timeout=5000")
	support.Must(h.t, err)
	h.t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(1)
	return func() (version int) {
		support.Must(h.t, db.QueryRow(`PRAGMA data_version`).Scan(&version))
		return version
	}
}

// exec changes the database as no function of the store does.
func (h *host) exec(statement string) {
	h.t.Helper()
	support.Exec(h.t, h.Writer, statement)
}

// count is the number that a query gives.
func (h *host) count(query string) (n int) {
	h.t.Helper()
	support.Must(h.t, h.Reader.QueryRow(query).Scan(&n))
	return n
}

// rows are what the database has about names and places.
func (h *host) rows() (all []string) {
	h.t.Helper()
	all, err := sqlite.Collect(context.Background(), h.Reader, sqlite.Text, `
		SELECT json_array(name, version, due, lane, pass) FROM names UNION ALL
		SELECT json_array(id, name, account, zone, state, standing, doubt, look_at, code, attempts, at, since) FROM places`)
	support.Must(h.t, err)
	return all
}

// value is what the appliance publishes for a network.
func (h *host) value(network string, endpoints ...string) string {
	return mesh.Value(network, h.Owner, endpoints)
}

// text is the value as dig prints it.
func (h *host) text(network string, endpoints ...string) string {
	return dnsQuoted(provider.Value{h.value(network, endpoints...)})
}

const dnsForeignTTL = 120

// foreign adds a value as another program would.
func (h *host) foreign(s servertest.Server, name string, v provider.Value) {
	h.t.Helper()
	if s.Name != msg.Builtin {
		s.Update(h.t, fmt.Sprintf("add %s %d TXT %s", name, dnsForeignTTL, dnsQuoted(v)))
		return
	}
	support.Exec(h.t, h.Writer, `INSERT INTO zone_records (name, type, data, ttl) VALUES (?, 16, ?, ?)`, dnsKey(name), dns.TXTData(v), dnsForeignTTL)
	h.outside(builtin.Changed{Records: []string{dnsKey(name)}})
}

// dnsKey is a name as the built-in zones have it: folded, labels from the root.
func dnsKey(name string) string {
	labels := strings.Split(dns.Fold(name), ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

func (h *host) places(name string) (places []reconcile.Place) {
	h.t.Helper()
	state, err := h.Ledger.State(context.Background(), []string{name})
	support.Must(h.t, err)
	places = state.Names[0].Places
	slices.SortFunc(places, func(a, b reconcile.Place) int { return cmp.Compare(a.ID, b.ID) })
	return places
}

// wantPlaces compares the places of a name, the oldest first: the state, what
// stands there, what may stand there, and why it is not as it should be.
func (h *host) wantPlaces(name string, want ...string) {
	h.t.Helper()
	var got []string
	for _, p := range h.places(name) {
		doubt := p.Doubt.String()
		if doubt != "" {
			doubt = "perhaps " + doubt
		}
		got = append(got, dnsWords(string(p.State), p.Standing, doubt, p.Fault.Code))
	}
	if !slices.Equal(got, want) {
		h.t.Errorf("%s has the places %q, want %q", name, got, want)
	}
}

// wantTaken compares how many usages have a prefix.
func (h *host) wantTaken(prefix string, want int) {
	h.t.Helper()
	if got := h.taken(prefix); got != want {
		h.t.Errorf("%d usages have %s, want %d", got, prefix, want)
	}
}

func (h *host) taken(prefix string) int {
	h.t.Helper()
	return h.count(`SELECT count(*) FROM usages WHERE record_prefix = '` + prefix + `' COLLATE NOCASE`)
}

// leftovers are the names of those that stand where nobody wants them.
func (h *host) leftovers() (names []string) {
	h.t.Helper()
	all, err := h.Ledger.Leftovers(context.Background(), 0, 100)
	support.Must(h.t, err)
	for _, p := range all {
		names = append(names, p.Place.Name)
	}
	return names
}

// standing gives the values in the zones of the built-in server.
func (h *host) standing(name string) (texts []string) {
	h.t.Helper()
	set, err := builtin.Client{Store: h.Zones}.Read(context.Background(), "", name, provider.TXT)
	support.Must(h.t, err)
	for _, v := range set.Values {
		texts = append(texts, dnsQuoted(v))
	}
	return texts
}

func (h *host) wantStanding(name string, want ...string) {
	h.t.Helper()
	if got := h.standing(name); !slices.Equal(got, want) {
		h.t.Errorf("%s has %q, want %q", name, got, want)
	}
}

// dnsReportLines are a report's records (name, action, and code if any), and how
// many are unchanged.
func dnsReportLines(r reconcile.Report) (lines []string) {
	for _, o := range r.Records {
		code := o.Fault.Code
		if code == o.Action {
			code = ""
		}
		lines = append(lines, dnsWords(o.Name, o.Action, code))
	}
	if n := r.Counts[reconcile.ActionUnchanged]; n > 0 {
		lines = append(lines, fmt.Sprint(n, " unchanged"))
	}
	return lines
}

func wantReport(t testing.TB, r reconcile.Report, want ...string) {
	t.Helper()
	if got := dnsReportLines(r); !slices.Equal(got, want) {
		t.Errorf("report:\n%s\nwant\n%s\n%+v", strings.Join(got, "\n"), strings.Join(want, "\n"), r)
	}
}

// wantTXT compares the values at a name of a server, as dig prints them.
func wantTXT(t testing.TB, s servertest.Server, name string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := s.TXT(t, name); !slices.Equal(got, want) {
		t.Errorf("%s of %s has %q, want %q", name, s.Name, got, want)
	}
}

// dnsQuoted writes a value as dig does.
func dnsQuoted(v provider.Value) string {
	var quoted []string
	for _, s := range v {
		var text strings.Builder
		for _, octet := range []byte(s) {
			switch {
			case octet == '"' || octet == '\\':
				text.WriteString(`\` + string(rune(octet)))
			case octet < ' ' || octet > '~':
				fmt.Fprintf(&text, `\%03d`, octet)
			default:
				text.WriteByte(octet)
			}
		}
		quoted = append(quoted, `"`+text.String()+`"`)
	}
	return strings.Join(quoted, " ")
}

// dnsUntil takes what comes from a channel until a time is over.
func dnsUntil[T any](from <-chan T, limit time.Duration) (v T) {
	select {
	case v = <-from:
	case <-time.After(limit):
	}
	return v
}
