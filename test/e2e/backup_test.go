package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"meshddns/test/servertest"
	"meshddns/test/support"
)

// chronicle is a witness that remembers all that it ever knew: a copy of the database that
// is made meanwhile shows one of these states.
type chronicle struct {
	*witness
	mu     sync.Mutex
	states []map[string]string
}

// crowdOf makes such clients, whose configuration has an account.
func crowdOf(t *testing.T, clients int, account string) (all []*chronicle) {
	for i := range clients {
		w := newWitness(t, i, 1)
		w.account = account
		all = append(all, &chronicle{witness: w, states: []map[string]string{{}}})
	}
	return all
}

// work lets all clients work until the program ends, or stop is called.
func work(p *program, all []*chronicle) (stop func()) {
	var stopped atomic.Bool
	var working sync.WaitGroup
	for _, c := range all {
		working.Go(func() {
			for !stopped.Load() && c.step(p) {
				c.mu.Lock()
				c.states = append(c.states, maps.Clone(c.facts))
				c.mu.Unlock()
			}
		})
	}
	return func() { stopped.Store(true); working.Wait() }
}

// answered gives how many answers each client has had.
func answered(all []*chronicle) (known []int) {
	for _, c := range all {
		c.mu.Lock()
		known = append(known, len(c.states)-1)
		c.mu.Unlock()
	}
	return known
}

// further waits until each client has had so many more answers.
func further(p *program, all []*chronicle, answers int) {
	p.t.Helper()
	before := answered(all)
	p.eventually("every client is answered", func() bool {
		for i, now := range answered(all) {
			if now < before[i]+answers {
				return p.t.Failed()
			}
		}
		return true
	})
}

// owns tells whether something is changed by this client alone.
func (w *witness) owns(about string) bool {
	return about == "configuration" && w.number == 0 || strings.HasPrefix(about, fmt.Sprintf("usage p-%d-", w.number)) ||
		slices.Contains([]string{fmt.Sprintf("service svc-%d", w.number), fmt.Sprintf("service svc-%d-other", w.number)}, about) ||
		strings.HasPrefix(about, fmt.Sprintf("adopted %06x", w.number))
}

// wanting says why a database is no copy of one that has had everything that was
// acknowledged when the clients had so many answers. Else it tells how many of the later
// answers are not in it. The clients have stopped.
func wanting(t *testing.T, path string, all []*chronicle, known []int) (wrong []string, later int) {
	t.Helper()
	db := openDatabase(t, path)
	defer db.Close()
	if wrong := unsound(t, db); len(wrong) > 0 {
		return wrong, 0
	}
	stored := storedFacts(t, db)
	for i, c := range all {
		is := map[string]string{}
		for about, f := range stored {
			if c.owns(about) {
				is[about] = f.is
			}
		}
		if n := c.stateOf(is); n < known[i] {
			wrong = append(wrong, fmt.Sprintf("client %d: what is stored was true after %d answers (-1: never), want %d at least", i, n, known[i]))
		} else {
			later += max(len(c.states)-1-n, 0)
		}
	}
	return wrong, later
}

// stateOf gives after how many answers something was true, at last: -1 for never.
func (c *chronicle) stateOf(is map[string]string) int {
	for n, state := range slices.Backward(c.states) {
		if maps.Equal(state, is) {
			return n
		}
	}
	if c.doubt.about == "" {
		return -1
	}
	perhaps := maps.Clone(c.states[len(c.states)-1])
	if perhaps[c.doubt.about] = c.doubt.to; c.doubt.to == "" {
		delete(perhaps, c.doubt.about)
	}
	if maps.Equal(perhaps, is) {
		return len(c.states)
	}
	return -1
}

