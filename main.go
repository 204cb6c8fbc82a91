// Meshddns keeps the DNS TXT records by which the nodes of a mesh network
// find each other. It reserves names, publishes them at a DNS provider or
// answers for them itself, and keeps what is published true.
//
// Usage:
//
//	meshddns [flags]
//
// Each flag can be given in the environment too: -dns-listen is
// MESHDDNS_DNS_LISTEN. A flag wins over the environment. What is repeatable
// can also be given separated by commas.
//
//	-listen address        HTTP API: host:port, or unix:/path (mode 0660); default 127.0.0.1:8053
//	-db file               the database, default meshddns.db
//	-dns-listen address    answer DNS queries here, UDP and TCP; repeatable; default: not at all
//	-dns-host name         own name in NS and SOA records, then further ones for NS; repeatable; default ns.<zone>
//	-dns-nsid text         tells servers of one zone apart: answered to who asks for it (RFC 5001); default: not
//	-dns-rate-limit n      answers a second over UDP to one network (/24, /56) without a cookie, 0: no limit; default 1000
//	-ipv4, -ipv6 source    this host's public addresses: auto, interface:NAME, url:URL, none, or an address
//	-allow-host names      Host names to accept beside the loopback ones, separated by commas
//	-token-file file       one or two tokens, a line each; required on an address that is not loopback
//	-sync-interval time    between synchronisations in the modes auto and upsert-only, default 5m
//	-log-format format     text or json
//	-version               print the version and exit
//
// SIGTERM and SIGINT end the program: what has begun is finished first.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
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
	"meshddns/dnsname"
	"meshddns/dnswire"
	"meshddns/envelope"
	"meshddns/guard"
	"meshddns/hostaddr"
	"meshddns/metrics"
	"meshddns/nameserver"
	"meshddns/provider"
	"meshddns/provision"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Getenv, os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "meshddns:", err)
		os.Exit(1)
	}
}

// settings are what the flags and the environment say.
type settings struct {
	listen, db   string
	dns          nameserver.Config
	ipv4, ipv6   hostaddr.Source
	allowHosts   []string
	tokens       []guard.Token
	syncInterval time.Duration
	logFormat    string
	version      bool
}

// list is a flag that can be given several times, or once with commas.
type list struct {
	values    []string
	inherited bool // from the environment: the command line begins anew
}

func (l *list) String() string { return strings.Join(l.values, ",") }

// Set adds values.
func (l *list) Set(text string) error {
	if l.inherited {
		*l = list{}
	}
	l.values = append(l.values, strings.FieldsFunc(text, func(r rune) bool { return r == ',' })...)
	return nil
}

func readSettings(args []string, getenv func(string) string, stderr io.Writer) (c settings, err error) {
	flags := flag.NewFlagSet("meshddns", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&c.listen, "listen", "127.0.0.1:8053", "`address` of the HTTP API: host:port or unix:/path")
	flags.StringVar(&c.db, "db", "meshddns.db", "database `file`")
	var dnsListen, dnsHosts list
	flags.Var(&dnsListen, "dns-listen", "`address` of the built-in DNS server, UDP and TCP; repeatable (default none)")
	flags.Var(&dnsHosts, "dns-host", "own `name` in NS and SOA records, then further ones for NS; repeatable (default ns.<zone>)")
	flags.StringVar(&c.dns.NSID, "dns-nsid", "", "`text` that tells servers of one zone apart, for who asks for it (default none)")
	flags.IntVar(&c.dns.RateLimit, "dns-rate-limit", nameserver.DefaultRateLimit, "`answers` a second over UDP to one network, 0: no limit")
	ipv4 := flags.String("ipv4", "auto", "public IPv4 address: auto, interface:NAME, url:URL, none, or an `address`")
	ipv6 := flags.String("ipv6", "auto", "public IPv6 address: auto, interface:NAME, url:URL, none, or an `address`")
	allowHosts := flags.String("allow-host", "", "Host `names` to accept beside the loopback ones, separated by commas")
	tokenFile := flags.String("token-file", "", "`file` with one or two bearer tokens")
	flags.DurationVar(&c.syncInterval, "sync-interval", 5*time.Minute, "`time` between automatic synchronisations")
	flags.StringVar(&c.logFormat, "log-format", "text", "text or json")
	flags.BoolVar(&c.version, "version", false, "print the version and exit")
	if err := fromEnvironment(flags, getenv); err != nil {
		return c, err
	}
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	switch {
	case flags.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case c.syncInterval < time.Second:
		return c, fmt.Errorf("-sync-interval %v: want 1s at least", c.syncInterval)
	case c.logFormat != "text" && c.logFormat != "json":
		return c, fmt.Errorf("-log-format %q: want text or json", c.logFormat)
	case len(c.dns.NSID) > nameserver.MaxNSID:
		return c, fmt.Errorf("-dns-nsid has %d octets: want %d at most", len(c.dns.NSID), nameserver.MaxNSID)
	case c.dns.RateLimit < 0 || c.dns.RateLimit > nameserver.MaxRateLimit:
		return c, fmt.Errorf("-dns-rate-limit %d: want 0 to %d", c.dns.RateLimit, nameserver.MaxRateLimit)
	}
	c.allowHosts = strings.FieldsFunc(*allowHosts, func(r rune) bool { return r == ',' || r == ' ' })
	c.dns.Addresses = dnsListen.values
	if c.dns.Hosts, err = hostNames(dnsHosts.values); err != nil {
		return c, err
	}
	return c, c.parse(*ipv4, *ipv6, *tokenFile)
}

