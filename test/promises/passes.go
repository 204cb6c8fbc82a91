package promises

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
	"meshddns/test/servertest"
	"meshddns/test/support"
)

// bubbles runs tests, each in a bubble with a clock of its own.
func bubbles(t *testing.T, tests map[string]func(t *testing.T)) {
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
	}
}

// TestLoop runs the engine in each mode, by a clock that the test turns.
func (suite publishing) TestLoop(t *testing.T) {
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
				h := suite.newHost(t, dnsBuiltinServer)
				h.change(members{"sync_mode": test.mode, "enabled": test.enabled})
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

// TestChangesGoAtOnce makes changes one after the other: each is written at once when its zone is
// at rest; what comes while a call is under way is written by the next call.
func (suite publishing) TestChangesGoAtOnce(t *testing.T) {
	for name, test := range map[string]struct {
		changes    int
		every, lag time.Duration   // lag: how long the provider takes for a write
		writes     []time.Duration // since the first change
	}{
		"one":    {1, 0, 0, []time.Duration{0}},
		"burst":  {50, time.Millisecond, time.Second, []time.Duration{0, time.Second}},
		"steady": {3, 600 * time.Millisecond, 0, []time.Duration{0, 600 * time.Millisecond, 1200 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, v := suite.newVendorHost(t)
				h.mode(modeAuto)
				u := h.reserve(h.service("example.com"), "office", 42)
				h.loop()
				dnsPass(10 * time.Second)
				started := time.Now()
				var writes []time.Duration
				v.fails(func(_ context.Context, c dnsCall) error {
					if c.what == "change" {
						writes = append(writes, time.Since(started).Round(100*time.Millisecond))
						<-time.After(test.lag)
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

// TestModeChanges turns automatic work on and off while the engine runs.
func (suite publishing) TestModeChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := suite.newHost(t, dnsBuiltinServer)
		h.exec(`DELETE FROM configuration`)
		h.loop()
		for _, mode := range []string{modeAuto, modeManual, modeAuto} {
			c := dnsConfiguration(dnsBuiltinServer)
			c["sync_mode"] = mode
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

// TestLoopGoesOn has the database fail for a while: the engine says so, works again
// after, and says that when it has lasted.
func (suite publishing) TestLoopGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := suite.newHost(t, dnsBuiltinServer)
		h.mode(modeAuto)
		h.exec(`ALTER TABLE configuration RENAME TO hidden`)
		h.loop()
		if text := h.log.String(); !strings.Contains(text, "level=ERROR") || !strings.Contains(text, "configuration") {
			t.Errorf("log: %s", text)
		}
		h.exec(`ALTER TABLE hidden RENAME TO configuration`)
		for after, told := range []int{0, 1} {
			dnsPass(25 * time.Second)
			h.wantStanding(dnsHost, h.text("", dnsEndpoint))
			if got := strings.Count(h.log.String(), "the database is well again"); got != told {
				t.Errorf("after %d s the log tells %d times that the database is well again, want %d", 25*(after+1), got, told)
			}
		}
	})
}

// TestDatabaseFails has the database refuse a statement: without the intent
// nothing is written to DNS, and without the outcome it is not believed.
func (suite publishing) TestDatabaseFails(t *testing.T) {
	if testing.Short() {
		t.Skip("long")
	}
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
				h := suite.newHost(t, dnsBuiltinServer)
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

func (suite publishing) TestNotBegun(t *testing.T) {
	h := suite.newHost(t, dnsBuiltinServer)
	h.change(members{"enabled": false})
	h.start()
	if _, err := h.engine.Sync(t.Context(), false); !errors.Is(err, reconcile.ErrDisabled) {
		t.Errorf("disabled: %v", err)
	}
	if r, err := h.engine.Preview(t.Context()); err != nil || r.Counts[reconcile.ActionCreate] != 1 {
		t.Errorf("a preview while disabled: %+v, %v", r, err)
	}
	h.exec(`DELETE FROM configuration`)
	if _, err := h.engine.Sync(t.Context(), false); !errors.Is(err, reconcile.ErrNotConfigured) {
		t.Errorf("not configured: %v", err)
	}
	if last, next, err := h.engine.Last(t.Context()); last != nil || !next.IsZero() || err != nil {
		t.Errorf("last %+v, next %v, %v", last, next, err)
	}
}

// TestJoin has many callers at once: they share one pass, and one that goes
// leaves the others their report of the whole.
func (suite publishing) TestJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		arrived, open := v.holds("change", dnsHost)
		starter, cancel := context.WithCancel(t.Context())
		h.begin(starter)
		<-arrived
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

// TestJoinChange joins a pass that a change has begun, and is told of orphans
// as by any pass that a person waits for.
func (suite publishing) TestJoinChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		h.mode(modeAuto)
		arrived, open := v.holds("change", dnsHost)
		h.loop()
		<-arrived
		v.put(servertest.Zone, dnsOffice, provider.Value{h.value("9")})
		call := h.begin(t.Context())
		synctest.Wait()
		open()
		wantReport(t, <-call, dnsHost+" create", dnsOffice+" orphan")
	})
}

// TestJoinSearch calls while a pass has searched a zone already: what came to
// stand there before the call is in its answer.
func (suite publishing) TestJoinSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		v.zones["key"] = append(v.zones["key"], "example.net")
		h.service("example.net", "provider", "vendor", "access_key_id", "key", "access_key_secret", "secret")
		arrived, opened := make(chan struct{}, 2), make(chan struct{})
		v.fails(func(_ context.Context, c dnsCall) error {
			if c.what == "list" && c.zone == "example.net" {
				arrived <- struct{}{}
				<-opened
			}
			return nil
		})
		h.begin(t.Context())
		<-arrived
		for _, zone := range v.zones["key"] {
			v.put(zone, "_mesh.office."+zone, provider.Value{h.value("9")})
		}
		call := h.begin(t.Context())
		synctest.Wait()
		close(opened)
		if r := <-call; r.Counts[reconcile.ActionOrphan] != 2 {
			t.Errorf("%+v", r)
		}
	})
}

// TestJoinAfterChange calls after a change, while a pass from before the
// change is under way: the report says what became of the change.
func (suite publishing) TestJoinAfterChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		arrived, open := v.holds("change", dnsHost)
		h.begin(t.Context())
		<-arrived
		h.reserve(h.service("example.com"), "office", 42)
		h.change(members{"txt_endpoints": []string{"tcp://192.0.2.1:1"}})
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

// TestRetries has a provider that fails: its zone is tried again after the
// configuration's pauses, and what is tried in vain is tried at the next pass.
func (suite publishing) TestRetries(t *testing.T) {
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
				h, v := suite.newVendorHost(t)
				h.change(members{"retry_interval": 2, "max_retries": 3})
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

// TestListedBeforeFault has a try fail after the name was listed once more, and
// before it is looked at again: what waits for its zone now is not tried at once.
func (suite publishing) TestListedBeforeFault(t *testing.T) {
	for _, nth := range []int{1, 2} { // lists during the try: of names that are due, and of the pass or the next round
		synctest.Test(t, func(t *testing.T) {
			h, v := suite.newVendorHost(t)
			h.change(members{"retry_interval": 2, "max_retries": 1})
			listed, settled := make(chan struct{}), make(chan struct{})
			count, tries := 0, 0
			var trying atomic.Bool
			h.listed = func(names []string) {
				if !trying.Load() || !slices.Contains(names, dnsHost) {
					return
				}
				switch count++; {
				case count < nth: // the pass may have listed the name before the try, and waits for it
					h.engine.Wake()
				case count == nth:
					close(listed)
					<-settled
				}
			}
			h.renew()
			var began, second time.Time
			v.fails(func(_ context.Context, c dnsCall) error {
				if c.what != "change" {
					return nil
				}
				if tries++; tries > 1 {
					second = time.Now()
					return nil
				}
				trying.Store(true)
				h.engine.Wake()
				<-listed
				began = time.Now()
				once := sync.OnceFunc(func() { close(settled) })
				h.committed = func(func()) { once() } // of what came of the try
				return &provider.Error{Kind: provider.Temporary}
			})
			wantReport(t, h.run(), dnsHost+" create")
			if second.Sub(began) < 2*time.Second || tries != 2 {
				t.Errorf("list %d: %d tries, the second after %v", nth, tries, second.Sub(began))
			}
		})
	}
}

// TestRetryIsRemembered has the database busy when a try that failed is
// stored: the next try is made all the same, and the pass waits for it.
func (suite publishing) TestRetryIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		h.change(members{"max_retries": 3})
		busy := false
		v.fails(func(_ context.Context, c dnsCall) error {
			if c.what != "change" || busy {
				return nil
			}
			busy = true
			tx, err := h.Writer.Begin()
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

// TestReportWaits has a name fail for good while the pass has nothing else to
// do: the report knows it.
func (suite publishing) TestReportWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		h.change(members{"max_retries": 1})
		v.fails(dnsFault(provider.Temporary, "change"))
		h.committed = func(wake func()) {
			if wake(); v.called("change") == 2 {
				<-time.After(time.Second) // the outcome is stored, and the engine does not know it yet
			}
		}
		wantReport(t, h.run(), dnsHost+" failed temporary")
	})
}

// TestSweepJoins asks for a sweep while a pass without one runs.
func (suite publishing) TestSweepJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		v.put(servertest.Zone, dnsOffice, provider.Value{h.value("42", dnsEndpoint)})
		arrived, open := v.holds("change", dnsHost)
		call := h.begin(t.Context())
		<-arrived
		time.AfterFunc(time.Second, open)
		if r := h.sweep(); !r.OK() {
			t.Errorf("%+v", r)
		}
		wantReport(t, <-call, dnsHost+" create", dnsOffice+" orphan")
		v.want(t, servertest.Zone, dnsOffice)
	})
}

