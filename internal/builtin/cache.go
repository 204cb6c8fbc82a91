package builtin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/dns"
	"meshddns/internal/nameserver"
	"meshddns/internal/sqlite"
)

// Bounds of the cache. Beyond them the database answers.
const (
	maxNames  = 2_000_000
	maxOctets = 512 << 20
)

const (
	pageSize = 2000             // rows of one read: a change waits for one such read at most
	retryIn  = 10 * time.Second // pause after a failure
)

var errTooMuch = errors.New("there is more than the cache may hold")

// Cache keeps all zones of the database in memory. Run reads them page by page, and Committed
// reads the changes of a commit again before the caller of the commit goes on. All reading
// is under one lock. So in any order of commits and readings, the last reading of a name
// has seen the last commit that changed it.
type Cache struct {
	MaxNames int // beyond this number the database answers
	store    *Table
	log      *slog.Logger
	again    chan time.Duration    // Run reads everything again after this pause
	complete atomic.Pointer[names] // equal to zones once everything is read, else nil
	mu       sync.Mutex
	zones    *names // everything read so far; nil: the cache is given up
	wire     []byte // buffer of one name
	data     []byte // buffer of its records
}

// NewCache returns a cache that is empty until Run has read the zones.
func NewCache(store *Table, log *slog.Logger) *Cache {
	return &Cache{MaxNames: maxNames, store: store, log: log, again: make(chan time.Duration, 1)}
}

// Run reads all zones until ctx ends. It reads them again after the cache was given up or
// Reload was called.
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

// Size returns the number of names with data and the octets of memory that all names take,
// zero while the cache is not complete.
func (c *Cache) Size() (names, octets int, complete bool) {
	zones := c.complete.Load()
	if zones == nil {
		return 0, 0, false
	}
	names, octets = zones.Size()
	return names, octets, true
}

// WriteMetrics writes the cache's metrics.
func (c *Cache) WriteMetrics(page *daemon.Page) {
	names, octets, _ := c.Size()
	page.Single("meshddns_dns_cached_names", "gauge", "Names of the built-in zones in memory; 0 while the database answers.", uint64(names))
	page.Single("meshddns_dns_cached_bytes", "gauge", "Memory that they take.", uint64(octets))
}

// look returns the data at a name; ok is false if the cache is not complete.
func (c *Cache) look(name, buffer []byte) (found nameserver.Found, ok bool) {
	zones := c.complete.Load()
	if zones == nil {
		return found, false
	}
	return zones.Look(name, buffer)
}

// Reload makes Run read all zones again, because this program does not notice when another
// program changes the database. The database answers meanwhile.
func (c *Cache) Reload() {
	c.drop()
	c.readAll(0)
}

// readAll makes Run read everything again after a pause.
func (c *Cache) readAll(in time.Duration) {
	select {
	case c.again <- in:
	default:
	}
}

// giveUp drops the cache, so the database answers. Run reads everything again, except after
// errTooMuch.
func (c *Cache) giveUp(ctx context.Context, err error) {
	c.drop()
	c.log.ErrorContext(ctx, "zones are not in memory, the database answers", "error", err)
	if !errors.Is(err, errTooMuch) {
		c.readAll(retryIn)
	}
}

// drop frees the cache's memory.
func (c *Cache) drop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.complete.Store(nil)
	if c.zones != nil {
		c.zones.Free()
		c.zones = nil
	}
}

// build reads everything. If the cache is given up meanwhile, it ends without an error.
func (c *Cache) build(ctx context.Context) error {
	c.drop()
	c.mu.Lock()
	c.zones = newNames()
	c.mu.Unlock()
	// Zones come first: readAgain looks here for the zone of changed records.
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

// zonesAfter reads a page of zones after a name, and returns the last name.
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

// recordsAfter reads a page of records after a name, and returns the last name.
func (c *Cache) recordsAfter(ctx context.Context, after string) (last string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.zones == nil {
		return "", nil
	}
	name, ttl := "", uint32(0)
	c.data = c.data[:0]
	last, err = c.store.ZoneRecordsPage(ctx, after, pageSize, func(r Stored) error {
		switch {
		case r.Name < name:
			return fmt.Errorf("the records of %q come after those of %q", r.Name, name)
		case r.Name > name:
			if err := c.set(name, ttl); err != nil {
				return err
			}
			name, ttl, c.data = r.Name, r.TTL, c.data[:0]
		}
		c.data = appendRecord(c.data, r.Type, r.Data)
		return nil
	})
	if err == nil {
		err = c.set(name, ttl)
	}
	return last, errors.Join(err, c.bounds())
}

// set stores c.data as the data of a name that begins at the root.
func (c *Cache) set(name string, ttl uint32) error {
	var ok bool
	if c.wire, ok = appendWire(c.wire[:0], name); !ok {
		return nil // no query can ask for it
	}
	return c.zones.Set(c.wire, ttl, c.data)
}

// setZone makes a name a zone, or no zone if served is false.
func (c *Cache) setZone(z Zone, served bool) error {
	name, err := dns.ParseName(z.Name)
	if err != nil || name.Bare() != z.Name {
		return nil // no query can ask for it
	}
	return c.zones.SetZone([]byte(name), z.Serial, served)
}

// bounds returns errTooMuch if the cache is too large.
func (c *Cache) bounds() error {
	if names, octets := c.zones.Size(); names > c.MaxNames || octets > maxOctets {
		return errTooMuch
	}
	return nil
}

// Committed reads again what a commit has changed. After it the server answers with that.
func (c *Cache) Committed(n sqlite.Notice) {
	var all Changed
	for _, what := range n {
		if changed, ok := what.(Changed); ok {
			all.Records, all.Zones = append(all.Records, changed.Records...), append(all.Zones, changed.Zones...)
		}
	}
	if len(all.Records)+len(all.Zones) == 0 {
		return
	}
	ctx := context.Background()
	if err := c.readAgain(ctx, all.Records, all.Zones); err != nil {
		c.giveUp(ctx, err)
	}
}

// readAgain reads the records at some names, which begin at the root, and whether some names are zones.
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
	touched := map[string]bool{} // zones with a new serial
	for _, name := range names {
		var ttl uint32
		ttl, c.data = pack(at[name], c.data[:0])
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

// readZones reads the serials of zones, and which of some names, and of the names above
// them, are zones.
func (c *Cache) readZones(ctx context.Context, apexes map[string]bool, names []string) error {
	asked := map[string]bool{}
	for apex := range apexes {
		asked[dns.Name(apex).Bare()] = true
	}
	for _, name := range names {
		for at := range dns.Ancestors(name) {
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

// appendWire appends the wire form of a name that begins at the root; ok is false if it is
// not a valid name.
func appendWire(wire []byte, key string) (name []byte, ok bool) {
	if strings.IndexByte(key, '\\') >= 0 {
		return appendEscaped(wire, key)
	}
	begin := len(wire)
	for rest, more := key, true; more; {
		var label string
		at := strings.LastIndexByte(rest, '.')
		if label, more = rest[at+1:], at >= 0; label == "" || len(label) > dns.MaxLabel {
			return wire, false
		}
		wire = append(append(wire, byte(len(label))), label...)
		rest = rest[:max(at, 0)]
	}
	wire = append(wire, 0)
	return wire, len(wire)-begin <= dns.MaxName+2
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
			at++ // the next octet belongs to the label, even if it is a dot
		}
	}
	parsed, err := dns.ParseName(strings.Join(labels, "."))
	return append(wire, parsed...), err == nil && wireKey(parsed) == key
}
