// The program from its start to its end; what it does when it is told to read its files
// again, or to check them; the provision file, applied by the operations of requests.

// Meshddns keeps the DNS TXT records by which the nodes of a mesh network
// find each other. It reserves names, publishes them at a DNS provider or
// answers for them itself, and keeps what is published true.
//
// Usage:
//
//	meshddns [flags]
//
// Each flag can be given in the environment too: -dns-listen is
// MESHDDNS_DNS_LISTEN, and an unknown MESHDDNS_ name is refused. A flag wins over
// the environment. What is repeatable can also be given separated by commas.
//
//	-listen address        HTTP API: host:port, or unix:/path (mode 0660); repeatable; default 127.0.0.1:8053
//	-socket-group group    of the unix sockets, by name or number; default: the program's own
//	-db file               the database, default meshddns.db
//	-dns-listen address    answer DNS queries here, UDP and TCP; repeatable; default: not at all
//	-dns-host name         own name in NS and SOA records, then further ones for NS; repeatable; default ns.<zone>
//	-dns-nsid text         tells servers of one zone apart: answered to who asks for it (RFC 5001); default: not
//	-dns-rate-limit n      answers a second over UDP to one network (/24, /56) without a cookie, 0: no limit; default 1000
//	-ipv4, -ipv6 source    this host's public addresses: auto, interface:NAME, url:URL, none, or an address
//	-allow-host name       Host name to accept beside addresses and the loopback names; repeatable
//	-token-file file       one or two tokens, a line each; required on an address that is not loopback
//	-sync-interval time    between synchronisations in the modes auto and upsert-only, default 5m
//	-language language     zh or en: of the texts for requests without Accept-Language, default zh
//	-log-format format     text or json
//	-provision file        configuration, services and usages, applied at the start; or a folder: its *.json in the order of their names
//	-check                 tell every mistake of the flags and of the provision file, and exit: nothing is opened or changed
//	-version, -help        print the version, or the flags, and exit
//
// SIGTERM and SIGINT end the program: what has come is answered, and what has begun
// is finished first. SIGHUP reads the token file and the provision file again; a fault
// in one is logged, and what was stays. A fault in the provision file does not keep the
// program from starting.
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
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/dnsname"
	"meshddns/internal/envelope"
	"meshddns/internal/guard"
	"meshddns/internal/hostaddr"
	"meshddns/internal/httpserver"
	"meshddns/internal/metrics"
	"meshddns/internal/msg"
	"meshddns/internal/probe"
	"meshddns/internal/provider"
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

// process is what the program is given by who starts it.
type process struct {
	args, environ  []string
	hangUps        <-chan os.Signal
	stdout, stderr io.Writer
}

func (p process) getenv(name string) string { return settings.Lookup(p.environ, name) }

// newLog writes in a format; to the journal each line with its priority, and text without the time,
// which the journal has already.
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

// withoutTime leaves out the time of a line.
func withoutTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		return slog.Attr{}
	}
	return a
}

// run is the program. It returns when ctx has ended and all is closed.
func run(ctx context.Context, p process) (err error) {
	c, err := settings.Read(p.args, p.environ)
	switch {
	case c.Help:
		settings.Usage(p.stdout)
		return nil
	case c.Version:
		_, err := fmt.Fprintln(p.stdout, "meshddns", version())
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
		manager.Status("failed: " + err.Error()) // the caller tells the error itself
		return err
	}
	return nil
}

