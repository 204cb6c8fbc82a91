package e2e

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"meshddns/test/support"
)

// 64 clients ask for one prefix at once, in several spellings: one of them gets it. The
// control is a database in which no two names are the same.
func TestOnePrefixFor64(t *testing.T) {
	t.Parallel()
	given, twice := onePrefix(t, ""), onePrefix(t, namesApart)
	t.Logf("64 clients, %d prefixes: %d reservations; in the control %d", rounds, given, twice)
	if given != rounds {
		t.Errorf("%d reservations of %d prefixes", given, rounds)
	}
	if twice <= rounds {
		t.Error("no prefix is given twice in the control: this test would find none")
	}
}

const rounds = 10

// namesApart takes the name of the usage that has it before another one gets it.
const namesApart = `CREATE TRIGGER names_apart BEFORE INSERT ON usages BEGIN UPDATE usages SET name = name || id WHERE name = new.name; END`

// onePrefix has 64 clients ask for the same prefix, one prefix after the other, and counts
// the clients that get it.
func onePrefix(t *testing.T, spoil string) (given int) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "meshddns.db")
	p := startSpoiled(t, path, spoil)
	for round := range rounds {
		answers := make([]answer, 64)
		var asking sync.WaitGroup
		for i := range answers {
			prefix := fmt.Sprintf("%s-%d", []string{"office", "OFFICE", "Office", "oFFicE"}[i%4], round)
			asking.Go(func() {
				answers[i], _ = p.try("POST", usagesPath, fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":%q,"network_id":%d}`, prefix, i+1))
			})
		}
		asking.Wait()
		for _, a := range answers {
			if a.status == 200 {
				given++
			} else if a.status != 400 || a.header.Get("X-Error-Code") != "prefix_taken" {
				t.Errorf("%d %s", a.status, a.body)
			}
		}
	}
	p.stop()
	if spoil == "" {
		mustBeSound(t, openDatabase(t, path))
	}
	return given
}

// startSpoiled runs the program on a configured database that a statement has changed.
func startSpoiled(t *testing.T, path, spoil string) *program {
	t.Helper()
	p := start(t, "-db", path)
	p.configure("manual", "tcp://203.0.113.7:1")
	p.stop()
	execute(t, path, spoil)
	return start(t, "-db", path)
}

// While 16 clients use every call that writes, no query of testdata/invariants.sql gives a
// row, and in the end everything is as it was answered. The control is a database whose
// usages are not counted.
func TestChurn(t *testing.T) {
	t.Parallel()
	if wrong := churn(t, ""); len(wrong) > 0 {
		t.Errorf("%d times: %s", len(wrong), wrong[0])
	}
	if wrong := churn(t, `DROP TRIGGER usages_discounted`); len(wrong) == 0 {
		t.Error("without its counts the database is sound: this test would find nothing")
	}
}

// churn has 16 clients work, and tells what was wrong meanwhile and in the end.
func churn(t *testing.T, spoil string) (wrong []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "meshddns.db")
	p := startSpoiled(t, path, spoil)
	db := openDatabase(t, path)
	all := make([]*witness, 16)
	var working sync.WaitGroup
	var given atomic.Int64
	const every = 50
	answers := int64(support.Count(400, 1000))
	look := make(chan bool, answers/every)
	for i := range all {
		all[i] = newWitness(t, i, 1)
		working.Go(func() {
			for n := given.Add(1); n <= answers && !t.Failed(); n = given.Add(1) {
				if !all[i].step(p) {
					t.Error("the program does not answer")
				}
				if n%every == 0 {
					look <- true
				}
			}
		})
	}
	go func() { working.Wait(); close(look) }()
	looks := 0
	for range look {
		wrong = append(wrong, unsound(t, db)...)
		looks++
	}
	p.stop() // a race that was found is another status than 0
	if text := p.log.String(); strings.Contains(text, "DATA RACE") {
		t.Error("a data race")
	}
	t.Logf("16 clients, %d answers, %d looks at the invariants, %d rows %q", answers, looks, len(wrong), spoil)
	return append(wrong, differences(t, db, all)...)
}