// TestOrphansWait has a value of ours stand at a name that is being looked at
// for the first time when all other names are through: it is no orphan.
func (suite publishing) TestOrphansWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		h.reserve(h.service("example.com"), "office", 42)
		v.put(servertest.Zone, dnsOffice, provider.Value{h.value("42", dnsEndpoint)})
		arrived, open := v.holds("read", dnsOffice)
		call := h.begin(t.Context())
		<-arrived
		dnsPass(time.Second)
		open()
		wantReport(t, <-call, dnsHost+" create", "1 unchanged")
	})
}

// TestRunIdle has nothing to do, in each mode: the engine does not look for work again and again.
func (suite publishing) TestRunIdle(t *testing.T) {
	for _, mode := range []string{modeManual, modeAuto} {
		t.Run(mode, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h, _ := suite.newVendorHost(t)
				h.mode(mode)
				h.run()
				dnsPass(2 * dnsLookAgain)
				before := h.rounds.Load()
				dnsPass(time.Minute)
				if n := h.rounds.Load() - before; n > 3 {
					t.Errorf("%d rounds in a minute", n)
				}
			})
		})
	}
}

// TestRunStopped stops the engine before it has begun: that is no fault.
func (suite publishing) TestRunStopped(t *testing.T) {
	h := suite.newHost(t, dnsBuiltinServer)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for range 20 { // which of its reasons to go on it sees first is chance
		support.Must(t, h.engine.Run(ctx))
	}
}

