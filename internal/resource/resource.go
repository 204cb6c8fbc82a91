// Package resource keeps settings that requests and provisioning files write, in tables of a few rows: notification
// targets, and the secondaries of the built-in zones. It checks an entry, keeps a stored secret whose mask comes
// back, stores the entry in at most so many rows, answers with it (http.go), and has a copy of the table in memory.
//
// The members of an entry are the fields of its struct that have a tag for JSON. Requests, documents, answers,
// warnings and comparisons derive from them. The types of secrets write themselves as masks.
package resource

import (
	"context"
	"database/sql"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// Entry is the struct of an entry.
type Entry[T any] interface {
	// Check returns the entry in its normal form with its defaults, or a refusal. language is that of the client. A
	// secret may be a mask.
	Check(language msg.Language) (T, error)
	// Unmask returns the entry with the secrets of the stored one in place of masks, or the refusal of Keep. stored
	// is the zero entry if none is stored.
	Unmask(stored T) (T, error)
}

// Keep returns a secret as it is stored from now on: the stored one in place of a mask. The stored one may only go
// where it went before, because a client that does not know it could send it to an attacker. So the error is refusal
// unless same is true and a secret is stored.
func Keep[S ~string](given, stored S, masked, same bool, refusal error) (S, error) {
	if masked && (!same || stored == "") {
		return given, refusal
	}
	if masked {
		return stored, nil
	}
	return given, nil
}

// Parse reads an entry of a provisioning file. What a document leaves open is Chinese.
func Parse[T Entry[T]](body []byte) (entry T, err error) {
	if err := web.ParseBody(body, &entry); err != nil {
		return entry, err
	}
	return entry.Check(msg.Chinese)
}

// Check checks an entry of a provisioning file.
func Check[T Entry[T]](body []byte) error {
	_, err := Parse[T](body)
	return err
}

// Kind says what is special about a kind of entries.
type Kind[T any] struct {
	Most  int // rows
	Shown any // the zero data of an answer: a client gets a warning about a member that resembles one

	Unknown, TooMany sqlite.Refusal
	Saved, Deleted   msg.ID // of answers

	ID     func(*T) *string
	Select string // of all entries, in the order of their ids
	Scan   func(sqlite.Scanner) (T, error)
	Delete string // of the entry with an id

	// Store stores an entry in a transaction, and returns it as it is stored. stored is the entry that it replaces,
	// zero if there is none; all are all entries before. A refusal comes before any change.
	Store func(ctx context.Context, tx *sql.Tx, entry, stored T, all []T) (T, error)

	// Carry takes what the copy in memory knows beside the row over from before, nil for a new entry, to now; nil:
	// it knows nothing else.
	Carry func(now, before *T)
}

// Table is the stored entries of a kind, with a copy in memory. Committed reads the copy again after each commit that
// changes an entry, and before the caller of the commit goes on.
type Table[T Entry[T]] struct {
	DB   *sqlite.Database
	kind Kind[T]
	copy atomic.Pointer[[]T] // nil: it is not read

	mu      sync.Mutex // held while the copy is read, so that the last reading has seen the last commit
	changed chan struct{}
}

// New returns the entries of a database. Refresh reads the copy.
func New[T Entry[T]](db *sqlite.Database, kind Kind[T]) *Table[T] {
	return &Table[T]{DB: db, kind: kind, changed: make(chan struct{})}
}

// find returns the entry with an id, nil if there is none.
func (t *Table[T]) find(all []T, id string) *T {
	for i := range all {
		if *t.kind.ID(&all[i]) == id {
			return &all[i]
		}
	}
	return nil
}

// All returns all stored entries in the order of their ids.
func (t *Table[T]) All(ctx context.Context) ([]T, error) {
	all, err := sqlite.Collect(ctx, t.DB.Reading(ctx), t.kind.Scan, t.kind.Select)
	return append([]T{}, all...), err
}

// IDs returns the ids of all stored entries in their order.
func (t *Table[T]) IDs(ctx context.Context) (ids []string, err error) {
	all, err := t.All(ctx)
	for i := range all {
		ids = append(ids, *t.kind.ID(&all[i]))
	}
	return ids, err
}

// One returns a stored entry. The error is the kind's Unknown if there is none.
func (t *Table[T]) One(ctx context.Context, id string) (entry T, err error) {
	all, err := t.All(ctx)
	if err != nil {
		return entry, err
	}
	if stored := t.find(all, id); stored != nil {
		return *stored, nil
	}
	return entry, t.kind.Unknown
}

// Save creates or replaces an entry that Check has returned, and returns it as it is stored. The error is the kind's
// TooMany, or a refusal of Unmask or Store.
func (t *Table[T]) Save(ctx context.Context, entry T) (T, error) {
	saved, _, err := t.save(ctx, entry, func(T, T) bool { return false })
	return saved, err
}

// Apply stores an entry of a provisioning file, unless the stored one has the same members.
func (t *Table[T]) Apply(ctx context.Context, body []byte) (id string, changed bool, err error) {
	entry, err := Parse[T](body)
	if err != nil {
		return "", false, err
	}
	_, changed, err = t.save(ctx, entry, same)
	return *t.kind.ID(&entry), changed, err
}

// same reports whether two entries have the same members.
func same[T any](a, b T) bool {
	x, y := reflect.ValueOf(a), reflect.ValueOf(b)
	for i := range x.NumField() {
		if x.Type().Field(i).Tag.Get("json") != "" && !reflect.DeepEqual(x.Field(i).Interface(), y.Field(i).Interface()) {
			return false
		}
	}
	return true
}

func (t *Table[T]) save(ctx context.Context, entry T, keeps func(entry, stored T) bool) (saved T, changed bool, err error) {
	err = t.DB.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		changed = false
		all, err := t.All(ctx)
		if err != nil {
			return err
		}
		var stored T
		replaced := t.find(all, *t.kind.ID(&entry))
		if replaced != nil {
			stored = *replaced
		}
		if saved, err = entry.Unmask(stored); err != nil {
			return err
		}
		switch {
		case replaced == nil && len(all) >= t.kind.Most:
			return t.kind.TooMany
		case replaced != nil && keeps(saved, stored):
			return nil
		}
		changed = true
		saved, err = t.kind.Store(ctx, tx, saved, stored, all)
		t.Touch(ctx)
		sqlite.Touch(ctx, sqlite.Replaced{})
		return err
	})
	return saved, changed, err
}

