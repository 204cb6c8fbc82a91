package builtin

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/dnsname"
	"meshddns/internal/dnswire"
	"meshddns/internal/metrics"
	"meshddns/internal/nameserver"
)

// Where there is more, the database answers.
const (
	maxNames  = 2_000_000
	maxOctets = 512 << 20
)

const (
	pageSize = 2000             // rows that are read at once: a change waits for so many at most
	retryIn  = 10 * time.Second // after a failure
)

var errTooMuch = errors.New("there is more than the cache may hold")

// Cache keeps all zones in memory, as they are in the database. They are read from
// there page by page, and what a commit changes is read again before its caller
// goes on. All reading is under one lock: in whatever order commits are made and
// read, the last reading of a name has seen the last commit that changed it.
type Cache struct {
	MaxNames int // where there are more, the database answers
	store    Store
	log      *slog.Logger
	again    chan time.Duration    // read everything once more, in so long
	complete atomic.Pointer[names] // zones, once everything has been read
	mu       sync.Mutex
	zones    *names // what has been read so far; nil: nothing is kept
	wire     []byte // of one name
	txt      []byte // of its records
}

// NewCache makes a cache that is empty until Run has read the zones.
func NewCache(store Store, log *slog.Logger) *Cache {
	return &Cache{MaxNames: maxNames, store: store, log: log, again: make(chan time.Duration, 1)}
}

// Run reads all zones, and again after the cache was given up or Reload was called, until ctx
// ends.
func (c *Cache) Run(ctx context.Context) error {
	defer c.drop()
	for {
		begun := time.Now()
		if err := c.build(ctx); err != nil && ctx.Err() == nil {
			c.giveUp(ctx, err)
		}
		if names, octets, complete := c.Size(); complete {
			c.log.InfoContext(ctx, "zones are in memory", "names", names, "octets", octets, "time", time.Since(begun))
		}
		var pause time.Duration
		select {
		case pause = <-c.again:
		case <-ctx.Done():
			return nil
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil
		}
	}
}

// Size gives the number of names with data, the octets of memory that they take,
// and whether these are all.
func (c *Cache) Size() (names, octets int, complete bool) {
	zones := c.complete.Load()
	if zones == nil {
		return 0, 0, false
	}
	names, octets = zones.Size()
	return names, octets, true
}

// WriteMetrics writes what is in memory.
func (c *Cache) WriteMetrics(page *metrics.Page) {
	names, octets, _ := c.Size()
	page.Family("meshddns_dns_cached_names", "gauge", "Names of the built-in zones in memory; 0 while the database answers.")
	page.Figure(uint64(names))
	page.Family("meshddns_dns_cached_bytes", "gauge", "Memory that they take.")
	page.Figure(uint64(octets))
}

// look gives what is at a name; ok is false when the cache does not know.
func (c *Cache) look(name, txt []byte) (found nameserver.Found, ok bool) {
	zones := c.complete.Load()
	if zones == nil {
		return found, false
	}
	at, ok := zones.Look(name, txt)
	return nameserver.Found(at), ok
}

// Reload has Run read all zones again: another program may have changed the database, which
// nothing tells this one. The database answers meanwhile.
func (c *Cache) Reload() {
	c.drop()
	c.readAll(0)
}

// readAll has Run read everything once more.
func (c *Cache) readAll(in time.Duration) {
	select {
	case c.again <- in:
	default:
	}
}

// giveUp lets the database answer. What was too much is not read again.
func (c *Cache) giveUp(ctx context.Context, err error) {
	c.drop()
	c.log.ErrorContext(ctx, "zones are not in memory, the database answers", "error", err)
	if !errors.Is(err, errTooMuch) {
		c.readAll(retryIn)
	}
}

func (c *Cache) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete.Store(nil)
	if c.zones != nil {
		c.zones.Free()
		c.zones = nil
	}
}

