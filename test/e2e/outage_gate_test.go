package e2e

import (
	"bytes"
	"compress/gzip"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"meshddns/test/support"
)

// slowName is in the certificates of the gates, for a client that reaches them by a name.
const slowName = "slow.test"

// gate stands before a provider with an HTTP API, and hands on what it is asked
// over TLS, or makes a fault of it.
type gate struct {
	t       *testing.T
	records int                    // of a zone with many
	target  atomic.Pointer[string] // host:port of the provider
	certs   map[string]*tls.Certificate
	addr    string
	server  *http.Server
	made    atomic.Int64 // calls that a fault has met

	mu    sync.Mutex
	fault string
	end   chan struct{} // closed when the fault ends
	holes []func()      // what keeps the port closed
	conns map[net.Conn]bool
	held  map[int64]bool // calls that the fault keeps open, by number
	last  int64
	seen  map[string]page // the first answer to each call, for "stuck page"
	dice  *rand.Rand
}

// page is an answer as it was.
type page struct {
	status int
	header http.Header
	body   []byte
}

func newGate(t *testing.T, target string, certs map[string]*tls.Certificate) *gate {
	t.Helper()
	g := &gate{t: t, records: zoneRecords(t), certs: certs, conns: map[net.Conn]bool{}, held: map[int64]bool{}, dice: rand.New(rand.NewPCG(1, 2))}
	g.target.Store(&target)
	g.server = &http.Server{Handler: g, ErrorLog: log.New(io.Discard, "", 0), ConnState: g.track}
	g.listen("127.0.0.1:0")
	t.Cleanup(func() { g.set(""); g.server.Close() })
	return g
}

func (g *gate) listen(addr string) {
	var plain net.Listener
	err := whenFree(func() (err error) {
		plain, err = net.Listen("tcp", addr)
		return err
	})
	if err != nil {
		g.t.Errorf("the port of the gate: %v", err)
		return
	}
	g.addr = plain.Addr().String()
	config := &tls.Config{GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
		if c := g.certs[g.now()]; c != nil {
			return c, nil
		}
		return g.certs[""], nil
	}}
	go g.server.Serve(tls.NewListener(&doorkeeper{plain, g}, config))
	g.mu.Lock()
	g.holes = append(g.holes, func() { plain.Close() })
	g.mu.Unlock()
}

func (g *gate) now() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.fault
}

// set begins a fault; "" ends it. What is open breaks.
func (g *gate) set(fault string) {
	g.mu.Lock()
	holes, was := g.holes, g.fault
	if g.end != nil {
		close(g.end)
	}
	g.fault, g.end, g.seen = fault, make(chan struct{}), map[string]page{}
	moves := fault == blackHole || was == blackHole
	if moves {
		g.holes = nil
	}
	conns := slices.Collect(maps.Keys(g.conns))
	g.mu.Unlock()
	for _, c := range conns {
		c.Close()
	}
	if !moves {
		return
	}
	for _, hole := range holes {
		hole()
	}
	if fault == blackHole {
		g.made.Add(1) // no program can see what the kernel drops
		hole := silentPort(g.t, g.addr)
		g.mu.Lock()
		g.holes = append(g.holes, hole)
		g.mu.Unlock()
		return
	}
	g.listen(g.addr)
}

func (g *gate) track(c net.Conn, state http.ConnState) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch state {
	case http.StateNew:
		if g.conns[c] = true; g.fault == blackHole {
			c.Close() // it was taken before the port was closed
		}
	case http.StateClosed, http.StateHijacked:
		delete(g.conns, c)
	}
}

// hold notes a call that is kept open; done is to be called at its end.
func (g *gate) hold() (end <-chan struct{}, done func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.last++
	number := g.last
	g.held[number] = true
	return g.end, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		delete(g.held, number)
	}
}

// open gives the calls that are kept open now.
func (g *gate) open() map[int64]bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.held)
}

func (g *gate) times() int64 { return g.made.Load() }

// loses reports, of 30 % loss, whether a question or an answer is lost: the first is, and then
// by chance.
func (g *gate) loses() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fault != "30 % loss" || g.made.Load() > 0 && g.dice.Float64() >= 0.15 {
		return false
	}
	g.made.Add(1)
	return true
}

