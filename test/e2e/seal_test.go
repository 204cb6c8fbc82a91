package e2e

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"meshddns/test/cloudtest"
	"meshddns/test/oldfile"
	"meshddns/test/support"
)

// sealLine is a key as a line of the file of -seal-key, and its id.
func sealLine(n byte) (line, id string) {
	key := bytes.Repeat([]byte{n}, 32)
	sum := sha256.Sum256(key)
	return base64.StdEncoding.EncodeToString(key), hex.EncodeToString(sum[:4])
}

// sealFile writes a file of keys; 0 is none.
func sealFile(t *testing.T, path string, keys ...byte) string {
	t.Helper()
	var lines []string
	for _, n := range keys {
		line, _ := sealLine(n)
		if n == 0 {
			line = "none"
		}
		lines = append(lines, line)
	}
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// spellings are a secret in the writings in which it may stand somewhere.
func spellings(secret string) (all []string) {
	quoted, _ := json.Marshal(secret)
	all = []string{secret, hex.EncodeToString([]byte(secret)), strings.ToUpper(hex.EncodeToString([]byte(secret))),
		strings.Trim(string(quoted), `"`), url.QueryEscape(secret), url.PathEscape(secret)}
	for _, code := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 { // octets before it, whose bits share a letter with it
			text := code.EncodeToString([]byte(strings.Repeat("x", before) + secret))
			all = append(all, text[(before*8+5)/6:len(text)-1])
		}
	}
	for _, text := range all[:len(all):len(all)] {
		all = append(all, strings.ReplaceAll(text, "'", "''")) // in SQL
	}
	return all
}

// vault is a database with secrets of all kinds.
type vault struct {
	t       *testing.T
	dir, db string
	cloud   *cloudtest.Cloud
	hook    *httptest.Server
	signed  atomic.Int64 // messages with the right path and signature
	secrets map[string]string
	p       *program
	fills   int
	round   string // of the WAL before the start, see emptied
}

const hookPath = "/hook-p4th-<&>/0123456789"

func newVault(t *testing.T) *vault {
	v := &vault{t: t, dir: t.TempDir(), cloud: cloudtest.Webhook(t), secrets: map[string]string{
		"configuration": `cfg-s3cret-<&"'>-ü-0123`, "service": `svc-s3cret-<&"'>-0123`, "member": `mbr-s3cret-0123456789`, "left": `lft-s3cret-0123456789`,
		"target": `tgt-s3cret-<&"'>-0123`, "path": strings.TrimPrefix(hookPath, "/"), "tsig": base64.StdEncoding.EncodeToString([]byte("tsig-s3cret-012345678")),
		"refused": `rfd-s3cret-0123456789`,
	}}
	v.db = filepath.Join(v.dir, "meshddns.db")
	v.hook = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mac := hmac.New(sha256.New, []byte(v.secrets["target"]))
		mac.Write(body)
		if r.Header.Get("X-Meshddns-Signature") == "sha256="+hex.EncodeToString(mac.Sum(nil)) && r.URL.Path == hookPath {
			v.signed.Add(1)
		}
	}))
	t.Cleanup(v.hook.Close)
	return v
}

// start starts the program with keys in the file of -seal-key, and without the flag if there are none.
func (v *vault) start(keys ...byte) {
	v.t.Helper()
	v.round = v.walRound()
	v.p = start(v.t, v.args(keys...)...)
}

func (v *vault) args(keys ...byte) []string {
	args := []string{"-db", v.db, "-ipv4", "none", "-ipv6", "none", "-node-listen", "127.0.0.1:0"}
	if len(keys) > 0 {
		args = append(args, "-seal-key", sealFile(v.t, filepath.Join(v.dir, "key"), keys...))
	}
	return args
}

func quotedJSON(text string) string { q, _ := json.Marshal(text); return string(q) }

