package e2e

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// host is the DNS providers of one history: accounts with zones, a server for
// each protocol, and the faults that the history has planned. What it is asked is
// in history_fronts_test.go.
type host struct {
	mu       sync.Mutex
	accounts []*account
	keys     []*accessKey
	addrs    map[string]string // by provider
	servers  []*httptest.Server

	plan      []fault
	late      []*lateWrite
	over      overtaking               // of the next late write
	stale     map[spot]staleView       // what the next look at a name shows instead
	hidden    map[spot]bool            // where a look of this step has shown an old view
	book      map[spot]map[string]bool // the values that the program has asked to write
	requests  int
	writes    int
	lateNames map[string]bool // where a write of this step has come late
	unsure    map[string]bool // the names of probes about which a call has failed
	nextID    int

	owner    string
	guards   map[guard]bool
	resolved map[guard]bool                  // those that the built-in server has
	guarded  int                             // grows with each change of all guards
	beside   func(guard) bool                // whether a value stands at the built-in server
	foreign  func(at spot, text string) bool // whether another program has put a value
	kill     func()
	say      func(format string, args ...any) // into the transcript
	broken   []string                         // what a single write has broken
	givenUp  int                              // calls that have waited at a barrier for too long
	written  map[spot]int                     // givenUp when a spot was written last
	fired    map[faultKind]int
}

// account is a customer's, with zones of its own. It may be reached in several
// protocols: each of its keys is for one.
type account struct {
	name, provider string
	zones          map[string]map[string][]standing // by zone and name
	ids            map[string]int                   // of zones, where a protocol has numbers
	server         string                           // where it is reached, if not at its protocol's common address
	lists          bool                             // whole zones are told
	nameless       bool                             // the ids of zones are not told
	down           faultKind                        // what every call comes to, until it is healed
	listsDown      bool                             // lists of whole zones fail, until it is healed
	barrier        *barrier                         // calls that wait
	pace           int                              // calls that it takes in a second, 0 for any number
	calls          []time.Time                      // of the last second
}

// standing is a TXT value with its id, for an API that changes records by id.
type standing struct {
	id   int
	text string
}

// accessKey opens an account by a protocol. One that is refused may be accepted
// again. Two keys may have one id: then the secret decides.
type accessKey struct {
	account      *account
	provider, id string
	secret       string
	refused      bool
	outdated     bool // the database was restored, and has an older secret
	changed      bool // its secret; a place at another spelling of the endpoint has no heir then
	respelled    bool // its endpoint, likewise
}

// barrier makes calls wait until it is opened.
type barrier struct {
	catches   func(c hostCall) bool
	opened    chan struct{}
	caught    int // calls that have come
	abandoned int // of them, those that the program has given up
}

// spot is a name in one of the zones.
type spot struct {
	account    *account
	zone, name string
}

func (s spot) String() string { return s.account.name + "/" + s.zone + "/" + s.name }

// guard is a name that must have a value of a network without a gap. That of a record without marks
// has any value of it.
type guard struct{ name, network string }

// unmarked is the network of a guard of a record without marks.
const unmarked = "unmarked"

type faultKind string

// Faults. Of those that take an answer away, "lost" and "cut" come after the
// write is done.
const (
	noFault        faultKind = ""
	throttled      faultKind = "throttled"
	throttledFor   faultKind = "throttled with Retry-After"
	unavailable    faultKind = "5xx"
	refusedOnce    faultKind = "key refused once"
	resetBefore    faultKind = "reset before the write"
	lostAnswer     faultKind = "answer lost"
	cutAnswer      faultKind = "answer cut"
	lateBefore     faultKind = "write arrives before the next look"
	lateAfter      faultKind = "write arrives after the next look"
	staleOnce      faultKind = "stale look"
	staleLater     faultKind = "stale look after a true one"
	killBefore     faultKind = "kill before a write"
	killAfter      faultKind = "kill after a write"
	killAfterStale faultKind = "kill after a write, then a stale look"
	killLate       faultKind = "kill during a write that arrives before the next look"
	killLater      faultKind = "kill during a write that arrives after the next look"
	killAtRead     faultKind = "kill at a read"
	lateOver       faultKind = "write arrives after a newer one"
	lateBatch      faultKind = "batch arrives after a newer one, unseen"
	unreadable     faultKind = "answer unreadable"
)

