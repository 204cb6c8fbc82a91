package main

import (
	"context"
	"errors"
	"fmt"
	"meshddns/ledger"
	"meshddns/sqlrow"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/builtin"
	"meshddns/hostaddr"
	"meshddns/meshtxt"
	"meshddns/provider"
	"meshddns/provider/servertest"
	"meshddns/reconcile"
)

// bubbles runs tests, each in a bubble with a clock of its own.
func bubbles(t *testing.T, tests map[string]func(t *testing.T)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// TestSyncLoop runs the engine in each mode, by a clock that the test turns.
func TestSyncLoop(t *testing.T) {
	for _, test := range []struct {
		mode                                string
		enabled                             bool
		start, change, withdrawn, intervals bool
	}{
		{"manual", true, false, false, false, false},
		{"", true, false, false, false, false},
		{"AUTO", true, false, false, false, false},
		{"auto", false, false, false, false, false},
		{"auto", true, true, true, true, true},
		{"upsert-only", true, true, true, false, true},
	} {
		t.Run(fmt.Sprintf("%q enabled %t", test.mode, test.enabled), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newSyncHost(t, dnsBuiltinServer)
				h.change(func(c *configuration) { c.SyncMode, c.Enabled = test.mode, test.enabled })
				h.loop()
				stands := func(what, name string, want bool) {
					if t.Helper(); len(h.standing(name)) > 0 != want {
						t.Errorf("%s: %s has %q, want some: %t", what, name, h.standing(name), want)
					}
				}
				dnsPass(2 * time.Second)
				stands("start", dnsHost, test.start)
				u := h.reserve(h.service("example.com"), "office", 42)
				dnsPass(2 * time.Second)
				stands("change", dnsOffice, test.change)
				h.force(u)
				dnsPass(2 * time.Second)
				stands("withdrawal", dnsOffice, test.change && !test.withdrawn)
				h.exec(`DELETE FROM zone_records`)
				dnsPass(4 * time.Minute)
				stands("before the interval", dnsHost, false)
				dnsPass(time.Minute)
				stands("interval", dnsHost, test.intervals)
			})
		})
	}
}

// TestSyncDebounce makes changes one after the other: they are waited for, but
// not for ever.
func TestSyncDebounce(t *testing.T) {
	for name, test := range map[string]struct {
		changes int
		every   time.Duration
		writes  []time.Duration // since the first change
	}{
		"one":    {1, 0, []time.Duration{time.Second}},
		"burst":  {50, time.Millisecond, []time.Duration{time.Second}},
		"steady": {5, 600 * time.Millisecond, []time.Duration{time.Second, 2200 * time.Millisecond, 3400 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, v := newVendorHost(t)
				h.mode(modeAuto)
				u := h.reserve(h.service("example.com"), "office", 42)
				h.loop()
				dnsPass(10 * time.Second)
				started := time.Now()
				var writes []time.Duration
				v.fails(func(_ context.Context, c dnsCall) error {
					if c.what == "change" {
						writes = append(writes, time.Since(started).Round(100*time.Millisecond))
					}
					return nil
				})
				for n := range test.changes {
					if n > 0 {
						dnsPass(test.every)
					}
					h.publish(u, fmt.Sprintf("tcp://192.0.2.1:%d", 1+n))
				}
				dnsPass(30 * time.Second)
				if !slices.Equal(writes, test.writes) {
					t.Errorf("wrote at %v, want %v", writes, test.writes)
				}
				v.want(t, servertest.Zone, dnsOffice, h.value("42", fmt.Sprintf("tcp://192.0.2.1:%d", test.changes)))
			})
		})
	}
}

// TestSyncNewAddress gives the host another address: it is published.
func TestSyncNewAddress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.change(func(c *configuration) {
			c.SyncMode, c.Endpoints = modeAuto, sqlrow.TextList{"tcp://{ipv4}:1", "tcp://[{ipv6}]:1"}
		})
		h.knows(meshtxt.Addresses{}, meshtxt.Addresses{})
		h.loop()
		dnsPass(2 * time.Second)
		h.wantStanding(dnsHost, h.text(""))
		last, next, err := h.engine.Last(t.Context())
		if err != nil || !last.OK() || last.Counts["warning"] == 0 || !next.After(time.Now()) {
			t.Fatalf("%+v, next %v, %v", last, next, err)
		}
		if detail := last.Records[0].Fault.Detail; !strings.Contains(detail, "tcp://{ipv4}:1") || !strings.Contains(detail, "tcp://[{ipv6}]:1") {
			t.Errorf("%q does not say which", detail)
		}
		both := meshtxt.Addresses{IPv4: netip.MustParseAddr("198.51.100.1"), IPv6: netip.MustParseAddr("2001:db8::1")}
		h.knows(both, both)
		if err := h.store.SaveAddresses(t.Context(), both); err != nil {
			t.Fatal(err)
		}
		dnsPass(2 * time.Second)
		h.wantStanding(dnsHost, h.text("", "tcp://198.51.100.1:1", "tcp://[2001:db8::1]:1"))
		if last, _, _ = h.engine.Last(t.Context()); last.Trigger != reconcile.TriggerAddress || last.Counts["warning"] > 0 {
			t.Errorf("%+v", last)
		}
	})
}

// TestSyncAddressSourceIsDown starts a program whose source of addresses does not
// answer: the record keeps the last known address, and the report warns.
func TestSyncAddressSourceIsDown(t *testing.T) {
	var down atomic.Bool
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if down.Load() {
			w.WriteHeader(http.StatusBadGateway)
			return
		}
		fmt.Fprintln(w, "198.51.100.7")
	}))
	t.Cleanup(web.Close)
	source, err := hostaddr.ParseSource(hostaddr.IPv4, "url:"+web.URL)
	if err != nil {
		t.Fatal(err)
	}
	h := newSyncHost(t, dnsBuiltinServer)
	for _, test := range []struct {
		down     bool
		warnings int
	}{{false, 0}, {true, 1}} {
		down.Store(test.down)
		last, err := h.store.Addresses(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		book := hostaddr.NewBook(source, hostaddr.Source{}, last, h.store.SaveAddresses, h.logger())
		h.engine = newEngine(h.store, h.clients, book, time.Hour, h.logger())
		ctx, cancel := context.WithCancel(t.Context())
		watched := make(chan error, 1)
		go func() { watched <- book.Watch(ctx, time.Hour) }()
		h.stop = nil
		if r := h.run(); !r.OK() || r.Counts["warning"] != test.warnings || test.down && r.Records[0].Fault.Code != reconcile.CodeAddressUnknown {
			t.Errorf("down %t: %+v", test.down, r)
		}
		h.wantStanding(dnsHost, h.text("", "tcp://198.51.100.7:11010"))
		h.stop()
		cancel()
		if err := dnsWait(t, watched); err != nil {
			t.Error(err)
		}
	}
}

