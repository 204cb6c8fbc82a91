package reconcile

import (
	"context"
	"slices"

	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// inOneZone returns the index of a wanted place in the zone of the record's place, at which the wanted
// value is published with another key; -1 for none.
func (r Record) inOneZone() int {
	return slices.IndexFunc(r.Withdrawal.Beside, func(p Place) bool { return p.State == Published && r.Place.identity(p) == SameZone })
}

// sharesZone reports whether a value to withdraw is the wanted value itself, seen with
// another key. If the providers' data do not tell, it writes a probe. The values of a sibling
// record then belong to the wanted place that knows them.
func (b *batch) sharesZone(ctx context.Context, i *item) (bool, error) {
	for _, p := range i.record.Withdrawal.Beside {
		if b.dry || p.Zone == "" || i.place.identity(p) != Unsure { // without a zone nothing was written
			continue
		}
		if same, err := b.probe(ctx, b.conn, p); same || err != nil {
			i.goal.beside = append(i.goal.beside, SiblingValues(p.known())...)
			return same, err
		}
	}
	return false, nil
}

// recognise finds, for a sibling record, values that are ours because a place of another account
// wrote them into this zone. It reads the places again, because another lane may have
// written meanwhile.
func (b *batch) recognise(ctx context.Context, i *item) error {
	others := i.record.Elsewhere || len(i.record.Places) > 1
	unknown := slices.DeleteFunc(slices.Clone(i.seen.Values), func(v provider.Value) bool { return i.goal.knows(v.Text()) })
	if !i.goal.sibling || !others || len(unknown) == 0 {
		return nil
	}
	state, err := b.db.State(ctx, []string{i.record.Name})
	if err != nil {
		return err
	}
	for _, p := range state.Names[0].Places {
		if p.Sibling != i.record.Sibling || !slices.ContainsFunc(unknown, func(v provider.Value) bool { return p.knows(v.Text()) }) {
			continue
		}
		if same, err := b.reaches(ctx, i.place, p); err != nil {
			return err
		} else if same {
			i.goal.known = append(i.goal.known, SiblingValues(p.known())...)
		}
	}
	return nil
}

// reaches reports whether another place is in the zone of a place that the batch has read. If the key of
// the other place is refused for good, the provider's address decides.
func (b *batch) reaches(ctx context.Context, place, other Place) (bool, error) {
	identity := place.identity(other)
	if identity != Unsure || other.Zone == "" {
		return identity == SameZone, nil
	}
	oneAddress := place.Account.address() == other.Account.address()
	if b.dry {
		return oneAddress, nil
	}
	same, err := b.probe(ctx, b.conn, other)
	if err != nil && !transient(Describe(err, other.Account)) {
		return oneAddress, nil
	}
	return same, err
}

// oneZone reports whether two keys reach one zone. It writes a probe at a random name with
// the key of the wanted place, reads it with the old key, and removes it. The probe has its
// own place, so the engine withdraws it after a kill. The connection keeps the result.
func (e *Engine) oneZone(ctx context.Context, old *connection, wanted Place) (same bool, err error) {
	e.mu.Lock()
	conn := e.connection(wanted.Account)
	e.mu.Unlock()
	if conn.client == nil {
		return false, conn.refusal
	}
	pair := zonePair{conn, wanted.Zone}
	if same, known := old.pairs.Load(pair); known {
		return same.(bool), nil
	}
	state, err := e.config.Database.State(ctx, nil)
	if err != nil {
		return false, err
	}
	probe := NewProbeRecord(state.Owner, wanted.Zone)
	p := Place{Name: probe.Name, Account: wanted.Account, Zone: wanted.Zone, ZoneID: wanted.ZoneID, Doubt: Doubt{Value: probe.Value}}
	if err := e.config.Database.AddProbe(ctx, &p); err != nil {
		return false, err
	}
	value := provider.Value{probe.Value}
	err = conn.client.Change(ctx, provider.Change{Type: provider.TXT, Zone: p.Zone, Name: p.Name, Add: []provider.Value{value}, TTL: recordTTL})
	if err != nil { // if the probe was written, the engine withdraws its place
		return false, &provider.Error{Kind: provider.KindOf(err), Detail: msg.TextOf(err).Map(wanted.Account.Secret.ScrubLine)}
	}
	seen, err := old.client.Read(ctx, p.Zone, p.Name, provider.TXT)
	if same = sees(seen, probe.Value); err != nil {
		return false, err
	}
	old.pairs.Store(pair, same)
	return same, e.removeProbe(ctx, conn, p, value)
}

// zonePair is another connection and the apex that both connections have a zone for.
type zonePair struct {
	wanted *connection
	apex   string
}

// removeProbe removes a probe and its place. If that fails, the place stays, and the engine
// withdraws the probe like any other value.
func (e *Engine) removeProbe(ctx context.Context, conn *connection, p Place, value provider.Value) error {
	ctx, cancel := provider.WriteContext(context.WithoutCancel(ctx))
	defer cancel()
	seen, err := conn.client.Read(ctx, p.Zone, p.Name, provider.TXT)
	if err == nil {
		err = conn.client.Change(ctx, provider.Change{Type: provider.TXT, Zone: p.Zone, Name: p.Name, Seen: seen, Remove: []provider.Value{value}})
	}
	if err != nil {
		e.config.Log.Warn("a probe waits to be removed", "name", p.Name, "error", p.Account.Secret.ScrubLine(err.Error()))
		return nil
	}
	return e.config.Database.EndProbe(ctx, p)
}
