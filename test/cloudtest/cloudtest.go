// Package cloudtest runs stand-ins for the clouds' DNS services on loopback:
// each speaks its vendor's protocol with one account of a few zones, checks
// signatures from the request as it came, with code of its own, and fails on
// demand. They are written from the vendors' documentation and from requests
// that the vendors' own clients sent. Only tests import it.
package cloudtest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Zone is the zone that tests write to. The account has also a longer one
// below it, some that only look alike, and enough others to need paging.
const (
	Zone      = "example.com"
	ChildZone = "child.example.com"
)

// PageLimit is the most that any list gives at once, whatever is asked for,
// unless that is set otherwise.
const PageLimit = 10

// MaxSkew is by how much the clock of a signed request may differ.
const MaxSkew = 5 * time.Minute

// zoneNames are the zones of the account.
func zoneNames() []string {
	names := []string{"example.com.cn", "notexample.com", ChildZone, Zone, "xn--fiq228c.example"}
	for i := range 2 * PageLimit {
		names = append(names, fmt.Sprintf("a%02d-example.com", i))
	}
	slices.Sort(names)
	return names
}

// Cloud is a running stand-in.
type Cloud struct {
	Provider        string // its name in the list of providers
	URL             string // the endpoint
	AccessKeyID     string
	AccessKeySecret string
	MinTTL          uint32 // seconds
	Signed          bool   // requests have a signature, and a time

	v           vendor
	connections atomic.Int64
	count       atomic.Int64  // of requests
	delay       atomic.Int64  // of each answer, in nanoseconds
	arrived     chan struct{} // has one when a request has come

	mu        sync.Mutex
	zones     []zone
	records   []*record
	changes   int
	lastID    int
	faults    []Fault
	ahead     time.Duration // of this cloud's clock
	lag       int           // lists until a change shows
	pageLimit int           // of any list
	requests  []Request
	used      map[string]bool // nonces
	second    *Cloud          // another account
	look      func()          // called after each change, if it is not nil
}

// vendor is what differs from cloud to cloud. Its functions are called with
// the cloud locked.
type vendor struct {
	// authorize checks who calls; a failure is the vendor's own answer.
	authorize func(c *Cloud, r Request) (failure *Answer)
	// serve does what an authorized request asks for.
	serve func(c *Cloud, r Request) Answer
	// throttle is the vendor's answer to too many requests.
	throttle Answer
	// spell and read turn a value into the vendor's text, and back.
	spell func(value []string) string
	read  func(text string) []string
}

type zone struct {
	id      int
	name    string
	private bool
}

// record is one record; of a vendor of sets, one value.
type record struct {
	id      int
	zone    string
	name    string // full, lower case
	kind    string // TXT, A, AAAA, SRV or CNAME
	content string // as the vendor spells it
	ttl     uint32
	off     bool // disabled, or for some resolvers only
	hidden  int  // lists that do not show it yet
}

// Request is a request as it came.
type Request struct {
	Method, Target, Path, RawQuery, Host string
	Header                               http.Header
	Body                                 []byte
}

// Query gives a parameter.
func (r Request) Query(name string) string {
	values, err := url.ParseQuery(r.RawQuery)
	if err != nil {
		return ""
	}
	return values.Get(name)
}

// Answer is what a cloud says.
type Answer struct {
	Status int
	Header map[string]string
	Body   string
}

// JSON makes an answer of a value.
func JSON(status int, value any) Answer {
	body, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return Answer{Status: status, Header: map[string]string{"Content-Type": "application/json; charset=utf-8"}, Body: string(body)}
}

// start runs a cloud until the end of the test.
func start(t testing.TB, c *Cloud, v vendor) *Cloud {
	c.v, c.lastID, c.used, c.arrived, c.pageLimit = v, 1000, map[string]bool{}, make(chan struct{}, 1), PageLimit
	for _, name := range zoneNames() {
		c.zones = append(c.zones, zone{id: c.newID(), name: name})
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(c.handle))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			c.connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	c.URL = server.URL
	return c
}

func (c *Cloud) newID() int { c.lastID++; return c.lastID }

