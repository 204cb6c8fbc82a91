// Usages as clients and documents write them; the operations on usages, which requests and provision
// files share; the application of provision files by the operations.

package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"iter"
	"math"
	"net/http"

	"meshddns/internal/answers"
	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/notify"
	"meshddns/internal/provider"
	"meshddns/internal/provision"
	"meshddns/internal/reconcile"
	"meshddns/internal/resource"
	"meshddns/internal/secondary"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// describe returns the description to store, nil for none: the given one, else one with the name
// of the network.
func describe(description, networkName *string) *string {
	if description == nil && networkName != nil {
		return new(mesh.Describe(*networkName))
	}
	return description
}

// reservation is a request for a prefix.
type reservation struct {
	service, custom string
	mode            mesh.PrefixMode
	network         *mesh.NetworkID // nil when it is not given
	networkName     string
	options         mesh.OptionsChange
	again           *answers.ReplayKey // of a request that the client may repeat; nil for none
	patience        web.Patience
}

// check checks a reservation without looking at its service.
func (want reservation) check() error {
	switch {
	case want.service == "":
		return msg.Refuse(msg.ServiceIDEmpty)
	case want.mode != mesh.AutomaticMode && want.mode != mesh.CustomMode:
		return msg.Refuse(msg.PrefixModeInvalid)
	}
	return nil
}

// prefix returns the prefix to reserve, or the fault of the prefix itself.
func (want reservation) prefix() (prefix string, fault msg.ID) {
	switch {
	case want.network == nil:
		return "", msg.NetworkIDMissing
	case want.mode == mesh.AutomaticMode:
		return mesh.AutomaticPrefix(*want.network), ""
	}
	return want.custom, mesh.PrefixFault(want.custom)
}

// usageBody is a usage of a document: the members of POST usages and of PATCH.
type usageBody struct {
	ServiceID    string          `json:"service_id"`
	PrefixMode   mesh.PrefixMode `json:"prefix_mode"`
	CustomPrefix string          `json:"custom_prefix"`
	NetworkID    *mesh.NetworkID `json:"network_id"`
	NetworkName  *string         `json:"network_name"`
	TXTEndpoints sqlite.TextList `json:"txt_endpoints"`
	Description  *string         `json:"description"`
	mesh.Members
}

func (b usageBody) reservation() reservation {
	want := reservation{service: b.ServiceID, mode: b.PrefixMode, custom: b.CustomPrefix, network: b.NetworkID}
	if b.NetworkName != nil {
		want.networkName = *b.NetworkName
	}
	return want
}

// wanted returns the members of a usage that identify it.
func (b usageBody) wanted() (mesh.Usage, error) {
	want := b.reservation()
	if err := want.check(); err != nil {
		return mesh.Usage{}, err
	}
	prefix, fault := want.prefix()
	if want.network == nil {
		return mesh.Usage{}, msg.Refuse(fault)
	}
	return mesh.Usage{
		ServiceID: want.service, Prefix: prefix,
		Network: sqlite.Given(want.network),
	}, nil
}

// difference returns the members of a usage that a body changes, and reports whether there are any.
func (b usageBody) difference(u mesh.Usage) (c mesh.UsageChange, differs bool, err error) {
	c = mesh.UsageChange{Endpoints: b.TXTEndpoints, Description: describe(b.Description, b.NetworkName)}
	c.Options, err = b.Change()
	_, differs = c.Over(u)
	return c, differs, err
}

// shownPublish returns the state of publishing in the form of the list.
func shownPublish(p mesh.Publishing, language msg.Language) answers.ListedPublish {
	return answers.ListedPublish{State: p.State, Value: p.Value, Error: answers.FaultText(reconcile.Fault(p.Fault), language), Attempts: p.Attempts, At: p.At}
}

// publishing returns the state of publishing of a usage, with its records and the states of its endpoints.
func (o *operations) publishing(ctx context.Context, u mesh.Usage, language msg.Language) (answers.ListedPublish, error) {
	shown := shownPublish(u.Publish, language)
	formats, err := o.store.ledger.Formats(ctx, u.Name, u.Network.V.String())
	endpoints, unread := o.checks.Endpoints(ctx, u.Seq)
	shown.Formats, shown.Endpoints = answers.Formats(formats, language), endpoints
	return shown, errors.Join(err, unread)
}

