// The list of providers and the clients of accounts; the operations on the configuration and on services, which requests
// and provisioning files share; what the status page and the metrics show of them.

package main

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/builtin"
	"meshddns/internal/check"
	"meshddns/internal/dns"
	"meshddns/internal/hostaddr"
	"meshddns/internal/lease"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/provision"
	"meshddns/internal/reconcile"
	"meshddns/internal/secondary"
	"meshddns/internal/web"
)

// cloudWrites is how many writes an hour nodes and checks may cause at one account of a cloud. A write with its second look
// takes up to 12 calls, so these are a third of the fewest calls that a vendor permits (GoDaddy, 60 a minute:
// https://www.godaddy.com/legal/agreements/godaddy-api-terms-of-use), and all at once are what Cloudflare permits in five
// minutes (1 200: https://developers.cloudflare.com/fundamentals/api/reference/limits/).
const cloudWrites = 100

// providers has the providers in the order of GET providers. minTTL is the least TTL in seconds of
// a zone in the cheapest plan. writes is as cloudWrites, 0 for no limit.
var providers = []struct {
	name   string
	minTTL uint32
	writes int
	open   func(provider.Credentials) (provider.DNS, error) // nil for the one that needs none
}{
	{msg.Builtin, 0, 0, nil},
	{"rfc2136", 0, 0, opens(provider.NewRFC2136)},
	{"alidns", 600, cloudWrites, opens(provider.NewAliDNS)},
	{"tencentcloud", 600, cloudWrites, opens(provider.NewTencentCloud)},
	{"huaweicloud", 1, cloudWrites, opens(provider.NewHuaweiCloud)},
	{"volcengine", 600, cloudWrites, opens(provider.NewVolcengine)},
	{"baiducloud", 300, cloudWrites, opens(provider.NewBaiduCloud)},
	{"route53", 0, cloudWrites, opens(provider.NewRoute53)},
	{"cloudflare", 60, cloudWrites, opens(provider.NewCloudflare)},
	{"powerdns", 0, 0, opens(provider.NewPowerDNS)},
	{"dnspod", 600, cloudWrites, opens(provider.NewDNSPod)},
	{"jdcloud", 600, cloudWrites, opens(provider.NewJDCloud)},
	{"godaddy", 600, cloudWrites, opens(provider.NewGoDaddy)},
	{"porkbun", 600, cloudWrites, opens(provider.NewPorkbun)},
	{"webhook", 0, 0, opens(provider.NewWebhook)},
}

// opens makes one type of all constructors.
func opens[C provider.DNS](open func(provider.Credentials) (C, error)) func(provider.Credentials) (provider.DNS, error) {
	return func(c provider.Credentials) (provider.DNS, error) { return open(c) }
}

// nodeWrites returns the writes an hour that nodes and checks may cause at an account, from the settings and the list.
func nodeWrites(set map[string]int) func(provider string) int {
	all := map[string]int{}
	for _, p := range providers {
		all[p.name] = p.writes
	}
	maps.Copy(all, set)
	return func(provider string) int { return all[provider] }
}

func providerNames() (names []string) {
	for _, p := range providers {
		names = append(names, p.name)
	}
	return names
}

// clients opens the clients of accounts.
type clients struct {
	ledger     *ledger.Ledger
	zones      *builtin.Table
	dnsAddress string      // of the built-in DNS server, "" when it does not run
	hidden     func() bool // see builtin.Hidden
}

// open makes the client of an account. There is no fallback: a provider that is not in the list is an error.
func (c clients) open(a reconcile.Account) (provider.DNS, error) {
	if a.Builtin() {
		return builtin.Client{Store: c.zones, Address: c.dnsAddress, Hidden: c.hidden()}, nil
	}
	for _, p := range providers {
		if p.name == a.Provider {
			return p.open(provider.Credentials{AccessKeyID: a.AccessKeyID, AccessKeySecret: a.Secret, Endpoint: a.Endpoint})
		}
	}
	return nil, &provider.Error{Kind: reconcile.CodeUnknownProvider, Detail: msg.Say(strconv.Quote(a.Provider))}
}

