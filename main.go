// Start, wiring, signals and end of the program; -check; the provision file, which the operations
// of requests apply.

// Meshddns keeps the DNS TXT records by which the nodes of a mesh network find each other. It
// reserves names, publishes their values at a DNS provider or answers for them itself, and keeps
// these values correct.
//
// Usage:
//
//	meshddns [flags]
//
// meshddns -help lists the flags. Each can also be set in the environment.
//
// SIGTERM and SIGINT end the program after it has answered all requests and finished its work.
// SIGHUP reads the token file, the provision file and the built-in zones again. If a file is wrong,
// the program logs the mistake and keeps its state. It also starts with a wrong provision file.
package main

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"meshddns/internal/envelope"
	"meshddns/internal/guard"
	"meshddns/internal/hostaddr"
	"meshddns/internal/httpserver"
	"meshddns/internal/mesh"
	"meshddns/internal/metrics"
	"meshddns/internal/provision"
	"meshddns/internal/reconcile"
	"meshddns/internal/settings"
	"meshddns/internal/sqlite"
	"meshddns/internal/systemd"
	"meshddns/internal/tasks"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	hangUps := make(chan os.Signal, 1) // one that comes while another is obeyed is obeyed after it
	signal.Notify(hangUps, syscall.SIGHUP)
	err := run(ctx, process{args: os.Args[1:], environ: os.Environ(), hangUps: hangUps, stdout: os.Stdout, stderr: os.Stderr})
	stop()
	if err != nil {
		output := io.Writer(os.Stderr)
		if systemd.IsJournal(os.Getenv, os.Stderr) {
			output = systemd.Prioritized(output, slog.LevelError)
		}
		for line := range strings.Lines(err.Error()) {
			fmt.Fprintln(output, "meshddns:", strings.TrimSuffix(line, "\n"))
		}
		os.Exit(1)
	}
}

// process is the environment of the program.
type process struct {
	args, environ  []string
	hangUps        <-chan os.Signal
	stdout, stderr io.Writer
}

func (p process) getenv(name string) string { return settings.Lookup(p.environ, name) }

// newLog returns a log in a format. In the journal each line has its priority, and lines of text
// have no time, because the journal adds it.
func (p process) newLog(name string) *slog.Logger {
	journal := systemd.IsJournal(p.getenv, p.stderr)
	format := func(w io.Writer) slog.Handler {
		switch {
		case name == "json":
			return slog.NewJSONHandler(w, nil)
		case journal:
			return slog.NewTextHandler(w, &slog.HandlerOptions{ReplaceAttr: withoutTime})
		}
		return slog.NewTextHandler(w, nil)
	}
	if journal {
		return slog.New(systemd.NewHandler(p.stderr, format))
	}
	return slog.New(format(p.stderr))
}

// withoutTime deletes the time of a line.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		return slog.Attr{}
	}
	return a
}

// run is the program. It returns after ctx has ended and everything is closed.
func run(ctx context.Context, p process) (err error) {
	c, err := settings.Read(p.args, p.environ)
	switch {
	case c.Help:
		settings.WriteHelp(p.stdout)
		return nil
	case c.Version:
		_, err := fmt.Fprintln(p.stdout, "meshddns", programVersion())
		return err
	case c.Check:
		return tellMistakes(c, err, p.stdout)
	case err != nil:
		return err
	}
	log := p.newLog(c.LogFormat)
	manager, err := systemd.Open(p.getenv)
	if err != nil {
		return err
	}
	defer manager.Close()
	for _, origin := range c.TakeSockets(manager.Sockets) {
		log.Warn("a setting has no effect beside the service manager's sockets", "setting", origin)
	}
	if err := runWith(ctx, c, manager, p.hangUps, log); err != nil {
		manager.Status("failed: " + err.Error()) // the caller prints the error
		return err
	}
	return nil
}

