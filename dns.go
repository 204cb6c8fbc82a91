package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/conntest"
	"meshddns/dnswire"
	"meshddns/meshtxt"
	"meshddns/metrics"
	"meshddns/msg"
	"meshddns/nameserver"
	"meshddns/provider"
)

// providers are what a configuration may name, in the order of the list that
// is shown, with the least TTL in seconds that a zone of the cheapest plan takes.
var providers = []struct {
	name   string
	minTTL uint32
	open   func(provider.Credentials) (provider.DNS, error) // nil for the one that needs none
}{
	{providerBuiltin, 0, nil},
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

const providerBuiltin = "builtin"

// target is where a record is published, and with what.
type target struct {
	provider, endpoint, accessKeyID string
	secret                          provider.Secret
}

// client makes the client of a target. There is no fallback: a provider that
// is not in the list is an error.
func (s *syncer) client(t target) (provider.DNS, error) {
	if t.provider == providerBuiltin {
		return builtin{store: s.store, address: s.dnsAddress}, nil
	}
	for _, p := range providers {
		if p.name == t.provider {
			return p.open(provider.Credentials{AccessKeyID: t.accessKeyID, AccessKeySecret: t.secret, Endpoint: t.endpoint})
		}
	}
	return nil, &provider.Error{Kind: provider.Kind(msg.UnknownProvider), Detail: strconv.Quote(t.provider)}
}

// serviceConfig is what the program reads in a service's config.
type serviceConfig struct {
	Domain, Provider, AccessKeyID, AccessKeySecret, Endpoint string
	Endpoints                                                []string
}

// parseServiceConfig fails when text is not a JSON object. An entry of
// another type counts as absent: such rows may be older than the checks.
func parseServiceConfig(text string) (c serviceConfig, err error) {
	var entries map[string]json.RawMessage
	if err := json.Unmarshal([]byte(text), &entries); err != nil {
		return c, err
	}
	if entries == nil {
		return c, errors.New("config is null")
	}
	for name, text := range map[string]*string{
		"domain": &c.Domain, "provider": &c.Provider, "access_key_id": &c.AccessKeyID,
		"access_key_secret": &c.AccessKeySecret, "endpoint": &c.Endpoint,
	} {
		json.Unmarshal(entries[name], text)
	}
	if json.Unmarshal(entries["txt_endpoints"], &c.Endpoints) != nil {
		c.Endpoints = nil
	}
	return c, nil
}

// newTarget makes a target. The built-in server uses nothing but its name, so
// nothing else tells two of its targets apart.
func newTarget(name, endpoint, accessKeyID, secret string) target {
	if name == providerBuiltin {
		return target{provider: name}
	}
	return target{name, endpoint, accessKeyID, provider.Secret(secret)}
}

func (c configuration) target() target {
	return newTarget(c.Provider, c.Endpoint, c.AccessKeyID, c.AccessKeySecret)
}

// target says where a service's records go: to its own provider, or to the
// configuration's when its domain is, or lies below, the configuration's.
func (c serviceConfig) target(configured *configuration) (t target, ok bool) {
	if c.Provider != "" {
		return newTarget(c.Provider, c.Endpoint, c.AccessKeyID, c.AccessKeySecret), true
	}
	if configured != nil && within(dnsName(c.Domain), dnsName(configured.Domain)) {
		return configured.target(), true
	}
	return target{}, false
}

// recordName is the name of the configuration's own record.
func (c configuration) recordName() string {
	if c.TXTRecordName == "@" {
		return dnsName(c.Domain)
	}
	return dnsName(c.TXTRecordName + "." + c.Domain)
}

// fault is a reason why a record is not as it should be: a code that has a
// text in each language, and the particulars.
type fault struct {
	code   msg.ID
	detail string
}

func (f fault) text(language msg.Language) string {
	switch {
	case f.code == "":
		return ""
	case f.detail == "":
		return f.code.In(language)
	}
	return f.code.In(language) + ": " + f.detail
}

// describe turns an error into a fault. A provider may repeat the secret in
// its words: here, where all of them come by, it is hidden.
func describe(err error, secret provider.Secret) fault {
	f := fault{msg.BadAnswer, err.Error()}
	if e, ok := errors.AsType[*provider.Error](err); ok {
		f = fault{msg.ID(e.Kind), strings.TrimPrefix(strings.TrimPrefix(e.Error(), string(e.Kind)), ": ")}
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, errInterrupted) {
		f.code = msg.Interrupted
	}
	f.detail = secret.Scrub(f.detail)
	return f
}

// record is one name at one target, and what is wanted there.
type record struct {
	name    string // lower case, no final dot
	domain  string // at or above the name, by which its zone is found
	target  target
	network *networkID   // nil for the configuration's record
	value   string       // "" to withdraw
	missing []string     // endpoints left out, for their address is not known
	stored  *publication // nil when nothing was published there
	moved   bool         // to withdraw here, for it is wanted at another target
	fault   fault        // known before the provider is asked
}

// desire works out every record from the stored state: what is wanted, and
// what stands somewhere and is wanted no more. It decides, and does nothing.
type desire struct {
	snapshot
	addresses meshtxt.Addresses
	records   map[string]*record // what is wanted, by name
	left      []*record          // wanted names that are not published: another network has them, or no provider does
	endpoints map[string][]string
	keys      []key
}

// desired gives every record that has to be looked at, by name.
func desired(snap snapshot, addresses meshtxt.Addresses) []*record {
	d := desire{snapshot: snap, addresses: addresses, records: map[string]*record{}, endpoints: map[string][]string{}, keys: snap.keys()}
	if c := snap.configuration; c != nil {
		d.want(&record{name: c.recordName(), domain: dnsName(c.Domain), target: c.target()}, c.Endpoints)
	}
	for _, u := range snap.usages {
		d.wantUsage(u)
	}
	for _, r := range d.records {
		d.finish(r)
	}
	all := slices.Collect(maps.Values(d.records))
	all = append(append(all, d.left...), d.unwanted()...)
	slices.SortFunc(all, func(a, b *record) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.target.provider, b.target.provider))
	})
	return all
}

