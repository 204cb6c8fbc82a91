package e2e

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"meshddns/test/servertest"
	"meshddns/test/support"
)

// Litestream is built by
//
//	go -C test/e2e/replica build -o FOLDER-OF-YOUR-PATH github.com/benbjohnson/litestream/cmd/litestream
//
// and any other of the PATH that is at least as new as docs/operate.md says is as good.

// replicaPlaces are a machine whose database is replicated, and where to.
type replicaPlaces struct{ node, replica string }

func newReplicaPlaces(t *testing.T) replicaPlaces {
	t.Helper()
	dir := t.TempDir()
	at := replicaPlaces{filepath.Join(dir, "node"), filepath.Join(dir, "replica")}
	if err := os.Mkdir(at.node, 0o700); err != nil {
		t.Fatal(err)
	}
	return at
}

func (at replicaPlaces) db() string { return filepath.Join(at.node, "meshddns.db") }

// documented gives a text that the manual has, with the places of the test.
func (at replicaPlaces) documented(t *testing.T, text string) string {
	t.Helper()
	manual, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(manual), text) {
		t.Fatalf("docs/operate.md does not say:\n%s", text)
	}
	return strings.NewReplacer("/var/lib/meshddns", at.node, "/mnt/replica/meshddns", at.replica, "/etc/litestream.yml", at.node+".yml",
		"/run/litestream/litestream", at.node, "/var/lib/prometheus/node-exporter/litestream", at.node).Replace(text)
}

const replicaConfig = `socket: {enabled: true, path: /run/litestream/litestream.sock}
dbs:
  - path: /var/lib/meshddns/meshddns.db
    replica:
      path: /mnt/replica/meshddns         # or: url: s3://bucket/meshddns, sftp://user@host/folder
      sync-interval: 1s
`

// replicate runs Litestream as the manual says.
func (at replicaPlaces) replicate(t *testing.T) (litestream *exec.Cmd) {
	t.Helper()
	if err := os.WriteFile(at.node+".yml", []byte(at.documented(t, replicaConfig)), 0o600); err != nil {
		t.Fatal(err)
	}
	command := strings.Fields(at.documented(t, "litestream replicate -config /etc/litestream.yml"))
	litestream = exec.Command(command[0], command[1:]...)
	log := &support.Log{}
	litestream.Stdout, litestream.Stderr = log, log
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log of Litestream:\n%s", log)
		}
	})
	support.Start(t, litestream)
	return litestream
}

