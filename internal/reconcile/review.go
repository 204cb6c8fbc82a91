package reconcile

import (
	"context"
	"slices"
	"time"
)

// review keeps what is told of places and usages true while nothing may be written: in
// mode manual, and when the configuration is disabled or there is none. It compares names
// that have changed with what is wanted there, and all names at the start and when a pass
// was asked for, and tells when it has to come back.
func (e *Engine) review(ctx context.Context) (next time.Time, err error) {
	if _, err := e.spread(ctx); err != nil {
		return next, err
	}
	next, err = e.hold(ctx)
	if err != nil {
		return next, err
	}
	request, _, err := e.config.Database.Request(ctx)
	switch now := e.config.Now(); {
	case err != nil:
		return next, err
	case request.Trigger != "" && waits(request.At, now, Debounce):
		return soonest(next, request.At), nil
	case request.Trigger != "":
		if err := e.config.Database.DropRequest(ctx); err != nil {
			return next, err
		}
		e.reviewing, e.reviewed = true, ""
	}
	if !e.reviewing {
		return next, nil
	}
	names, err := e.config.Database.NamesAfter(ctx, e.reviewed, 0, pageNames)
	if err != nil {
		return next, err
	}
	if len(names) == 0 {
		e.reviewing, e.reviewed = false, ""
		return next, nil
	}
	e.reviewed = names[len(names)-1]
	state, err := e.config.Database.State(ctx, e.unworked(names))
	if err != nil {
		return next, err
	}
	_, err = e.restate(ctx, state)
	return e.config.Now(), err
}

// hold reviews the names that have changed, and lets them wait for a person.
func (e *Engine) hold(ctx context.Context) (next time.Time, err error) {
	names, err := e.config.Database.Due(ctx, LaneChanged, e.config.Now(), pageNames)
	if err != nil {
		return next, err
	}
	if len(names) == 0 {
		next, _, err = e.config.Database.NextDue(ctx, LaneChanged, time.Time{})
		return next, err
	}
	if names = e.unworked(names); len(names) == 0 {
		return next, nil // the end of their work wakes us
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

// restate gives the targets of a state, and stores which places are not as wanted
// any more, and what is told of usages, before anything else is done there.
func (e *Engine) restate(ctx context.Context, state State) ([]Target, error) {
	var s Settlement
	all := Desired(state, e.config.Addresses())
	for _, t := range all {
		for i, r := range t.Records {
			if t.Records[i].Place = r.Now(); r.Place.ID != 0 && t.Records[i].Place != r.Place {
				s.Places = append(s.Places, t.Records[i].Place)
			}
		}
		if len(t.retold(state.Configured)) > 0 {
			s.Told = append(s.Told, t.Name.Name)
		}
	}
	if len(s.Places)+len(s.Told) == 0 {
		return all, nil
	}
	return all, e.config.Database.Settle(ctx, s)
}

// unworked gives those of some names that are not in work: their places are the
// caller's alone.
func (e *Engine) unworked(names []string) []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.DeleteFunc(names, func(name string) bool { return e.busy[name] != nil })
}
