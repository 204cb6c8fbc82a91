package reconcile

import (
	"maps"
	"slices"
	"time"
)

const (
	// crowdAfter bounds the changed records of a zone that have a line each in one crowdTime.
	crowdAfter = 9
	crowdTime  = time.Second
)

// crowd is the changed records of one zone in one crowdTime.
type crowd struct {
	lines int
	more  map[string]*counted // records without a line of their own, by level, action and code
}

// counted is a group of records with one line.
type counted struct {
	names int
	first Outcome
}

// changes logs a changed record. It counts the records of a zone after the first
// crowdAfter, and logs their number in one line when crowdTime is over or a pass ends.
func (n *news) changes(o Outcome) {
	key := o.Provider + " " + o.Zone
	c := n.crowds[key]
	if c == nil {
		if n.crowds == nil {
			n.crowds = map[string]*crowd{}
		}
		c = &crowd{more: map[string]*counted{}}
		n.crowds[key] = c
		time.AfterFunc(crowdTime, func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.crowdEnds(c)
			delete(n.crowds, key)
		})
	}
	if c.lines < crowdAfter {
		c.lines++
		n.record(o)
		return
	}
	kind := o.level().String() + " " + o.Action + " " + o.Fault.Code
	if c.more[kind] == nil {
		c.more[kind] = &counted{first: o}
	}
	c.more[kind].names++
}

// crowdEnds logs the counted records of a crowd, one line for each kind.
func (n *news) crowdEnds(c *crowd) {
	for _, kind := range slices.Sorted(maps.Keys(c.more)) {
		names, first := c.more[kind].names, c.more[kind].first
		n.journal.add(first.level(), "records", "names", names, "first", first.Sibling.Of(first.Name), "provider", first.Provider, "zone", first.Zone,
			"action", first.Action, "code", first.Fault.Code, "detail", first.Fault.Detail)
	}
	clear(c.more)
}

// crowdsEnd logs the counted records of all crowds.
func (n *news) crowdsEnd() {
	for _, key := range slices.Sorted(maps.Keys(n.crowds)) {
		n.crowdEnds(n.crowds[key])
	}
}