// knownAddresses returns a function that gives this host's addresses.
func knownAddresses(book *hostaddr.Book, hidden func() bool) func() reconcile.Addresses {
	return func() reconcile.Addresses {
		last, now := book.Known()
		return reconcile.Addresses{Last: last, Now: now, Hidden: hidden()}
	}
}

// newNotifier returns the sender of NOTIFY to the secondaries. Without a DNS server they hear nothing.
func newNotifier(s *store, dns *builtin.Server, log *slog.Logger) *secondary.Notifier {
	if !dns.On() {
		return secondary.NewNotifier(s.secondaries, nil, netip.Addr{}, s.events, log)
	}
	zones, from := dns.Announced()
	return secondary.NewNotifier(s.secondaries, zones, from, s.events, log)
}

const (
	// shutdownTime is the time for the last answers. A write at a provider and its clean-up take less.
	shutdownTime = 2*provider.WriteTime + 5*time.Second
	// writeTestTime leaves the time of one write for the clean-up, out of a minute.
	writeTestTime = time.Minute - provider.WriteTime
	testRecordTTL = 60 // seconds
)

// test tries a mesh.Configuration, and with write also a value at a name of its own,
// which is taken away again.
func (c clients) test(ctx context.Context, public reconcile.Public, conf mesh.Configuration, write bool) []answers.TestItem {
	var client provider.DNS
	zone := dns.Parse(conf.Domain)
	account := reconcile.ConfiguredAccount(conf)
	test := &reconcile.Probe{Public: public, Owner: c.ledger.Owner(), Journal: &probeJournal{ledger: c.ledger, account: account}}
	test.Step("params", func() (err error) {
		if err := missingMember(conf); err != nil {
			return err
		}
		client, err = c.open(account)
		if b, ok := client.(builtin.Client); ok {
			b.Candidate = zone
			client = b
		}
		return err
	})
	test.Connect(ctx, client, zone, conf.RecordName())
	if write {
		test.Write(ctx, client, zone, testRecordTTL)
	}
	return answers.TestItems(test.Items, account)
}

// probeJournal keeps the probe of a test in the ledger, with the key that it was written with.
type probeJournal struct {
	ledger  *ledger.Ledger
	account reconcile.Account
	place   reconcile.Place
}

func (j *probeJournal) Add(ctx context.Context, p reconcile.ProbeRecord) error {
	j.place = reconcile.Place{Name: p.Name, Account: j.account, Zone: dns.Fold(p.Zone), ZoneID: p.ZoneID, Doubt: reconcile.Doubt{Value: p.Value}}
	return j.fault(j.ledger.AddProbe(ctx, &j.place))
}

func (j *probeJournal) End(ctx context.Context, _ reconcile.ProbeRecord) error {
	return j.fault(j.ledger.EndProbe(ctx, j.place))
}

func (j *probeJournal) fault(err error) error {
	if err == nil {
		return nil
	}
	return &provider.Error{Kind: reconcile.CodeDatabase, Err: err}
}

// missingMember says which member of a configuration cannot be tried.
func missingMember(c mesh.Configuration) error {
	for _, field := range [][2]string{
		{"provider", c.Provider}, {"access_key_id", c.AccessKeyID}, {"access_key_secret", string(c.Secret)},
		{"domain", c.Domain}, {"txt_record_name", c.TXTRecordName},
	} {
		if field[1] == "" {
			return &provider.Error{Kind: provider.Kind(msg.FieldEmpty), Detail: msg.Say(field[0])}
		}
	}
	if reason := dns.NameFault(c.RecordName()); reason != "" {
		return &provider.Error{Kind: provider.Kind(msg.InvalidName), Detail: reason}
	}
	return nil
}

