package cloudtest

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// kinds are the types of records of a stand-in that has more than TXT.
var kinds = []string{"TXT", "A", "AAAA", "SRV"}

// rightData reports whether a record of a kind can have the data. For TXT each vendor has rules of its own.
func rightData(kind, text string) bool {
	switch kind {
	case "A", "AAAA":
		at, err := netip.ParseAddr(text)
		return err == nil && at.Is4() == (kind == "A")
	case "SRV":
		fields := strings.Fields(text)
		if len(fields) != 4 {
			return false
		}
		wrong := func(field string) bool {
			_, err := strconv.ParseUint(field, 10, 16)
			return err != nil
		}
		return !slices.ContainsFunc(fields[:3], wrong)
	}
	return slices.Contains(kinds, kind) && text != ""
}

// Records gives the data of the records of a kind at a name, as the vendor spells it.
func (c *Cloud) Records(t testing.TB, name, kind string) (texts []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.records {
		if r.name == fold(name) && r.kind == kind && !r.off {
			texts = append(texts, r.content)
		}
	}
	return texts
}

// AddRecord makes a record of a kind other than TXT, as another user of the account would. The vendor
// keeps the spelling.
func (c *Cloud) AddRecord(t testing.TB, name, kind, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.insert(name, kind, text, max(c.MinTTL, 1)).hidden = 0
}

// SwitchOff switches the records of a kind at a name off, as another user would, or on again.
func (c *Cloud) SwitchOff(name, kind string, off bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	for _, r := range c.records {
		if r.name == fold(name) && r.kind == kind {
			r.off = off
		}
	}
}

// RemoveRecord takes a record away, as another user would.
func (c *Cloud) RemoveRecord(t testing.TB, name, kind, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.records = slices.DeleteFunc(c.records, func(r *record) bool {
		return r.name == fold(name) && r.kind == kind && r.content == text
	})
}
