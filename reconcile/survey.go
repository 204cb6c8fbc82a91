package reconcile

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"meshddns/meshtxt"
	"meshddns/provider"
)

// Preview says what a pass would do now, and writes nothing.
func (e *Engine) Preview(ctx context.Context) (Report, error) {
	settings, err := e.config.Database.Settings(ctx)
	switch {
	case err != nil:
		return Report{}, err
	case !settings.Configured:
		return Report{}, ErrNotConfigured
	case !settings.Enabled:
		return Report{}, ErrDisabled
	}
	report := Report{StartedAt: e.config.Now(), Trigger: TriggerManual, Counts: map[string]int{}}
	conns := map[int64]*connection{}
	for cursor := ""; ; {
		names, err := e.config.Database.NamesAfter(ctx, cursor, -1, pageNames)
		if err != nil {
			return report, unfinished(ctx, err)
		}
		if len(names) == 0 {
			report.finish(e.config.Now())
			return report, nil
		}
		cursor = names[len(names)-1]
		if err := e.previewPage(ctx, names, conns, &report); err != nil {
			return report, err
		}
	}
}

// previewPage surveys some names for a report.
func (e *Engine) previewPage(ctx context.Context, names []string, conns map[int64]*connection, report *Report) error {
	items, refused, err := e.survey(ctx, names, conns)
	if err != nil {
		return err
	}
	outcomes, at := map[string][]Outcome{}, map[string][]*item{}
	for _, i := range items {
		v := verdict{item: i, job: &job{record: i.record}, now: e.config.Now(), lane: &lane{}, givenUp: true}
		o, _ := v.conclude()
		outcomes[o.Name], at[o.Name] = append(outcomes[o.Name], o), append(at[o.Name], i)
	}
	for _, r := range refused {
		outcomes[r.Name] = append(outcomes[r.Name], r.refused())
	}
	for _, name := range names {
		report.add(append(outcomes[name], moves(at[name], outcomes[name])...), false, false)
	}
	return nil
}

// unfinished is what an error is to who waits, when the wait is over.
func unfinished(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ErrUnfinished
	}
	return err
}

