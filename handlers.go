// The HTTP contract: its routes, the answers to errors, and one function a route, which decodes,
// calls an operation or the store, and answers.

package main

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mattn/go-sqlite3"

	"meshddns/docs"
	"meshddns/internal/answers"
	"meshddns/internal/daemon"
	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/notify"
	"meshddns/internal/page"
	"meshddns/internal/reconcile"
	"meshddns/internal/rights"
	"meshddns/internal/secrets"
	"meshddns/internal/web"
)

// server answers the HTTP contract.
type server struct {
	ops      operations
	public   reconcile.Public // how the world sees the zones
	log      *slog.Logger
	version  string
	figures  []func(*daemon.Page) // write the metrics of other parts of the program
	adapter  web.Adapter
	requests daemon.Requests
	backups  daemon.Runs
	sender   *notify.Sender
	status   *page.Page
	copying  sync.Mutex // held by the backup that is being made or sent

	provisionFaults atomic.Int64 // for which the provisioning file, or an entry of it, is not applied
}

// newServer makes a server that is asked over HTTP. It tests zones as the Internet sees them. figures write the
// metrics of other parts of the program.
func newServer(ops operations, version string, log *slog.Logger, figures ...func(*daemon.Page)) *server {
	s := &server{ops: ops, public: reconcile.Internet, log: log, version: version, figures: figures}
	s.adapter = web.Adapter{Log: log, Broken: broken, Counted: s.requests.Count, Faults: web.NewRefusalLines(log), Fence: ops.fence}
	s.sender = &notify.Sender{Targets: ops.store.targets, History: ops.store.events, Well: func(ctx context.Context) bool { return s.provisionFaults.Load() == 0 && s.ops.well(ctx) }, Log: log}
	s.status = s.newPage()
	return s
}

// newPage makes the status page.
func (s *server) newPage() *page.Page {
	shown := s.ops.shown()
	shown.Faults, shown.Refuse, shown.Fault, shown.Program = s.provisionFaults.Load, s.adapter.Refuse, s.adapter.Blame, s.version
	return page.New(shown)
}

const (
	syncTime    = 60 * time.Second
	releaseTime = 30 * time.Second
	testTime    = 30 * time.Second
)

