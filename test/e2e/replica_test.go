package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

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
	return strings.NewReplacer("/var/lib/meshddns", at.node, "/mnt/replica/meshddns", at.replica, "/etc/litestream.yml", at.node+".yml").Replace(text)
}

const replicaConfig = `dbs:
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
