package reconcile_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
	"meshddns/internal/reconcile"
)

// TestDelegatedPart: below NS records, where no resolver sees a value, nothing is written. A value that stands there
// already is a conflict and can be withdrawn.
func TestDelegatedPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("mesh.example.com", w.account("key"))
		first := w.reserve("mesh.example.com", "a")
		w.vendor.put(at("mesh.example.com", provider.NS), "ns.elsewhere.example")
		wantOutcomes(t, w.sync(time.Minute), "_host.example.com create", first+" conflict conflict")
		if w.vendor.stands(first) {
			t.Error("a value is written below a delegation")
		}
		w.vendor.put(at("mesh.example.com", provider.NS))
		wantOutcomes(t, w.sync(time.Minute), first+" create")
		w.vendor.put(at("mesh.example.com", provider.NS), "ns.elsewhere.example")
		wantOutcomes(t, w.sync(time.Minute), first+" conflict conflict")
		w.release(first)
		wantOutcomes(t, w.sync(time.Minute), first+" delete")
		if w.vendor.stands(first) {
			t.Error("the value is not withdrawn")
		}
	})
}

// TestReleaseBelowDelegation: where a delegation hides what stands, a release waits for it, and takes it away after the
// delegation has gone.
func TestReleaseBelowDelegation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, "auto")
		w.service("mesh.example.com", w.account("key"))
		first := w.reserve("mesh.example.com", "a")
		w.sync(time.Minute)
		w.vendor.on(func(_ context.Context, what, _ string) error {
			if what == "read" {
				return provider.Delegated("mesh.example.com")
			}
			return nil
		})
		w.release(first)
		wantOutcomes(t, w.sync(time.Minute), "_host.example.com conflict conflict", first+" leftover conflict")
		after(2 * reconcile.SecondLook)
		if w.count(`SELECT count(*) FROM places WHERE name = '`+first+`' AND standing <> ''`) != 1 {
			t.Error("the value is forgotten")
		}
		w.vendor.on(func(context.Context, string, string) error { return nil })
		w.sync(time.Minute)
		if w.vendor.stands(first) {
			t.Error("the value is not withdrawn")
		}
	})
}