// runWith is run with the settings read and the log open.
func runWith(ctx context.Context, c settings.Settings, manager *systemd.Manager, hangUps <-chan os.Signal, log *slog.Logger) (err error) {
	store, err := openStore(ctx, c.DB, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	addresses := hostaddr.NewBook(c.IPv4, c.IPv6, store.addresses, store.SaveAddresses, log)
	dns, err := listenDNS(c.DNS, store, addresses, log)
	if err != nil {
		return err
	}
	clients := clients{ledger: store.ledger, zones: store.zones, dnsAddress: dns.address(), reachable: reachability(len(c.DNS.Hosts) > 0, addresses, log)}
	engine := store.newEngine(engineConfig(store, clients, addresses, c.SyncInterval, log))
	api := newServer(operations{store: store, engine: engine, clients: clients}, programVersion(), log)
	files := &provision.Files{Path: c.Provision, Credentials: credentialFolder(c), Log: log, Faults: &api.provisionFaults, Transact: api.ops.provision}
	if c.Provision != "" {
		if err := files.Apply(ctx, true); err != nil {
			provision.LogLines(log, slog.LevelError, "the provision file is not applied: what was stays", err)
		}
	}
	front, err := listenHTTP(c, manager.Sockets.HTTP, api)
	if err != nil {
		dns.close()
		return err
	}
	api.dnsMetrics = func(page *metrics.Page) { front.WriteMetrics(page); dns.metrics(page) }
	for _, origin := range c.Unused(front.TCP(), dns.nameserver != nil) {
		log.Warn("a setting has no effect", "setting", origin)
	}
	steps := reloadSteps(c, files, dns)
	listen := strings.Join(front.Addrs(), ",")
	unit := systemd.Unit{Manager: manager, Serves: serves(listen, dns.listening()), Work: work(store), Log: log}
	log.Info("started", "version", api.version, "listen", listen, "dns", dns.listening(), "db", c.DB)
	return tasks.Serve(ctx, log, tasks.List{unit.Begin, front.Serve, dns.serve}, tasks.List{
		unit.Watch,
		dns.keep,
		store.db.Checkpoint,
		func(ctx context.Context) error { store.db.Verify(ctx); return nil },
		engine.Run,
		func(ctx context.Context) error { return addresses.Watch(ctx, c.SyncInterval) },
		func(ctx context.Context) error {
			select {
			case <-addresses.Ready():
				clients.hidden() // which is logged
			case <-ctx.Done():
			}
			return nil
		},
		func(ctx context.Context) error {
			return onHangUp(ctx, hangUps, func() { unit.Reload(ctx, func() { reload(ctx, steps, log) }) }, files.Due, files.Again)
		},
	})
}

// serves names the addresses on which the program answers.
func serves(http, dns string) string {
	if dns == "" {
		return "HTTP on " + http
	}
	return "HTTP on " + http + ", DNS on " + dns
}

// work describes the amount of work, and faults of the database, for the status in systemd.
func work(s *store) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		totals, err := s.Totals(ctx)
		if err != nil {
			return "", fmt.Errorf("read the database: %w", err)
		}
		text := fmt.Sprintf("services %d, prefixes %d, names published %d",
			totals["services"], totals["usages"], totals[string(reconcile.Published)])
		if err := s.db.Health(ctx); err != nil {
			text += "; " + failureOf(err).Error()
		}
		return text, nil
	}
}

// step is a part of a reload.
type step struct {
	what string // "read the token file again"
	do   func(context.Context) error
}

// reloadSteps returns the steps of a reload in their order.
func reloadSteps(c settings.Settings, files *provision.Files, dns builtinDNS) (steps []step) {
	if c.Tokens != nil {
		steps = append(steps, step{"read the token file again", func(context.Context) error { return c.Tokens.Reload() }})
	}
	if c.Provision != "" {
		steps = append(steps, step{"apply the provision file again", func(ctx context.Context) error {
			return files.Apply(ctx, false)
		}})
	}
	if dns.cache != nil {
		steps = append(steps, step{"read the zones again", func(context.Context) error { dns.cache.Reload(); return nil }})
	}
	return steps
}

// reload runs all steps in order. A failed step has changed nothing, and the next ones still run.
func reload(ctx context.Context, steps []step, log *slog.Logger) {
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			provision.LogLines(log, slog.LevelError, "reload: what was stays", err, "step", s.what)
			continue
		}
		log.Info("reload", "step", s.what)
	}
	if len(steps) == 0 {
		log.Info("reload: there is nothing to read again")
	}
}

