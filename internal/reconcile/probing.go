// A probe tests a DNS provider step by step, so that a person sees which setting is wrong.

package reconcile

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"slices"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// ProbeItem is the outcome of one step.
type ProbeItem struct {
	Name     string
	Skipped  bool
	Err      error // nil after success; with Skipped the reason why the step has no result
	Warning  error // of a step that succeeded
	Duration time.Duration
}

// Probe runs the steps and collects their items. After the first failure it skips later steps.
type Probe struct {
	Public  Public
	Owner   string       // the mark of the value that Write writes
	Journal ProbeJournal // of Write
	Items   []ProbeItem
	failed  bool
}

// Step runs one step, or skips it after a failure.
func (t *Probe) Step(name string, f func() error) {
	if t.failed {
		t.Items = append(t.Items, ProbeItem{Name: name, Skipped: true})
		return
	}
	started := time.Now()
	err := f()
	unknown := provider.KindOf(err) == NoResolver
	t.failed = err != nil && !unknown
	t.Items = append(t.Items, ProbeItem{Name: name, Skipped: unknown, Err: err, Duration: time.Since(started)})
}

// connectItems are the items that Connect fills, in their order.
var connectItems = []string{"network", "auth", "zone", "record"}

// Connect finds the zone, reads the record's name and tries a write without a change. A
// call can fail for any of the four items, so the kind of the failure decides which item
// fails. A zone that is delegated elsewhere is a warning.
func (t *Probe) Connect(ctx context.Context, client provider.DNS, domain, name string) {
	var c probeConnection
	if !t.failed {
		c = t.connect(ctx, client, domain, name)
	}
	culprit := c.culprit()
	for i, item := range connectItems {
		t.Step(item, func() error {
			if i == culprit {
				return c.err
			}
			return nil
		})
		last := &t.Items[len(t.Items)-1]
		last.Duration = c.took[i]
		if item == "zone" && !last.Skipped && last.Err == nil {
			last.Warning = c.warning
		}
	}
}

// connection is the result of the calls of Connect.
type probeConnection struct {
	took         [4]time.Duration // by item
	zone         string           // "" if it was not found
	warning, err error
}

// connect makes the calls of Connect, until one fails.
func (t *Probe) connect(ctx context.Context, client provider.DNS, domain, name string) (c probeConnection) {
	var seen provider.RRset
	for _, call := range []struct {
		item int
		make func() error
	}{
		{0, func() error {
			zone, err := client.Zone(ctx, domain)
			if err == nil {
				c.zone = zone
			}
			return err
		}},
		{2, func() error { c.warning = t.Public.Warning(ctx, client, c.zone, domain); return nil }},
		{3, func() (err error) {
			if seen, err = client.Read(ctx, c.zone, name, provider.TXT); err != nil {
				return err
			}
			return delegated(ctx, client, c.zone, domain)
		}},
		{1, func() error {
			return mayWrite(ctx, client, provider.Change{Type: provider.TXT, Zone: c.zone, Name: name, Seen: seen})
		}},
	} {
		started := time.Now()
		c.err = call.make()
		c.took[call.item] = time.Since(started)
		if c.err != nil {
			return c
		}
	}
	return c
}

// delegated returns an error if NS records below the apex delegate the domain to other servers.
func delegated(ctx context.Context, client provider.DNS, zone, domain string) error {
	reader, ok := client.(provider.DelegationReader)
	if !ok {
		return nil
	}
	at, err := reader.Delegated(ctx, zone, domain)
	if err == nil && at != "" {
		err = provider.Delegated(at)
	}
	return err
}

// mayWrite makes an empty change. The failure Changed counts as success, because it means
// that the provider accepted the key and another program wrote meanwhile.
func mayWrite(ctx context.Context, client provider.DNS, nothing provider.Change) error {
	err := client.Change(ctx, nothing)
	if provider.KindOf(err) == provider.Changed {
		return nil
	}
	return err
}

// culprit returns the index of the item that the failure belongs to, -1 without a failure.
func (c probeConnection) culprit() int {
	switch provider.KindOf(c.err) {
	case "":
		return -1
	case provider.Network, provider.Temporary, provider.Throttled, provider.BadAnswer, provider.Changed:
		return 0
	case provider.BadCredentials, provider.Permission, provider.ClockSkew:
		return 1
	case provider.ZoneNotFound:
		return 2
	}
	if c.zone == "" {
		return 2
	}
	return 3
}