// TestSyncModeChanges turns automatic work on and off while the engine runs.
func TestSyncModeChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.exec(`DELETE FROM configuration`)
		h.loop()
		for _, mode := range []string{modeAuto, modeManual, modeAuto} {
			c := dnsConfiguration(dnsBuiltinServer)
			c.SyncMode = mode
			h.exec(`DELETE FROM zone_records`)
			h.configure(c)
			dnsPass(2 * time.Second)
			if got, want := len(h.standing(dnsHost)) > 0, mode == modeAuto; got != want {
				t.Errorf("%s: published %t", mode, got)
			}
			if _, next, _ := h.engine.Last(t.Context()); next.IsZero() != (mode == modeManual) {
				t.Errorf("%s: next at %v", mode, next)
			}
		}
		if strings.Contains(h.log.String(), "level=ERROR") {
			t.Error(h.log)
		}
	})
}

// TestSyncLoopGoesOn has the database fail for a while: the engine says so and
// works again after.
func TestSyncLoopGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.mode(modeAuto)
		h.exec(`ALTER TABLE configuration RENAME TO hidden`)
		h.loop()
		if text := h.log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "configuration") {
			t.Errorf("log: %s", text)
		}
		h.exec(`ALTER TABLE hidden RENAME TO configuration`)
		dnsPass(10 * time.Second)
		h.wantStanding(dnsHost, h.text("", dnsEndpoint))
	})
}

// TestSyncDatabaseFails has the database refuse a statement: without the intent
// nothing is written to DNS, and without the outcome it is not believed.
func TestSyncDatabaseFails(t *testing.T) {
	for name, test := range map[string]struct {
		trigger string
		delete  bool
		before  bool // whether the value stands while the database fails
	}{
		"intent":            {"INSERT ON places", false, false},
		"outcome":           {"UPDATE ON places WHEN NEW.state = 'published'", false, true},
		"intent to delete":  {"UPDATE ON places WHEN NEW.state = 'withdrawing'", true, true},
		"outcome of delete": {"UPDATE ON places WHEN NEW.state = 'withdrawn'", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newSyncHost(t, dnsBuiltinServer)
				h.run()
				u := h.reserve(h.service("example.com"), "office", 42)
				if test.delete {
					h.run()
				}
				h.exec(`CREATE TRIGGER broken BEFORE ` + test.trigger + ` BEGIN SELECT RAISE(FAIL, 'disk is full'); END`)
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				if test.delete {
					if freed, _ := h.tryRelease(ctx, u); freed {
						t.Error("freed")
					}
				} else if r, err := h.engine.Sync(ctx, false); err == nil && r.OK() {
					t.Errorf("%+v", r)
				}
				if stands := len(h.standing(dnsOffice)) > 0; stands != test.before {
					t.Errorf("the value stands: %t, want %t", stands, test.before)
				}
				h.wantTaken("office", 1)
				if text := h.log.String(); !strings.Contains(text, "disk is full") {
					t.Errorf("log: %s", text)
				}
				h.exec(`DROP TRIGGER broken`)
				dnsPass(10 * time.Second)
				if r := h.run(); !r.OK() {
					t.Errorf("%+v", r)
				}
				if stands := len(h.standing(dnsOffice)) > 0; stands != (h.taken("office") == 1) || stands == test.delete {
					t.Errorf("the value stands: %t, taken %d", stands, h.taken("office"))
				}
			})
		})
	}
}

func TestSyncNotBegun(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	h.change(func(c *configuration) { c.Enabled = false })
	h.start()
	if _, err := h.engine.Sync(t.Context(), false); !errors.Is(err, reconcile.ErrDisabled) {
		t.Errorf("disabled: %v", err)
	}
	if _, err := h.engine.Preview(t.Context()); !errors.Is(err, reconcile.ErrDisabled) {
		t.Errorf("disabled: %v", err)
	}
	h.exec(`DELETE FROM configuration`)
	if _, err := h.engine.Sync(t.Context(), false); !errors.Is(err, reconcile.ErrNotConfigured) {
		t.Errorf("not configured: %v", err)
	}
	if last, next, err := h.engine.Last(t.Context()); last != nil || !next.IsZero() || err != nil {
		t.Errorf("last %+v, next %v, %v", last, next, err)
	}
}

// TestSyncJoin has many callers at once: they share one pass, and one that goes
// leaves the others their report of the whole.
func TestSyncJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		_, open := v.holds("change", dnsHost)
		starter, cancel := context.WithCancel(t.Context())
		h.begin(starter)
		synctest.Wait()
		var calls []<-chan reconcile.Report
		for range 5 {
			calls = append(calls, h.begin(t.Context()))
		}
		joiner, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		if _, err := h.engine.Sync(joiner, false); !errors.Is(err, reconcile.ErrUnfinished) {
			t.Errorf("a joiner whose time is over: %v", err)
		}
		cancel()
		synctest.Wait()
		open()
		for _, call := range calls {
			wantReport(t, <-call, dnsHost+" create")
		}
		if n := h.count(`SELECT number FROM pass`); n != 1 {
			t.Errorf("%d passes", n)
		}
	})
}

// TestSyncJoinAfterChange calls after a change, while a pass from before the
// change is under way: the report says what became of the change.
func TestSyncJoinAfterChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		_, open := v.holds("change", dnsHost)
		h.begin(t.Context())
		synctest.Wait()
		h.reserve(h.service("example.com"), "office", 42)
		h.change(func(c *configuration) { c.Endpoints = sqlrow.TextList{"tcp://192.0.2.1:1"} })
		var after []<-chan reconcile.Report
		for range 3 {
			after = append(after, h.begin(t.Context()))
		}
		synctest.Wait()
		open()
		for _, call := range after {
			if r := <-call; !r.OK() || r.Names != 2 {
				t.Errorf("%+v", r)
			}
		}
		v.want(t, servertest.Zone, dnsOffice, h.value("42", "tcp://192.0.2.1:1"))
		v.want(t, servertest.Zone, dnsHost, h.value("", "tcp://192.0.2.1:1"))
	})
}

