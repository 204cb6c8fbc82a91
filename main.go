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
//	-log-format format     text or json
//	-version, -help        print the version, or the flags, and exit
//
// SIGTERM and SIGINT end the program: what has come is answered, and what has begun
// is finished first. SIGHUP
// reads the token file again; a fault in it is logged, and the old tokens stay.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"meshddns/builtin"
	"meshddns/conntest"
	"meshddns/crash"
	"meshddns/guard"
	"meshddns/hostaddr"
	"meshddns/httpserver"
	"meshddns/metrics"
	"meshddns/nameserver"
	"meshddns/provider"
	"meshddns/reconcile"
	"meshddns/settings"
	"meshddns/systemd"
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

// newLog writes in a format; to the journal each line with its priority.
func (p process) newLog(name string) *slog.Logger {
	format := func(w io.Writer) slog.Handler {
		if name == "json" {
			return slog.NewJSONHandler(w, nil)
		}
		return slog.NewTextHandler(w, nil)
	}
	if systemd.IsJournal(p.getenv, p.stderr) {
		return slog.New(systemd.NewHandler(p.stderr, format))
	}
	return slog.New(format(p.stderr))
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
	case err != nil:
		return err
	}
	log := p.newLog(c.LogFormat)
	manager, err := systemd.Open(p.getenv)
	if err != nil {
		return err
	}
	defer manager.Close()
	store, err := openStore(ctx, c.DB, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	addresses, err := openBook(ctx, c, store, log)
	if err != nil {
		return err
	}
	dns, err := listenDNS(c, store, addresses, log)
	if err != nil {
		return err
	}
	api := &server{store: store, log: log, version: version(), public: conntest.Internet}
	api.clients = clients{zones: store.zones, dnsAddress: dns.address(), reachable: reachability(len(c.DNS.Hosts) > 0, addresses, log)}
	api.engine = store.newEngine(engineConfig(store, api.clients, addresses, c.SyncInterval, log))
	front, err := listenHTTP(c, api)
	if err != nil {
		dns.close()
		return err
	}
	api.dnsMetrics = func(page *metrics.Page) { front.WriteMetrics(page); dns.metrics(page) }
	for _, origin := range c.Unused(front.TCP(), dns.server != nil) {
		log.Warn("a setting has no effect", "setting", origin)
	}
	steps := reloadSteps(c)
	listening := strings.Join(front.Addrs(), ",")
	unit := unit{manager: manager, store: store, serves: serves(listening, dns.listening()), log: log}
	log.Info("started", "version", version(), "listen", listening, "dns", dns.listening(), "db", c.DB)
	return serve(ctx, log, tasks{unit.begin, front.Serve, dns.serve}, tasks{
		unit.watch,
		dns.keep,
		func(ctx context.Context) error { return store.keeper.Run(ctx, log) },
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
			return onHangUp(ctx, p.hangUps, func() { unit.reload(ctx, func() { reload(ctx, steps, log) }) })
		},
	})
}

// unit is the program as the service manager sees it.
type unit struct {
	manager *systemd.Service
	store   *store
	serves  string // where
	log     *slog.Logger
}

// serves says where the program answers.
func serves(http, dns string) string {
	if dns == "" {
		return "HTTP on " + http
	}
	return "HTTP on " + http + ", DNS on " + dns
}

// begin says that the program serves, and later that it stops.
func (u unit) begin(ctx context.Context) error {
	u.ready(ctx)
	<-ctx.Done()
	u.told(u.manager.Stopping())
	return nil
}

// reload says when a reload begins and ends, which "systemctl reload" waits for.
func (u unit) reload(ctx context.Context, reload func()) {
	u.told(u.manager.Reloading())
	reload()
	u.ready(ctx)
}

func (u unit) ready(ctx context.Context) {
	status, err := u.status(ctx)
	if err != nil {
		status = u.serves + "; the database does not answer: " + err.Error()
	}
	u.told(u.manager.Ready(status))
}

// watch answers the watchdog for as long as the database answers, also while the program stops.
func (u unit) watch(ctx context.Context) error {
	u.manager.Watch(ctx, func(ctx context.Context) error {
		status, err := u.status(ctx)
		if err != nil {
			return err
		}
		return u.manager.Status(status)
	}, u.log)
	return nil
}

// status is what the program has to do, as the database says.
func (u unit) status(ctx context.Context) (string, error) {
	totals, err := u.store.Totals(ctx)
	if err != nil {
		return "", fmt.Errorf("read the database: %w", err)
	}
	return fmt.Sprintf("%s; services %d, prefixes %d, names published %d",
		u.serves, totals["services"], totals["usages"], totals[reconcile.Published]), nil
}

func (u unit) told(err error) {
	if err != nil {
		u.log.Warn("the service manager does not hear", "error", err)
	}
}

// step is a part of a reload.
type step struct {
	what string // "read the token file again"
	do   func(context.Context) error
}

// reloadSteps are those of a reload, in their order.
func reloadSteps(c settings.Settings) (steps []step) {
	if c.Tokens != nil {
		steps = append(steps, step{"read the token file again", func(context.Context) error { return c.Tokens.Reload() }})
	}
	return steps
}