// TestThrottled has a provider that asks for a pause of an hour: it gets it,
// and all other zones go on.
func (suite publishing) TestThrottled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		h.mode(modeAuto)
		h.change(members{"max_retries": 3})
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

// TestAudit looks at many unchanged names at the interval: no faster than its
// rate, while a change is made at once.
func (suite publishing) TestAudit(t *testing.T) {
	const names = 3500
	synctest.Test(t, func(t *testing.T) {
		h := suite.newHost(t, dnsBuiltinServer)
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
func (h *host) many(service string, count int) {
	h.t.Helper()
	h.exec(fmt.Sprintf(`
		WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < %d)
		INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
		SELECT 'many-' || i, '%s', 'mesh_sync', 'custom', 'many' || i, 'TXT', '', 1, '[]', '_mesh.many' || i || '.example.com', '' FROM n;
		INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status)
		SELECT seq, id, seq, id, provider_id, 'active' FROM usages WHERE id LIKE 'many-%%';
		INSERT INTO names (name, version, due, lane, pass) SELECT name, 1, 1, '', 0 FROM usages WHERE id LIKE 'many-%%'`, count, service))
}

// testPassIsCut stops the program in a pass over many names that a caller has asked for: the next program begins it
// anew without a further caller, and the report counts each name once, also those that had failed before.
func (suite publishing) TestPassIsCut(t *testing.T) {
	const names = 3500
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		h.many(h.service("example.com"), names)
		if r := h.run(); !r.OK() || r.Names != names+1 {
			t.Errorf("%d names, want %d", r.Names, names+1)
		}
		v.fails(func(_ context.Context, c dnsCall) error {
			switch {
			case c.what == "list":
				return &provider.Error{Kind: provider.Permission, Err: provider.ErrNotListed}
			case c.what == "read" && c.name == "_mesh.many1.example.com":
				return &provider.Error{Kind: provider.Quota}
			case c.what == "read":
				<-time.After(10 * time.Millisecond)
			}
			return nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		h.begin(ctx)
		dnsPass(2 * time.Second)
		if n := h.count(`SELECT count(*) FROM names WHERE pass / 2 = 2`); n == 0 || n > names {
			t.Fatalf("%d names are counted when the program stops", n)
		}
		cancel()
		began := time.Now()
		h.restart()
		dnsPass(time.Minute)
		r, _, err := h.engine.Last(t.Context())
		if err != nil || r.Trigger != reconcile.TriggerManual || r.Names != names+1 || r.Bad != 1 || r.FirstBad().Name != "_mesh.many1.example.com" || r.StartedAt.Before(began) {
			t.Errorf("the report counts %d names, %d bad: %+v, %v", r.Names, r.Bad, r.FirstBad(), err)
		}
	})
}

// TestDeadlineIsNoFailure ends the waiting for a pass, and then the program:
// no record counts as failed by that, and the last whole report stays.
func (suite publishing) TestDeadlineIsNoFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
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

// TestLogTellsOfChanges has a provider fail, and a stranger hold a name, for many
// intervals: each is told when it begins, when the reason is another, and when it ends.
func (suite publishing) TestLogTellsOfChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, v := suite.newVendorHost(t)
		service := h.service("example.com")
		for n := range 50 {
			h.reserve(service, fmt.Sprintf("name%d", n), uint64(n+1))
		}
		h.mode(modeAuto)
		h.loop()
		dnsPass(time.Minute)
		for _, step := range []struct {
			what      string
			change    func()
			intervals int
			want      []string // the lines, each by its beginning
		}{
			{"all is well", func() {}, 20, nil},
			{"down", func() { v.fails(dnsFault(provider.Network)) }, 20, []string{
				"WARN \"zone is down\" zone=example.com provider=vendor code=network detail=zone names=51", "WARN synchronised trigger=interval names=51 failed=51"}},
			{"slow by turns", func() { v.fails(dnsFault(provider.Temporary)) }, 3, nil},
			{"another reason", func() { v.fails(dnsFault(provider.BadCredentials)) }, 20, []string{
				"WARN \"zone is down\" zone=example.com provider=vendor code=credentials detail=zone names=51"}},
			{"well again", v.works, 20, []string{
				"INFO \"zone is well again\" zone=example.com provider=vendor code=credentials after=", "INFO synchronised trigger=interval names=51 failed=0"}},
			{"a stranger", func() { v.put("example.com", "_mesh.name7.example.com", provider.Value{dnsStranger}) }, 20, []string{
				"WARN record name=_mesh.name7.example.com provider=vendor action=conflict code=conflict", "WARN synchronised trigger=interval names=51 failed=1"}},
			{"no quota", func() {
				v.fails(func(_ context.Context, c dnsCall) error {
					if c.what == "read" || c.what == "list" {
						return &provider.Error{Kind: provider.Quota, Detail: "month \u202e\x1b[2J"}
					}
					return nil
				})
			}, 20, slices.Concat(slices.Repeat([]string{"WARN record name="}, 9), []string{
				"WARN synchronised trigger=interval names=51 failed=51", "WARN records names=42"})},
			{"well at last", func() { v.works(); v.remove("example.com", "_mesh.name7.example.com", dnsStranger) }, 20, slices.Concat(
				slices.Repeat([]string{"INFO record name="}, 9), []string{"INFO synchronised trigger=interval names=51 failed=0", "INFO records names="})},
			{"down again", func() { v.fails(dnsFault(provider.Network)) }, 20, []string{
				"WARN \"zone is down\" zone=example.com", "WARN synchronised trigger=interval names=51 failed=51"}},
			{"another run of the program", h.restart, 20, []string{
				"WARN \"zone is down\" zone=example.com", "WARN synchronised trigger=start names=51 failed=51"}},
		} {
			before := len(h.log.String())
			step.change()
			dnsPass(time.Duration(step.intervals) * 6 * time.Minute)
			wantLines(t, step.what, h.log.String()[before:], step.want)
		}
	})
}

