package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// eventsCost compares reservations with those of the same program without events.
func eventsCost(t *testing.T, b *table) {
	if !*large {
		t.Skip("with -large only: another program has to be built")
	}
	s := speedScale()
	silent := way{path: builtSilent(t)}
	with, without := start(t, reserved(t, builtin, s.names)), startAs(t, reservedBy(t, silent, s.names), silent)
	numbers := numbered()
	var ours, theirs turns
	for i := range s.rounds + 1 {
		ours.take(t, posts(64, numbers), with.http, with.process, s.turn)
		theirs.take(t, posts(64, numbers), without.http, without.process, s.turn)
		if i == 0 {
			ours, theirs = turns{}, turns{}
		}
	}
	b.compare(t, contest{
		row: "POST usages, 64 clients, with / without events", measured: s.there("usages"), bound: least(0.85, 0.95), show: perSecond,
	}, ours.rates, theirs.rates)
	ours.describe(t, b, "POST usages, with events")
	theirs.describe(t, b, "POST usages, without events")
}

// builtSilent builds the program with a log that stores no event, and returns its path.
func builtSilent(t *testing.T) string {
	t.Helper()
	log, err := filepath.Abs("../../internal/events/log.go")
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	const signature = "func (l *Log) Add(ctx context.Context, tx *sql.Tx, e Event) error {\n"
	before, body, ok := strings.Cut(string(source), signature)
	if !ok {
		t.Fatalf("%s has no %s", log, signature)
	}
	folder := t.TempDir()
	silent, overlay := filepath.Join(folder, "log.go"), filepath.Join(folder, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {log: silent}})
	if err != nil {
		t.Fatal(err)
	}
	for path, content := range map[string]string{silent: before + signature + "\treturn nil\n" + body, overlay: string(replace)} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path, err := buildIn("../..", folder, "GOFLAGS=-overlay="+overlay)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// sealCost compares reservations in a sealed database with those in one that is not.
func sealCost(t *testing.T, b *table) {
	s := speedScale()
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte(strings.Repeat("A", 43)+"="), 0o600); err != nil {
		t.Fatal(err)
	}
	with, without := startAs(t, reserved(t, builtin, s.names), way{env: []string{"MESHDDNS_SEAL_KEY=" + key}}), start(t, reserved(t, builtin, s.names))
	numbers := numbered()
	var ours, theirs turns
	for i := range s.rounds + 1 {
		ours.take(t, posts(64, numbers), with.http, with.process, s.turn)
		theirs.take(t, posts(64, numbers), without.http, without.process, s.turn)
		if i == 0 {
			ours, theirs = turns{}, turns{}
		}
	}
	b.compare(t, contest{
		row: "POST usages, 64 clients, sealed / not", measured: s.there("usages"), bound: least(0.98, 1), show: perSecond,
	}, ours.rates, theirs.rates)
}
