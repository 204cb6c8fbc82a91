package hostaddr

import (
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
)

// Sources are the sources of a book.
type Sources struct {
	IPv4, IPv6 Source
	Named      []Named
}

// Book has this host's public addresses. Only Watch looks them up; the other methods
// return the known addresses at once.
type Book struct {
	entries []*entry
	log     *slog.Logger
	ready   chan struct{}

	mu        sync.Mutex // guards what follows, and the entries
	last, now mesh.Addresses
	saved     mesh.Addresses // the last addresses that save has stored
	fault     daemon.Fault   // of storing them
}

// entry is one family of a source in the book.
type entry struct {
	name   string // of the -addr flag; "" of -ipv4 and -ipv6
	source Source

	last, now netip.Addr // the last known address, and what the last look found
	verdict   Verdict    // of what the last look saw, or else of the last known address
	note      msg.Text   // of the last look
	since     time.Time  // of the last change of last or verdict; at first the start
}

// The pauses bound the lookups, because the kernel may report changes continuously, as when containers start and stop.
const (
	lookPause = time.Second      // between lookups
	askPause  = 10 * time.Second // between lookups that ask a web service
)

// Save stores the last known addresses.
type Save func(ctx context.Context, last mesh.Addresses) error

// NewBook returns a book that starts with the last known addresses. It drops the last address of a source that
// is none or no longer there.
func NewBook(sources Sources, last mesh.Addresses, log *slog.Logger) *Book {
	b := &Book{log: log, ready: make(chan struct{}), saved: last}
	b.add("", sources.IPv4, IPv4, last.IPv4)
	b.add("", sources.IPv6, IPv6, last.IPv6)
	for _, n := range sources.Named {
		b.add(n.Name, n.IPv4, IPv4, last.Named[n.Name].IPv4)
		b.add(n.Name, n.IPv6, IPv6, last.Named[n.Name].IPv6)
	}
	b.collect()
	return b
}

func (b *Book) add(name string, s Source, f Family, last netip.Addr) {
	s.family = f // the zero Source has none
	if s.isNone() {
		last = netip.Addr{}
	}
	b.entries = append(b.entries, &entry{name: name, source: s, last: last, verdict: verdictOf(last), since: time.Now()})
}

// collect makes the addresses of the entries. The caller holds the lock, or is alone.
func (b *Book) collect() {
	b.last, b.now = mesh.Addresses{}, mesh.Addresses{}
	for _, e := range b.entries {
		e.put(&b.last, e.last)
		e.put(&b.now, e.now)
	}
}

func (e *entry) put(all *mesh.Addresses, a netip.Addr) {
	pair := mesh.Pair{IPv4: all.IPv4, IPv6: all.IPv6}
	if e.name != "" {
		pair = all.Named[e.name]
	}
	if e.source.family == IPv4 {
		pair.IPv4 = a
	} else {
		pair.IPv6 = a
	}
	if e.name == "" {
		all.IPv4, all.IPv6 = pair.IPv4, pair.IPv6
		return
	}
	if all.Named == nil {
		all.Named = map[string]mesh.Pair{}
	}
	all.Named[e.name] = pair
}

// Known returns the last known addresses, and those that the last lookups found.
func (b *Book) Known() (last, now mesh.Addresses) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.last, b.now
}

// Last returns the last known addresses.
func (b *Book) Last() mesh.Addresses {
	last, _ := b.Known()
	return last
}

// All returns the last known addresses of the sources without a name as a list.
func (b *Book) All() (all []netip.Addr) {
	last, _ := b.Known()
	for _, address := range []netip.Addr{last.IPv4, last.IPv6} {
		if address.IsValid() {
			all = append(all, address)
		}
	}
	return all
}

// Reachable reports whether one of the addresses of All is not private, loopback or link-local.
func (b *Book) Reachable() bool {
	return slices.ContainsFunc(b.All(), func(a netip.Addr) bool { return !mesh.Hidden(a) })
}

// Ready returns a channel that is closed after the first lookup.
func (b *Book) Ready() <-chan struct{} { return b.ready }