func (d *desire) want(r *record, endpoints []string) {
	d.records[r.name], d.endpoints[r.name] = r, endpoints
}

// wantUsage adds a usage's record. The elder network has a name; of several
// usages of one network the newest decides.
func (d *desire) wantUsage(u usage) {
	if u.Network == nil || u.Status != statusActive || u.ServiceConfig == nil {
		return
	}
	config, err := parseServiceConfig(*u.ServiceConfig)
	if err != nil || config.Domain == "" {
		return
	}
	target, ok := config.target(d.configuration)
	r := &record{
		name:    dnsName(fullName(u.Prefix, config.Domain)),
		domain:  dnsName(config.Domain),
		target:  target,
		network: u.Network,
	}
	if !ok {
		r.fault = fault{code: msg.NoProvider}
		d.left = append(d.left, r)
		return
	}
	if holder := d.records[r.name]; holder != nil && (holder.network == nil || *holder.network != *r.network) {
		r.fault = fault{msg.NetworkConflict, holder.holder()}
		d.left = append(d.left, r)
		return
	}
	d.want(r, u.endpoints(config, d.configuration))
}

// holder names who has a name, for the one that does not get it.
func (r *record) holder() string {
	if r.network == nil {
		return "the configuration's record"
	}
	return "network " + r.networkText()
}

func (r *record) networkText() string {
	if r.network == nil {
		return ""
	}
	return strconv.FormatUint(uint64(*r.network), 10)
}

// endpoints are the usage's own, else its service's, else the configuration's.
func (u usage) endpoints(config serviceConfig, configured *configuration) []string {
	switch {
	case len(u.Endpoints) > 0:
		return u.Endpoints
	case len(config.Endpoints) > 0:
		return config.Endpoints
	case configured != nil:
		return configured.Endpoints
	}
	return nil
}

// finish gives a wanted record its value and what is known of it already.
func (d *desire) finish(r *record) {
	endpoints := d.endpoints[r.name]
	expanded, missing := meshtxt.Expand(endpoints, d.addresses)
	r.missing = missing
	r.value = meshtxt.Value(r.networkText(), d.owner, expanded)
	r.stored = d.publication(r.name, r.target)
	if err := meshtxt.Check(r.networkText(), d.owner, endpoints); err != nil {
		r.fault = fault{msg.Invalid, err.Error()}
	}
	if reason := nameFault(r.name); reason != "" {
		r.fault = fault{msg.InvalidName, reason}
	}
}

func (d *desire) publication(name string, t target) *publication {
	i, ok := slices.BinarySearchFunc(d.publications, publication{Name: name, Provider: t.provider, Endpoint: t.endpoint}, comparePublications)
	if !ok {
		return nil
	}
	return &d.publications[i]
}

func comparePublications(a, b publication) int {
	return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Provider, b.Provider), cmp.Compare(a.Endpoint, b.Endpoint))
}

// unwanted gives the records to withdraw: what is published and wanted no
// more, or wanted elsewhere.
func (d *desire) unwanted() []*record {
	var all []*record
	for i, p := range d.publications {
		if r := d.records[p.Name]; r != nil && r.target.provider == p.Provider && r.target.endpoint == p.Endpoint {
			continue
		}
		r := &record{name: p.Name, domain: p.Name, network: p.Network, stored: &d.publications[i], moved: d.records[p.Name] != nil}
		k, known := d.keyFor(p)
		if r.target = k.target; !known {
			r.fault = fault{msg.CredentialsGone, p.Provider}
		}
		if within(r.name, k.domain) {
			r.domain = k.domain
		}
		all = append(all, r)
	}
	return all
}

// keyFor finds credentials to withdraw with: the key that it was published
// with, else one for the same address whose domain is the nearest.
func (d *desire) keyFor(p publication) (found key, known bool) {
	found.target = target{provider: p.Provider, endpoint: p.Endpoint}
	best := -1
	for _, k := range d.keys {
		if k.target.provider != p.Provider || k.target.endpoint != p.Endpoint {
			continue
		}
		nearness := 0
		if within(p.Name, k.domain) {
			nearness = len(k.domain)
		}
		if k.target.accessKeyID == p.AccessKeyID {
			nearness += maxNameLength
		}
		if nearness > best {
			found, best = k, nearness
		}
	}
	return found, best >= 0
}

