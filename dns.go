// The providers, their accounts and clients, and the connection test; what the reconciler
// and the built-in DNS server are made of; the configuration and the services: what may be
// written, when it says nothing new, and the operations that requests and provision files
// share.

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/builtin"
	"meshddns/internal/dnsname"
	"meshddns/internal/envelope"
	"meshddns/internal/hostaddr"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/metrics"
	"meshddns/internal/msg"
	"meshddns/internal/nameserver"
	"meshddns/internal/probe"
	"meshddns/internal/provider"
	"meshddns/internal/provision"
	"meshddns/internal/reconcile"
	"meshddns/internal/secrets"
	"meshddns/internal/settings"
	"meshddns/internal/sqlite"
	"meshddns/internal/strictjson"
)

// providers are what a configuration may name, in the order of the list that
// is shown, with the least TTL in seconds that a zone of the cheapest plan takes.
var providers = []struct {
	name   string
	minTTL uint32
	open   func(provider.Credentials) (provider.DNS, error) // nil for the one that needs none
}{
	{builtin.Name, 0, nil},
	{"rfc2136", 0, opens(provider.NewRFC2136)},
	{"alidns", 600, opens(provider.NewAliDNS)},
	{"tencentcloud", 600, opens(provider.NewTencentCloud)},
	{"huaweicloud", 1, opens(provider.NewHuaweiCloud)},
	{"volcengine", 600, opens(provider.NewVolcengine)},
	{"baiducloud", 300, opens(provider.NewBaiduCloud)},
	{"route53", 0, opens(provider.NewRoute53)},
	{"cloudflare", 60, opens(provider.NewCloudflare)},
	{"powerdns", 0, opens(provider.NewPowerDNS)},
	{"dnspod", 600, opens(provider.NewDNSPod)},
	{"jdcloud", 600, opens(provider.NewJDCloud)},
	{"godaddy", 600, opens(provider.NewGoDaddy)},
	{"porkbun", 600, opens(provider.NewPorkbun)},
	{"webhook", 0, opens(provider.NewWebhook)},
}

// opens makes one type of all constructors.
func opens[C provider.DNS](open func(provider.Credentials) (C, error)) func(provider.Credentials) (provider.DNS, error) {
	return func(c provider.Credentials) (provider.DNS, error) { return open(c) }
}

func providerNames() (names []string) {
	for _, p := range providers {
		names = append(names, p.name)
	}
	return names
}

// newAccount makes an account, with the one spelling of its endpoint. The built-in server
// uses nothing but its name, so nothing else tells two of its accounts apart.
func newAccount(name, endpoint, accessKeyID string, secret secrets.Secret) reconcile.Account {
	if name == builtin.Name {
		return reconcile.Account{Provider: name}
	}
	return reconcile.Account{Provider: name, Endpoint: provider.NormalEndpoint(name, endpoint), AccessKeyID: accessKeyID, Secret: secret}
}

// clients opens the clients of accounts.
type clients struct {
	ledger     *ledger.Ledger
	zones      builtin.Store
	dnsAddress string // of the built-in DNS server, "" when it does not run
	reachable  func() bool
}

// hidden reports whether a built-in server runs that the world does not find.
func (c clients) hidden() bool { return c.dnsAddress != "" && c.reachable != nil && !c.reachable() }

// reachability tells whether the world finds the built-in server: by its own name, or
// else at an address of this host. That it no longer does is logged once.
func reachability(named bool, addresses *hostaddr.Book, log *slog.Logger) func() bool {
	var lost atomic.Bool
	return func() bool {
		found := named || addresses.Reachable()
		if was := lost.Swap(!found); !found && !was {
			log.Warn("no resolver finds the zones of the built-in DNS server: it has neither a public address nor -dns-host")
		}
		return found
	}
}