// onHangUp calls obey at each hang-up until ctx ends. It calls again when the time of due has
// passed, unless that is 0.
func onHangUp(ctx context.Context, hangUps <-chan os.Signal, obey func(), due func() time.Duration, again func(context.Context)) error {
	for {
		var alarm <-chan time.Time
		if pause := due(); pause > 0 {
			alarm = time.After(pause)
		}
		select {
		case <-hangUps:
			obey()
		case <-alarm:
			again(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// release is the version, set by deploy/build with -ldflags -X; else the go command knows it.
var release string

func programVersion() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

// listenHTTP listens on all addresses of the API or on none. The guards stand before the routes.
func listenHTTP(c settings.Settings, inherited []net.Listener, api *server) (*httpserver.Server, error) {
	guards := guard.Config{Tokens: c.Tokens, AllowHosts: c.AllowHosts, Deny: api.deny, Log: api.log}
	for _, l := range inherited {
		if err := httpserver.Guarded(l, c.Tokens != nil); err != nil {
			return nil, fmt.Errorf("the service manager's socket %s %w", l.Addr(), err)
		}
	}
	listeners, err := httpserver.Listen(httpserver.ListenConfig{List: c.Listen, Group: c.SocketGroup, Token: c.Tokens != nil})
	if err != nil {
		return nil, err
	}
	routes := api.routes()
	return httpserver.New(httpserver.Config{
		Listeners: listeners, Inherited: inherited,
		TCP:         envelope.Speaking(c.Language, api.adapter.Safe(guard.TCP(guards, routes))),
		Unix:        envelope.Speaking(c.Language, api.adapter.Safe(guard.Unix(guards, routes))),
		ConnContext: guard.ConnContext, ShutdownTime: shutdownTime, Log: api.log,
	}), nil
}

// credentialFolder returns the folder with the secrets of the provision file.
func credentialFolder(c settings.Settings) provision.CredentialFolder {
	return provision.CredentialFolder{Folder: c.Credentials, Optional: c.Check}
}

// tellMistakes writes every mistake of the settings and of their files, a line for each. It returns
// an error if there are any.
func tellMistakes(c settings.Settings, fault error, out io.Writer) error {
	var told []string
	if fault != nil {
		told = strings.Split(fault.Error(), "\n")
	}
	fine := "ok"
	if c.Provision != "" {
		document := provision.Read(c.Provision, credentialFolder(c))
		if err := document.Check(checks{}); err != nil {
			told = append(told, strings.Split(err.Error(), "\n")...)
		}
		if document.Unread > 0 {
			fine = fmt.Sprintf("ok, but for %d credentials, which are not looked at: $CREDENTIALS_DIRECTORY is not set",
				document.Unread)
		}
	}
	if len(told) == 0 {
		_, err := fmt.Fprintln(out, fine)
		return err
	}
	_, err := fmt.Fprintln(out, strings.Join(told, "\n"))
	return cmp.Or(err, fmt.Errorf("-check: mistakes: %d", len(told)))
}

// provision applies a document in one transaction, by the operations of requests.
func (o *operations) provision(ctx context.Context, document *provision.Document, start bool) (applied provision.Applied, err error) {
	var a *applier
	err = o.store.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		a = &applier{ops: o, start: start, seen: map[string]int{}}
		applied, err = document.Apply(ctx, a)
		return err
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

// checks implements provision.Checks.
type checks struct{}

func (checks) CheckOwner(owner string) error { return checkOwner(owner) }

func (checks) CheckConfiguration(body []byte) error {
	var b configurationBody
	return cmp.Or(envelope.Parse(body, &b), checkConfiguration(b.configuration()))
}

func (checks) CheckService(body []byte) error {
	var b serviceBody
	if err := envelope.Parse(body, &b); err != nil {
		return err
	}
	_, err := b.checked()
	return err
}

func (checks) CheckUsage(body []byte) error {
	var b usageBody
	if err := envelope.Parse(body, &b); err != nil {
		return err
	}
	want, err := b.wanted()
	if err != nil {
		return err
	}
	if _, fault := b.reservation().prefix(); fault != "" {
		return envelope.Fail(fault)
	}
	return badEndpoints(want.Network.V, b.TXTEndpoints)
}

// Blame returns the member that a refusal is about, and the reason.
func (checks) Blame(err error) (member, reason string, ok bool) {
	f := failureOf(err)
	member, reason = provision.Blamed(f.ID, f.Error())
	return member, reason, f.Cause == nil
}

// applier implements provision.Appliance by the operations of requests, in one transaction. It
// changes only entries that differ.
type applier struct {
	checks
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
	if err := envelope.Parse(body, &b); err != nil {
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

// SaveService stores a service if it differs.
func (a *applier) SaveService(ctx context.Context, body []byte) (provision.Change, error) {
	var b serviceBody
	if err := envelope.Parse(body, &b); err != nil {
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
		u, err := a.ops.reserve(ctx, b.reservation())
		if err == nil {
			a.warnings = append(a.warnings, inEnglish(usageWarnings(u))...)
			_, err = a.changeUsage(ctx, b, u)
		}
		return provision.Did("POST usages", u.ID, err)
	}
	c, err := a.changeUsage(ctx, b, same[number])
	if err == nil && same[number].Status == mesh.Releasing {
		return provision.Did("POST usages", same[number].ID, a.ops.store.KeepUsage(ctx, same[number]))
	}
	return c, err
}

func (a *applier) changeUsage(ctx context.Context, b usageBody, u mesh.Usage) (provision.Change, error) {
	endpoints, description := b.difference(u)
	if endpoints == nil && description == nil {
		return unchanged, nil
	}
	return provision.Did("PATCH usages/{id}", u.ID, a.ops.saveUsage(ctx, u, endpoints, description))
}

// sameUsages decodes a usage of a document, and returns the stored usages that match it.
func (a *applier) sameUsages(ctx context.Context, body []byte) (b usageBody, want mesh.Usage, same []mesh.Usage, err error) {
	if err = envelope.Parse(body, &b); err != nil {
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