// Watch looks the addresses up until ctx ends: at start, at every interval,
// and when the kernel reports a change. It passes changed ones to save. Sources that ask a web service have a loop of their own, so that the others
// wait neither for an answer nor for the pause between questions.
func (b *Book) Watch(ctx context.Context, interval time.Duration, save Save) error {
	quick, asking := b.loop(lookPause), b.loop(askPause)
	for _, e := range b.entries {
		if e.source.asks() {
			asking.entries = append(asking.entries, e)
		} else {
			quick.entries = append(quick.entries, e)
		}
	}
	failed := make(chan error, 1)
	go func() {
		failed <- daemon.Call(func() error {
			return watchKernel(ctx, func() { quick.report(); asking.report() })
		})
	}()
	b.look(ctx, b.entries)
	b.keepSaved(ctx, save)
	close(b.ready)
	looked := make(chan struct{}, 1)
	var loops sync.WaitGroup
	defer loops.Wait()
	for _, l := range []*loop{quick, asking} {
		if len(l.entries) > 0 {
			loops.Go(func() { l.keep(ctx, interval, looked) })
		}
	}
	return b.keep(ctx, save, looked, failed)
}

// keep saves what the loops find, until ctx ends.
func (b *Book) keep(ctx context.Context, save Save, looked <-chan struct{}, failed <-chan error) error {
	for {
		select {
		case <-looked:
			b.keepSaved(ctx, save)
		case err := <-failed:
			if err == nil { // ctx has ended
				return nil
			}
			b.log.Warn("changes of addresses are seen at the next interval only", "error", err)
			failed = nil
		case <-ctx.Done():
			return nil
		}
	}
}

// loop looks some sources up, with a pause after each look.
type loop struct {
	book     *Book
	pause    time.Duration
	entries  []*entry
	reported chan struct{}
}

func (b *Book) loop(pause time.Duration) *loop {
	return &loop{book: b, pause: pause, reported: make(chan struct{}, 1)}
}

// report asks for a look.
func (l *loop) report() {
	select {
	case l.reported <- struct{}{}:
	default:
	}
}

// keep looks at every interval and after a reported change, and sends to looked after each look.
// Changes in the pause cause one look at its end.
func (l *loop) keep(ctx context.Context, interval time.Duration, looked chan<- struct{}) {
	tick := time.Tick(interval)
	for {
		select {
		case <-time.After(l.pause):
		case <-ctx.Done():
			return
		}
		select {
		case <-l.reported:
		case <-tick:
		case <-ctx.Done():
			return
		}
		l.book.look(ctx, l.entries)
		select {
		case looked <- struct{}{}:
		default: // a saving is due already
		}
	}
}

// look looks sources up, all at once. If it does not find an address, the last known one stays, so that
// a web service that is down, or a short time without a route, does not empty a record.
func (b *Book) look(ctx context.Context, entries []*entry) {
	found, faults := make([]finding, len(entries)), make([]error, len(entries))
	var looks sync.WaitGroup
	for i, e := range entries {
		looks.Go(func() {
			faults[i] = daemon.Call(func() (err error) {
				found[i], err = e.source.look(ctx)
				return err
			})
		})
	}
	looks.Wait()
	if ctx.Err() != nil {
		return
	}
	for i, e := range entries {
		b.record(e, found[i], faults[i])
	}
}

// record keeps the result of a look, and logs it if it is not like the one before.
func (b *Book) record(e *entry, f finding, err error) {
	message, level := "no public address", slog.LevelInfo
	switch {
	case err != nil:
		f.note, message, level = msg.TextOf(err), "look up public address", slog.LevelWarn
	case f.addr.IsValid():
		message, level = "private address", slog.LevelWarn
	case f.verdict != "":
		level = slog.LevelWarn
	}
	b.mu.Lock()
	told := e.note == f.note
	b.note(e, f)
	last := e.last
	b.mu.Unlock()
	if told || f.note == "" {
		return
	}
	attrs := []slog.Attr{slog.String("family", fmt.Sprintf("IPv%d", e.source.family)), slog.String("source", e.source.String()), slog.Any("reason", f.note)}
	if e.name != "" {
		attrs = append(attrs, slog.String("name", e.name))
	}
	if last.IsValid() {
		attrs = append(attrs, slog.Any("published", last))
	}
	b.log.LogAttrs(context.Background(), level, message, attrs...)
}

// note changes an entry after a look. The caller holds the lock.
func (b *Book) note(e *entry, f finding) {
	was := *e
	e.now, e.note = f.addr, f.note
	if f.addr.IsValid() {
		e.last = f.addr
	}
	if e.verdict = f.verdict; f.verdict == "" {
		e.verdict = verdictOf(e.last)
	}
	if e.last != was.last || e.verdict != was.verdict {
		e.since = time.Now()
	}
	b.collect()
}

