package standby

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"meshddns/test/support"
)

const (
	token      = "the-token-of-the-writers-in-this-world-41"
	usagesPath = "/api/v1/ddns/usages"

	patience = 3 * time.Second // for an answer, before a writer goes on with another key; for a durable one three times that
	fewKeys  = 6               // of a writer
)

// reply is an answer of the API.
type reply struct {
	status     int
	code, body string
	date       time.Time // zero without one
}

// given gives the end of the second in which an answer was given, 0 if its machine's clock is set to another hour.
func (r reply) given() time.Duration {
	ago := time.Since(r.date) - time.Second
	if ago.Abs() > 30*time.Minute {
		return 0
	}
	return boottime() - ago
}

// session is one connection to a program, which has one term.
type session struct {
	conn net.Conn
	in   *bufio.Reader
	term uint64
}

func newSession(conn net.Conn) *session { return &session{conn: conn, in: bufio.NewReader(conn)} }

var termText = regexp.MustCompile(`"term": ?(\d+)`)

// dial connects to a machine that is the writer.
func dial(m *machine) (*session, error) {
	conn, err := net.DialTimeout("tcp", m.host+":8053", time.Second)
	if err != nil {
		return nil, err
	}
	s := newSession(conn)
	conn.SetDeadline(time.Now().Add(patience))
	r, err := s.ask("GET", "/healthz", "")
	if found := termText.FindStringSubmatch(r.body); err == nil && r.status == 200 && found != nil {
		s.term, err = strconv.ParseUint(found[1], 10, 64)
		conn.SetDeadline(time.Time{})
		return s, err
	}
	conn.Close()
	return nil, fmt.Errorf("%s is no writer: %d %s %v", m.name, r.status, r.body, err)
}