// doorkeeper makes the faults of connections.
type doorkeeper struct {
	net.Listener
	g *gate
}

func (d *doorkeeper) Accept() (net.Conn, error) {
	for {
		c, err := d.Listener.Accept()
		if err != nil {
			return nil, err
		}
		fault := d.g.now()
		if slices.Contains([]string{"reset", "plaintext", "mute TLS", "wrong name", "expired", "self-signed"}, fault) {
			d.g.made.Add(1)
		}
		switch fault {
		case "reset":
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		case "plaintext":
			go func() {
				io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
				c.Close()
			}()
		case "mute TLS":
			go d.g.mute(c)
		case "one connection":
			d.g.mu.Lock()
			full := len(d.g.conns) > 0
			d.g.mu.Unlock()
			if !full {
				return c, nil
			}
			d.g.made.Add(1)
			c.(*net.TCPConn).SetLinger(0)
			c.Close()
		default:
			return c, nil
		}
	}
}

// mute reads what comes and says nothing.
func (g *gate) mute(c net.Conn) {
	end, done := g.hold()
	defer done()
	go func() {
		<-end
		c.Close()
	}()
	io.Copy(io.Discard, c)
	c.Close()
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	fault := g.now()
	if slices.Contains([]string{"timeout", "drip", "1 GB", "gzip bomb", "HTML", "redirect loop", "5xx"}, fault) || strings.HasPrefix(fault, "429") {
		g.made.Add(1)
	}
	switch fault {
	case "timeout":
		end, done := g.hold()
		defer done()
		select {
		case <-end:
		case <-r.Context().Done():
		}
		panic(http.ErrAbortHandler)
	case "drip":
		g.drip(w, r)
		return
	case "1 GB", "gzip bomb":
		g.flood(w, fault)
		return
	case "HTML":
		w.Header().Set("Content-Type", "text/html")
		io.WriteString(w, "<!doctype html><title>Maintenance</title><p>We are back soon.")
		return
	case "redirect loop":
		http.Redirect(w, r, r.RequestURI, http.StatusFound)
		return
	case "5xx":
		http.Error(w, "bad gateway", http.StatusBadGateway)
		return
	}
	if after, ok := strings.CutPrefix(fault, "429"); ok {
		g.throttle(w, strings.TrimSpace(after))
		return
	}
	if g.loses() {
		panic(http.ErrAbortHandler)
	}
	if fault == manyRecords && g.many(w, r, body) {
		g.made.Add(1)
		return
	}
	p := g.ask(r, body)
	if g.loses() {
		panic(http.ErrAbortHandler)
	}
	g.answer(w, r, fault, p)
}

// throttle refuses, with a Retry-After where one is given.
func (g *gate) throttle(w http.ResponseWriter, after string) {
	if after == "date" {
		after = time.Now().Add(2 * time.Second).UTC().Format(http.TimeFormat)
	}
	if after != "" {
		w.Header().Set("Retry-After", after)
	}
	http.Error(w, "slowly, please", http.StatusTooManyRequests)
}

func (g *gate) drip(w http.ResponseWriter, r *http.Request) {
	end, done := g.hold()
	defer done()
	w.Header().Set("Content-Length", "1000")
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		io.WriteString(w, " ")
		w.(http.Flusher).Flush()
		select {
		case <-ticker.C:
		case <-end:
			panic(http.ErrAbortHandler)
		case <-r.Context().Done():
			panic(http.ErrAbortHandler)
		}
	}
}

const gigabyte = 1 << 30

// bomb is a gigabyte of spaces, packed as many members of a megabyte.
var bomb = sync.OnceValue(func() []byte {
	var member bytes.Buffer
	pack := gzip.NewWriter(&member)
	pack.Write(bytes.Repeat([]byte{' '}, 1<<20))
	pack.Close()
	return bytes.Repeat(member.Bytes(), gigabyte>>20)
})

