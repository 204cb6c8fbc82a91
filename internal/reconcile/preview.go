package reconcile

import (
	"context"
	"slices"

	"meshddns/internal/mesh"
)

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