// TestSyncReleaseWaits releases while the name is written: it waits for that
// write and no longer, and the value does not come back.
func TestSyncReleaseWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		u := h.reserve(h.service("example.com"), "office", 42)
		_, open := v.holds("change", dnsOffice)
		call := h.begin(t.Context())
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if freed, err := h.tryRelease(ctx, u); freed || err != nil {
			t.Errorf("while it is written: freed %t, %v", freed, err)
		}
		released := make(chan bool, 1)
		go func() {
			freed, err := h.tryRelease(t.Context(), u)
			released <- freed && err == nil
		}()
		synctest.Wait()
		open()
		<-call
		if !<-released {
			t.Error("not released")
		}
		v.want(t, servertest.Zone, dnsOffice)
		h.wantTaken("office", 0)
	})
}

// TestSyncRetries has a provider that fails: its zone is tried again after the
// configuration's pauses, and what is tried in vain is tried at the next pass.
func TestSyncRetries(t *testing.T) {
	for name, test := range map[string]struct {
		failures int
		want     []time.Duration // of the tries, in seconds with the jitter off
		report   string
	}{
		"twice":      {2, []time.Duration{0, 2, 6}, dnsHost + " create"},
		"once more":  {3, []time.Duration{0, 2, 6, 14}, dnsHost + " create"},
		"for longer": {9, []time.Duration{0, 2, 6, 14}, dnsHost + " failed temporary"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, v := newVendorHost(t)
				h.change(func(c *configuration) { c.RetryInterval, c.MaxRetries = dnsNumber(2), dnsNumber(3) })
				var tries []time.Duration
				began := time.Now()
				v.fails(func(_ context.Context, c dnsCall) error {
					if c.what != "change" {
						return nil
					}
					if tries = append(tries, time.Since(began)); len(tries) > test.failures {
						return nil
					}
					return &provider.Error{Kind: provider.Temporary}
				})
				r := h.runFor(time.Minute, false)
				wantReport(t, r, test.report)
				if attempts := r.Records[0].Attempts; attempts != len(test.want) || len(tries) != len(test.want) {
					t.Fatalf("%d attempts at %v", attempts, tries)
				}
				for i, least := range test.want {
					if least *= time.Second; tries[i] < least || tries[i] > least+least/5+time.Second {
						t.Errorf("try %d after %v, want %v and a fifth at most", i, tries[i], least)
					}
				}
			})
		})
	}
}

// TestSyncRetryIsRemembered has the database busy when a try that failed is
// stored: the next try is made all the same, and the pass waits for it.
func TestSyncRetryIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.change(func(c *configuration) { c.MaxRetries = dnsNumber(3) })
		busy := false
		v.fails(func(_ context.Context, c dnsCall) error {
			if c.what != "change" || busy {
				return nil
			}
			busy = true
			tx, err := h.store.writer.Begin()
			if err != nil {
				t.Error(err)
			}
			time.AfterFunc(time.Second, func() { tx.Rollback() })
			h.engine.Wake()
			return &provider.Error{Kind: provider.Temporary}
		})
		r := h.begin(t.Context())
		dnsPass(500 * time.Millisecond)
		h.engine.Wake()
		dnsPass(100 * time.Millisecond)
		wantReport(t, <-r, dnsHost+" create")
		v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
	})
}

// TestSyncReportWaits has a name fail for good while the pass has nothing else to
// do: the report knows it.
func TestSyncReportWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.change(func(c *configuration) { c.MaxRetries = dnsNumber(1) })
		v.fails(dnsFault(provider.Temporary, "change"))
		committed := h.store.committed
		h.store.committed = func() {
			if committed(); v.called("change") == 2 {
				<-time.After(time.Second) // the outcome is stored, and the engine does not know it yet
			}
		}
		wantReport(t, h.run(), dnsHost+" failed temporary")
	})
}

// TestSyncSweepJoins asks for a sweep while a pass without one runs.
func TestSyncSweepJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		v.put(servertest.Zone, dnsOffice, provider.TXT{h.value("42", dnsEndpoint)})
		_, open := v.holds("change", dnsHost)
		call := h.begin(t.Context())
		synctest.Wait()
		time.AfterFunc(time.Second, open)
		if r := h.sweep(); !r.OK() {
			t.Errorf("%+v", r)
		}
		wantReport(t, <-call, dnsHost+" create", dnsOffice+" orphan")
		v.want(t, servertest.Zone, dnsOffice)
	})
}

// TestSyncZoneMadeAnew has the provider's zone deleted and made again, with
// another id: our values come back, and are no orphans.
func TestSyncZoneMadeAnew(t *testing.T) {
	h, v := newVendorHost(t)
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	v.zones["key"] = []string{"example.com anew"}
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" create")
	wantReport(t, h.sweep(), "2 unchanged")
	v.want(t, "example.com anew", dnsOffice, h.value("42", dnsEndpoint))
	h.release(u, true)
	v.want(t, "example.com anew", dnsOffice)
}

// TestSyncRepairs has somebody take a value away: it is put back, and known to
// stand there.
func TestSyncRepairs(t *testing.T) {
	h, v := newVendorHost(t)
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	v.make(servertest.Zone, provider.Change{Name: dnsOffice, Remove: []provider.TXT{{h.value("42", dnsEndpoint)}}})
	wantReport(t, h.run(), dnsOffice+" create", "1 unchanged")
	if got, want := h.publishing(u), "published "+h.value("42", dnsEndpoint); got != want {
		t.Errorf("publish is %q, want %q", got, want)
	}
	h.wantPlaces(dnsOffice, "published "+h.value("42", dnsEndpoint))
}