// key is a target at hand and the domain it is for.
type key struct {
	target target
	domain string
}

// keys are the configuration's, the services', and that of the built-in
// server, which needs none.
func (snap snapshot) keys() []key {
	all := []key{{target: target{provider: providerBuiltin}}}
	if c := snap.configuration; c != nil {
		all = append(all, key{c.target(), dnsName(c.Domain)})
	}
	for _, v := range snap.services {
		if config, err := parseServiceConfig(v.Config); err == nil && config.Provider != "" {
			t, _ := config.target(nil)
			all = append(all, key{t, v.Zone})
		}
	}
	return all
}

// Actions of a report.
const (
	actionCreate    = "create"
	actionUpdate    = "update"
	actionDelete    = "delete"
	actionUnchanged = "unchanged"
	actionConflict  = "conflict"
	actionFailed    = "failed"
	actionSkipped   = "skipped"
)

// outcome is what became of one record.
type outcome struct {
	name, action, value string
	network             *networkID  // that the value is for
	before              publication // what was known of the name before
	fault               fault
	attempts            int
	duration            time.Duration
}

func (o outcome) bad() bool { return o.action == actionFailed || o.action == actionConflict }

// report is what one synchronisation did.
type report struct {
	startedAt, finishedAt time.Time
	trigger               string
	outcomes              []outcome
	interrupted           bool // its caller has gone before the end
}

// bad counts the records that are not as wanted, and gives the first.
func (r report) bad() (count int, first outcome) {
	for _, o := range r.outcomes {
		if o.bad() {
			if count++; count == 1 {
				first = o
			}
		}
	}
	return count, first
}

// Why a synchronisation did not begin, or did not end.
var (
	errNotConfigured = errors.New("no configuration is stored")
	errDisabled      = errors.New("synchronisation is disabled")
	errInterrupted   = errors.New("interrupted")
)

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

// What begins a synchronisation.
const (
	triggerManual   = "manual"
	triggerStart    = "start"
	triggerChange   = "change"
	triggerAddress  = "address"
	triggerInterval = "interval"
)

const (
	debounce    = time.Second     // quiet time after a change before a synchronisation begins
	debounceMax = 5 * time.Second // but not longer than this
	parallel    = 4               // records of one zone, and zones, at a time
	recordTTL   = 60              // seconds: a changed address is seen soon
	maxRaces    = 10              // lost races for one name before it counts as a failure
)

// syncer keeps what is published true. One synchronisation runs at a time.
type syncer struct {
	store      *store
	log        *slog.Logger
	addresses  func(ctx context.Context) meshtxt.Addresses
	dnsAddress string // of the built-in DNS server, "" when it does not run
	interval   time.Duration
	public     conntest.Public // how the world sees the zones

	changes atomic.Uint64 // counts what may change the wanted records
	kick    chan string
	mu      sync.Mutex
	current *syncRun
	last    *report
	nextAt  time.Time
	runs    metrics.Counter
}

func newSyncer(s *store, log *slog.Logger, addresses func(context.Context) meshtxt.Addresses, dnsAddress string, interval time.Duration) *syncer {
	return &syncer{
		store: s, log: log, addresses: addresses, dnsAddress: dnsAddress, interval: interval,
		public: conntest.Internet,
		kick:   make(chan string, 1),
	}
}

// syncRun is a synchronisation under way. Its report may be read once done is
// closed.
type syncRun struct {
	done    chan struct{}
	cancel  context.CancelFunc // ends it before its next call
	waits   bool               // it may pause for long: it is in the background, nobody waits for it
	changes uint64             // how many changes it has seen at least
	whole   bool               // about all names
	report  report
	err     error
}

// Changed says that what is wanted may be something else now.
func (s *syncer) Changed(trigger string) {
	s.changes.Add(1)
	select {
	case s.kick <- trigger:
	default:
	}
}

// Last gives the last report about all names, nil when there was none, and
// the time of the next one, zero when none is planned.
func (s *syncer) Last() (*report, time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.nextAt
}

// Sync brings every name to its wanted state. While another caller's run that
// has seen every change until now is under way, its report is awaited instead.
func (s *syncer) Sync(ctx context.Context, trigger string) (report, error) {
	asked := s.changes.Load()
	for {
		r, ctx, mine := s.begin(ctx, trigger != triggerManual)
		if mine {
			defer s.end(r)
			r.whole = true
			r.report, r.err = s.synchronise(ctx, trigger, "")
			r.report.interrupted = ctx.Err() != nil
			return r.report, r.err
		}
		if !waitFor(ctx, r.done) {
			return report{}, errInterrupted
		}
		if r.whole && r.changes >= asked && !r.report.interrupted {
			return r.report, r.err
		}
	}
}

// Release withdraws what a usage has published and frees its prefix. It is
// not freed yet when the withdrawal fails or is not over in time; the next
// synchronisation tries again. Release waits for a synchronisation that is
// running: its plan may still publish the name.
func (s *syncer) Release(ctx context.Context, u usage) (freed bool, err error) {
	if err := s.store.BeginRelease(ctx, u.ID); err != nil {
		return false, err
	}
	s.changes.Add(1)
	for {
		r, ctx, mine := s.begin(ctx, false)
		if mine {
			defer s.end(r)
			return s.release(ctx, u)
		}
		if !waitFor(ctx, r.done) {
			return false, nil
		}
	}
}

