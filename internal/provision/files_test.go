package provision

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"meshddns/test/support"
)

// applying gives files with a document of one service, and applies it with the given results, one
// after the other.
func applying(t *testing.T, results ...func(*Document) (Applied, error)) (*Files, *support.Log) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "p.json")
	if err := os.WriteFile(path, []byte(`{"services": [{"id": "a", "name": "A", "config": {}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	logs := &support.Log{}
	return &Files{
		Path: path, Log: slog.New(slog.NewTextHandler(logs, nil)), Faults: &atomic.Int64{},
		Transact: func(_ context.Context, document *Document) (Applied, error) {
			next := results[0]
			results = results[1:]
			return next(document)
		},
		Refused: func(context.Context, []string) error { return nil },
	}, logs
}

// waitsFor lets a document wait for so many faults.
func waitsFor(faults int) func(*Document) (Applied, error) {
	return func(d *Document) (Applied, error) {
		a := Applied{Waits: d}
		for i := range faults {
			a.Faults = append(a.Faults, Mistake{File: "p.json", Line: i + 1, Reason: "no"})
		}
		return a, nil
	}
}

// What an editor and a copy from a Mac leave in a folder is passed over, with a warning. The rest is applied.
func TestHiddenFiles(t *testing.T) {
	f, logs := applying(t, func(d *Document) (Applied, error) {
		if len(d.Entries[Services]) != 1 || len(d.mistakes) != 0 {
			t.Errorf("%d services, mistakes %v", len(d.Entries[Services]), d.mistakes)
		}
		return Applied{}, nil
	})
	f.Path = filepath.Dir(f.Path)
	writeFile(t, filepath.Join(f.Path, "._p.json"), "\x00\x05\x16\x07\xff")
	if err := os.Symlink("user@host.1234:1", filepath.Join(f.Path, ".#p.json")); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(f.Path, ".p.json.swp"), "b0VIM")
	if err := f.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if text := logs.String(); strings.Count(text, "level=WARN") != 2 || !strings.Contains(text, ".#p.json") || !strings.Contains(text, "._p.json") {
		t.Errorf("%s", text)
	}
}

// The tries of entries that wait are counted until fewer wait. A fault is logged once.
func TestTries(t *testing.T) {
	results := []func(*Document) (Applied, error){waitsFor(2)}
	for range 8 {
		results = append(results, waitsFor(2))
	}
	results = append(results, waitsFor(1), func(*Document) (Applied, error) { return Applied{}, nil })
	f, logs := applying(t, results...)
	if err := f.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	var tries []int
	for f.Tries() > 0 {
		tries = append(tries, f.Tries())
		f.Again(t.Context())
	}
	if !slices.Equal(tries, []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 1}) {
		t.Errorf("the tries are %d", tries)
	}
	if n := strings.Count(logs.String(), "a part of the provisioning file is not applied"); n != 2 || f.Faults.Load() != 0 {
		t.Errorf("%d lines of the log, %d faults at the end:\n%s", n, f.Faults.Load(), logs)
	}
}

// While the database fails, all entries wait, and the same failure is logged once.
func TestDatabaseFails(t *testing.T) {
	failed := errors.New("disk full")
	fails := func(*Document) (Applied, error) { return Applied{}, failed }
	f, logs := applying(t, fails, fails, func(*Document) (Applied, error) { return Applied{}, nil })
	if err := f.Apply(t.Context()); !errors.Is(err, failed) || f.Faults.Load() != 1 || f.Tries() != 1 {
		t.Fatalf("%v, %d faults, %d tries", err, f.Faults.Load(), f.Tries())
	}
	f.Again(t.Context())
	if logs.String() != "" {
		t.Errorf("the failure that Apply returned is logged: %s", logs)
	}
	f.Again(t.Context())
	if !strings.Contains(logs.String(), "msg=provisioned") || f.Faults.Load() != 0 || f.Tries() != 0 {
		t.Errorf("the database works: %d faults, %d tries\n%s", f.Faults.Load(), f.Tries(), logs)
	}
}

// Files with a mistake of form change nothing: what waited of the files before keeps waiting.
func TestFormMistake(t *testing.T) {
	wrong := func(*Document) (Applied, error) {
		return Applied{}, Mistakes{{File: "p.json", Reason: "a"}, {File: "p.json", Reason: "b"}}
	}
	f, _ := applying(t, waitsFor(1), wrong)
	if err := f.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := f.Apply(t.Context()); err == nil || f.Faults.Load() != 3 || f.Tries() != 1 {
		t.Errorf("%v, %d faults, %d tries", err, f.Faults.Load(), f.Tries())
	}
}

// An error of many lines is as many lines of the log, up to a bound.
func TestLogLines(t *testing.T) {
	var all Mistakes
	for range 2 * maxLines {
		all = append(all, Mistake{File: "f", Line: 1, Reason: "bad"})
	}
	logs := &support.Log{}
	LogLines(slog.New(slog.NewTextHandler(logs, nil)), slog.LevelInfo, "m", all)
	if log := logs.String(); strings.Count(log, `error="f:1: bad"`) != maxLines || !strings.Contains(log, fmt.Sprintf("more=%d", maxLines)) {
		t.Error(log)
	}
}
