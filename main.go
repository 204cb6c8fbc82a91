// Start, standby, wiring, signals and end of the program; -check.

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
// SIGHUP reads the token file, the provisioning file and the built-in zones again. If a file is wrong,
// the program logs the mistake and keeps its state. It also starts with a wrong provisioning file.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/mattn/go-sqlite3"

	"meshddns/internal/acme"
	"meshddns/internal/builtin"
	"meshddns/internal/check"
	"meshddns/internal/daemon"
	"meshddns/internal/hostaddr"
	"meshddns/internal/lease"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/nameserver"
	"meshddns/internal/notify"
	"meshddns/internal/page"
	"meshddns/internal/provision"
	"meshddns/internal/reconcile"
	"meshddns/internal/secondary"
	"meshddns/internal/settings"
	"meshddns/internal/sqlite"
	"meshddns/internal/systemd"
	"meshddns/internal/term"
	"meshddns/internal/web"
)

func main() {
	signal.Ignore(syscall.SIGPIPE) // else a line to standard error ends the program when its reader has gone
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	hangUps := make(chan os.Signal, 1) // a SIGHUP that arrives while the program obeys an earlier one waits here
	signal.Notify(hangUps, syscall.SIGHUP)
	p := process{args: os.Args[1:], environ: os.Environ(), hangUps: hangUps, stdout: os.Stdout, stderr: os.Stderr}
	err := run(ctx, p)
	stop()
	if err != nil {
		p.print(err)
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

// print writes an error to standard error, each line of it with the program's name.
func (p process) print(err error) {
	queue := daemon.NewLogQueue(p.stderr, p.format("text"))
	defer queue.Close()
	output := io.Writer(queue)
	if systemd.IsJournal(p.getenv, p.stderr) {
		output = systemd.Prioritized(output, slog.LevelError)
	}
	text := err.Error()
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		text += ": stop the other program there, or choose another address"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		text += ": choose an address that this host has"
	case errors.Is(err, syscall.EACCES) && strings.Contains(text, "bind:"):
		text += ": a port below 1024 needs CAP_NET_BIND_SERVICE, or a socket of systemd"
	}
	for line := range strings.Lines(text) {
		fmt.Fprintln(output, "meshddns:", strings.TrimSuffix(line, "\n"))
	}
}

// newLog returns a log in a format, and the queue of its lines, which the caller closes.
func (p process) newLog(name string) (*slog.Logger, *daemon.LogQueue) {
	queue := daemon.NewLogQueue(p.stderr, p.format(name))
	return slog.New(p.format(name)(queue)), queue
}

// format returns a function that makes handlers of a format.
func (p process) format(name string) func(io.Writer) slog.Handler {
	return systemd.LogFormat(systemd.IsJournal(p.getenv, p.stderr), name == "json", printable)
}

// printable makes a text or an error of a line, such as a name that a provider has, one line of printable characters. A
// stack keeps its lines.
func printable(_ []string, a slog.Attr) slog.Attr {
	text, ok := a.Value.Any().(string)
	if err, isError := a.Value.Any().(error); isError {
		text, ok = err.Error(), true
	}
	if ok && a.Key != "stack" {
		a.Value = slog.StringValue(msg.Printable(text))
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
	log, lines := p.newLog(c.LogFormat)
	defer lines.Close()
	for _, name := range c.Unknown {
		log.Warn("an unknown variable has no effect", "variable", name)
	}
	manager, err := systemd.Open(p.getenv, log)
	if err != nil {
		return err
	}
	defer manager.Close()
	taken := manager.Sockets
	for _, origin := range c.TakeSockets(taken.HTTP, taken.Node, taken.DNSTCP, taken.DNSUDP) {
		log.Warn("a setting has no effect beside the service manager's sockets", "setting", origin)
	}
	err = runWith(ctx, c, manager, p.hangUps, log, lines)
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		log.Info("stopped while it started", "error", err)
		return nil
	}
	if err != nil {
		manager.Status("failed: " + err.Error()) // the caller prints the error
		return err
	}
	return nil
}

// runWith is run with the settings read and the log open.
func runWith(ctx context.Context, c settings.Settings, manager *systemd.Manager, hangUps <-chan os.Signal, log *slog.Logger, lines *daemon.LogQueue) (err error) {
	t, begun, err := standby(ctx, &c, manager, hangUps, log)
	defer begun()
	if err != nil || ctx.Err() != nil {
		return err
	}
	err = t.Run(ctx, func(ctx context.Context) error { return runTerm(ctx, c, manager, t, begun, hangUps, log, lines) })
	if t.Over() {
		log.Info("the term is over, and the program ends", "term", t.Number, "error", err)
		return nil
	}
	return err
}

// runTerm opens the database and serves until ctx ends. A nil Term has no end. It calls begun once the program is made.
func runTerm(ctx context.Context, c settings.Settings, manager *systemd.Manager, t *term.Term, begun func(), hangUps <-chan os.Signal, log *slog.Logger, lines *daemon.LogQueue) (err error) {
	p, err := newProgram(ctx, c, manager.Sockets, t, log, lines)
	if err != nil {
		return err
	}
	begun()
	defer func() { err = errors.Join(err, p.store.Close()) }()
	if c.Provision != "" {
		if err := p.files.Apply(ctx); err != nil {
			provision.LogLines(log, slog.LevelError, "the provisioning file is not applied: what was stays", err)
		}
	}
	for _, origin := range c.Unused(p.front.Addrs(), p.dns.On(), p.nodes.Addrs()) {
		log.Warn("a setting has no effect", "setting", origin)
	}
	if open := web.InClear(slices.Concat(p.front.Addrs(), p.nodes.Addrs())); len(open) > 0 {
		log.Warn(inClear, "listen", strings.Join(open, ","))
	}
	listen, nodes := strings.Join(p.front.Addrs(), ","), strings.Join(p.nodes.Addrs(), ",")
	serves := "HTTP on " + listen
	if p.dns.On() {
		serves += ", DNS on " + p.dns.Addrs()
	}
	unit := systemd.Unit{Manager: manager, Serves: serves, Work: work(p.store), Log: log}
	log.Info("started", "version", p.api.version, "listen", listen, "dns", p.dns.Addrs(), "nodes", nodes, "db", c.DB)
	// A request in flight may ask the DNS server, as POST /test does.
	return daemon.Serve(ctx, log, daemon.List{unit.Begin, p.serveAPI, p.serveNodes}, daemon.List{p.dns.Serve}, append(p.tasks(), unit.Watch, func(ctx context.Context) error {
		steps := reloadSteps(c, p.files, p.dns, log)
		return daemon.OnHangUp(ctx, hangUps, func() { unit.Reload(ctx, func() { reload(ctx, steps, log) }) }, p.files.Tries, p.files.Again)
	}))
}

// termNone is the -term that takes the term out of the database.
const termNone = "none"

// standby answers 503 and REFUSED on the program's sockets until the file of -term gives the program a term. Then the sockets are in
// manager. Until begun is called, the watchdog is pinged. Without a file it returns nil at once.
func standby(ctx context.Context, c *settings.Settings, manager *systemd.Manager, hangUps <-chan os.Signal, log *slog.Logger) (t *term.Term, begun func(), err error) {
	pings, begun := context.WithCancel(ctx)
	if c.Term == "" || c.Term == termNone {
		return nil, begun, nil
	}
	if err := bindAll(c, &manager.Sockets); err != nil {
		return nil, begun, err
	}
	held, err := manager.Sockets.Duplicate()
	if err != nil {
		return nil, begun, err
	}
	s := &server{log: log, adapter: web.Adapter{Log: log, Faults: web.NewRefusalLines(log)}}
	refuse := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.adapter.Refuse(w, r, web.Fail(msg.Standby)) })
	front, err := c.ListenAPI(held.HTTP, time.Second, log)
	nodes, unbound := c.ListenNodes(held.Node, time.Second, log)
	names, unheard := builtin.Refusing(c.DNS, held.DNSTCP, held.DNSUDP, log)
	if err := errors.Join(err, unbound, unheard); err != nil {
		return nil, begun, err
	}
	if err := c.CheckTLS(front.Addrs(), nodes.Addrs()); err != nil {
		return nil, begun, err
	}
	unit := systemd.Unit{Manager: manager, Serves: "standby", Work: func(context.Context) (string, error) { return "no term in " + c.Term, nil }, Log: log}
	unit.Ready(ctx)
	go unit.Watch(pings)
	log.Info("standby", "listen", strings.Join(front.Addrs(), ","), "nodes", strings.Join(nodes.Addrs(), ","), "term", c.Term)
	waiting, cancel := context.WithCancel(ctx)
	defer cancel()
	files := *c
	files.Provision = "" // it is applied in a term
	steps := reloadSteps(files, nil, &builtin.Server{}, log)
	err = daemon.Serve(waiting, log, daemon.List{
		func(ctx context.Context) error { return front.Serve(ctx, guarded(*c, s, refuse)) },
		func(ctx context.Context) error {
			return nodes.Serve(ctx, web.Handlers{TCP: web.Speaking(c.Language, refuse)})
		},
		names.Serve,
		func(ctx context.Context) error { return c.Certificate.Watch(ctx, log, nil) },
		func(ctx context.Context) error {
			return daemon.OnHangUp(ctx, hangUps, func() { unit.Reload(ctx, func() { reload(ctx, steps, log) }) }, func() int { return 0 }, nil)
		},
		func(ctx context.Context) (err error) {
			defer cancel()
			t, err = term.Await(ctx, c.Term, log)
			return err
		},
	})
	return t, begun, err
}

