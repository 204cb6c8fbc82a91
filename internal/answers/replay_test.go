package answers_test

import (
	"crypto/sha256"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meshddns/internal/answers"
	"meshddns/test/support"
)

// begin begins a transaction on a new database.
func begin(t *testing.T) *sql.Tx {
	t.Helper()
	schema, err := os.ReadFile("../../schema.sql")
	if err != nil {
		t.Fatal(err)
	}
	db := support.OpenSQLite(t, filepath.Join(t.TempDir(), "x.db"), "_synchronous=OFF")
	if _, err := db.Exec(string(schema)); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tx.Rollback() })
	return tx
}

func TestReplays(t *testing.T) {
	tx := begin(t)
	now, passed := time.UnixMilli(1_800_000_000_000), time.Duration(0)
	clock, elapsed := func() time.Time { return now }, func() time.Duration { return passed }
	table := answers.NewReplays(clock, elapsed, now)
	pass := func(d time.Duration) { now, passed = now.Add(d), passed+d }
	key := func(text, body string) answers.ReplayKey {
		return answers.ReplayKey{Text: text, Body: sha256.Sum256([]byte(body))}
	}
	find := func(k answers.ReplayKey) (string, error) {
		var result string
		found, err := table.Find(t.Context(), tx, k, &result)
		return fmt.Sprint(found, " ", result), err
	}
	keep := func(k answers.ReplayKey, result string) {
		t.Helper()
		if err := table.Keep(t.Context(), tx, k, result); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := find(key("a", "1")); got != "false " || err != nil {
		t.Error(got, err)
	}
	keep(key("a", "1"), "first")
	if got, err := find(key("a", "1")); got != "true first" || err != nil {
		t.Error(got, err)
	}
	if _, err := find(key("a", "2")); !errors.Is(err, answers.ErrReplayKeyReused) {
		t.Error(err)
	}
	pass(24*time.Hour - 1)
	if got, err := find(key("a", "1")); got != "true first" || err != nil {
		t.Error(got, err)
	}
	pass(1)
	if got, err := find(key("a", "2")); got != "false " || err != nil {
		t.Error(got, err)
	}
	keep(key("a", "2"), "second")
	for i := range 25 {
		keep(key(fmt.Sprint("n", i), ""), "")
	}
	pass(answers.ReplaysKept + time.Second)
	for want := 17; want > 0; want -= 9 { // each one that is kept removes ten
		keep(key(fmt.Sprint("m", want), ""), "")
		var rows int
		if err := tx.QueryRow(`SELECT count(*) FROM replays`).Scan(&rows); err != nil || rows != want {
			t.Errorf("%d rows, want %d: %v", rows, want, err)
		}
	}
}

// A result that was stored before the clock was set is kept for a day from then on, whether the program runs
// meanwhile or starts later.
func TestClockIsSet(t *testing.T) {
	tx := begin(t)
	now, passed := time.Unix(1000, 0), time.Duration(0)
	clock, elapsed := func() time.Time { return now }, func() time.Duration { return passed }
	stored := now
	running := answers.NewReplays(clock, elapsed, stored)
	key := answers.ReplayKey{Text: "a", Body: sha256.Sum256(nil)}
	if err := running.Keep(t.Context(), tx, key, "first"); err != nil {
		t.Fatal(err)
	}
	now, passed = time.UnixMilli(1_800_000_000_000), time.Hour
	started := answers.NewReplays(clock, elapsed, stored)
	for _, step := range []struct {
		pass time.Duration
		want bool
	}{{0, true}, {answers.ReplaysKept - time.Second, true}, {time.Second, false}} {
		now, passed = now.Add(step.pass), passed+step.pass
		for what, table := range map[string]*answers.Replays{"running": running, "started": started} {
			var result string
			if found, err := table.Find(t.Context(), tx, key, &result); err != nil || found != step.want {
				t.Errorf("%s, %v after the clock was set: %v, %v", what, passed-time.Hour, found, err)
			}
		}
	}
}

func TestGoodKey(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "a": true, "a b~": true, "ä": false, "a\t": false, "\x7f": false,
		strings.Repeat("x", 255): true, strings.Repeat("x", 256): false,
	} {
		if got := answers.GoodReplayKey(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}

// TestReplaysOfCallers: a caller finds its own results, and those of before the callers were stored.
func TestReplaysOfCallers(t *testing.T) {
	tx := begin(t)
	now := time.UnixMilli(1_800_000_000_000)
	table := answers.NewReplays(func() time.Time { return now }, func() time.Duration { return 0 }, now)
	for _, caller := range []string{`token "a"`, "token 1", "", "*"} {
		text := map[bool]string{true: "old", false: "key"}[caller == "*"]
		if err := table.Keep(t.Context(), tx, answers.ReplayKey{Text: text, Caller: caller}, "of "+caller); err != nil {
			t.Fatal(err)
		}
	}
	for _, caller := range []string{`token "a"`, "token 1", ""} {
		for text, want := range map[string]string{"key": "of " + caller, "old": "of *"} {
			var result string
			if found, err := table.Find(t.Context(), tx, answers.ReplayKey{Text: text, Caller: caller}, &result); !found || err != nil || result != want {
				t.Errorf("%q of %q: %q %v, want %q", text, caller, result, err, want)
			}
		}
	}
	var result string
	if found, err := table.Find(t.Context(), tx, answers.ReplayKey{Text: "key", Caller: "token 2"}, &result); found || err != nil {
		t.Errorf("of another caller: %q %v", result, err)
	}
}
