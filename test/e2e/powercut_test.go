package e2e

import (
	"bytes"
	"database/sql"
	octets "encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"meshddns/test/support"
)

// operation is an entry of the journal that testdata/faults.c writes.
type operation struct {
	kind   opKind
	path   string // below the folder, "" for the folder itself
	offset int64  // the size, of a truncation
	data   []byte
}

// readJournal gives what the program did to the files below a folder.
func readJournal(t *testing.T, d *disk) (all []operation) {
	t.Helper()
	text, err := os.ReadFile(d.journal)
	if err != nil {
		t.Fatal(err)
	}
	for len(text) > 0 {
		var head struct{ Kind, Offset, Path, Data int64 }
		octets.Read(bytes.NewReader(text), octets.NativeEndian, &head)
		text = text[octets.Size(head):]
		path := strings.TrimPrefix(strings.TrimPrefix(string(text[:head.Path]), d.folder), "/")
		text = text[head.Path:]
		all = append(all, operation{opKind(head.Kind), path, head.Offset, text[:head.Data]})
		text = text[head.Data:]
	}
	return all
}

// platter is a disk with a volatile cache: files with what is safe and what waits for a
// sync, and the names, which are safe after the sync of their folder only.
type platter struct {
	safe    map[string]*inode // the names, as they were when their folder was synced last
	now     map[string]*inode
	pending []rename
}

type inode struct {
	content []byte
	pending []operation
}

// rename is a name that has come (of a file) or gone (nil), and is not safe yet.
type rename struct {
	name string
	file *inode
}

func newPlatter(files map[string][]byte) *platter {
	p := &platter{safe: map[string]*inode{}, now: map[string]*inode{}}
	for name, content := range files {
		p.safe[name] = &inode{content: content}
	}
	maps.Copy(p.now, p.safe)
	return p
}

// do does an operation. A sync of what does not count as one, keeps is false for, is lost.
func (p *platter) do(op operation, keeps bool) {
	file := p.now[op.path]
	if op.kind == opUnlink {
		delete(p.now, op.path)
		p.pending = append(p.pending, rename{op.path, nil})
		return
	}
	if op.kind == opSync {
		switch {
		case !keeps:
		case op.path == "":
			for _, r := range p.pending {
				r.apply(p.safe)
			}
			p.pending = nil
		case file != nil:
			for _, waiting := range file.pending {
				file.content = waiting.apply(file.content, func() bool { return true })
			}
			file.pending = nil
		}
		return
	}
	if file == nil {
		file = &inode{}
		p.now[op.path] = file
		p.pending = append(p.pending, rename{op.path, file})
	}
	file.pending = append(file.pending, op)
}

func (r rename) apply(names map[string]*inode) {
	if r.file == nil {
		delete(names, r.name)
	} else {
		names[r.name] = r.file
	}
}

const sector = 512

// apply does a write or a truncation to a content, each sector of it if it survives.
func (op operation) apply(content []byte, survives func() bool) []byte {
	if op.kind == opTruncate {
		if !survives() {
			return content
		}
		if int64(len(content)) < op.offset {
			return append(slices.Clip(content), make([]byte, op.offset-int64(len(content)))...)
		}
		return slices.Clip(content[:op.offset])
	}
	content = bytes.Clone(content)
	for from := int64(0); from < int64(len(op.data)); {
		to := min((op.offset+from)/sector*sector+sector-op.offset, int64(len(op.data)))
		if survives() {
			if end := op.offset + to; int64(len(content)) < end {
				content = append(content, make([]byte, end-int64(len(content)))...)
			}
			copy(content[op.offset+from:], op.data[from:to])
		}
		from = to
	}
	return content
}