func (s *syncer) release(ctx context.Context, u usage) (freed bool, err error) {
	published, err := s.store.Publications(ctx, u.recordName())
	if err != nil {
		return false, err
	}
	if slices.ContainsFunc(published, func(p publication) bool { return p.mayHold(u.Network) }) {
		_, err = s.synchronise(ctx, triggerManual, u.recordName())
	} else if err = s.store.DeleteUsage(ctx, u.ID); errors.Is(err, errNotFound) {
		err = nil // a synchronisation has freed it meanwhile
	}
	if err != nil && !errors.Is(err, errNotConfigured) && !errors.Is(err, errDisabled) {
		return false, err
	}
	_, err = s.store.Usage(ctx, u.ID)
	if errors.Is(err, errNotFound) {
		return true, nil
	}
	return false, err
}

func waitFor(ctx context.Context, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// begin gives the run that is under way, or a new one that is the caller's,
// with its context. A run in the background, which may pause for an hour, makes
// way for a caller that waits.
func (s *syncer) begin(ctx context.Context, background bool) (r *syncRun, _ context.Context, mine bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current != nil {
		if s.current.waits && !background {
			s.current.cancel()
		}
		return s.current, ctx, false
	}
	ctx, cancel := context.WithCancel(ctx)
	s.current = &syncRun{done: make(chan struct{}), cancel: cancel, waits: background, changes: s.changes.Load()}
	return s.current, ctx, true
}

func (s *syncer) end(r *syncRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current = nil
	r.cancel()
	if r.whole && r.err == nil {
		s.last = &r.report
		result := "ok"
		if bad, _ := r.report.bad(); bad > 0 {
			result = "failed"
		}
		s.runs.Add(metrics.Label{Name: "result", Value: result})
	}
	close(r.done)
}

// Preview reports what Sync would do and writes nothing.
func (s *syncer) Preview(ctx context.Context) (report, error) {
	started := time.Now()
	job, records, err := s.plan(ctx)
	if err != nil {
		return report{}, err
	}
	job.dry = true
	outcomes := job.do(ctx, records)
	return report{startedAt: started, finishedAt: time.Now(), trigger: triggerManual, outcomes: outcomes}, nil
}

// synchronise does the work of one run: for all names, or for one.
func (s *syncer) synchronise(ctx context.Context, trigger, name string) (report, error) {
	started := time.Now()
	job, records, err := s.plan(ctx)
	if err != nil {
		return report{}, err
	}
	if name != "" {
		records = slices.DeleteFunc(records, func(r *record) bool { return r.name != name })
	}
	outcomes := job.do(ctx, records)
	if err := s.freeReleased(ctx, job.snapshot, name, outcomes); err != nil {
		return report{}, err
	}
	r := report{startedAt: started, finishedAt: time.Now(), trigger: trigger, outcomes: outcomes}
	s.logReport(r)
	return r, nil
}

func (s *syncer) logReport(r report) {
	for _, o := range r.outcomes {
		if o.action == actionUnchanged {
			continue
		}
		level := slog.LevelInfo
		if o.bad() {
			level = slog.LevelWarn
		}
		s.log.Log(context.Background(), level, "record", "name", o.name, "action", o.action, "error", o.fault.text(msg.English), "attempts", o.attempts)
	}
	bad, _ := r.bad()
	s.log.Info("synchronised", "trigger", r.trigger, "records", len(r.outcomes), "failed", bad, "duration", r.finishedAt.Sub(r.startedAt))
}

func (s *syncer) plan(ctx context.Context) (*job, []*record, error) {
	snap, err := s.store.Snapshot(ctx)
	switch {
	case err != nil:
		return nil, nil, err
	case snap.configuration == nil:
		return nil, nil, errNotConfigured
	case !snap.configuration.Enabled:
		return nil, nil, errDisabled
	}
	records := desired(snap, s.addresses(ctx))
	return &job{syncer: s, snapshot: snap, retry: retryPolicy(*snap.configuration)}, records, nil
}

// freeReleased ends the usages that wait for the withdrawal of their value:
// those of whose network no value can stand at the name any more.
func (s *syncer) freeReleased(ctx context.Context, snap snapshot, only string, outcomes []outcome) error {
	for _, u := range snap.usages {
		if u.Status != statusReleasing || only != "" && u.recordName() != only || slices.ContainsFunc(outcomes, u.heldBy) {
			continue
		}
		if err := s.store.DeleteUsage(ctx, u.ID); err != nil && !errors.Is(err, errNotFound) {
			return err
		}
	}
	return nil
}

// heldBy reports whether an outcome keeps a released usage from being freed:
// the value of its network, which nobody else wants, may still be there.
func (u usage) heldBy(o outcome) bool {
	return o.bad() && o.name == u.recordName() && o.before.mayHold(u.Network) && !(o.value != "" && sameNetwork(o.network, u.Network))
}

// sameNetwork reports whether two bindings are to one network.
func sameNetwork(a, b *networkID) bool { return a != nil && b != nil && *a == *b }

// recordName is the name of a usage's record in lower case.
func (u usage) recordName() string {
	return dnsName(fullName(u.Prefix, u.domain()))
}

// domain is that of the usage's service, "" when there is none to be read.
func (u usage) domain() string {
	if u.ServiceConfig == nil {
		return ""
	}
	config, err := parseServiceConfig(*u.ServiceConfig)
	if err != nil {
		return ""
	}
	return config.Domain
}

// job is the part of a synchronisation that all its records share.
type job struct {
	*syncer
	snapshot
	retry provider.Backoff
	dry   bool
}

// do brings the records to their wanted state and gives the outcomes. A name
// that moves is withdrawn at its old target first: should both be one server
// under two addresses, the new value is the one that stays.
func (j *job) do(ctx context.Context, records []*record) []outcome {
	var moved, rest []*record
	for _, r := range records {
		if r.moved {
			moved = append(moved, r)
		} else {
			rest = append(rest, r)
		}
	}
	return append(j.doZones(ctx, moved), j.doZones(ctx, rest)...)
}

// doZones works zone by zone. The outcomes are in the order of the records.
func (j *job) doZones(ctx context.Context, records []*record) []outcome {
	type group struct {
		target target
		domain string
	}
	outcomes := make([]outcome, len(records))
	zones := map[group][]int{}
	for i, r := range records {
		g := group{r.target, r.domain}
		zones[g] = append(zones[g], i)
	}
	each(parallel, slices.Collect(maps.Values(zones)), func(members []int) {
		zone := &zonePlan{job: j}
		each(parallel, members, func(i int) {
			started := time.Now()
			outcomes[i] = zone.bring(ctx, records[i])
			outcomes[i].duration = time.Since(started)
		})
	})
	return slices.DeleteFunc(outcomes, func(o outcome) bool { return o.action == "" })
}

// each calls f for every item, a limited number at a time, and waits.
func each[T any](limit int, items []T, f func(T)) {
	var group sync.WaitGroup
	slots := make(chan struct{}, limit)
	for _, item := range items {
		slots <- struct{}{}
		group.Go(func() {
			f(item)
			<-slots
		})
	}
	group.Wait()
}

// zonePlan is the work in one zone: its client, its apex, and the fault that
// makes further calls pointless.
type zonePlan struct {
	*job
	open   sync.Once
	client provider.DNS
	apex   string
	mu     sync.Mutex
	down   *fault
	tries  int
}

// bring brings one record to its wanted state: it asks, commits the intent,
// writes, and commits the outcome. An empty outcome is one without news.
func (z *zonePlan) bring(ctx context.Context, r *record) outcome {
	o := outcome{name: r.name, value: r.value, network: r.network}
	if r.stored != nil {
		o.before = *r.stored
	}
	switch {
	case r.fault.code == msg.NetworkConflict:
		o.action, o.fault = actionConflict, r.fault
		return o
	case r.fault.code == msg.NoProvider:
		o.action, o.fault = actionSkipped, r.fault
		return o
	case r.value == "" && !r.stored.Written:
		o.fault = z.forget(ctx, r) // nothing was ever written there
		return o.failedIf()
	case r.fault.code == msg.CredentialsGone:
		o.action, o.fault = actionSkipped, r.fault
		return o
	case r.value == "" && z.configuration.mode() == modeUpsertOnly:
		o.action, o.fault = actionSkipped, fault{code: msg.DeletesForbidden}
		return o
	}
	if o.fault = r.fault; o.fault.code == "" {
		o.action, o.fault, o.attempts = z.attempt(ctx, r)
	}
	o = o.failedIf()
	if failure := z.keep(ctx, r, o); failure.code != "" {
		o.action, o.fault = actionFailed, failure
	}
	if o.fault.code == "" && len(r.missing) > 0 {
		o.fault = fault{msg.AddressUnknown, strings.Join(r.missing, " ")}
	}
	return o
}

// failedIf makes an outcome with a fault a failure or a conflict.
func (o outcome) failedIf() outcome {
	switch o.fault.code {
	case "":
	case msg.Conflict:
		o.action = actionConflict
	default:
		o.action = actionFailed
	}
	return o
}

// attempt makes the calls for one record, again after a transient failure.
func (z *zonePlan) attempt(ctx context.Context, r *record) (action string, f fault, attempts int) {
	if ctx.Err() != nil {
		return "", fault{code: msg.Interrupted}, 0
	}
	if down := z.prepare(ctx, r); down != nil {
		return "", *down, z.tries
	}
	first := ""
	attempts, err := z.retry.Do(ctx, func() (err error) {
		action, err = z.reconcile(ctx, r)
		first = cmp.Or(first, action)
		return err
	})
	if err == nil && action == actionUnchanged {
		action = first // made by an attempt whose answer was lost
	}
	if err == nil {
		return action, fault{}, attempts
	}
	f = describe(err, r.target.secret)
	if f.code == msg.Network {
		z.setDown(&f)
	}
	return "", f, attempts
}

// prepare finds the zone, once for all its records. A provider that cannot be
// reached is not asked again for each of them.
func (z *zonePlan) prepare(ctx context.Context, r *record) *fault {
	z.open.Do(func() {
		var err error
		if z.client, err = z.job.client(r.target); err == nil {
			z.tries, err = z.retry.Do(ctx, func() (err error) {
				z.apex, err = z.client.Zone(ctx, r.domain)
				return err
			})
		}
		if err != nil {
			f := describe(err, r.target.secret)
			z.setDown(&f)
		}
	})
	z.mu.Lock()
	defer z.mu.Unlock()
	return z.down
}

func (z *zonePlan) setDown(f *fault) {
	z.mu.Lock()
	defer z.mu.Unlock()
	z.down = f
}

// reconcile reads the name and makes the change that is needed. When another
// writer was faster it looks again.
func (z *zonePlan) reconcile(ctx context.Context, r *record) (action string, err error) {
	for range maxRaces {
		action, err = z.reconcileOnce(ctx, r)
		if provider.KindOf(err) != provider.Changed {
			break
		}
	}
	return action, err
}

func (z *zonePlan) reconcileOnce(ctx context.Context, r *record) (action string, err error) {
	seen, err := z.client.Read(ctx, z.apex, r.name)
	if r.value == "" && provider.KindOf(err) == provider.Conflict {
		return actionDelete, nil // beside an alias there is no value of ours any more
	}
	if err != nil {
		return "", err
	}
	change, action, err := planChange(seen, z.owner, r.value)
	if err != nil || action == actionUnchanged || z.dry {
		return action, err
	}
	change.Zone, change.Name = z.apex, r.name
	if err := z.intend(ctx, r); err != nil {
		return "", err
	}
	ctx, cancel := provider.WriteContext(ctx)
	defer cancel()
	return action, z.client.Change(ctx, change)
}

// planChange works out the change from the values seen to the wanted one.
func planChange(seen provider.RRset, owner, want string) (change provider.Change, action string, err error) {
	var texts []string
	for _, v := range seen.Values {
		texts = append(texts, v.Text())
	}
	plan := meshtxt.Reconcile(texts, owner, want)
	if plan.Conflict >= 0 {
		return change, "", &provider.Error{Kind: provider.Conflict, Detail: strconv.Quote(texts[plan.Conflict])}
	}
	for _, v := range seen.Off {
		if holder, mesh := meshtxt.Owner(v.Text()); mesh && (want != "" || holder == owner) {
			return change, "", &provider.Error{Kind: provider.Conflict, Detail: "disabled, or for some resolvers only: " + strconv.Quote(v.Text())}
		}
	}
	change = provider.Change{Seen: seen, TTL: recordTTL}
	if len(seen.Values) > len(plan.Remove) {
		change.TTL = seen.TTL // one TTL for a whole RRset (RFC 2181, section 5.2), and it is not ours alone
	}
	if plan.Add {
		change.Add = []provider.TXT{{want}}
	}
	for _, i := range plan.Remove {
		change.Remove = append(change.Remove, seen.Values[i])
	}
	switch {
	case !plan.Add && len(plan.Remove) == 0:
		action = actionUnchanged
	case want == "":
		action = actionDelete
	case len(plan.Remove) == 0:
		action = actionCreate
	default:
		action = actionUpdate
	}
	return change, action, nil
}

// intend commits what is about to be written, before it is.
func (z *zonePlan) intend(ctx context.Context, r *record) error {
	p := r.publication()
	p.State, p.Written = statePending, true
	if r.value == "" {
		p.State = stateWithdrawing
	}
	if r.stored != nil && r.stored.sameAs(p) {
		return nil
	}
	if err := z.store.SavePublication(ctx, p); err != nil {
		return &provider.Error{Kind: provider.Kind(msg.DatabaseDown), Err: err}
	}
	r.stored = &p
	return nil
}

// publication is the row of a record, as it was stored but for the wanted
// value and the news.
func (r *record) publication() publication {
	p := publication{
		Name: r.name, Provider: r.target.provider, Endpoint: r.target.endpoint, AccessKeyID: r.target.accessKeyID,
		Network: r.network, Value: r.value,
	}
	if r.stored == nil || !r.stored.Written {
		return p
	}
	p.Written, p.Held, p.AccessKeyID = true, r.stored.Held, r.stored.AccessKeyID
	if p.Held == nil && !sameNetwork(r.stored.Network, r.network) {
		p.Held = r.stored.Network
	}
	return p
}

// mayHold reports whether a value of the network may stand there.
func (p publication) mayHold(network *networkID) bool {
	return p.Written && (sameNetwork(p.Network, network) || sameNetwork(p.Held, network))
}

// sameAs reports whether two rows say the same, their time aside.
func (p publication) sameAs(q publication) bool {
	same := func(a, b *networkID) bool { return a == nil && b == nil || sameNetwork(a, b) }
	networks := same(p.Network, q.Network) && same(p.Held, q.Held)
	p.Network, p.Held, p.At, q.Network, q.Held, q.At = nil, nil, "", nil, nil, ""
	return networks && p == q
}

// keep commits the outcome, if it is any news.
func (z *zonePlan) keep(ctx context.Context, r *record, o outcome) fault {
	if z.dry || o.fault.code == msg.Interrupted {
		return fault{} // no news: what was known of the name stays known
	}
	if r.value == "" && !o.bad() {
		return z.forget(ctx, r)
	}
	p := r.publication()
	p.Code, p.Detail, p.Attempts = string(o.fault.code), o.fault.detail, o.attempts
	switch o.action {
	case actionConflict:
		p.State = stateConflict
	case actionFailed:
		p.State = stateFailed
		if r.value == "" {
			p.State = stateWithdrawing
		}
	default:
		p.State, p.Written, p.Held, p.AccessKeyID = statePublished, true, nil, r.target.accessKeyID
	}
	if o.action == actionUnchanged && r.stored != nil {
		p.Attempts = r.stored.Attempts // to read it again is no news
	}
	if r.stored != nil && r.stored.sameAs(p) {
		return fault{}
	}
	if err := z.store.SavePublication(ctx, p); err != nil {
		return fault{msg.DatabaseDown, err.Error()}
	}
	return fault{}
}

func (z *zonePlan) forget(ctx context.Context, r *record) fault {
	if z.dry {
		return fault{}
	}
	if err := z.store.DeletePublication(ctx, r.publication()); err != nil {
		return fault{msg.DatabaseDown, err.Error()}
	}
	return fault{}
}

const (
	defaultRetryInterval = 5 * time.Second
	maxRetryInterval     = time.Hour
	defaultRetries       = 3
	maxRetries           = 10
)

// retryPolicy is what the configuration says, within its bounds.
func retryPolicy(c configuration) provider.Backoff {
	b := provider.Backoff{First: defaultRetryInterval, Retries: defaultRetries}
	if n := c.RetryInterval; n != nil && *n > 0 {
		b.First = time.Duration(min(*n, int64(maxRetryInterval/time.Second))) * time.Second
	}
	if n := c.MaxRetries; n != nil && *n >= 0 {
		b.Retries = int(min(*n, maxRetries))
	}
	return b
}

// Loop synchronises by itself, in the modes that ask for it: at start, soon
// after a change, and at every interval, until ctx ends.
func (s *syncer) Loop(ctx context.Context) {
	trigger := triggerStart
	for ctx.Err() == nil {
		s.background(ctx, trigger)
		trigger = s.wait(ctx)
	}
}

func (s *syncer) background(ctx context.Context, trigger string) {
	c, err := s.store.Configuration(ctx)
	automatic := err == nil && c.Enabled && c.mode() != modeManual
	if automatic {
		_, err = s.Sync(ctx, trigger)
	}
	if err != nil && !errors.Is(err, errNotFound) && ctx.Err() == nil {
		s.log.Error("synchronise", "trigger", trigger, "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nextAt = time.Time{}
	if automatic {
		s.nextAt = time.Now().Add(s.interval)
	}
}

// wait ends at the next interval, or when changes have come and it has been
// quiet for a moment.
func (s *syncer) wait(ctx context.Context) (trigger string) {
	interval := time.NewTimer(s.interval)
	defer interval.Stop()
	select {
	case <-ctx.Done():
		return ""
	case <-interval.C:
		return triggerInterval
	case trigger = <-s.kick:
	}
	limit := time.NewTimer(debounceMax)
	defer limit.Stop()
	for {
		quiet := time.NewTimer(debounce)
		select {
		case <-s.kick:
			quiet.Stop()
			continue
		case <-quiet.C:
		case <-limit.C:
		case <-ctx.Done():
		}
		quiet.Stop()
		return trigger
	}
}

// builtin is the client of the built-in DNS server: its zones are in the same
// database.
type builtin struct {
	store     *store
	address   string // of the server, "" when it does not run
	candidate string // a zone that will be served once it is configured
}

func (b builtin) Authority(context.Context, string) (provider.Authority, error) {
	return provider.Authority{Server: b.address}, nil
}

func (b builtin) Zone(ctx context.Context, name string) (string, error) {
	if b.address == "" {
		return "", &provider.Error{Kind: provider.Kind(msg.NotListening)}
	}
	wire, err := dnswire.ParseName(name)
	if err != nil {
		return "", &provider.Error{Kind: provider.Invalid, Err: err}
	}
	zone, _, err := b.store.BuiltinZone(ctx, ancestors(wire.Fold()))
	if !errors.Is(err, errNotFound) {
		return zone, databaseFault(err)
	}
	if b.candidate != "" && within(foldName(name), b.candidate) {
		return b.candidate, nil
	}
	// What a zone that is served no more has left can still be withdrawn.
	if left, err := b.Read(ctx, "", name); err != nil || len(left.Values) > 0 {
		return foldName(name), err
	}
	return "", &provider.Error{Kind: provider.ZoneNotFound, Detail: "no configuration and no service has a domain at or above " + strconv.Quote(name)}
}

func (b builtin) Read(ctx context.Context, _, name string) (set provider.RRset, err error) {
	key, err := zoneKey(name)
	if err != nil {
		return set, err
	}
	records, err := b.store.ZoneRecords(ctx, key)
	if err != nil {
		return set, databaseFault(err)
	}
	for _, r := range records {
		value, err := dnswire.ParseTXT(r.Data)
		if err != nil {
			return set, databaseFault(err)
		}
		set.TTL, set.Values = r.TTL, append(set.Values, value)
	}
	return set, nil
}

func (b builtin) Change(ctx context.Context, c provider.Change) error {
	key, err := zoneKey(c.Name)
	if err != nil {
		return err
	}
	var add []zoneRecord
	for _, data := range rdata(c.Add) {
		add = append(add, zoneRecord{data, c.TTL})
	}
	if ctx.Err() != nil {
		return &provider.Error{Kind: provider.Network, Detail: "database", Err: ctx.Err()}
	}
	if len(c.Add) == 0 && len(c.Remove) == 0 {
		return nil
	}
	err = b.store.ChangeZoneRecords(ctx, key, rdata(c.Seen.Values), add, rdata(c.Remove))
	if errors.Is(err, errValuesChanged) {
		return &provider.Error{Kind: provider.Changed, Err: err}
	}
	return databaseFault(err)
}

func databaseFault(err error) error {
	if err == nil {
		return nil
	}
	return &provider.Error{Kind: provider.Temporary, Detail: "database", Err: err}
}

func rdata(values []provider.TXT) (data [][]byte) {
	for _, v := range values {
		data = append(data, dnswire.TXTData(v))
	}
	return data
}

// zoneKey gives a name as zone_records has it: folded, labels from the root.
func zoneKey(name string) (string, error) {
	wire, err := dnswire.ParseName(name)
	if err != nil {
		return "", &provider.Error{Kind: provider.Invalid, Err: err}
	}
	return wireKey(wire), nil
}

func wireKey(name dnswire.Name) string {
	var labels []string
	for n := name.Fold(); n != dnswire.Root; n = n.Parent() {
		labels = append(labels, strings.TrimSuffix(strings.TrimSuffix(n.String(), n.Parent().String()), "."))
	}
	slices.Reverse(labels)
	return strings.Join(labels, ".")
}

// zones is what the built-in DNS server answers from.
type zones struct {
	store     *store
	addresses func() []netip.Addr
}

func (z zones) Addresses(context.Context) []netip.Addr { return z.addresses() }

func (z zones) Zone(ctx context.Context, name dnswire.Name) (zone nameserver.Zone, ok bool, err error) {
	text, serial, err := z.store.BuiltinZone(ctx, ancestors(name))
	if errors.Is(err, errNotFound) {
		return zone, false, nil
	}
	if err != nil {
		return zone, false, err
	}
	apex, err := dnswire.ParseName(text)
	return nameserver.Zone{Apex: apex, Serial: serial}, err == nil, err
}

// ancestors are a name and all above it but the root, without the final dot.
func ancestors(name dnswire.Name) (names textList) {
	for ; name != dnswire.Root; name = name.Parent() {
		names = append(names, strings.TrimSuffix(name.String(), "."))
	}
	return names
}

func (z zones) Node(ctx context.Context, _, name dnswire.Name) (node nameserver.Node, err error) {
	key := wireKey(name)
	records, err := z.store.ZoneRecords(ctx, key)
	if err != nil {
		return node, err
	}
	for _, r := range records {
		node.TTL, node.TXT = r.TTL, append(node.TXT, r.Data)
	}
	if node.Exists = len(records) > 0; !node.Exists {
		node.Exists, err = z.store.ZoneHasBelow(ctx, key, strings.TrimSuffix(name.String(), "."))
	}
	return node, err
}

// testItem is the outcome of one step of a connection test.
type testItem struct {
	name        string
	ok, skipped bool
	fault       fault // beside ok a warning; beside skipped the reason, if it is not a failure before
	duration    time.Duration
}

// Test tries a target with a record name, and with write also a value at a
// name of its own, which is taken away again.
func (s *syncer) Test(ctx context.Context, t target, c configuration, write bool) []testItem {
	var client provider.DNS
	test := &conntest.Test{Public: s.public}
	test.Step("params", func() (err error) {
		if err := c.missing(); err != nil {
			return err
		}
		client, err = s.client(t)
		if b, ok := client.(builtin); ok {
			b.candidate = dnsName(c.Domain)
			client = b
		}
		return err
	})
	test.Connect(ctx, client, dnsName(c.Domain), c.recordName())
	if write {
		test.Write(ctx, client, dnsName(c.Domain), recordTTL)
	}
	var items []testItem
	for _, item := range test.Items {
		shown := testItem{name: item.Name, ok: item.Err == nil && !item.Skipped, skipped: item.Skipped, duration: item.Duration}
		if news := cmp.Or(item.Err, item.Warning); news != nil {
			shown.fault = describe(news, t.secret)
		}
		items = append(items, shown)
	}
	return items
}

// missing says which field of a configuration cannot be tried.
func (c configuration) missing() error {
	for _, field := range [][2]string{
		{"provider", c.Provider}, {"access_key_id", c.AccessKeyID}, {"access_key_secret", c.AccessKeySecret},
		{"domain", c.Domain}, {"txt_record_name", c.TXTRecordName},
	} {
		if field[1] == "" {
			return &provider.Error{Kind: provider.Kind(msg.FieldEmpty), Detail: field[0]}
		}
	}
	if reason := nameFault(c.recordName()); reason != "" {
		return &provider.Error{Kind: provider.Kind(msg.InvalidName), Detail: reason}
	}
	return nil
}