// operations do the work of requests and provisioning files. Each checks in the order of the contract
// and then calls the store. They know no HTTP.
type operations struct {
	store     *store
	engine    *reconcile.Engine
	clients   clients
	addresses *hostaddr.Book
	checks    *check.Watch // nil: nothing is checked
	leases    *lease.Table

	certificate *web.Certificate
	secondaries *secondary.Notifier
	fence       web.Fence
	provisioned bool                               // by a file, which adds its entries again
	forms       map[string]func(body []byte) error // check entries of provisioning files, by part
}

// configured returns the stored configuration, the zero one if there is none.
func (o *operations) configured(ctx context.Context) (mesh.Configuration, error) {
	c, err := o.store.Configuration(ctx)
	if errors.Is(err, errNoConfiguration) {
		err = nil
	}
	return c, err
}

// unmasked returns a configuration with the stored secret in place of the mask.
func (o *operations) unmasked(ctx context.Context, c mesh.Configuration) (mesh.Configuration, error) {
	if !c.Masked() {
		return c, nil
	}
	stored, err := o.configured(ctx)
	if err != nil {
		return c, err
	}
	c, ok := c.Unmasked(stored)
	if !ok {
		return c, errNoSecret
	}
	return c, nil
}

// saveConfiguration checks and stores a configuration, with the members in its body, and warns of what cannot work.
func (o *operations) saveConfiguration(ctx context.Context, c mesh.Configuration, members []string) ([]msg.Phrase, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	if err := o.store.PutConfiguration(ctx, c, c.Masked()); err != nil {
		return nil, err
	}
	stored, err := o.configured(ctx)
	if err != nil || stored.Provider == "" { // deleted since
		return nil, err
	}
	warnings := o.clients.configurationWarnings(stored, members, o.engine.Addresses().Last)
	count, id, err := ledger.ServicesOutside(ctx, o.store.db.Reading(ctx), stored.Zone)
	if count > 0 {
		warnings = append(warnings, msg.Phrase{ID: msg.WarnOutside, Args: []any{stored.Zone, count, id}})
	}
	name, rival, unread := o.store.ledger.OwnRival(ctx)
	if rival != "" {
		warnings = append(warnings, msg.Phrase{ID: msg.WarnOwnHeld, Args: []any{name, rival}})
	}
	around, unknown := o.aroundWarnings(ctx, stored.Zone)
	return append(warnings, around...), errors.Join(err, unread, unknown)
}

// forgetConfiguration deletes the configuration, and waits until the engine has tried to withdraw
// its value. It reports whether the value is gone.
func (o *operations) forgetConfiguration(ctx context.Context, patience web.Patience) (gone bool, err error) {
	c, err := o.store.Configuration(ctx)
	if err != nil {
		return false, err
	}
	waiter := o.engine.Expect(c.RecordName())
	defer waiter.Close()
	version, err := o.store.DeleteConfiguration(ctx)
	if err != nil {
		return false, err
	}
	wait, cancel := patience(ctx)
	defer cancel()
	waiter.Wait(wait, version)
	state, err := o.store.ledger.State(context.WithoutCancel(ctx), []string{c.RecordName()})
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(state.Names[0].Places, func(p reconcile.Place) bool {
		value := cmp.Or(p.Standing, p.Doubt.Value)
		return p.State != reconcile.Withdrawn && value != "" && mesh.Network(value) == ""
	}), nil
}

// aroundWarnings warns of a usage whose P is a domain or lies above it.
func (o *operations) aroundWarnings(ctx context.Context, domain string) ([]msg.Phrase, error) {
	names, err := ledger.Around(ctx, o.store.db.Reading(ctx), domain)
	if len(names) == 0 {
		return nil, err
	}
	return []msg.Phrase{{ID: msg.WarnInner, Args: []any{names[0], domain}}}, err
}

