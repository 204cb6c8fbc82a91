package promises

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/test/servertest"
)

// dnsVendor stands in for a provider that obeys the test: zones in memory, which
// keys reach, and calls that it may hold, fail, or answer with what is not true
// any more.
type dnsVendor struct {
	mu      sync.Mutex
	zones   map[string][]string // the zones that a key reaches; one of another id after a space
	values  map[[2]string][]provider.Value
	history []string // of the changes that were made
	calls   []dnsCall
	before  func(ctx context.Context, c dnsCall) error // a failure is the call's
	stale   map[string]int                             // reads of a name that show nothing
	tokens  bool                                       // a key is its id, a colon and its secret
	noIDs   bool                                       // its zones have none
}

// dnsCall is a call of a provider.
type dnsCall struct {
	what, key, zone, name string
	change                provider.Change
}

// vendor registers a stand-in with a zone that the key "key" reaches.
func (h *host) vendor(name string) *dnsVendor {
	v := &dnsVendor{
		zones: map[string][]string{"key": {servertest.Zone}}, values: map[[2]string][]provider.Value{}, stale: map[string]int{},
		before: func(context.Context, dnsCall) error { return nil },
	}
	h.vendors[name] = v
	return v
}

// newVendorHost makes an appliance that publishes at a stand-in.
func (suite Suite) newVendorHost(t testing.TB) (*host, *dnsVendor) {
	t.Helper()
	h := suite.openHost(t, filepath.Join(t.TempDir(), "meshddns.db"), dnsBuiltinServer)
	v := h.vendor("vendor")
	h.configure(dnsVendorConfiguration("vendor"))
	return h, v
}

func dnsVendorConfiguration(name string) members {
	c := dnsConfiguration(servertest.Server{})
	c["provider"], c["access_key_id"], c["access_key_secret"] = name, "key", "secret"
	return c
}

// dnsVendorClient is the client of a key.
type dnsVendorClient struct {
	v   *dnsVendor
	key string
}

func (v *dnsVendor) open(a reconcile.Account) provider.DNS {
	if v.tokens {
		return dnsVendorClient{v, a.AccessKeyID + ":" + string(a.Secret)}
	}
	return dnsVendorClient{v, a.AccessKeyID}
}

func (c dnsVendorClient) call(ctx context.Context, call dnsCall) error {
	call.key = c.key
	c.v.mu.Lock()
	c.v.calls = append(c.v.calls, call)
	before := c.v.before
	c.v.mu.Unlock()
	return before(ctx, call)
}

// id tells a zone by, for the key.
func (c dnsVendorClient) id(zone string) string {
	for _, z := range c.v.zones[c.key] {
		if name, _, _ := strings.Cut(z, " "); name == zone {
			return z
		}
	}
	return ""
}

func (c dnsVendorClient) ZoneID(_ context.Context, zone string) (string, error) {
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	if c.v.noIDs {
		return "", nil
	}
	return c.id(zone), nil
}

func (c dnsVendorClient) Zone(ctx context.Context, name string) (zone string, err error) {
	if err := c.call(ctx, dnsCall{what: "zone", name: name}); err != nil {
		return "", err
	}
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	for _, z := range c.v.zones[c.key] {
		if z, _, _ := strings.Cut(z, " "); dns.Within(name, z) && len(z) > len(zone) {
			zone = z
		}
	}
	if zone == "" {
		return "", &provider.Error{Kind: provider.ZoneNotFound, Detail: msg.Text(name)}
	}
	return zone, nil
}

// Types returns all types.
func (c dnsVendorClient) Types() []provider.Type {
	return []provider.Type{provider.TXT, provider.A, provider.AAAA, provider.SRV}
}

// at is the place of the values of a type in a zone with an id.
func at(id, name string, t provider.Type) [2]string {
	if t == provider.TXT {
		return [2]string{id, name}
	}
	return [2]string{id, name + " " + string(t)}
}

func (c dnsVendorClient) Read(ctx context.Context, zone, name string, t provider.Type) (provider.RRset, error) {
	if err := c.call(ctx, dnsCall{what: "read", zone: zone, name: name}); err != nil {
		return provider.RRset{}, err
	}
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	id := c.id(zone)
	if id == "" {
		return provider.RRset{}, &provider.Error{Kind: provider.ZoneNotFound, Detail: msg.Text(zone)}
	}
	if c.v.stale[name]--; c.v.stale[name] >= 0 {
		return provider.RRset{}, nil
	}
	return dnsSet(c.v.values[at(id, name, t)]), nil
}

