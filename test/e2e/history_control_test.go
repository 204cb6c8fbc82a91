package e2e

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// historyControl is a program with one mistake, which TestHistories has to find.
//
// To add one: name the rule that is broken, in words; give the file, and a text that is
// in it exactly once, with what is put in its place (it has to compile); say in how many
// histories it is to be found, three times as many as it took in a few runs with other
// seeds; and what is said of it, as a regular expression. Then run
//
//	MESHDDNS_HISTORY_CONTROLS='a few words of its name' go test -v -run TestHistoriesControls ./test/e2e
//
// A control whose text is no longer in the file fails: it is to be written anew.
type historyControl struct {
	name     string
	file     string
	old, new string
	within   int      // histories
	steps    string   // that they make: "" for all of them
	finds    string   // "": nothing
	more     mistakes // in other files
}

// lateSteps are those with a write that arrives late. The program of their controls has time for them until the second look.
const (
	lateSteps = "late write"
	lateLook  = "2s"
)

// mistakes are texts of other files, by the file: what stands there once, and what is put in its place.
type mistakes map[string][2]string

// Some rules have tests of their own only, because other rules of the program hide a breach from the
// histories, or too few meet it: that only a late look settles a doubt (TestPlaceTable), when a prefix is
// free (TestFree), that neither what is wanted (TestWantedIsNoOrphan) nor what has a place
// (TestOrphansAreStrangers) is an orphan, that a second look is no work of a pass (TestLookDoesNotCount),
// and that a move keeps what may stand (TestDesired), all in package reconcile; and that a newer secret
// withdraws for an older one (TestPublishing/SecretOfWithdrawal).
var historyControls = []historyControl{
	{name: "nothing", within: 50},
	{
		name: "a value of a version that only begins like ours is a mesh's", file: "internal/mesh/value.go",
		old: "words[0] != version", new: "!strings.HasPrefix(words[0], version)",
		within: 300, finds: `is missing|reported for no reason|values of others`,
	},
	{
		name: "the network of a value is not read", file: "internal/mesh/value.go",
		old: `return member(strings.Fields(value), "n=")`, new: `return ""`,
		within: 100, finds: `stands, is not wanted|is missing|gap: |has lost the old value|occupied|the usage is|two networks`,
	},
	{
		name: "a write leaves no doubt", file: "internal/reconcile/place.go",
		old: "p = p.doubting(e.Value)", new: "_ = e",
		within: 300, finds: `.`,
	},
	{
		name: "zones of one name are one", file: "internal/reconcile/place.go",
		old: "		return SameZone\n	}\n	return Unsure", new: "		return SameZone\n	}\n	return SameZone",
		within: 300, finds: `.`,
	},
	{
		name: "zones that are not known to be one are two", file: "internal/reconcile/place.go",
		old: "		return SameZone\n	}\n	return Unsure", new: "		return SameZone\n	}\n	return OtherZone",
		within: 300, finds: `.`,
	},
	{
		name: "a place that may hold a value ends", file: "internal/reconcile/place.go",
		old: "if p.empty() {", new: "if true {",
		within: 100, finds: `.`,
	},
	{
		name: "values of every owner are ours", file: "internal/reconcile/rrset.go",
		old: "ours = marked && (owner == g.owner", new: "ours = marked && (true",
		within: 100, finds: `.`,
	},
	{
		name: "a write without an answer was not made", file: "internal/reconcile/zone.go",
		old: "} else if err == nil || !made && provider.Unmade(err) {", new: "} else {",
		within: 300, finds: `.`,
	},
	{
		name: "a time far ahead is waited for", file: "internal/reconcile/lane.go",
		old: "return at.After(now) && at.Sub(now) <= longest", new: "return at.After(now)",
		within: 300, finds: `.`,
	},
	{
		name: "the state is that of the last look", file: "internal/reconcile/shown.go",
		old: "state := r.Now().State", new: "state := r.Place.State",
		within: 100, finds: `.`,
	},
	{
		name: "two zones are not probed for being one", file: "internal/reconcile/probe.go",
		old: "same, err := b.probe(ctx, b.conn, p)", new: "same, err := false, error(nil)",
		within: 300, finds: `.`,
	},
	{
		name: "what stood of a record without a mark, and is not seen, is forgotten", file: "internal/reconcile/place.go",
		old: `if gone := without(p.Standing, seen); gone != "" {`, new: `if gone := without(p.Standing, seen); gone != "" && false {`,
		within: 100, finds: `has no mark|is missing|conflict|for no reason|the record `,
	},
	{
		name: "the outcome of a retry is taken for that of the first try", file: "internal/provider/batch.go",
		old: "		if doubted {\n			err = repeated(err)", new: "		if doubted && err != nil {\n			err = repeated(err)",
		within: 100, finds: `may still arrive|a late batch over a newer value`,
	},
	{
		name: "a wanted value without a mark is ours at every provider", file: "internal/reconcile/sibling.go",
		old: "len(g.adopted) > 0 && !g.open && slices.Contains(SiblingValues(g.want), value)", new: "slices.Contains(SiblingValues(g.want), value)",
		within: 300, finds: `values of others`,
	},
	{
		name: "a built-in zone is not served when it is configured no more", file: "internal/builtin/table.go",
		old: "a.provider = 'builtin' AND p.zone = z.zone))`", new: "a.provider = 'builtin' AND p.zone = z.zone AND 0))`",
		within: 100, finds: `gap in DNS|the built-in server answers`,
	},
	{
		name: "places in two built-in zones are two", file: "internal/reconcile/place.go",
		old: "case a.Builtin() && b.Builtin(), a.ID == b.ID", new: "case a.ID == b.ID",
		within: 100, finds: `gap|is missing`,
		more: mistakes{
			"internal/reconcile/item.go": {"case old.Zone != \"\" && !r.Account.Builtin() && !r.withdraws():", "case old.Zone != \"\" && !r.withdraws():"},
		},
	},
	{
		name: "beside a value of others, ours stays as it is", file: "internal/reconcile/sibling.go",
		old:    "conflict = g.foreign(seen)\n",
		new:    "if conflict = g.foreign(seen); conflict != nil && !g.open {\n		return provider.Change{Seen: seen, TTL: recordTTL}, conflict\n	}\n",
		within: 100, finds: `has no mark, is not wanted`,
	},
	{
		name: "a dead endpoint stays in the records", file: "internal/reconcile/desired.go",
		old: "return slices.Contains(w.dead, e.Text) }", new: "return false }",
		within: 100, finds: `an endpoint is dead`,
	},
	{
		name: "a value has room for one endpoint less", file: "internal/mesh/value.go",
		old: "!fits[text] && octets(i) <= room {", new: "!fits[text] && octets(i)+20 <= room {",
		within: 100, finds: `is missing|leaves .* out`,
	},
	{
		name: "renewals are forgotten at a start", file: "internal/lease/table.go",
		old:    "	live, err := sqlite.Collect(",
		new:    "	t.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error { _, err := tx.ExecContext(ctx, `UPDATE leases SET endpoints = '[]'`); return err })\n	live, err := sqlite.Collect(",
		within: 100, finds: `.`,
	},
	{
		name: "a first value is written beside a value of others", file: "internal/reconcile/sibling.go",
		old: "excluded := conflict != nil && (!g.open || g.unseen(seen) != nil); excluded", new: "excluded := conflict != nil && g.unseen(seen) != nil; excluded",
		within: 100, finds: `writes beside|is reported for no reason|and is not reported|the record `,
	},
	{
		name: "every value beside a challenge is ours", file: "internal/reconcile/sibling.go",
		old: "return slices.Contains(g.known, value) && !slices.Contains(g.beside, value) ||", new: "return slices.Contains(g.known, value) && !slices.Contains(g.beside, value) || g.open ||",
		within: 60, finds: `removes a value of others|values of others at _acme|a value of others is the challenge`,
	},
	{
		name: "a challenge that is a value of others is ours", file: "internal/reconcile/sibling.go",
		old: "len(g.adopted) > 0 && !g.open && slices.Contains(SiblingValues(g.want), value)", new: "(len(g.adopted) > 0 || g.open) && slices.Contains(SiblingValues(g.want), value)",
		within: 60, finds: `values of others at|a value of others is the challenge`,
	},
	{
		name: "a challenge is not withdrawn in mode upsert-only", file: "internal/reconcile/desired.go",
		old: "state.UpsertOnly && !g.open &&", new: "state.UpsertOnly &&",
		within: 200, finds: `has no mark`,
	},
	{
		name: "the last value of others at a name goes with ours, at one vendor", file: "internal/provider/godaddy.go",
		old: "if len(to.records) == 0 {", new: "if len(to.records) < 2 {",
		within: 20, finds: `is lost|POST /api/v1/ddns/sync: <nil> 500`,
	},
	{
		name: "nothing is looked at once more", file: "internal/reconcile/secondlook_quick.go",
		old: "200 * time.Millisecond", new: "24 * time.Hour",
		within: 100, finds: `is in the database still|is not through|stands, is not wanted|is missing`,
	},
	{name: "second looks: nothing", steps: lateSteps, within: 2},
	{
		name: "second looks: none", file: "internal/reconcile/place.go", steps: lateSteps,
		old: "		at = soonest(at, p.LookAt)\n", new: "		_ = p\n",
		within: 10, finds: `no look asks for it|a late write`,
	},
	{
		name: "second looks: none is needed for a withdrawal", file: "internal/reconcile/place.go", steps: lateSteps,
		old: "case p.State == Withdrawn && looked:", new: "case looked || true:",
		within: 3, finds: `no look asks for it|may still arrive|stands, is not wanted|is free, and .* stands`,
	},
	{
		name: "second looks: each look settles the outcome of a write", file: "internal/reconcile/place.go", steps: lateSteps,
		old: "if looked || p.LookAt.IsZero() {", new: "if true {",
		within: 3, finds: `no look asks for it|a late write|may still arrive`,
	},
}

