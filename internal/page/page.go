// Package page makes the status page: a page without script that an operator reads in a browser. It
// also has the SQL of the table samples, from which the chart is drawn.
package page

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// Source is what a page asks the program. All fields are required.
type Source struct {
	Reader *sql.DB // reads the database
	Tx     func(context.Context, sqlite.TxFunc) error
	Now    func() time.Time
	Events *events.Log

	Health        func(context.Context) error
	Totals        func(context.Context) (map[string]uint64, error)                                   // by state, and "services" and "usages"
	Configuration func(context.Context) (mesh.Configuration, error)                                  // the zero one if none is stored
	Names         func(ctx context.Context, names []string) (reconcile.State, error)                 // what is known of names
	InState       func(context.Context, reconcile.PlaceState, int) ([]mesh.Usage, error)             // usages in a state, the first ones
	Named         func(ctx context.Context, name string, limit int) ([]mesh.Usage, error)            // usages of a full name
	OfNetwork     func(context.Context, mesh.NetworkID, int) ([]mesh.Usage, error)                   // usages of a network, the first ones
	Leftovers     func(ctx context.Context, after int64, limit int) ([]reconcile.StoredPlace, error) // those behind an id
	Zones         func(ctx context.Context, limit int) ([]mesh.ServiceZone, error)                   // of services, in the order of their names
	Prefixed      func(ctx context.Context, prefix string, limit int) ([]string, error)              // names with a prefix that are reserved
	Stopped       func(context.Context) (uint64, error)                                              // of notifications
	Zone          func(account int64, domain string) (state reconcile.ZoneState, known bool)         // how a zone was met last
	DownZones     func() []reconcile.ZoneState                                                       // sorted
	Addresses     func() reconcile.Addresses                                                         // of this host
	Faults        func() int64                                                                       // for which the provision file is not applied
	Refuse        func(w http.ResponseWriter, r *http.Request, err error)                            // answers where there is no page
	Fault         func(r *http.Request, err error) *web.Failure                                      // logs a fault, and returns it without paths

	Program, SQLite string // versions
	Schema          int
}

// Page serves the status page. It has no state.
type Page struct{ Source }

// New returns the page of a source.
func New(s Source) *Page { return &Page{s} }

const (
	// maxPage bounds a page in octets.
	maxPage = 30_000
	// maxQuery bounds the text of a search in octets. The longest name is shorter.
	maxQuery = 300
)

// ServeHTTP answers a request that accepts text/html with the page, and refuses any other as one for
// an unknown path.
func (p *Page) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !web.Accepts(r, "text/html") {
		p.Refuse(w, r, web.Fail(msg.NotFound, msg.Phrase{ID: msg.FoundBeside}))
		return
	}
	language := web.Language(r)
	content, err := p.content(r, language)
	if err == nil {
		send(w, http.StatusOK, content)
		return
	}
	f := p.Fault(r, err)
	w.Header().Set("X-Error-Code", string(f.ID))
	text := msg.Phrase{ID: f.ID, Args: f.Args}.In(language)
	send(w, f.Status, render(view{in: language, Fault: text, Now: clock(p.Now())}))
}

// content returns the page for a request: an overview, or what a search found.
func (p *Page) content(r *http.Request, language msg.Language) (content []byte, err error) {
	defer daemon.Catch(&err)
	query, err := web.ParseQuery(r)
	if err != nil {
		return nil, err
	}
	asked := query.Get("q")
	v := view{in: language, Now: clock(p.Now()), Query: msg.Printable(asked[:min(len(asked), maxQuery)])}
	if v.Query = strings.TrimSpace(v.Query); v.Query != "" {
		v.Found, err = p.search(r.Context(), v.Query, language)
	} else {
		v.Overview, err = p.overview(r.Context(), language)
	}
	if err != nil {
		return nil, err
	}
	return fitted(v), nil
}

// send writes a page.
func send(w http.ResponseWriter, status int, content []byte) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(content)))
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cache-Control", "no-store")
	h.Set("Vary", "Accept, Accept-Language")
	w.WriteHeader(status)
	w.Write(content)
}

// render fills the template. It panics if the template does not fit its data, which is a mistake of
// this program.
func render(v view) []byte {
	var out bytes.Buffer
	if err := layout().Execute(&out, v); err != nil {
		panic(errors.Join(errors.New("the template of the status page"), err))
	}
	return out.Bytes()
}

// fitted renders a view. It halves the lists until the page is small enough.
func fitted(v view) []byte {
	for halvings := 0; ; halvings++ {
		content := render(v.cut(halvings))
		if len(content) < maxPage || halvings == maxHalvings {
			return content
		}
	}
}
