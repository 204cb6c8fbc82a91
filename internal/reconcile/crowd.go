package reconcile

import (
	"maps"
	"slices"
	"time"
)

const (
	// crowdAfter is how many changed records of a zone have a line each in one crowdTime.
	crowdAfter = 9
	crowdTime  = time.Second
)

// crowd are the changed records of one zone in one crowdTime.
type crowd struct {
	lines int
	more  map[string]*counted // records without a line of their own, by level, action and code
}

// counted are records that are one line together.
type counted struct {
	names int
	first Outcome
}

// changes tells of a changed record. Records after the first crowdAfter of a zone are counted, and
// one line has their number when the time is over or a pass ends.
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

// crowdEnds tells of the records that were counted, in a line for each kind.
func (n *news) crowdEnds(c *crowd) {
	for _, kind := range slices.Sorted(maps.Keys(c.more)) {
		names, first := c.more[kind].names, c.more[kind].first
		n.journal.add(first.level(), "records", "names", names, "first", first.Name, "provider", first.Provider, "zone", first.Zone,
			"action", first.Action, "code", first.Fault.Code, "detail", first.Fault.Detail)
	}
	clear(c.more)
}

// crowdsEnd tells of all records that were counted.
func (n *news) crowdsEnd() {
	for _, key := range slices.Sorted(maps.Keys(n.crowds)) {
		n.crowdEnds(n.crowds[key])
	}
}