// TestSyncThrottled has a provider that asks for a pause of an hour: it gets it,
// and all other zones go on.
func TestSyncThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.mode(modeAuto)
		h.change(func(c *configuration) { c.MaxRetries = dnsNumber(3) })
		v.fails(func(context.Context, dnsCall) error {
			return &provider.Error{Kind: provider.Throttled, RetryAfter: 50 * time.Minute}
		})
		h.loop()
		dnsPass(2 * time.Second)
		asked := len(v.calls)
		other := h.service("example.net", "provider", "builtin")
		h.reserve(other, "a", 1)
		dnsPass(2 * time.Second)
		h.wantStanding("_mesh.a.example.net", h.text("1", dnsEndpoint))
		h.release(h.reserve(other, "b", 2), true)
		h.exec(`DELETE FROM zone_records`)
		dnsPass(6 * time.Minute)
		h.wantStanding("_mesh.a.example.net", h.text("1", dnsEndpoint)) // by the next interval
		if n := len(v.calls) - asked; n > 0 {
			t.Errorf("%d calls within the pause", n)
		}
		v.works()
		dnsPass(50 * time.Minute)
		v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
	})
}

// TestSyncAudit looks at many unchanged names at the interval: no faster than its
// rate, while a change is made at once.
func TestSyncAudit(t *testing.T) {
	const names = 3500
	synctest.Test(t, func(t *testing.T) {
		h := newSyncHost(t, dnsBuiltinServer)
		h.mode(modeAuto)
		h.many(h.service("example.com"), names)
		h.loop()
		dnsPass(time.Minute)
		if n := h.count(`SELECT count(*) FROM places WHERE state = 'published'`); n != names+1 {
			t.Fatalf("%d published", n)
		}
		_, next, _ := h.engine.Last(t.Context())
		dnsPass(time.Until(next) + 1500*time.Millisecond)
		h.reserve(h.service("example.com"), "office", 42)
		dnsPass(1100 * time.Millisecond)
		h.wantStanding(dnsOffice, h.text("42", dnsEndpoint))
		if last, _, _ := h.engine.Last(t.Context()); last.Trigger == reconcile.TriggerInterval {
			t.Errorf("%d names in %v", last.Names, last.FinishedAt.Sub(last.StartedAt))
		}
		dnsPass(10 * time.Second)
		last, _, _ := h.engine.Last(t.Context())
		if took := last.FinishedAt.Sub(last.StartedAt); last.Trigger != reconcile.TriggerInterval || last.Names != names+2 || took < names/reconcile.AuditRate*time.Second {
			t.Errorf("by %s, %d names in %v", last.Trigger, last.Names, took)
		}
	})
}

// many reserves many prefixes at once.
func (h *syncHost) many(service string, count int) {
	h.t.Helper()
	h.exec(fmt.Sprintf(`
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
		SELECT 'many-' || i, '%s', 'mesh_sync', 'custom', 'many' || i, 'TXT', '', 1, '[]', '_mesh.many' || i || '.example.com', '' FROM n;
		INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status)
		SELECT seq, id, seq, id, provider_id, 'active' FROM usages WHERE id LIKE 'many-%%';
		INSERT INTO names (name, version, due, lane, pass) SELECT name, 1, 1, '', 0 FROM usages WHERE id LIKE 'many-%%'`, count, service))
}

// TestSyncPassGoesOn stops the program in a pass over many names: the next one
// goes on where it was, and the report counts each name once.
func TestSyncPassGoesOn(t *testing.T) {
	const names, page = 3500, 1000
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.many(h.service("example.com"), names)
		if r := h.run(); !r.OK() || r.Names != names+1 {
			t.Errorf("%d names, want %d", r.Names, names+1)
		}
		v.fails(func(_ context.Context, c dnsCall) error {
			switch c.what {
			case "list":
				return &provider.Error{Kind: provider.Permission, Err: provider.ErrNotListed}
			case "read":
				<-time.After(10 * time.Millisecond)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		h.begin(ctx)
		before, reads := &reconcile.Progress{}, v.called("read")
		for range 100 {
			if dnsPass(100 * time.Millisecond); before.Cursor != "" {
				break
			}
			var err error
			if before, _, err = h.store.ledger.Pass(t.Context()); err != nil || before == nil {
				t.Fatalf("pass %+v, %v", before, err)
			}
		}
		h.restart()
		r := h.run()
		if !r.OK() || r.Names != names+1 || !r.StartedAt.Equal(before.Report.StartedAt) {
			t.Errorf("%d names, want %d, begun %v after the first", r.Names, names+1, r.StartedAt.Sub(before.Report.StartedAt))
		}
		if n := v.called("read") - reads; n > names+2*page {
			t.Errorf("%d reads", n)
		}
		if n := h.count(`SELECT number FROM pass`); n != 2 {
			t.Errorf("%d passes", n)
		}
	})
}

// TestSyncReleaseUnpublished frees a prefix whose value never stood anywhere,
// without a call to the provider.
func TestSyncReleaseUnpublished(t *testing.T) {
	bubbles(t, map[string]func(t *testing.T){
		"never tried":   func(t *testing.T) { testUnpublished(t, func(*syncHost) {}) },
		"tried in vain": func(t *testing.T) { testUnpublished(t, func(h *syncHost) { h.run() }) },
		"disabled": func(t *testing.T) {
			testUnpublished(t, func(h *syncHost) { h.change(func(c *configuration) { c.Enabled = false }) })
		},
	})
}

func testUnpublished(t *testing.T, before func(h *syncHost)) {
	h, v := newVendorHost(t)
	v.fails(dnsFault(provider.Network, "zone"))
	u := h.reserve(h.service("example.com"), "office", 42)
	before(h)
	calls := len(v.calls)
	h.release(u, true)
	h.wantTaken("office", 0)
	if len(v.calls) != calls {
		t.Errorf("calls %+v", v.calls[calls:])
	}
}

// TestSyncForgets has a place of a value that never came to stand, for a usage
// that is gone: the next synchronisation drops it and has nothing to say.
func TestSyncForgets(t *testing.T) {
	h, v := newVendorHost(t)
	v.fails(dnsFault(provider.Network))
	u := h.reserve(h.service("example.com"), "office", 42)
	wantReport(t, h.run(), dnsHost+" failed network", dnsOffice+" failed network")
	h.release(u, true)
	if _, err := h.engine.Preview(t.Context()); err != nil || len(h.places(dnsOffice)) != 1 {
		t.Errorf("preview: %v, places %+v", err, h.places(dnsOffice))
	}
	wantReport(t, h.run(), dnsHost+" failed network")
	h.wantPlaces(dnsOffice)
}

// TestSyncUpsertOnly never deletes, not even on release, nor what it has not put
// there; another mode does it later.
func TestSyncUpsertOnly(t *testing.T) {
	h, v := newVendorHost(t)
	h.mode(modeUpsertOnly)
	u := h.reserve(h.service("example.com"), "office", 42)
	r := h.run()
	wantReport(t, r, dnsHost+" create", dnsOffice+" create")
	stale := h.value("42", "tcp://192.0.2.66:1")
	v.put(servertest.Zone, dnsOffice, provider.TXT{stale})
	wantReport(t, h.run(), "2 unchanged")
	h.publish(u, "udp://192.0.2.9:1")
	wantReport(t, h.run(), dnsOffice+" update", "1 unchanged")
	v.want(t, servertest.Zone, dnsOffice, stale, h.value("42", "udp://192.0.2.9:1"))
	h.release(u, true)
	r = h.run()
	wantReport(t, r, dnsOffice+" leftover deletes_forbidden", "1 unchanged")
	if !r.OK() {
		t.Error("a leftover makes the report fail")
	}
	v.want(t, servertest.Zone, dnsOffice, stale, h.value("42", "udp://192.0.2.9:1"))
	h.mode(modeManual)
	wantReport(t, h.run(), dnsOffice+" delete", "1 unchanged")
	v.want(t, servertest.Zone, dnsOffice)
}

// TestSyncLateWrite has a write fail by time and arrive 1.5 s later, when the
// usage was released already: it is seen, and withdrawn.
func TestSyncLateWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.run()
		service := h.service("example.com")
		u := h.reserve(service, "office", 42)
		late := atomic.Bool{}
		late.Store(true)
		v.fails(func(_ context.Context, c dnsCall) error {
			if c.what != "change" || !late.Swap(false) {
				return nil
			}
			time.AfterFunc(1500*time.Millisecond, func() {
				v.mu.Lock()
				defer v.mu.Unlock()
				v.make(servertest.Zone, c.change)
			})
			return &provider.Error{Kind: provider.Network, Detail: "no answer in time"}
		})
		wantReport(t, h.run(), dnsOffice+" failed network", "1 unchanged")
		h.release(u, false)
		v.want(t, servertest.Zone, dnsOffice)
		dnsPass(2 * time.Second)
		v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
		h.wantTaken("office", 1)
		dnsPass(reconcile.SecondLook)
		v.want(t, servertest.Zone, dnsOffice)
		dnsPass(reconcile.SecondLook)
		h.wantTaken("office", 0)
		dnsPass(2 * reconcile.SecondLook)
		h.wantPlaces(dnsOffice)
	})
}

