package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"meshddns/test/cloudtest"
	"meshddns/test/support"
)

const eventsPath = "/api/v1/ddns/events"

// pager is a receiver of the kind generic that remembers in which life of the program each event
// was told.
type pager struct {
	*httptest.Server
	t     *testing.T
	mu    sync.Mutex
	life  int
	told  map[int64][]int // lives by the seq of an event
	kinds map[int64]string
	last  map[int]int64                     // the first seq of the last message of a life
	past  int64                             // the sent_seq of the target, as the program has answered
	kill  func(answered bool) (killed bool) // called when a message has come, and when it is answered
}

type lifeKey struct{}

func spare(bool) (killed bool) { return false }

func newPager(t *testing.T) *pager {
	g := &pager{t: t, told: map[int64][]int{}, kinds: map[int64]string{}, last: map[int]int64{}, kill: spare}
	g.Server = httptest.NewUnstartedServer(g)
	g.Config.ConnContext = func(ctx context.Context, _ net.Conn) context.Context {
		g.mu.Lock()
		defer g.mu.Unlock()
		return context.WithValue(ctx, lifeKey{}, g.life)
	}
	g.Start()
	t.Cleanup(g.Close)
	return g
}

func (g *pager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil || r.Method == http.MethodGet {
		return
	}
	var message struct {
		Events []struct {
			Seq  int64
			Kind string
		}
	}
	if err := json.Unmarshal(body, &message); err != nil || len(message.Events) == 0 {
		g.t.Errorf("%v: %s", err, body)
	}
	life := r.Context().Value(lifeKey{}).(int)
	g.mu.Lock()
	kill := g.kill
	g.mu.Unlock()
	if kill(false) {
		return // what the program may not take as told is not told
	}
	g.mu.Lock()
	for i, e := range message.Events {
		if i > 0 && e.Seq <= message.Events[i-1].Seq {
			g.t.Errorf("out of order: %s", body)
		}
		g.told[e.Seq], g.kinds[e.Seq] = append(g.told[e.Seq], life), e.Kind
	}
	if g.last[life] = message.Events[0].Seq; g.last[life] <= g.past {
		g.t.Errorf("the program said that %d are told, and tells %d", g.past, g.last[life])
	}
	g.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
	http.NewResponseController(w).Flush()
	kill(true)
}

// next begins the life of the next program, whose messages kill may end. All connections of the last
// one are accepted by then, because the pager's own one came after them.
func (g *pager) next(kill func(answered bool) (killed bool)) {
	response, err := http.Get(g.URL)
	if err != nil {
		g.t.Fatal(err)
	}
	response.Body.Close()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.life++
	g.kill = kill
}

// learn returns the sent_seq of the target, and expects no event up to it any more.
func (g *pager) learn(p *program) int64 {
	seq, err := strconv.ParseInt(p.call(200, "GET", "/api/v1/ddns/notifications/pager", "").field("sent_seq"), 10, 64)
	if err != nil {
		g.t.Fatal(err)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.past = seq
	return seq
}

// cutShort reports whether an event that was told in one life may be told again in another: a kill
// ended the life at the message, and the lives between told nothing.
func (g *pager) cutShort(seq int64, life, again int) bool {
	for between := life + 1; between < again; between++ {
		if _, talked := g.last[between]; talked {
			return false
		}
	}
	return again > life && seq >= g.last[life]
}

// has reports whether all of these events are told.
func (g *pager) has(seqs []int64) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return !slices.ContainsFunc(seqs, func(seq int64) bool { return len(g.told[seq]) == 0 })
}

// TestNotifications kills the program 20 times, at random moments of incidents and of messages about
// them. Each incident and each recovery is told at least once, and once more only after a kill.
func TestNotifications(t *testing.T) {
	notShort(t)
	t.Parallel()
	w := newIncidents(t)
	for range number(t, "MESHDDNS_NOTIFY_KILLS", support.Count(8, 20)) {
		w.live()
		if t.Failed() {
			return
		}
	}
	w.pager.next(spare)
	p := startAt(t, quickBinary(t), "-db", w.db)
	w.down.Store(false)
	p.eventually("the records are published", func() bool { return p.tells("POST", syncPath) == 200 })
	seqs, counts := w.incidents(p)
	for range 3 { // in lives that a message ended early, an incident may have been missed
		if counts["record.failed"] < 3 || counts["record.recovered"] < 3 {
			w.incident(p, func() bool { return false })
			seqs, counts = w.incidents(p)
		}
	}
	p.eventually("all events are told", func() bool { return w.pager.has(seqs) })
	w.pager.mu.Lock()
	defer w.pager.mu.Unlock()
	repeated := 0
	for seq, lives := range w.pager.told {
		for i := 1; i < len(lives); i++ {
			repeated++
			if !w.pager.cutShort(seq, lives[i-1], lives[i]) {
				t.Errorf("event %d is told in the lives %v of the program, whose last messages begin with %v", seq, lives, w.pager.last)
			}
		}
		if !slices.Contains(seqs, seq) {
			t.Errorf("event %d, a %s, is told, although it is not wanted", seq, w.pager.kinds[seq])
		}
	}
	t.Logf("%v, %d told once more after a kill", counts, repeated)
	if counts["record.failed"] < 3 || counts["record.recovered"] < 3 {
		t.Error("there were too few incidents")
	}
}

