package secondary

import (
	"cmp"
	"context"
	"database/sql"
	"iter"
	"net/netip"
	"slices"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/resource"
	"meshddns/internal/sqlite"
)

// Check refuses an entry of a provisioning file, as Put refuses the same body.
var Check = resource.Check[Secondary]

// Refusals of Table.
const (
	ErrUnknown      = sqlite.Refusal(msg.UnknownSecondary)
	ErrTooMany      = sqlite.Refusal(msg.TooManySecondaries)
	ErrSecretMasked = sqlite.Refusal(msg.SecondarySecretMasked)
	ErrKeyDiffers   = sqlite.Refusal(msg.SecondaryKeyDiffers)
)

// Table is the stored secondaries, with a copy in memory for the DNS server, and what is known of their zones.
type Table struct {
	*resource.Table[Secondary]
	wake chan struct{} // a message may be due
}

// NewTable returns the secondaries of a database. Refresh reads the copy in memory; a secondary that is not in it may
// transfer nothing.
func NewTable(db *sqlite.Database) *Table {
	t := &Table{wake: make(chan struct{}, 1)}
	t.Table = resource.New(db, resource.Kind[Secondary]{
		Most: MaxSecondaries, Shown: shown{}, Unknown: ErrUnknown, TooMany: ErrTooMany,
		Saved: msg.SecondarySaved, Deleted: msg.SecondaryDeleted,
		ID:     func(s *Secondary) *string { return &s.ID },
		Select: `SELECT id, address, key_name, key_secret, key_algorithm, zones, ranges, notify FROM secondaries ORDER BY id`,
		Scan:   t.scan, Store: t.store, Delete: `DELETE FROM secondaries WHERE id = ?`,
		Carry: func(now, before *Secondary) {
			if now.follower = newFollower(); before != nil && before.at == now.at {
				now.follower = before.follower
			}
		},
	})
	return t
}

func (t *Table) scan(row sqlite.Scanner) (s Secondary, err error) {
	if err = row.Scan(&s.ID, &s.Address, &s.KeyName, t.DB.Key.Open((*string)(&s.Secret), "secondaries", &s.ID, "key_secret"), &s.Algorithm, (*sqlite.TextList)(&s.Zones), (*sqlite.TextList)(&s.From), &s.Notify); err != nil {
		return s, err
	}
	s.Zones = append([]string{}, s.Zones...)
	s.at, err = netip.ParseAddrPort(s.Address)
	if err = cmp.Or(err, s.readRanges()); err != nil {
		return s, err
	}
	return s.withKey()
}

// store stores a secondary. Secondaries whose keys have one name have one key, and ask from different ranges.
func (t *Table) store(ctx context.Context, tx *sql.Tx, s, _ Secondary, all []Secondary) (Secondary, error) {
	for _, o := range all {
		switch {
		case o.ID == s.ID || s.KeyName == "" || o.key.Name != s.key.Name:
		case o.Secret != s.Secret || o.Algorithm != s.Algorithm:
			return s, ErrKeyDiffers
		case s.asksFrom(o.at.Addr()), o.asksFrom(s.at.Addr()),
			slices.ContainsFunc(s.ranges, func(r netip.Prefix) bool { return slices.ContainsFunc(o.ranges, r.Overlaps) }):
			return s, msg.Refuse(msg.SecondaryFromShared, o.ID)
		}
	}
	_, err := tx.ExecContext(ctx, `REPLACE INTO secondaries (id, address, key_name, key_secret, key_algorithm, zones, ranges, notify) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		s.ID, s.Address, s.KeyName, t.DB.Key.Seal(string(s.Secret), "secondaries", s.ID, "key_secret"), s.Algorithm, sqlite.TextList(s.Zones), sqlite.TextList(s.From), s.Notify)
	return s, err
}

// Any reports whether there is a secondary.
func (t *Table) Any() bool { return len(t.Known()) > 0 }

// Moved makes messages about the new serial of a zone due.
func (t *Table) Moved(zone string, serial uint32) {
	now := time.Now()
	for _, s := range t.Known() {
		if s.takes(zone) {
			s.follower.hear(zone, serial, now)
		}
	}
	t.signal()
}

// signal says that a message may be due.
func (t *Table) signal() {
	select {
	case t.wake <- struct{}{}:
	default:
	}
}

// Key returns the key with a name, which has letters in lower case.
func (t *Table) Key(name dns.Name) (key dns.Key, ok bool) {
	for _, s := range t.Known() {
		if s.key.Name == name && name != "" {
			return s.key, true
		}
	}
	return key, false
}

// May reports whether a server at an address, which has signed with a key, may transfer a zone.
func (t *Table) May(from netip.Addr, key, apex dns.Name) bool {
	for range t.of(from, key, apex) {
		return true
	}
	return false
}

// Fetched tells that a secondary has got a version of a zone.
func (t *Table) Fetched(from netip.Addr, key, apex dns.Name, serial uint32) {
	for f := range t.of(from, key, apex) {
		f.fetch(apex.Bare(), from, serial)
	}
	t.signal()
}

// Names tells that a secondary names a version of a zone as the one that it has, and reports whether it
// got it from this process.
func (t *Table) Names(from netip.Addr, key, apex dns.Name, serial uint32) (sent bool) {
	for f := range t.of(from, key, apex) {
		f.mu.Lock()
		if s := f.zones[apex.Bare()]; s != nil {
			sent = f.names(s, from, serial) || sent
			f.tell(s, true)
		}
		f.mu.Unlock()
	}
	t.signal()
	return sent
}

// of yields the secondaries that take a zone and that a request may come from.
func (t *Table) of(from netip.Addr, key, apex dns.Name) iter.Seq[*follower] {
	zone := apex.Bare()
	return func(yield func(*follower) bool) {
		for _, s := range t.Known() {
			if s.matches(from, key) && s.takes(zone) && !yield(s.follower) {
				return
			}
		}
	}
}