// Delete deletes an entry. The error is the kind's Unknown if there is none.
func (t *Table[T]) Delete(ctx context.Context, id string) error {
	return t.DB.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := t.One(ctx, id); err != nil {
			return err
		}
		t.Touch(ctx)
		sqlite.Touch(ctx, sqlite.Replaced{})
		_, err := tx.ExecContext(ctx, t.kind.Delete, id)
		return err
	})
}

// changed in a notice says that an entry has changed.
type changed[T any] struct{}

// Touch says in the notice of a transaction that an entry has changed.
func (t *Table[T]) Touch(ctx context.Context) { sqlite.Touch(ctx, changed[T]{}) }

// Committed reads the copy again if a commit has changed an entry. After an error no entry is known until Refresh.
func (t *Table[T]) Committed(n sqlite.Notice) {
	if slices.Contains(n, any(changed[T]{})) {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.read(context.Background())
		t.signal()
	}
}

// Refresh reads the copy if it is not known: at the start, or because the last reading has failed.
func (t *Table[T]) Refresh(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.copy.Load() != nil {
		return nil
	}
	err := t.read(ctx)
	if err == nil {
		t.signal()
	}
	return err
}

// read reads the copy. The caller holds the lock.
func (t *Table[T]) read(ctx context.Context) error {
	all, err := t.All(ctx)
	if err != nil {
		t.copy.Store(nil)
		return err
	}
	for i := range all {
		if t.kind.Carry != nil {
			t.kind.Carry(&all[i], t.Find(*t.kind.ID(&all[i])))
		}
	}
	t.copy.Store(&all)
	return nil
}

// signal ends the waits of Changed. The caller holds the lock.
func (t *Table[T]) signal() {
	close(t.changed)
	t.changed = make(chan struct{})
}

// Changed returns a channel that is closed when Known returns something else.
func (t *Table[T]) Changed() <-chan struct{} {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.changed
}

// Known returns the entries as they are in memory, none after a reading that failed. The caller must not change them.
func (t *Table[T]) Known() []T {
	if all := t.copy.Load(); all != nil {
		return *all
	}
	return nil
}

// Find returns the entry with an id as it is in memory, nil if there is none. The caller must not change it.
func (t *Table[T]) Find(id string) *T { return t.find(t.Known(), id) }