var (
	writeFaults = []faultKind{
		lateBefore, lateAfter, staleOnce, staleLater, staleLater, killBefore, killAfter, killAfterStale, killLate, killLater,
		resetBefore, lostAnswer, cutAnswer, unreadable, throttled, unavailable,
	}
	anyFaults = []faultKind{throttled, throttledFor, unavailable, refusedOnce, cutAnswer, lostAnswer, unreadable, killAtRead}
)

// fault happens at a request, when as many of its sort have passed.
type fault struct {
	kind  faultKind
	write bool // counts writes only
	pass  int
	batch bool     // counts writes of several names only
	at    *account // counts calls of this account only
	down  bool     // the account fails from then on
	after bool     // counts calls after the next write only
}

// inTime bounds how late a write arrives, and how long a view is stale: a provider shows a change before
// the program looks for the second time. The program counts from an earlier moment.
var inTime = secondLook / 2

// staleView is what stood before a write.
type staleView struct {
	values []standing
	since  time.Time
	lasts  time.Duration
	true   int // looks that show what stands, before one shows the old values
}

// shownLate gives how long a view is stale. Of a write that was answered the program knows what stands,
// and looks for the second time after it has missed that.
func shownLate(kind faultKind) time.Duration {
	if kind == killAfterStale {
		return inTime
	}
	return secondLook
}

// lateWrite is a write that was sent and has not arrived.
type lateWrite struct {
	spots     []spot
	sent      time.Time
	puts      map[spot][]string
	came      bool
	once      bool // it arrives as soon as its newer value stands, without a look
	afterLook bool
	afterNew  string // it waits until this value stands at the first spot
	apply     func()
}

// overtaking is what a step knows of a late write before it is sent: the value that overtakes it.
type overtaking struct {
	newer string
	sent  chan *lateWrite // has room for one
}

// hostCall is a request that a front has read.
type hostCall struct {
	write  bool
	at     spot              // what is written, or read; without a name the whole zone
	all    []spot            // what is written, where that is more
	puts   map[spot][]string // the values that are to stand after a write
	looks  bool              // it shows values
	text   string
	answer func() reply
}

type reply struct {
	status int
	body   any
	after  string // Retry-After
	turns  string // Location, of an answer that no provider gives
}

func (c hostCall) spots() []spot {
	if len(c.all) > 0 {
		return c.all
	}
	return []spot{c.at}
}

// front speaks a provider's protocol.
type front struct {
	provider string
	key      func(r *http.Request, body []byte) (id, secret string)
	read     func(h *host, a *account, r *http.Request, body []byte) hostCall
	failure  func(kind faultKind) reply
}

func newHost() *host {
	h := &host{
		addrs: map[string]string{}, stale: map[spot]staleView{}, hidden: map[spot]bool{}, book: map[spot]map[string]bool{}, written: map[spot]int{}, unsure: map[string]bool{},
		lateNames: map[string]bool{}, guards: map[guard]bool{}, resolved: map[guard]bool{}, fired: map[faultKind]int{},
	}
	return h
}

// listen has a protocol spoken, at its common address or at one more.
func (h *host) listen(f front, common bool) (address string) {
	var server *httptest.Server
	server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := server.URL
		if common {
			at = ""
		}
		h.serve(f, at, w, r)
	}))
	h.servers = append(h.servers, server)
	if common {
		h.addrs[f.provider] = server.URL
	}
	return server.URL
}

func (h *host) close() {
	for _, server := range h.servers {
		server.CloseClientConnections()
		server.Close()
	}
}

// open makes an account with its zones, and has its protocol spoken.
func (h *host) open(provider, name string, zones ...string) *account {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.addrs[provider] == "" {
		h.listen(fronts[provider], true)
	}
	a := &account{name: name, provider: provider, zones: map[string]map[string][]standing{}, ids: map[string]int{}}
	for _, zone := range zones {
		a.zones[zone] = map[string][]standing{}
	}
	h.accounts = append(h.accounts, a)
	return a
}

// addKey gives an account one more key.
func (h *host) addKey(a *account, provider, id, secret string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.keys = append(h.keys, &accessKey{account: a, provider: provider, id: id, secret: secret})
}

// opens gives the key that a protocol accepts as this pair, nil without one. A
// protocol that signs tells no secret.
func (h *host) opens(provider, id, secret string) *accessKey {
	for _, key := range h.keys {
		if key.provider == provider && key.id == id && (key.secret == secret || secret == "") && !key.refused {
			return key
		}
	}
	return nil
}