func (c *Cloud) handle(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	c.count.Add(1)
	if delay := time.Duration(c.delay.Load()); delay > 0 {
		select {
		case <-time.After(delay):
		case <-r.Context().Done():
			return
		}
	}
	answer, how := c.answer(Request{r.Method, r.RequestURI, r.URL.EscapedPath(), r.URL.RawQuery, r.Host, r.Header, body})
	switch how {
	case reset:
		panic(http.ErrAbortHandler)
	case slow:
		<-r.Context().Done()
		return
	case cut:
		w.Header().Set("Content-Length", strconv.Itoa(len(answer.Body)+1))
	}
	for name, value := range answer.Header {
		w.Header().Set(name, value)
	}
	if w.Header().Get("Date") == "" {
		w.Header().Set("Date", c.now().UTC().Format(http.TimeFormat))
	}
	w.WriteHeader(answer.Status)
	io.WriteString(w, answer.Body)
}

// answer decides what a request gets.
func (c *Cloud) answer(r Request) (Answer, manner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.requests = append(c.requests, r)
	select {
	case c.arrived <- struct{}{}:
	default:
	}
	var fault Fault
	if len(c.faults) > 0 {
		fault = c.faults[0]
	}
	switch fault.how {
	case instead:
		c.faults = c.faults[1:]
		return cmp.Or(fault.answer, &c.v.throttle).clone(), normal
	case reset, slow:
		c.faults = c.faults[1:]
		return Answer{}, fault.how
	}
	before, records := c.changes, []*record(nil)
	if fault.how == refusing {
		records = c.copied()
	}
	answer := Answer{}
	if failure := c.v.authorize(c, r); failure != nil && c.second != nil {
		return c.second.answer(r)
	} else if failure != nil {
		answer = *failure
	} else {
		answer = c.v.serve(c, r)
	}
	wrote := c.changes != before
	if wrote && c.look != nil {
		c.look()
	}
	switch {
	case fault.how == refusing && (wrote || answer.Status >= http.StatusBadRequest):
		c.changes, c.records = before, records
		return cmp.Or(fault.then, &c.v.throttle).clone(), normal
	case (fault.how == lost || fault.how == refusing || fault.how == unread) && !wrote:
		return answer, normal // it waits for a write
	case fault.how == unread:
		c.faults[0].how = refusing
		return cmp.Or(fault.answer, &answer).clone(), normal
	case fault.how == lost:
		c.faults = c.faults[1:]
		return answer, reset
	case len(c.faults) > 0:
		c.faults = c.faults[1:]
	}
	return answer, fault.how
}

// copied gives the records as they are, to go back to.
func (c *Cloud) copied() (records []*record) {
	for _, r := range c.records {
		one := *r
		records = append(records, &one)
	}
	return records
}

func (a *Answer) clone() Answer { return *a }

// manner is how a request is answered.
type manner int

const (
	normal   manner = iota
	instead         // another answer than the true one, and nothing is done
	reset           // the connection breaks, and nothing is done
	slow            // no answer until the client goes, and nothing is done
	lost            // the next write is done, and its answer never comes
	cut             // the answer breaks off
	unread          // the next write is done, and another answer comes than the true one
	refusing        // no further write is done
)

// Fault is what happens to one request.
type Fault struct {
	how    manner
	answer *Answer
	then   *Answer // of refusing
}

// Faults of the network, and Pass for a request that goes well.
var (
	Pass     = Fault{}
	Reset    = Fault{how: reset}
	Slow     = Fault{how: slow}
	Lost     = Fault{how: lost}
	Cut      = Fault{how: cut}
	Throttle = Fault{how: instead}
)

// Unread has the next write made, and every write after it refused, until FailNoMore.
// first is the answer to the one that is made, nil for the true answer; then is the
// answer to those that are refused, nil for the vendor's to too many requests.
func Unread(first, then *Answer) Fault { return Fault{how: unread, answer: first, then: then} }

// Instead is an answer that is not the true one.
func Instead(a Answer) Fault { return Fault{how: instead, answer: &a} }

// Fail says what becomes of the next requests, in order.
func (c *Cloud) Fail(faults ...Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.faults = append(c.faults, faults...)
}

// Rotate gives the account's key another secret.
func (c *Cloud) Rotate(secret string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.AccessKeySecret = secret
}

// FailNoMore forgets what was to fail, and tells how much.
func (c *Cloud) FailNoMore() (left int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	left, c.faults = len(c.faults), nil
	return left
}

