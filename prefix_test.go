package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/hostaddr"
	"meshddns/internal/lease"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
	"meshddns/test/api"
	"meshddns/test/support"
)

func TestPrefixFault(t *testing.T) {
	for prefix, want := range map[string]msg.ID{
		"":                                  msg.PrefixEmpty,
		"a":                                 "",
		"A":                                 "",
		"0":                                 "",
		"-":                                 "",
		"_":                                 "",
		"office":                            "",
		"Office_1-b":                        "",
		"mesh":                              "",
		"_mes":                              "",
		"-_mesh":                            "",
		"__mesh":                            "",
		strings.Repeat("x", dns.MaxLabel):   "",
		strings.Repeat("x", dns.MaxLabel+1): msg.PrefixTooLong,
		strings.Repeat(".", dns.MaxLabel+1): msg.PrefixTooLong,
		strings.Repeat("办", dns.MaxLabel):   msg.PrefixCharacters,
		strings.Repeat("办", dns.MaxLabel+1): msg.PrefixTooLong,
		"_mesh" + strings.Repeat("x", 59):   msg.PrefixTooLong,
		" ":                                 msg.PrefixCharacters,
		"a b":                               msg.PrefixCharacters,
		"a.b":                               msg.PrefixCharacters,
		"a\n":                               msg.PrefixCharacters,
		"\x00":                              msg.PrefixCharacters,
		"é":                                 msg.PrefixCharacters,
		"\u212a":                            msg.PrefixCharacters,
		"\xff":                              msg.PrefixCharacters,
		"*":                                 msg.PrefixCharacters,
		"a=":                                msg.PrefixCharacters,
		"_mesh.":                            msg.PrefixCharacters,
		"_mesh":                             msg.PrefixReserved,
		"_mesh-NDI":                         msg.PrefixReserved,
		"_meshed":                           msg.PrefixReserved,
		"_MESH":                             msg.PrefixReserved,
		"_Mesh-":                            msg.PrefixReserved,
	} {
		if got := mesh.PrefixFault(prefix); got != want {
			t.Errorf("mesh.PrefixFault(%q) = %q, want %q", prefix, got, want)
		}
	}
}