// runWith is the program once it knows what it is to do and where it logs.
func runWith(ctx context.Context, c settings.Settings, manager *systemd.Service, hangUps <-chan os.Signal, log *slog.Logger) (err error) {
	store, err := openStore(ctx, c.DB, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	readerOpened := store.openReader(ctx)
	addresses := hostaddr.NewBook(c.IPv4, c.IPv6, store.addresses, store.SaveAddresses, log)
	dns, err := listenDNS(c, store, addresses, log)
	if err != nil {
		return err
	}
	api := &server{store: store, log: log, version: version(), public: probe.Internet}
	api.clients = clients{ledger: store.ledger, zones: store.zones, dnsAddress: dns.address(), reachable: reachability(len(c.DNS.Hosts) > 0, addresses, log)}
	api.engine = store.newEngine(engineConfig(store, api.clients, addresses, c.SyncInterval, log))
	if c.Provision != "" {
		if err := api.provision(ctx, c.Provision, credentials(c), true); err != nil {
			logLines(log, slog.LevelError, "the provision file is not applied: what was stays", err)
		}
	}
	front, err := listenHTTP(c, manager.Sockets.HTTP, api)
	if err != nil {
		dns.close()
		return err
	}
	if err := readerOpened(); err != nil {
		dns.close()
		return errors.Join(fmt.Errorf("read %s: %w", c.DB, err), front.Close())
	}
	api.dnsMetrics = func(page *metrics.Page) { front.WriteMetrics(page); dns.metrics(page) }
	for _, origin := range c.Unused(front.TCP(), dns.server != nil) {
		log.Warn("a setting has no effect", "setting", origin)
	}
	steps := reloadSteps(c, api)
	again := repeated{api.provisionPause, func(ctx context.Context) { api.provisionAgain(ctx, c.Provision) }}
	listen := strings.Join(front.Addrs(), ",")
	unit := systemd.Unit{Service: manager, Serves: serves(listen, dns.listening()), Work: work(store), Log: log}
	log.Info("started", "version", api.version, "listen", listen, "dns", dns.listening(), "db", c.DB)
	return tasks.Serve(ctx, log, tasks.List{unit.Begin, front.Serve, dns.serve}, tasks.List{
		unit.Watch,
		dns.keep,
		func(ctx context.Context) error { return store.keeper.Run(ctx, log) },
		func(ctx context.Context) error { store.LookThrough(ctx, log); return nil },
		api.engine.Run,
		func(ctx context.Context) error { return addresses.Watch(ctx, c.SyncInterval) },
		func(ctx context.Context) error {
			select {
			case <-addresses.Ready():
				api.clients.hidden() // which is logged
			case <-ctx.Done():
			}
			return nil
		},
		func(ctx context.Context) error {
			return onHangUp(ctx, hangUps, func() { unit.Reload(ctx, func() { reload(ctx, steps, log) }) }, again)
		},
	})
}

// serves says where the program answers.
func serves(http, dns string) string {
	if dns == "" {
		return "HTTP on " + http
	}
	return "HTTP on " + http + ", DNS on " + dns
}

// work asks the database what the program has to do, and what is wrong with it.
func work(s *store) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		totals, err := s.Totals(ctx)
		if err != nil {
			return "", fmt.Errorf("read the database: %w", err)
		}
		text := fmt.Sprintf("services %d, prefixes %d, names published %d",
			totals["services"], totals["usages"], totals[string(reconcile.Published)])
		if err := s.Health(ctx); err != nil {
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

// reloadSteps are those of a reload, in their order.
func reloadSteps(c settings.Settings, api *server) (steps []step) {
	if c.Tokens != nil {
		steps = append(steps, step{"read the token file again", func(context.Context) error { return c.Tokens.Reload() }})
	}
	if c.Provision != "" {
		steps = append(steps, step{"apply the provision file again", func(ctx context.Context) error {
			return api.provision(ctx, c.Provision, credentials(c), false)
		}})
	}
	return steps
}

// reload does all steps in order. One that fails has changed nothing, and hinders no other.
func reload(ctx context.Context, steps []step, log *slog.Logger) {
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			logLines(log, slog.LevelError, "reload: what was stays", err, "step", s.what)
			continue
		}
		log.Info("reload", "step", s.what)
	}
	if len(steps) == 0 {
		log.Info("reload: there is nothing to read again")
	}
}

// repeated is done again after a time: after gives it, 0 for never.
type repeated struct {
	after func() time.Duration
	do    func(context.Context)
}