// bindAll binds the addresses of the settings, and adds their sockets to those of the service manager.
func bindAll(c *settings.Settings, s *systemd.Sockets) error {
	http, node, tcp, udp, err := c.Bind()
	s.HTTP, s.Node = append(s.HTTP, http...), append(s.Node, node...)
	s.DNSTCP, s.DNSUDP = append(s.DNSTCP, tcp...), append(s.DNSUDP, udp...)
	if err != nil {
		return errors.Join(err, s.Close())
	}
	c.TakeSockets(s.HTTP, s.Node, s.DNSTCP, s.DNSUDP)
	return nil
}

// program is the whole program. newProgram makes it from the bottom up: each part gets all that it needs from its
// constructor. The way back up is the notice of each commit (sqlite.Database.Subscribe).
type program struct {
	settings    settings.Settings
	log         *slog.Logger
	store       *store
	addresses   *hostaddr.Book
	dns         *builtin.Server
	secondaries *secondary.Notifier
	checks      *check.Watch
	leases      *lease.Table
	clients     clients
	engine      *reconcile.Engine
	nodes       *web.Server
	nodeAPI     *lease.Nodes
	front       *web.Server
	api         *server
	files       *provision.Files
}

// newProgram binds the sockets and opens the database. It serves nothing yet.
func newProgram(ctx context.Context, c settings.Settings, sockets systemd.Sockets, t *term.Term, log *slog.Logger, lines *daemon.LogQueue) (_ *program, err error) {
	p := &program{settings: c, log: log}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.close())
		}
	}()
	if err = p.bind(&c, sockets); err != nil { // before the database, which a start that fails must not leave
		return nil, errors.Join(sqlite.InUse(c.DB), err)
	}
	sealed := schema
	synced, durable := term.Durable(c.Replica, c.DB, t)
	fence := web.Fence{Over: t.Over, Context: t.Context, Durable: durable}
	sealed.Keys, sealed.Over, sealed.Term = c.SealKeys, t.Over, sqlite.Term{None: c.Term == termNone}
	if t != nil {
		fence.Term, sealed.Term.Number, sealed.Term.After = t.Number, t.Number, t.After
	}
	db, owner, last, err := openDatabase(ctx, c.DB, sealed, log)
	if err != nil {
		return nil, err
	}
	p.addresses = hostaddr.NewBook(c.Addresses, last, log)
	hidden := builtin.Hidden(c.DNS, p.addresses.Reachable, log)
	known := knownAddresses(p.addresses, hidden)
	if p.store, err = newStore(ctx, db, owner, ownNames(c.DNS), known, log); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	c.DNS.Peers, c.DNS.Over = p.store.secondaries, t.Over
	if p.dns, err = builtin.Listen(ctx, c.DNS, p.store.zones, p.addresses.All, log); err != nil {
		return nil, err
	}
	p.secondaries = newNotifier(p.store, p.dns, log)
	p.checks = check.New(&check.Table{DB: db, Ledger: p.store.ledger, Events: p.store.events, Now: p.store.now}, &check.Control{Addresses: c.Controls, Gateways: hostaddr.Gateways}, p.addresses.Last, log)
	p.clients = clients{ledger: p.store.ledger, zones: p.store.zones, dnsAddress: p.dns.LocalAddr(), hidden: hidden}
	p.engine = newEngine(p.store, reconcile.Config{
		Database: p.store.ledger, Open: p.clients.open, Addresses: known, Ready: p.addresses.Ready(), Interval: c.SyncInterval,
		Warning: reconcile.Internet.Warning, Writes: nodeWrites(c.NodeWrites), Synced: synced, Log: log, Now: p.store.now,
	})
	if p.leases, err = newLeases(ctx, p.store, p.checks.Reachable, p.engine.WarnRefused, log); err != nil {
		return nil, err
	}
	p.nodeAPI = p.newNodes(fence)
	ops := operations{store: p.store, engine: p.engine, clients: p.clients, addresses: p.addresses, checks: p.checks, leases: p.leases, secondaries: p.secondaries, fence: fence, forms: entryForms, certificate: c.Certificate, provisioned: c.Provision != ""}
	p.api = newServer(ops, programVersion(), log, func(page *daemon.Page) { p.front.WriteMetrics(page, "meshddns_http") },
		c.Certificate.WriteMetrics, p.writeNodeMetrics, p.dns.WriteMetrics, p.secondaries.WriteMetrics, p.checks.WriteMetrics, lines.WriteMetrics)
	p.files = &provision.Files{
		Path: c.Provision, Credentials: credentialFolder(c), Log: log, Faults: &p.api.provisionFaults, Transact: p.api.ops.provision, Refused: p.api.ops.tellRefused,
	}
	return p, nil
}