// routes is the whole API. Beside each route are the rule that says which roles may use it, and the members of its query. The
// calls of a web interface and of monitors take any member.
func (s *server) routes() http.Handler {
	mux := s.requests.Mux(func(w http.ResponseWriter, r *http.Request) { s.adapter.Refuse(w, r, errNotPermitted) })
	a := s.adapter
	a.Missing = s.status.Missing
	log, handle := answers.NewFeed(s.ops.store.events, a), a.Handle
	mux.Handle("GET /api/v1/ddns/config", rights.Readers, handle(s.configuration, web.AnyMember))
	mux.Handle("PUT /api/v1/ddns/config", rights.Admins, handle(s.putConfiguration))
	mux.Handle("DELETE /api/v1/ddns/config", rights.Admins, handle(s.deleteConfiguration))
	mux.Handle("POST /api/v1/ddns/test", rights.Admins, handle(s.testConnection))
	mux.Handle("POST /api/v1/ddns/sync", rights.Admins, handle(s.synchronise, "dry_run", "sweep"))
	mux.Handle("GET /api/v1/ddns/sync", rights.Readers, handle(s.lastReport))
	mux.Handle("GET /api/v1/ddns/leftovers", rights.Readers, web.List(a, s.leftovers))
	mux.Handle("DELETE /api/v1/ddns/leftovers/{id}", rights.Admins, handle(s.forgetLeftover))
	mux.Handle("POST /api/v1/ddns/adopt", rights.Admins, handle(s.adopt, "dry_run"))
	mux.Handle("GET /api/v1/ddns/providers", rights.All, handle(s.providers))

	mux.Handle("POST /api/v1/ddns/usages", rights.Tenants, handle(s.createUsage, "wait"))
	mux.Handle("GET /api/v1/ddns/check-prefix", rights.All, handle(s.checkPrefix, web.AnyMember))
	mux.Handle("GET /api/v1/ddns/usages/available", rights.All, web.List(a, s.availableUsages, web.AnyMember))
	mux.Handle("GET /api/v1/ddns/usages/{id}", rights.All, handle(s.usage))
	mux.Handle("PATCH /api/v1/ddns/usages/{id}", rights.Tenants, handle(s.changeUsage, "wait"))
	mux.Handle("DELETE /api/v1/ddns/usages/{id}", rights.Tenants, handle(s.releaseUsage, "force", "wait"))
	mux.Handle("POST /api/v1/ddns/usages/{id}/leases", rights.Tenants, handle(s.ops.leases.Post, "replace"))
	mux.Handle("GET /api/v1/ddns/usages/{id}/leases", rights.All, web.List(a, s.ops.leases.List))
	mux.Handle("DELETE /api/v1/ddns/usages/{id}/leases/{lease}", rights.Tenants, handle(s.ops.leases.Remove))

	mux.Handle("GET /api/v1/ddns/usages/{id}/events", rights.All, web.List(a, log.Usage, "kind"))
	mux.Handle("GET /api/v1/ddns/events", rights.Readers, log.Events())

	mux.Handle("POST /api/v1/ddns/services", rights.Admins, handle(serviceSaver(s.ops.registerService)))
	mux.Handle("GET /api/v1/ddns/services", rights.Readers, web.List(a, s.services))
	mux.Handle("GET /api/v1/ddns/services/{id}", rights.All, handle(s.service))
	mux.Handle("PUT /api/v1/ddns/services/{id}", rights.Admins, handle(serviceSaver(s.ops.replaceService)))
	mux.Handle("DELETE /api/v1/ddns/services/{id}", rights.Admins, handle(s.deleteService))

	mux.Handle("GET /api/v1/ddns/notifications", rights.Readers, web.List(a, s.ops.store.targets.List))
	mux.Handle("GET /api/v1/ddns/notifications/{id}", rights.Readers, handle(s.ops.store.targets.Show))
	mux.Handle("PUT /api/v1/ddns/notifications/{id}", rights.Admins, handle(s.ops.store.targets.Put))
	mux.Handle("DELETE /api/v1/ddns/notifications/{id}", rights.Admins, handle(s.ops.store.targets.Remove))
	mux.Handle("POST /api/v1/ddns/notifications/{id}/test", rights.Admins, handle(s.sender.Test))
	mux.Handle("GET /api/v1/ddns/addresses", rights.All, handle(s.addresses))
	mux.Handle("GET /api/v1/ddns/secondaries", rights.Readers, web.List(a, s.ops.secondaries.List))
	mux.Handle("GET /api/v1/ddns/secondaries/{id}", rights.Readers, handle(s.ops.secondaries.Show))
	mux.Handle("PUT /api/v1/ddns/secondaries/{id}", rights.Admins, handle(s.ops.secondaries.Put))
	mux.Handle("DELETE /api/v1/ddns/secondaries/{id}", rights.Admins, handle(s.ops.store.secondaries.Remove))

	mux.Handle("GET /api/v1/ddns/state", rights.Readers, a.Pieces(s.state))
	mux.Handle("DELETE /api/v1/ddns/state", rights.Admins, handle(s.withdrawState, "dry_run"))
	mux.Handle("GET /api/v1/ddns/backup", rights.Admins, a.Only(s.backup))
	mux.Handle("GET /healthz", rights.All, handle(s.health, web.AnyMember))
	mux.Handle("OPTIONS /{$}", rights.All, handle(s.health, web.AnyMember)) // what HAProxy asks for by default
	mux.Handle("GET /metrics", rights.Readers, http.HandlerFunc(s.metrics))
	mux.Handle("GET /api/v1/ddns/openapi.json", rights.All, a.Only(s.contract))
	s.status.Routes(func(route string, page http.Handler) { mux.Handle(route, rights.Readers, page) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.Route(mux.Routes, w, r.WithContext(events.By(r.Context(), web.Caller(r))))
	})
}