func (h *host) serve(f front, at string, w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.requests++
	id, secret := f.key(r, body)
	key := h.opens(f.provider, id, secret)
	if key == nil || key.account.server != at {
		h.say("  %s is refused", id)
		f.failure(refusedOnce).write(w, false)
		return
	}
	if key.account.paced() {
		f.failure(throttledFor).write(w, false)
		return
	}
	c := f.read(h, key.account, r, body)
	h.enter(c)
	h.wait(key.account, c, r)
	kind := h.take(key.account, c)
	if kind != noFault && isProbe(c.at.name) {
		h.unsure[c.at.name] = true
	}
	h.say("  %s: %s %s", id, c.text, kind)
	switch kind {
	case throttled, throttledFor, unavailable, refusedOnce:
		f.failure(kind).write(w, false)
		return
	case resetBefore:
		panic(http.ErrAbortHandler)
	case killBefore, killAtRead:
		h.kill()
		panic(http.ErrAbortHandler)
	case lateBefore, lateAfter, lateOver, lateBatch, killLate, killLater:
		h.delay(c, kind)
		if kind == killLate || kind == killLater {
			h.kill()
			panic(http.ErrAbortHandler)
		}
		if kind == lateBatch || h.requests%2 == 0 { // as a gateway that gives up: a client may try again, in parts
			h.unless(unreadable, reply{}).write(w, false)
			return
		}
		panic(http.ErrAbortHandler)
	}
	h.do(c, kind).write(w, kind == cutAnswer)
}

// wait holds a call back that a barrier catches. The caller has the lock, which is
// given up meanwhile.
func (h *host) wait(a *account, c hostCall, r *http.Request) {
	b := a.barrier
	if b == nil || !b.catches(c) {
		return
	}
	b.caught++
	h.say("  waits: %s", c.text)
	h.mu.Unlock()
	select {
	case <-b.opened:
	case <-r.Context().Done():
	}
	h.mu.Lock()
	if r.Context().Err() != nil {
		b.abandoned++
		h.givenUp++
		panic(http.ErrAbortHandler)
	}
}

// do makes the call, and what comes with it.
func (h *host) do(c hostCall, kind faultKind) reply {
	if c.looks {
		h.arrive(c.at, false)
	}
	before := map[spot][]standing{}
	if c.write {
		for _, at := range c.spots() {
			before[at] = slices.Clone(h.values(at))
			h.written[at] = h.givenUp
			delete(h.stale, at)
		}
	}
	answer := c.answer()
	if c.looks {
		h.arrive(c.at, true)
		return h.unless(kind, answer)
	}
	if c.write && answer.status < 300 {
		h.writes++
		for _, at := range c.spots() {
			h.say("    now %q", texts(h.values(at)))
			h.watch(at)
			switch kind {
			case staleOnce, killAfterStale:
				h.stale[at] = staleView{values: before[at], since: time.Now(), lasts: shownLate(kind)}
			case staleLater: // some clients look whether a change is shown
				h.stale[at] = staleView{values: before[at], since: time.Now(), lasts: shownLate(kind), true: 1 + h.requests%2}
			}
		}
	}
	if c.write {
		h.overtake()
	}
	if kind == killAfter || kind == killAfterStale {
		h.kill()
		panic(http.ErrAbortHandler)
	}
	return h.unless(kind, answer)
}

// unless gives an answer as a fault leaves it. What cannot be read is a redirect:
// no protocol here has one, and it is not followed.
func (h *host) unless(kind faultKind, answer reply) reply {
	switch kind {
	case lostAnswer:
		panic(http.ErrAbortHandler)
	case unreadable:
		return reply{status: http.StatusFound, body: "<html>please log in</html>", turns: "http://127.0.0.1:1/login"}
	}
	return answer
}

// take gives the fault that happens now.
func (h *host) take(a *account, c hostCall) faultKind {
	switch whole := c.looks && c.at.name == ""; {
	case a.down != noFault:
		return a.down
	case a.listsDown && whole:
		return unavailable
	}
	for i := range h.plan {
		f := &h.plan[i]
		if f.kind == noFault || f.write && !c.write || f.batch && len(c.all) < 2 || f.at != nil && f.at != a {
			continue
		}
		if f.after {
			f.after = !c.write
			continue
		}
		if f.pass--; f.pass < 0 {
			kind := f.kind
			f.kind = noFault
			h.fired[kind]++
			if f.down {
				a.down = unavailable
			}
			return kind
		}
	}
	return noFault
}