// incidents is a provider that is down at times, and the pager.
type incidents struct {
	t      *testing.T
	db     string
	down   atomic.Bool
	pager  *pager
	chance *rand.Rand
	usage  string
	number int
}

func newIncidents(t *testing.T) *incidents {
	cloud := cloudtest.Webhook(t)
	target, err := url.Parse(cloud.URL)
	if err != nil {
		t.Fatal(err)
	}
	w := &incidents{t: t, db: filepath.Join(t.TempDir(), "meshddns.db"), pager: newPager(t), chance: rand.New(rand.NewPCG(18, uint64(number(t, "MESHDDNS_KILL_SEED", 1))))}
	hand := httputil.NewSingleHostReverseProxy(target)
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if w.down.Load() {
			http.Error(rw, "down", http.StatusServiceUnavailable)
			return
		}
		hand.ServeHTTP(rw, r)
	}))
	t.Cleanup(front.Close)
	p := startAt(t, quickBinary(t), "-db", w.db)
	p.call(200, "PUT", configPath, fmt.Sprintf(`{"provider":"webhook","access_key_id":%q,"access_key_secret":%q,"endpoint":%q,"domain":%q,
		"txt_record_name":"@","enabled":true,"sync_mode":"auto","max_retries":0,"txt_endpoints":["tcp://203.0.113.7:1"]}`,
		cloud.AccessKeyID, cloud.AccessKeySecret, front.URL, cloudtest.Zone))
	p.call(200, "PUT", "/api/v1/ddns/services/svc", fmt.Sprintf(`{"name":"Service","config":{"domain":%q}}`, cloudtest.Zone))
	w.usage = p.call(200, "POST", usagesPath, `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"office","network_id":1}`).field("id")
	p.call(200, "PUT", "/api/v1/ddns/notifications/pager", fmt.Sprintf(`{"kind":"generic","url":%q,"events":["record.failed","record.recovered","zone.*"]}`, w.pager.URL+"/page"))
	p.eventually("the record is published", func() bool { return p.tells("POST", syncPath) == 200 })
	support.Kill(p.cmd)
	return w
}

// tells gives the status of an answer, 0 without one.
func (p *program) tells(method, path string) int {
	a, err := p.try(method, path, "")
	if err != nil {
		return 0
	}
	return a.status
}

// live runs the program through an incident and its end, and kills it at a moment by chance.
func (w *incidents) live() {
	const (
		inIncident = iota
		afterIncident
		atMessage
		afterMessage
		allTold
		moments
	)
	moment := w.chance.IntN(moments)
	var p *program
	var ready sync.WaitGroup
	ready.Add(1)
	w.pager.next(func(answered bool) (killed bool) {
		ready.Wait()
		if killed = moment == atMessage && !answered || moment == afterMessage && answered; killed {
			p.cmd.Process.Kill()
		}
		return killed
	})
	p = startAt(w.t, quickBinary(w.t), "-db", w.db)
	ready.Done()
	ended := func() bool { return support.Ended(p.cmd) }
	w.incident(p, func() bool {
		if moment == inIncident {
			support.Kill(p.cmd)
		}
		return ended()
	})
	if moment == allTold {
		seqs, _ := w.incidents(p)
		p.eventually("all events are told", func() bool { return w.pager.learn(p) >= slices.Max(seqs) })
	}
	if moment == afterIncident || moment == allTold {
		support.Kill(p.cmd)
	}
	p.eventually("the program is killed", ended)
	support.Kill(p.cmd) // waits until the last thread has ended, and with it the lock of the file
}

// incident is one from its beginning to its end, or until the program has ended. ended is called when it is met.
func (w *incidents) incident(p *program, ended func() bool) {
	w.down.Store(true)
	w.number++
	p.try("PATCH", usagesPath+"/"+w.usage, fmt.Sprintf(`{"txt_endpoints":["tcp://203.0.113.7:%d"]}`, 1000+w.number))
	p.eventually("the incident is met", func() bool { return p.tells("POST", syncPath) == 500 || support.Ended(p.cmd) })
	over := ended()
	w.down.Store(false)
	p.eventually("the incident is over", func() bool { return over || support.Ended(p.cmd) || p.tells("POST", syncPath) == 200 })
}

// incidents gives the events that the pager wants.
func (w *incidents) incidents(p *program) (seqs []int64, counts map[string]int) {
	counts = map[string]int{}
	for _, kind := range []string{"record.failed", "record.recovered", "zone.*"} {
		var page struct {
			Data []struct {
				Seq  int64
				Kind string
			}
		}
		a := p.call(200, "GET", eventsPath+"?limit=1000&kind="+kind, "")
		if err := json.Unmarshal([]byte(a.body), &page); err != nil {
			w.t.Fatal(err)
		}
		for _, e := range page.Data {
			seqs = append(seqs, e.Seq)
			counts[e.Kind]++
		}
	}
	return seqs, counts
}