// A change that is committed is not answered as a failure, whatever fails while the answer waits.
func TestCommittedWhileReadsFail(t *testing.T) {
	t.Parallel()
	for _, request := range []struct{ method, path, body, want string }{
		{"POST", "", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"new","network_id":8}`, `"publish":{"state":"pending"`},
		{"PATCH", "/<id>", `{"description":"other"}`, `"publish":{"state":"pending"`},
		{"DELETE", "/<id>", "", `"status":"releasing"`},
	} {
		t.Run(request.method, func(t *testing.T) {
			log := slog.New(slog.DiscardHandler)
			addresses := book(t, "203.0.113.7", log)
			s, err := openStoreKnowing(t.Context(), filepath.Join(t.TempDir(), "meshddns.db"), knownAddresses(addresses, never), log)
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			c := clients{ledger: s.ledger, zones: s.zones, dnsAddress: "127.0.0.1:53", hidden: never}
			engine := newEngine(s, testEngine(s, c, addresses, time.Hour, log))
			stop := serveAll(t, engine.Run, func(ctx context.Context) error { return addresses.Watch(ctx, time.Hour, s.SaveAddresses) })
			routes := newServer(operations{store: s, clients: c, engine: engine}, "", log).routes()
			call := func(method, path, body string) string {
				w := httptest.NewRecorder()
				routes.ServeHTTP(w, httptest.NewRequest(method, "/api/v1/ddns/"+path, strings.NewReader(body)))
				return w.Body.String()
			}
			call("PUT", "config", `{"provider":"builtin","access_key_id":"-","access_key_secret":"-","domain":"example.com","txt_record_name":"@","enabled":true,"sync_mode":"auto","txt_endpoints":["tcp://203.0.113.7:1"]}`)
			call("POST", "services", `{"id":"svc","name":"S","config":{"domain":"example.com"}}`)
			id := api.UUIDText.FindString(call("POST", "usages?wait=10", `{"service_id":"svc","prefix_mode":"custom","custom_prefix":"old","network_id":7}`))
			stop()
			s.db.Subscribe(func(sqlite.Notice) { s.db.Reader.Close() })
			answer := call(request.method, "usages"+strings.Replace(request.path, "<id>", id, 1)+"?wait=1", request.body)
			if !strings.Contains(answer, request.want) {
				t.Errorf("%s, want %s", answer, request.want)
			}
		})
	}
}

// What is accepted satisfies the rules, written down a second time.
func FuzzPrefix(f *testing.F) {
	for _, seed := range []string{"", "office", "_mesh", "_MESH-x", strings.Repeat("x", 64), "a.b", "办公室", "\xff"} {
		f.Add(seed)
	}
	good := regexp.MustCompile(`^[a-zA-Z0-9_-]{1,63}$`)
	reserved := regexp.MustCompile(`^(?i:_mesh)`)
	f.Fuzz(func(t *testing.T, prefix string) {
		if got, want := mesh.PrefixFault(prefix) == "", good.MatchString(prefix) && !reserved.MatchString(prefix); got != want {
			t.Errorf("mesh.PrefixFault(%q) accepts: %v, want %v", prefix, got, want)
		}
		if mesh.PrefixFault(prefix) == "" && dns.NameFault(dns.Parse(mesh.FullName(prefix, "example.com"))) != "" {
			t.Errorf("%q is accepted and cannot be published", prefix)
		}
	})
}

func TestAutomaticPrefix(t *testing.T) {
	for network, want := range map[mesh.NetworkID]string{
		0:              "_mesh-MA",
		42:             "_mesh-NDI",
		104:            "_mesh-MTA0",
		1<<53 + 1:      "_mesh-OTAwNzE5OTI1NDc0MDk5Mw",
		1 << 63:        "_mesh-OTIyMzM3MjAzNjg1NDc3NTgwOA",
		math.MaxUint64: "_mesh-MTg0NDY3NDQwNzM3MDk1NTE2MTU",
	} {
		if got := mesh.AutomaticPrefix(network); got != want {
			t.Errorf("mesh.AutomaticPrefix(%d) = %q, want %q", network, got, want)
		}
	}
}

// No two networks have one automatic prefix, letter case aside; each fits into
// a label, and none is a custom prefix.
func TestAutomaticPrefixIsDistinct(t *testing.T) {
	owners := map[string]mesh.NetworkID{}
	try := func(n mesh.NetworkID) {
		prefix := mesh.AutomaticPrefix(n)
		folded := dns.Fold(prefix)
		if owner, ok := owners[folded]; ok && owner != n {
			t.Fatalf("%d and %d: %s", owner, n, prefix)
		}
		owners[folded] = n
		if len(prefix) > dns.MaxLabel || mesh.PrefixFault(prefix) != msg.PrefixReserved {
			t.Fatalf("mesh.AutomaticPrefix(%d) = %q", n, prefix)
		}
	}
	random := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		n := mesh.NetworkID(random.Uint64() >> random.IntN(64))
		try(n)
		try(n ^ 1<<random.IntN(64))
	}
	for n := range mesh.NetworkID(20_000) {
		try(n)
		try(math.MaxUint64 - n)
	}
}

func FuzzAutomaticPrefix(f *testing.F) {
	f.Add(uint64(0), uint64(104))
	f.Add(uint64(1), uint64(math.MaxUint64))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		p, q := mesh.AutomaticPrefix(mesh.NetworkID(a)), mesh.AutomaticPrefix(mesh.NetworkID(b))
		if a != b && strings.EqualFold(p, q) {
			t.Errorf("%d and %d: %s, %s", a, b, p, q)
		}
		digits, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(p, "_mesh-"))
		if err != nil || string(digits) != strconv.FormatUint(a, 10) {
			t.Errorf("%d: %s is %q, %v", a, p, digits, err)
		}
	})
}

// waiting is a store without a server, in a bubble of synctest.
type waiting struct {
	*store
	t     *testing.T
	ready chan struct{} // closed: the addresses are known
}

// ask makes a request with the engine of a configured program, which works from a time on.
func (w *waiting) ask(from time.Duration, method, path, body string) (answer string, took time.Duration) {
	configuration := mesh.Configuration{Provider: "builtin", Domain: "example.com", TXTRecordName: "_txt", Enabled: true, SyncMode: "auto"}
	if err := w.PutConfiguration(w.t.Context(), configuration, false); err != nil {
		w.t.Fatal(err)
	}
	book := hostaddr.NewBook(hostaddr.Sources{}, mesh.Addresses{}, noLog)
	config := testEngine(w.store, clients{ledger: w.ledger, zones: w.zones, dnsAddress: "192.0.2.1:53", hidden: never}, book, time.Hour, noLog)
	config.Ready = w.ready
	engine := newEngine(w.store, config)
	ctx, cancel := context.WithCancel(w.t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		select {
		case <-time.After(from):
			engine.Run(ctx)
		case <-ctx.Done():
		}
	})
	defer working.Wait()
	defer cancel()
	begun, recorder := time.Now(), httptest.NewRecorder()
	server := newServer(operations{store: w.store, engine: engine}, "", noLog)
	server.routes().ServeHTTP(recorder, httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body)))
	return fmt.Sprint(recorder.Code, " ", recorder.Header().Get("X-Error-Code"), recorder.Body), time.Since(begun)
}

// TestWaits has each request that waits wait as long as the pages say: first nothing works for it, then the engine
// begins shortly before that time ends.
func TestWaits(t *testing.T) {
	t.Parallel()
	const usages = "/api/v1/ddns/usages"
	synctest.Test(t, func(t *testing.T) {
		w := &waiting{store: filledStore(t), t: t, ready: make(chan struct{})}
		close(w.ready)
		reserve := func(prefix string) string {
			return fmt.Sprintf(`{"service_id":"svc","prefix_mode":"custom","custom_prefix":%q,"network_id":1}`, prefix)
		}
		answer, _ := w.ask(0, "POST", usages+"?wait=30", reserve("old"))
		_, id, _ := strings.Cut(answer, `"id":"`)
		old := usages + "/" + id[:36]
		for _, test := range []struct {
			method, path string
			body         string
			limit        time.Duration
			late, done   string
		}{
			{"POST", usages + "?wait=1", reserve("%d-1"), time.Second, "pending", "published"},
			{"POST", usages + "?wait=30", reserve("%d-30"), 30 * time.Second, "pending", "published"},
			{"POST", "/api/v1/ddns/sync", "", time.Minute, "sync_unfinished", "200"},
			{"DELETE", old, "", 30 * time.Second, "202", "200"},
			{"DELETE", "/api/v1/ddns/config", "", 30 * time.Second, "202", "200"},
		} {
			if answer, took := w.ask(time.Hour, test.method, test.path, strings.Replace(test.body, "%d", "late", 1)); took != test.limit || !strings.Contains(answer, test.late) {
				t.Errorf("%s %s: after %v %s, want %s after %v", test.method, test.path, took, answer, test.late, test.limit)
			}
			if answer, took := w.ask(test.limit-100*time.Millisecond, test.method, test.path, strings.Replace(test.body, "%d", "done", 1)); took >= test.limit || !strings.Contains(answer, test.done) {
				t.Errorf("%s %s: after %v %s, want %s before %v", test.method, test.path, took, answer, test.done, test.limit)
			}
		}
	})
}

// TestCopyWithLeases: a copy made of GET state and a provisioning file takes the token that a node has.
func TestCopyWithLeases(t *testing.T) {
	t.Parallel()
	first, second := newAppliance(t, stopClock), newAppliance(t, stopClock)
	first.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"S","config":{"domain":"example.com"}}`)
	usages := make([]string, 3) // two of them have one network: they are told apart by their order
	for i, body := range []string{`{"service_id":"svc","prefix_mode":"custom","custom_prefix":"office","network_id":42}`, `{"service_id":"svc","prefix_mode":"auto","network_id":7}`, `{"service_id":"svc","prefix_mode":"auto","network_id":7}`} {
		usages[i] = api.UUIDText.FindString(first.Must(t, "POST", "/api/v1/ddns/usages", body))
	}
	tokens := map[lease.Token]string{}
	for i, usage := range usages {
		for _, slot := range []string{"a", "b"} {
			made := first.Must(t, "POST", "/api/v1/ddns/usages/"+usage+"/leases", `{"slot":"`+slot+`","ttl":60}`)
			tokens[lease.Token(regexp.MustCompile(`"token":"([^"]+)`).FindStringSubmatch(made)[1])] = fmt.Sprint(i, slot)
		}
	}
	state := first.StateDocument(t)
	for range 2 {
		if got := second.Applied(t, state); strings.Contains(got, "usages[") {
			t.Error(got)
		}
	}
	var copied []string
	for u, err := range second.ops.store.AllUsages(t.Context(), math.MaxInt64) {
		if copied = append(copied, u.ID); err != nil {
			t.Fatal(err)
		}
	}
	for token, want := range tokens {
		l, err := second.ops.leases.Find(t.Context(), token)
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if got := fmt.Sprint(slices.Index(copied, l.UsageID), l.Slot); got != want {
			t.Errorf("the token of %s is that of %s", want, got)
		}
		if r, err := second.ops.leases.Renew(t.Context(), l, []string{"tcp://203.0.113.7:1"}, lease.Keep{}, netip.Addr{}); err != nil || !r.Changed {
			t.Errorf("%s is not renewed: %+v, %v", want, r, err)
		}
		if strings.Contains(state, string(token)) {
			t.Error("the state has a token")
		}
	}
	if got := second.StateDocument(t); got[strings.Index(got, `"services"`):] != state[strings.Index(state, `"services"`):] {
		t.Errorf("the copy's state is %s\nwant %s", got, state)
	}
	released := strings.Replace(state, `{"owner"`, `{"prune":true,"owner"`, 1)
	released = regexp.MustCompile(`"leases":\[\{"slot":"a"[^}]*\},`).ReplaceAllString(released, `"leases":[`)
	if got, want := second.Applied(t, released), strings.TrimSpace(strings.Repeat("provision what=\"POST /api/v1/ddns/usages/{id}/leases\" id=<id> status=200\n", 3)); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	for token, slot := range tokens {
		if _, err := second.ops.leases.Find(t.Context(), token); (err == nil) != strings.HasSuffix(slot, "b") {
			t.Errorf("%s, pruned: %v", slot, err)
		}
	}
}

// TestChangesTogether: the endpoints that one PATCH brings and the formats that another one brings, whose body arrives later,
// are checked together.
func TestChangesTogether(t *testing.T) {
	t.Parallel()
	a := newAppliance(t, func(a *appliance) { a.idle = true })
	a.Must(t, "PUT", "/api/v1/ddns/services/svc", `{"name":"svc","config":{"domain":"example.com"}}`)
	path := "/api/v1/ddns/usages/" + a.Reserve(t, "svc", "p", 7)
	a.Must(t, "PATCH", path, `{"formats":["hostport"]}`)
	body, late := io.Pipe()
	request, err := http.NewRequest("PATCH", a.URL+path, body)
	support.Must(t, err)
	request.Header.Set("Expect", "100-continue")
	reads := make(chan struct{})
	request = request.WithContext(httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{Got100Continue: func() { close(reads) }}))
	go func() {
		<-reads // the usage was read before the body
		long := strings.Repeat("x", 60)
		a.Must(t, "PATCH", path, fmt.Sprintf(`{"txt_endpoints":["tcp://%[1]s.a:1","tcp://%[1]s.b:1","tcp://%[1]s.c:1","tcp://%[1]s.d:1"]}`, long))
		fmt.Fprint(late, `{"formats":["mesh1"]}`)
		late.Close()
	}()
	transport := http.Transport{ExpectContinueTimeout: support.Patience}
	defer transport.CloseIdleConnections()
	answer, err := transport.RoundTrip(request)
	support.Must(t, err)
	defer answer.Body.Close()
	if code := answer.Header.Get("X-Error-Code"); code != "value_too_long" {
		t.Errorf("%s %s", answer.Status, code)
	}
}