// registerService checks and stores a new service. A service without an id gets a new one. It
// returns the stored service, and warnings about parts that cannot work; with an error, a service
// that has only an id, or not even that.
func (o *operations) registerService(ctx context.Context, v mesh.Service, members []string) (mesh.Service, []msg.Phrase, error) {
	if v.ID == "" {
		id, err := o.store.newID()
		if err != nil {
			return mesh.Service{}, nil, err
		}
		v.ID = id
	}
	if err := cmp.Or(v.Check(), v.CheckNew()); err != nil {
		return mesh.Service{}, nil, err
	}
	if err := o.store.CreateService(ctx, v); err != nil {
		return mesh.Service{ServiceMembers: mesh.ServiceMembers{ID: v.ID}}, nil, err
	}
	return o.stored(ctx, v, members)
}

// replaceService is registerService for a service with an id, which may exist.
func (o *operations) replaceService(ctx context.Context, v mesh.Service, members []string) (mesh.Service, []msg.Phrase, error) {
	if err := v.Check(); err != nil {
		return mesh.Service{}, nil, err
	}
	if err := o.store.PutService(ctx, v); err != nil {
		return mesh.Service{}, nil, err
	}
	return o.stored(ctx, v, members)
}

// stored reads a service that was just stored. If another client has deleted it since, that is no
// error.
func (o *operations) stored(ctx context.Context, saved mesh.Service, members []string) (mesh.Service, []msg.Phrase, error) {
	v, err := o.store.Service(ctx, saved.ID)
	if errors.Is(err, errNoService) {
		v, err = saved, nil
		v.CreatedAt = o.store.stamp()
		v.UpdatedAt = v.CreatedAt
	}
	if err != nil {
		return mesh.Service{ServiceMembers: mesh.ServiceMembers{ID: saved.ID}}, nil, err
	}
	config, err := mesh.ParseServiceConfig(v.Config)
	beside, unread := ledger.ServiceBeside(ctx, o.store.db.Reading(ctx), v)
	conf, fault := o.configured(ctx)
	global := &conf
	if conf.Provider == "" {
		global = nil
	}
	warnings := o.clients.serviceWarnings(v, config, members, beside, global, o.engine.Addresses().Last)
	around, unknown := o.aroundWarnings(ctx, v.Zone)
	warnings, fault = append(warnings, around...), cmp.Or(fault, unknown)
	if global == nil && v.Zone != "" {
		warnings = append(warnings, msg.Phrase{ID: msg.WarnNoConfig})
	}
	return v, warnings, errors.Join(err, unread, fault)
}

// configurationWarnings returns warnings about parts of a configuration that cannot work. members
// are the names in its body, last the addresses of this host.
func (c clients) configurationWarnings(conf mesh.Configuration, members []string, last mesh.Addresses) []msg.Phrase {
	names := answers.WarnDomain(conf.Domain)
	if names == nil {
		names = answers.WarnRecordName(conf)
	}
	var numbers []msg.Phrase
	retry := reconcile.RetryPolicy(conf.RetryInterval, conf.MaxRetries)
	if n := conf.RetryInterval; n != nil && *n != 0 { // as nothing, 0 is the default
		numbers = answers.WarnNumber("retry_interval", *n, int64(retry.First/time.Second))
	}
	if n := conf.MaxRetries; n != nil {
		numbers = append(numbers, answers.WarnNumber("max_retries", *n, int64(retry.Retries))...)
	}
	return slices.Concat(web.WarnMembers(members, mesh.Configuration{}), c.accountWarnings(reconcile.ConfiguredAccount(conf)), names,
		answers.WarnMode(conf.SyncMode), numbers, answers.WarnPaused(conf.Paused()), answers.WarnEndpoints(conf.Endpoints),
		answers.WarnAddresses(conf.Endpoints, last))
}

// accountWarnings returns the reason why an account has no client, as a warning.
func (c clients) accountWarnings(a reconcile.Account) []msg.Phrase {
	if unknown := answers.WarnProvider(a.Provider, providerNames()); unknown != nil {
		return unknown
	}
	if a.Masked() {
		a.Secret = "maskedmasked" // -check does not know the stored one: this fits everywhere
	}
	if _, err := c.open(a); err != nil {
		return []msg.Phrase{{ID: msg.WarnAccount, Args: []any{reconcile.Describe(err, a)}}}
	}
	return append(answers.WarnBlanks("access_key_id", a.AccessKeyID), answers.WarnBlanks("access_key_secret", string(a.Secret))...)
}