// TestSyncLateUpdate has an old value arrive after a newer one: it does not stay.
func TestSyncLateUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.run()
		u := h.reserve(h.service("example.com"), "office", 42)
		late := atomic.Bool{}
		late.Store(true)
		v.fails(func(_ context.Context, c dnsCall) error {
			if c.what != "change" || !late.Swap(false) {
				return nil
			}
			time.AfterFunc(1500*time.Millisecond, func() {
				v.mu.Lock()
				defer v.mu.Unlock()
				v.make(servertest.Zone, c.change)
			})
			return &provider.Error{Kind: provider.Network}
		})
		h.run()
		h.publish(u, "tcp://192.0.2.9:1")
		wantReport(t, h.run(), dnsOffice+" create", "1 unchanged")
		dnsPass(2 * time.Second)
		v.want(t, servertest.Zone, dnsOffice, h.value("42", "tcp://192.0.2.9:1"), h.value("42", dnsEndpoint))
		dnsPass(reconcile.SecondLook)
		v.want(t, servertest.Zone, dnsOffice, h.value("42", "tcp://192.0.2.9:1"))
		h.wantPlaces(dnsOffice, "published "+h.value("42", "tcp://192.0.2.9:1"))
	})
}

// TestSyncStaleList releases while the provider shows what was before the value
// came: the second look sees it, in every mode, whoever has the prefix by then.
func TestSyncStaleList(t *testing.T) {
	for _, mode := range []string{modeManual, modeAuto} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, reserved again %t", mode, again), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { testStaleList(t, mode, again) })
			})
		}
	}
}

func testStaleList(t *testing.T, mode string, again bool) {
	h, v := newVendorHost(t)
	h.mode(mode)
	service := h.service("example.com")
	u := h.reserve(service, "office", 42)
	h.run()
	v.stale[dnsOffice] = 1
	h.release(u, true)
	v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	if names := h.leftovers(); len(names) > 0 {
		t.Errorf("leftovers %q", names)
	}
	if !again {
		dnsPass(3 * reconcile.SecondLook)
		v.want(t, servertest.Zone, dnsOffice)
		h.wantPlaces(dnsOffice)
		return
	}
	h.reserve(service, "office", 43)
	h.run()
	v.want(t, servertest.Zone, dnsOffice, h.value("43", dnsEndpoint))
	dnsPass(3 * reconcile.SecondLook)
	v.want(t, servertest.Zone, dnsOffice, h.value("43", dnsEndpoint))
	h.wantPlaces(dnsOffice, "published "+h.value("43", dnsEndpoint))
}

// TestSyncSecondLook lets a withdrawn value come back: the look after a minute
// withdraws it again, and only a place where it stays away is forgotten.
func TestSyncSecondLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		u := h.reserve(h.service("example.com"), "office", 42)
		h.run()
		h.release(u, true)
		v.put(servertest.Zone, dnsOffice, provider.TXT{h.value("42", dnsEndpoint)})
		reads := v.called("read")
		dnsPass(reconcile.SecondLook - time.Second)
		if n := v.called("read") - reads; n > 0 {
			t.Errorf("%d reads within the minute", n)
		}
		h.wantPlaces(dnsOffice, "withdrawn")
		dnsPass(2 * time.Second)
		v.want(t, servertest.Zone, dnsOffice)
		h.wantPlaces(dnsOffice, "withdrawn")
		dnsPass(reconcile.SecondLook)
		h.wantPlaces(dnsOffice)
		if n := h.count(`SELECT count(*) FROM names WHERE name = '` + dnsOffice + `'`); n > 0 {
			t.Error("the name is kept")
		}
	})
}