// Write fills the items write, read, authoritative and cleanup: it writes a probe, checks
// it and removes it. Once the probe may have been written, cleanup runs even after a
// failure. ttl is in seconds.
func (t *Probe) Write(ctx context.Context, client provider.DNS, domain string, ttl uint32) {
	probe := NewProbeRecord(t.Owner, domain)
	value := provider.Value{probe.Value}
	w := writing{client: client, probe: probe}
	begun := false
	t.Step("write", func() error {
		if err := w.probe.find(ctx, client); err != nil {
			return err
		}
		if _, err := client.Read(ctx, w.probe.Zone, probe.Name, provider.TXT); err != nil {
			return err // the domain has a DNAME: the server would take the probe, and not show it to be removed
		}
		if err := t.Journal.Add(ctx, w.probe); err != nil {
			return err
		}
		begun = true
		ctx, cancel := provider.WriteContext(ctx)
		defer cancel()
		w.err = client.Change(ctx, provider.Change{Type: provider.TXT, Zone: w.probe.Zone, Name: probe.Name, Add: []provider.Value{value}, TTL: ttl})
		return w.err
	})
	t.Step("read", func() error {
		set, err := client.Read(ctx, w.probe.Zone, probe.Name, provider.TXT)
		return see(set, value, err)
	})
	t.Step("authoritative", func() error {
		authority, err := client.Authority(ctx, w.probe.Zone)
		if err != nil {
			return err
		}
		return t.Public.sees(ctx, authority, w.probe.Zone, probe.Name, value)
	})
	t.failed = !begun
	t.Step("cleanup", func() error {
		ctx, cancel := provider.WriteContext(context.WithoutCancel(ctx)) // also after the end of ctx
		defer cancel()
		if err := w.cleanUp(ctx); err != nil || !w.over() {
			return err
		}
		return t.Journal.End(ctx, w.probe)
	})
}

// writing is a probe that was written, or may have been.
type writing struct {
	client provider.DNS
	probe  ProbeRecord
	err    error // of the write
	seen   bool  // the value was seen
}

// over reports whether the probe cannot appear any more after it was cleaned up. A write of
// unknown outcome may still be made.
func (w *writing) over() bool { return w.seen || w.err == nil || provider.Unmade(w.err) }

// cleanUp removes the value. If the provider has accepted the write and does not show the
// value yet, it waits for the value: otherwise the value would stand until the journal's
// owner removes it.
func (w *writing) cleanUp(ctx context.Context) error {
	again := time.Tick(askAgainAfter)
	var reason error
	for {
		err := w.remove(ctx)
		e, ok := errors.AsType[*provider.Error](err)
		if !ok || !e.Transient() && e.Kind != provider.BadAnswer { // the answer to a retry may be complete
			return err
		}
		if reason == nil || ctx.Err() == nil { // a time-out in a later try tells less
			reason = err
		}
		select {
		case <-again:
		case <-ctx.Done():
			return reason
		}
	}
}

// remove tries once to remove the value.
func (w *writing) remove(ctx context.Context) error {
	set, err := w.client.Read(ctx, w.probe.Zone, w.probe.Name, provider.TXT)
	if err != nil {
		return err
	}
	if len(set.Values) == 0 && !w.seen && errors.Is(w.err, provider.ErrUnseen) {
		return &provider.Error{Kind: provider.Temporary, Detail: msg.Say(w.probe.Name), Err: provider.ErrUnseen}
	}
	value := provider.Value{w.probe.Value}
	w.seen = w.seen || slices.ContainsFunc(set.Values, value.Equal)
	return w.client.Change(ctx, provider.Change{Type: provider.TXT, Zone: w.probe.Zone, Name: w.probe.Name, Seen: set, Remove: []provider.Value{value}})
}

// ProbeRecord is a probe: a value that is written only as a test.
type ProbeRecord struct {
	Zone, ZoneID string // as the provider's client found them
	Name         string
	Value        string // with the owner's mark, so a leftover is known to be ours
}

// NewProbeRecord returns a probe at a random name in a domain.
func NewProbeRecord(owner, domain string) ProbeRecord {
	var random [8]byte
	rand.Read(random[:])
	mark := hex.EncodeToString(random[:])
	return ProbeRecord{Name: "_mesh-test-" + mark + "." + domain, Value: mesh.Probe(owner, mark)}
}

// find finds the zone in which the probe is to stand.
func (p *ProbeRecord) find(ctx context.Context, client provider.DNS) (err error) {
	if p.Zone, err = client.Zone(ctx, dns.Parent(p.Name)); err != nil {
		return err
	}
	if identifier, ok := client.(provider.ZoneIdentifier); ok {
		p.ZoneID, err = identifier.ZoneID(ctx, p.Zone)
	}
	return err
}

// ProbeJournal stores each probe until it is known to be gone, also after the program was killed.
type ProbeJournal interface {
	Add(ctx context.Context, p ProbeRecord) error // is called before the write
	End(ctx context.Context, p ProbeRecord) error // is called once the probe is gone for good
}
