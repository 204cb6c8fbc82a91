package replay_test

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"meshddns/internal/replay"
	"meshddns/test/support"
)

func TestReplays(t *testing.T) {
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
	defer tx.Rollback()
	now := time.UnixMilli(1_800_000_000_000)
	key := func(text, body string) replay.Key { return replay.Key{Text: text, Body: sha256.Sum256([]byte(body))} }
	find := func(k replay.Key) (string, error) {
		var result string
		found, err := replay.Find(t.Context(), tx, k, now, &result)
		return fmt.Sprint(found, " ", result), err
	}
	keep := func(k replay.Key, result string) {
		t.Helper()
		if err := replay.Keep(t.Context(), tx, k, now, result); err != nil {
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
	if _, err := find(key("a", "2")); !errors.Is(err, replay.ErrReused) {
		t.Error(err)
	}
	now = now.Add(replay.Kept)
	if got, err := find(key("a", "2")); got != "false " || err != nil {
		t.Error(got, err)
	}
	keep(key("a", "2"), "second")
	for i := range 25 {
		keep(key(fmt.Sprint("n", i), ""), "")
	}
	now = now.Add(replay.Kept + time.Second)
	for want := 17; want > 0; want -= 9 { // each one that is kept removes ten
		keep(key(fmt.Sprint("m", want), ""), "")
		var rows int
		if err := tx.QueryRow(`SELECT count(*) FROM replays`).Scan(&rows); err != nil || rows != want {
			t.Errorf("%d rows, want %d: %v", rows, want, err)
		}
	}
}

func TestGoodKey(t *testing.T) {
	for text, want := range map[string]bool{
		"": false, "a": true, "a b~": true, "ä": false, "a\t": false, "\x7f": false,
		strings.Repeat("x", 255): true, strings.Repeat("x", 256): false,
	} {
		if got := replay.GoodKey(text); got != want {
			t.Errorf("%q: %v", text, got)
		}
	}
}
