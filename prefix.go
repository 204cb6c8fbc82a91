// The operations on prefixes: reservations, changes, releases, and the waits until they stand; and the provisioning files that
// apply them, with the document of what is stored.

package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"iter"
	"slices"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/events"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provision"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// reservation is a request for a prefix.
type reservation struct {
	mesh.NewUsage
	again    *answers.ReplayKey // of a request that the client may repeat; nil for none
	patience web.Patience
}

// publishing returns the state of publishing of a usage, with its records and the states of its endpoints.
func (o *operations) publishing(ctx context.Context, u mesh.Usage, language msg.Language) (answers.ListedPublish, error) {
	shown := answers.NewPublish(u.Publish, language)
	formats, err := o.store.ledger.Formats(ctx, u.Name, u.ID)
	endpoints, unread := o.checks.Endpoints(ctx, u.Seq, language)
	shown.Formats, shown.Endpoints = answers.Formats(formats, language), endpoints
	return shown, errors.Join(err, unread)
}

// awaited returns what publishing returns if the caller has waited (?wait=), else nil. A fault while it reads the
// records only leaves them out of the answer, because the change that the answer confirms is stored.
func (o *operations) awaited(ctx context.Context, waits bool, u mesh.Usage, language msg.Language) *answers.ListedPublish {
	if !waits {
		return nil
	}
	shown, _ := o.publishing(context.WithoutCancel(ctx), u, language)
	return &shown
}

// reserve checks a reservation in the order of the contract, and stores it. A repeated request gets
// the usage that the first one has stored.
func (o *operations) reserve(ctx context.Context, want reservation) (u mesh.Usage, repeated bool, err error) {
	if err := want.Complete(); err != nil {
		return u, false, err
	}
	prefix, fault := want.Prefix()
	if fault != "" {
		return u, false, o.afterService(ctx, want.ServiceID, msg.Refuse(fault))
	}
	u, _ = want.Over(mesh.Usage{
		ServiceID: want.ServiceID, Mode: want.PrefixMode, Prefix: prefix, Description: mesh.Describe(""), Network: sqlite.Given(want.NetworkID),
	})
	if err := u.CheckEndpoints(); err != nil {
		return u, false, o.afterService(ctx, want.ServiceID, err)
	}
	u, repeated, err = o.create(ctx, want.again, u)
	switch {
	case err == nil:
		return u, repeated, nil
	case errors.Is(err, errPrefixTaken):
		return u, false, refuseTaken(u)
	}
	if _, refused := errors.AsType[sqlite.Refusal](err); !refused {
		err = o.afterService(ctx, want.ServiceID, &notReserved{err})
	}
	return u, false, err
}

// create stores a usage. With a key it stores the usage as the result of the request in the same
// transaction, or returns that of an earlier request.
func (o *operations) create(ctx context.Context, key *answers.ReplayKey, u mesh.Usage) (created mesh.Usage, repeated bool, err error) {
	if key == nil {
		created, err = o.store.CreateUsage(ctx, u)
		return created, false, err
	}
	err = o.store.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		created = mesh.Usage{}
		if repeated, err = o.store.replays.Find(ctx, tx, *key, &created); err != nil || repeated {
			return err
		}
		if created, err = o.store.CreateUsage(ctx, u); err != nil {
			return err
		}
		return o.store.replays.Keep(ctx, tx, *key, created)
	})
	return created, repeated, err
}

// reserveAndWait is reserve, and then waits as published does.
func (o *operations) reserveAndWait(ctx context.Context, want reservation) (u mesh.Usage, repeated bool, err error) {
	name := ""
	if prefix, fault := want.Prefix(); fault == "" {
		name = o.store.UsageName(ctx, want.ServiceID, prefix)
	}
	waiter := o.engine.Expect(name)
	defer waiter.Close()
	u, repeated, err = o.reserve(ctx, want)
	if err == nil {
		u.Publish = o.published(ctx, waiter, u, want.patience)
	}
	return u, repeated, err
}

