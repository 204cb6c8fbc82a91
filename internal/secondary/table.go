package secondary

import (
	"context"
	"database/sql"
	"errors"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"meshddns/internal/builtin"
	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
)

// Refusals of Table.
const (
	ErrUnknown      = sqlite.Refusal(msg.UnknownSecondary)
	ErrTooMany      = sqlite.Refusal(msg.TooManySecondaries)
	ErrSecretMasked = sqlite.Refusal(msg.SecondarySecretMasked)
	ErrKeyDiffers   = sqlite.Refusal(msg.SecondaryKeyDiffers)
)

// Table is the stored secondaries, with a copy in memory for the DNS server, and what is known of their zones.
type Table struct {
	db      *sqlite.Database
	copy    atomic.Pointer[[]Secondary]
	wake    chan struct{} // a message may be due
	changed chan struct{} // the copy is another one
}

// NewTable returns the secondaries of a database. Load reads them.
func NewTable(db *sqlite.Database) *Table {
	t := &Table{db: db, wake: make(chan struct{}, 1), changed: make(chan struct{}, 1)}
	t.copy.Store(&[]Secondary{})
	return t
}

// Load reads the copy in memory again. Only one goroutine at a time may call it.
func (t *Table) Load(ctx context.Context) error {
	all, err := t.All(ctx)
	if err != nil {
		all = []Secondary{} // a secondary that is not known may transfer nothing
	}
	for i, s := range all {
		if known := t.find(s.ID); known != nil && known.Address == s.Address {
			all[i].follower = known.follower
		} else {
			all[i].follower = &follower{zones: map[string]*state{}}
		}
	}
	t.copy.Store(&all)
	return err
}

// known returns the secondaries as they are in memory.
func (t *Table) known() []Secondary { return *t.copy.Load() }

// find returns the secondary with an id as it is in memory, nil if there is none.
func (t *Table) find(id string) *Secondary {
	for _, s := range t.known() {
		if s.ID == id {
			return &s
		}
	}
	return nil
}

// Any reports whether there is a secondary.
func (t *Table) Any() bool { return len(t.known()) > 0 }

// changed in a notice says that a secondary has changed.
type changed struct{}

// Committed reads secondaries that a commit has changed again, and makes messages about zones that it has
// moved due.
func (t *Table) Committed(n sqlite.Notice) {
	if slices.Contains(n, any(changed{})) {
		t.Load(context.Background()) // a failure leaves none
		signal(t.changed)
	}
	now := time.Now()
	for _, what := range n {
		if moved, ok := what.(builtin.Moved); ok {
			t.moved(moved, now)
		}
	}
}

// moved makes messages about a new serial due.
func (t *Table) moved(to builtin.Moved, now time.Time) {
	for _, s := range t.known() {
		if s.takes(to.Zone) {
			s.follower.hear(to.Zone, to.Serial, now)
		}
	}
	signal(t.wake)
}