// TestHistoriesControls breaks one rule after the other in a copy of the program, and
// wants each to be found. MESHDDNS_HISTORY_CONTROLS says which, as a regular expression.
func TestHistoriesControls(t *testing.T) {
	chosen := os.Getenv("MESHDDNS_HISTORY_CONTROLS")
	if chosen == "" {
		t.Skip("long: MESHDDNS_HISTORY_CONTROLS=. runs all of them")
	}
	wanted := regexp.MustCompile(chosen)
	for _, control := range historyControls {
		if !wanted.MatchString(control.name) {
			continue
		}
		t.Run(control.name, func(t *testing.T) {
			program, err := control.build(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			said, failed := control.run(program)
			switch {
			case !failed && control.finds != "":
				t.Errorf("not found in %d histories", control.within)
			case failed && control.finds == "":
				t.Errorf("found in a program without a mistake:\n%s", said)
			case failed && !regexp.MustCompile(control.finds).MatchString(said):
				t.Errorf("found is not %q:\n%s", control.finds, said)
			default:
				t.Logf("found: %t, with %d histories that passed: %s", failed, strings.Count(said, "--- PASS"), firstFinding(said))
			}
		})
	}
}

// build makes the program of a copy of the sources with the mistake. Only the compiler
// writes what is run.
func (c historyControl) build(dir string) (program string, err error) {
	sources := filepath.Join(dir, "sources")
	if err := copySources(sources); err != nil {
		return "", err
	}
	texts, err := c.mistaken()
	for file, text := range texts {
		if err == nil {
			err = os.WriteFile(filepath.Join(sources, file), []byte(text), 0o600)
		}
	}
	if err != nil {
		return "", err
	}
	program = filepath.Join(dir, "meshddns-quick")
	build := exec.Command("go", "build", buildFlag, "-tags", "quick", "-o", program, ".")
	build.Dir = sources
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the program: %w\n%s", err, out)
	}
	return program, nil
}