// keepSaved saves the last known addresses if they have changed.
func (b *Book) keepSaved(ctx context.Context, save Save) {
	b.mu.Lock()
	last, saved := b.last, b.saved
	b.mu.Unlock()
	if ctx.Err() != nil || last.Equal(saved) {
		return
	}
	err := save(ctx, last)
	b.fault.Note(b.log, "public addresses are not stored: the next look tries again", err)
	if err != nil {
		return
	}
	attrs := []any{"ipv4", last.IPv4, "ipv6", last.IPv6}
	for _, name := range slices.Sorted(maps.Keys(last.Named)) {
		attrs = append(attrs, slog.Group(name, "ipv4", last.Named[name].IPv4, "ipv6", last.Named[name].IPv6))
	}
	b.log.Info("public addresses", attrs...)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.saved = last
}

// ShownSource is a source in an answer.
type ShownSource struct {
	Source  string  `json:"source"`
	IPv4    string  `json:"ipv4"`
	IPv6    string  `json:"ipv6"`
	Verdict Verdict `json:"verdict"`
	Since   string  `json:"since"`
	Error   string  `json:"error"`
}

// Sources returns the sources as answers show them: ipv4 and ipv6 of the flags of these names, then the named ones.
func (b *Book) Sources(language msg.Language) (all []ShownSource) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		name := e.row()
		at := slices.IndexFunc(all, func(s ShownSource) bool { return s.Source == name })
		if at < 0 {
			at = len(all)
			all = append(all, ShownSource{Source: name, Verdict: None})
		}
		e.addTo(&all[at], language)
	}
	return all
}

// row returns the source's name in an answer.
func (e *entry) row() string {
	if e.name != "" {
		return e.name
	}
	return e.source.family.member()
}

// member returns the family's name in an answer.
func (f Family) member() string {
	if f == IPv4 {
		return "ipv4"
	}
	return "ipv6"
}

// addTo adds a family to the row of its source. The row has the most telling verdict of its families, the time of
// the last change of one, and the errors of both.
func (e *entry) addTo(s *ShownSource, language msg.Language) {
	if e.last.IsValid() {
		address := &s.IPv4
		if e.source.family == IPv6 {
			address = &s.IPv6
		}
		*address = e.last.String()
	}
	if slices.Index(verdicts, e.verdict) < slices.Index(verdicts, s.Verdict) {
		s.Verdict = e.verdict
	}
	s.Since = max(s.Since, sqlite.Shown(e.since))
	switch note := secrets.ScrubLine(e.note.In(language), 400); {
	case note == s.Error: // both fail for one reason
	case s.Error != "" && note != "":
		s.Error += "; " + note
	case note != "":
		s.Error = note
	}
}

// Stored returns the addresses that Store stored last.
func Stored(ctx context.Context, q sqlite.Queryer) (a mesh.Addresses, err error) {
	type row struct {
		source string
		mesh.Pair
	}
	var ipv4, ipv6 string
	if err := q.QueryRowContext(ctx, `SELECT ipv4, ipv6 FROM appliance`).Scan(&ipv4, &ipv6); err != nil {
		return a, err
	}
	own := parsePair(ipv4, ipv6)
	a.IPv4, a.IPv6 = own.IPv4, own.IPv6
	rows, err := sqlite.Collect(ctx, q, func(s sqlite.Scanner) (r row, err error) {
		err = s.Scan(&r.source, &ipv4, &ipv6)
		r.Pair = parsePair(ipv4, ipv6)
		return r, err
	}, `SELECT source, ipv4, ipv6 FROM addresses`)
	for _, r := range rows {
		if a.Named == nil {
			a.Named = map[string]mesh.Pair{}
		}
		a.Named[r.source] = r.Pair
	}
	return a, err
}

// parsePair parses stored addresses; "" is none.
func parsePair(ipv4, ipv6 string) (p mesh.Pair) {
	p.IPv4, _ = netip.ParseAddr(ipv4)
	p.IPv6, _ = netip.ParseAddr(ipv6)
	return p
}

// Store replaces the stored addresses. A named source without an address has no row.
func Store(ctx context.Context, tx *sql.Tx, a mesh.Addresses) error {
	text := func(a netip.Addr) string {
		b, _ := a.MarshalText() // "" for none
		return string(b)
	}
	if _, err := tx.ExecContext(ctx, `UPDATE appliance SET ipv4 = ?, ipv6 = ? WHERE id = 1`, text(a.IPv4), text(a.IPv6)); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, `DELETE FROM addresses`); err != nil {
		return err
	}
	for name, p := range a.Named {
		if p == (mesh.Pair{}) {
			continue
		}
		if _, err := tx.ExecContext(ctx, `INSERT INTO addresses (source, ipv4, ipv6) VALUES (?, ?, ?)`, name, text(p.IPv4), text(p.IPv6)); err != nil {
			return err
		}
	}
	return nil
}