// cut gives the files after a power cut. How much of what was not safe survives is by
// chance: nothing, half of the sectors, nine in ten, or the first so many operations.
func (p *platter) cut(how int, chance *rand.Rand) map[string][]byte {
	survives := func() bool { return false }
	switch how {
	case 1:
		survives = func() bool { return chance.IntN(2) == 0 }
	case 2:
		survives = func() bool { return chance.IntN(10) > 0 }
	case 3:
		left := chance.IntN(100)
		survives = func() bool { left--; return left >= 0 }
	}
	names := maps.Clone(p.safe)
	for _, r := range p.pending {
		if survives() {
			r.apply(names)
		}
	}
	files := map[string][]byte{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		file := names[name]
		content := file.content
		for _, waiting := range file.pending {
			content = waiting.apply(content, survives)
		}
		files[name] = content
	}
	return files
}

const waysToCut = 4

// event is a change that a client asked for: how many operations there were then, and
// when it was acknowledged; -1 for never.
type event struct {
	change
	asked, acked int64
}

// recording is a run of the program, with what was asked of it.
type recording struct {
	begin  map[string][]byte // the files
	facts  map[string]string // in them
	all    []operation
	mu     sync.Mutex
	events []event
}

// record runs the program under clients on a disk that is recorded.
func record(t *testing.T, old bool, clients, requests int) *recording {
	t.Helper()
	d := newDisk(t)
	d.env = append(d.env, "FAULTS_JOURNAL="+d.journal)
	rec := &recording{begin: map[string][]byte{}, facts: map[string]string{}}
	if old {
		rec.facts = older(t, d.db)
	}
	files, err := filepath.Glob(d.db + "*")
	for _, path := range files {
		if rec.begin[filepath.Base(path)], err = os.ReadFile(path); err != nil {
			break
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	p := d.start()
	if p.client == nil {
		t.Fatalf("the program does not start:\n%s", p.log)
	}
	rec.ask(p, d, firstConfiguration, change{"configuration", "1"})
	var working sync.WaitGroup
	for i := range clients {
		working.Go(func() {
			w := newWitness(t, i, scenarioSeed)
			if old && i == 0 {
				w.facts, w.ids["p-0-0"] = maps.Clone(rec.facts), "01936f1e-5c3b-7d4a-8e2f-0123456789ab"
			}
			for range requests {
				request, c := w.next()
				a := rec.ask(p, d, request, c)
				w.learn(c)
				if prefix, ok := strings.CutPrefix(c.about, "usage "); ok && strings.HasPrefix(request, "POST ") {
					w.ids[prefix] = a.field("id")
				}
			}
		})
	}
	working.Wait()
	p.stop()
	rec.all = readJournal(t, d)
	return rec
}

// ask makes a request, and remembers when it was acknowledged.
func (rec *recording) ask(p *program, d *disk, request string, c change) answer {
	method, rest, _ := strings.Cut(request, " ")
	path, body, _ := strings.Cut(rest, " ")
	asked := d.entries()
	a, err := p.try(method, path, body)
	acked := d.entries()
	if err != nil || a.status >= 400 && path != syncPath+"?dry_run=0" {
		p.t.Errorf("%s: %d %s %v", request, a.status, a.body, err)
	}
	if c.about != "" {
		rec.mu.Lock()
		defer rec.mu.Unlock()
		rec.events = append(rec.events, event{c, asked, acked})
	}
	return a
}

// allowed gives what may be known of each thing after a cut behind so many operations:
// what was acknowledged last, and what was asked for after it.
func (rec *recording) allowed(cut int64) map[string][]string {
	may := map[string][]string{}
	for about, is := range rec.facts {
		may[about] = []string{is}
	}
	for _, e := range rec.events {
		if may[e.about] == nil {
			may[e.about] = []string{""}
		}
		switch {
		case e.acked <= cut:
			may[e.about] = []string{e.to}
		case e.asked <= cut:
			may[e.about] = append(may[e.about], e.to)
		}
	}
	return may
}

// cutEvery cuts the power behind every so many of the operations, in every way, and
// tells how often, and what was wrong then. syncs says which syncs the disk obeys.
func (rec *recording) cutEvery(t *testing.T, step int, syncs func(i int) bool) (cuts int, wrong []string) {
	t.Helper()
	disk := newPlatter(rec.begin)
	dir := t.TempDir()
	for i, op := range rec.all {
		disk.do(op, op.kind != opSync || syncs(i))
		if i%step != 0 && i < len(rec.all)-1 {
			continue
		}
		for how := range waysToCut {
			files := disk.cut(how, rand.New(rand.NewPCG(uint64(i), uint64(how))))
			cuts++
			if fault := rec.look(t, filepath.Join(dir, fmt.Sprint(i, "-", how)), files, int64(i+1)); fault != "" {
				wrong = append(wrong, fmt.Sprintf("power cut %d behind operation %d (%v %s): %s", how, i+1, op.kind, op.path, fault))
			}
		}
	}
	return cuts, wrong
}

// look tells what is wrong with the files that a power cut has left.
func (rec *recording) look(t *testing.T, dir string, files map[string][]byte, cut int64) (wrong string) {
	t.Helper()
	defer os.RemoveAll(dir)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		path := filepath.Join(dir, name)
		os.MkdirAll(filepath.Dir(path), 0o700) // of a copy
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "meshddns.db")
	version, err := versionOf(t, path, files)
	if err == nil && (version < newest() || cut%startEvery == 0) {
		p := launch(t, nil, []string{binary(t)}, "-db", path, "-ipv4", "none", "-ipv6", "none")
		if p.client == nil {
			return "the program does not start: " + p.log.String()
		}
		p.stop()
	}
	if err != nil {
		return err.Error()
	}
	db := openDatabase(t, path)
	defer db.Close()
	if faults := unsound(t, db); len(faults) > 0 {
		return strings.Join(faults, ", ")
	}
	stored := storedFacts(t, db)
	may := rec.allowed(cut)
	for about, values := range may {
		if !slices.Contains(values, stored[about].is) {
			return fmt.Sprintf("%s is %q, want one of %q", about, stored[about].is, values)
		}
	}
	for about, f := range stored {
		if may[about] == nil {
			return fmt.Sprintf("%s is %q and was never asked for", about, f.is)
		}
	}
	return ""
}

// startEvery says after how many cuts the program itself opens what is left; SQLite
// opens the others, which is quicker.
const startEvery = 16

// newest is the schema's version, as the program makes it.
var newest = sync.OnceValue(func() int {
	files, _ := filepath.Glob("../../internal/migrations/*.sql")
	last := 0
	for _, file := range files {
		var version int
		fmt.Sscanf(filepath.Base(file), "%d.sql", &version)
		last = max(last, version)
	}
	if last == 0 {
		panic("no migrations")
	}
	return last
})

// versionOf gives the version of a database's schema, 0 when there is none.
func versionOf(t *testing.T, path string, files map[string][]byte) (version int, err error) {
	t.Helper()
	if len(files["meshddns.db"]) == 0 && len(files["meshddns.db-wal"]) == 0 {
		return 0, nil
	}
	db := openDatabase(t, path)
	defer db.Close()
	err = db.QueryRow(`PRAGMA user_version`).Scan(&version)
	return version, err
}

// asNormal gives the syncs that SQLite makes with synchronous=NORMAL: those of the log
// only before it is written into the file.
func (rec *recording) asNormal(i int) bool {
	if !strings.HasSuffix(rec.all[i].path, "-wal") {
		return true
	}
	for _, next := range rec.all[i+1:] {
		switch {
		case next.kind == opWrite && next.path == "meshddns.db":
			return true
		case next.kind == opWrite && strings.HasSuffix(next.path, "-wal"):
			return false
		}
	}
	return false
}

// A power cut behind any operation loses nothing that was acknowledged: MESHDDNS_FAULTS=all
// cuts behind each, a number behind so many. The control, the same disk and the same cuts
// without the syncs that synchronous=NORMAL does without, must lose.
func TestPowerCuts(t *testing.T) {
	notShort(t)
	t.Parallel()
	sample := sampleOf(t, 20)
	for name, c := range map[string]struct {
		old               bool
		clients, requests int
	}{
		"first start":                   {false, 1, 40},
		"older file":                    {true, 1, 40},
		"16 clients that share commits": {false, 16, 12},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rec := record(t, c.old, c.clients, c.requests)
			if t.Failed() {
				return
			}
			step := 1
			if sample > 0 {
				step = max(len(rec.all)/int(sample), 1)
			}
			cuts, wrong := rec.cutEvery(t, step, func(int) bool { return true })
			if len(wrong) > 0 {
				t.Errorf("%d of %d power cuts lose something:\n%s", len(wrong), cuts, strings.Join(wrong[:min(len(wrong), 10)], "\n"))
			}
			_, lost := rec.cutEvery(t, step, rec.asNormal)
			t.Logf("%d power cuts behind %d operations, with %d acknowledgements: %d lose something; with synchronous=NORMAL %d do",
				cuts, len(rec.all), len(rec.events), len(wrong), len(lost))
			if len(lost) == 0 {
				t.Error("the control loses nothing: this test would find no loss")
			}
		})
	}
}