// open makes the client of an account. There is no fallback: a provider that is
// not in the list is an error.
func (c clients) open(a reconcile.Account) (provider.DNS, error) {
	if a.Provider == builtin.Name {
		return builtin.Client{Store: c.zones, Address: c.dnsAddress, Hidden: c.hidden()}, nil
	}
	for _, p := range providers {
		if p.name == a.Provider {
			return p.open(provider.Credentials{AccessKeyID: a.AccessKeyID, AccessKeySecret: a.Secret, Endpoint: a.Endpoint})
		}
	}
	return nil, &provider.Error{Kind: reconcile.CodeUnknownProvider, Detail: msg.Say(strconv.Quote(a.Provider))}
}

// testRecordTTL is in seconds.
const testRecordTTL = 60

// test tries a configuration, and with write also a value at a name of its own,
// which is taken away again.
func (c clients) test(ctx context.Context, public probe.Public, conf configuration, write bool) []answers.TestItem {
	var client provider.DNS
	zone := dnsname.Parse(conf.Domain)
	test := &probe.Test{Public: public, Owner: c.ledger.Owner(), Journal: &probeJournal{ledger: c.ledger, account: conf.account()}}
	test.Step("params", func() (err error) {
		if err := conf.missing(); err != nil {
			return err
		}
		client, err = c.open(conf.account())
		if b, ok := client.(builtin.Client); ok {
			b.Candidate = zone
			client = b
		}
		return err
	})
	test.Connect(ctx, client, zone, conf.recordName())
	if write {
		test.Write(ctx, client, zone, testRecordTTL)
	}
	return answers.TestItems(test.Items, conf.Secret)
}

// probeJournal keeps the probe of a test in the ledger, with the key that it was written
// with.
type probeJournal struct {
	ledger  *ledger.Ledger
	account reconcile.Account
	place   reconcile.Place
}

func (j *probeJournal) Add(ctx context.Context, p probe.Record) error {
	j.place = reconcile.Place{Name: p.Name, Account: j.account, Zone: dnsname.Fold(p.Zone), ZoneID: p.ZoneID, Doubt: reconcile.Doubt{Value: p.Value}}
	return j.fault(j.ledger.AddProbe(ctx, &j.place))
}

func (j *probeJournal) End(ctx context.Context, _ probe.Record) error {
	return j.fault(j.ledger.EndProbe(ctx, j.place))
}

func (j *probeJournal) fault(err error) error {
	if err == nil {
		return nil
	}
	return &provider.Error{Kind: reconcile.CodeDatabase, Err: err}
}

// engineConfig wires the reconciler to the database, the providers and the
// addresses.
func engineConfig(s *store, c clients, addresses *hostaddr.Book, interval time.Duration, log *slog.Logger) reconcile.Config {
	return reconcile.Config{
		Database: s.ledger,
		Open:     c.open,
		Addresses: func() reconcile.Addresses {
			last, now := addresses.Known()
			return reconcile.Addresses{Last: last, Now: now, Hidden: c.hidden()}
		},
		Ready:    addresses.Ready(),
		Interval: interval,
		Log:      log,
		Now:      s.now,
	}
}

// newEngine makes an engine that every commit wakes.
func (s *store) newEngine(c reconcile.Config) *reconcile.Engine {
	e := reconcile.New(c)
	s.committed, s.ledger.Addresses = e.Wake, c.Addresses
	return e
}

// builtinDNS is the built-in DNS server, or none.
type builtinDNS struct {
	server *nameserver.Server
	cache  *builtin.Cache
}

// listenDNS makes the server that the settings ask for, which answers once it serves.
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
	return d.server.LocalAddr()
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

// Modes of synchronisation; every other text means manual.
const (
	modeManual     = "manual"
	modeAuto       = "auto"
	modeUpsertOnly = "upsert-only"
)

// syncModes are those that a configuration may have.
var syncModes = []string{modeManual, modeAuto, modeUpsertOnly}

// recordName is the name of the configuration's own record.
func (c configuration) recordName() string {
	if c.TXTRecordName == "@" {
		return dnsname.Parse(c.Domain)
	}
	return dnsname.Parse(c.TXTRecordName + "." + c.Domain)
}

func (c configuration) mode() string {
	if c.SyncMode == modeAuto || c.SyncMode == modeUpsertOnly {
		return c.SyncMode
	}
	return modeManual
}