// TestSyncRestoredBackup goes back to an older database: what was published since
// is reported as orphans, which make nothing fail, and a sweep withdraws them.
func TestSyncRestoredBackup(t *testing.T) {
	h, v := newVendorHost(t)
	service := h.service("example.com")
	u := h.reserve(service, "office", 42) // unpublished as yet
	h.start()
	backup := h.backup(t)
	h.reserve(service, "newer", 43)
	h.run()
	restored := h.opened(t, backup)
	restored.release(u, true)
	v.put(servertest.Zone, "_mesh.other.example.com", provider.TXT{dnsStranger})
	orphans := []string{"_mesh.newer.example.com orphan", dnsOffice + " orphan", "1 unchanged"}
	for range 2 {
		r := restored.run()
		if wantReport(t, r, orphans...); !r.OK() || r.Counts[reconcile.ActionOrphan] != 2 {
			t.Errorf("%+v", r)
		}
	}
	v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	if r := restored.sweep(); !r.OK() {
		t.Errorf("%+v", r)
	}
	v.want(t, servertest.Zone, dnsOffice)
	v.want(t, servertest.Zone, "_mesh.newer.example.com")
	v.want(t, servertest.Zone, "_mesh.other.example.com", dnsStranger)
	wantReport(t, restored.run(), "1 unchanged")
}

// TestSyncAdopts takes up what a lost database has published: its values at names
// that are wanted here are replaced, and no others.
func TestSyncAdopts(t *testing.T) {
	h, v := newVendorHost(t)
	service := h.service("example.com")
	lost := func(network string) string { return meshtxt.Value(network, "aaaaaaaaaaaa", []string{dnsEndpoint}) }
	v.put(servertest.Zone, dnsOffice, provider.TXT{lost("42")})
	v.put(servertest.Zone, "_mesh.later.example.com", provider.TXT{lost("43")})
	v.put(servertest.Zone, "_mesh.not.example.com", provider.TXT{lost("44")})
	h.reserve(service, "office", 42)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" conflict")
	if held, err := h.engine.Held(t.Context(), "aaaaaaaaaaaa"); err != nil || !slices.Equal(held, []string{dnsOffice}) {
		t.Errorf("held %q, %v", held, err)
	}
	if err := h.store.ledger.Adopt(t.Context(), h.owner); !errors.Is(err, ledger.ErrOwnOwner) {
		t.Errorf("one's own owner: %v", err)
	}
	if err := h.store.ledger.Adopt(t.Context(), "aaaaaaaaaaaa"); err != nil {
		t.Fatal(err)
	}
	if r := h.run(); !r.OK() {
		t.Errorf("%+v", r)
	}
	u := h.reserve(service, "later", 43)
	h.run()
	v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	v.want(t, servertest.Zone, "_mesh.later.example.com", h.value("43", dnsEndpoint))
	v.want(t, servertest.Zone, "_mesh.not.example.com", lost("44"))
	h.release(u, true)
	h.sweep()
	v.want(t, servertest.Zone, "_mesh.not.example.com", lost("44"))
}

// TestSyncMovesWithoutGap moves a value to another provider that takes nothing
// yet: the old value stays until the new one is in place.
func TestSyncMovesWithoutGap(t *testing.T) {
	h, old := newVendorHost(t)
	next := h.vendor("next")
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	h.configure(dnsVendorConfiguration("next"))
	next.fails(dnsFault(provider.Permission, "change"))
	for range 2 {
		wantReport(t, h.run(), dnsHost+" failed permission", dnsOffice+" failed permission")
		old.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	}
	if got, want := h.publishing(u), "failed "+h.value("42", dnsEndpoint)+" permission"; got != want {
		t.Errorf("publish is %q, want %q", got, want)
	}
	next.fails(func(_ context.Context, c dnsCall) error {
		if c.what == "change" && len(old.at(servertest.Zone, c.name)) == 0 {
			t.Errorf("%s stands nowhere", c.name)
		}
		return nil
	})
	wantReport(t, h.run(), dnsHost+" create", dnsHost+" delete", dnsOffice+" create", dnsOffice+" delete")
	old.want(t, servertest.Zone, dnsOffice)
	next.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	next.works()
	h.release(u, true)
	next.want(t, servertest.Zone, dnsOffice)
}

// TestSyncMovesToChildZone has a child zone come within the zone that has our
// value, which moves there; or stays while the child zone takes nothing.
func TestSyncMovesToChildZone(t *testing.T) {
	const name, child = "_mesh.office.sub.example.com", "sub.example.com"
	for what, refused := range map[string]bool{"at once": false, "refused at first": true} {
		t.Run(what, func(t *testing.T) {
			h, v := newVendorHost(t)
			u := h.reserve(h.service(child), "office", 42)
			h.run()
			v.zones["key"] = append(v.zones["key"], child)
			if refused {
				v.fails(func(_ context.Context, c dnsCall) error {
					if c.what == "change" && c.zone == child {
						return &provider.Error{Kind: provider.Permission}
					}
					return nil
				})
				wantReport(t, h.run(), name+" failed permission", "1 unchanged")
				v.want(t, servertest.Zone, name, h.value("42", dnsEndpoint))
				v.works()
			}
			wantReport(t, h.run(), name+" create", name+" delete", "1 unchanged")
			v.want(t, servertest.Zone, name)
			v.want(t, child, name, h.value("42", dnsEndpoint))
			h.release(u, true)
			v.want(t, child, name)
		})
	}
}