// serviceWarnings returns warnings about parts of a service that cannot work. members are the names beside its config,
// beside is a service with its zone, "" for none, and global the configuration, nil if it is not known.
func (c clients) serviceWarnings(v mesh.Service, config mesh.ServiceConfig, members []string, beside string, global *mesh.Configuration, last mesh.Addresses) []msg.Phrase {
	all := slices.Concat(web.WarnMembers(members, answers.Service{}, "zone", "warnings"),
		web.WarnMembers(v.ConfigMembers(), mesh.ServiceConfig{}),
		answers.WarnAddresses(config.Endpoints, last))
	if beside != "" {
		all = append(all, msg.Phrase{ID: msg.WarnSharedDomain, Args: []any{v.Zone, beside}})
	}
	if config.Provider != "" {
		all = append(all, c.accountWarnings(reconcile.ServiceAccount(config))...)
	}
	switch {
	case v.Zone == "":
		all = append(all, msg.Phrase{ID: msg.WarnNoDomain})
	case global == nil:
	case config.Provider == "" && !dns.Within(v.Zone, global.Zone):
		all = append(all, msg.Phrase{ID: msg.WarnNoProvider, Args: []any{v.Zone, global.Zone}})
	default:
		all = append(all, answers.WarnEndpoints(slices.Concat(config.Endpoints, global.Endpoints))...)
	}
	return all
}

// warners returns functions for the parts of a provisioning file that Check has read, in the order of Document.Warnings. They
// give the warnings that need no database.
func (c clients) warners(last mesh.Addresses) map[string]func(body []byte) []msg.Phrase {
	var global *mesh.Configuration
	ids, zones := map[string]string{}, map[string]string{} // services by zone, and zones by service
	inner := map[string]string{}                           // a domain at or below each name
	lies := func(domain string) {
		for name := domain; name != ""; name = dns.Parent(name) {
			inner[name] = domain
		}
	}
	configuration := func(body []byte) []msg.Phrase {
		global = &mesh.Configuration{}
		_ = web.ParseBody(body, global)
		global.Zone = dns.Parse(global.Domain)
		lies(global.Zone)
		return c.configurationWarnings(*global, nil, last)
	}
	service := func(body []byte) []msg.Phrase {
		var b mesh.ServiceBody
		_ = web.ParseBody(body, &b)
		v := b.Service()
		config, _ := mesh.ParseServiceConfig(v.Config)
		v.Zone = dns.Parse(config.Domain)
		beside := ids[v.Zone]
		ids[v.Zone], zones[v.ID] = v.ID, v.Zone
		lies(v.Zone)
		return c.serviceWarnings(v, config, nil, beside, global, last)
	}
	usage := func(body []byte) []msg.Phrase {
		var want mesh.NewUsage
		_ = web.ParseBody(body, &want)
		prefix, _ := want.Prefix()
		name := dns.Fold(mesh.FullName(prefix, zones[want.ServiceID]))
		if domain := inner[dns.Parent(name)]; zones[want.ServiceID] != "" && domain != "" {
			return []msg.Phrase{{ID: msg.WarnInner, Args: []any{name, domain}}}
		}
		return nil
	}
	return map[string]func(body []byte) []msg.Phrase{provision.Configuration: configuration, provision.Services: service, provision.Usages: usage}
}

// search reads usages for the status pages: those that a search is about, else those of a state or service.
func (o *operations) search(ctx context.Context, s mesh.Search, after int64, limit int) ([]mesh.Usage, error) {
	if len(s.Names) == 0 && s.Prefix == "" && !s.Network.Valid {
		return o.store.Usages(ctx, usageFilter{serviceID: s.Service, state: reconcile.PlaceState(s.State), after: after}, limit)
	}
	return o.store.ledger.Found(ctx, s, after, limit)
}