// hostNames reads the names of name servers, which are names of hosts (RFC 1123,
// section 2.1): who writes an address or anything else makes the zones unreachable.
func hostNames(texts []string) (names []dnswire.Name, err error) {
	for _, text := range texts {
		host := dnsname.Parse(text)
		if _, err := netip.ParseAddr(host); err == nil {
			return nil, fmt.Errorf("-dns-host: %q is an address, want a name", text)
		}
		if dnsname.Fault(host) != "" || strings.Contains(host, "_") {
			return nil, fmt.Errorf("-dns-host: %q is not the name of a host, such as ns1.example.com", text)
		}
		name, err := dnswire.ParseName(host)
		if err != nil {
			return nil, fmt.Errorf("-dns-host: %w", err)
		}
		if slices.Contains(names, name) {
			return nil, fmt.Errorf("-dns-host: %q is given twice", text)
		}
		names = append(names, name)
	}
	return names, nil
}

func (c *settings) parse(ipv4, ipv6, tokenFile string) (err error) {
	if c.ipv4, err = hostaddr.ParseSource(hostaddr.IPv4, ipv4); err != nil {
		return fmt.Errorf("-ipv4: %w", err)
	}
	if c.ipv6, err = hostaddr.ParseSource(hostaddr.IPv6, ipv6); err != nil {
		return fmt.Errorf("-ipv6: %w", err)
	}
	if tokenFile != "" {
		if c.tokens, err = guard.ReadTokens(tokenFile); err != nil {
			return fmt.Errorf("-token-file: %w", err)
		}
	}
	return nil
}

// fromEnvironment sets flags from MESHDDNS_*, before the command line does.
func fromEnvironment(flags *flag.FlagSet, getenv func(string) string) (err error) {
	flags.VisitAll(func(f *flag.Flag) {
		name := "MESHDDNS_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if value := getenv(name); value != "" && err == nil {
			if fault := flags.Set(f.Name, value); fault != nil {
				err = fmt.Errorf("%s: %w", name, fault)
			}
			if several, ok := f.Value.(*list); ok {
				several.inherited = true
			}
		}
	})
	return err
}

