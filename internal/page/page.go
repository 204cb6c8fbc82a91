// Package page makes the status pages: pages without script that an operator reads in a browser. It
// also has the SQL of the table samples, from which the chart is drawn.
package page

import (
	"bytes"
	"context"
	"crypto/x509"
	"database/sql"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// Source is what the pages ask the program. All fields are required.
type Source struct {
	Reader *sql.DB // reads the database
	Tx     func(context.Context, sqlite.TxFunc) error
	Now    func() time.Time
	Events *events.Log

	Health        func(context.Context) error
	Totals        func(context.Context) (map[string]uint64, error)                                                                 // by state, and "services", "usages" and "leases"
	Configuration func(context.Context) (mesh.Configuration, error)                                                                // the zero one if none is stored
	Names         func(ctx context.Context, names []string) (reconcile.State, error)                                               // what is known of names
	Places        func(ctx context.Context, name string) ([]reconcile.StoredPlace, error)                                          // of a name
	Usage         func(ctx context.Context, id string) (mesh.Usage, error)                                                         // with a text for people if it is not there
	Usages        func(ctx context.Context, s mesh.Search, after int64, limit int) ([]mesh.Usage, error)                           // in the order of their seqs
	Amiss         func(ctx context.Context, limit int) (groups []mesh.AmissGroup, total int, more bool, err error)                 // the largest groups first
	Endpoints     func(ctx context.Context, usage int64, in msg.Language) ([]mesh.CheckedEndpoint, error)                          // of a usage with a check
	Leases        func(ctx context.Context, usage int64, slot string, limit int) ([]mesh.NodeLease, error)                         // behind a slot of a usage
	Held          func(ctx context.Context, limit int) (first []mesh.NodeLease, all int, err error)                                // leases that are held
	Secondaries   func(ctx context.Context, limit int, in msg.Language, tell func(id, address string, z mesh.SecondaryZone)) error // by secondary, the longest behind first
	Leftovers     func(ctx context.Context, after int64, limit int) ([]reconcile.StoredPlace, error)                               // those behind an id
	Zones         func(ctx context.Context, limit int) ([]mesh.ServiceZone, error)                                                 // of services, in the order of their names
	Targets       func(ctx context.Context, tell func(id, kind, state, since string, next time.Time, f mesh.Fault)) error          // of notifications, those that are not well
	Zone          func(account int64, domain string) (state reconcile.ZoneState, known bool)                                       // how a zone was met last
	DownZones     func() []reconcile.ZoneState                                                                                     // sorted
	WritesLeft    func() map[string]uint64                                                                                         // of nodes and checks, by provider
	Addresses     func() reconcile.Addresses                                                                                       // of this host
	Hidden        func(context.Context) (bool, error)                                                                              // there is a built-in zone, and no resolver finds it
	Certificate   func() (leaf *x509.Certificate, soon bool)                                                                       // of the listeners with TLS, and whether it ends soon
	Faults        func() int64                                                                                                     // for which the provisioning file is not applied
	Refuse        func(w http.ResponseWriter, r *http.Request, err error)                                                          // answers where there is no page
	Fault         func(r *http.Request, err error) *web.Failure                                                                    // logs a fault, and returns it without paths

	Program, SQLite string // versions
	Schema          int
}

// Page serves the status pages. It has no state.
type Page struct{ Source }

// New returns the pages of a source.
func New(s Source) *Page { return &Page{s} }

const (
	// maxPage bounds a page in octets.
	maxPage = 40_000
	// maxQuery bounds the text of a search in octets. The longest name is shorter.
	maxQuery = 300
	// maxAddress bounds a path and its query in octets, because links repeat them.
	maxAddress = 2000
	// pageRows bounds the rows of a list that has further pages.
	pageRows = 50
	// minRefresh and maxRefresh bound the seconds until a browser asks again.
	minRefresh, maxRefresh = 5, 3600
)

// pages has the routes of the pages, and the function that fills each.
var pages = []struct {
	route string
	fill  func(*view, context.Context) error
}{
	{"/{$}", (*view).front}, {"/names", (*view).names}, {"/names/{id}", (*view).name},
	{"/nodes", (*view).nodes}, {"/zones", (*view).zones}, {"/events", (*view).events},
}

// Routes registers the pages.
func (p *Page) Routes(handle func(route string, handler http.Handler)) {
	for _, page := range pages {
		handle("GET "+page.route, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.serve(w, r, page.fill) }))
	}
}