// dnsSet is a set of values; the second of two equal ones is a copy.
func dnsSet(values []provider.Value) (set provider.RRset) {
	set.TTL = 60
	for _, v := range values {
		if slices.ContainsFunc(set.Values, v.Equal) {
			set.Copies = append(set.Copies, v)
		} else {
			set.Values = append(set.Values, v)
		}
	}
	return set
}

// ReadAll lists a zone.
func (c dnsVendorClient) ReadAll(ctx context.Context, zone string, wanted provider.Wanted) (map[string]provider.RRset, error) {
	if err := c.call(ctx, dnsCall{what: "list", zone: zone}); err != nil {
		return nil, err
	}
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	all := map[string]provider.RRset{}
	for at, values := range c.v.values {
		is := func(v provider.Value) bool { return wanted(at[1], v) }
		if at[0] == c.id(zone) && len(values) > 0 && (wanted(at[1], nil) || slices.ContainsFunc(values, is)) {
			all[at[1]] = dnsSet(values)
		}
	}
	return all, nil
}

func (c dnsVendorClient) Change(ctx context.Context, change provider.Change) error {
	if err := c.call(ctx, dnsCall{what: "change", zone: change.Zone, name: change.Name, change: change}); err != nil {
		return err
	}
	c.v.mu.Lock()
	defer c.v.mu.Unlock()
	return c.v.make(c.id(change.Zone), change)
}

// make makes a change in the zone with an id. The lock is held.
func (v *dnsVendor) make(id string, change provider.Change) error {
	if id == "" {
		return &provider.Error{Kind: provider.ZoneNotFound, Detail: msg.Text(change.Zone)}
	}
	at := at(id, change.Name, change.Type)
	values := slices.Clone(v.values[at])
	for _, value := range change.Copies {
		values = slices.DeleteFunc(values, value.Equal)
		values = append(values, value)
	}
	for _, value := range change.Add {
		if !slices.ContainsFunc(values, value.Equal) {
			values = append(values, value)
		}
		v.history = append(v.history, "+ "+id+" "+change.Name)
	}
	for _, value := range change.Remove {
		values = slices.DeleteFunc(values, value.Equal)
		v.history = append(v.history, "- "+id+" "+change.Name)
	}
	v.values[at] = values
	return nil
}

// Authority knows nobody to ask.
func (c dnsVendorClient) Authority(context.Context, string) (provider.Authority, error) {
	return provider.Authority{}, nil
}

// fails makes the calls fail from now on for which it gives a failure.
func (v *dnsVendor) fails(before func(ctx context.Context, c dnsCall) error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.before = before
}

// works makes no call fail any more.
func (v *dnsVendor) works() { v.fails(func(context.Context, dnsCall) error { return nil }) }

// dnsFault is a failure of a kind for the calls of a kind, or for all.
func dnsFault(kind provider.Kind, calls ...string) func(context.Context, dnsCall) error {
	return func(_ context.Context, c dnsCall) error {
		if len(calls) > 0 && !slices.Contains(calls, c.what) {
			return nil
		}
		e := &provider.Error{Kind: kind, Detail: msg.Text(c.what)}
		e.Unmade = !e.Transient() // a refusal is certain
		return e
	}
}

// holds stops the calls of a kind for a name, until the channel is closed.
func (v *dnsVendor) holds(what, name string) (arrived <-chan struct{}, open func()) {
	came, opened := make(chan struct{}, 100), make(chan struct{})
	v.fails(func(_ context.Context, c dnsCall) error {
		if c.what == what && c.name == name {
			came <- struct{}{}
			<-opened
		}
		return nil
	})
	return came, sync.OnceFunc(func() { close(opened) })
}

// put lets a value appear that nobody here has written.
func (v *dnsVendor) put(zone, name string, value provider.Value) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := [2]string{zone, name}
	v.values[at] = append(v.values[at], value)
}

// remove takes values of somebody else away.
func (v *dnsVendor) remove(zone, name, value string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	at := [2]string{zone, name}
	v.values[at] = slices.DeleteFunc(v.values[at], func(stands provider.Value) bool { return stands.Text() == value })
}

// at gives what stands at a name in a zone.
func (v *dnsVendor) at(zone, name string) (values []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, value := range v.values[[2]string{zone, name}] {
		values = append(values, value.Text())
	}
	return values
}

func (v *dnsVendor) want(t testing.TB, zone, name string, want ...string) {
	t.Helper()
	if got := v.at(zone, name); !slices.Equal(got, want) {
		t.Errorf("%s in %s has %q, want %q", name, zone, got, want)
	}
}

// called counts the calls of a kind.
func (v *dnsVendor) called(what string) (n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.calls {
		if c.what == what {
			n++
		}
	}
	return n
}
