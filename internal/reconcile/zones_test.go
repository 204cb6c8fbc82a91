package reconcile_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
)

// fails makes every call to the vendor fail.
func fails(kind provider.Kind) func(context.Context, string, string) error {
	return func(context.Context, string, string) error { return &provider.Error{Kind: kind, Detail: "no secret"} }
}

func works(context.Context, string, string) error { return nil }

// TestOutageIsToldInFull has a zone fail for 100 s. The log tells of it when its names have failed for
// good, and counts its time from the first failure.
func TestOutageIsToldInFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.exec(`UPDATE configuration SET max_retries = 3`)
		w.vendor.on(fails(provider.Network))
		w.start()
		began := time.Now()
		after(100 * time.Second)
		if !strings.Contains(w.log.String(), "zone is down") {
			t.Fatalf("the outage is not told:\n%s", w.log.String())
		}
		w.vendor.on(works)
		for !strings.Contains(w.log.String(), "zone is well again") {
			after(time.Second)
		}
		_, told, _ := strings.Cut(w.log.String(), "zone is well again")
		_, told, _ = strings.Cut(told, "after=")
		told, _, _ = strings.Cut(told, "\n")
		lasted, err := time.ParseDuration(told)
		if whole := time.Since(began); err != nil || lasted < whole-3*time.Second || lasted > whole {
			t.Errorf("%q after an outage of %v, %v:\n%s", told, whole, err, w.log.String())
		}
	})
}

// TestZoneState is the life of a zone as an operator sees it.
func TestZoneState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		account := w.account("key")
		want := func(step, code string, since time.Time) {
			t.Helper()
			z, known := w.engine.Zone(account, "example.com")
			if !known || z.Zone != "example.com" || z.Provider != "vendor" || z.Fault.Code != code || z.Since.Sub(since).Abs() > time.Second {
				t.Errorf("%s: %+v %t, want %q since %v", step, z, known, code, since)
			}
			if down := w.engine.DownZones(); len(down) > 0 != (code != "") || strings.Contains(z.Fault.Detail.String(), "secret") {
				t.Errorf("%s: %+v, down %+v", step, z, down)
			}
		}
		if z, known := w.engine.Zone(account, "example.com"); known || len(w.engine.DownZones()) > 0 {
			t.Errorf("before the start: %+v", z)
		}
		w.sync(time.Minute)
		well := time.Now()
		want("well", "", well)
		after(time.Hour)
		want("an hour later", "", well)
		w.exec(`UPDATE configuration SET max_retries = 1`)
		w.vendor.on(fails(provider.Network))
		bad := time.Now()
		w.begin(false)
		after(time.Second)
		want("not given up yet", "", well)
		after(time.Hour)
		want("down", "network", bad)
		w.vendor.on(fails(provider.BadCredentials))
		after(time.Hour)
		want("down for another reason", "credentials", bad)
		w.vendor.on(fails(provider.ZoneNotFound))
		after(time.Hour)
		want("the zone is gone", "zone_not_found", bad)
		if n := w.count(`SELECT count(*) FROM zones_down`); n != 0 {
			t.Error("a zone that is gone counts as down")
		}
		w.vendor.on(works)
		good := time.Now()
		w.sync(time.Minute)
		want("well again", "", good)
		w.vendor.on(fails(provider.ZoneNotFound))
		gone := time.Now()
		w.sync(time.Minute)
		want("the zone is gone once more", "zone_not_found", gone)
		if n := strings.Count(w.log.String(), "zone is down"); n != 2 {
			t.Errorf("told %d times that the zone is down, want once for each reason:\n%s", n, w.log.String())
		}
	})
}

// TestDownZones has two accounts of one vendor fail at one zone, one after the other, beside another zone: it is one
// zone that is down, since the first failure. What two passes have not met is not known any more.
func TestDownZones(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "manual")
		second := w.account("second")
		w.service("b.example", w.account("key"))
		w.service("a.b.example", second)
		w.service("a.example", w.account("key"))
		w.vendor.on(func(_ context.Context, _, name string) error {
			if strings.HasSuffix(name, "b.example") {
				return &provider.Error{Kind: provider.Temporary}
			}
			return nil
		})
		w.reserve("b.example", "x")
		w.reserve("a.example", "x")
		w.sync(time.Minute)
		first := time.Now()
		after(time.Minute)
		w.exec(`UPDATE services SET zone = 'b.example' WHERE id = 'a.b.example'`)
		name := w.reserve("a.b.example", "y")
		w.sync(time.Minute)
		if z, known := w.engine.Zone(second, "b.example"); !known || z.Since.Sub(first) < time.Minute {
			t.Errorf("the second account: %+v %t", z, known)
		}
		down := w.engine.DownZones()
		if len(down) != 1 || down[0].Zone != "b.example" || down[0].Fault.Code != "temporary" || first.Sub(down[0].Since).Abs() > time.Second {
			t.Errorf("down are %+v, want one since %v", down, first)
		}
		w.exec(`DELETE FROM bindings WHERE provider_id = 'a.b.example'; DELETE FROM usages WHERE provider_id = 'a.b.example'; DELETE FROM names WHERE name = ?`, name)
		for range 3 {
			w.sync(time.Minute)
		}
		if z, known := w.engine.Zone(second, "b.example"); known {
			t.Errorf("what no pass meets is known: %+v", z)
		}
	})
}