// published waits until the value of a usage stands at its provider or has failed, or until the patience ends, and
// returns the state. A state that cannot be read counts as pending, because the reservation is stored. published
// does not wait where a person has to act first: in mode manual, without a provider, or when publishing is disabled.
func (o *operations) published(ctx context.Context, waiter *reconcile.Waiter, u mesh.Usage, patience web.Patience) mesh.Publishing {
	read := context.WithoutCancel(ctx)
	ctx, cancel := patience(ctx)
	defer cancel()
	version, fault := ledger.Version(read, o.store.db.Reader, u.Name)
	for first := true; ; first = false {
		settings, unset := o.store.ledger.Settings(read)
		now, err := o.store.Usage(read, u.ID)
		switch state := reconcile.PlaceState(now.Publish.State); {
		case errors.Is(err, errNoUsage): // released meanwhile
			return mesh.Publishing{State: string(reconcile.None)}
		case cmp.Or(fault, unset, err) != nil:
			return mesh.Publishing{State: string(reconcile.Pending)}
		case !settings.Enabled, !settings.Automatic, state == reconcile.None, ctx.Err() != nil, !first && state != reconcile.Pending:
			return now.Publish
		}
		waiter.Wait(ctx, version)
	}
}

// notReserved is a fault of the database that kept a reservation from being stored.
type notReserved struct{ error }

func (e *notReserved) Unwrap() error { return e.error }

// refuseTaken returns the refusal of a usage whose prefix another usage has.
func refuseTaken(u mesh.Usage) error {
	if !u.HeldBy.Valid {
		return msg.Refuse(msg.PrefixTaken, "")
	}
	return msg.Refuse(msg.PrefixTaken, msg.Phrase{ID: msg.TakenByNetwork, Args: []any{u.HeldBy.V}})
}

// changeWarnings warns of addresses that cannot be reached, and, if a usage was given formats, of those that the provider
// refuses for their names, or that lack a peer_id.
func (o *operations) changeWarnings(ctx context.Context, u mesh.Usage, c mesh.UsageChange) (all []msg.Phrase) {
	all = answers.WarnAddresses(c.Endpoints, o.engine.Addresses().Last)
	if len(c.Formats) == 0 {
		return all
	}
	states, _ := o.store.ledger.Formats(context.WithoutCancel(ctx), u.Name, u.ID) // the usage is stored, whether they are read or not
	for i := range states {
		switch f := &states[i]; {
		case f.Takes:
			all = append(all, msg.Phrase{ID: msg.WarnTakesOwn, Args: []any{f.Name}})
		case f.Fault.Code == string(msg.NameNotAllowed), f.Fault.Code == string(msg.NetworkConflict):
			all = append(all, msg.Phrase{ID: msg.WarnFormat, Args: []any{f.Format, f.Fault}})
		case len(f.Values) == 0 && len(f.LeftOut) > 0 && f.LeftOut[0].Reason == mesh.NoPeerID:
			all = append(all, msg.Phrase{ID: msg.WarnFormat, Args: []any{f.Format, f.LeftOut[0].Reason}})
		}
	}
	return all
}

// usageWarnings returns warnings about a usage that was just reserved, which tell a tenant nothing of others.
func usageWarnings(u mesh.Usage) []msg.Phrase {
	switch {
	case u.Title == mesh.Contested && u.Tenant:
		return []msg.Phrase{{ID: msg.WarnNameReserved, Args: []any{u.Name}}}
	case u.Title == mesh.Contested:
		return []msg.Phrase{{ID: msg.WarnNameHeld, Args: []any{u.Name, mesh.Network(u.Rival)}}}
	case u.Title == mesh.Warned && u.Rival == mesh.UsedByConfiguration:
		return []msg.Phrase{{ID: msg.WarnTakesOwn, Args: []any{u.Name}}}
	case u.Title == mesh.Warned:
		return []msg.Phrase{{ID: msg.WarnInner, Args: []any{u.Name, u.Rival}}}
	case u.Title == mesh.Barred && u.Rival != "":
		return []msg.Phrase{{ID: msg.WarnBarred, Args: []any{u.Name}}}
	}
	return nil
}

// afterService returns the fault of the service of a reservation, else the fault that comes later
// in the contract's order.
func (o *operations) afterService(ctx context.Context, service string, fault error) error {
	return cmp.Or(o.store.CheckService(ctx, service), fault)
}

