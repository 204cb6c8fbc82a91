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
// SIGTERM and SIGINT end the program: what has begun is finished first. SIGHUP
// reads the token file again; a fault in it is logged, and the old tokens stay.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"meshddns/builtin"
	"meshddns/conntest"
	"meshddns/guard"
	"meshddns/hostaddr"
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
	api := &server{store: store, log: log, version: version(), dnsMetrics: dns.metrics, public: conntest.Internet}
	api.clients = clients{zones: store.zones, dnsAddress: dns.address(), reachable: reachability(len(c.DNS.Hosts) > 0, addresses, log)}
	api.engine = store.newEngine(engineConfig(store, api.clients, addresses, c.SyncInterval, log))
	fronts, err := listenHTTP(c, api)
	if err != nil {
		dns.close()
		return err
	}
	for _, origin := range c.Unused(fronts.tcp(), dns.server != nil) {
		log.Warn("a setting has no effect", "setting", origin)
	}
	steps := reloadSteps(c)
	unit := unit{manager: manager, store: store, serves: serves(fronts.listening(), dns.listening()), log: log}
	log.Info("started", "version", version(), "listen", fronts.listening(), "dns", dns.listening(), "db", c.DB)
	return serve(ctx, log, tasks{
		unit.begin,
		unit.watch,
		func(ctx context.Context) error { return fronts.serve(ctx, log) },
		dns.serve,
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

// tasks run side by side until ctx ends. The first that fails ends the others.
type tasks []func(context.Context) error

func serve(ctx context.Context, log *slog.Logger, all tasks) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var running sync.WaitGroup
	for _, task := range all {
		running.Go(func() {
			if err := task(ctx); err != nil {
				cancel(err)
			}
		})
	}
	<-ctx.Done()
	log.Info("stopping")
	running.Wait()
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

// front is an address of the API, with the guards that belong to it.
type front struct {
	net.Listener
	handler http.Handler
}

type fronts []front

// listenHTTP binds the API's addresses, all or none, and puts the guards before its routes.
func listenHTTP(c settings.Settings, api *server) (all fronts, err error) {
	guards := guard.Config{Tokens: c.Tokens, AllowHosts: c.AllowHosts, Deny: api.deny, Log: api.log}
	routes := api.routes()
	tcp, unix := guard.TCP(guards, routes), guard.Unix(guards, routes)
	for _, address := range c.Listen {
		f := front{handler: tcp}
		path, isUnix := strings.CutPrefix(address, "unix:")
		if isUnix {
			f.handler = unix
			f.Listener, err = listenUnix(path)
		} else {
			f.Listener, err = net.Listen("tcp", address)
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("-listen: %w", err), all.close())
		}
		all = append(all, f)
		if !isUnix && c.Tokens == nil && !guard.Loopback(f.Addr().String()) {
			return nil, errors.Join(fmt.Errorf("-listen: %q is not a loopback address: -token-file is required", address), all.close())
		}
	}
	return all, nil
}

func (all fronts) close() error {
	var faults []error
	for _, f := range all {
		faults = append(faults, f.Close())
	}
	return errors.Join(faults...)
}

// listening tells the addresses that are listened on.
func (all fronts) listening() string {
	var addresses []string
	for _, f := range all {
		addresses = append(addresses, f.Addr().String())
	}
	return strings.Join(addresses, ",")
}

// tcp reports whether the API is reached over TCP.
func (all fronts) tcp() bool {
	return slices.ContainsFunc(all, func(f front) bool { return f.Addr().Network() == "tcp" })
}

func (all fronts) serve(ctx context.Context, log *slog.Logger) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, len(all))
	for _, f := range all {
		go func() { ended <- serveHTTP(ctx, f, f.handler, log) }()
	}
	var err error
	for range all {
		err = errors.Join(err, <-ended)
		cancel() // one that ends before its time ends the others
	}
	return err
}

// socketMode lets the group of the socket's file in: its permissions are the
// only guard.
const socketMode = 0o660

// listenUnix binds a unix socket. A socket file that nobody listens on is
// what an earlier end by SIGKILL left, and is replaced.
func listenUnix(path string) (net.Listener, error) {
	if info, err := os.Lstat(path); err == nil && info.Mode().Type() == os.ModeSocket {
		if conn, err := net.Dial("unix", path); err == nil {
			return nil, errors.Join(fmt.Errorf("%s: another program listens there", path), conn.Close())
		}
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	old := syscall.Umask(0o777 &^ socketMode)
	listener, err := net.Listen("unix", path)
	syscall.Umask(old)
	return listener, err
}

const (
	headerTime = 10 * time.Second
	bodyTime   = 30 * time.Second
	idleTime   = 2 * time.Minute
	maxHeader  = 16<<10 - 4<<10 // net/http adds 4 KiB of its own: 16 KiB in all

	// shutdownTime is for the answers in flight: longer than a write that has
	// begun and its clean-up.
	shutdownTime = 2*provider.WriteTime + 5*time.Second
)

func serveHTTP(ctx context.Context, listener net.Listener, handler http.Handler, log *slog.Logger) error {
	requests, cancel := context.WithCancel(context.Background())
	defer cancel()
	server := &http.Server{
		Handler:           handler,
		ReadHeaderTimeout: headerTime,
		ReadTimeout:       bodyTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		// "OPTIONS *" is answered like every other unknown path.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		BaseContext:                  func(net.Listener) context.Context { return requests },
		ConnContext:                  guard.ConnContext,
	}
	stopped := make(chan error, 1)
	stop := context.AfterFunc(ctx, func() {
		cancel() // a synchronisation stops before its next record
		limit, done := context.WithTimeout(context.Background(), shutdownTime)
		defer done()
		stopped <- errors.Join(server.Shutdown(limit), server.Close())
	})
	if err := server.Serve(listener); stop() {
		return err
	}
	return <-stopped
}

// builtinDNS is the built-in DNS server, or none.
type builtinDNS struct {
	server *nameserver.Server
	cache  *builtin.Cache
}

func listenDNS(c settings.Settings, s *store, addresses *hostaddr.Book, log *slog.Logger) (d builtinDNS, err error) {
	if len(c.DNS.Addresses) == 0 {
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