// delay keeps a write for later.
func (h *host) delay(c hostCall, kind faultKind) {
	for _, at := range c.spots() {
		h.lateNames[at.name] = true
		for g := range h.guards {
			if g.name == at.name {
				delete(h.guards, g)
			}
		}
	}
	l := &lateWrite{spots: c.spots(), sent: time.Now(), puts: c.puts, once: kind == lateBatch, afterLook: kind == lateAfter || kind == killLater || kind == lateOver}
	l.apply = func() {
		l.came = true
		for _, at := range c.spots() {
			h.lateNames[at.name] = true
			delete(h.stale, at)
		}
		answer := c.answer()
		h.say("    late: %s: %d, now %q", c.text, answer.status, texts(h.values(c.at)))
	}
	switch kind {
	case lateBatch:
		l.afterNew = neverStands
	case lateOver:
		l.afterNew = h.over.newer
	}
	h.late = append(h.late, l)
	select {
	case h.over.sent <- l:
	default:
	}
}

// neverStands is for a late write that waits for a value which a step is to name.
const neverStands = "?"

// arrive lets the late writes in that a look at their name brings: those that
// come before the look, or after it.
func (h *host) arrive(at spot, looked bool) {
	h.late = slices.DeleteFunc(h.late, func(l *lateWrite) bool {
		same := slices.ContainsFunc(l.spots, func(s spot) bool {
			return s.account == at.account && s.zone == at.zone && (at.name == "" || s.name == at.name)
		})
		waits := l.afterNew != "" && !slices.Contains(texts(h.values(l.spots[0])), l.afterNew)
		if same && waits && time.Since(l.sent) > inTime { // this look may settle the outcome
			h.say("    never arrives: %v", l.spots)
			return true
		}
		after := l.afterLook && time.Since(l.sent) < inTime
		if same && !waits && after == looked {
			l.apply()
			return true
		}
		return false
	})
}

// overtake lets the late writes in that have waited for a newer value only.
func (h *host) overtake() {
	h.late = slices.DeleteFunc(h.late, func(l *lateWrite) bool {
		if l.once && time.Since(l.sent) > inTime {
			return true // it never arrives
		}
		if !l.once || !slices.Contains(texts(h.values(l.spots[0])), l.afterNew) {
			return false
		}
		l.apply()
		return true
	})
}

// enter writes into the book what a call wants to stand.
func (h *host) enter(c hostCall) {
	for at, values := range c.puts {
		for _, text := range values {
			if slices.Contains(texts(h.values(at)), text) && !h.book[at][text] {
				continue // a set that is replaced whole has the values of others too
			}
			if h.book[at] == nil {
				h.book[at] = map[string]bool{}
			}
			h.book[at][text] = true
		}
	}
}

// look gives the values that a read shows.
func (h *host) look(at spot) []standing {
	if old, found := h.stale[at]; found {
		if old.true--; old.true >= 0 {
			h.stale[at] = old
			return h.values(at)
		}
		delete(h.stale, at)
		if time.Since(old.since) < old.lasts {
			h.hidden[at] = true
			if isProbe(at.name) { // one zone looks like two, so a value may go from it, until the next look
				clear(h.guards)
			}
			return old.values
		}
	}
	return h.values(at)
}

func (h *host) values(at spot) []standing { return at.account.zones[at.zone][at.name] }

func (h *host) add(at spot, text string) int {
	h.nextID++
	at.account.zones[at.zone][at.name] = append(at.account.zones[at.zone][at.name], standing{h.nextID, text})
	return h.nextID
}

func (h *host) remove(at spot, text string) {
	at.account.zones[at.zone][at.name] = slices.DeleteFunc(slices.Clone(h.values(at)), func(v standing) bool { return v.text == text })
}

// find gives the record with an id.
func (a *account) find(id string) (at spot, value standing, found bool) {
	number, _ := strconv.Atoi(id)
	for zone, names := range a.zones {
		for name, values := range names {
			if i := slices.IndexFunc(values, func(v standing) bool { return v.id == number }); i >= 0 {
				return spot{a, zone, name}, values[i], true
			}
		}
	}
	return at, value, false
}