// deny answers for the guard, which stops a request before it gets here.
func (s *server) deny(w http.ResponseWriter, r *http.Request, refusal web.Denial) {
	failure := &web.Failure{Status: refusal.Status, ID: msg.ID(refusal.Code)}
	if failure.ID == msg.HostNotAllowed {
		failure.Args = []any{refusal.Host}
	}
	s.adapter.Refuse(w, r, failure)
	s.requests.Count("", refusal.Status, refusal.Code)
}

func (s *server) configuration(r *http.Request) (web.Reply, error) {
	c, err := s.ops.configured(r.Context())
	return web.Reply{Data: answers.NewConfiguration(c, web.Language(r))}, err
}

func (s *server) putConfiguration(r *http.Request) (web.Reply, error) {
	var body mesh.Configuration
	members, err := web.DecodeMembers(r, &body)
	if err != nil {
		return web.Reply{}, err
	}
	warnings, err := s.ops.saveConfiguration(r.Context(), body, members)
	answer := web.Reply{Message: msg.ConfigurationSaved}
	if len(warnings) > 0 {
		answer.Data = map[string]any{"warnings": msg.Texts(warnings, web.Language(r))}
	}
	return answer, err
}

func (s *server) deleteConfiguration(r *http.Request) (web.Reply, error) {
	gone, err := s.ops.forgetConfiguration(r.Context(), web.Until(time.Now().Add(releaseTime)))
	if err == nil && !gone {
		return web.Reply{Status: http.StatusAccepted, Message: msg.ConfigurationLeaving}, nil
	}
	return web.Reply{Message: msg.ConfigurationDeleted}, err
}

func (s *server) testConnection(r *http.Request) (web.Reply, error) {
	var body struct {
		Provider        string         `json:"provider"`
		AccessKeyID     string         `json:"access_key_id"`
		AccessKeySecret secrets.Secret `json:"access_key_secret"`
		Endpoint        string         `json:"endpoint"`
		Domain          string         `json:"domain"`
		TXTRecordName   string         `json:"txt_record_name"`
		WriteTest       bool           `json:"write_test"`
	}
	members, err := web.DecodeMembers(r, &body)
	if err != nil {
		return web.Reply{}, err
	}
	c, err := s.ops.unmasked(r.Context(), mesh.Configuration{
		Provider: body.Provider, AccessKeyID: body.AccessKeyID, Secret: body.AccessKeySecret, Endpoint: body.Endpoint,
		Domain: body.Domain, TXTRecordName: body.TXTRecordName,
	})
	if err != nil {
		return web.Reply{}, err
	}
	limit := testTime
	if body.WriteTest {
		limit = writeTestTime
	}
	ctx, cancel, err := web.Wait(r, limit)
	defer cancel()
	if err != nil {
		return web.Reply{}, err
	}
	items := s.ops.clients.test(ctx, s.public, c, body.WriteTest)
	answer := map[string]any{"results": answers.Test(items, web.Language(r))}
	if warnings := web.WarnMembers(members, mesh.Configuration{}, "write_test"); len(warnings) > 0 {
		answer["warnings"] = msg.Texts(warnings, web.Language(r))
	}
	return web.Reply{Data: answer}, nil
}

func (s *server) synchronise(r *http.Request) (web.Reply, error) {
	flag, err := web.Flags(r, "dry_run", "sweep")
	if err != nil {
		return web.Reply{}, err
	}
	ctx, cancel, err := web.Wait(r, syncTime)
	defer cancel()
	if err != nil {
		return web.Reply{}, err
	}
	if flag["dry_run"] {
		return s.preview(ctx, r, flag["sweep"])
	}
	result, err := s.ops.engine.Sync(ctx, flag["sweep"])
	if errors.Is(err, reconcile.ErrUnfinished) {
		total, err := s.ops.store.ledger.CountNames(context.WithoutCancel(ctx))
		if err != nil {
			return web.Reply{}, err
		}
		return web.Reply{}, web.Fail(msg.SyncUnfinished, result.Names, max(total, int64(result.Names)))
	}
	if err != nil {
		return web.Reply{}, err
	}
	if result.Bad > 0 {
		first := result.FirstBad()
		return web.Reply{}, web.Fail(msg.SyncFailed, result.Bad, result.Names, first.Sibling.Of(first.Name), first.Fault)
	}
	return web.Reply{Message: msg.SyncDone, Data: answers.Report(result, time.Time{}, web.Language(r))}, nil
}