// survey reads what stands at some names, and writes nothing.
func (e *Engine) survey(ctx context.Context, names []string, conns map[int64]*connection) (items []*item, refused []Record, err error) {
	state, err := e.config.Database.State(ctx, names)
	if err != nil {
		return nil, nil, unfinished(ctx, err)
	}
	lanes := map[string][]Record{}
	for _, r := range Desired(state, e.config.Addresses()) {
		if r.refusal() {
			refused = append(refused, r)
			continue
		}
		if conns[r.Account.ID] == nil {
			conns[r.Account.ID] = connect(e.config.Open, r.Account, e.config.Now())
		}
		lanes[r.lane()] = append(lanes[r.lane()], r)
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	for _, records := range lanes {
		group.Go(func() {
			b := &batch{db: e.config.Database, addresses: e.config.Addresses(), now: e.config.Now, conn: conns[records[0].Account.ID], dry: true}
			for _, r := range records {
				b.items = append(b.items, newItem(r, false))
			}
			b.rescue(func() { b.work(ctx) }, b.items...)
			if b.crash != nil {
				e.config.Log.Error("a record is not looked at", "error", b.crash)
			}
			mu.Lock()
			defer mu.Unlock()
			items = append(items, b.items...)
		})
	}
	group.Wait()
	if ctx.Err() != nil {
		err = ErrUnfinished
	}
	return items, refused, err
}

// Held gives the names that are wanted here and at which a value of an owner
// stands.
func (e *Engine) Held(ctx context.Context, owner string) (held []string, err error) {
	conns := map[int64]*connection{}
	for cursor := ""; ; {
		names, err := e.config.Database.NamesAfter(ctx, cursor, -1, pageNames)
		if err != nil || len(names) == 0 {
			return held, unfinished(ctx, err)
		}
		cursor = names[len(names)-1]
		items, _, err := e.survey(ctx, names, conns)
		if err != nil {
			return held, err
		}
		for _, i := range items {
			has := slices.ContainsFunc(i.seen.Values, func(v provider.TXT) bool {
				o, mesh := meshtxt.Owner(v.Text())
				return mesh && o == owner
			})
			if has && !i.record.withdrawal() && !slices.Contains(held, i.record.Name) {
				held = append(held, i.record.Name)
			}
		}
	}
}

// ZonePager is a DNS that gives a whole zone page by page, in an order of its
// own: a list of any size in little memory.
type ZonePager interface {
	ReadPage(ctx context.Context, zone, after string, limit int) (sets map[string]provider.RRset, next string, err error)
}

// findOrphans gives a place for every value with our mark that no place knows, in
// every zone that its provider lists.
func (e *Engine) findOrphans(ctx context.Context) (all []Place, err error) {
	zones, err := e.config.Database.Zones(ctx)
	if err != nil {
		return nil, err
	}
	seen := map[[4]string]bool{}
	for _, z := range zones {
		e.mu.Lock()
		conn := e.connection(z.Account)
		e.mu.Unlock()
		if conn.client == nil || ctx.Err() != nil {
			continue
		}
		if z.Apex == "" {
			z.Apex = conn.domain(ctx, z.Domain).apex
		}
		if identifier, ok := conn.client.(provider.ZoneIdentifier); ok && z.Apex != "" {
			z.ID, _ = identifier.ZoneID(ctx, z.Apex) // a zone without one cannot be listed either
		}
		identity := [4]string{z.Account.Provider, z.Account.Endpoint, z.Apex, z.ID}
		if z.Apex == "" || seen[identity] {
			continue
		}
		found, err := e.orphansOf(ctx, conn, z)
		seen[identity] = err == nil // another key may list what this one may not
		if err != nil {
			e.config.Log.Warn("list zone", "zone", z.Apex, "provider", z.Account.Provider, "key", z.Account.UsedBy, "error", z.Account.Secret.Line(err.Error()))
		}
		all = append(all, found...)
	}
	return all, ctx.Err()
}

// orphansOf searches one zone. Where the provider does not list it there is
// nothing to be known.
func (e *Engine) orphansOf(ctx context.Context, conn *connection, z Zone) (all []Place, err error) {
	switch client := conn.client.(type) {
	case ZonePager:
		for after := ""; ; {
			sets, next, err := client.ReadPage(ctx, z.Apex, after, pageNames)
			if err != nil || len(sets) == 0 {
				return all, err
			}
			found, err := e.strangers(ctx, z, sets)
			if err != nil {
				return all, err
			}
			all, after = append(all, found...), next
		}
	case provider.ZoneReader:
		listed, err := conn.list(ctx, client, z.Apex, false)
		if listed == nil {
			return nil, err
		}
		return e.strangers(ctx, z, conn.unchanged(listed))
	}
	return nil, nil
}

// strangers gives a place for each name among the sets that has a value of ours
// and no place.
func (e *Engine) strangers(ctx context.Context, z Zone, sets map[string]provider.RRset) (all []Place, err error) {
	owner, err := e.owner(ctx)
	if err != nil {
		return nil, err
	}
	values := map[string]string{}
	for name, set := range sets {
		for _, v := range set.Values {
			if o, mesh := meshtxt.Owner(v.Text()); mesh && o == owner {
				values[strings.ToLower(name)] = v.Text()
			}
		}
	}
	for names := range slices.Chunk(slices.Sorted(maps.Keys(values)), pageNames) {
		unknown, err := e.config.Database.Strangers(ctx, z, names)
		if err != nil {
			return nil, err
		}
		for _, name := range unknown {
			all = append(all, Place{Name: name, Account: z.Account, Zone: z.Apex, ZoneID: z.ID, State: Leftover, Standing: values[name]})
		}
	}
	return all, nil
}

func (e *Engine) owner(ctx context.Context) (string, error) {
	state, err := e.config.Database.State(ctx, nil)
	return state.Owner, err
}