// ownNames returns the names that the program answers itself, of the settings.
func ownNames(c nameserver.Config) mesh.Program {
	own := mesh.Program{Catalog: c.Catalog.Bare()}
	for _, host := range c.Hosts {
		own.Hosts = append(own.Hosts, host.Fold().Bare())
	}
	return own
}

// bind binds the sockets of the settings.
func (p *program) bind(c *settings.Settings, sockets systemd.Sockets) (err error) {
	if p.nodes, err = c.ListenNodes(sockets.Node, shutdownTime, p.log); err != nil {
		return err
	}
	if p.front, err = c.ListenAPI(sockets.HTTP, shutdownTime, p.log); err != nil {
		return err
	}
	return cmp.Or(c.CheckTLS(p.front.Addrs(), p.nodes.Addrs()), c.DNS.Bind())
}

// newEngine makes an engine that every commit wakes.
func newEngine(s *store, c reconcile.Config) *reconcile.Engine {
	e := reconcile.New(c)
	s.db.Subscribe(func(sqlite.Notice) { e.Wake() })
	return e
}

// newLeases returns the leases of a store. reachable and refused are as in lease.Config.
func newLeases(ctx context.Context, s *store, reachable func(context.Context) (ok, known bool), refused func(context.Context, string) []msg.Phrase, log *slog.Logger) (*lease.Table, error) {
	leases := lease.NewTable(lease.Config{
		Database: s.db, Ledger: s.ledger, Events: s.events, Replays: s.replays, Reachable: reachable, Refused: refused, Log: log,
		Now: func() time.Time { return s.now() }, NewID: func() (string, error) { return s.newID() },
	})
	s.db.Subscribe(leases.Committed)
	if err := leases.Load(ctx); err != nil {
		return nil, fmt.Errorf("read the leases: %w", err)
	}
	return leases, nil
}