// preview reports the changes that a synchronisation would make. If the time ends, the report lacks
// the remaining names, and says that it is not complete.
func (s *server) preview(ctx context.Context, r *http.Request, sweep bool) (web.Reply, error) {
	look := s.ops.engine.Preview
	if sweep {
		look = s.ops.engine.PreviewSweep
	}
	result, err := look(ctx)
	if errors.Is(err, reconcile.ErrUnfinished) {
		result.FinishedAt, err = s.ops.store.now(), nil
	}
	if err != nil {
		return web.Reply{}, err
	}
	return web.Reply{Message: msg.SyncPlanned, Data: answers.Report(result, time.Time{}, web.Language(r))}, nil
}

func (s *server) lastReport(r *http.Request) (web.Reply, error) {
	last, next, err := s.ops.engine.Last(r.Context())
	if last == nil {
		return web.Reply{Data: json.RawMessage("null")}, err
	}
	return web.Reply{Data: answers.Report(*last, next, web.Language(r))}, err
}

func (s *server) leftovers(r *http.Request) (web.PartReader[int64], error) {
	return func(after int64, size int) (web.Part[int64], error) {
		rows, err := s.ops.store.ledger.Leftovers(r.Context(), after, size)
		return web.Rows(rows, err, func(p reconcile.StoredPlace) (int64, any, error) {
			due, err := s.ops.store.ledger.NameDue(r.Context(), p.Place.Name)
			return p.Place.ID, answers.NewLeftover(p.Place, p.Since, due, web.Language(r)), err
		})
	}, nil
}

func (s *server) addresses(r *http.Request) (web.Reply, error) {
	return web.Reply{Data: s.ops.addresses.Sources(web.Language(r))}, nil
}

func (s *server) forgetLeftover(r *http.Request) (web.Reply, error) {
	id, _ := strconv.ParseInt(r.PathValue("id"), 10, 64) // 0 and the greatest number are no leftover's
	return web.Reply{Message: msg.LeftoverForgotten}, s.ops.store.ledger.ForgetLeftover(r.Context(), id)
}

func (s *server) adopt(r *http.Request) (web.Reply, error) {
	var body struct {
		Owner    string `json:"owner"`
		Unmarked bool   `json:"unmarked"`
	}
	if err := web.Decode(r, &body); err != nil {
		return web.Reply{}, err
	}
	flag, err := web.Flags(r, "dry_run")
	if err != nil {
		return web.Reply{}, err
	}
	if body.Unmarked {
		return s.adoptUnmarked(r, body.Owner, flag["dry_run"])
	}
	if err := s.ops.store.ledger.CheckForeign(body.Owner); err != nil {
		return web.Reply{}, err
	}
	done := msg.SyncPlanned
	if !flag["dry_run"] {
		done = msg.OwnerAdopted
		if err := s.ops.store.ledger.Adopt(r.Context(), body.Owner); err != nil {
			return web.Reply{ID: body.Owner}, err
		}
	}
	ctx, cancel := web.WithPatience(r.Context(), time.Now().Add(syncTime))
	defer cancel()
	names, err := s.ops.engine.Held(ctx, body.Owner)
	complete := !errors.Is(err, reconcile.ErrUnfinished)
	if complete && err != nil {
		return web.Reply{ID: body.Owner}, err
	}
	answer := map[string]any{"records": append([]string{}, names...), "complete": complete}
	return web.Reply{Message: done, ID: body.Owner, Data: answer}, nil
}