func (g *gate) flood(w http.ResponseWriter, fault string) {
	if fault == "gzip bomb" {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(bomb())
		return
	}
	block := bytes.Repeat([]byte{' '}, 1<<20)
	for range gigabyte >> 20 {
		_, err := w.Write(block)
		if err != nil {
			return
		}
	}
}

// ask hands a request on as it came: its signature is over its octets.
func (g *gate) ask(r *http.Request, body []byte) page {
	path, query, has := strings.Cut(r.RequestURI, "?")
	u := &url.URL{Scheme: "http", Host: *g.target.Load(), Opaque: path, RawQuery: query, ForceQuery: has}
	request := (&http.Request{
		Method: r.Method, URL: u, Host: r.Host, Header: r.Header.Clone(),
		Body: io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}).WithContext(r.Context())
	response, err := upstream.RoundTrip(request)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return page{response.StatusCode, response.Header, text}
}

// upstream adds nothing to a request.
var upstream = &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 64}

// total is how many items a list has, as vendors say it.
var total = regexp.MustCompile(`((?i:"(?:total_?count|total|count|recordtotal)"\s*:\s*"?|<(?:total)>))(\d+)`)

// answer says what the provider has said, or what the fault makes of it.
func (g *gate) answer(w http.ResponseWriter, r *http.Request, fault string, p page) {
	for name, values := range p.header {
		w.Header()[name] = values
	}
	w.Header().Del("Content-Length")
	switch fault {
	case "truncated":
		g.made.Add(1)
		w.Header().Set("Content-Length", strconv.Itoa(len(p.body)+100))
	case "wrong Date":
		g.made.Add(1)
		w.Header().Set("Date", time.Now().AddDate(9, 0, 0).UTC().Format(http.TimeFormat))
	case "stuck page":
		p = g.stuck(r, p)
	case partialPages:
		p.body = g.partial(p.body)
	case "total too high":
		p.body = total.ReplaceAllFunc(p.body, func(text []byte) []byte {
			g.made.Add(1)
			parts := total.FindSubmatch(text)
			n, _ := strconv.Atoi(string(parts[2]))
			return fmt.Appendf(nil, "%s%d", parts[1], n+7)
		})
	}
	w.WriteHeader(p.status)
	w.Write(p.body)
}

// lists are the calls that give lists, by method, path and the header or parameter
// that names them.
func (g *gate) stuck(r *http.Request, p page) page {
	action := r.Header.Get("X-Acs-Action") + r.Header.Get("X-TC-Action") + r.URL.Query().Get("Action")
	asks := r.Method == http.MethodGet || strings.HasPrefix(action, "Describe") || strings.HasPrefix(action, "List")
	if !asks || p.status != http.StatusOK {
		return p
	}
	query := r.URL.Query()
	for _, cursor := range pageParameters {
		query.Del(cursor)
	}
	key := r.Method + " " + r.URL.Path + " " + action + " " + query.Encode()
	g.mu.Lock()
	defer g.mu.Unlock()
	if first, ok := g.seen[key]; ok {
		g.made.Add(1)
		return first
	}
	g.seen[key] = p
	return p
}

var pageParameters = []string{
	"PageNumber", "page", "pageNumber", "offset", "marker", "name", "type", "identifier", "PageSize", "Offset", "start",
	"Timestamp", "SignatureNonce", "Signature", "nextmarker", "Marker",
}

// partial leaves the last record out of a list that says how many it has.
func (g *gate) partial(body []byte) []byte {
	var answer any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if !total.Match(body) || d.Decode(&answer) != nil || !dropLast(answer) {
		return body
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return body
	}
	g.made.Add(1)
	return text
}

// dropLast shortens every list of objects in a value, and reports whether there is one.
func dropLast(value any) (dropped bool) {
	object, _ := value.(map[string]any)
	for name, member := range object {
		list, _ := member.([]any)
		if len(list) == 0 {
			dropped = dropLast(member) || dropped
		} else if _, ok := list[0].(map[string]any); ok {
			object[name], dropped = list[:len(list)-1], true
		}
	}
	return dropped
}

// largeZones is the variable that says how many records a zone has that a list is not to keep
// in memory.
const largeZones = "MESHDDNS_ZONE_RECORDS"