// fill stores secrets of every kind, and lets them be used.
func (v *vault) fill() {
	v.t.Helper()
	c, call := v.cloud, v.p.call
	c.Rotate(v.secrets["left"])
	v.fills++
	account := func(secret string) string {
		return fmt.Sprintf(`"provider":"webhook","access_key_id":%q,"access_key_secret":%s,"endpoint":%q,"domain":%q`, c.AccessKeyID, quotedJSON(secret), c.URL, cloudtest.Zone)
	}
	call(200, "PUT", configPath, `{`+account(v.secrets["left"])+`,"txt_record_name":"@","enabled":true,"sync_mode":"manual","txt_endpoints":["tcp://203.0.113.7:1"]}`)
	call(200, "PUT", servicesPath+"svc", fmt.Sprintf(`{"name":"Site","config":{"domain":%q}}`, cloudtest.Zone))
	call(200, "PUT", servicesPath+"own", fmt.Sprintf(`{"name":"Own","config":{"domain":"other.example","provider":"webhook","access_key_id":"other","access_key_secret":%s,"endpoint":%q,"more":{"api_token":%q}}}`,
		quotedJSON(v.secrets["service"]), c.URL, v.secrets["member"]))
	for i := range 40 {
		call(200, "PUT", servicesPath+fmt.Sprint("n", i), fmt.Sprintf(`{"name":"N","config":{"domain":"n%d.example","access_key_secret":%s,"note":%q}}`, i, quotedJSON(v.secrets["service"]), strings.Repeat("n", 150*i)))
	}
	call(200, "PUT", "/api/v1/ddns/notifications/hook", fmt.Sprintf(`{"kind":"generic","url":%q,"secret":%s,"events":["zone.*"],"enabled":false}`, v.hook.URL+hookPath, quotedJSON(v.secrets["target"])))
	call(200, "PUT", "/api/v1/ddns/secondaries/ns", fmt.Sprintf(`{"address":"127.0.0.9:1","key_name":"k","key_secret":%q}`, v.secrets["tsig"]))
	reserve := func(service, prefix string) string {
		return call(200, "POST", usagesPath, fmt.Sprintf(`{"service_id":%q,"prefix_mode":"custom","custom_prefix":%q,"network_id":7}`, service, prefix), "Idempotency-Key", prefix).field("id")
	}
	first := reserve("svc", "a")
	reserve("own", "b")
	gone := reserve("svc", fmt.Sprint("c", v.fills))
	call(200, "POST", usagesPath+"/"+first+"/leases?replace=1", `{"slot":"one","ttl":3600}`)
	call(500, "POST", syncPath, "")      // the key of "own" is refused
	c.Rotate(v.secrets["configuration"]) // the key of the places is "left", until a pass moves them
	call(200, "DELETE", usagesPath+"/"+gone+"?force=1", "")
	call(200, "PUT", configPath, `{`+account(v.secrets["configuration"])+`,"txt_record_name":"@","enabled":true,"sync_mode":"manual","txt_endpoints":["tcp://203.0.113.7:1"]}`)
	call(200, "POST", "/api/v1/ddns/test", `{`+account(v.secrets["refused"])+`}`)
}

// answers are those to requests, at least so many, and at least one for each path.
func (v *vault) answers(requests int) map[string]string {
	v.t.Helper()
	all, made := map[string]string{}, 0
	var usages struct {
		Data []struct {
			ID string `json:"id"`
		} `json:"data"`
	}
	if err := json.Unmarshal([]byte(v.p.call(200, "GET", usagesPath+"/available", "").body), &usages); err != nil {
		v.t.Fatal(err)
	}
	paths := []string{configPath, "/api/v1/ddns/services", "/api/v1/ddns/state", "/api/v1/ddns/notifications", "/api/v1/ddns/notifications/hook", "/api/v1/ddns/secondaries",
		leftoversPath, "/api/v1/ddns/providers", usagesPath + "/available", "/api/v1/ddns/events?limit=20", "/api/v1/ddns/notifications/none", servicesPath + "svc", servicesPath + "own"}
	for _, u := range usages.Data {
		paths = append(paths, usagesPath+"/"+u.ID, usagesPath+"/"+u.ID+"/events", usagesPath+"/"+u.ID+"/leases")
	}
	for i := range 40 {
		paths = append(paths, servicesPath+fmt.Sprint("n", i), usagesPath+"/available?service_id="+fmt.Sprint("n", i))
	}
	for ; made < max(requests, len(paths)); made++ {
		path := paths[made%len(paths)]
		a, err := v.p.try("GET", path, "")
		if err != nil {
			v.t.Fatal(err)
		}
		if text := fmt.Sprint(a.status, " ", a.body); all[path] == "" || all[path] == text {
			all[path] = text
		} else {
			v.t.Errorf("%s has two answers", path)
		}
	}
	return all
}