// adoptUnmarked takes over the values without a mark that may be of this database.
func (s *server) adoptUnmarked(r *http.Request, owner string, dryRun bool) (web.Reply, error) {
	if err := cmp.Or(mesh.CheckOwner(owner), msg.RefuseIf(owner != s.ops.store.ledger.Owner(), msg.OwnerNotOwn)); err != nil {
		return web.Reply{}, err
	}
	done, records := msg.OwnerAdopted, []string{}
	left, err := s.ops.store.ledger.Unmarked(r.Context())
	for i := 0; i < len(left) && err == nil; i++ {
		if records = append(records, left[i].Place.Sibling.Of("")); !dryRun {
			err = s.ops.store.ledger.AdoptUnmarked(r.Context(), left[i].Place)
		}
	}
	if dryRun {
		done = msg.SyncPlanned
	}
	return web.Reply{Message: done, ID: owner, Data: map[string]any{"records": records, "complete": true}}, err
}

func (s *server) providers(r *http.Request) (web.Reply, error) {
	var list []answers.Provider
	for _, p := range providers {
		list = append(list, answers.NewProvider(p.name, p.minTTL, web.Language(r)))
	}
	return web.Reply{Data: list}, nil
}

func (s *server) createUsage(r *http.Request) (web.Reply, error) {
	var body mesh.NewUsage
	patience, waits, err := web.Waiting(r, 0)
	if err != nil {
		return web.Reply{}, err
	}
	key, err := answers.ReplayKeyOf(r)
	if err != nil {
		return web.Reply{}, err
	}
	members, err := web.DecodeMembers(r, &body)
	if _, permitted := rights.Narrow(r.Context(), body.ServiceID); err == nil && !permitted {
		err = errNotPermitted
	}
	if err != nil {
		return web.Reply{}, err
	}
	if err := body.Normalize(); err != nil {
		return web.Reply{}, err
	}
	if body.NetworkName != nil && *body.NetworkName != "" {
		body.Description = nil // which clients may send, and which had no effect beside a network_name
	}
	reserve := s.ops.reserve
	if waits {
		reserve = s.ops.reserveAndWait
	}
	u, repeated, err := reserve(r.Context(), reservation{NewUsage: body, again: key(), patience: patience})
	if _, ok := errors.AsType[*notReserved](err); ok && failureOf(err).ID == msg.InternalError {
		err = &web.Failure{Status: http.StatusInternalServerError, ID: msg.StoreFailed, Args: []any{err.Error()}, Cause: err}
	}
	if err != nil {
		return web.Reply{}, err
	}
	warnings := slices.Concat(usageWarnings(u), web.WarnMembers(members, body), s.ops.changeWarnings(r.Context(), u, body.UsageChange))
	created := answers.NewCreated(u, warnings, s.ops.awaited(r.Context(), waits, u, web.Language(r)), web.Language(r))
	return web.Reply{Message: msg.UsageCreated, ID: u.ID, Replayed: repeated, Data: created}, nil
}

func (s *server) checkPrefix(r *http.Request) (web.Reply, error) {
	query, err := web.ParseQuery(r)
	if err != nil {
		return web.Reply{}, err
	}
	for _, name := range []string{"service_id", "prefix"} {
		if query.Get(name) == "" {
			return web.Reply{}, web.Fail(msg.QueryMissing, name)
		}
	}
	count, err := s.ops.store.CountUsages(r.Context(), query.Get("service_id"), query.Get("prefix"))
	if err != nil {
		return web.Reply{}, err
	}
	answer := web.Reply{Data: map[string]any{"count": count, "occupied": count > 0}}
	if count == 0 {
		answer.Message = mesh.PrefixFault(query.Get("prefix"))
	}
	return answer, nil
}

func (s *server) availableUsages(r *http.Request) (web.PartReader[int64], error) {
	query, err := web.ParseQuery(r)
	filter := usageFilter{serviceID: query.Get("service_id"), state: reconcile.PlaceState(query.Get("state"))}
	filter.prefix = sql.NullString{String: query.Get("prefix"), Valid: query.Has("prefix")}
	filter.name = sql.NullString{String: query.Get("name"), Valid: query.Has("name")}
	if filter.state != "" && !slices.Contains(reconcile.UsageStates, filter.state) {
		return nil, web.Fail(msg.QueryInvalid, "state", reconcile.StateChoices())
	}
	if text := query.Get("network_id"); text != "" {
		n, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			return nil, web.Fail(msg.QueryInvalid, "network_id", msg.Phrase{ID: msg.TypeUint64})
		}
		filter.network = sql.Null[mesh.NetworkID]{V: mesh.NetworkID(n), Valid: true}
	}
	say := func(f mesh.Fault) string { return f.In(web.Language(r)) }
	return func(after int64, size int) (web.Part[int64], error) {
		filter.after = after
		return s.ops.store.Listing(r.Context(), filter, size, say)
	}, err
}