// TestSyncLeftovers has values that cannot be withdrawn: they are leftovers, which
// make no report fail, are tried again, and can be forgotten.
func TestSyncLeftovers(t *testing.T) {
	h, v := newVendorHost(t)
	gone := h.vendor("gone")
	service := h.service("example.com", dnsAccount("gone", "", "key", "secret")...)
	u, other := h.reserve(service, "office", 42), h.reserve(service, "other", 43)
	h.run()
	gone.fails(dnsFault(provider.BadCredentials))
	h.release(u, false)
	h.force(other)
	r := h.run()
	wantReport(t, r, dnsOffice+" leftover credentials", other.Name+" leftover credentials", "1 unchanged")
	if !r.OK() || r.Counts[reconcile.ActionLeftover] != 2 {
		t.Errorf("%+v", r)
	}
	all, err := h.store.ledger.Leftovers(t.Context(), 0, 10)
	if err != nil || len(all) != 2 {
		t.Fatalf("%+v, %v", all, err)
	}
	if all[0].Place.Standing != h.value("42", dnsEndpoint) || all[0].Place.Account.Provider != "gone" || all[0].Place.Zone != servertest.Zone || all[0].Since == "" {
		t.Errorf("%+v", all[0])
	}
	for _, p := range all {
		if p.Place.Name == dnsOffice {
			err = h.store.ledger.ForgetLeftover(t.Context(), p.Place.ID)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	h.run()
	h.wantTaken("office", 0)
	gone.works()
	wantReport(t, h.run(), dnsOffice+" orphan", other.Name+" delete", "1 unchanged") // for nobody has removed it
	gone.want(t, servertest.Zone, other.Name)
	gone.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
	if err := h.store.ledger.ForgetLeftover(t.Context(), 12345); !errors.Is(err, ledger.ErrNoLeftover) {
		t.Errorf("one that is not there: %v", err)
	}
}

// TestSyncZoneGivenUp releases what stood in a zone that the account has no more:
// it counts as withdrawn.
func TestSyncZoneGivenUp(t *testing.T) {
	h, v := newVendorHost(t)
	other := h.vendor("other")
	u := h.reserve(h.service("example.com", dnsAccount("other", "", "key", "secret")...), "office", 42)
	h.run()
	other.mu.Lock()
	other.zones["key"] = nil
	other.mu.Unlock()
	h.release(u, true)
	if r := h.run(); !r.OK() || len(h.leftovers()) > 0 {
		t.Errorf("%+v, leftovers %q", r, h.leftovers())
	}
	v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
}

// TestSyncBuiltinSwitchedOff releases what stands in the built-in zones of a
// program that was started without its server.
func TestSyncBuiltinSwitchedOff(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	u := h.reserve(h.service("example.com"), "office", 42)
	h.run()
	h.clients.dnsAddress = ""
	h.restart()
	h.release(u, true)
	h.wantStanding(dnsOffice)
	wantReport(t, h.run(), dnsHost+" failed not_listening")
}

// TestSyncKeepsKeys takes a key away in three ways while a value stands that was
// published with it: the value is withdrawn with it, and then the key is erased.
func TestSyncKeepsKeys(t *testing.T) {
	for name, take := range map[string]func(t *testing.T, h *syncHost, service string, u usage){
		"the service is deleted": func(t *testing.T, h *syncHost, service string, u usage) {
			h.force(u)
			if err := h.store.DeleteService(t.Context(), service); err != nil {
				t.Fatal(err)
			}
		},
		"the service gets another": func(_ *testing.T, h *syncHost, service string, _ usage) {
			h.vendor("next")
			h.reconfigure(service, dnsConfig("example.com", dnsAccount("next", "", "key", "secret")...))
		},
		"the service has none any more": func(_ *testing.T, h *syncHost, service string, _ usage) {
			h.reconfigure(service, dnsConfig("example.com"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newSyncHost(t, dnsBuiltinServer)
			v := h.vendor("vendor")
			service := h.service("example.com", dnsAccount("vendor", "", "key", "the-old-secret")...)
			u := h.reserve(service, "office", 42)
			h.run()
			take(t, h, service, u)
			if r := h.run(); !r.OK() {
				t.Errorf("%+v", r)
			}
			v.want(t, servertest.Zone, dnsOffice)
			h.later(dnsLookAgain)
			h.run()
			if n := h.count(`SELECT count(*) FROM accounts WHERE provider = 'vendor'`); n > 0 {
				t.Error("the key is kept for good")
			}
		})
	}
}

// TestSyncConfigurationReplacedDuringPass replaces the configuration while a
// write is at its provider: what that write has made goes with the old key.
func TestSyncConfigurationReplacedDuringPass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, old := newVendorHost(t)
		next := h.vendor("next")
		_, open := old.holds("change", dnsHost)
		call := h.begin(t.Context())
		synctest.Wait()
		h.configure(dnsVendorConfiguration("next"))
		open()
		<-call
		h.run()
		old.want(t, servertest.Zone, dnsHost)
		next.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
	})
}

// TestSyncIntentIsCompared releases a usage between the look at its name and the
// write: nothing is written.
func TestSyncIntentIsCompared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		u := h.reserve(h.service("example.com"), "office", 42)
		_, open := v.holds("read", dnsOffice)
		call := h.begin(t.Context())
		synctest.Wait()
		h.force(u)
		open()
		<-call
		if v.want(t, servertest.Zone, dnsOffice); slices.Contains(v.history, "+ "+servertest.Zone+" "+dnsOffice) {
			t.Errorf("it was written: %q", v.history)
		}
	})
}

// TestSyncTwoAccountsOfOneVendor has two services of one domain at accounts with a
// zone each, of one name: each publishes its own, and withdraws its own.
func TestSyncTwoAccountsOfOneVendor(t *testing.T) {
	h, v := newVendorHost(t)
	v.zones["a"], v.zones["b"] = []string{"example.com a"}, []string{"example.com b"}
	one := h.reserve(h.service("example.com", dnsAccount("vendor", "", "a", "s")...), "office", 42)
	two := h.reserve(h.service("example.com", dnsAccount("vendor", "", "b", "s")...), "office", 42)
	h.run()
	v.want(t, "example.com a", dnsOffice, h.value("42", dnsEndpoint))
	v.want(t, "example.com b", dnsOffice, h.value("42", dnsEndpoint))
	h.release(one, true)
	if r := h.run(); !r.OK() {
		t.Errorf("%+v", r)
	}
	v.want(t, "example.com a", dnsOffice)
	v.want(t, "example.com b", dnsOffice, h.value("42", dnsEndpoint))
	if got, want := h.publishing(two), "published "+h.value("42", dnsEndpoint); got != want {
		t.Errorf("publish is %q, want %q", got, want)
	}
}

// TestSyncTwoProvidersOfOneDomain has two services of one domain at two providers:
// neither withdraws what the other has published.
func TestSyncTwoProvidersOfOneDomain(t *testing.T) {
	h, v := newVendorHost(t)
	other := h.vendor("other")
	h.reserve(h.service("example.com"), "office", 42)
	two := h.reserve(h.service("example.com", dnsAccount("other", "", "key", "s")...), "office", 42)
	for range 2 {
		if r := h.run(); !r.OK() {
			t.Errorf("%+v", r)
		}
		v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
		other.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
	}
	other.fails(dnsFault(provider.Temporary))
	h.publish(two, "tcp://192.0.2.1:1")
	h.run()
	v.want(t, servertest.Zone, dnsOffice, h.value("42", "tcp://192.0.2.1:1"))
}