// onHangUp obeys each hang-up until ctx ends, and does again what is due meanwhile.
func onHangUp(ctx context.Context, hangUps <-chan os.Signal, obey func(), again repeated) error {
	for {
		var due <-chan time.Time
		if pause := again.after(); pause > 0 {
			due = time.After(pause)
		}
		select {
		case <-hangUps:
			obey()
		case <-due:
			again.do(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// release is the version that deploy/build gives by -ldflags -X; else the go command's is told.
var release string

func version() string {
	if release != "" {
		return release
	}
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

// shutdownTime is for the answers in flight: longer than a write that has
// begun and its clean-up.
const shutdownTime = 2*provider.WriteTime + 5*time.Second

// listenHTTP binds the API's addresses, all or none, and puts the guards before its routes.
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

// credentials is where the provision file's secrets are.
func credentials(c settings.Settings) provision.CredentialFolder {
	return provision.CredentialFolder{Folder: c.Credentials, Optional: c.Check}
}

// tellMistakes writes every mistake of the settings, and of the files that they name, a
// line each. There is an error when there are any.
func tellMistakes(c settings.Settings, fault error, out io.Writer) error {
	var told []string
	if fault != nil {
		told = strings.Split(fault.Error(), "\n")
	}
	fine := "ok"
	if c.Provision != "" {
		document := provision.Read(c.Provision, credentials(c))
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

// provisioned is what of the provision file is not applied. One goroutine at a time applies the
// file; any goroutine may read count.
type provisioned struct {
	count   atomic.Int64        // of all faults
	form    int                 // faults of the file as it was read last: nothing of it is applied
	failure string              // of the database; "" for none
	faults  provision.Mistakes  // of entries that the stored state does not allow
	waits   *provision.Document // is applied again; nil for none
	pause   time.Duration       // before that
}

// While a part of the provision file waits, it is tried again after provisionPause, and then after
// twice the time, up to provisionPauseMost.
const (
	provisionPause     = time.Second
	provisionPauseMost = time.Minute
)

// provision reads and applies the files at path, at the start before anything runs. Entries that the
// stored state does not allow are logged, and wait. It returns provision.Mistakes when the files
// are wrong by themselves, and the error of the database; then it has changed nothing.
func (s *server) provision(ctx context.Context, path string, credentials provision.CredentialFolder, start bool) error {
	err := s.applyDocument(ctx, path, provision.Read(path, credentials), start)
	mistakes, _ := errors.AsType[provision.Mistakes](err)
	s.provisioned.form = len(mistakes)
	s.provisioned.pause = provisionPause
	s.countProvisionFaults()
	return err
}

// provisionAgain applies what waits of the provision file.
func (s *server) provisionAgain(ctx context.Context, path string) {
	p := &s.provisioned
	failure, faults := p.failure, len(p.faults)
	err := s.applyDocument(ctx, path, p.waits, false)
	s.countProvisionFaults()
	if err != nil && err.Error() != failure {
		logLines(s.log, slog.LevelError, "the provision file is not applied", err)
	}
	if p.pause = min(2*p.pause, provisionPauseMost); len(p.faults) < faults {
		p.pause = provisionPause
	}
}

func (s *server) countProvisionFaults() {
	p := &s.provisioned
	n := p.form + len(p.faults)
	if p.failure != "" {
		n++
	}
	p.count.Store(int64(n))
}

// provisionPause gives the time until provisionAgain is due, 0 when nothing waits.
func (s *server) provisionPause() time.Duration {
	if s.provisioned.waits == nil {
		return 0
	}
	return s.provisioned.pause
}

// applyDocument applies a document in one transaction, and logs what came of it.
func (s *server) applyDocument(ctx context.Context, path string, document *provision.Document, start bool) error {
	p := &s.provisioned
	var applied provision.Applied
	var a *application
	err := s.store.tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		a = &application{api: s, start: start, seen: map[string]int{}}
		applied, err = document.Apply(ctx, a)
		return err
	})
	if _, ok := errors.AsType[provision.Mistakes](err); ok {
		return err // what waited of an earlier document waits on
	}
	again := document == p.waits
	if err != nil {
		if !again {
			p.faults = nil
		}
		p.waits, p.failure = document, err.Error()
		return err
	}
	if a.owner != "" {
		s.store.UseOwner(a.owner)
	}
	for _, c := range applied.Changes {
		s.log.LogAttrs(ctx, slog.LevelInfo, "change", slog.String("who", "provision"),
			slog.String("what", c.What), slog.String("id", c.ID),
			slog.Int("status", c.Status), slog.String("code", ""), slog.String("file", c.File))
	}
	for _, text := range answers.WarningTexts(a.warnings, msg.English) {
		s.log.Warn("what is stored cannot work", "from", path, "reason", text)
	}
	for _, id := range a.inUse {
		s.log.Info("a service is not in the document, and stays while it has usages", "id", id)
	}
	fresh := slices.DeleteFunc(slices.Clone(applied.Faults), func(m provision.Mistake) bool { return again && slices.Contains(p.faults, m) })
	logLines(s.log, slog.LevelWarn, "a part of the provision file is not applied", fresh)
	if !again || len(applied.Changes) > 0 || p.failure != "" {
		s.log.Info("provisioned", "from", path, "services", len(document.Services), "usages", len(document.Usages),
			"changes", len(applied.Changes), "faults", len(applied.Faults))
	}
	p.waits, p.faults, p.failure = applied.Waits, applied.Faults, ""
	return nil
}

// maxFaultLines bounds the lines that logLines writes.
const maxFaultLines = 100

// logLines logs each line of an error on its own.
func logLines(log *slog.Logger, level slog.Level, message string, err error, attributes ...any) {
	lines := slices.DeleteFunc(strings.Split(err.Error(), "\n"), func(line string) bool { return line == "" })
	for i, line := range lines {
		if i == maxFaultLines {
			log.Log(context.Background(), level, message, append(attributes, "more", len(lines)-i)...)
			return
		}
		log.Log(context.Background(), level, message, append(attributes, "error", line)...)
	}
}

// metrics writes the figure of the provision file.
func (p *provisioned) metrics(page *metrics.Page) {
	page.Family("meshddns_provision_faults", "gauge", "Faults for which the provision file, or an entry of it, is not applied.")
	page.Figure(uint64(p.count.Load()))
}

// checks are those of the operations that need no database.
type checks struct{}

func (checks) CheckOwner(owner string) error { return checkOwner(owner) }

func (checks) CheckConfiguration(body []byte) error {
	var b configurationBody
	return cmp.Or(envelope.Parse(body, &b), b.configuration().check())
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
	return badEndpoints(want.Network.V.String(), b.TXTEndpoints)
}

// Blame tells which member a refusal is about, and why it is refused.
func (checks) Blame(err error) (member, reason string, ok bool) {
	f := failureOf(err)
	member, reason = provision.Blamed(f)
	return member, reason, f.Cause == nil
}

// application applies a document in one transaction, by the operations of requests. It
// leaves alone what is as wanted.
type application struct {
	checks
	api   *server
	start bool           // nothing uses the owner yet
	owner string         // that was taken
	seen  map[string]int // usages of the document so far, by service, network and prefix
	inUse []string       // services that cannot be deleted yet

	warnings []answers.Warning // of what is stored and cannot work
}

var unchanged provision.Change

// SaveOwner takes an owner for a new database; another database adopts it.
func (a *application) SaveOwner(ctx context.Context, owner string) (provision.Change, error) {
	if err := a.CheckOwner(owner); err != nil || owner == a.api.store.ledger.Owner() {
		return unchanged, err
	}
	if a.start {
		taken, err := a.api.store.ledger.TakeOwner(ctx, owner)
		if err != nil || taken {
			a.owner = owner
			return provision.Change{What: "owner", ID: owner, Status: http.StatusOK}, err
		}
	}
	adopted, err := a.api.store.ledger.Adopted(ctx, a.api.store.reading(ctx), owner)
	if err != nil || adopted {
		return unchanged, err
	}
	return provision.Did("POST adopt", owner, a.api.store.ledger.Adopt(ctx, owner))
}

// SaveConfiguration stores a configuration that is another one.
func (a *application) SaveConfiguration(ctx context.Context, body []byte) (provision.Change, error) {
	var b configurationBody
	if err := envelope.Parse(body, &b); err != nil {
		return unchanged, err
	}
	c := b.configuration()
	stored, err := a.api.store.Configuration(ctx)
	if err == nil && c.sameAs(stored) || err != nil && !errors.Is(err, errNoConfiguration) {
		return unchanged, err
	}
	warnings, err := a.api.saveConfiguration(ctx, c, nil)
	a.warnings = append(a.warnings, warnings...)
	return provision.Did("PUT config", "", err)
}

// SaveService stores a service that is another one.
func (a *application) SaveService(ctx context.Context, body []byte) (provision.Change, error) {
	var b serviceBody
	if err := envelope.Parse(body, &b); err != nil {
		return unchanged, err
	}
	stored, err := a.api.store.Service(ctx, b.ID)
	if err == nil && b.service().sameAs(stored) || err != nil && !errors.Is(err, errNoService) {
		return unchanged, err
	}
	v, warnings, err := a.api.replaceService(ctx, b, nil)
	a.warnings = append(a.warnings, warnings...)
	return provision.Did("PUT services/{id}", v.ID, err)
}

// SaveUsage reserves a usage that is not there, and changes what differs in one that is.
func (a *application) SaveUsage(ctx context.Context, body []byte) (provision.Change, error) {
	b, want, same, err := a.api.sameUsages(ctx, body)
	if err != nil {
		return unchanged, err
	}
	key := want.ServiceID + " " + want.Network.V.String() + " " + dnsname.Fold(want.Prefix)
	number := a.seen[key]
	a.seen[key]++
	if number >= len(same) {
		u, err := a.api.reserve(ctx, b.reservation())
		if err == nil {
			a.warnings = append(a.warnings, u.warnings()...)
			_, err = a.changeUsage(ctx, b, u)
		}
		return provision.Did("POST usages", u.ID, err)
	}
	c, err := a.changeUsage(ctx, b, same[number])
	if err == nil && same[number].Status == statusReleasing {
		return provision.Did("POST usages", same[number].ID, a.api.store.KeepUsage(ctx, same[number]))
	}
	return c, err
}

func (a *application) changeUsage(ctx context.Context, b usageBody, u usage) (provision.Change, error) {
	endpoints, description := b.difference(u)
	if endpoints == nil && description == nil {
		return unchanged, nil
	}
	return provision.Did("PATCH usages/{id}", u.ID, a.api.saveUsage(ctx, u, endpoints, description))
}

// SameUsages gives the numbers of the usages that are the one of a body.
func (a *application) SameUsages(ctx context.Context, body []byte) (numbers []int64, err error) {
	_, _, same, err := a.api.sameUsages(ctx, body)
	if failureOf(err).Cause == nil {
		err = nil // a refusal, which is told when it is to be saved
	}
	for _, u := range same {
		numbers = append(numbers, u.Seq)
	}
	return numbers, err
}

// HeldUsages gives the usages that a document can have.
func (a *application) HeldUsages(ctx context.Context) iter.Seq2[provision.Held, error] {
	return sqlite.Made(a.api.store.AllUsages(ctx, math.MaxInt64), func(u usage) (provision.Held, bool) {
		return provision.Held{Seq: u.Seq, ID: u.ID}, u.documented()
	})
}

// ReleaseUsage releases a usage, and waits for nobody.
func (a *application) ReleaseUsage(ctx context.Context, id string) (provision.Change, error) {
	done, err := a.api.store.ReleaseUsage(ctx, id, false)
	c, err := provision.Did("DELETE usages/{id}", id, err)
	if !done.freed {
		c.Status = http.StatusAccepted
	}
	return c, err
}

// HeldServices gives the ids of the services that a document can have.
func (a *application) HeldServices(ctx context.Context) iter.Seq2[string, error] {
	return sqlite.Made(a.api.store.AllServices(ctx), func(v service) (string, bool) { return v.ID, v.documented() })
}

// DeleteService deletes a service that has no usages.
func (a *application) DeleteService(ctx context.Context, id string) (provision.Change, error) {
	err := a.api.store.DeleteService(ctx, id)
	if errors.Is(err, errServiceInUse) {
		a.inUse = append(a.inUse, id)
		return unchanged, nil
	}
	return provision.Did("DELETE services/{id}", id, err)
}
