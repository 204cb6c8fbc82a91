package e2e

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"meshddns/test/support"
)

// TestChallengeKills kills the program at random moments while ten nodes put and clean up challenges. A 200 means that the
// value stood, and it stands after the restart unless it was cleaned up or replaced. In the end none is left.
// MESHDDNS_KILLS says how often the program is killed, MESHDDNS_KILL_SEED when.
func TestChallengeKills(t *testing.T) {
	notShort(t)
	t.Parallel()
	kills, seed := number(t, "MESHDDNS_KILLS", support.Count(3, 40)), uint64(number(t, "MESHDDNS_KILL_SEED", 1))
	path := filepath.Join(t.TempDir(), "meshddns.db")
	p, nodes := startNodes(t, path)
	p.configure("auto", "tcp://203.0.113.7:1")
	all := make([]*challenger, 10)
	usage := ""
	for i := range all {
		prefix := fmt.Sprint("p", i/2) // two leases a usage
		if i%2 == 0 {
			usage = p.reserve(prefix)
		}
		c := &challenger{t: t, lease: fmt.Sprint("n", i), name: "_acme-challenge." + prefix + ".mesh.example.com", chance: rand.New(rand.NewPCG(seed, uint64(i)))}
		c.token = p.call(200, "POST", usagesPath+"/"+usage+"/leases", fmt.Sprintf(`{"slot":%q,"ttl":3600,"acme":true}`, c.lease)).field("token")
		all[i] = c
	}
	chance := rand.New(rand.NewPCG(seed, 1<<32))
	for range kills {
		moment := time.Duration(chance.Int64N(int64(1500 * time.Millisecond)))
		timer := time.AfterFunc(moment, func() { p.cmd.Process.Kill() })
		var working sync.WaitGroup
		for _, c := range all {
			working.Go(func() {
				for c.step(p, nodes) {
				}
			})
		}
		working.Wait()
		timer.Stop()
		p.cmd.Wait()
		p, nodes = startNodes(t, path)
		for _, c := range all {
			c.compare(p, path)
		}
		if t.Failed() {
			return
		}
	}
	acknowledged, left := 0, 0
	for _, c := range all {
		acknowledged += c.acknowledged
		left += len(c.values)
	}
	p = endChallenges(p, nodes, path, all)
	for _, c := range all {
		p.eventually("nothing of ours is left", func() bool { s, err := query(t, p.dns, c.name); return err == nil && len(s.values) == 0 })
	}
	t.Logf("%d kills, %d acknowledged changes, none lost; %d challenges were left at the end", kills, acknowledged, left)
}

// endChallenges ends all challenges: by their time, or in the short form by cleanups, because the first look at what is over
// comes half a minute after a start.
func endChallenges(p, nodes *program, path string, all []*challenger) *program {
	p.t.Helper()
	if support.Count(0, 1) == 0 {
		for _, c := range all {
			for _, value := range c.values {
				nodes.call(200, "POST", "/cleanup", legoBody(c.name, value), "X-Api-Key", c.token)
			}
		}
		return p
	}
	p.stop()
	execute(p.t, path, `UPDATE challenges SET put_at = put_at - 3600000`)
	again, _ := startNodes(p.t, path)
	support.Eventually(p.t, 2*limit, "the time of challenges is over", func() bool { return noChallenges(p.t, path) })
	return again
}

func legoBody(name, value string) string {
	return jsonText(map[string]string{"fqdn": name, "value": value})
}

// noChallenges reports whether none is stored.
func noChallenges(t *testing.T, path string) bool {
	db := openDatabase(t, path)
	defer db.Close()
	var n int
	if err := db.QueryRow(`SELECT count(*) FROM challenges`).Scan(&n); err != nil {
		t.Error(err)
	}
	return n == 0
}

// challenger is a node that remembers what was acknowledged.
type challenger struct {
	t                  *testing.T
	lease, token, name string
	chance             *rand.Rand
	made, acknowledged int
	values             []string // the elder first
	doubt              string   // a value that was put or cleaned up without an answer
}

// step makes a request, and reports whether it was answered.
func (c *challenger) step(p, nodes *program) bool {
	next, path := "", "/cleanup"
	if len(c.values) == 0 || len(c.values) < 8 && c.chance.IntN(3) > 0 {
		c.made++
		next, path = challengeText(c.lease, c.made), []string{"/present", "/update"}[c.chance.IntN(2)]
	} else {
		next = c.values[c.chance.IntN(len(c.values))]
	}
	body := legoBody(c.name, next)
	if path == "/update" {
		body = jsonText(map[string]string{"txt": next})
	}
	c.doubt = next
	a, err := nodes.try("POST", path, body, "Authorization", "Bearer "+c.token)
	if err != nil {
		return false
	}
	if a.status != 200 {
		c.t.Errorf("%s %s: %d %s", path, body, a.status, a.body)
		return false
	}
	c.acknowledged++
	c.doubt = ""
	if path == "/cleanup" {
		c.values = slices.DeleteFunc(c.values, func(v string) bool { return v == next })
		return true
	}
	c.values = with(c.values, next)
	s, err := query(c.t, p.dns, c.name)
	if err == nil && !slices.Contains(s.values, next) {
		c.t.Errorf("200, and %s is answered without %s: %v", c.name, next, s)
	}
	return err == nil
}

func challengeText(lease string, n int) string {
	return strings.Repeat("0", 43-len(lease)-6) + lease + fmt.Sprintf("%06d", n)
}

// compare looks after a restart whether what was acknowledged is stored and stands. What was not answered is done or not.
func (c *challenger) compare(p *program, path string) {
	c.t.Helper()
	db := openDatabase(c.t, path)
	defer db.Close()
	rows, err := db.Query(`SELECT value FROM challenges WHERE lease = (SELECT seq FROM leases WHERE slot = ?) ORDER BY seq`, c.lease)
	if err != nil {
		c.t.Fatal(err)
	}
	defer rows.Close()
	var stored []string
	for rows.Next() {
		var value string
		if err := rows.Scan(&value); err != nil {
			c.t.Fatal(err)
		}
		stored = append(stored, value)
	}
	s, err := query(c.t, p.dns, c.name)
	if err != nil {
		c.t.Fatal(err)
	}
	put := with(c.values, c.doubt)
	cleaned := slices.DeleteFunc(slices.Clone(c.values), func(v string) bool { return v == c.doubt })
	if !slices.Equal(stored, c.values) && !slices.Equal(stored, put) && !slices.Equal(stored, cleaned) || c.doubt == "" && !slices.Equal(stored, c.values) {
		c.t.Errorf("%s has %q, and %q was acknowledged, %q asked for", c.lease, stored, c.values, c.doubt)
	}
	for _, value := range stored {
		if value != c.doubt && !slices.Contains(s.values, value) {
			c.t.Errorf("%s was acknowledged, and %s is answered with %v", value, c.name, s)
		}
	}
	if slices.Contains(stored, c.doubt) { // the next kill may come before it stands, and then it would count as acknowledged
		p.eventually("what is stored stands", func() bool {
			s, err := query(c.t, p.dns, c.name)
			return err == nil && slices.Contains(s.values, c.doubt)
		})
	}
	c.values, c.doubt = stored, ""
}