// mistaken gives the texts of the files with the mistake.
func (c historyControl) mistaken() (texts map[string]string, err error) {
	texts = map[string]string{}
	all := mistakes{}
	maps.Copy(all, c.more)
	if c.steps != "" {
		all["internal/reconcile/secondlook_quick.go"] = [2]string{"200 * time.Millisecond", "2 * time.Second"}
	}
	if c.file != "" {
		all[c.file] = [2]string{c.old, c.new}
	}
	for file, change := range all {
		text, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil {
			return nil, err
		}
		if n := strings.Count(string(text), change[0]); n != 1 {
			return nil, fmt.Errorf("%q is %d times in %s, want once: the control is to be written anew", change[0], n, file)
		}
		texts[file] = strings.Replace(string(text), change[0], change[1], 1)
	}
	return texts, nil
}

// TestHistoriesControlsFit wants every control to find its text in the sources of today.
func TestHistoriesControlsFit(t *testing.T) {
	for _, control := range historyControls {
		if _, err := control.mistaken(); err != nil {
			t.Errorf("%s: %v", control.name, err)
		}
	}
}

// notSources are folders that the program is not built of.
var notSources = []string{".git", ".ci", "test", "deploy", "testdata"}

func copySources(to string) error {
	return filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		target := filepath.Join(to, strings.TrimPrefix(path, "../.."))
		switch {
		case entry.IsDir() && slices.Contains(notSources, entry.Name()):
			return fs.SkipDir
		case entry.IsDir():
			return os.MkdirAll(target, 0o700)
		case !entry.Type().IsRegular() || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		return copyFile(path, target)
	})
}

// run runs the histories with a program, and gives what they say.
func (c historyControl) run(program string) (said string, failed bool) {
	test := exec.Command(os.Args[0], "-test.run=^TestHistories$", "-test.v", "-test.failfast", "-test.timeout=30m")
	test.Env = append(os.Environ(), programName+"="+program, fmt.Sprintf("MESHDDNS_HISTORIES=%d", c.within), stepsName+"="+c.steps)
	if c.steps != "" {
		test.Env = append(test.Env, lookName+"="+lateLook)
	}
	out, err := test.CombinedOutput()
	return string(out), err != nil
}

// firstFinding gives the line in which a history first says what is wrong.
func firstFinding(said string) string {
	return strings.TrimSpace(regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: after .*\n.*$`).FindString(said))
}
