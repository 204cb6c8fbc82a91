package reconcile

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"
)

// review keeps the stored states of places and usages true while the engine takes no
// changes: in mode manual, and while synchronisation is disabled. It compares changed names
// with the wanted state, and all names at the start and after a request for a pass. It
// returns the time of the next review.
func (e *Engine) review(ctx context.Context) (next time.Time, err error) {
	if _, err := e.spread(ctx); err != nil {
		return next, err
	}
	next, err = e.hold(ctx)
	if err != nil {
		return next, err
	}
	request, err := e.config.Database.Request(ctx)
	switch now := e.config.Now(); {
	case err != nil:
		return next, err
	case request.Trigger != "" && waits(request.At, now, Debounce):
		return soonest(next, request.At), nil
	case request.Trigger != "":
		if dropped, err := e.config.Database.DropRequest(ctx, e.settings); err != nil || !dropped { // the next round has the settings
			return next, err
		}
		e.reviewing, e.reviewed = true, ""
	}
	if err := e.reviewPage(ctx); err != nil {
		return next, err
	}
	if e.reviewing {
		next = e.config.Now()
	}
	return next, nil
}

// reviewPage reviews the names that were in work when the review reached them, else the next page if a review of all
// names is under way. Work that began before a change may end without a look at what is wanted now.
func (e *Engine) reviewPage(ctx context.Context) error {
	names := e.unworked(e.unreviewed.take(pageNames))
	if len(names) == 0 && e.reviewing {
		page, err := e.config.Database.NamesAfter(ctx, e.reviewed, 0, pageNames)
		if err != nil {
			return err
		}
		if len(page) == 0 {
			e.reviewing, e.reviewed = false, ""
			return nil
		}
		e.reviewed = page[len(page)-1]
		names = e.unworked(page)
	}
	state, err := e.config.Database.State(ctx, names)
	if err == nil {
		_, err = e.restate(ctx, state)
	}
	if err != nil {
		e.unreviewed.add(names...)
	}
	return err
}

// holdAfter is the age of the oldest change at which hold takes all of them. No caller waits for
// that, so the changes of a second share a commit.
const holdAfter = time.Second

// hold reviews the changed names, and moves them to the lane that waits for a person. It
// returns the time at which it takes the next changes.
func (e *Engine) hold(ctx context.Context) (next time.Time, err error) {
	for _, lane := range []Lane{LaneChanged, LaneNode, LaneLater} {
		at, err := e.holdLane(ctx, lane)
		if err != nil {
			return next, err
		}
		next = soonest(next, at)
	}
	return next, nil
}

// holdLane is hold for a lane.
func (e *Engine) holdLane(ctx context.Context, lane Lane) (next time.Time, err error) {
	now := e.config.Now()
	oldest, ok, err := e.config.Database.NextDue(ctx, lane, time.Time{})
	if err != nil || !ok {
		return next, err
	}
	if at := oldest.Add(holdAfter); waits(at, now, holdAfter) {
		return at, nil
	}
	names, err := e.config.Database.Due(ctx, lane, now.Add(lane.LongestWait()), pageNames)
	if err != nil {
		return next, err
	}
	if names = e.unworked(names); len(names) == 0 {
		return next, nil // the end of their work wakes the engine
	}
	state, err := e.config.Database.State(ctx, names)
	if err != nil {
		return next, err
	}
	if _, err := e.restate(ctx, state); err != nil {
		return next, err
	}
	var s Settlement
	for _, n := range state.Names {
		s.Names = append(s.Names, Due{Name: n.Name, Version: n.Version, At: n.Due, Lane: LaneHeld, Look: n.Look})
	}
	return e.config.Now(), e.config.Database.Settle(ctx, s)
}

// restate returns the targets of a state. First it joins the places of sibling records that are one, and
// stores the places whose state the current wish changes, and the Shown of usages.
func (e *Engine) restate(ctx context.Context, state State) ([]Target, error) {
	all := Desired(state, e.config.Addresses())
	if joined := absorptions(all, e.config.Now()); len(joined.Ended) > 0 {
		var names []string
		for _, n := range state.Names {
			names = append(names, n.Name)
		}
		err := e.config.Database.Settle(ctx, joined)
		if err == nil {
			state, err = e.config.Database.State(ctx, names)
		}
		if err != nil {
			return nil, err
		}
		all = Desired(state, e.config.Addresses())
	}
	var s Settlement
	for _, t := range all {
		for i, r := range t.Records {
			if t.Records[i].Place = r.Now(); r.Place.ID != 0 && t.Records[i].Place != r.Place {
				s.Places = append(s.Places, t.Records[i].Place)
			}
		}
		if len(t.outdated(state.Configured)) > 0 {
			s.Shown = append(s.Shown, t.Name.Name)
		}
	}
	if len(s.Places)+len(s.Shown) == 0 {
		return all, nil
	}
	return all, e.config.Database.Settle(ctx, s)
}

// absorptions returns the places of sibling records that absorb others. The wanted value stands in the
// zone of both, so the key of the other one is not needed any more.
func absorptions(targets []Target, now time.Time) (s Settlement) {
	for _, t := range targets {
		joined := map[int64]Place{}
		for _, r := range t.Records {
			if r.Sibling.marked() || !r.withdraws() || r.Withdrawal.Keep {
				continue
			}
			if at := r.inOneZone(); at >= 0 {
				wanted := r.Withdrawal.Beside[at]
				joined[wanted.ID] = cmp.Or(joined[wanted.ID], wanted).Absorbed(r.Place, now)
				s.Ended = append(s.Ended, r.Place)
			}
		}
		s.Places = slices.AppendSeq(s.Places, maps.Values(joined))
	}
	return s
}

// unworked returns the names that are not in work. No worker changes their places
// meanwhile. It notes the others, whose end wakes the engine, for a later review.
func (e *Engine) unworked(names []string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(names, func(name string) bool {
		if e.busy[name] == nil {
			return false
		}
		e.unreviewed.add(name)
		return true
	})
}
