package reconcile

import (
	"context"
	"maps"
	"slices"
	"sync"

	"meshddns/internal/mesh"
	"meshddns/internal/provider"
)

// Preview reports what a pass would change now, also while synchronisation is disabled. It
// writes nothing.
func (e *Engine) Preview(ctx context.Context) (Report, error) {
	settings, err := e.config.Database.Settings(ctx)
	switch {
	case err != nil:
		return Report{}, err
	case !settings.Configured:
		return Report{}, ErrNotConfigured
	}
	report := Report{StartedAt: e.config.Now(), Trigger: TriggerManual, Counts: map[string]int{}}
	conns := map[int64]*connection{}
	err = e.pages(ctx, func(names []string) error { return e.previewPage(ctx, names, conns, &report) })
	if err == nil {
		report.finish(e.config.Now())
	}
	return report, err
}

// pages calls f with all names in their order, page by page, until f fails.
func (e *Engine) pages(ctx context.Context, f func(names []string) error) error {
	for cursor := ""; ; {
		names, err := e.config.Database.NamesAfter(ctx, cursor, 0, pageNames)
		if err != nil || len(names) == 0 {
			return unfinished(ctx, err)
		}
		cursor = names[len(names)-1]
		if err := f(names); err != nil {
			return err
		}
	}
}

// previewPage surveys a page of names and adds it to a report.
func (e *Engine) previewPage(ctx context.Context, names []string, conns map[int64]*connection, report *Report) error {
	items, refused, err := e.survey(ctx, names, conns)
	if err != nil {
		return err
	}
	outcomes, at := map[string][]Outcome{}, map[string][]*item{}
	for _, i := range items {
		v := verdict{item: i, job: &job{record: i.record}, now: e.config.Now(), lane: &zoneLane{}, givenUp: true}
		o, _ := v.conclude()
		outcomes[o.Name], at[o.Name] = append(outcomes[o.Name], o), append(at[o.Name], i)
	}
	for _, r := range refused {
		outcomes[r.Name] = append(outcomes[r.Name], r.outcome())
	}
	for _, name := range names {
		report.add(append(outcomes[name], moves(at[name], outcomes[name])...), false, false)
	}
	return nil
}

// unfinished returns ErrUnfinished instead of an error if ctx has ended.
func unfinished(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return ErrUnfinished
	}
	return err
}

// survey reads the values at some names and plans their changes. It writes nothing.
func (e *Engine) survey(ctx context.Context, names []string, conns map[int64]*connection) (items []*item, refused []Refusal, err error) {
	state, err := e.config.Database.State(ctx, names)
	if err != nil {
		return nil, nil, unfinished(ctx, err)
	}
	var records []Record
	for _, t := range Desired(state, e.config.Addresses()) {
		refused = append(refused, t.Refusals...)
		records = append(records, t.Records...)
	}
	items, err = e.look(ctx, records, conns)
	return items, refused, err
}

// look is survey for some records.
func (e *Engine) look(ctx context.Context, records []Record, conns map[int64]*connection) (items []*item, err error) {
	lanes := map[Lane][]Record{}
	for _, r := range records {
		if conns[r.Account.ID] == nil {
			conns[r.Account.ID] = connect(e.config.Open, r.Account, e.config.Now())
		}
		lanes[r.lane()] = append(lanes[r.lane()], r)
	}
	var mu sync.Mutex
	beside(ctx, e.looks, slices.Collect(maps.Values(lanes)), func(records []Record) {
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
	if ctx.Err() != nil {
		err = ErrUnfinished
	}
	return items, err
}

// Held returns the names with a wanted value at which a value of the given owner stands.
func (e *Engine) Held(ctx context.Context, owner string) (held []string, err error) {
	conns := map[int64]*connection{}
	err = e.pages(ctx, func(names []string) error {
		items, _, err := e.survey(ctx, names, conns)
		if err != nil {
			return err
		}
		has := map[string]bool{}
		for _, i := range items {
			stands := slices.ContainsFunc(i.seen.Values, func(v provider.Value) bool {
				o, mesh := mesh.Owner(v.Text())
				return mesh && o == owner
			})
			has[i.record.Name] = has[i.record.Name] || stands && !i.record.withdraws()
		}
		held = append(held, slices.DeleteFunc(names, func(name string) bool { return !has[name] })...)
		return nil
	})
	return held, err
}

// beside calls f for each zone, as many at once as there are slots. When ctx ends, it
// leaves out the rest.
func beside[Z any](ctx context.Context, slots chan struct{}, zones []Z, f func(Z)) {
	var group sync.WaitGroup
	defer group.Wait()
	for _, z := range zones {
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		group.Go(func() {
			defer func() { <-slots }()
			f(z)
		})
	}
}

// PreviewSweep is Preview with the orphans that a sweep would withdraw.
func (e *Engine) PreviewSweep(ctx context.Context) (Report, error) {
	report, err := e.Preview(ctx)
	if err != nil {
		return report, err
	}
	found, err := e.findOrphans(ctx, true)
	report.add(found.outcomes(), true, false)
	report.add(notSearched(found.undone, report.Records), true, false)
	report.finish(e.config.Now())
	report.Complete = err == nil
	return report, unfinished(ctx, err)
}

// moves returns the withdrawals at a name that wait until the value stands at its new
// place. There are none while a record of the name fails. A value in a zone that another
// item's key reaches too is not withdrawn.
func moves(items []*item, outcomes []Outcome) (all []Outcome) {
	if !slices.ContainsFunc(outcomes, Outcome.writes) || slices.ContainsFunc(outcomes, Outcome.bad) {
		return nil
	}
	for _, i := range items {
		old := i.left
		if i.record.Withdrawal.Keep {
			old = &i.place
		}
		if old == nil || old.Standing == "" || slices.ContainsFunc(items, func(w *item) bool {
			return w != i && w.place.Sibling == old.Sibling && w.place.identity(*old) == SameZone
		}) {
			continue
		}
		o := Outcome{
			Name: old.Name, Sibling: old.Sibling, Provider: old.Account.Provider, Zone: old.Zone, Network: mesh.Network(old.Standing),
			Action: ActionDelete, Value: old.Standing,
		}
		if i.record.goal.mode == UpsertOnly {
			o.Action, o.Fault = ActionLeftover, Fault{Code: CodeDeletesForbidden}
		}
		all = append(all, o)
	}
	return all
}
