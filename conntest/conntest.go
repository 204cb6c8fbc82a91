// Package conntest tries a DNS provider step by step, as far as a person needs
// it to see which of the settings is wrong.
package conntest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	mathrand "math/rand/v2"
	"slices"
	"time"

	"meshddns/dnswire"
	"meshddns/provider"
)

// Client is what a test calls; package main says what the calls promise.
type Client interface {
	Zone(ctx context.Context, name string) (zone string, err error)
	Read(ctx context.Context, zone, name string) (provider.RRset, error)
	Change(ctx context.Context, change provider.Change) error
	Authority(ctx context.Context, zone string) (server string, err error)
}

// Item is the outcome of one step.
type Item struct {
	Name     string
	Skipped  bool
	Err      error // nil when it went well, and when it was skipped
	Duration time.Duration
}

// Test collects the items. After the first failure later steps are skipped.
type Test struct {
	Items  []Item
	failed bool
}

// Step makes one step, or skips it.
func (t *Test) Step(name string, f func() error) {
	if t.failed {
		t.Items = append(t.Items, Item{Name: name, Skipped: true})
		return
	}
	started := time.Now()
	err := f()
	t.failed = err != nil
	t.Items = append(t.Items, Item{Name: name, Err: err, Duration: time.Since(started)})
}

// connectItems are the items that Connect fills, in their order.
var connectItems = []string{"network", "auth", "zone", "record"}

// Connect finds the zone, reads the record's name and tries a write that
// changes nothing. One call can fail on any of the four items, so the kind of
// the failure says which one it is.
func (t *Test) Connect(ctx context.Context, client Client, domain, name string) {
	var took [4]time.Duration
	var err error
	if !t.failed {
		took, err = connect(ctx, client, domain, name)
	}
	culprit := culpritItem(err)
	for i, item := range connectItems {
		t.Step(item, func() error {
			if i == culprit {
				return err
			}
			return nil
		})
		t.Items[len(t.Items)-1].Duration = took[i]
	}
}

func connect(ctx context.Context, client Client, domain, name string) (took [4]time.Duration, err error) {
	started := time.Now()
	zone, err := client.Zone(ctx, domain)
	took[0] = time.Since(started)
	if err != nil {
		return took, err
	}
	started = time.Now()
	seen, err := client.Read(ctx, zone, name)
	took[3] = time.Since(started)
	if err != nil {
		return took, err
	}
	started = time.Now()
	err = client.Change(ctx, provider.Change{Zone: zone, Name: name, Seen: seen})
	took[1] = time.Since(started)
	if provider.KindOf(err) == provider.Changed {
		err = nil // somebody else writes there: the key was accepted
	}
	return took, err
}

// culpritItem is the index of the item that a failure is about.
func culpritItem(err error) int {
	if err == nil {
		return -1
	}
	switch provider.KindOf(err) {
	case provider.BadCredentials, provider.Permission, provider.ClockSkew:
		return 1
	case provider.ZoneNotFound:
		return 2
	case provider.Conflict, provider.Invalid, provider.Quota:
		return 3
	}
	return 0
}

// ValueMissing is the kind of the failure that a value which was written is
// not there.
const ValueMissing provider.Kind = "value_missing"

// Write fills the items write, read, authoritative and cleanup with a value
// at a name of its own. Once something may have been written it is cleaned up,
// whatever else fails.
func (t *Test) Write(ctx context.Context, client Client, domain string, ttl uint32) {
	var random [8]byte
	rand.Read(random[:])
	mark := hex.EncodeToString(random[:])
	value := provider.TXT{"meshddns test " + mark}
	probe := provider.Change{Name: "_mesh-test-" + mark + "." + domain, Add: []provider.TXT{value}, TTL: ttl}
	written := false
	t.Step("write", func() (err error) {
		if probe.Zone, err = client.Zone(ctx, domain); err != nil {
			return err
		}
		written = true
		ctx, cancel := provider.WriteContext(ctx)
		defer cancel()
		return client.Change(ctx, probe)
	})
	t.Step("read", func() error {
		set, err := client.Read(ctx, probe.Zone, probe.Name)
		return see(set, value, err)
	})
	t.Step("authoritative", func() error {
		server, err := client.Authority(ctx, probe.Zone)
		if err != nil {
			return err
		}
		set, err := ask(ctx, server, probe.Name)
		return see(set, value, err)
	})
	t.failed = !written
	t.Step("cleanup", func() error {
		ctx, cancel := provider.WriteContext(ctx)
		defer cancel()
		seen, err := client.Read(ctx, probe.Zone, probe.Name)
		if err != nil {
			return err
		}
		return client.Change(ctx, provider.Change{Zone: probe.Zone, Name: probe.Name, Seen: seen, Remove: []provider.TXT{value}})
	})
}

func see(set provider.RRset, value provider.TXT, err error) error {
	if err == nil && !slices.ContainsFunc(set.Values, value.Equal) {
		return &provider.Error{Kind: ValueMissing}
	}
	return err
}

// ask asks an authoritative server for the TXT values at a name, as any
// resolver would.
func ask(ctx context.Context, server, name string) (set provider.RRset, err error) {
	wire, err := dnswire.ParseName(name)
	if err != nil {
		return set, &provider.Error{Kind: provider.Invalid, Err: err}
	}
	query := dnswire.Message{ID: uint16(mathrand.Uint32()), Questions: []dnswire.Question{{Name: wire, Type: dnswire.TypeTXT, Class: dnswire.ClassIN}}}
	data, err := dnswire.Exchange(ctx, server, query.Pack())
	if err != nil {
		return set, &provider.Error{Kind: provider.Network, Detail: "query " + name + " TXT at " + server, Err: err}
	}
	answer, err := dnswire.Parse(data)
	switch {
	case err != nil:
		return set, &provider.Error{Kind: provider.BadAnswer, Err: err}
	case !answer.Authoritative:
		return set, &provider.Error{Kind: provider.ZoneNotFound, Detail: server + " answers " + answer.Rcode.String() + " without authority"}
	}
	for _, rr := range answer.Answers {
		if value, err := dnswire.ParseTXT(rr.Data); err == nil && rr.Type == dnswire.TypeTXT && rr.Name.Fold() == wire.Fold() {
			set.TTL, set.Values = rr.TTL, append(set.Values, value)
		}
	}
	return set, nil
}