// run is the program. It returns when ctx has ended and all is closed.
func run(ctx context.Context, args []string, getenv func(string) string, stdout, stderr io.Writer) (err error) {
	c, err := readSettings(args, getenv, stderr)
	if err != nil {
		return err
	}
	if c.version {
		_, err := fmt.Fprintln(stdout, "meshddns", version())
		return err
	}
	log := slog.New(slog.NewTextHandler(stderr, nil))
	if c.logFormat == "json" {
		log = slog.New(slog.NewJSONHandler(stderr, nil))
	}
	store, err := openStore(ctx, c.db, log)
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
	api.clients = clients{zones: store.zones, dnsAddress: dns.address(), reachable: reachability(len(c.dns.Hosts) > 0, addresses, log)}
	api.engine = store.newEngine(engineConfig(store, api.clients, addresses, c.syncInterval, log))
	listener, handler, err := listenHTTP(c, api)
	if err != nil {
		dns.close()
		return err
	}
	log.Info("started", "version", version(), "listen", listener.Addr().String(), "dns", dns.listening(), "db", c.db)
	return serve(ctx, log, tasks{
		func(ctx context.Context) error { return serveHTTP(ctx, listener, handler, log) },
		dns.serve,
		dns.keep,
		func(ctx context.Context) error { return store.keeper.Run(ctx, log) },
		api.engine.Run,
		func(ctx context.Context) error { return addresses.Watch(ctx, c.syncInterval) },
		func(ctx context.Context) error {
			select {
			case <-addresses.Ready():
				api.clients.hidden() // which is logged
			case <-ctx.Done():
			}
			return nil
		},
	})
}

// openBook makes the book of this host's addresses, which begins with those that
// were known last.
func openBook(ctx context.Context, c settings, s *store, log *slog.Logger) (*hostaddr.Book, error) {
	last, err := s.Addresses(ctx)
	if err != nil {
		return nil, err
	}
	return hostaddr.NewBook(c.ipv4, c.ipv6, last, s.SaveAddresses, log), nil
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

func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok || info.Main.Version == "" {
		return "unknown"
	}
	return info.Main.Version
}

// listenHTTP binds the API's address and puts the guards before its routes.
func listenHTTP(c settings, api *server) (net.Listener, http.Handler, error) {
	guards := guard.Config{Tokens: c.tokens, AllowHosts: c.allowHosts, Deny: api.deny, Now: time.Now}
	if path, ok := strings.CutPrefix(c.listen, "unix:"); ok {
		listener, err := listenUnix(path)
		return listener, guard.Unix(guards, api.routes()), err
	}
	listener, err := net.Listen("tcp", c.listen)
	if err != nil {
		return nil, nil, err
	}
	if len(c.tokens) == 0 && !guard.Loopback(listener.Addr().String()) {
		return nil, nil, errors.Join(fmt.Errorf("-listen %s is not a loopback address: -token-file is required", c.listen), listener.Close())
	}
	return listener, guard.TCP(guards, api.routes()), nil
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

func listenDNS(c settings, s *store, addresses *hostaddr.Book, log *slog.Logger) (d builtinDNS, err error) {
	if len(c.dns.Addresses) == 0 {
		return d, nil
	}
	d.cache = builtin.NewCache(s.zones, log)
	s.zones.Changed = d.cache.Changed
	d.server, err = nameserver.Listen(c.dns, builtin.Zones{Store: s.zones, Own: addresses.All, Cache: d.cache}, log)
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

// provision applies the files that -provision names, all or nothing, before anything
// runs at the start, and beside everything later.
func (s *server) provision(ctx context.Context, path string, credentials provision.CredentialFolder, start bool) error {
	document := provision.Read(path, credentials)
	var changes []provision.Change
	var a *application
	err := s.store.tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		a = &application{api: s, start: start, seen: map[string]int{}}
		changes, err = document.Apply(ctx, a)
		return err
	})
	if err != nil {
		return err
	}
	if a.owner != "" {
		s.store.UseOwner(a.owner)
	}
	for _, c := range changes {
		s.log.LogAttrs(ctx, slog.LevelInfo, "change", slog.String("who", "provision"), slog.String("what", c.What), slog.String("id", c.ID),
			slog.Int("status", c.Status), slog.String("code", ""), slog.String("file", c.File))
	}
	for _, id := range a.inUse {
		s.log.Info("a service is not in the document, and stays while it has usages", "id", id)
	}
	s.log.Info("provisioned", "from", path, "services", len(document.Services), "usages", len(document.Usages), "changes", len(changes))
	return nil
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
}

// changed is what an operation of a document has done, as its request.
func changed(request, id string, err error) (provision.Change, error) {
	method, path, _ := strings.Cut(request, " ")
	return provision.Change{What: method + " /api/v1/ddns/" + path, ID: id, Status: http.StatusOK}, err
}

var unchanged provision.Change