// build reads everything, unless the cache is given up meanwhile.
func (c *Cache) build(ctx context.Context) error {
	c.drop()
	c.mu.Lock()
	c.zones = newNames()
	c.mu.Unlock()
	// Zones come first: a change of records looks here for the zone that they are in.
	for _, read := range []func(ctx context.Context, after string) (string, error){c.zonesAfter, c.recordsAfter} {
		for after := ""; ; {
			last, err := read(ctx, after)
			if err != nil {
				return err
			}
			if last == "" {
				break
			}
			after = last
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete.Store(c.zones)
	return nil
}

// zonesAfter reads some zones after one, and gives the last of them.
func (c *Cache) zonesAfter(ctx context.Context, after string) (last string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zones == nil {
		return "", nil
	}
	zones, err := c.store.BuiltinZonesAfter(ctx, after, pageSize)
	if err != nil || len(zones) == 0 {
		return "", err
	}
	for _, z := range zones {
		if err := c.setZone(z, true); err != nil {
			return "", err
		}
	}
	return zones[len(zones)-1].Name, nil
}

// recordsAfter reads the records of some names after one, and gives the last of them.
func (c *Cache) recordsAfter(ctx context.Context, after string) (last string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zones == nil {
		return "", nil
	}
	name, ttl := "", uint32(0)
	c.txt = c.txt[:0]
	last, err = c.store.ZoneRecordsPage(ctx, after, pageSize, func(next, data string, nextTTL uint32) error {
		switch {
		case next < name:
			return fmt.Errorf("the records of %q come after those of %q", next, name)
		case next > name:
			if err := c.set(name, ttl); err != nil {
				return err
			}
			name, ttl, c.txt = next, nextTTL, c.txt[:0]
		}
		ttl = min(ttl, nextTTL)
		c.txt = append(binary.BigEndian.AppendUint16(c.txt, uint16(len(data))), data...)
		return nil
	})
	if err == nil {
		err = c.set(name, ttl)
	}
	return last, errors.Join(err, c.bounds())
}

// set makes c.txt the data of a name that begins at the root.
func (c *Cache) set(name string, ttl uint32) error {
	var ok bool
	if c.wire, ok = appendWire(c.wire[:0], name); !ok {
		return nil // no query can ask for it
	}
	return c.zones.Set(c.wire, ttl, c.txt)
}

func (c *Cache) setZone(z Zone, served bool) error {
	name, err := dnswire.ParseName(z.Name)
	if err != nil || textOf(name) != z.Name {
		return nil // no query can ask for it
	}
	return c.zones.SetZone([]byte(name), z.Serial, served)
}

func (c *Cache) bounds() error {
	if names, octets := c.zones.Size(); names > c.MaxNames || octets > maxOctets {
		return errTooMuch
	}
	return nil
}

// Changed reads again what a commit has changed: the records at some names, which
// begin at the root, and whether some names are zones. When it returns, that is
// what is answered.
func (c *Cache) Changed(ctx context.Context, records, zones []string) {
	ctx = context.WithoutCancel(ctx)
	if err := c.readAgain(ctx, records, zones); err != nil {
		c.giveUp(ctx, err)
	}
}

func (c *Cache) readAgain(ctx context.Context, names, zones []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zones == nil {
		return nil
	}
	records, err := c.store.ZoneRecords(ctx, names)
	if err != nil {
		return err
	}
	at := map[string][]Record{}
	for _, r := range records {
		at[r.Name] = append(at[r.Name], r)
	}
	touched := map[string]bool{} // zones whose serial is another one
	for _, name := range names {
		var ttl uint32
		ttl, c.txt = pack(at[name], c.txt[:0])
		if err := c.set(name, ttl); err != nil {
			return err
		}
		if found, _ := c.zones.Look(c.wire, nil); found.Apex > 0 {
			touched[string(c.wire[len(c.wire)-found.Apex:])] = true
		}
	}
	if err := c.readZones(ctx, touched, zones); err != nil {
		return err
	}
	return c.bounds()
}

// readZones reads the serials of zones, and which of some names are zones.
func (c *Cache) readZones(ctx context.Context, apexes map[string]bool, names []string) error {
	asked := map[string]bool{}
	for apex := range apexes {
		asked[textOf(dnswire.Name(apex))] = true
	}
	for _, name := range names {
		for at := range dnsname.Ancestors(name) {
			asked[at] = true
		}
	}
	zones, err := c.store.BuiltinZones(ctx, slices.Collect(maps.Keys(asked)))
	if err != nil {
		return err
	}
	for _, z := range zones {
		if err := c.setZone(z, true); err != nil {
			return err
		}
		delete(asked, z.Name)
	}
	for name := range asked {
		if err := c.setZone(Zone{Name: name}, false); err != nil {
			return err
		}
	}
	return nil
}

// appendWire gives a name that begins at the root in wire form; ok is false for
// what cannot be one.
func appendWire(wire []byte, key string) (name []byte, ok bool) {
	if strings.IndexByte(key, '\\') >= 0 {
		return appendEscaped(wire, key)
	}
	begin := len(wire)
	for rest, more := key, true; more; {
		var label string
		at := strings.LastIndexByte(rest, '.')
		if label, more = rest[at+1:], at >= 0; label == "" || len(label) > dnsname.MaxLabel {
			return wire, false
		}
		wire = append(append(wire, byte(len(label))), label...)
		rest = rest[:max(at, 0)]
	}
	wire = append(wire, 0)
	return wire, len(wire)-begin <= dnsname.MaxName+2
}

// appendEscaped is appendWire for a name with "\." or "\DDD" in a label.
func appendEscaped(wire []byte, key string) (name []byte, ok bool) {
	var labels []string
	for begin, at := 0, 0; at <= len(key); at++ {
		switch {
		case at == len(key) || key[at] == '.':
			labels = append([]string{key[begin:at]}, labels...)
			begin = at + 1
		case key[at] == '\\':
			at++ // what follows is of the label, also where it is a dot
		}
	}
	parsed, err := dnswire.ParseName(strings.Join(labels, "."))
	return append(wire, parsed...), err == nil && wireKey(parsed) == key
}