// configurationBody is the configuration as clients write it.
type configurationBody struct {
	Provider        string         `json:"provider"`
	AccessKeyID     string         `json:"access_key_id"`
	AccessKeySecret secrets.Secret `json:"access_key_secret"`
	Endpoint        string         `json:"endpoint"`
	Domain          string         `json:"domain"`
	TXTRecordName   string         `json:"txt_record_name"`
	TXTEndpoints    []string       `json:"txt_endpoints"`
	SyncMode        string         `json:"sync_mode"`
	RetryInterval   *int64         `json:"retry_interval"`
	MaxRetries      *int64         `json:"max_retries"`
	Enabled         bool           `json:"enabled"`
}

func (b configurationBody) configuration() configuration {
	return configuration{
		Provider: b.Provider, AccessKeyID: b.AccessKeyID, Secret: b.AccessKeySecret, Endpoint: b.Endpoint,
		Domain: b.Domain, TXTRecordName: b.TXTRecordName, Endpoints: b.TXTEndpoints, SyncMode: b.SyncMode,
		RetryInterval: sqlite.Given(b.RetryInterval), MaxRetries: sqlite.Given(b.MaxRetries), Enabled: b.Enabled,
	}
}

// check refuses what cannot be stored, in the order of the contract.
func (c configuration) check() error {
	switch {
	case c.Provider == "":
		return envelope.Fail(msg.ProviderEmpty)
	case c.AccessKeyID == "" || c.Secret == "":
		return envelope.Fail(msg.AccessKeyEmpty)
	case c.Domain == "":
		return envelope.Fail(msg.DomainEmpty)
	case c.TXTRecordName == "":
		return envelope.Fail(msg.TXTRecordNameEmpty)
	}
	return badEndpoints(anyNetwork, c.Endpoints)
}

// storedName is the record name of a configuration that is stored, "" without.
func (c configuration) storedName() string {
	if c.AccountID == 0 {
		return ""
	}
	return c.recordName()
}

// sameCredentials reports whether c's secret, if there is one, is for the
// account and the address of d.
func (c configuration) sameCredentials(d configuration) bool {
	return c.Secret != "" && c.Provider == d.Provider && c.AccessKeyID == d.AccessKeyID &&
		provider.NormalEndpoint(c.Provider, c.Endpoint) == provider.NormalEndpoint(d.Provider, d.Endpoint)
}

// unmasked gives the configuration with the stored secret in the place of a mask. It is
// errNoSecret unless that belongs to the same credentials: else it could be sent to a
// stranger's address.
func (c configuration) unmasked(stored configuration) (configuration, error) {
	if c.Secret != secrets.Mask {
		return c, nil
	}
	if !stored.sameCredentials(c) {
		return c, errNoSecret
	}
	c.Secret = stored.Secret
	return c, nil
}

// sameAs reports whether a configuration is stored already as it is here.
func (c configuration) sameAs(stored configuration) bool {
	c, err := c.unmasked(stored)
	return err == nil && c.sameCredentials(stored) && c.Secret == stored.Secret && c.Endpoint == stored.Endpoint &&
		c.Domain == stored.Domain && c.TXTRecordName == stored.TXTRecordName && c.SyncMode == stored.SyncMode &&
		c.RetryInterval == stored.RetryInterval && c.MaxRetries == stored.MaxRetries &&
		c.Enabled == stored.Enabled && slices.Equal(c.Endpoints, stored.Endpoints)
}

// missing says which field of a configuration cannot be tried.
func (c configuration) missing() error {
	for _, field := range [][2]string{
		{"provider", c.Provider}, {"access_key_id", c.AccessKeyID}, {"access_key_secret", string(c.Secret)},
		{"domain", c.Domain}, {"txt_record_name", c.TXTRecordName},
	} {
		if field[1] == "" {
			return &provider.Error{Kind: provider.Kind(msg.FieldEmpty), Detail: msg.Say(field[0])}
		}
	}
	if reason := dnsname.Fault(c.recordName()); reason != "" {
		return &provider.Error{Kind: provider.Kind(msg.InvalidName), Detail: reason}
	}
	return nil
}