func (s *server) usage(r *http.Request) (web.Reply, error) {
	u, err := s.ops.store.Usage(r.Context(), r.PathValue("id"))
	if err != nil {
		return web.Reply{}, err
	}
	publish, err := s.ops.publishing(r.Context(), u, web.Language(r))
	return web.Reply{Data: answers.NewUsage(u, publish, web.Language(r))}, err
}

func (s *server) changeUsage(r *http.Request) (web.Reply, error) {
	patience, waits, err := web.Waiting(r, 0)
	if err != nil {
		return web.Reply{}, err
	}
	u, err := s.ops.store.Usage(r.Context(), r.PathValue("id"))
	if err != nil {
		return web.Reply{}, err
	}
	var change mesh.UsageChange
	members, err := web.DecodeChange(r, &change)
	if err != nil {
		return web.Reply{}, err
	}
	if err := change.Normalize(); err != nil {
		return web.Reply{}, err
	}
	if waits {
		u.Publish, err = s.ops.saveUsageAndWait(r.Context(), u, change, patience)
	} else {
		err = s.ops.store.ChangeUsage(r.Context(), u.ID, change)
	}
	if err != nil {
		return web.Reply{}, err
	}
	answer := web.Reply{Message: msg.UsageChanged}
	warnings := slices.Concat(web.WarnMembers(members, answers.Usage{}), answers.WarnNotSet(members), s.ops.changeWarnings(r.Context(), u, change))
	if waits || len(warnings) > 0 {
		answer.Data = struct {
			Warnings []string               `json:"warnings,omitempty"`
			Publish  *answers.ListedPublish `json:"publish,omitempty"`
		}{msg.Texts(warnings, web.Language(r)), s.ops.awaited(r.Context(), waits, u, web.Language(r))}
	}
	return answer, nil
}

func (s *server) releaseUsage(r *http.Request) (web.Reply, error) {
	flag, err := web.Flags(r, "force")
	if err != nil {
		return web.Reply{}, err
	}
	patience, waits, err := web.Waiting(r, releaseTime)
	if err != nil {
		return web.Reply{}, err
	}
	freed, err := s.ops.releaseAndWait(r.Context(), r.PathValue("id"), flag["force"], patience)
	if err != nil {
		return web.Reply{}, err
	}
	if freed {
		answer := web.Reply{Message: msg.UsageReleased}
		if waits {
			answer.Data = map[string]string{"status": "released"}
		}
		return answer, nil
	}
	answer := web.Reply{Status: http.StatusAccepted, Message: msg.UsageReleasing, Data: map[string]mesh.BindingStatus{"status": mesh.Releasing}}
	settings, _ := s.ops.store.ledger.Settings(context.WithoutCancel(r.Context())) // the release stands, whether they are read or not
	if settings.Configured && !settings.Enabled {
		answer.Message = msg.UsageHeld
	}
	return answer, nil
}

// serviceSaver returns the handler that stores a service by an operation.
func serviceSaver(save func(context.Context, mesh.Service, []string) (mesh.Service, []msg.Phrase, error)) func(*http.Request) (web.Reply, error) {
	return func(r *http.Request) (web.Reply, error) {
		var body mesh.ServiceBody
		members, err := web.DecodeMembers(r, &body)
		if err != nil {
			return web.Reply{}, err
		}
		body.ID = cmp.Or(r.PathValue("id"), body.ID)
		v, warnings, err := save(r.Context(), body.Service(), members)
		return web.Reply{Message: msg.ServiceSaved, ID: v.ID, Data: struct {
			answers.Service
			Warnings []string `json:"warnings,omitempty"`
		}{answers.NewService(v), msg.Texts(warnings, web.Language(r))}}, err
	}
}