// works uses the secrets: the receiver and the bridge compare theirs. A mask that comes back keeps a secret.
func (v *vault) works() {
	v.t.Helper()
	before := v.signed.Load()
	if a := v.p.call(200, "POST", "/api/v1/ddns/notifications/hook/test", ""); v.signed.Load() != before+1 {
		v.t.Errorf("the receiver does not get the secret: %s", a.body)
	}
	c := v.cloud
	masked := fmt.Sprintf(`{"provider":"webhook","access_key_id":%q,"access_key_secret":"********","endpoint":%q,"domain":%q,"txt_record_name":"@"}`, c.AccessKeyID, c.URL, cloudtest.Zone)
	if a := v.p.call(200, "POST", "/api/v1/ddns/test", masked); !strings.Contains(a.body, `{"name":"record","ok":true`) {
		v.t.Errorf("the bridge does not get the stored secret: %s", a.body)
	}
	v.p.call(200, "POST", syncPath+"?dry_run=1", "")
}

// contents are the octets of the files, and of copies. The program still runs if backup is true.
func (v *vault) contents(backup bool) map[string][]byte {
	v.t.Helper()
	all := map[string][]byte{}
	if backup {
		all["backup"] = []byte(v.p.call(200, "GET", backupPath, "").body)
	}
	copied := filepath.Join(v.t.TempDir(), "copy.db")
	for suffix, content := range v.files() {
		all["file"+suffix] = content
		support.WriteFile(v.t, copied+suffix, string(content))
	}
	dump, err := exec.Command("sqlite3", copied, ".dump").Output()
	if err != nil || len(dump) < 1000 {
		v.t.Fatalf("dump: %v, %d octets", err, len(dump))
	}
	all["dump"] = dump
	return all
}

// files are the octets of the database and of the files beside it, by their suffix.
func (v *vault) files() map[string][]byte {
	v.t.Helper()
	all := map[string][]byte{}
	for _, suffix := range []string{"", "-wal", "-shm", "-lock", ".v10", ".v11"} {
		content, err := os.ReadFile(v.db + suffix)
		if err == nil {
			all[suffix] = content
		} else if !os.IsNotExist(err) {
			v.t.Fatal(err)
		}
	}
	return all
}

// search counts, of each content, the secrets that are in it in some writing.
func (v *vault) search(contents map[string][]byte) (found map[string]int) {
	v.t.Helper()
	found = map[string]int{}
	for where, content := range contents {
		for _, secret := range v.secrets {
			if slices.ContainsFunc(spellings(secret), func(s string) bool { return bytes.Contains(content, []byte(s)) }) {
				found[where]++
			}
		}
	}
	return found
}

func (v *vault) wantNone(what string, contents map[string][]byte) {
	v.t.Helper()
	if found := v.search(contents); len(found) > 0 {
		v.t.Errorf("%s: secrets are found: %v", what, found)
	}
}

// walRound is the number of checkpoints in the header of the WAL (https://sqlite.org/fileformat2.html#walformat), four octets.
func (v *vault) walRound() string {
	wal, err := os.ReadFile(v.db + "-wal")
	if err != nil || len(wal) < 32 {
		return "\x00\x00\x00\x00"
	}
	return string(wal[12:16])
}