// serve answers a request that accepts text/html with a page, and refuses any other as one for an
// unknown path.
func (p *Page) serve(w http.ResponseWriter, r *http.Request, fill func(*view, context.Context) error) {
	if !web.Accepts(r, "text/html") {
		p.Refuse(w, r, web.Fail(msg.NotFound, msg.Phrase{ID: msg.FoundBeside}))
		return
	}
	v := p.newView(r)
	content, err := web.Attempt(func(r *http.Request) ([]byte, error) { return v.content(r, fill) }, r)
	if err != nil {
		p.fail(w, v, p.Fault(r, err))
		return
	}
	v.send(w, http.StatusOK, content)
}

// Missing answers a browser with a page that tells of an unknown path. It reports whether it has answered.
func (p *Page) Missing(w http.ResponseWriter, r *http.Request, f *web.Failure) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead || !web.Accepts(r, "text/html") || strings.HasPrefix(r.URL.Path, "/api/") {
		return false
	}
	p.fail(w, p.newView(r), f)
	return true
}

func (p *Page) fail(w http.ResponseWriter, v *view, f *web.Failure) {
	w.Header().Set("X-Error-Code", string(f.ID))
	v.Title, v.Sections = "", nil
	v.Level, v.Verdict = "bad", msg.Phrase{ID: f.ID, Args: f.Args}.In(v.in)
	v.send(w, f.Status, v.render())
}

// newView begins the page for a request.
func (p *Page) newView(r *http.Request) *view {
	v := &view{Page: p, id: r.PathValue("id"), down: p.DownZones(), left: p.WritesLeft()}
	v.in, v.now, v.query = web.Language(r), p.Now(), url.Values{}
	if path := strings.TrimPrefix(r.URL.EscapedPath(), "/"); len(path) <= maxAddress {
		v.path = path
	}
	return v
}

// content returns the page for a request.
func (v *view) content(r *http.Request, fill func(*view, context.Context) error) (content []byte, err error) {
	if len(r.URL.EscapedPath())+len(r.URL.RawQuery) > maxAddress {
		return nil, web.Fail(msg.ParameterError, msg.Phrase{ID: msg.QuerySyntax})
	}
	if v.query, err = web.ParseQuery(r); err != nil {
		return nil, err
	}
	if every := v.query.Get("every"); every != "" {
		n, err := strconv.Atoi(every)
		if err != nil || n < minRefresh || n > maxRefresh || strconv.Itoa(n) != every {
			return nil, web.Fail(msg.QueryInvalid, "every", strconv.Itoa(minRefresh)+".."+strconv.Itoa(maxRefresh))
		}
		v.every = every
	}
	asked := v.query.Get("q")
	v.Query = strings.TrimSpace(msg.Printable(asked[:min(len(asked), maxQuery)]))
	if err := v.Health(r.Context()); err != nil {
		return nil, err
	}
	if err := fill(v, r.Context()); err != nil {
		return nil, err
	}
	return v.fitted(), nil
}

// send writes a page.
func (v *sheet) send(w http.ResponseWriter, status int, content []byte) {
	h := w.Header()
	web.Private(h, "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(content)))
	h.Set("Content-Security-Policy", policy)
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Vary", "Accept, Accept-Language")
	if v.every != "" {
		h.Set("Refresh", v.every)
	}
	w.WriteHeader(status)
	w.Write(content)
}

// render fills the template. It panics if the template does not fit its data, which is a mistake of
// this program.
func (v *sheet) render() []byte {
	var out bytes.Buffer
	if err := layout().Execute(&out, v); err != nil {
		panic(errors.Join(errors.New("the template of the status page"), err))
	}
	return out.Bytes()
}

// fitted renders a view. It halves the lists until the page is small enough.
func (v *sheet) fitted() []byte {
	for halvings := 0; ; halvings++ {
		v.cut(halvings)
		content := v.render()
		if len(content) < maxPage || halvings == maxHalvings {
			return content
		}
	}
}