// close closes what newProgram has opened.
func (p *program) close() (err error) {
	if p.front != nil {
		err = p.front.Close()
	}
	if p.nodes != nil {
		err = errors.Join(err, p.nodes.Close())
	}
	if p.dns != nil {
		p.dns.Close()
	}
	if p.store != nil {
		err = errors.Join(err, p.store.Close())
	}
	return err
}

// tasks are what runs beside the servers.
func (p *program) tasks() daemon.List {
	return daemon.List{
		p.dns.Keep,
		p.store.db.Checkpoint,
		p.store.db.RemoveKept,
		func(ctx context.Context) error { p.store.db.Verify(ctx); return nil },
		p.store.events.Keep,
		p.api.sender.Run,
		p.secondaries.Run,
		p.leases.Run,
		p.engine.Run,
		p.checks.Run,
		p.api.status.Record,
		func(ctx context.Context) error {
			return p.settings.Certificate.Watch(ctx, p.log, p.store.events.NoteExpiring)
		},
		func(ctx context.Context) error {
			return p.addresses.Watch(ctx, p.settings.SyncInterval, p.store.SaveAddresses)
		},
		func(ctx context.Context) error {
			select {
			case <-p.addresses.Ready():
				p.clients.hidden() // which is logged
			case <-ctx.Done():
			}
			return nil
		},
	}
}