// serviceBody is a service as clients write it.
type serviceBody struct {
	ID     string       `json:"id"`
	Name   string       `json:"name"`
	Config secrets.JSON `json:"config"`
}

// service makes the service of a body. Masked secrets are still masked.
func (body serviceBody) service() service {
	v := service{ID: body.ID, Name: body.Name, Config: secrets.Secret(body.Config)}
	if json.Unmarshal(body.Config, &v.Config) != nil {
		var compact bytes.Buffer
		if json.Compact(&compact, body.Config) == nil {
			v.Config = secrets.Secret(compact.String())
		}
	}
	return v
}

// checked checks a body in the order of the contract, and makes the service of it.
func (body serviceBody) checked() (v service, err error) {
	v = body.service()
	if !goodServiceID(body.ID) {
		return v, envelope.Fail(msg.ServiceIDInvalid)
	}
	if body.Name == "" {
		return v, envelope.Fail(msg.ServiceNameEmpty)
	}
	if _, err := strictjson.Object([]byte(v.Config)); err != nil {
		fault := envelope.BodyFault(err)
		if e, ok := errors.AsType[*strictjson.Error](err); ok && e.Fault == strictjson.Empty {
			fault = envelope.Phrase{ID: msg.ConfigEmpty}
		}
		return v, envelope.Fail(msg.ServiceConfigShape, fault)
	}
	var typed struct {
		Provider        string         `json:"provider"`
		AccessKeyID     string         `json:"access_key_id"`
		AccessKeySecret secrets.Secret `json:"access_key_secret"`
		Endpoint        string         `json:"endpoint"`
		TXTEndpoints    []string       `json:"txt_endpoints"`
		Domain          string         `json:"domain"`
	}
	if err := strictjson.Decode([]byte(v.Config), &typed); err != nil {
		e, _ := errors.AsType[*strictjson.Error](err)
		return v, envelope.Fail(msg.ServiceEntryType, e.Field, envelope.TypeText[e.Want])
	}
	if config, _ := parseServiceConfig(v.Config); config.Domain != "" && dnsname.Fault(dnsname.Parse(config.Domain)) != "" {
		return v, envelope.Fail(msg.ServiceDomainInvalid, config.Domain)
	}
	return v, badEndpoints(anyNetwork, typed.TXTEndpoints)
}

// over gives the service as it replaces a stored one, whose secrets take the place of
// masks.
func (v service) over(stored service) (service, error) {
	config, used, err := secrets.RestoreMembers(string(v.Config), string(stored.Config))
	if err != nil || used && !sameAccount(v.Config, stored.Config) {
		return service{}, errNoSecret
	}
	v.Config = secrets.Secret(config)
	return v, nil
}

// sameAs reports whether a service is registered already as it is here.
func (v service) sameAs(stored service) bool {
	changed, err := v.over(stored)
	return err == nil && v.ID == stored.ID && v.Name == stored.Name &&
		strictjson.Equal([]byte(changed.Config), []byte(stored.Config))
}

// sameAccount reports whether two configs are for one account at one address:
// else a stored key could be sent to a stranger's.
func sameAccount(a, b secrets.Secret) bool {
	x, errX := parseServiceConfig(a)
	y, errY := parseServiceConfig(b)
	return errX == nil && errY == nil &&
		x.Provider == y.Provider && x.AccessKeyID == y.AccessKeyID &&
		provider.NormalEndpoint(x.Provider, x.Endpoint) == provider.NormalEndpoint(y.Provider, y.Endpoint)
}

// What the id of a service may be: it is a part of paths.
const (
	maxServiceID   = 128
	serviceIDRunes = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._~-"
)

func goodServiceID(id string) bool {
	return id != "" && len(id) <= maxServiceID && strings.Trim(id, serviceIDRunes) == "" && id != "." && id != ".."
}

// documented reports whether a document can have the service: its config is an object,
// which that of a row older than the checks need not be.
func (v service) documented() bool { return v.Domain.Valid }

// document is the service in a document, if that can have it.
func (v service) document() (d provision.Service, ok bool) {
	config := json.RawMessage(secrets.MaskMembers(string(v.Config)))
	return provision.Service{ID: v.ID, Name: v.Name, Config: config}, v.documented()
}

