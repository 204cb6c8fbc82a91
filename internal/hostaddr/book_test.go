package hostaddr

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/mesh"
	"meshddns/test/support"
)

// Every wait is bounded.
const bookPatience = time.Minute

// teller answers with an address, as the services on the web do; "" is a fault.
type teller struct {
	mu   sync.Mutex
	text string
}

func (s *teller) say(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text = text
}

func (s *teller) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.text == "" {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	w.Write([]byte(s.text))
}

// shelf is where a book is saved.
type shelf struct {
	mu    sync.Mutex
	saved []mesh.Addresses
	fail  error
}

func (s *shelf) save(_ context.Context, a mesh.Addresses) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		return s.fail
	}
	s.saved = append(s.saved, a)
	return nil
}

func (s *shelf) all() []mesh.Addresses {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.saved)
}

// bookWorld is a book with all around it.
type bookWorld struct {
	*Book
	service teller
	shelf   shelf
	log     support.Log
}

// logged counts how often a text is in the log.
func (w *bookWorld) logged(text string) int { return strings.Count(w.log.String(), text) }

// newBook makes a book whose IPv4 address a service tells, and whose IPv6 source
// is given.
func newBook(t *testing.T, ipv6 string, last mesh.Addresses) *bookWorld {
	t.Helper()
	w := &bookWorld{}
	server := httptest.NewServer(&w.service)
	t.Cleanup(server.Close)
	var sources [2]Source
	for i, text := range []string{"url:" + server.URL, ipv6} {
		var err error
		if sources[i], err = ParseSource([]Family{IPv4, IPv6}[i], text); err != nil {
			t.Fatal(err)
		}
	}
	w.Book = NewBook(Sources{IPv4: sources[0], IPv6: sources[1]}, last, slog.New(slog.NewTextHandler(&w.log, nil)))
	return w
}

func addresses(ipv4, ipv6 string) (a mesh.Addresses) {
	if ipv4 != "" {
		a.IPv4 = netip.MustParseAddr(ipv4)
	}
	if ipv6 != "" {
		a.IPv6 = netip.MustParseAddr(ipv6)
	}
	return a
}

// look looks at all sources and saves what is new, as Watch does.
func (w *bookWorld) look(ctx context.Context) {
	w.Book.look(ctx, w.entries)
	w.keepSaved(ctx, w.shelf.save)
}

// equal compares lists of addresses.
func equal(a, b []mesh.Addresses) bool { return slices.EqualFunc(a, b, mesh.Addresses.Equal) }

// check compares what the book knows.
func (w *bookWorld) check(t *testing.T, wantLast, wantNow mesh.Addresses) {
	t.Helper()
	if last, now := w.Known(); !last.Equal(wantLast) || !now.Equal(wantNow) {
		t.Errorf("known: last %v, now %v; want %v, %v", last, now, wantLast, wantNow)
	}
}

const (
	home  = "192.31.195.7"
	away  = "192.31.195.8"
	home6 = "2620:4f:8000::7"
)

// A service that is down, or says nothing, takes no address away; a new address
// takes the place of the last.
func TestBookKeepsTheLastKnown(t *testing.T) {
	w := newBook(t, home6, mesh.Addresses{})
	w.check(t, addresses("", ""), addresses("", ""))
	for _, step := range []struct{ says, last, now string }{
		{"", "", ""}, {home, home, home}, {"", home, ""}, {"no address", home, ""}, {"10.0.0.1x", home, ""}, {away, away, away}, {"", away, ""},
	} {
		w.service.say(step.says)
		w.look(t.Context())
		w.check(t, addresses(step.last, home6), addresses(step.now, home6))
	}
	if want := []mesh.Addresses{addresses("", home6), addresses(home, home6), addresses(away, home6)}; !equal(w.shelf.all(), want) {
		t.Errorf("saved %v, want %v", w.shelf.all(), want)
	}
}

// What an earlier run knew is known at once, also while nothing is found. It is
// not saved again.
func TestBookBeginsWithTheLast(t *testing.T) {
	w := newBook(t, "auto", addresses(home, home6))
	w.check(t, addresses(home, home6), addresses("", ""))
	if got := w.All(); !slices.Equal(got, []netip.Addr{netip.MustParseAddr(home), netip.MustParseAddr(home6)}) {
		t.Errorf("All = %v", got)
	}
	w.look(t.Context())
	if last, _ := w.Known(); last.IPv4.String() != home || !last.IPv6.IsValid() {
		t.Errorf("last %v", last)
	}
}

// With the source none the book drops the last known address.
func TestBookForgetsWithNone(t *testing.T) {
	w := newBook(t, "none", addresses(home, home6))
	w.check(t, addresses(home, ""), addresses("", ""))
	w.service.say(home)
	w.look(t.Context())
	w.check(t, addresses(home, ""), addresses(home, ""))
	if len(w.All()) != 1 {
		t.Errorf("All = %v", w.All())
	}
}

// The forgotten address is not what the next run begins with.
func TestBookSavesWhatIsForgotten(t *testing.T) {
	w := newBook(t, "none", addresses(home, home6))
	w.service.say(home)
	w.look(t.Context())
	if want := []mesh.Addresses{addresses(home, "")}; !equal(w.shelf.all(), want) {
		t.Errorf("saved %v, want %v", w.shelf.all(), want)
	}
}