// emptied reports whether the program has emptied the WAL. Soon after that, a pass may write into it.
func (v *vault) emptied() bool {
	info, err := os.Stat(v.db + "-wal")
	return err == nil && (info.Size() == 0 || v.walRound() > cmp.Or(v.round, "\x00\x00\x00\x00"))
}

// erased waits until the WAL is emptied and the old secrets are gone.
func (v *vault) erased() {
	v.t.Helper()
	v.p.eventually("the secrets are erased", func() bool { return v.emptied() && len(v.search(v.files())) == 0 })
}

// TestSeal: no secret is in the file, its WAL, a backup, a dump or a copy in any writing, from the first start with a key on and after any
// change; the answers stay the same, and everything that needs a secret works. Without a key, and unsealed, the search finds them all.
func TestSeal(t *testing.T) {
	support.Need(t, "sqlite3")
	t.Parallel()
	v := newVault(t)
	v.start()
	v.fill()
	v.works()
	v.p.stop()
	v.start() // which knows as little of the zones as after each further start
	before := v.answers(1000)
	plain := v.contents(true)
	for _, where := range []string{"backup", "dump"} {
		if n := v.search(plain)[where]; n != len(v.secrets)-1 { // one was refused, and not stored
			t.Errorf("the search finds %d of %d secrets in the %s", n, len(v.secrets)-1, where)
		}
	}
	v.p.stop()
	support.WriteFile(t, v.db+".v11", string(plain["file"])) // as from before an upgrade
	same := func(what string, requests int) {
		t.Helper()
		after := v.answers(requests)
		for path := range maps.Keys(before) {
			if before[path] != after[path] {
				t.Errorf("%s: %s: before\n%s\nafter\n%s", what, path, before[path], after[path])
			}
		}
	}
	for _, c := range []struct {
		what     string
		keys     []byte
		requests int
	}{{"sealed", []byte{1}, 1000}, {"again", []byte{1}, 0}, {"rotated", []byte{2, 1}, 0}, {"the old key gone", []byte{2}, 0}} {
		v.start(c.keys...)
		v.erased()
		v.wantNone(c.what, v.contents(true))
		same(c.what, c.requests)
		v.works()
		v.wantNone(c.what+" and used", v.contents(true))
		v.p.stop()
	}
	v.start(2)
	v.fill()
	v.wantNone("filled", v.contents(true))
	support.Kill(v.p.cmd)
	v.wantNone("killed", v.contents(false))
	v.lost()
	v.start(0, 2)
	v.p.eventually("the WAL is emptied", v.emptied)
	if n := v.search(v.contents(true))["backup"]; n != len(v.secrets)-1 {
		t.Errorf("unsealed: the search finds %d of %d secrets", n, len(v.secrets)-1)
	}
	v.works()
	v.p.stop()
	v.start()
	v.works()
}

// lost starts the program without the key.
func (v *vault) lost() {
	v.t.Helper()
	for _, c := range []struct {
		keys []byte
		want string
	}{{[]byte{1, 2, 3}, ": want one or two lines"}, {[]byte{2, 2}, ": the same key twice"}, {[]byte{3}, "ok"}} {
		out, err := command(v.t, append(v.args(c.keys...), "-check")...).CombinedOutput()
		if (err == nil) != (c.want == "ok") || !strings.Contains(string(out), c.want) {
			v.t.Errorf("-check of %v: %v\n%s", c.keys, err, out)
		}
	}
	_, id := sealLine(2)
	for _, keys := range [][]byte{nil, {1}, {3, 1}, {0, 1}} {
		out, err := command(v.t, v.args(keys...)...).CombinedOutput()
		if err == nil || !strings.Contains(string(out), id) || !strings.Contains(string(out), "-seal-key") {
			v.t.Errorf("%v: %v, want the id %s and the flag\n%s", keys, err, id, out)
		}
	}
}

