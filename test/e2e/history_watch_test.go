package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/provider"
)

// The built-in server is asked all the time for the names that may not be without a value.

// heard is what a DNS server answers: a code and values.
type heard struct {
	rcode  dns.Rcode
	values []string
}

func (s heard) String() string { return fmt.Sprintf("code %d with %q", s.rcode, s.values) }

// query asks a DNS server for the records of a spot's name.
func query(t *testing.T, server, name string) (s heard, err error) {
	owner, err := dns.ParseName(bare(name))
	if err != nil {
		return s, err
	}
	question := dns.Question{Name: owner, Type: provider.Type(kindOf(name)).Wire(), Class: dns.ClassIN}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	message := dns.Message{Questions: []dns.Question{question}}
	data, err := dns.ExchangeTCP(ctx, server, message.Pack())
	if err != nil {
		return s, err
	}
	answer, err := dns.ParseMessage(data)
	if err != nil {
		return s, err
	}
	s.rcode = answer.Rcode
	for _, rr := range answer.Answers {
		if rr.Type == question.Type && rr.Name.Fold() == owner.Fold() {
			_, text := recordText(t, rr.Type, rr.Data)
			s.values = append(s.values, text)
		}
	}
	return s, nil
}

// resolve is query that must be answered.
func (w *history) resolve(server, name string) heard {
	w.t.Helper()
	s, err := query(w.t, server, name)
	if err != nil {
		w.fail("DNS: %v", err)
	}
	return s
}

// watchDNS asks the built-in server for the guarded names until stop is called.
func (w *history) watchDNS() (stop func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		ticks := time.NewTicker(watchPause)
		defer ticks.Stop()
		for {
			select {
			case <-done:
				return
			case <-ticks.C:
				w.watchNames()
			}
		}
	}()
	stop = sync.OnceFunc(func() {
		close(done)
		<-ended
	})
	w.t.Cleanup(stop)
	return stop
}

const watchPause = 5 * time.Millisecond

// alive gives the program while it runs.
func (w *history) alive() *program {
	w.running.Lock()
	defer w.running.Unlock()
	if w.killed {
		return nil
	}
	return w.p
}

// watchNames asks once for every guarded name that stood at the built-in server when its guard was set.
func (w *history) watchNames() {
	h := w.host
	h.mu.Lock()
	at, guards := h.guarded, slices.Collect(maps.Keys(h.resolved))
	h.mu.Unlock()
	p := w.alive()
	if p == nil {
		return
	}
	for _, g := range guards {
		s, err := query(w.t, p.dns, g.name)
		if err != nil || w.alive() != p || slices.ContainsFunc(s.values, func(text string) bool { return h.holds(text, g) }) {
			continue
		}
		h.mu.Lock()
		if h.guarded == at && h.guards[g] && h.resolved[g] && !h.hasAt(g) {
			h.broken = append(h.broken, fmt.Sprintf("gap in DNS: %s (network %q) is answered with %v, and stands nowhere else", g.name, g.network, s))
			delete(h.resolved, g)
		}
		h.mu.Unlock()
	}
	w.tally.add("names asked while something changes", len(guards))
}

// guardSiblings guards the records without marks that are wanted before and after a change, and that
// nothing of others keeps from standing. The record with our mark stands: values beside one that does not may be
// leftovers of another network. The caller has the lock.
func (w *history) guardSiblings(was, then *wish, there []found) {
	if then == nil || then.network != was.network || was.optional || then.optional || was.bad != then.bad {
		return
	}
	before := w.wantedSiblings(map[string]*wish{"": was})
	after := w.wantedSiblings(map[string]*wish{"": then})
	blocked := func(x *sibling) bool {
		return x.open || slices.ContainsFunc(x.at, func(at siblingAt) bool { return at.blocked })
	}
	for name, x := range before {
		y := after[name]
		if g := (guard{name, unmarked}); y != nil && !blocked(x) && !blocked(y) && w.host.standsOr(g, there) {
			w.host.guards[g] = true
			w.resolves(g, there)
		}
	}
}

// resolves has a guarded name asked for by DNS, if it is at the built-in server since the last rest: a
// record that was just committed may not be answered yet.
func (w *history) resolves(g guard, there []found) {
	before := slices.DeleteFunc(slices.Clone(w.before), func(f found) bool { return f.account != nil })
	if w.host.isThere(g, there) && w.host.isThere(g, before) {
		w.host.resolved[g] = true
	}
}

func (h *host) isThere(g guard, there []found) bool {
	return slices.ContainsFunc(there, func(f found) bool { return f.name == g.name && h.holds(f.text, g) })
}

// standsOr is stands with what the built-in server has.
func (h *host) standsOr(g guard, there []found) bool { return h.hasAt(g) || h.isThere(g, there) }
