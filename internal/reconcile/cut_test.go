package reconcile_test

import (
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/provider"
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