// TestSealUpgrade: an old database that is opened with a key leaves no copy in clear.
func TestSealUpgrade(t *testing.T) {
	support.Need(t, "sqlite3")
	t.Parallel()
	v := &vault{t: t, dir: t.TempDir(), secrets: map[string]string{"old": "old-s3cret-0123456789"}}
	v.db = filepath.Join(v.dir, "meshddns.db")
	oldfile.Make(t, v.db, strings.ReplaceAll(oldfile.Content, "s-1", v.secrets["old"]))
	if v.search(v.contents(false))["file"] == 0 {
		t.Fatal("the old file has no secret")
	}
	v.start(1)
	v.erased()
	v.wantNone("upgraded", v.contents(true))
	v.p.stop()
	v.start(1)
	v.p.call(200, "GET", servicesPath+"cloud", "")
}

// TestSealKills: the program is killed at each write, sync and truncation of a start that seals anew. The start after it finishes:
// nothing is lost, and the old octets are gone.
func TestSealKills(t *testing.T) {
	notShort(t)
	support.Need(t, "cc", "sqlite3")
	t.Parallel()
	first := newVault(t)
	first.start()
	first.fill()
	first.p.stop()
	first.start()
	want := first.answers(0)
	first.p.stop()
	file, err := os.ReadFile(first.db)
	if err != nil {
		t.Fatal(err)
	}
	kills := 0
	run := func(nth, kind int64) (hit bool) {
		d := newDisk(t)
		v := &vault{t: t, dir: filepath.Dir(d.folder), db: d.db, secrets: first.secrets, cloud: first.cloud}
		if err := os.WriteFile(d.db, file, 0o600); err != nil {
			t.Fatal(err)
		}
		support.WriteFile(t, d.db+".v11", string(file))
		if nth > 0 {
			d.arm(diskFault{kinds: allOperations, nth: nth, err: kind})
		}
		v.p = launch(t, d.env, []string{binary(t)}, v.args(1)...)
		if v.p.client != nil {
			v.p.eventually("it is erased, or dead", func() bool { return v.emptied() || support.Ended(v.p.cmd) })
		}
		support.Kill(v.p.cmd)
		hit = d.control.hits > 0
		d.heal()
		v.start(1)
		v.erased()
		v.wantNone(fmt.Sprint("after a kill at ", nth), v.contents(true))
		v.p.logged("the database is sound")
		if kills++; kills%16 == 1 {
			if got := v.answers(0); !maps.Equal(got, want) {
				t.Errorf("after a kill at %d answers differ", nth)
			}
		}
		v.p.stop()
		mustBeSoundAt(t, d.db)
		return hit
	}
	step := int64(support.Count(71, 1))
	for nth := int64(1); !t.Failed(); nth += step {
		kind := int64(crashBefore)
		if kills%2 == 1 {
			kind = crashBehind
		}
		if !run(nth, kind) {
			break
		}
	}
	if kills < 5 {
		t.Errorf("only %d kills", kills)
	}
	t.Logf("%d kills", kills)
}

func mustBeSoundAt(t *testing.T, path string) {
	t.Helper()
	db := openDatabase(t, path)
	defer db.Close()
	mustBeSound(t, db)
}