// id gives the number of a zone.
func (h *host) id(a *account, zone string) int {
	if a.ids[zone] == 0 {
		h.nextID++
		a.ids[zone] = h.nextID
	}
	return a.ids[zone]
}

// typed gives a name as a spot has it: with the type of its records, except for TXT.
func typed(name, kind string) string {
	if name == "" || kind == "" || kind == "TXT" {
		return name
	}
	return name + " " + kind
}

// bare gives the name in DNS of the name of a spot.
func bare(name string) string {
	name, _, _ = strings.Cut(name, " ")
	return name
}

// kindOf gives the type of the records of a spot.
func kindOf(name string) string {
	_, kind, _ := strings.Cut(name, " ")
	return cmp.Or(kind, "TXT")
}

// relativeTo gives the name of a spot as an API with relative names has it.
func relativeTo(name, zone string) string {
	if name = bare(name); name == zone {
		return "@"
	}
	return strings.TrimSuffix(name, "."+zone)
}

// zoneOf gives the longest zone that contains a name.
func (a *account) zoneOf(name string) (longest string) {
	name = bare(name)
	for zone := range a.zones {
		if len(zone) > len(longest) && (name == zone || strings.HasSuffix(name, "."+zone)) {
			longest = zone
		}
	}
	return longest
}

// tampering is in every value that only another program has put there.
const tampering = " tcp://192.0.2.1:"

// watch looks at what a write has done: nothing guarded may be missing, and no
// name may have values of two networks.
func (h *host) watch(at spot) {
	for g := range h.guards {
		if !h.stands(g) {
			h.broken = append(h.broken, fmt.Sprintf("gap: network %q has no value at %s after a write", g.network, g.name))
			delete(h.guards, g)
		}
	}
	networks := map[string]bool{}
	for _, value := range h.values(at) {
		if network, ours := h.ours(value.text); ours && !strings.Contains(value.text, tampering) {
			networks[network] = true
		}
	}
	if at.account.provider == bridgeFront.provider && len(networks) > 1 && !h.lateNames[at.name] {
		h.broken = append(h.broken, fmt.Sprintf("%s has values of two networks after a write", at))
	}
}

func (h *host) isBroken() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.broken) > 0
}

func (h *host) stands(g guard) bool { return h.hasAt(g) || h.beside(g) }

// hasAt is stands without the built-in server.
func (h *host) hasAt(g guard) bool {
	for _, a := range h.accounts {
		for _, names := range a.zones {
			for _, value := range names[g.name] {
				if h.holds(value.text, g) {
					return true
				}
			}
		}
	}
	return false
}

// holds says whether a value at a guarded name is one that the guard wants.
func (h *host) holds(text string, g guard) bool {
	if owner, _ := marks(text); g.network == unmarked {
		return owner == ""
	}
	network, ours := h.ours(text)
	return ours && network == g.network
}

// ours says whether a value has the mark of the database, and of which network
// it is: "" for the configuration's.
func (h *host) ours(text string) (network string, ours bool) {
	owner, network := marks(text)
	return network, owner != "" && owner == h.owner
}

// marks reads the owner and the network of a mesh's value.
func marks(text string) (owner, network string) {
	fields := strings.Fields(text)
	if len(fields) == 0 || fields[0] != "v=mesh1" {
		return "", ""
	}
	for _, field := range fields[1:] {
		if value, found := strings.CutPrefix(field, "o="); found && owner == "" {
			owner = value
		}
		if value, found := strings.CutPrefix(field, "n="); found && network == "" {
			network = value
		}
	}
	return owner, network
}

// all gives every name that has values, in order.
func (h *host) all() (spots []spot) {
	for _, a := range h.accounts {
		for _, zone := range slices.Sorted(maps.Keys(a.zones)) {
			for _, name := range slices.Sorted(maps.Keys(a.zones[zone])) {
				if len(a.zones[zone][name]) > 0 {
					spots = append(spots, spot{a, zone, name})
				}
			}
		}
	}
	return spots
}

// names gives those of a zone that a look shows values at.
func (h *host) names(at spot) (names []string) {
	for name := range at.account.zones[at.zone] {
		names = append(names, name)
	}
	for s := range h.stale {
		if s.account == at.account && s.zone == at.zone {
			names = append(names, s.name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

func texts(values []standing) []string {
	list := []string{}
	for _, v := range values {
		list = append(list, v.text)
	}
	return list
}
