package check

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"meshddns/internal/mesh"
	"meshddns/internal/secrets"
)

// TestTargetsOfOne: of one usage the same is read as of all, whatever its service and its options say.
func TestTargetsOfOne(t *testing.T) {
	w := newWorld(t, `{"kind":"tcp"}`, "tcp://192.0.2.1:1")
	for seq := int64(2); seq <= 4; seq++ {
		w.db.Usage(seq, fmt.Sprintf("_mesh.p%d.example.com", seq), "tcp://192.0.2.1:1")
	}
	for seq, checking := range map[int64]string{2: `{"kind":"none"}`, 3: `{"kind":"http"}`, 4: ``} {
		w.db.Exec(`INSERT INTO usage_options (usage, formats, checking, peer_id) VALUES (?, '[]', ?, '')`, seq, checking)
	}
	for config, want := range map[string][]int64{
		`{"check":{"kind":"tcp"}}`: {1, 3, 4},
		`{"check":"tcp"}`:          {3},
		`{"check":{}}`:             {3},
		`{}`:                       {3},
	} {
		read, err := mesh.ParseServiceConfig(secrets.Secret(config))
		w.must(err)
		w.db.Exec(`UPDATE services SET checking = ?`, string(read.Check))
		all, _, err := w.table.targets(t.Context(), mesh.Addresses{}, 10)
		w.must(err)
		var one []target
		var seqs []int64
		for seq := int64(1); seq <= 4; seq++ {
			found, err := w.table.targetsOf(t.Context(), seq, mesh.Addresses{})
			w.must(err)
			if len(found) > 0 {
				seqs = append(seqs, seq)
			}
			one = append(one, found...)
		}
		if !slices.Equal(seqs, want) || !reflect.DeepEqual(one, all) {
			t.Errorf("%s: %v, want %v: %v, and of all %v", config, seqs, want, one, all)
		}
	}
}