// saveUsageAndWait changes a usage, and then waits as published does.
func (o *operations) saveUsageAndWait(ctx context.Context, u mesh.Usage, c mesh.UsageChange, patience web.Patience) (mesh.Publishing, error) {
	waiter := o.engine.Expect(u.Name)
	defer waiter.Close()
	if err := o.store.ChangeUsage(ctx, u.ID, c); err != nil {
		return mesh.Publishing{}, err
	}
	return o.published(ctx, waiter, u, patience), nil
}

// releaseAndWait releases a usage, and waits until the engine has tried to withdraw its value. It
// reports whether the prefix is free.
func (o *operations) releaseAndWait(ctx context.Context, id string, force bool, patience web.Patience) (freed bool, err error) {
	u, err := o.store.Usage(ctx, id)
	if err != nil {
		return false, err
	}
	waiter := o.engine.Expect(u.Name)
	defer waiter.Close()
	done, version, err := o.store.ReleaseUsage(ctx, id, force)
	if err != nil {
		return false, err
	}
	wait, cancel := patience(ctx)
	defer cancel()
	if waiter.Wait(wait, version); done {
		return true, nil
	}
	_, err = o.store.Usage(context.WithoutCancel(ctx), id)
	return errors.Is(err, errNoUsage), nil // what cannot be read is not known to be free
}

// releasedAtOnce is the number of usages that one transaction of withdrawAll releases. Each may have 256 leases.
const releasedAtOnce = 4

// withdrawAll releases all usages, some in a transaction, and deletes the services without usages and the configuration.
// What it has not done by the end is done by the next call, which also tries again what waits for a pass.
func (o *operations) withdrawAll(ctx context.Context, end time.Time) error {
	for behind := int64(0); ; {
		page, err := o.store.Usages(ctx, usageFilter{after: behind}, usagePage)
		if err != nil || time.Now().After(end) {
			return err
		}
		if len(page) == 0 {
			break
		}
		behind = page[len(page)-1].Seq
		for part := range slices.Chunk(page, releasedAtOnce) {
			if err := o.store.db.Tx(ctx, func(ctx context.Context, _ *sql.Tx) error { return o.releaseAll(ctx, part) }); err != nil {
				return err
			}
		}
	}
	for v, err := range o.store.AllServices(ctx) {
		if err == nil && v.UsageCount == 0 {
			err = o.store.DeleteService(ctx, v.ID)
		}
		if err != nil && !errors.Is(err, errServiceInUse) && !errors.Is(err, errNoService) || time.Now().After(end) {
			return err
		}
	}
	if _, err := o.store.DeleteConfiguration(ctx); !errors.Is(err, errNoConfiguration) {
		return err
	}
	return nil
}

// releaseAll releases usages, except those whose withdrawal has a time.
func (o *operations) releaseAll(ctx context.Context, usages []mesh.Usage) error {
	for _, u := range usages {
		due, err := o.store.ledger.NameDue(ctx, u.Name)
		if err == nil && (u.Status != mesh.Releasing || due.IsZero()) {
			_, _, err = o.store.ReleaseUsage(ctx, u.ID, false)
		}
		if err != nil && !errors.Is(err, errNoUsage) {
			return err
		}
	}
	return nil
}

// left returns the numbers of what withdrawAll has not taken away, and of the names whose values may stand. done reports
// whether there is nothing of that.
func (o *operations) left(ctx context.Context) (left map[string]any, done bool, err error) {
	totals, err := o.store.ledger.Totals(ctx)
	names, unread := o.store.ledger.CountNames(ctx)
	c, unknown := o.configured(ctx)
	left = map[string]any{"usages": totals["usages"], "services": totals["services"], "leases": totals["leases"], "names": names, "configuration": c.Provider != ""}
	return left, names == 0 && totals["services"] == 0 && c.Provider == "", cmp.Or(err, unread, unknown)
}

// failureOf returns the failure that a client gets for an error.
func failureOf(err error) *web.Failure { return web.FailureOf(err, broken) }

// broken returns the code for a fault of the database, "" for other errors.
func broken(err error) msg.ID {
	switch kind := sqlite.FaultOf(err); {
	case errors.Is(err, sqlite.ErrGone):
		return msg.DatabaseGone
	case errors.Is(err, sqlite.ErrNoRoom):
		return msg.BackupNoRoom
	case kind == sqlite.Full:
		return msg.DiskFull
	case kind == sqlite.Locked:
		return msg.DatabaseLocked
	case kind == sqlite.Damaged:
		return msg.DatabaseDamaged
	}
	return ""
}