// signal sends to a channel unless a signal is in it already.
func signal(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

const selectSecondaries = `SELECT id, address, key_name, key_secret, key_algorithm, zones FROM secondaries`

func scanSecondary(row sqlite.Scanner) (s Secondary, err error) {
	var address string
	err = row.Scan(&s.ID, &address, &s.KeyName, &s.Secret, &s.Algorithm, (*sqlite.TextList)(&s.Zones))
	if err != nil {
		return s, sqlite.Absent(err, ErrUnknown)
	}
	if s.Address, err = netip.ParseAddrPort(address); err != nil {
		return s, err
	}
	return s.withKey()
}

// All returns all secondaries in the order of their ids.
func (t *Table) All(ctx context.Context) ([]Secondary, error) {
	return sqlite.Collect(ctx, t.db.Reading(ctx), scanSecondary, selectSecondaries+` ORDER BY id`)
}

// IDs returns the ids of all secondaries in their order.
func (t *Table) IDs(ctx context.Context) (ids []string, err error) {
	all, err := t.All(ctx)
	for _, s := range all {
		ids = append(ids, s.ID)
	}
	return ids, err
}

// Has reports whether a secondary with the same settings is stored.
func (t *Table) Has(ctx context.Context, s Secondary) (bool, error) {
	stored, err := t.Secondary(ctx, s.ID)
	if errors.Is(err, ErrUnknown) {
		return false, nil
	}
	return err == nil && s.sameAs(stored), err
}

// Secondary returns one secondary, or ErrUnknown.
func (t *Table) Secondary(ctx context.Context, id string) (Secondary, error) {
	return selectSecondary(ctx, t.db.Reading(ctx), id)
}

func selectSecondary(ctx context.Context, q sqlite.Queryer, id string) (Secondary, error) {
	return scanSecondary(q.QueryRowContext(ctx, selectSecondaries+` WHERE id = ?`, id))
}

// Save creates or replaces a secondary, and returns it. The error is ErrTooMany, ErrSecretMasked or
// ErrKeyDiffers.
func (t *Table) Save(ctx context.Context, s Secondary) (saved Secondary, err error) {
	err = t.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		stored, err := selectSecondary(ctx, tx, s.ID)
		if err != nil && err != ErrUnknown {
			return err
		}
		if saved, err = s.unmasked(stored); err != nil {
			return err
		}
		others, err := sqlite.Collect(ctx, tx, scanSecondary, selectSecondaries+` WHERE id <> ? ORDER BY id`, s.ID)
		if err != nil {
			return err
		}
		if len(others) >= MaxSecondaries {
			return ErrTooMany
		}
		for _, o := range others {
			if o.KeyName != "" && strings.EqualFold(o.KeyName, saved.KeyName) && (o.Secret != saved.Secret || o.Algorithm != saved.Algorithm) {
				return ErrKeyDiffers
			}
		}
		sqlite.Touch(ctx, sqlite.Replaced{})
		sqlite.Touch(ctx, changed{})
		_, err = tx.ExecContext(ctx, `
			INSERT INTO secondaries (id, address, key_name, key_secret, key_algorithm, zones) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET address = excluded.address, key_name = excluded.key_name, key_secret = excluded.key_secret,
			    key_algorithm = excluded.key_algorithm, zones = excluded.zones`,
			saved.ID, saved.Address.String(), saved.KeyName, saved.Secret, saved.Algorithm, sqlite.TextList(saved.Zones))
		return err
	})
	return saved, err
}

// Delete deletes a secondary, or returns ErrUnknown.
func (t *Table) Delete(ctx context.Context, id string) error {
	return t.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := selectSecondary(ctx, tx, id); err != nil {
			return err
		}
		sqlite.Touch(ctx, sqlite.Replaced{})
		sqlite.Touch(ctx, changed{})
		_, err := tx.ExecContext(ctx, `DELETE FROM secondaries WHERE id = ?`, id)
		return err
	})
}

// Key returns the key with a name, which has letters in lower case.
func (t *Table) Key(name dns.Name) (key dns.Key, ok bool) {
	for _, s := range t.known() {
		if s.key.Name == name && name != "" {
			return s.key, true
		}
	}
	return key, false
}

// May reports whether a server at an address, which has signed with a key, may transfer a zone.
func (t *Table) May(from netip.Addr, key, apex dns.Name) bool {
	zone := apex.Bare()
	for _, s := range t.known() {
		if s.matches(from, key) && s.takes(zone) {
			return true
		}
	}
	return false
}

// Fetched tells that a secondary has got a version of a zone.
func (t *Table) Fetched(from netip.Addr, key, apex dns.Name, serial uint32) {
	for f := range t.of(from, key, apex) {
		f.fetch(apex.Bare(), serial)
	}
}

// Names tells that a secondary names a version of a zone as the one that it has, and reports whether it
// got it from this process.
func (t *Table) Names(from netip.Addr, key, apex dns.Name, serial uint32) (sent bool) {
	for f := range t.of(from, key, apex) {
		f.mu.Lock()
		if s := f.zones[apex.Bare()]; s != nil && f.names(s, serial) {
			sent = true
		}
		f.mu.Unlock()
	}
	signal(t.wake)
	return sent
}

// of yields the secondaries that take a zone and that a request may come from.
func (t *Table) of(from netip.Addr, key, apex dns.Name) iter.Seq[*follower] {
	zone := apex.Bare()
	return func(yield func(*follower) bool) {
		for _, s := range t.known() {
			if s.matches(from, key) && s.takes(zone) && !yield(s.follower) {
				return
			}
		}
	}
}

// matches reports whether a request comes from the secondary.
func (s Secondary) matches(from netip.Addr, key dns.Name) bool {
	return s.Address.Addr() == from.Unmap() && s.key.Name == key && (key != "" || near(from))
}