// serviceConfig is what the program reads in a service's config.
type serviceConfig struct {
	Domain, Provider, AccessKeyID, Endpoint string
	Secret                                  secrets.Secret
	Endpoints                               []string
}

// parseServiceConfig fails when text is not a JSON object. An entry of
// another type counts as absent: such rows may be older than the checks.
func parseServiceConfig(text secrets.Secret) (c serviceConfig, err error) {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return c, err
	}
	if entries == nil {
		return c, errors.New("config is null")
	}
	for name, text := range map[string]any{
		"domain": &c.Domain, "provider": &c.Provider, "access_key_id": &c.AccessKeyID,
		"access_key_secret": &c.Secret, "endpoint": &c.Endpoint,
	} {
		json.Unmarshal(entries[name], text)
	}
	if json.Unmarshal(entries["txt_endpoints"], &c.Endpoints) != nil {
		c.Endpoints = nil
	}
	return c, nil
}

func (c serviceConfig) account() reconcile.Account {
	return newAccount(c.Provider, c.Endpoint, c.AccessKeyID, c.Secret)
}

func (c configuration) account() reconcile.Account {
	return newAccount(c.Provider, c.Endpoint, c.AccessKeyID, c.Secret)
}

// checkOwner refuses what is no owner.
func checkOwner(owner string) error {
	if len(owner) != len(anyOwner) || strings.Trim(owner, "0123456789abcdef") != "" {
		return envelope.Fail(msg.OwnerInvalid)
	}
	return nil
}