// TestFaultInSharedCommit makes 16 reservations share commits while the disk fails. A
// reservation that is acknowledged stands, also after a kill; one that is refused does not.
func TestFaultInSharedCommit(t *testing.T) {
	t.Parallel()
	const clients = 16
	shared, refused := 0, 0
	for _, k := range []opKind{opWrite, opSync} {
		for nth := int64(1); nth <= int64(number(t, "MESHDDNS_FAULT_GROUPS", 4)); nth++ {
			d := newDisk(t)
			r := &run{disk: d, w: newWitness(t, 0, 1)}
			r.begin()
			r.p.configure("manual", "tcp://203.0.113.7:1")
			before := d.control.count[opSync]
			f := diskFault{kinds: 1 << k, nth: nth, persistent: nth%2 == 0, err: 5}
			d.arm(f)
			var working sync.WaitGroup
			told := make([]answer, clients)
			for i := range clients {
				working.Go(func() {
					told[i], _ = r.p.try("POST", usagesPath, fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"g-%d","network_id":%d}`, i, i+1))
				})
			}
			working.Wait()
			d.heal()
			if d.control.count[opSync]-before < clients {
				shared++
			}
			refused += lookAtGroup(t, d.db, told, true)
			support.Kill(r.p.cmd)
			lookAtGroup(t, d.db, told, false)
			if t.Failed() {
				t.Fatalf("under %v", f)
			}
		}
	}
	t.Logf("%d of the runs shared commits; %d reservations were refused, every other one is there", shared, refused)
	if shared == 0 || refused == 0 {
		t.Errorf("commits were shared in %d runs, %d reservations were refused: want some of both", shared, refused)
	}
}

// lookAtGroup compares reservations with what was answered, and counts the refused. What
// was refused because the sync failed is in the log file all the same: it is not there
// while the program runs, and may be when it is killed at once.
func lookAtGroup(t *testing.T, path string, told []answer, running bool) (refused int) {
	t.Helper()
	db := openDatabase(t, path)
	defer db.Close()
	mustBeSound(t, db)
	for i, a := range told {
		var id sql.NullString
		err := db.QueryRow(`SELECT id FROM usages WHERE record_prefix = ?`, fmt.Sprintf("g-%d", i)).Scan(&id)
		switch {
		case a.status == 200 && (err != nil || id.String != a.field("id")):
			t.Errorf("g-%d was acknowledged and is lost: %v", i, err)
		case a.status != 200 && err == nil && running:
			t.Errorf("g-%d is there, answered was %d %s", i, a.status, a.body)
		case a.status != 200:
			refused++
		}
	}
	return refused
}