// A backup that is made under load is sound, and has everything that was acknowledged
// before it began. The file alone, copied while the program works, has not.
func TestBackupUnderLoad(t *testing.T) {
	t.Parallel()
	const clients, backups = 6, 6
	dir := t.TempDir()
	live := filepath.Join(dir, "meshddns.db")
	p := start(t, "-db", live)
	all := crowdOf(t, clients, "")
	stop := work(p, all)
	defer stop()
	var known [backups][]int
	file := func(n int, kind string) string { return filepath.Join(dir, fmt.Sprintf("%d-%s.db", n, kind)) }
	for n := range backups {
		further(p, all, 10)
		known[n] = answered(all)
		if err := copyFile(live, file(n, "bare")); err != nil {
			t.Fatal(err)
		}
		a := p.call(200, "GET", backupPath, "")
		if err := os.WriteFile(file(n, "backup"), []byte(a.body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	further(p, all, 1)
	stop()
	p.rest()
	found, acknowledged := 0, 0
	for n := range backups {
		if wrong, _ := wanting(t, file(n, "backup"), all, known[n]); len(wrong) > 0 {
			t.Errorf("backup %d:\n%s", n, strings.Join(wrong, "\n"))
		}
		if wrong, _ := wanting(t, file(n, "bare"), all, known[n]); len(wrong) > 0 {
			found++
		}
		acknowledged = 0
		for _, k := range known[n] {
			acknowledged += k
		}
	}
	if found == 0 {
		t.Errorf("of %d copies of the file without its log none is found wanting", backups)
	}
	p = start(t, "-db", file(backups-1, "backup"))
	p.call(200, "GET", usagesPath+"/available?limit=1", "")
	p.stop()
	if wrong, _ := wanting(t, file(backups-1, "backup"), all, known[backups-1]); len(wrong) > 0 {
		t.Errorf("after the start of the restored one:\n%s", strings.Join(wrong, "\n"))
	}
	t.Logf("%d backups among %d clients, the last after %d acknowledgements, each complete; of the bare copies %d of %d are wanting",
		backups, clients, acknowledged, found, backups)
}

// accountAt is a real server as the account of a configuration.
func accountAt(s servertest.Server) string {
	return fmt.Sprintf(`"provider":"rfc2136","access_key_id":%q,"access_key_secret":%q,"endpoint":%q`, servertest.Key, servertest.Secret, s.Addr)
}

// zoneOf gives every value of this kind of mesh that stands in the zone of a server, as
// "name value", in order.
func zoneOf(t *testing.T, s servertest.Server) (values []string) {
	t.Helper()
	host, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("dig", "@"+host, "-p", port, "-y", "hmac-sha256:"+servertest.Key+":"+servertest.Secret,
		"+noall", "+answer", servertest.Zone, "AXFR").Output()
	if err != nil || !strings.Contains(string(out), "SOA") {
		t.Fatalf("the zone is not transferred: %v\n%s", err, out)
	}
	for line := range strings.Lines(string(out)) {
		if f := strings.Fields(line); len(f) > 4 && f[3] == "TXT" && strings.HasPrefix(f[4], `"v=mesh1`) {
			values = append(values, strings.TrimSuffix(f[0], ".")+" "+strings.ReplaceAll(strings.Join(f[4:], " "), `"`, ""))
		}
	}
	slices.Sort(values)
	return values
}

// wantedBy gives what a database wants to stand, as zoneOf does.
func wantedBy(t *testing.T, path string) (values []string, owner string) {
	t.Helper()
	db := openDatabase(t, path)
	defer db.Close()
	if err := db.QueryRow(`SELECT owner FROM appliance`).Scan(&owner); err != nil {
		t.Fatal(err)
	}
	rows, err := db.Query(`
		SELECT u.name, b.network_id, u.txt_endpoints FROM usages u JOIN bindings b ON b.seq = u.seq WHERE b.status = 'active'
		UNION ALL SELECT name, NULL, txt_endpoints FROM configuration`)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name, list string
		var network sql.Null[int64]
		var endpoints []string
		if err := rows.Scan(&name, &network, &list); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(list), &endpoints); err != nil {
			t.Fatal(err)
		}
		number := ""
		if network.Valid {
			number = strconv.FormatInt(network.V, 10)
		}
		values = append(values, name+" "+meshValue(number, owner, endpoints))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(values)
	return values, owner
}

// without gives what is in the first list only.
func without(list, other []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(v string) bool { return slices.Contains(other, v) })
}

// anotherMesh puts a value of another owner into the zone, which is to stay.
func anotherMesh(t *testing.T, s servertest.Server) (value string) {
	t.Helper()
	s.Update(t, `add _mesh.theirs.w0.mesh.example.com 60 TXT "v=mesh1 n=1 o=ffffffffffff"`)
	return "_mesh.theirs.w0.mesh.example.com v=mesh1 n=1 o=ffffffffffff"
}

// drained waits until a server has made what a killed program has sent: none of the program's
// connections is left there, and an update that comes behind them is made. A restored database
// cannot know of such a write, and would read what stands before it.
func drained(t *testing.T, s servertest.Server) {
	t.Helper()
	at := netip.MustParseAddrPort(s.Addr)
	const established, closeWait = "01", "08"
	connected := func(line string) bool {
		f := strings.Fields(line) // number, local address, remote address, state
		return strings.HasSuffix(f[1], fmt.Sprintf(":%04X", at.Port())) && (f[3] == established || f[3] == closeWait)
	}
	support.Eventually(t, limit, s.Name+" has no connections", func() bool {
		sockets, err := os.ReadFile("/proc/net/tcp")
		if err != nil {
			t.Fatal(err)
		}
		return !slices.ContainsFunc(strings.Split(strings.TrimSpace(string(sockets)), "\n"), connected)
	})
	anotherMesh(t, s)
}

// tidied starts the program on a restored database and has it sweep. Then nothing stands
// in the zone but what is wanted and what is another's. It gives the number of orphans
// that stood there before.
func tidied(t *testing.T, s servertest.Server, path, owner, theirs string) (orphans int) {
	t.Helper()
	drained(t, s)
	p := start(t, "-db", path, "-ipv4", "none", "-ipv6", "none")
	want, same := wantedBy(t, path)
	if same != owner {
		t.Errorf("the owner is %s, want %s as before", same, owner)
	}
	want = append(want, theirs)
	orphans = len(without(zoneOf(t, s), want))
	p.call(200, "POST", syncPath+"?sweep=1", "")
	zone := zoneOf(t, s)
	if extra, missing := without(zone, want), without(want, zone); len(extra)+len(missing) > 0 {
		t.Errorf("in the zone are orphans:\n%s\nmissing are:\n%s", strings.Join(extra, "\n"), strings.Join(missing, "\n"))
	}
	p.call(200, "POST", usagesPath, `{"service_id":"svc-0","prefix_mode":"custom","custom_prefix":"after","network_id":1}`)
	p.call(200, "POST", syncPath, "")
	if values := s.TXT(t, "_mesh.after.w0.mesh.example.com"); len(values) != 1 || !strings.Contains(values[0], "o="+owner) {
		t.Errorf("what is reserved after the restore is published as %q", values)
	}
	p.stop()
	mustBeSound(t, openDatabase(t, path))
	return orphans
}

// A backup that is restored when more has been published since leaves nothing in the
// zone after a sweep.
func TestRestoreLeavesNoOrphan(t *testing.T) {
	notShort(t)
	t.Parallel()
	servertest.Each(t, func(t *testing.T, s servertest.Server) {
		dir := t.TempDir()
		backup := filepath.Join(dir, "backup.db")
		p := start(t, "-db", filepath.Join(dir, "meshddns.db"), "-ipv4", "none", "-ipv6", "none")
		all := crowdOf(t, 4, accountAt(s))
		p.call(200, "PUT", configPath, `{`+accountAt(s)+`,"domain":"mesh.example.com","txt_record_name":"@","enabled":true,"sync_mode":"manual"}`)
		theirs := anotherMesh(t, s)
		stop := work(p, all)
		defer stop()
		further(p, all, 6)
		known := answered(all)
		if err := os.WriteFile(backup, []byte(p.call(200, "GET", backupPath, "").body), 0o600); err != nil {
			t.Fatal(err)
		}
		further(p, all, 12)
		support.Eventually(p.t, 2*limit, "all is published", func() bool {
			a, err := p.try("POST", syncPath, "")
			return err == nil && a.status == 200
		})
		p.cmd.Process.Kill()
		stop()
		p.cmd.Wait()
		if wrong, _ := wanting(t, backup, all, known); len(wrong) > 0 {
			t.Errorf("the backup:\n%s", strings.Join(wrong, "\n"))
		}
		_, owner := wantedBy(t, backup)
		orphans := tidied(t, s, backup, owner, theirs)
		if orphans == 0 {
			t.Error("nothing was published after the backup: a sweep has nothing to do")
		}
		t.Logf("%d values stood that the restored database does not know, none does after the sweep", orphans)
	})
}