// TestSyncElder reserves a name for two networks while the clock goes back: the
// one that was reserved first has it.
func TestSyncElder(t *testing.T) {
	h, v := newVendorHost(t)
	h.ahead.Store(int64(time.Hour))
	ids := 100
	h.store.newID = func() (string, error) { ids--; return fmt.Sprintf("id-%03d", ids), nil }
	elder := h.reserve(h.service("example.com"), "office", 99)
	h.ahead.Store(0)
	younger := h.reserve(h.service("example.com"), "office", 1)
	wantReport(t, h.run(), dnsHost+" create", dnsOffice+" conflict network_conflict", dnsOffice+" create")
	v.want(t, servertest.Zone, dnsOffice, h.value("99", dnsEndpoint))
	for u, want := range map[string]string{
		h.publishing(elder): "published " + h.value("99", dnsEndpoint), h.publishing(younger): "conflict network_conflict",
	} {
		if u != want {
			t.Errorf("publish is %q, want %q", u, want)
		}
	}
}

// TestSyncConfigurationTakesNoName gives the configuration's record the name of a
// usage: there it is the conflict, whoever came first.
func TestSyncConfigurationTakesNoName(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("published first %t", first), func(t *testing.T) {
			h, v := newVendorHost(t)
			name := func() { h.change(func(c *configuration) { c.TXTRecordName = "_mesh.office" }) }
			if first {
				name()
				h.run()
				v.want(t, servertest.Zone, dnsOffice, h.value("", dnsEndpoint))
			}
			u := h.reserve(h.service("example.com"), "office", 42)
			name()
			if r := h.run(); r.Bad != 1 || r.FirstBad().Network != "" || r.FirstBad().Fault.Code != reconcile.CodeNetworkConflict {
				t.Errorf("%+v", r)
			}
			v.want(t, servertest.Zone, dnsOffice, h.value("42", dnsEndpoint))
			h.release(u, true)
			h.run()
			v.want(t, servertest.Zone, dnsOffice, h.value("", dnsEndpoint))
		})
	}
}

// TestSyncCopies has our value stand in several records: one stays.
func TestSyncCopies(t *testing.T) {
	h, v := newVendorHost(t)
	h.run()
	v.put(servertest.Zone, dnsHost, provider.TXT{h.value("", dnsEndpoint)})
	wantReport(t, h.run(), dnsHost+" update")
	v.want(t, servertest.Zone, dnsHost, h.value("", dnsEndpoint))
	wantReport(t, h.run(), "1 unchanged")
}

// TestSyncDeadlineIsNoFailure ends the waiting for a pass, and then the program:
// no record counts as failed by that, and the last whole report stays.
func TestSyncDeadlineIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := newVendorHost(t)
		h.reserve(h.service("example.com"), "office", 42)
		h.run()
		before, _, _ := h.engine.Last(t.Context())
		_, open := v.holds("read", dnsOffice)
		defer open()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := h.engine.Sync(ctx, false); !errors.Is(err, reconcile.ErrUnfinished) {
			t.Errorf("%v", err)
		}
		h.wantPlaces(dnsOffice, "published "+h.value("42", dnsEndpoint))
		if last, _, _ := h.engine.Last(t.Context()); !last.OK() || !last.FinishedAt.Equal(before.FinishedAt) {
			t.Errorf("the last report is %+v", last)
		}
		time.AfterFunc(time.Second, open)
		h.stop()
		h.wantPlaces(dnsOffice, "published "+h.value("42", dnsEndpoint))
		if last, _, _ := h.engine.Last(t.Context()); !last.OK() || !last.FinishedAt.Equal(before.FinishedAt) {
			t.Errorf("after the end the last report is %+v", last)
		}
	})
}

// TestSyncCopiedDatabase runs a copy of the database on a second host: each sees
// its values changed by somebody with its mark, and says so.
func TestSyncCopiedDatabase(t *testing.T) {
	h, _ := newVendorHost(t)
	h.run()
	copied := h.copied(t)
	there := meshtxt.Addresses{IPv4: netip.MustParseAddr("198.51.100.99")}
	copied.knows(there, there)
	var r reconcile.Report
	for range 4 {
		copied.run()
		r = h.run()
	}
	if !r.OK() || r.Counts["warning"] != 1 || !slices.Equal(dnsReportLines(r), []string{dnsHost + " update same_owner_elsewhere"}) {
		t.Errorf("%+v", r)
	}
	if text := h.log.String(); !strings.Contains(text, reconcile.CodeSameOwner) {
		t.Errorf("log: %s", text)
	}
	copied.stop()
	for range 2 {
		r = h.run()
	}
	wantReport(t, r, "1 unchanged")
}

// TestSyncTwoPrograms opens one database a second time.
func TestSyncTwoPrograms(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	for _, path := range []string{h.store.path, filepath.Join(filepath.Dir(h.store.path), ".", "x", "..", filepath.Base(h.store.path))} {
		if s, err := openStore(t.Context(), path, h.logger()); err == nil || !strings.Contains(err.Error(), "in use") {
			t.Errorf("%s: %v, %v", path, s, err)
		}
	}
}

// TestDNSUsageAsStored tells the name that is stored, also when the service is
// changed meanwhile.
func TestDNSUsageAsStored(t *testing.T) {
	h := newSyncHost(t, dnsBuiltinServer)
	service := h.service("example.com", "provider", builtin.Name)
	stored, wait := make(chan struct{}), make(chan struct{})
	first := true
	h.store.newID = func() (string, error) {
		if first {
			first = false
			close(stored)
			<-wait
		}
		return newUUID()
	}
	made := make(chan usage, 1)
	go func() {
		u := usage{ServiceID: service, Mode: modeCustom, Prefix: "office"}
		u.Network.Valid = true
		u, err := h.store.CreateUsage(context.Background(), u)
		if err != nil {
			t.Error(err)
		}
		made <- u
	}()
	dnsWait(t, stored)
	h.reconfigure(service, dnsConfig("example.net", "provider", builtin.Name))
	close(wait)
	u := dnsWait(t, made)
	if again, err := h.store.Usage(t.Context(), u.ID); err != nil || u.Name != "_mesh.office.example.net" || again.Name != u.Name || again.Domain != u.Domain {
		t.Errorf("told %q in %q, stored %q in %q, %v", u.Name, u.Domain.V, again.Name, again.Domain.V, err)
	}
}