// SetClock puts this cloud's clock ahead of the host's.
func (c *Cloud) SetClock(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ahead = ahead
}

// SetLag makes each change take a number of looks at it until it shows.
func (c *Cloud) SetLag(looks int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lag = looks
}

// Asked gives what has come since the last call.
func (c *Cloud) Asked() []Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	requests := c.requests
	c.requests = nil
	return requests
}

// Requests tells how many requests have come.
func (c *Cloud) Requests() int { return int(c.count.Load()) }

// Delay has every request wait before it is answered.
func (c *Cloud) Delay(d time.Duration) { c.delay.Store(int64(d)) }

// SetPageLimit sets the most that any list gives at once; 0 leaves it to the
// vendor's own limits.
func (c *Cloud) SetPageLimit(items int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pageLimit = items
}

// Connections tells how many connections were made.
func (c *Cloud) Connections() int64 { return c.connections.Load() }

// Arrived has one when a request has come since it was last emptied.
func (c *Cloud) Arrived() <-chan struct{} { return c.arrived }

// now is this cloud's clock.
func (c *Cloud) now() time.Time { return time.Now().Add(c.ahead) }

// Watch calls look with the TXT values at a name after each request that changes something, until end is called.
func (c *Cloud) Watch(name string, look func(values [][]string)) (end func()) {
	set := func(f func()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.look = f
	}
	set(func() { look(c.values(name)) })
	return func() { set(nil) }
}

// Values gives the TXT values at a name as resolvers see them.
func (c *Cloud) Values(t testing.TB, name string) [][]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.values(name)
}

func (c *Cloud) values(name string) (values [][]string) {
	for _, r := range c.records {
		if r.name == fold(name) && r.kind == "TXT" && !r.off {
			values = append(values, c.v.read(r.content))
		}
	}
	return values
}

// Add makes a record as another user of the account would.
func (c *Cloud) Add(t testing.TB, name string, value []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.insert(name, "TXT", c.v.spell(value), max(c.MinTTL, 1)).hidden = 0
}

// AddOff makes a record that is disabled.
func (c *Cloud) AddOff(name string, value []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.insert(name, "TXT", c.v.spell(value), max(c.MinTTL, 1))
	r.off, r.hidden = true, 0
}

// Off gives the values at a name in records that are switched off.
func (c *Cloud) Off(name string) (values [][]string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		if r.name == fold(name) && r.kind == "TXT" && r.off {
			values = append(values, c.v.read(r.content))
		}
	}
	return values
}

// RemoveOff takes the records away that are switched off.
func (c *Cloud) RemoveOff(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.records = slices.DeleteFunc(c.records, func(r *record) bool { return r.name == fold(name) && r.off })
}

// AddAlias makes a CNAME record.
func (c *Cloud) AddAlias(name, target string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.insert(name, "CNAME", target, max(c.MinTTL, 1)).hidden = 0
}

// Delegate makes an NS record.
func (c *Cloud) Delegate(name, server string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.insert(name, "NS", server, max(c.MinTTL, 1)).hidden = 0
}

// Remove takes a value away, as another user would.
func (c *Cloud) Remove(t testing.TB, name string, value []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.records = slices.DeleteFunc(c.records, func(r *record) bool {
		return r.name == fold(name) && r.kind == "TXT" && slices.Equal(c.v.read(r.content), value)
	})
}

// TTL gives the TTL of the records at a name, 0 without any.
func (c *Cloud) TTL(name string) uint32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		if r.name == fold(name) && r.kind == "TXT" && !r.off {
			return r.ttl
		}
	}
	return 0
}

// AddZone adds a zone to the account; AddPrivateZone one that the public does
// not see, where the vendor has such.
func (c *Cloud) AddZone(name string) { c.addZone(name, false) }

// AddPrivateZone adds a zone that only a private network sees.
func (c *Cloud) AddPrivateZone(name string) { c.addZone(name, true) }

func (c *Cloud) addZone(name string, private bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.zones = append(c.zones, zone{id: c.newID(), name: name, private: private})
}