// wantLines compares the lines of a log, without time and level, with the beginnings of others.
func wantLines(t *testing.T, what, log string, want []string) {
	t.Helper()
	var got []string
	for line := range strings.Lines(log) {
		_, line, _ = strings.Cut(strings.TrimSpace(line), " level=")
		got = append(got, strings.Replace(line, "msg=", "", 1))
	}
	if strings.ContainsAny(strings.Join(got, ""), "\u202e\x1b") {
		t.Errorf("%s: %q", what, got)
	}
	ok := len(got) == len(want)
	for i := 0; ok && i < len(got); i++ {
		ok = strings.HasPrefix(got[i], want[i])
	}
	if !ok {
		t.Errorf("%s: %d lines\n%.3000s\nwant\n%s", what, len(got), strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// A record whose work panics fails, and the others are published.
func (suite publishing) TestCrashedRecord(t *testing.T) {
	h, v := suite.newVendorHost(t)
	service := h.service(servertest.Zone)
	h.reserve(service, "office", 1)
	h.reserve(service, "home", 2)
	v.fails(func(_ context.Context, c dnsCall) error {
		if c.name == dnsOffice && c.what == "change" {
			panic("injected")
		}
		return nil
	})
	r := h.run()
	if r.Bad != 1 || r.FirstBad().Name != dnsOffice || !strings.Contains(string(r.FirstBad().Fault.Detail), "panic: injected") {
		t.Errorf("%+v", r)
	}
	if n := strings.Count(h.log.String(), "passes.go"); n == 0 {
		t.Errorf("no stack in the log:\n%s", h.log)
	}
	v.works()
	if r := h.run(); r.Bad != 0 {
		t.Errorf("%+v", r)
	}
}
