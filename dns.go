package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"meshddns/advice"
	"meshddns/answers"
	"meshddns/builtin"
	"meshddns/conntest"
	"meshddns/dnsname"
	"meshddns/hostaddr"
	"meshddns/ledger"
	"meshddns/meshtxt"
	"meshddns/msg"
	"meshddns/provider"
	"meshddns/reconcile"
	"meshddns/strictjson"
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

// syncModes are those that a configuration may have.
var syncModes = []string{modeManual, modeAuto, modeUpsertOnly}

// The members of a configuration and of a service's config, and those of the
// answers that hold them: GET, edit, PUT is to be quiet.
var (
	configurationMembers = []string{
		"provider", "access_key_id", "access_key_secret", "endpoint", "domain", "txt_record_name", "txt_endpoints",
		"sync_mode", "effective_sync_mode", "retry_interval", "max_retries", "enabled", "updated_at",
	}
	serviceMembers = []string{"id", "name", "config", "usage_count", "created_at", "updated_at", "warnings"}
	entryMembers   = []string{"domain", "provider", "access_key_id", "access_key_secret", "endpoint", "txt_endpoints"}
)

// configurationWarnings tell what of a configuration cannot work as it stands. members are all
// that it was given with.
func (s *server) configurationWarnings(c configuration, members []string) []advice.Warning {
	return slices.Concat(advice.Members(members, configurationMembers), advice.Provider(c.Provider, providerNames()),
		advice.Mode(c.SyncMode, syncModes), advice.Addresses(c.Endpoints, s.engine.Addresses().Last))
}

// serviceWarnings tell what of a stored service cannot work as it stands. members are
// those beside its config.
func (s *server) serviceWarnings(ctx context.Context, v service, members []string) ([]advice.Warning, error) {
	config, err := parseServiceConfig(v.Config)
	if err != nil {
		return nil, err
	}
	all := slices.Concat(advice.Members(members, serviceMembers), advice.Members(strictjson.Names([]byte(v.Config)), entryMembers),
		advice.Addresses(config.Endpoints, s.engine.Addresses().Last))
	if config.Provider != "" {
		return append(all, advice.Provider(config.Provider, providerNames())...), nil
	}
	global, err := s.store.Configuration(ctx)
	switch zone, domain := dnsname.Parse(config.Domain), dnsname.Parse(global.Domain); {
	case errors.Is(err, errNoConfiguration) || config.Domain == "":
		return all, nil
	case err == nil && !dnsname.Within(zone, domain):
		all = append(all, advice.Warning{ID: msg.WarnNoProvider, Args: []any{zone, domain}})
	}
	return all, err
}

func providerNames() (names []string) {
	for _, p := range providers {
		names = append(names, p.name)
	}
	return names
}

// newAccount makes an account. The built-in server uses nothing but its name, so
// nothing else tells two of its accounts apart.
func newAccount(name, endpoint, accessKeyID string, secret provider.Secret) reconcile.Account {
	if name == builtin.Name {
		return reconcile.Account{Provider: name}
	}
	return reconcile.Account{Provider: name, Endpoint: endpoint, AccessKeyID: accessKeyID, Secret: secret}
}

// clients opens the clients of accounts.
type clients struct {
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
	return nil, &provider.Error{Kind: reconcile.CodeUnknownProvider, Detail: strconv.Quote(a.Provider)}
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
	s.committed = e.Wake
	return e
}

// serviceConfig is what the program reads in a service's config.
type serviceConfig struct {
	Domain, Provider, AccessKeyID, Endpoint string
	Secret                                  provider.Secret
	Endpoints                               []string
}

// parseServiceConfig fails when text is not a JSON object. An entry of
// another type counts as absent: such rows may be older than the checks.
func parseServiceConfig(text provider.Secret) (c serviceConfig, err error) {
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

// recordName is the name of the configuration's own record.
func (c configuration) recordName() string {
	if c.TXTRecordName == "@" {
		return dnsname.Parse(c.Domain)
	}
	return dnsname.Parse(c.TXTRecordName + "." + c.Domain)
}

// Modes of synchronisation; every other text means manual.
const (
	modeManual     = "manual"
	modeAuto       = "auto"
	modeUpsertOnly = "upsert-only"
)

func (c configuration) mode() string {
	if c.SyncMode == modeAuto || c.SyncMode == modeUpsertOnly {
		return c.SyncMode
	}
	return modeManual
}

// publishing is how far a usage's record is.
type publishing struct {
	state, value string
	fault        reconcile.Fault
	attempts     int
	at           string
}

// stateNone is the state of a usage that has nowhere to be published.
const stateNone = "none"

// publishingOf works out how far a usage's record is, from what is stored of its
// name: what counts is the place where it is wanted, and what stands anywhere.
func publishingOf(u usage, n reconcile.Name, places []ledger.StoredPlace) publishing {
	p := publishing{state: stateNone}
	if !u.Network.Valid {
		return p
	}
	network := u.Network.V.String()
	for _, place := range places {
		if meshtxt.Network(place.Place.Standing) == network {
			p.value = cmp.Or(p.value, place.Place.Standing)
		}
	}
	for _, r := range reconcile.Desired(reconcile.State{Names: []reconcile.Name{n}}, reconcile.Addresses{}) {
		if r.Network != network {
			continue
		}
		switch {
		case r.Fault.Code == reconcile.CodeNoProvider:
			return publishing{state: stateNone}
		case r.Fault.Code == reconcile.CodeNetworkConflict:
			return publishing{state: reconcile.Conflict, fault: r.Fault}
		}
		p.state = cmp.Or(r.Place.State, p.state)
		p.fault, p.attempts = r.Place.Fault, r.Place.Attempts
		for _, place := range places {
			if place.Place.ID == r.Place.ID {
				p.at = place.At
			}
		}
		break
	}
	if u.Status == statusReleasing {
		p.state = reconcile.Withdrawing
	}
	return p
}

// testRecordTTL is in seconds.
const testRecordTTL = 60

// test tries a configuration, and with write also a value at a name of its own,
// which is taken away again.
func (c clients) test(ctx context.Context, public conntest.Public, conf configuration, write bool) []answers.TestItem {
	var client provider.DNS
	zone := dnsname.Parse(conf.Domain)
	test := &conntest.Test{Public: public}
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
	var items []answers.TestItem
	for _, item := range test.Items {
		shown := answers.TestItem{Name: item.Name, OK: item.Err == nil && !item.Skipped, Skipped: item.Skipped, Duration: item.Duration}
		if news := cmp.Or(item.Err, item.Warning); news != nil {
			shown.Fault = reconcile.Describe(news, conf.Secret)
		}
		items = append(items, shown)
	}
	return items
}

// missing says which field of a configuration cannot be tried.
func (c configuration) missing() error {
	for _, field := range [][2]string{
		{"provider", c.Provider}, {"access_key_id", c.AccessKeyID}, {"access_key_secret", string(c.Secret)},
		{"domain", c.Domain}, {"txt_record_name", c.TXTRecordName},
	} {
		if field[1] == "" {
			return &provider.Error{Kind: provider.Kind(msg.FieldEmpty), Detail: field[0]}
		}
	}
	if reason := dnsname.Fault(c.recordName()); reason != "" {
		return &provider.Error{Kind: provider.Kind(msg.InvalidName), Detail: reason}
	}
	return nil
}