// SaveOwner takes an owner for a new database; another database adopts it.
func (a *application) SaveOwner(ctx context.Context, owner string) (provision.Change, error) {
	if err := a.CheckOwner(owner); err != nil || owner == a.api.store.owner {
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
	return changed("POST adopt", owner, a.api.store.ledger.Adopt(ctx, owner))
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
	return changed("PUT config", "", a.api.saveConfiguration(ctx, c))
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
	v, err := b.checkedWithID()
	if err != nil {
		return unchanged, err
	}
	return changed("PUT services/{id}", v.ID, a.api.store.PutService(ctx, v.ID, v.over))
}

// SaveUsage reserves a usage that is not there, and changes what differs in one that is.
func (a *application) SaveUsage(ctx context.Context, body []byte) (provision.Change, error) {
	var b usageBody
	if err := envelope.Parse(body, &b); err != nil {
		return unchanged, err
	}
	want, err := b.wanted()
	if err != nil {
		return unchanged, err
	}
	same, err := a.api.store.SameUsages(ctx, want)
	if err != nil {
		return unchanged, err
	}
	key := want.ServiceID + " " + want.Network.V.String() + " " + dnsname.Fold(want.Prefix)
	number := a.seen[key]
	a.seen[key]++
	if number >= len(same) {
		u, err := a.api.reserve(ctx, b.reservation())
		if err == nil {
			_, err = a.changeUsage(ctx, b, u)
		}
		return changed("POST usages", u.ID, err)
	}
	c, err := a.changeUsage(ctx, b, same[number])
	if err == nil && same[number].Status == statusReleasing {
		return changed("POST usages", same[number].ID, a.api.store.KeepUsage(ctx, same[number]))
	}
	return c, err
}

func (a *application) changeUsage(ctx context.Context, b usageBody, u usage) (provision.Change, error) {
	endpoints, description := b.difference(u)
	if endpoints == nil && description == nil {
		return unchanged, nil
	}
	return changed("PATCH usages/{id}", u.ID, a.api.saveUsage(ctx, u, endpoints, description))
}

// SameUsages gives the numbers of the usages that are the one of a body.
func (a *application) SameUsages(ctx context.Context, body []byte) (numbers []int64, err error) {
	var b usageBody
	if envelope.Parse(body, &b) != nil {
		return nil, nil // which is told when it is to be saved
	}
	want, err := b.wanted()
	if err != nil {
		return nil, nil
	}
	same, err := a.api.store.SameUsages(ctx, want)
	if failureOf(err).Cause == nil {
		err = nil // there is no such service
	}
	for _, u := range same {
		numbers = append(numbers, u.Seq)
	}
	return numbers, err
}

// HeldUsages gives some usages after a number.
func (a *application) HeldUsages(ctx context.Context, after int64) (page []provision.Held, err error) {
	usages, err := a.api.store.Usages(ctx, usageFilter{after: after}, streamPage)
	for _, u := range usages {
		page = append(page, provision.Held{Seq: u.Seq, ID: u.ID, Active: u.documented()})
	}
	return page, err
}

// ReleaseUsage releases a usage, and waits for nobody.
func (a *application) ReleaseUsage(ctx context.Context, id string) (provision.Change, error) {
	done, err := a.api.store.ReleaseUsage(ctx, id, false)
	c, err := changed("DELETE usages/{id}", id, err)
	if !done.freed {
		c.Status = http.StatusAccepted
	}
	return c, err
}

// HeldServices gives some services after one.
func (a *application) HeldServices(ctx context.Context, after string) (ids []string, err error) {
	for more := true; more && len(ids) == 0; {
		services, err := a.api.store.Services(ctx, after, servicePage)
		if err != nil {
			return nil, err
		}
		for _, v := range services {
			if after = v.ID; v.documented() {
				ids = append(ids, v.ID)
			}
		}
		more = len(services) > 0
	}
	return ids, nil
}

// DeleteService deletes a service that has no usages.
func (a *application) DeleteService(ctx context.Context, id string) (provision.Change, error) {
	err := a.api.store.DeleteService(ctx, id)
	if errors.Is(err, errServiceInUse) {
		a.inUse = append(a.inUse, id)
		return unchanged, nil
	}
	return changed("DELETE services/{id}", id, err)
}