// saveConfiguration checks a configuration and stores it. members are all that it
// was given with; what of it cannot work is told.
func (s *server) saveConfiguration(ctx context.Context, c configuration, members []string) ([]answers.Warning, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if err := s.store.PutConfiguration(ctx, c, c.Secret == secrets.Mask); err != nil {
		return nil, err
	}
	stored, err := s.store.Configuration(ctx)
	if errors.Is(err, errNoConfiguration) { // deleted since: it was stored all the same
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	warnings := s.configurationWarnings(stored, members)
	count, id, err := s.store.ServicesOutside(ctx, stored.Zone)
	if count > 0 {
		warnings = append(warnings, answers.Warning{ID: msg.WarnOutside, Args: []any{stored.Zone, count, id}})
	}
	return warnings, err
}

// forgetConfiguration deletes the configuration. What it has published is withdrawn first: it
// waits until that was tried, and reports whether nothing stands any more.
func (s *server) forgetConfiguration(ctx context.Context) (gone bool, err error) {
	c, err := s.store.Configuration(ctx)
	if err != nil {
		return false, err
	}
	waiter := s.engine.Expect(c.recordName())
	defer waiter.Close()
	version, err := s.store.DeleteConfiguration(ctx)
	if err != nil {
		return false, err
	}
	waiter.Wait(ctx, version)
	state, err := s.store.ledger.State(context.WithoutCancel(ctx), []string{c.recordName()})
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(state.Names[0].Places, func(p reconcile.Place) bool {
		value := cmp.Or(p.Standing, p.Doubt.Value)
		return p.State != reconcile.Withdrawn && value != "" && mesh.Network(value) == ""
	}), nil
}

// registerService checks and stores a new service, under a new id where it has none. It
// gives the service as it is stored, and what of it cannot work; with an error no more
// than an id that it could have had.
func (s *server) registerService(ctx context.Context, body serviceBody, members []string) (service, []answers.Warning, error) {
	if body.ID == "" {
		id, err := s.store.newID()
		if err != nil {
			return service{}, nil, err
		}
		body.ID = id
	}
	v, err := body.checked()
	if err != nil {
		return service{}, nil, err
	}
	if _, _, err := secrets.RestoreMembers(string(v.Config), "{}"); err != nil {
		return service{}, nil, err
	}
	if err := s.store.CreateService(ctx, v); err != nil {
		return service{ID: v.ID}, nil, err
	}
	return s.stored(ctx, v, members)
}

// replaceService is registerService for a service with an id, which may be there.
func (s *server) replaceService(ctx context.Context, body serviceBody, members []string) (service, []answers.Warning, error) {
	v, err := body.checked()
	if err != nil {
		return service{}, nil, err
	}
	if err := s.store.PutService(ctx, v.ID, v.over); err != nil {
		return service{}, nil, err
	}
	return s.stored(ctx, v, members)
}

// stored gives a service that was just stored. Somebody else may have deleted it since:
// it was stored all the same.
func (s *server) stored(ctx context.Context, saved service, members []string) (service, []answers.Warning, error) {
	v, err := s.store.Service(ctx, saved.ID)
	if errors.Is(err, errNoService) {
		v, err = saved, nil
		v.CreatedAt = sqlite.Shown(s.store.now())
		v.UpdatedAt = v.CreatedAt
	}
	if err != nil {
		return service{ID: saved.ID}, nil, err
	}
	warnings, err := s.serviceWarnings(ctx, v, members)
	return v, warnings, err
}

// configurationWarnings tell what of a configuration cannot work as it stands. members are all
// that it was given with.
func (s *server) configurationWarnings(c configuration, members []string) []answers.Warning {
	names := answers.WarnDomain(c.Domain)
	if names == nil {
		names = answers.WarnRecordName(c.recordName())
	}
	var numbers []answers.Warning
	retry := reconcile.RetryPolicy(c.RetryInterval, c.MaxRetries)
	if c.RetryInterval.V != 0 { // as nothing, 0 is the default
		numbers = answers.WarnNumber("retry_interval", c.RetryInterval.V, int64(retry.First/time.Second))
	}
	if c.MaxRetries.Valid {
		numbers = append(numbers, answers.WarnNumber("max_retries", c.MaxRetries.V, int64(retry.Retries))...)
	}
	return slices.Concat(answers.WarnMembers(members, answers.ConfigurationMembers), s.accountWarnings(c.account()), names,
		answers.WarnMode(c.SyncMode, syncModes), numbers, answers.WarnEnabled(members), answers.WarnEndpoints(c.Endpoints),
		answers.WarnAddresses(c.Endpoints, s.engine.Addresses().Last))
}

// accountWarnings tell why an account has no client.
func (s *server) accountWarnings(a reconcile.Account) []answers.Warning {
	if unknown := answers.WarnProvider(a.Provider, providerNames()); unknown != nil {
		return unknown
	}
	if _, err := s.clients.open(a); err != nil {
		return []answers.Warning{{ID: msg.WarnAccount, Args: []any{answers.Fault(reconcile.Describe(err, a))}}}
	}
	return nil
}

// serviceWarnings tell what of a stored service cannot work as it stands. members are
// those beside its config.
func (s *server) serviceWarnings(ctx context.Context, v service, members []string) ([]answers.Warning, error) {
	config, err := parseServiceConfig(v.Config)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(answers.WarnMembers(members, answers.ServiceMembers),
		answers.WarnMembers(strictjson.Names([]byte(v.Config)), answers.ServiceConfigMembers),
		answers.WarnAddresses(config.Endpoints, s.engine.Addresses().Last))
	beside, err := s.store.ServiceBeside(ctx, v)
	if err != nil {
		return nil, err
	}
	if beside != "" {
		all = append(all, answers.Warning{ID: msg.WarnSharedDomain, Args: []any{v.Zone, beside}})
	}
	if config.Provider != "" {
		all = append(all, s.accountWarnings(config.account())...)
	}
	global, err := s.store.Configuration(ctx)
	if err != nil && !errors.Is(err, errNoConfiguration) {
		return nil, err
	}
	switch {
	case v.Zone == "":
		all = append(all, answers.Warning{ID: msg.WarnNoDomain})
	case err != nil:
		all = append(all, answers.Warning{ID: msg.WarnNoConfig})
	case config.Provider == "" && !dnsname.Within(v.Zone, global.Zone):
		all = append(all, answers.Warning{ID: msg.WarnNoProvider, Args: []any{v.Zone, global.Zone}})
	default:
		all = append(all, answers.WarnEndpoints(slices.Concat(config.Endpoints, global.Endpoints))...)
	}
	return all, nil
}