// Each change is saved once, and again only when that has failed.
func TestBookSavesOnce(t *testing.T) {
	w := newBook(t, "none", mesh.Addresses{})
	w.service.say(home)
	w.shelf.fail = errors.New("disk full")
	for range 3 {
		w.look(t.Context())
	}
	if w.logged("disk full") == 0 {
		t.Error("the fault is not logged")
	}
	w.shelf.fail = nil
	for range 3 {
		w.look(t.Context())
		w.check(t, addresses(home, ""), addresses(home, ""))
	}
	if len(w.shelf.all()) != 1 {
		t.Errorf("saved %v", w.shelf.all())
	}
}

// The address that is known now is published, though it could not be saved.
func TestBookKnowsWhatItCouldNotSave(t *testing.T) {
	w := newBook(t, "none", addresses(away, ""))
	w.service.say(home)
	w.shelf.fail = errors.New("disk full")
	w.look(t.Context())
	w.check(t, addresses(home, ""), addresses(home, ""))
}

// A fault is logged when it begins and when it becomes another one, not at each
// look.
func TestBookLogsChanges(t *testing.T) {
	w := newBook(t, "none", mesh.Addresses{})
	looks := func(says string, warnings int) {
		t.Helper()
		w.service.say(says)
		for range 3 {
			w.look(t.Context())
		}
		if got := w.logged("level=WARN"); got != warnings {
			t.Errorf("after %q: %d warnings, want %d: %s", says, got, warnings, w.log.String())
		}
	}
	looks("", 1)
	looks("nonsense", 2)
	looks(home, 2)
	looks("", 3)
	if got := w.logged("public addresses"); got != 1 {
		t.Errorf("%d times an address is logged", got)
	}
}

// A look that is cut off by the end changes nothing.
func TestBookAtTheEnd(t *testing.T) {
	w := newBook(t, "none", mesh.Addresses{})
	w.service.say(home)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.look(ctx)
	w.check(t, mesh.Addresses{}, mesh.Addresses{})
	if w.logged("level=WARN") != 0 || len(w.shelf.all()) != 0 {
		t.Errorf("%v %s", w.shelf.all(), w.log.String())
	}
}

// Ready is closed after the first look, by when its outcome is saved, and Watch
// ends with its context.
func TestBookIsReady(t *testing.T) {
	for says, saved := range map[string]int{"": 0, home: 1} {
		w := newBook(t, "none", mesh.Addresses{})
		w.service.say(says)
		select {
		case <-w.Ready():
			t.Fatal("ready before the first look")
		default:
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Watch(ctx, time.Hour, w.shelf.save) }()
		select {
		case <-w.Ready():
		case <-time.After(bookPatience):
			t.Fatal("never ready")
		}
		if len(w.shelf.all()) != saved {
			t.Errorf("saved %v when ready", w.shelf.all())
		}
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Error(err)
			}
		case <-time.After(bookPatience):
			t.Fatal("Watch does not end")
		}
	}
}

// The book looks again at every interval, and when changes are reported, however many, with
// a pause between looks.
func TestBookPauses(t *testing.T) {
	const minute = 60
	for name, c := range map[string]struct {
		ipv4     string
		interval time.Duration
		reports  bool
		looks    int64 // of a minute
	}{
		"changes":            {home, time.Hour, true, minute},
		"changes, asked":     {"url:", time.Hour, true, minute / 10},
		"no changes":         {home, 20 * time.Second, false, 3},
		"short interval":     {home, time.Millisecond, false, minute},
		"no changes, asked":  {"url:", 20 * time.Second, false, 3},
		"nothing to look at": {home, time.Hour, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var asked atomic.Int64
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { asked.Add(1); w.Write([]byte(home)) }))
			defer server.Close()
			if c.ipv4 == "url:" {
				c.ipv4 += server.URL
			}
			var looks int64
			synctest.Test(t, func(t *testing.T) {
				ipv4, err := ParseSource(IPv4, c.ipv4)
				if err != nil {
					t.Fatal(err)
				}
				save := func(context.Context, mesh.Addresses) error {
					looks++
					return errors.New("injected, so that each look is seen")
				}
				b := NewBook(Sources{IPv4: ipv4}, mesh.Addresses{}, slog.New(slog.DiscardHandler))
				l := b.loop(lookPause)
				if l.entries = b.entries; ipv4.asks() {
					l.pause = askPause
				}
				ctx, cancel := context.WithTimeout(t.Context(), minute*time.Second+lookPause/2)
				defer cancel()
				if c.reports { // without an end
					l.reported = make(chan struct{})
					close(l.reported)
				}
				looked := make(chan struct{}, 1)
				go l.keep(ctx, c.interval, looked)
				if err := b.keep(ctx, save, looked, nil); err != nil {
					t.Error(err)
				}
			})
			if looks != c.looks {
				t.Errorf("%d looks in a minute, want %d", looks, c.looks)
			}
			if strings.HasPrefix(c.ipv4, "url:") && asked.Load() != looks {
				t.Errorf("asked %d times in %d looks", asked.Load(), looks)
			}
		})
	}
}
