package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"meshddns/test/support"
)

// termed is a schema with the table of the term. Its first version has no term.
func termed(term Term) Schema {
	const column = `, term INTEGER NOT NULL DEFAULT 0`
	return Schema{
		Tables: `CREATE TABLE appliance (id INTEGER PRIMARY KEY, seal TEXT NOT NULL DEFAULT ''` + column + `) STRICT`,
		Own:    []string{"appliance"}, First: vault.First, Probe: vault.Probe, Oldest: 1, Term: term,
		Steps: []Step{func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `ALTER TABLE appliance ADD COLUMN term INTEGER NOT NULL DEFAULT 0`)
			return err
		}},
	}
}

// oldTermed makes a database of the first version.
func oldTermed(t *testing.T, path string) {
	t.Helper()
	db := support.OpenSQLite(t, path, "_journal_mode=WAL")
	defer db.Close()
	support.Exec(t, db, fmt.Sprintf(`CREATE TABLE appliance (id INTEGER PRIMARY KEY, seal TEXT NOT NULL DEFAULT '') STRICT;
		INSERT INTO appliance (id) VALUES (1); PRAGMA user_version = 1; PRAGMA application_id = %d`, ApplicationID))
}

// opens opens a database in a term, and closes it.
func opens(t *testing.T, path string, schema Schema) (log string, err error) {
	t.Helper()
	var lines strings.Builder
	d, err := Open(t.Context(), path, schema, slog.New(slog.NewTextHandler(&lines, nil)))
	if err == nil {
		err = d.Close()
	}
	return lines.String(), err
}

// termIn returns version and term of a file that no program has open; -1 for a column that is not there.
func termIn(t *testing.T, path string) (version, term int64) {
	t.Helper()
	db := support.OpenSQLite(t, path, "mode=ro")
	defer db.Close()
	support.Must(t, db.QueryRow(`PRAGMA user_version`).Scan(&version))
	if err := db.QueryRow(`SELECT term FROM appliance`).Scan(&term); err != nil {
		term = -1
	}
	return version, term
}

// TestTakes: which term follows the one in a file.
func TestTakes(t *testing.T) {
	for _, c := range []struct {
		stored int64
		term   Term
		want   string
	}{
		{0, Term{}, ""},
		{0, Term{None: true}, ""},
		{7, Term{None: true}, ""},
		{0, Term{Number: 1}, ""},
		{0, Term{Number: 7}, ""},
		{7, Term{Number: 7}, ""},                     // a restart
		{7, Term{Number: 7, After: 3}, ""},           // as well
		{3, Term{Number: 7, After: 3}, ""},           // restored
		{7, Term{}, "start with -term FILE"},         // by hand
		{3, Term{Number: 7}, "want that of term 0"},  // not restored
		{0, Term{Number: 7, After: 3}, "of term 0:"}, // a new file, or one without terms
		{2, Term{Number: 7, After: 3}, "of term 2:"},
		{4, Term{Number: 7, After: 3}, "of term 4:"},
		{8, Term{Number: 7, After: 3}, "of term 8:"}, // a later one: this is the old machine
		{8, Term{Number: 7}, "of term 8:"},
	} {
		path := filepath.Join(t.TempDir(), "a.db")
		if c.stored > 0 {
			_, err := opens(t, path, termed(Term{Number: c.stored}))
			support.Must(t, err)
		} else if _, err := opens(t, path, termed(Term{})); err != nil {
			t.Fatal(err)
		}
		_, err := opens(t, path, termed(c.term))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("term %+v on %d: %v, want %q", c.term, c.stored, err, c.want)
		}
		want := c.term.Number
		if err != nil {
			want = c.stored
		}
		if version, term := termIn(t, path); term != want || version != 2 {
			t.Errorf("term %+v on %d: version %d with term %d, want %d", c.term, c.stored, version, term, want)
		}
	}
}

// TestTermOfNewFile: a file that is made in a term has it; for a database to be restored no file is a mistake.
func TestTermOfNewFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	_, err := opens(t, path, termed(Term{Number: 7}))
	if support.Must(t, err); true {
		if version, term := termIn(t, path); version != 2 || term != 7 {
			t.Errorf("version %d, term %d", version, term)
		}
	}
	none := filepath.Join(t.TempDir(), "b.db")
	if _, err := opens(t, none, termed(Term{Number: 7, After: 3})); err == nil || !strings.Contains(err.Error(), "of term 0:") {
		t.Error(err)
	}
	empty := filepath.Join(t.TempDir(), "c.db")
	support.WriteFile(t, empty, "")
	if _, err := opens(t, empty, termed(Term{Number: 7, After: 3})); err == nil || !strings.Contains(err.Error(), "of term 0:") {
		t.Error(err)
	}
	for path, want := range map[string]int{none: 0, empty: 1} { // it changes nothing
		if beside, err := filepath.Glob(path + "*"); err != nil || len(beside) != want || want > 0 && size(path) != 0 {
			t.Errorf("refused: there is %q, %v", beside, err)
		}
	}
}