// awaited is publishing for an answer that has waited for it, else nil. It leaves out records that cannot
// be read, because what the answer is about is stored.
func (o *operations) awaited(ctx context.Context, waits bool, u mesh.Usage, language msg.Language) *answers.ListedPublish {
	if !waits {
		return nil
	}
	shown, _ := o.publishing(context.WithoutCancel(ctx), u, language)
	return &shown
}

// listed returns a usage in the form of the list.
func listed(u mesh.Usage, language msg.Language) answers.ListedUsage {
	e := answers.ListedUsage{
		ID: u.ID, ProviderID: u.ServiceID, Mode: u.Mode, Prefix: u.Prefix, RecordType: u.RecordType,
		Description: u.Description, IsOccupied: u.Exclusive, FullDomain: mesh.FullName(u.Prefix, u.Domain.V),
		NetworkID: sqlite.Pointer(u.Network), NetworkName: mesh.NetworkName(u.Description),
		Publish: shownPublish(u.Publish, language),
	}
	if u.ServiceName.Valid {
		e.Provider = &answers.ListedProvider{ID: u.ServiceID, Name: u.ServiceName.V}
	}
	return e
}

// reserve checks a reservation in the order of the contract, and stores it. A repeated request gets
// the usage that the first one has stored.
func (o *operations) reserve(ctx context.Context, want reservation) (u mesh.Usage, repeated bool, err error) {
	if err := want.check(); err != nil {
		return u, false, err
	}
	prefix, fault := want.prefix()
	if fault != "" {
		return u, false, o.afterService(ctx, want.service, msg.Refuse(fault))
	}
	u, repeated, err = o.create(ctx, want.again, mesh.Usage{
		ServiceID: want.service, Mode: want.mode, Prefix: prefix, Description: mesh.Describe(want.networkName),
		Network: sqlite.Given(want.network), Options: want.options.Over(mesh.Options{}),
	})
	switch {
	case err == nil:
		return u, repeated, nil
	case errors.Is(err, errPrefixTaken):
		return u, false, refuseTaken(u)
	}
	if _, refused := errors.AsType[sqlite.Refusal](err); !refused {
		err = o.afterService(ctx, want.service, &notReserved{err})
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
	if prefix, fault := want.prefix(); fault == "" {
		name = o.store.UsageName(ctx, want.service, prefix)
	}
	waiter := o.engine.Expect(name)
	defer waiter.Close()
	u, repeated, err = o.reserve(ctx, want)
	if err == nil {
		u.Publish = o.published(ctx, waiter, u, want.patience)
	}
	return u, repeated, err
}

// published waits until the value of a usage stands at its provider or has failed, or the patience ends, and
// returns the state: pending if it cannot be read, because what is waited for is stored. It does not wait
// for a person, when nothing else works on the name.
func (o *operations) published(ctx context.Context, waiter *reconcile.Waiter, u mesh.Usage, patience web.Patience) mesh.Publishing {
	read := context.WithoutCancel(ctx)
	ctx, cancel := patience(ctx)
	defer cancel()
	version, fault := o.store.ledger.NameVersion(read, u.Name)
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

// formatWarnings warns of records that the provider refuses for their names, if a usage was given formats.
func (o *operations) formatWarnings(ctx context.Context, u mesh.Usage, given []string) (all []answers.Warning) {
	if len(given) == 0 {
		return nil
	}
	states, _ := o.store.ledger.Formats(context.WithoutCancel(ctx), u.Name, u.Network.V.String()) // the usage is stored, whether they are read or not
	for i := range states {
		if f := &states[i]; f.Fault.Code == string(provider.NameNotAllowed) {
			all = append(all, answers.Warning{ID: msg.WarnFormat, Args: []any{f.Format, answers.Fault(f.Fault)}})
		}
	}
	return all
}

// usageWarnings returns warnings about a usage that was just reserved.
func usageWarnings(u mesh.Usage) []answers.Warning {
	if u.HeldBy == u.Network {
		return nil
	}
	return []answers.Warning{{ID: msg.WarnNameHeld, Args: []any{u.Name, u.HeldBy.V}}}
}

// afterService returns the fault of the service of a reservation, else the fault that comes later
// in the contract's order.
func (o *operations) afterService(ctx context.Context, service string, fault error) error {
	return cmp.Or(o.store.CheckService(ctx, service), fault)
}

// saveUsage checks and stores a change of a usage.
func (o *operations) saveUsage(ctx context.Context, u mesh.Usage, c mesh.UsageChange) error {
	changed, _ := c.Over(u)
	if err := changed.CheckEndpoints(); err != nil && (c.Endpoints != nil || c.Options.Formats != nil) {
		return refusedEndpoints(err)
	}
	return o.store.ChangeUsage(ctx, u.ID, c)
}

// saveUsageAndWait is saveUsage, and then waits as published does.
func (o *operations) saveUsageAndWait(ctx context.Context, u mesh.Usage, c mesh.UsageChange, patience web.Patience) (mesh.Publishing, error) {
	waiter := o.engine.Expect(u.Name)
	defer waiter.Close()
	if err := o.saveUsage(ctx, u, c); err != nil {
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
	done, err := o.store.ReleaseUsage(ctx, id, force)
	if err != nil {
		return false, err
	}
	wait, cancel := patience(ctx)
	defer cancel()
	if waiter.Wait(wait, done.version); done.freed {
		return true, nil
	}
	_, err = o.store.Usage(context.WithoutCancel(ctx), id)
	return errors.Is(err, errNoUsage), nil // what cannot be read is not known to be free
}

// provision applies a document in one transaction, by the operations of requests.
func (o *operations) provision(ctx context.Context, document *provision.Document, start bool) (applied provision.Applied, err error) {
	var a *applier
	err = o.store.db.Tx(events.By(ctx, events.ByProvision), func(ctx context.Context, tx *sql.Tx) (err error) {
		a = &applier{ops: o, start: start, seen: map[string]int{}}
		if applied, err = document.Apply(ctx, a); err != nil || len(applied.Changes) == 0 {
			return err
		}
		return o.store.events.Add(ctx, tx, events.Event{Kind: events.ProvisionApplied, Detail: events.Detail{Count: len(applied.Changes)}})
	})
	if err != nil {
		return applied, err
	}
	if a.owner != "" {
		o.store.UseOwner(a.owner)
	}
	applied.Warnings, applied.InUse = a.warnings, a.inUse
	return applied, nil
}

// tellRefused stores the event of mistakes for which a provision file, or entries of it, are not
// applied.
func (o *operations) tellRefused(ctx context.Context, mistakes []string) error {
	e := events.Event{Kind: events.ProvisionRefused, Detail: events.Detail{Count: len(mistakes)}}
	e.Detail.Fault = mesh.Fault{Code: string(msg.NotProvisioned), Detail: msg.Say(mistakes[0])}
	return o.store.events.Note(events.By(ctx, events.ByProvision), e)
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

// forms implements provision.Checks.
type forms struct{}

func (forms) CheckOwner(owner string) error { return checkOwner(owner) }

func (forms) CheckConfiguration(body []byte) error {
	var b configurationBody
	return cmp.Or(web.ParseBody(body, &b), checkConfiguration(b.configuration()))
}

func (forms) CheckService(body []byte) error {
	var b serviceBody
	if err := web.ParseBody(body, &b); err != nil {
		return err
	}
	_, err := b.checked()
	return err
}

func (forms) CheckUsage(body []byte) error {
	var b usageBody
	if err := web.ParseBody(body, &b); err != nil {
		return err
	}
	want, err := b.wanted()
	if err != nil {
		return err
	}
	if _, fault := b.reservation().prefix(); fault != "" {
		return web.Fail(fault)
	}
	c, _, err := b.difference(want)
	changed, _ := c.Over(want)
	return cmp.Or(err, refusedEndpoints(changed.CheckEndpoints()))
}

func (forms) CheckOther(part string, body []byte) (err error) {
	if part == "secondaries" {
		_, err = resource.Parse[secondary.Secondary](body)
	} else {
		_, err = resource.Parse[notify.Target](body)
	}
	return err
}

// Blame returns the member that a refusal is about, and the reason.
func (forms) Blame(err error) (member, reason string, ok bool) {
	f := failureOf(err)
	member, reason = provision.Blamed(f.ID, f.Error())
	return member, reason, f.Cause == nil
}

// applier implements provision.Appliance by the operations of requests, in one transaction. It
// changes only entries that differ.
type applier struct {
	forms
	ops   *operations
	start bool           // the database was opened just now, so nothing uses its owner yet
	owner string         // the taken one, "" for none
	seen  map[string]int // numbers of the usages of the document so far, by service, network and prefix
	inUse []string       // services that cannot be deleted yet

	warnings []string // about stored entries that cannot work
}

var unchanged provision.Change

// SaveOwner makes an owner that of a new database; an older database adopts it.
func (a *applier) SaveOwner(ctx context.Context, owner string) (provision.Change, error) {
	if err := a.CheckOwner(owner); err != nil || owner == a.ops.store.ledger.Owner() {
		return unchanged, err
	}
	if a.start {
		taken, err := a.ops.store.ledger.TakeOwner(ctx, owner)
		if err != nil || taken {
			a.owner = owner
			return provision.Change{What: "owner", ID: owner, Status: http.StatusOK}, err
		}
	}
	adopted, err := a.ops.store.ledger.Adopted(ctx, a.ops.store.db.Reading(ctx), owner)
	if err != nil || adopted {
		return unchanged, err
	}
	return provision.Did("POST adopt", owner, a.ops.store.ledger.Adopt(ctx, owner))
}

// SaveConfiguration stores a configuration if it differs.
func (a *applier) SaveConfiguration(ctx context.Context, body []byte) (provision.Change, error) {
	var b configurationBody
	if err := web.ParseBody(body, &b); err != nil {
		return unchanged, err
	}
	c := b.configuration()
	stored, err := a.ops.store.Configuration(ctx)
	if err == nil && c.SameAs(stored) || err != nil && !errors.Is(err, errNoConfiguration) {
		return unchanged, err
	}
	warnings, err := a.ops.saveConfiguration(ctx, c, nil)
	a.warnings = append(a.warnings, inEnglish(warnings)...)
	return provision.Did("PUT config", "", err)
}

// inEnglish returns the texts of warnings for the log.
func inEnglish(warnings []answers.Warning) []string {
	return answers.WarningTexts(warnings, msg.English)
}

// SaveService stores a service if it differs.
func (a *applier) SaveService(ctx context.Context, body []byte) (provision.Change, error) {
	var b serviceBody
	if err := web.ParseBody(body, &b); err != nil {
		return unchanged, err
	}
	stored, err := a.ops.store.Service(ctx, b.ID)
	if err == nil && b.service().SameAs(stored) || err != nil && !errors.Is(err, errNoService) {
		return unchanged, err
	}
	v, warnings, err := a.ops.replaceService(ctx, b, nil)
	a.warnings = append(a.warnings, inEnglish(warnings)...)
	return provision.Did("PUT services/{id}", v.ID, err)
}

// others are the stored entries of another part of a document.
type others interface {
	Apply(ctx context.Context, body []byte) (id string, changed bool, err error)
	IDs(ctx context.Context) ([]string, error)
	Delete(ctx context.Context, id string) error
}

func (a *applier) others(part string) others {
	if part == "secondaries" {
		return a.ops.store.secondaries
	}
	return a.ops.store.targets
}

// SaveOther stores a notification target or a secondary if it differs.
func (a *applier) SaveOther(ctx context.Context, part string, body []byte) (provision.Change, error) {
	id, changed, err := a.others(part).Apply(ctx, body)
	if err != nil || !changed {
		return unchanged, err
	}
	return provision.Did("PUT "+part+"/{id}", id, nil)
}

// SaveUsage reserves a usage, or changes the members that differ in a reserved one.
func (a *applier) SaveUsage(ctx context.Context, body []byte) (provision.Change, error) {
	b, want, same, err := a.sameUsages(ctx, body)
	if err != nil {
		return unchanged, err
	}
	key := want.Key()
	number := a.seen[key]
	a.seen[key]++
	if number >= len(same) {
		u, _, err := a.ops.reserve(ctx, b.reservation())
		if err == nil {
			a.warnings = append(a.warnings, inEnglish(usageWarnings(u))...)
			_, err = a.changeUsage(ctx, b, u)
		}
		return provision.Did("POST usages", u.ID, err)
	}
	c, err := a.changeUsage(ctx, b, same[number])
	if err == nil && same[number].Status == mesh.Releasing {
		return provision.Did("POST usages", same[number].ID, a.ops.store.KeepUsage(ctx, same[number].ID))
	}
	return c, err
}

func (a *applier) changeUsage(ctx context.Context, b usageBody, u mesh.Usage) (provision.Change, error) {
	c, differs, err := b.difference(u)
	if err != nil || !differs {
		return unchanged, err
	}
	return provision.Did("PATCH usages/{id}", u.ID, a.ops.saveUsage(ctx, u, c))
}

// sameUsages decodes a usage of a document, and returns the stored usages that match it.
func (a *applier) sameUsages(ctx context.Context, body []byte) (b usageBody, want mesh.Usage, same []mesh.Usage, err error) {
	if err = web.ParseBody(body, &b); err != nil {
		return b, want, nil, err
	}
	if want, err = b.wanted(); err != nil {
		return b, want, nil, err
	}
	same, err = a.ops.store.SameUsages(ctx, want)
	return b, want, same, err
}

// SameUsages returns the seqs of the stored usages that match a body.
func (a *applier) SameUsages(ctx context.Context, body []byte) (numbers []int64, err error) {
	_, _, same, err := a.sameUsages(ctx, body)
	if failureOf(err).Cause == nil {
		err = nil // SaveUsage will report the refusal
	}
	for _, u := range same {
		numbers = append(numbers, u.Seq)
	}
	return numbers, err
}

// HeldUsages returns the usages that a document can have.
func (a *applier) HeldUsages(ctx context.Context) iter.Seq2[provision.Held, error] {
	return sqlite.Made(a.ops.store.AllUsages(ctx, math.MaxInt64), func(u mesh.Usage) (provision.Held, bool) {
		return provision.Held{Seq: u.Seq, ID: u.ID}, u.Documented()
	})
}

// ReleaseUsage releases a usage without waiting until its value is withdrawn.
func (a *applier) ReleaseUsage(ctx context.Context, id string) (provision.Change, error) {
	done, err := a.ops.store.ReleaseUsage(ctx, id, false)
	c, err := provision.Did("DELETE usages/{id}", id, err)
	if !done.freed {
		c.Status = http.StatusAccepted
	}
	return c, err
}

// HeldServices returns the ids of the services that a document can have.
func (a *applier) HeldServices(ctx context.Context) iter.Seq2[string, error] {
	return sqlite.Made(a.ops.store.AllServices(ctx), func(v mesh.Service) (string, bool) { return v.ID, v.Documented() })
}

// DeleteService deletes a service, unless it has usages.
func (a *applier) DeleteService(ctx context.Context, id string) (provision.Change, error) {
	err := a.ops.store.DeleteService(ctx, id)
	if errors.Is(err, errServiceInUse) {
		a.inUse = append(a.inUse, id)
		return unchanged, nil
	}
	return provision.Did("DELETE services/{id}", id, err)
}

// HeldOthers returns the ids of the notification targets or secondaries.
func (a *applier) HeldOthers(ctx context.Context, part string) ([]string, error) {
	return a.others(part).IDs(ctx)
}

// DeleteOther deletes a notification target or a secondary.
func (a *applier) DeleteOther(ctx context.Context, part, id string) (provision.Change, error) {
	return provision.Did("DELETE "+part+"/{id}", id, a.others(part).Delete(ctx, id))
}