// shown is what the status pages show of the database and the engine.
func (o *operations) shown() page.Source {
	store, engine := o.store, o.engine
	version, _, _ := sqlite3.Version()
	return page.Source{
		Reader: store.db.Reader, Tx: store.db.Tx, Now: func() time.Time { return store.now() }, Events: store.events,
		Health: store.db.Health, Totals: store.ledger.Totals, Names: store.ledger.State, Places: store.ledger.PlacesOf, Usage: store.Usage, Usages: o.search,
		Amiss: store.ledger.Amiss, Endpoints: o.checks.Endpoints, Leases: o.leases.Page, Held: o.leases.Held,
		Secondaries: o.secondaries.States, Targets: store.targets.Unwell, Leftovers: store.ledger.Leftovers, Zones: store.ledger.ServiceZones,
		Configuration: o.configured, Certificate: o.certificate.Ends,
		Hidden: func(ctx context.Context) (bool, error) {
			if !engine.Addresses().Hidden {
				return false, nil
			}
			first, err := store.zones.BuiltinZonesAfter(ctx, "", 1)
			return len(first) > 0, err
		},
		Zone: engine.Zone, DownZones: engine.DownZones, WritesLeft: engine.WritesLeft, Addresses: engine.Addresses, SQLite: version, Schema: schema.Version(),
	}
}

// step is a part of a reload.
type step struct {
	what string // "read the token file again"
	do   func(context.Context) error
}