// TestTermOver: after the end of the term no transaction begins, not even one that waits for the writer. The database can still be read.
func TestTermOver(t *testing.T) {
	var over atomic.Bool
	schema := termed(Term{Number: 7})
	schema.Over = over.Load
	d, err := Open(t.Context(), filepath.Join(t.TempDir(), "a.db"), schema, slog.New(slog.DiscardHandler))
	support.Must(t, err)
	defer d.Close()
	insert := func(id int) func(context.Context, *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, `INSERT INTO appliance (id) VALUES (?)`, id)
			return err
		}
	}
	holding, end, held, waited := make(chan bool), make(chan bool), make(chan error, 1), make(chan error, 1)
	go func() {
		held <- d.Tx(t.Context(), func(ctx context.Context, tx *sql.Tx) error {
			holding <- true
			<-end
			return insert(2)(ctx, tx)
		})
	}()
	<-holding
	go func() { waited <- d.Tx(t.Context(), insert(3)) }()
	support.Eventually(t, support.Limit, "the second one waits", func() bool {
		d.queue.mu.Lock()
		defer d.queue.mu.Unlock()
		return len(d.queue.waiting) == 1
	})
	over.Store(true)
	close(end)
	if err := support.Receive(t, held); err != nil {
		t.Errorf("begun in the term: %v", err)
	}
	var refusal Refusal
	for _, err := range []error{support.Receive(t, waited), d.Tx(t.Context(), insert(4))} {
		if !errors.As(err, &refusal) || refusal.Code() != "term_over" {
			t.Errorf("after the end: %v", err)
		}
	}
	if got := fmt.Sprint(support.Rows(t, d.Reader, `SELECT id FROM appliance`)); got != "[1 2]" {
		t.Errorf("stored: %s", got)
	}
}

// TestTermAtUpgrade: the upgrade of a file without terms stores the term in the same transaction, and keeps a copy. A file that is
// refused stays as it is.
func TestTermAtUpgrade(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	oldTermed(t, path)
	if _, err := opens(t, path, termed(Term{Number: 7, After: 3})); err == nil {
		t.Error("a file without a term is taken for one of term 3")
	}
	if version, term := termIn(t, path); version != 1 || term != -1 {
		t.Errorf("refused: version %d, term %d", version, term)
	}
	fault, broken := errors.New("a step fails"), termed(Term{Number: 7})
	broken.Steps = append(broken.Steps, func(context.Context, *sql.Tx) error { return fault })
	if _, err := opens(t, path, broken); !errors.Is(err, fault) {
		t.Error(err)
	}
	if version, term := termIn(t, path); version != 1 || term != -1 {
		t.Errorf("after a step that failed: version %d, term %d", version, term)
	}
	_, err := opens(t, path, termed(Term{Number: 7}))
	support.Must(t, err)
	if version, term := termIn(t, path); version != 2 || term != 7 {
		t.Errorf("version %d, term %d", version, term)
	}
	if version, term := termIn(t, path+".v1"); version != 1 || term != -1 {
		t.Errorf("the copy has version %d, term %d", version, term)
	}
}

// TestTermIsStoredFirst: a commit in which the term cannot be stored stores nothing else, and each commit after the start is of the term.
func TestTermIsStoredFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	_, err := opens(t, path, termed(Term{Number: 3}))
	support.Must(t, err)
	db := support.OpenSQLite(t, path, "")
	support.Exec(t, db, `CREATE TRIGGER no BEFORE UPDATE OF term ON appliance BEGIN SELECT RAISE(ABORT, 'no term'); END`)
	support.Must(t, db.Close())
	if _, err := opens(t, path, termed(Term{Number: 7, After: 3})); err == nil || !strings.Contains(err.Error(), "no term") {
		t.Error(err)
	}
	if _, term := termIn(t, path); term != 3 {
		t.Errorf("term %d", term)
	}
	if _, err = opens(t, path, termed(Term{Number: 3})); err != nil { // it is stored already
		t.Error(err)
	}
}

// TestTermOfNewerFile: the version of a file of a newer program counts before its term.
func TestTermOfNewerFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	_, err := opens(t, path, termed(Term{Number: 3}))
	support.Must(t, err)
	db := support.OpenSQLite(t, path, "")
	support.Exec(t, db, `PRAGMA user_version = 9`)
	support.Must(t, db.Close())
	if _, err := opens(t, path, termed(Term{})); err == nil || !strings.Contains(err.Error(), "newer than this program's") {
		t.Error(err)
	}
}

// TestTermWithoutRoom: a start without room for the index of the WAL serves the term of the file. It stores no other, and tells of a wrong one.
func TestTermWithoutRoom(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.db")
	_, err := opens(t, path, termed(Term{Number: 3}))
	support.Must(t, err)
	full := errors.New("no room")
	for term, want := range map[Term]string{
		{Number: 3}:           "",
		{Number: 7, After: 3}: "store the term: no room",
		{None: true}:          "store the term: no room",
		{}:                    "start with -term FILE",
		{Number: 7, After: 2}: "it is the database of term 3: want that of term 2",
	} {
		d, err := Open(t.Context(), path, termed(Term{Number: 3}), slog.New(slog.DiscardHandler))
		support.Must(t, err)
		d.schema.Term = term
		if err := d.beginFrozen(t.Context(), full); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", term, err, want)
		}
		support.Must(t, d.Close())
	}
}