// TestSealReplica: a replica of a sealed database has no secret, and is opened with the key.
func TestSealReplica(t *testing.T) {
	notShort(t)
	support.Need(t, "litestream", "sqlite3")
	t.Parallel()
	at := newReplicaPlaces(t)
	v := newVault(t)
	v.db = at.db()
	v.start()
	v.fill()
	v.p.stop()
	v.start(1)
	at.replicate(t)
	v.fill()
	at.arrives(v.p, "svc", "seen")
	contents := v.contents(true)
	if err := filepath.WalkDir(at.replica, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			contents[path], err = os.ReadFile(path)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	path, err := at.restore(t, "restored")
	if err != nil {
		t.Fatal(err)
	}
	if contents["restored"], err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	v.wantNone("replicated", contents)
	before := v.answers(0)
	v.p.stop()
	v.db = path
	v.start(1)
	v.works()
	for _, path := range []string{configPath, "/api/v1/ddns/notifications/hook", "/api/v1/ddns/secondaries"} {
		if got := v.answers(0)[path]; got != before[path] {
			t.Errorf("%s: %s, want %s", path, got, before[path])
		}
	}
}

// TestSealLostKey: the statements of the manual empty the secrets of a database whose key is lost. The rest is there, also after
// the secrets are put again.
func TestSealLostKey(t *testing.T) {
	support.Need(t, "sqlite3")
	t.Parallel()
	manual, err := os.ReadFile("../../docs/operate.md")
	if err != nil {
		t.Fatal(err)
	}
	_, statements, _ := strings.Cut(string(manual), "```sql\nUPDATE appliance SET seal")
	statements, _, found := strings.Cut(statements, "```")
	if !found {
		t.Fatal("the manual has no statements")
	}
	v := newVault(t)
	v.start(1)
	v.fill()
	var before, after struct {
		Data struct {
			Usages   json.RawMessage   `json:"usages"`
			Services []json.RawMessage `json:"services"`
		} `json:"data"`
	}
	read := func(into any) {
		t.Helper()
		if err := json.Unmarshal([]byte(v.p.call(200, "GET", "/api/v1/ddns/state", "").body), into); err != nil {
			t.Fatal(err)
		}
	}
	read(&before)
	v.p.stop()
	if out, err := exec.Command("sqlite3", "-bail", v.db, "UPDATE appliance SET seal"+statements).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	v.start()
	read(&after)
	if !bytes.Equal(before.Data.Usages, after.Data.Usages) || len(before.Data.Services) != len(after.Data.Services) {
		t.Errorf("before\n%s\nafter\n%s", before.Data.Usages, after.Data.Usages)
	}
	if own := v.p.call(200, "GET", servicesPath+"own", "").body; !strings.Contains(own, `\"access_key_id\":\"other\"`) || !strings.Contains(own, v.cloud.URL) {
		t.Errorf("of a service is left: %s", own)
	}
	v.wantNone("emptied", v.contents(true))
	v.fill()
	v.works()
	v.p.stop()
	v.start(1)
	v.works()
	v.wantNone("sealed again", v.contents(true))
}

// TestSealDamaged: a request that needs a damaged secret is answered with 500 and nothing of it; the log names table and row.
func TestSealDamaged(t *testing.T) {
	support.Need(t, "sqlite3")
	t.Parallel()
	v := newVault(t)
	v.start(1)
	v.fill()
	v.p.stop()
	execute(t, v.db, `UPDATE services SET config = (SELECT config FROM services WHERE id = 'own') WHERE id = 'svc'`)
	execute(t, v.db, `UPDATE notifications SET secret = url`)
	for path, where := range map[string]string{servicesPath + "svc": `table services, row "svc"`, "/api/v1/ddns/notifications/hook": `table notifications, row "hook"`} {
		v.start(1)
		if a := v.p.call(500, "GET", path, ""); strings.Contains(a.body, "s3cret") {
			t.Errorf("%s: %s", path, a.body)
		}
		v.p.logged(strings.ReplaceAll(where, `"`, `\"`))
		v.p.call(200, "GET", servicesPath+"own", "")
		if strings.Contains(v.p.log.String(), "s3cret") {
			t.Error("a secret is in the log")
		}
		v.p.stop()
	}
	// An account whose address was changed sends its secret nowhere.
	for _, table := range []string{"accounts", "configuration"} {
		execute(t, v.db, fmt.Sprintf(`UPDATE %s SET endpoint = '%s' WHERE provider = 'webhook'`, table, v.hook.URL))
		v.start(1)
		v.p.call(500, "POST", syncPath, "")
		v.p.logged(`table ` + table + `, row \"`)
		v.p.stop()
		execute(t, v.db, fmt.Sprintf(`UPDATE %s SET endpoint = '%s' WHERE provider = 'webhook'`, table, v.cloud.URL))
	}
	out, err := command(t, v.args(2, 1)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), `table services, row "svc"`) {
		t.Errorf("a rotation: %v\n%s", err, out)
	}
}