func fold(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// zoneNamed gives the public zone with a name.
func (c *Cloud) zoneNamed(name string) (zone, bool) {
	return c.zoneWhere(func(z zone) bool { return z.name == fold(name) && !z.private })
}

func (c *Cloud) zoneWhere(is func(zone) bool) (zone, bool) {
	at := slices.IndexFunc(c.zones, is)
	if at < 0 {
		return zone{}, false
	}
	return c.zones[at], true
}

// zoneOf gives the longest zone that contains a name.
func (c *Cloud) zoneOf(name string) (found zone) {
	for _, z := range c.zones {
		if !z.private && len(z.name) > len(found.name) && (name == z.name || strings.HasSuffix(name, "."+z.name)) {
			found = z
		}
	}
	return found
}

// insert makes a record that shows after the lag.
func (c *Cloud) insert(name, kind, content string, ttl uint32) *record {
	c.changes++
	name = fold(name)
	r := &record{id: c.newID(), zone: c.zoneOf(name).name, name: name, kind: kind, content: content, ttl: ttl, hidden: c.lag}
	c.records = append(c.records, r)
	return r
}

// delete removes the record with an id.
func (c *Cloud) delete(id int) bool {
	before := len(c.records)
	c.records = slices.DeleteFunc(c.records, func(r *record) bool { return r.id == id })
	if len(c.records) == before {
		return false
	}
	c.changes++
	return true
}

func (c *Cloud) record(id int) *record {
	at := slices.IndexFunc(c.records, func(r *record) bool { return r.id == id })
	if at < 0 {
		return nil
	}
	return c.records[at]
}

// same finds a record that a vendor calls a duplicate.
func (c *Cloud) same(name, kind, content string) *record {
	at := slices.IndexFunc(c.records, func(r *record) bool {
		return r.name == fold(name) && r.kind == kind && r.content == content
	})
	if at < 0 {
		return nil
	}
	return c.records[at]
}

// at gives the records that a list shows; the name "" is any, and so is the
// kind. Each look brings hidden records nearer.
func (c *Cloud) at(zone, name, kind string) (found []*record) {
	name = fold(name)
	for _, r := range c.records {
		if r.zone != zone || name != "" && r.name != name || kind != "" && r.kind != kind {
			continue
		}
		if r.hidden > 0 {
			r.hidden--
			continue
		}
		found = append(found, r)
	}
	return found
}

// aliased reports whether a CNAME keeps other records from a name.
func (c *Cloud) aliased(name string) bool {
	return slices.ContainsFunc(c.records, func(r *record) bool { return r.name == fold(name) && r.kind == "CNAME" })
}

// fullName joins a relative name, "@" for the zone's own, and a zone.
func fullName(relative, zone string) string {
	if relative == "@" || relative == "" {
		return zone
	}
	return fold(relative) + "." + zone
}

// relativeName cuts the zone off a name, and gives "@" for the zone's own.
func relativeName(name, zone string) string {
	if name == zone {
		return "@"
	}
	return strings.TrimSuffix(name, "."+zone)
}

// size is how much a list gives at once: what was asked for, the vendor's own
// number without that, and at most what the vendor or the test allows.
func (c *Cloud) size(asked, own, most int) int {
	if asked <= 0 {
		asked = own
	}
	if c.pageLimit > 0 {
		most = min(most, c.pageLimit)
	}
	return min(asked, most)
}

// page gives one page of a list, the first being 1.
func page[T any](items []T, number, size int) []T {
	return fromOffset(items, max(0, number-1)*size, size)
}

// fromOffset gives a part of a list; the first item has the offset 0.
func fromOffset[T any](items []T, offset, size int) []T {
	first := min(len(items), max(0, offset))
	return items[first:min(len(items), first+size)]
}

// spellPlain and readPlain are of vendors that keep one text without quotes.
func spellPlain(value []string) string { return strings.Join(value, "") }

func readPlain(text string) (value []string) {
	for len(text) > 255 {
		value, text = append(value, text[:255]), text[255:]
	}
	return append(value, text)
}

// spellQuoted writes each character-string between quotes, with backslashes before its quotes and backslashes.
func spellQuoted(value []string) string {
	escape := strings.NewReplacer(`\`, `\\`, `"`, `\"`)
	var quoted []string
	for _, s := range value {
		quoted = append(quoted, `"`+escape.Replace(s)+`"`)
	}
	return strings.Join(quoted, " ")
}