// metService is a service, and how its zone was met last.
type metService struct {
	answers.Service
	Zone answers.Zone `json:"zone"`
}

// metBy returns a function that adds the state of its zone to a service. The zone is that of the
// service's own account, else of the configuration's.
func (s *server) metBy(r *http.Request) (func(mesh.Service) metService, error) {
	c, err := s.ops.configured(r.Context())
	return func(v mesh.Service) metService {
		state, known := s.ops.engine.Zone(v.AccountOf(c), v.Zone)
		state.Fault = state.Fault.For(web.Rights(r).Service)
		return metService{answers.NewService(v), answers.NewZone(state, known, web.Language(r))}
	}, err
}

func (s *server) services(r *http.Request) (web.PartReader[string], error) {
	met, err := s.metBy(r)
	return func(after string, size int) (web.Part[string], error) {
		rows, err := s.ops.store.Services(r.Context(), after, size)
		return web.Rows(rows, err, func(v mesh.Service) (string, any, error) { return v.ID, met(v), nil })
	}, err
}

func (s *server) service(r *http.Request) (web.Reply, error) {
	v, err := s.ops.store.Service(r.Context(), r.PathValue("id"))
	if err != nil {
		return web.Reply{}, err
	}
	met, err := s.metBy(r)
	return web.Reply{Data: met(v)}, err
}

func (s *server) deleteService(r *http.Request) (web.Reply, error) {
	return web.Reply{Message: msg.ServiceDeleted}, s.ops.store.DeleteService(r.Context(), r.PathValue("id"))
}

// state gives all that was configured as a document for -provision.
func (s *server) state(r *http.Request) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		source, err := s.ops.document(r.Context())
		if err != nil {
			yield(nil, err)
			return
		}
		source.Pieces()(yield)
	}
}

// withdrawState withdraws everything, or with dry_run tells what that is. What is left decides the status.
func (s *server) withdrawState(r *http.Request) (web.Reply, error) {
	flag, err := web.Flags(r, "dry_run")
	if err == nil && !flag["dry_run"] {
		err = s.ops.withdrawAll(r.Context(), time.Now().Add(releaseTime))
	}
	if err != nil {
		return web.Reply{}, err
	}
	left, done, err := s.ops.left(r.Context())
	if s.ops.provisioned {
		left["warnings"] = []string{msg.WarnProvisioned.In(web.Language(r))}
	}
	switch {
	case flag["dry_run"]:
		return web.Reply{Message: msg.SyncPlanned, Data: left}, err
	case done:
		return web.Reply{Message: msg.StateWithdrawn, Data: left}, err
	}
	return web.Reply{Status: http.StatusAccepted, Message: msg.StateLeaving, Data: left}, err
}

// backup sends a consistent copy of the live database, one at a time. A HEAD request gets the headers without
// Content-Length, because only a copy has a size; it makes no copy and counts none.
func (s *server) backup(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodHead {
		web.Attachment(w.Header(), "application/vnd.sqlite3", "meshddns.db")
		return
	}
	if !s.copying.TryLock() {
		s.adapter.Audit(r, errBackupRuns)
		s.adapter.Refuse(w, r, errBackupRuns)
		return
	}
	through := sync.OnceFunc(s.copying.Unlock)
	defer through()
	file, err := s.ops.store.db.Backup(r.Context())
	s.adapter.Audit(r, err)
	if err != nil {
		s.backups.Ended(s.ops.store.now(), false)
		s.adapter.Refuse(w, r, err)
		return
	}
	defer file.Close()
	web.Attachment(w.Header(), "application/vnd.sqlite3", "meshddns.db")
	err = web.SendFile(w, file, through)
	if s.backups.Ended(s.ops.store.now(), err == nil); err != nil {
		s.adapter.BreakOff(r, err)
	}
	if err := s.ops.store.events.Note(r.Context(), events.Event{Kind: events.BackupMade}); err != nil {
		s.log.Error("a backup has no event", "error", err)
	}
}