// reloadSteps returns the steps of a reload in their order.
func reloadSteps(c settings.Settings, files *provision.Files, dns *builtin.Server, log *slog.Logger) (steps []step) {
	if c.Tokens != nil {
		steps = append(steps, step{"read the token file again", func(context.Context) error { return c.Tokens.Reload() }})
	}
	if c.Certificate != nil {
		steps = append(steps, step{"read the certificate again", func(context.Context) error { return c.Certificate.Reload(log) }})
	}
	if c.Provision != "" {
		steps = append(steps, step{"apply the provisioning file again", files.Apply})
	}
	if dns.On() {
		steps = append(steps, step{"read the zones again", func(context.Context) error { dns.Reload(); return nil }})
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

// serveAPI answers requests until ctx ends.
func (p *program) serveAPI(ctx context.Context) error {
	return p.front.Serve(ctx, guarded(p.settings, p.api, p.api.routes()))
}

// guarded puts the guards of the API before its routes.
func guarded(c settings.Settings, s *server, routes http.Handler) web.Handlers {
	guards := web.GuardConfig{Tokens: c.Tokens, AllowHosts: c.AllowHosts, Deny: s.deny, Log: s.log}
	return web.Handlers{
		TCP:  web.Speaking(c.Language, s.adapter.Safe(web.GuardTCP(guards, routes))),
		Unix: web.Speaking(c.Language, s.adapter.Safe(web.GuardSite(guards, routes))),
	}
}

// newNodes makes the API of the nodes.
func (p *program) newNodes(fence web.Fence) *lease.Nodes {
	fence.Durable = nil // a renewal never waits for it
	return lease.NewNodes(lease.ListenerConfig{
		Leases: p.leases, Proxies: p.settings.Proxies, Listed: p.store.ledger.Listed, Broken: broken, Fence: fence, Log: p.log,
		Doors: acme.Calls(acme.Config{Leases: p.leases, Expect: p.engine.Expect, Taken: p.secondaries.Taken}),
	})
}

// serveNodes answers requests of nodes until ctx ends.
func (p *program) serveNodes(ctx context.Context) error {
	return p.nodes.Serve(ctx, web.Handlers{TCP: web.Speaking(p.settings.Language, p.nodeAPI.Handler())})
}

// writeNodeMetrics writes the figures of the nodes' listener, none without sockets.
func (p *program) writeNodeMetrics(page *daemon.Page) {
	if len(p.nodes.Addrs()) > 0 {
		p.nodeAPI.WriteMetrics(page)
		p.nodes.WriteMetrics(page, "meshddns_node")
	}
}

// credentialFolder returns the folder with the secrets of the provisioning file.
func credentialFolder(c settings.Settings) provision.CredentialFolder {
	return provision.CredentialFolder{Folder: c.Credentials, Optional: c.Check}
}

// inClear is the warning about listeners.
const inClear = "clients send tokens in clear to listeners beyond loopback without TLS: want tls:host:port, or a proxy on this host"

// entryForms check the entries of provisioning files.
var entryForms = provision.Forms{
	provision.Notifications: notify.Check,
	provision.Secondaries:   secondary.Check,
	provision.Leases:        lease.Check,
}

// tellMistakes writes the warnings about the settings and their files, and then every mistake, a line for each. It returns
// an error if there are mistakes; with -check=strict a warning is one, too.
func tellMistakes(c settings.Settings, fault error, out io.Writer) error {
	var lines []string
	warn := func(format string, args ...any) { lines = append(lines, "warning: "+fmt.Sprintf(format, args...)) }
	for _, name := range c.Unknown {
		warn("%s: unknown setting, which has no effect", name)
	}
	for _, origin := range c.Unused(c.Listen, len(c.DNS.Addresses) > 0, c.NodeListen) {
		warn("%s: has no effect without a listener of its kind, or a socket of the service manager", origin)
	}
	if open := web.InClear(slices.Concat(c.Listen, c.NodeListen)); len(open) > 0 {
		warn("%s: %s", strings.Join(open, ", "), inClear)
	}
	if leaf, soon := c.Certificate.Ends(); soon {
		warn("-tls-cert: the certificate ends soon or has ended: %v", leaf.NotAfter)
	}
	for _, err := range c.Certificate.Doubts() {
		warn("-tls-cert: %s: %v", web.Doubtful, err)
	}
	fault = errors.Join(fault, c.Refused())
	fine := "ok"
	if c.Provision != "" {
		document := provision.Read(c.Provision, credentialFolder(c))
		fault = errors.Join(fault, document.Check(entryForms))
		for _, name := range document.Hidden {
			warn("%s: is passed over, because its name begins with a dot", name)
		}
		for _, w := range document.Warnings(clients{hidden: func() bool { return false }}.warners(hostaddr.NewBook(c.Addresses, mesh.Addresses{}, nil).Last())) {
			warn("%s", w)
		}
		if document.Unread > 0 {
			fine = fmt.Sprintf("ok, but for %d credentials, which are not looked at: $CREDENTIALS_DIRECTORY is not set", document.Unread)
		}
	}
	warnings := len(lines)
	if fault != nil {
		fine = fault.Error()
	}
	if fault != nil || !c.Strict || warnings == 0 {
		lines = append(lines, fine)
	}
	if _, err := fmt.Fprintln(out, strings.Join(lines, "\n")); err != nil {
		return err
	}
	if fault != nil {
		return fmt.Errorf("-check: mistakes: %d", 1+strings.Count(fine, "\n"))
	}
	if c.Strict && warnings > 0 {
		return fmt.Errorf("-check=strict: warnings: %d", warnings)
	}
	return nil
}