// largeZone is the least zone whose records, if the program kept them, would take more memory than it may.
const largeZone = 100_000

func zoneRecords(t *testing.T) int { return number(t, largeZones, support.Count(20_000, 100_000)) }

// many answers a call for a whole zone with so many records more, where the vendor
// has such a call. What stands in the zone stands in the answer too: a client may believe it.
func (g *gate) many(w http.ResponseWriter, r *http.Request, body []byte) bool {
	query := r.URL.Query()
	from, to, opening, record := 0, g.records, "", ""
	switch {
	case r.Header.Get("X-Acs-Action") == "DescribeDomainRecords":
		number, _ := strconv.Atoi(query.Get("PageNumber"))
		size, _ := strconv.Atoi(query.Get("PageSize"))
		from, to = (number-1)*size, min(number*size, g.records)
		opening, record = `"Record":[`, `{"RecordId":"%[1]d","RR":"host-%[1]d","Type":"TXT","Value":"the value of %[1]d","Line":"default","Status":"ENABLE","TTL":600}`
	case r.Method == http.MethodGet && query.Get("zone") != "" && r.URL.Path == "/": // a bridge
		opening, record = `"names":[`, `{"name":"host-%[1]d.example.com","ttl":60,"values":["the value of %[1]d"]}`
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/zones/example.com.") && !query.Has("rrset_name") && query.Get("rrsets") != "false":
		opening, record = `"rrsets":[`, `{"name":"host-%[1]d.example.com.","type":"TXT","ttl":60,"records":[{"content":"\"the value of %[1]d\"","disabled":false}],"comments":[]}`
	default:
		return false
	}
	p := g.ask(r, body)
	text := total.ReplaceAll(p.body, fmt.Appendf(nil, "${1}%d", g.records))
	text = bytes.Replace(text, []byte(opening[:len(opening)-1]+"null"), []byte(opening+"]"), 1)
	before, rest, found := bytes.Cut(text, []byte(opening))
	if !found {
		g.t.Errorf("%s: no %s in %s", r.URL, opening, text)
		return false
	}
	real := bytes.Count(rest, []byte(`"RecordId"`)) // of a page, which has no more than its size
	w.Header().Set("Content-Type", p.header.Get("Content-Type"))
	w.Write(append(before, opening...))
	written := 0
	for n := from + real; n < to; n++ {
		if written > 0 {
			io.WriteString(w, ",")
		}
		if _, err := fmt.Fprintf(w, record, n); err != nil {
			return true
		}
		written++
	}
	if written > 0 && !bytes.HasPrefix(bytes.TrimSpace(rest), []byte("]")) {
		io.WriteString(w, ",")
	}
	w.Write(rest)
	return true
}

const blackHole = "black hole"

// whenFree takes a port that this process has just closed. While another test starts a program, its child has the
// closed socket, too.
func whenFree(take func() error) (err error) {
	support.Within(limit, func() bool {
		err = take()
		return !errors.Is(err, syscall.EADDRINUSE)
	})
	return err
}

// silentPort takes a port and lets no connection come about: its queue is full, so
// the kernel drops every SYN.
func silentPort(t *testing.T, addr string) (undo func()) {
	host, port, _ := net.SplitHostPort(addr)
	number, _ := strconv.Atoi(port)
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err == nil {
		err = syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1)
	}
	if err == nil {
		err = whenFree(func() error {
			return syscall.Bind(fd, &syscall.SockaddrInet4{Port: number, Addr: [4]byte(net.ParseIP(host).To4())})
		})
	}
	if err == nil {
		err = syscall.Listen(fd, 0)
	}
	if err != nil {
		t.Errorf("a port without answer: %v", err)
		return func() {}
	}
	var waiting []net.Conn
	for range 8 {
		c, err := net.DialTimeout("tcp", addr, 2*time.Second) // or this process gets no processor
		if err != nil {
			break
		}
		waiting = append(waiting, c)
	}
	if len(waiting) == 8 {
		t.Error("the port takes connections without end: it is no black hole")
	}
	return func() {
		for _, c := range waiting {
			c.Close()
		}
		syscall.Close(fd)
	}
}