func (s *server) health(r *http.Request) (web.Reply, error) {
	err := s.ops.store.db.Health(r.Context())
	states, unread := s.ops.store.targets.States(r.Context())
	if err = cmp.Or(err, unread); err != nil {
		failure := failureOf(err).Public()
		failure.Status = http.StatusServiceUnavailable
		if failure.ID == msg.InternalError {
			failure.ID = msg.DatabaseDown
		}
		return web.Reply{}, failure
	}
	answer := web.Reply{Message: msg.TestOK}
	switch provisioned, told := s.provisionFaults.Load() == 0, states[notify.Stopped] == 0; {
	case !provisioned && !told:
		answer.Message = msg.NotProvisionedStopped
	case !provisioned:
		answer.Message = msg.WellNotProvisioned
	case !told:
		answer.Message = msg.NotificationsStopped
	}
	if term := s.ops.fence.Term; term != 0 {
		answer.Data = map[string]int64{"term": term}
	}
	return answer, nil
}

// well reports whether nothing is wrong with records, zones, targets and the database.
func (o *operations) well(ctx context.Context) bool {
	totals, err := o.store.ledger.Totals(ctx)
	states, unread := o.store.targets.States(ctx)
	conflict, unknown := o.store.ledger.Conflicts(ctx)
	bad := totals[string(reconcile.Failed)] + uint64(len(o.engine.DownZones())) + states[notify.Stopped]
	return errors.Join(err, unread, unknown) == nil && bad == 0 && !conflict && o.store.db.Health(ctx) == nil
}

// writeMetrics writes the versions, and the metrics of the database and the engine.
func (o *operations) writeMetrics(ctx context.Context, page *daemon.Page, version string) error {
	engine, _, _ := sqlite3.Version()
	page.Family("meshddns_build_info", "gauge", "Versions of meshddns, of Go and of SQLite.")
	page.Figure(1, daemon.Label{Name: "version", Value: version}, daemon.Label{Name: "goversion", Value: runtime.Version()}, daemon.Label{Name: "sqlite", Value: engine})
	totals, err := o.store.ledger.WriteMetrics(ctx, page)
	if err == nil {
		err = o.store.targets.WriteMetrics(ctx, page)
	}
	if err != nil {
		return err
	}
	o.engine.WriteMetrics(page)
	o.leases.WriteMetrics(page, totals["leases"], totals["live leases"])
	return nil
}

// work describes the amount of work, and faults of the database, for the status in systemd.
func work(s *store) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		err := s.db.Answers(ctx)
		text := "busy with requests"
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if totals, unread := s.ledger.Totals(ctx); unread == nil {
			text = fmt.Sprintf("services %d, prefixes %d, names published %d", totals["services"], totals["usages"], totals[string(reconcile.Published)])
		}
		if fault := s.db.Health(ctx); fault != nil && ctx.Err() == nil {
			text += "; " + failureOf(fault).Error()
		}
		return text, err
	}
}

// metrics is the page that Prometheus reads.
func (s *server) metrics(w http.ResponseWriter, r *http.Request) {
	var out bytes.Buffer
	page := daemon.NewPage(&out)
	if err := s.ops.writeMetrics(r.Context(), page, s.version); err != nil {
		s.adapter.Refuse(w, r, err)
		return
	}
	s.requests.Write(page)
	s.ops.engine.Passes().Write(page, "meshddns_sync", "Passes over all names")
	s.backups.Write(page, "meshddns_backup", "Backups")
	page.Family("meshddns_provision_faults", "gauge", "Faults for which the provisioning file, or an entry of it, is not applied.")
	page.Figure(uint64(s.provisionFaults.Load()))
	for _, write := range s.figures {
		write(page)
	}
	daemon.WriteProcess(page)
	web.Private(w.Header(), daemon.ContentType)
	w.Write(out.Bytes())
}

// contract is the HTTP contract as OpenAPI 3.1, for programs.
func (s *server) contract(w http.ResponseWriter, r *http.Request) {
	web.Private(w.Header(), web.MediaType)
	text := docs.OpenAPI()
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	w.Write(text)
}