// provision applies a document in one transaction, by the operations of requests.
func (o *operations) provision(ctx context.Context, document *provision.Document) (applied provision.Applied, err error) {
	var a *provision.Applier
	err = o.store.db.Tx(events.By(ctx, events.ByProvision), func(ctx context.Context, tx *sql.Tx) (err error) {
		a = provision.NewApplier(o.forms, provisioning{o.store, o.store.ledger, o}, o.store.parts())
		if applied, err = document.Apply(ctx, a); err != nil || len(applied.Changes) == 0 {
			return err
		}
		return o.store.events.Add(ctx, tx, events.Counted(events.ProvisionApplied, len(applied.Changes)))
	})
	if err != nil {
		return applied, err
	}
	if a.Taken != "" {
		o.store.ledger.UseOwner(a.Taken)
	}
	applied.Warnings, applied.InUse = a.Warnings, a.InUse
	return applied, nil
}

// tellRefused stores the event of mistakes for which a provisioning file, or entries of it, are not
// applied.
func (o *operations) tellRefused(ctx context.Context, mistakes []string) error {
	e := events.Counted(events.ProvisionRefused, len(mistakes))
	e.Detail.Fault = mesh.Fault{Code: string(msg.NotProvisioned), Detail: msg.Say(mistakes[0])}
	return o.store.events.Note(events.By(ctx, events.ByProvision), e)
}

// provisioning implements provision.Operations.
type provisioning struct {
	*store
	*ledger.Ledger
	ops *operations
}

func (p provisioning) SaveConfiguration(ctx context.Context, c mesh.Configuration) ([]msg.Phrase, error) {
	return p.ops.saveConfiguration(ctx, c, nil)
}

func (p provisioning) SaveService(ctx context.Context, v mesh.Service) ([]msg.Phrase, error) {
	_, warnings, err := p.ops.replaceService(ctx, v, nil)
	return warnings, err
}

func (p provisioning) Reserve(ctx context.Context, want mesh.NewUsage) (mesh.Usage, []msg.Phrase, error) {
	u, _, err := p.ops.reserve(ctx, reservation{NewUsage: want})
	return u, usageWarnings(u), err
}

func (p provisioning) SaveUsage(ctx context.Context, u mesh.Usage, c mesh.UsageChange) error {
	return p.ChangeUsage(ctx, u.ID, c)
}

func (p provisioning) SaveLeases(ctx context.Context, usage string, body []byte, prune bool) (bool, error) {
	return p.ops.leases.SaveLeases(ctx, usage, body, prune)
}

// parts are the stored entries of the parts that depend on no other.
func (s *store) parts() map[string]provision.Part {
	return map[string]provision.Part{provision.Notifications: s.targets, provision.Secondaries: s.secondaries}
}

// documented gives the usages up to a seq with their leases.
func (o *operations) documented(ctx context.Context, last int64) iter.Seq2[provision.Usage, error] {
	return func(yield func(provision.Usage, error) bool) {
		leases, stop := o.leases.Documents(ctx)
		defer stop()
		for u, err := range o.store.AllUsages(ctx, last) {
			of, unread := leases(u.Seq)
			err = cmp.Or(err, unread)
			if d, ok := provision.UsageOf(u, of); (ok || err != nil) && !yield(d, err) {
				return
			}
		}
	}
}

// document gives all that was configured. Usages that are reserved meanwhile are left out, because their services may
// be newer than the list of them.
func (o *operations) document(ctx context.Context) (source provision.Source, err error) {
	last, err := o.store.LastUsage(ctx)
	targets, unread := o.store.targets.All(ctx)
	secondaries, unknown := o.store.secondaries.All(ctx)
	c, fault := o.store.Configuration(ctx)
	if err := cmp.Or(err, unread, unknown, fault); err != nil && !errors.Is(err, errNoConfiguration) {
		return source, err
	}
	source = provision.Source{
		Owner:         o.store.ledger.Owner(),
		Services:      sqlite.Made(o.store.AllServices(ctx), provision.ServiceOf),
		Usages:        o.documented(ctx, last),
		Notifications: targets, Secondaries: secondaries,
	}
	if fault == nil {
		source.Configuration = c.Listed()
	}
	return source, nil
}