// ask makes a request.
func (s *session) ask(method, path, body string) (reply, error) {
	request, err := http.NewRequest(method, "http://"+s.conn.RemoteAddr().String()+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Accept-Language", "en")
	if err := request.Write(s.conn); err != nil {
		return reply{}, err
	}
	response, err := http.ReadResponse(s.in, request)
	if err != nil {
		return reply{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	date, _ := http.ParseTime(response.Header.Get("Date"))
	return reply{response.StatusCode, response.Header.Get("X-Error-Code"), string(text), date}, err
}

// outcome says what an answer means for a change.
func (r reply) outcome() outcome {
	switch {
	case r.status/100 == 2:
		return kept
	case r.status/100 == 4, r.status == 503 && r.code == "standby":
		return refused
	}
	return unknown
}

// writers change usages on the machine that writes, and note each answer.
type writers struct {
	w       *world
	running sync.WaitGroup
	end     chan struct{}

	mu      sync.Mutex
	pending map[*session]bool // which still wait for an answer
	serial  int
	odd     map[string]int // answers that say neither yes nor standby, by their code
}

func (w *world) newWriters() *writers {
	return &writers{w: w, end: make(chan struct{}), pending: map[*session]bool{}, odd: map[string]int{}}
}

// writer is one that has keys of its own.
type writer struct {
	all     *writers
	name    string
	service string
	random  *rand.Rand
	durable int // in a hundred
	at      *machine
	session *session
	keys    map[string]string // the ids of usages by their keys
	made    int
}

// begin starts a writer, until it has made some changes (0: no limit) or the writers end.
func (all *writers) begin(name, service string, seed uint64, durable, changes int, pause time.Duration, at *machine) {
	x := &writer{all: all, name: name, service: service, random: rand.New(rand.NewPCG(seed, 1)), durable: durable, at: at, keys: map[string]string{}}
	all.running.Go(func() {
		for n := 0; changes == 0 || n < changes; n++ {
			if !x.step() && changes > 0 {
				return
			}
			select {
			case <-all.end:
				return
			case <-time.After(pause):
			}
		}
	})
}

// step makes one change, if a machine is the writer.
func (x *writer) step() bool {
	if x.session == nil {
		var err error
		if x.session, err = dial(x.at); err != nil {
			x.at = x.all.w.other(x.at)
			return false
		}
	}
	o := operation{machine: x.at.name, term: x.session.term, durable: x.random.IntN(100) < x.durable}
	method, path, body := x.change(&o)
	if o.durable {
		path += "?durable=1"
	}
	r, answered := x.send(o, method, path, body)
	if !answered {
		return false
	}
	o = r.operation
	id := regexp.MustCompile(`"id": ?"([^"]+)"`).FindStringSubmatch(r.body)
	switch {
	case method == "POST" && o.outcome == kept && id != nil:
		x.keys[o.key] = id[1]
	case method == "POST", o.outcome == refused && r.status != 503, o.value == 0 && o.outcome != refused:
		delete(x.keys, o.key)
	}
	if o.outcome != kept {
		x.hangUp()
	}
	return o.outcome == kept
}

// change chooses what to do next.
func (x *writer) change(o *operation) (method, path, body string) {
	o.value = x.all.next()
	endpoints := fmt.Sprintf(`"txt_endpoints":["udp://203.0.113.7:%d"]`, o.value)
	if len(x.keys) < fewKeys && x.random.IntN(3) == 0 || len(x.keys) == 0 {
		x.made++
		o.key = fmt.Sprintf("%s-%d", x.name, x.made)
		return "POST", usagesPath, fmt.Sprintf(`{"service_id":%q,"prefix_mode":"custom","custom_prefix":%q,"network_id":7,%s}`, x.service, o.key, endpoints)
	}
	for o.key = range x.keys {
		break
	}
	if x.random.IntN(6) == 0 {
		o.value = 0
		return "DELETE", usagesPath + "/" + x.keys[o.key], ""
	}
	return "PATCH", usagesPath + "/" + x.keys[o.key], "{" + endpoints + "}"
}

// next gives a value that no other change has, which is a port too.
func (all *writers) next() int {
	all.mu.Lock()
	defer all.mu.Unlock()
	all.serial++
	return all.serial
}

// answered is an operation with the answer to it.
type answered struct {
	operation
	reply
}

// send makes a request and notes what came of it. When the answer takes too long, the writer goes on with other keys and
// another connection, and the answer is noted when it comes.
func (x *writer) send(o operation, method, path, body string) (answered, bool) {
	s, all := x.session, x.all
	all.mu.Lock()
	all.pending[s] = true
	all.mu.Unlock()
	done := make(chan answered, 1)
	o.sent = boottime()
	all.running.Go(func() {
		r, err := s.ask(method, path, body)
		if err == nil {
			o.answered, o.given, o.outcome = boottime(), r.given(), r.outcome()
		}
		all.w.diary.operation(o)
		all.mu.Lock()
		delete(all.pending, s)
		if o.outcome == unknown || r.status == 500 {
			all.odd[fmt.Sprint(r.status, " ", r.code)]++
		}
		all.mu.Unlock()
		done <- answered{o, r}
	})
	limit := patience
	if o.durable {
		limit *= 3
	}
	select {
	case a := <-done:
		return a, true
	case <-time.After(limit):
		delete(x.keys, o.key)
		x.session = nil
		x.at = all.w.other(x.at)
		return answered{}, false
	}
}

func (x *writer) hangUp() {
	if x.session != nil {
		x.session.conn.Close()
	}
	x.session = nil
}

// stop ends the writers, and takes what is not answered now as unknown.
func (all *writers) stop() {
	close(all.end)
	deadline := time.Now().Add(patience)
	for {
		all.mu.Lock()
		left := len(all.pending)
		late := time.Now().After(deadline)
		for s := range all.pending {
			if late {
				s.conn.Close()
			}
		}
		all.mu.Unlock()
		if left == 0 {
			break
		}
		<-time.After(50 * time.Millisecond)
	}
	all.running.Wait()
}

// foreign is a value of others in the zone of the provider.
type foreign struct{ name, value string }

var foreignValues = []foreign{
	{"_mesh.others.far.example.com", "v=mesh1 n=9 o=ffffffffffff udp://198.51.100.1:9"},
	{"_mesh.w0-1.far.example.com", "a text of others"},
	{"plain.far.example.com", "not ours"},
}

// usage is what the API tells of one.
type usage struct {
	ID        string   `json:"id"`
	Prefix    string   `json:"record_prefix"`
	Name      string   `json:"full_domain"`
	Service   string   `json:"provider_id"`
	Endpoints []string `json:"txt_endpoints"`
	Publish   struct{ State, Value, Error string }
}

// look compares the database of the writer with DNS. The error says what is still to be published.
func (w *world) look(m *machine) (e end, err error) {
	s, err := dial(m)
	if err != nil {
		return e, err
	}
	defer s.conn.Close()
	r, err := s.ask("GET", usagesPath+"/available", "")
	var list struct{ Data []usage }
	if err != nil || r.status != 200 || json.Unmarshal([]byte(r.body), &list) != nil {
		return e, fmt.Errorf("GET usages: %d %s %w", r.status, r.body, err)
	}
	e = end{values: map[string]int{}, wanted: map[string]string{}, standing: map[string]string{}}
	for _, u := range list.Data {
		if u.Publish.State == "withdrawing" && u.Publish.Value == "" { // deleted: the prefix is free after a second look
			if os.Getenv(support.Long) != "" {
				err = fmt.Errorf("%s is still being deleted", u.Name)
			}
			continue
		}
		one := struct{ Data *usage }{&u} // the list does not have its endpoints
		if r, err := s.ask("GET", usagesPath+"/"+u.ID, ""); err != nil || json.Unmarshal([]byte(r.body), &one) != nil {
			return e, fmt.Errorf("GET a usage: %d %s %w", r.status, r.body, err)
		}
		_, port, _ := strings.Cut(strings.Join(u.Endpoints, " "), "203.0.113.7:")
		e.values[u.Prefix], _ = strconv.Atoi(port)
		e.wanted[map[string]string{"far": "provider ", "near": "secondary "}[u.Service]+u.Name] = u.Publish.Value
		if u.Publish.State != "published" || !strings.HasSuffix(u.Publish.Value, "203.0.113.7:"+port) {
			err = fmt.Errorf("%s has %q, and is %s with %q: %s", u.Name, port, u.Publish.State, u.Publish.Value, u.Publish.Error)
		}
	}
	ours := w.records("provider ", w.knot.Addr, "example.com", e.standing)
	if w.records("secondary ", secondaryHost+":53", nearDomain, e.standing) == "" {
		err = errors.New("the secondary does not have the zone")
	}
	for _, f := range foreignValues {
		if !strings.Contains(ours, f.name+". ") || !strings.Contains(ours, `"`+f.value+`"`) {
			e.foreign = append(e.foreign, f.name+" is lost")
		}
	}
	return e, err
}

// records transfers a zone, and puts the values of our kind of mesh into a map by their place.
func (w *world) records(place, address, zone string, into map[string]string) (text string) {
	text = transfer(address, zone)
	for _, line := range lines(text) {
		f := strings.Fields(line)
		if len(f) < 5 || f[3] != "TXT" || !strings.HasPrefix(f[0], "_mesh.") || !strings.HasPrefix(f[4], `"v=mesh1`) || strings.HasPrefix(f[0], "_mesh.others.") {
			continue
		}
		at := place + strings.TrimSuffix(f[0], ".")
		value := strings.ReplaceAll(strings.Join(f[4:], " "), `"`, "")
		if before, there := into[at]; there {
			value = before + " AND " + value
		}
		into[at] = value
	}
	return text
}