// reload does all steps in order. One that fails has changed nothing, and hinders no other.
func reload(ctx context.Context, steps []step, log *slog.Logger) {
	for _, s := range steps {
		if err := s.do(ctx); err != nil {
			log.Error("reload: what was stays", "step", s.what, "error", err)
			continue
		}
		log.Info("reload", "step", s.what)
	}
	if len(steps) == 0 {
		log.Info("reload: there is nothing to read again")
	}
}

// onHangUp obeys each hang-up until ctx ends.
func onHangUp(ctx context.Context, hangUps <-chan os.Signal, obey func()) error {
	for {
		select {
		case <-hangUps:
			obey()
		case <-ctx.Done():
			return nil
		}
	}
}

// openBook makes the book of this host's addresses, which begins with those that
// were known last.
func openBook(ctx context.Context, c settings.Settings, s *store, log *slog.Logger) (*hostaddr.Book, error) {
	last, err := s.Addresses(ctx)
	if err != nil {
		return nil, err
	}
	return hostaddr.NewBook(c.IPv4, c.IPv6, last, s.SaveAddresses, log), nil
}

// tasks run side by side until their context ends.
type tasks []func(context.Context) error

// run begins all, and tells who waits when they have returned. What goes wrong in one,
// a panic too, is told.
func (all tasks) run(ctx context.Context, failed func(error)) *sync.WaitGroup {
	var running sync.WaitGroup
	for _, task := range all {
		running.Go(func() {
			if err := crash.Call(func() error { return task(ctx) }); err != nil {
				failed(err)
			}
		})
	}
	return &running
}

// serve runs what answers clients, and what works behind it for as long as an answer
// may wait for that. The first task that fails ends all.
func serve(ctx context.Context, log *slog.Logger, front, behind tasks) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	failed := func(err error) {
		if crashed, ok := errors.AsType[*crash.Error](err); ok {
			log.Error("a part of the program has crashed", "error", crashed)
		}
		cancel(err)
	}
	answering, working := front.run(ctx, failed), behind.run(work, failed)
	<-ctx.Done()
	log.Info("stopping")
	answering.Wait()
	end()
	working.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		return err
	}
	return nil
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
func listenHTTP(c settings.Settings, api *server) (*httpserver.Server, error) {
	guards := guard.Config{Tokens: c.Tokens, AllowHosts: c.AllowHosts, Deny: api.deny, Log: api.log}
	listeners, err := httpserver.Listen(httpserver.Addresses{List: c.Listen, Group: c.SocketGroup, Token: c.Tokens != nil})
	if err != nil {
		return nil, err
	}
	routes := api.routes()
	return httpserver.New(httpserver.Config{
		Listeners: listeners, TCP: api.adapter.Safe(guard.TCP(guards, routes)), Unix: api.adapter.Safe(guard.Unix(guards, routes)),
		ConnContext: guard.ConnContext, ShutdownTime: shutdownTime, Log: api.log,
	}), nil
}

// builtinDNS is the built-in DNS server, or none.
type builtinDNS struct {
	server *nameserver.Server
	cache  *builtin.Cache
}

func listenDNS(c settings.Settings, s *store, addresses *hostaddr.Book, log *slog.Logger) (d builtinDNS, err error) {
	if len(c.DNS.Addresses)+len(c.DNS.Listeners)+len(c.DNS.PacketConns) == 0 {
		return d, nil
	}
	d.cache = builtin.NewCache(s.zones, log)
	s.zones.Changed = d.cache.Changed
	d.server, err = nameserver.Listen(c.DNS, builtin.Zones{Store: s.zones, Own: addresses.All, Cache: d.cache}, log)
	return d, err
}

// listening tells the addresses that are listened on.
func (d builtinDNS) listening() string {
	if d.server == nil {
		return ""
	}
	return strings.Join(d.server.Addrs(), ",")
}

// address is where this host reaches the server, "" without one.
func (d builtinDNS) address() string {
	if d.server == nil {
		return ""
	}
	address, err := netip.ParseAddrPort(d.server.Addr())
	if err != nil || !address.Addr().IsUnspecified() {
		return d.server.Addr()
	}
	loopback := netip.AddrFrom4([4]byte{127, 0, 0, 1})
	if address.Addr().Is6() {
		loopback = netip.IPv6Loopback()
	}
	return netip.AddrPortFrom(loopback, address.Port()).String()
}

func (d builtinDNS) metrics(page *metrics.Page) {
	if d.server != nil {
		d.server.WriteMetrics(page)
		d.cache.WriteMetrics(page)
	}
}

func (d builtinDNS) serve(ctx context.Context) error {
	if d.server == nil {
		return nil
	}
	return d.server.Serve(ctx)
}

// keep keeps the zones in memory.
func (d builtinDNS) keep(ctx context.Context) error {
	if d.server == nil {
		return nil
	}
	return d.cache.Run(ctx)
}

// close gives the sockets back when the program cannot start.
func (d builtinDNS) close() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	d.serve(ended)
}
