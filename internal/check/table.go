package check

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/netip"
	"slices"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// Table reads which endpoints are checked, and has the SQL of the table dead_endpoints.
type Table struct {
	DB     *sqlite.Database
	Ledger *ledger.Ledger
	Events *events.Log
	Now    func() time.Time
}

// key identifies an endpoint.
type key struct {
	usage    int64 // its seq
	endpoint string
}

// target is an endpoint of a usage that has a check.
type target struct {
	key
	slot   string         // of the lease that renews it; "" for an endpoint of the usage itself
	ranges []netip.Prefix // of that lease
	of     mesh.Usage
	check  mesh.Checking
	dead   bool
	since  time.Time // dead since
	error  msg.Text  // why it is dead
}

// targets reads the endpoints of the first limit usages with a check, and reports whether there are more usages.
func (t *Table) targets(ctx context.Context, addresses mesh.Addresses, limit int) (all []target, more bool, err error) {
	usages, err := t.Ledger.Checked(ctx, limit+1)
	if err != nil || len(usages) == 0 {
		return nil, false, err
	}
	more = len(usages) > limit
	all, err = t.endpoints(ctx, usages[:min(limit, len(usages))], addresses)
	return all, more, err
}

// targetsOf reads the endpoints of a usage, none if it has no check.
func (t *Table) targetsOf(ctx context.Context, usage int64, addresses mesh.Addresses) ([]target, error) {
	usages, err := t.Ledger.CheckedUsage(ctx, usage)
	if err != nil || len(usages) == 0 {
		return nil, err
	}
	return t.endpoints(ctx, usages, addresses)
}

// endpoints returns what the usages would publish, each endpoint of a usage once.
func (t *Table) endpoints(ctx context.Context, usages []mesh.Usage, addresses mesh.Addresses) (all []target, err error) {
	var names []string
	for _, u := range usages {
		names = append(names, u.Name)
	}
	slices.Sort(names)
	state, err := t.Ledger.State(ctx, slices.Compact(names))
	if err != nil {
		return nil, err
	}
	stored := map[string]reconcile.Usage{}
	for _, n := range state.Names {
		for _, u := range n.Usages {
			stored[u.ID] = u
		}
	}
	dead, err := t.dead(ctx)
	if err != nil {
		return nil, err
	}
	ranges, err := t.ranges(ctx, usages)
	if err != nil {
		return nil, err
	}
	for _, u := range usages {
		c, err := mesh.ParseCheck(u.Options.Check)
		s, found := stored[u.ID]
		if err != nil || c == nil || c.Kind == mesh.CheckNone || !found || s.Account == nil {
			continue // rows from before the checks may have any config
		}
		own, _ := mesh.Expand(s.Endpoints, addresses)
		var endpoints []mesh.Endpoint
		for _, text := range own {
			endpoints = append(endpoints, mesh.Endpoint{Text: text})
		}
		listed := map[string]bool{}
		for _, e := range append(endpoints, s.Leased...) {
			if listed[e.Text] {
				continue
			}
			listed[e.Text] = true
			one := target{
				key: key{u.Seq, e.Text}, slot: e.Slot, ranges: ranges[place{u.Seq, e.Slot}], of: u, check: *c,
			}
			if d, ok := dead[one.key]; ok {
				one.dead, one.since, one.error = true, d.since, d.error
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// place identifies a slot of a usage.
type place struct {
	usage int64 // its seq
	slot  string
}

// ranges reads the address ranges that the leases of usages name.
func (t *Table) ranges(ctx context.Context, usages []mesh.Usage) (map[place][]netip.Prefix, error) {
	var seqs []int64
	for _, u := range usages {
		seqs = append(seqs, u.Seq)
	}
	list, err := json.Marshal(seqs)
	if err != nil {
		return nil, err
	}
	all := map[place][]netip.Prefix{}
	_, err = sqlite.Collect(ctx, t.DB.Reader, func(row sqlite.Scanner) (p place, err error) {
		var texts sqlite.TextList
		err = row.Scan(&p.usage, &p.slot, &texts)
		for _, text := range texts {
			if one, err := mesh.ParseRange(text); err == nil {
				all[p] = append(all[p], one)
			}
		}
		return p, err
	}, `SELECT usage, slot, cidrs FROM leases WHERE usage IN (SELECT value FROM json_each(?)) AND cidrs <> '[]'`, string(list))
	return all, err
}

type death struct {
	key
	since time.Time
	error msg.Text
}

// dead reads all rows of dead_endpoints.
func (t *Table) dead(ctx context.Context) (map[key]death, error) {
	rows, err := sqlite.Collect(ctx, t.DB.Reader, func(row sqlite.Scanner) (d death, err error) {
		var since int64
		err = row.Scan(&d.usage, &d.endpoint, &since, &d.error)
		d.since = sqlite.Stamped(since)
		return d, err
	}, `SELECT usage, endpoint, since, error FROM dead_endpoints`)
	all := map[key]death{}
	for _, d := range rows {
		all[d.key] = d
	}
	return all, err
}

// forget deletes the rows of endpoints that are not checked any more, and makes their names due.
func (t *Table) forget(ctx context.Context, kept map[key]bool) error {
	dead, err := t.dead(ctx)
	if err != nil {
		return err
	}
	for k := range dead {
		if kept[k] {
			continue
		}
		err := t.DB.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, `DELETE FROM dead_endpoints WHERE usage = ? AND endpoint = ?`, k.usage, k.endpoint); err != nil {
				return err
			}
			return t.Ledger.MarkNode(ctx, tx, k.usage)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// change is an endpoint that has died, or lives again.
type change struct {
	target
	now   time.Time
	error msg.Text // "" if it lives again
}

// save stores the changes of one name, with their events, and makes the name due. A usage that was
// released meanwhile changes nothing.
func (t *Table) save(ctx context.Context, changes []change) error {
	return t.DB.Tx(events.By(ctx, By), func(ctx context.Context, tx *sql.Tx) error {
		changed := map[int64]bool{} // usages
		for _, c := range changes {
			kind := events.EndpointAlive
			query, args := `DELETE FROM dead_endpoints WHERE usage = ? AND endpoint = ?`, []any{c.usage, c.endpoint}
			if c.error != "" {
				kind = events.EndpointDead
				query = `INSERT INTO dead_endpoints (usage, endpoint, since, error) SELECT seq, ?2, ?3, ?4 FROM usages WHERE seq = ?1 ON CONFLICT DO NOTHING`
				args = append(args, sqlite.Stamp(c.now), c.error)
			}
			count, err := sqlite.Exec(ctx, tx, query, args...)
			if err != nil {
				return err
			}
			if count == 0 {
				continue
			}
			changed[c.usage] = true
			if err := t.Events.Add(ctx, tx, eventOf(kind, c)); err != nil {
				return err
			}
		}
		for usage := range changed {
			if err := t.Ledger.MarkNode(ctx, tx, usage); err != nil {
				return err
			}
		}
		return nil
	})
}

// By is the caller of the changes that checks make.
const By = "check"

func eventOf(kind events.Kind, c change) events.Event {
	e := events.OfUsage(kind, c.of)
	e.Detail.After = events.JSON(struct {
		Endpoint string `json:"endpoint"`
		Slot     string `json:"slot,omitempty"`
	}{c.endpoint, c.slot})
	if c.error != "" {
		e.Detail.Fault = mesh.Fault{Code: string(msg.EndpointSilent), Detail: c.error}
	}
	return e
}