// restore makes a database of the replica, as the manual says.
func (at replicaPlaces) restore(t *testing.T, name string) (path string, err error) {
	t.Helper()
	path = filepath.Join(filepath.Dir(at.node), name+".db")
	command := strings.Fields(at.documented(t, "litestream restore -config /etc/litestream.yml -o meshddns.db /var/lib/meshddns/meshddns.db"))
	for i, word := range command {
		if word == "meshddns.db" {
			command[i] = path
		}
	}
	out, err := exec.Command(command[0], command[1:]...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	return path, os.Chmod(path, 0o600)
}

// arrives waits until something that is reserved now is in the replica, as Litestream
// restores it.
func (at replicaPlaces) arrives(p *program, service, prefix string) {
	p.t.Helper()
	p.call(200, "POST", usagesPath, fmt.Sprintf(`{"service_id":%q,"prefix_mode":"custom","custom_prefix":%q,"network_id":1}`, service, prefix))
	tries := 0
	p.eventually("the replica has what was reserved", func() bool {
		tries++
		path, err := at.restore(p.t, fmt.Sprintf("%s-%d", prefix, tries))
		if err != nil {
			return false // no snapshot yet
		}
		db := openDatabase(p.t, path)
		defer db.Close()
		var there int
		err = db.QueryRow(`SELECT count(*) FROM usages WHERE record_prefix = ?`, prefix).Scan(&there)
		return err == nil && there == 1
	})
}

// load starts the program on the machine, for a zone that another mesh has a value in.
func (at replicaPlaces) load(t *testing.T, s servertest.Server) (p *program, all []*chronicle, theirs, owner string) {
	t.Helper()
	p = start(t, "-db", at.db(), "-ipv4", "none", "-ipv6", "none")
	all = crowdOf(t, 4, accountAt(s))
	p.call(200, "PUT", configPath, `{`+accountAt(s)+`,"domain":"mesh.example.com","txt_record_name":"@","enabled":true,"sync_mode":"manual"}`)
	theirs = anotherMesh(t, s)
	_, owner = wantedBy(t, at.db())
	return p, all, theirs, owner
}

// end takes out of a database what Litestream has put there, as the manual says.
func (at replicaPlaces) end(t *testing.T, path string) {
	t.Helper()
	command := at.documented(t, "sqlite3 meshddns.db 'DROP TABLE _litestream_seq; DROP TABLE _litestream_lock'")
	if out, err := exec.Command("sh", "-c", strings.Replace(command, "meshddns.db", path, 1)).CombinedOutput(); err != nil {
		t.Errorf("%s: %v\n%s", command, err, out)
	}
	db := openDatabase(t, path)
	defer db.Close()
	mustBeSound(t, db)
	var left int
	if err := db.QueryRow(`SELECT count(*) FROM sqlite_schema WHERE name LIKE '%litestream%'`).Scan(&left); err != nil || left > 0 {
		t.Errorf("%d parts of Litestream are left in the database: %v", left, err)
	}
}

// A machine is lost under load, with its disk. The database that Litestream restores has
// everything that it was seen to have before, and is sound; the program goes on with it.
func TestReplica(t *testing.T) {
	notShort(t)
	support.Need(t, "litestream", "sqlite3")
	t.Parallel()
	s := servertest.Knot(t)
	at := newReplicaPlaces(t)
	p, all, theirs, owner := at.load(t, s)
	litestream := at.replicate(t)
	stop := work(p, all)
	defer stop()
	further(p, all, 6)
	known := answered(all)
	at.arrives(p, "svc-0", "seen")
	further(p, all, 6)
	p.cmd.Process.Kill()
	litestream.Process.Kill()
	stop()
	p.cmd.Wait()
	litestream.Wait()
	if err := os.RemoveAll(at.node); err != nil {
		t.Fatal(err)
	}
	path, err := at.restore(t, "restored")
	if err != nil {
		t.Fatal(err)
	}
	wrong, later := wanting(t, path, all, known)
	if len(wrong) > 0 {
		t.Errorf("the replica:\n%s", strings.Join(wrong, "\n"))
	}
	acknowledged := 0
	for _, n := range answered(all) {
		acknowledged += n
	}
	orphans := tidied(t, s, path, owner, theirs)
	at.end(t, path)
	t.Logf("%d acknowledgements, of which %d came after the last sync and are lost; %d orphans were swept", acknowledged, later, orphans)
}

// What is not replicated any more is found wanting; what was published meanwhile is swept.
func TestReplicaFindsLoss(t *testing.T) {
	notShort(t)
	support.Need(t, "litestream", "sqlite3")
	t.Parallel()
	s := servertest.Knot(t)
	at := newReplicaPlaces(t)
	litestream := at.replicate(t) // which waits for the file
	p, all, theirs, owner := at.load(t, s)
	stop := work(p, all)
	defer stop()
	further(p, all, 4)
	at.arrives(p, "svc-0", "seen")
	litestream.Process.Kill()
	litestream.Wait()
	further(p, all, 6)
	known := answered(all)
	support.Eventually(p.t, 2*limit, "all is published", func() bool {
		a, err := p.try("POST", syncPath, "")
		return err == nil && a.status == 200
	})
	p.cmd.Process.Kill()
	stop()
	p.cmd.Wait()
	path, err := at.restore(t, "restored")
	if err != nil {
		t.Fatal(err)
	}
	if wrong, _ := wanting(t, path, all, known); len(wrong) == 0 {
		t.Error("a replica that has ended is not found wanting")
	}
	if wrong, _ := wanting(t, path, all, make([]int, len(all))); len(wrong) > 0 {
		t.Errorf("the replica as it was:\n%s", strings.Join(wrong, "\n"))
	}
	orphans := tidied(t, s, path, owner, theirs)
	if orphans == 0 {
		t.Error("nothing was published after the replica had ended: a sweep has nothing to do")
	}
	t.Logf("%d orphans were swept", orphans)
}

// TestReplicaAge: the command of the manual writes when Litestream copied last. It leaves the file as it is once Litestream has
// ended, and the time once the replica cannot be written.
func TestReplicaAge(t *testing.T) {
	support.Need(t, "litestream")
	t.Parallel()
	at := newReplicaPlaces(t)
	for from, to := range map[string]string{at.replica: t.TempDir(), at.replica + "-broken": "/dev/null"} {
		if err := os.Symlink(to, from); err != nil {
			t.Fatal(err)
		}
	}
	litestream := at.replicate(t)
	p := start(t, "-db", at.db(), "-ipv4", "none", "-ipv6", "none")
	p.configure("manual", "tcp://203.0.113.7:1")
	command := at.documented(t, `litestream list -json -socket /run/litestream/litestream.sock | sed -n 's/.*"last_sync_at": "\(.*\)".*/\1/p' |
        xargs -I {} sh -c 'date -d {} "+litestream_last_sync_timestamp_seconds %s" > /var/lib/prometheus/node-exporter/litestream.prom'`)
	age := func() (seconds int64) {
		t.Helper()
		if out, err := exec.Command("sh", "-c", command).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		text, err := os.ReadFile(at.node + ".prom")
		if err != nil {
			return 0 // nothing was copied yet
		}
		if _, err := fmt.Sscanf(string(text), "litestream_last_sync_timestamp_seconds %d\n", &seconds); err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		return seconds
	}
	began := time.Now().Unix()
	p.eventually("there is a time", func() bool { return age() >= began })
	if err := os.Rename(at.replica+"-broken", at.replica); err != nil {
		t.Fatal(err)
	}
	p.call(200, "PUT", "/api/v1/ddns/services/late", `{"name":"Late","config":{}}`)
	last := age()
	p.eventually("the time stands still", func() bool {
		before := last
		last = age()
		return last == before && time.Now().Unix() > last+5
	})
	support.Kill(litestream)
	if after := age(); after != last {
		t.Errorf("%d after Litestream's end, want %d", after, last)
	}
}

// TestReplicaBesideCheckpoints: under a load that makes the program checkpoint by itself, Litestream goes on copying, and
// its copy equals the database. Without Litestream it does not.
func TestReplicaBesideCheckpoints(t *testing.T) {
	notShort(t)
	support.Need(t, "litestream")
	t.Parallel()
	at := newReplicaPlaces(t)
	litestream := at.replicate(t)
	p := start(t, "-db", at.db(), "-ipv4", "none", "-ipv6", "none")
	p.configure("manual", "tcp://203.0.113.7:1")
	least := time.Duration(support.Count(15, 600)) * time.Second
	var changes atomic.Int64
	var clients sync.WaitGroup
	defer clients.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for i := range 16 {
		id := p.call(200, "POST", usagesPath, fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"load%d","network_id":1}`, i)).field("id")
		clients.Go(func() {
			for ctx.Err() == nil {
				a, err := p.try("PATCH", usagesPath+"/"+id, fmt.Sprintf(`{"description":"%0200d"}`, changes.Add(1)))
				if err != nil || a.status != 200 {
					t.Errorf("PATCH: %v %d %s", err, a.status, a.body)
					return
				}
			}
		})
	}
	logs, seen := map[string]bool{}, 0 // beginnings of the WAL, which has other salts after each restart
	began := time.Now()
	support.Eventually(t, least+limit, "a checkpoint is complete, and the WAL is used again", func() bool {
		at.arrives(p, "svc", fmt.Sprintf("seen%d", seen))
		seen++
		if wal, err := os.ReadFile(at.db() + "-wal"); err == nil && len(wal) > 32 {
			logs[string(wal[16:24])] = true
		}
		return len(logs) >= 2 && time.Since(began) >= least
	})
	cancel()
	clients.Wait()
	equal := func() bool {
		path, err := at.restore(t, fmt.Sprintf("compared-%d", time.Now().UnixNano()))
		if err != nil {
			t.Fatal(err)
		}
		defer os.Remove(path)
		return maps.Equal(tables(t, path), tables(t, at.db()))
	}
	p.eventually("the replica equals the database", equal)
	support.Kill(litestream)
	p.call(200, "POST", usagesPath, `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"late","network_id":1}`)
	if equal() {
		t.Error("the comparison does not find what came after Litestream's end")
	}
	t.Logf("%d changes, the WAL began %d times or more, %d copies while it went on", changes.Load(), len(logs), seen)
}

// While Litestream does not run, no commit begins the WAL anew: else Litestream goes on in the new one, and its copy lacks what it has
// not read of the old one.
func TestReplicaAfterDeath(t *testing.T) {
	notShort(t)
	support.Need(t, "litestream")
	t.Parallel()
	at := newReplicaPlaces(t)
	litestream := at.replicate(t)
	p := start(t, "-db", at.db(), "-ipv4", "none", "-ipv6", "none")
	p.configure("manual", "tcp://203.0.113.7:1")
	id := p.call(200, "POST", usagesPath, `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"a","network_id":1}`).field("id")
	change := func(n int) {
		p.call(200, "PATCH", usagesPath+"/"+id, fmt.Sprintf(`{"description":"%0200d"}`, n))
	}
	equal := func() bool {
		path, err := at.restore(t, fmt.Sprintf("compared-%d", time.Now().UnixNano()))
		if err != nil {
			return false // there is no copy yet
		}
		defer os.Remove(path)
		return maps.Equal(tables(t, path), tables(t, at.db()))
	}
	for n := range 40 {
		change(n)
	}
	p.eventually("the replica equals the database", equal)
	support.Kill(litestream)
	wal := func() []byte {
		text, err := os.ReadFile(at.db() + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	salts := string(wal()[16:24])
	const pages = 1500 // with which the program would checkpoint without a copy
	for n := 0; string(wal()[16:24]) == salts && len(wal()) < pages*4096; n++ {
		change(n)
	}
	t.Logf("the WAL began anew: %t, %d pages", string(wal()[16:24]) != salts, len(wal())/4096)
	change(-1)
	at.replicate(t)
	p.eventually("the replica equals the database again", equal)
}

// tables gives a digest of the rows of each table of a database.
func tables(t *testing.T, path string) map[string]string {
	t.Helper()
	db, digests := openDatabase(t, path), map[string]string{}
	defer db.Close()
	for _, name := range support.Rows(t, db, `SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE '\_litestream\_%' ESCAPE '\'`) {
		digest := sha256.New()
		for _, row := range support.Rows(t, db, `SELECT * FROM "`+name+`"`) {
			fmt.Fprintln(digest, row)
		}
		digests[name] = fmt.Sprintf("%x", digest.Sum(nil))
	}
	return digests
}
