package secondary

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"time"

	"meshddns/internal/dnswire"
	"meshddns/internal/events"
	"meshddns/internal/metrics"
	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
	"meshddns/internal/tasks"
)

const (
	apart       = time.Second     // between two messages about one zone to one secondary
	firstPause  = time.Second     // until a message is repeated; it doubles
	longest     = 5 * time.Minute // the longest such pause
	answerTime  = 2 * time.Second // for the answer to a message
	atOnce      = 16              // messages under way
	behindAfter = time.Minute     // the lag that is told as an event
	lookEvery   = 5 * time.Second // between two looks at lags
	maxAhead    = 1 << 24         // a serial further ahead of ours, 194 days, is a mistake
)

// Zones are the zones that secondaries take.
type Zones interface {
	// All returns the zones and their serials.
	All(ctx context.Context) (map[string]uint32, error)
	// SOA returns the SOA record of a zone; ok is false if there is no such zone.
	SOA(ctx context.Context, zone string) (soa dnswire.RR, serial uint32, ok bool, err error)
	// MovePast gives a zone a serial after another one.
	MovePast(ctx context.Context, zone string, serial uint32) error
}

// Notifier tells secondaries of new versions of zones, and knows which ones they have.
type Notifier struct {
	*Table
	zones  Zones
	from   netip.Addr // of the messages; not valid: the system chooses
	events *events.Log
	log    *slog.Logger
	wake   chan struct{}

	mu     sync.Mutex
	states map[pair]*state
	counts [2]uint64       // messages without and with an answer
	told   map[string]bool // secondaries whose lag was told
}

// pair is a secondary and a zone.
type pair struct{ id, zone string }

// state is what is known of a zone at a secondary.
type state struct {
	serial   uint32    // the newest version
	moved    time.Time // when the secondary fell behind
	fetched  uint32
	known    bool   // fetched is known
	sent     bool   // this process has sent fetched
	ahead    uint32 // a version that the secondary has from a lost database, not before ours; 0: none
	passed   bool   // the zone was moved past such a version
	notified time.Time
	due      time.Time // of the next message; zero: none
	pause    time.Duration
	busy     bool // a message is under way
	fault    error
}

// behind reports whether the secondary has not fetched the newest version.
func (s *state) behind() bool { return !s.known || int32(s.serial-s.fetched) > 0 }

// NewNotifier returns the secondaries of a database, and no zones. Load reads them.
func NewNotifier(db *sqlite.Database, log *events.Log, logger *slog.Logger) *Notifier {
	return &Notifier{Table: newTable(db), zones: none{}, events: log, log: logger, wake: make(chan struct{}, 1), states: map[pair]*state{}, told: map[string]bool{}}
}

// Serve sets the zones, before Run and before any request. Messages come from an address, if it is
// valid.
func (n *Notifier) Serve(zones Zones, from netip.Addr) { n.zones, n.from = zones, from }

// none has no zone.
type none struct{}

func (none) All(context.Context) (map[string]uint32, error) { return nil, nil }

func (none) SOA(context.Context, string) (soa dnswire.RR, serial uint32, ok bool, err error) { return }

func (none) MovePast(context.Context, string, uint32) error { return nil }

// Moved tells that a zone has a new serial. An older one than is known is that of an earlier commit, whose
// notice came later.
func (n *Notifier) Moved(zone string, serial uint32) {
	now := time.Now()
	n.mu.Lock()
	for _, s := range n.known() {
		at := pair{s.ID, zone}
		if known := n.states[at]; s.takes(zone) && (known == nil || int32(serial-known.serial) > 0) {
			n.move(at, serial, now)
		}
	}
	n.mu.Unlock()
	n.look()
}

// look makes Run look at what is due.
func (n *Notifier) look() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// move makes a message due. The caller holds the lock.
func (n *Notifier) move(at pair, serial uint32, now time.Time) {
	s := n.states[at]
	if s == nil {
		s = &state{}
		n.states[at] = s
	}
	if s.moved.IsZero() {
		s.moved = now
	}
	s.serial = serial
	s.pause, s.due = firstPause, now
	if next := s.notified.Add(apart); next.After(now) {
		s.due = next
	}
}

// Fetched tells that a secondary has got a version of a zone. One before the last such version is that of
// an earlier transfer, which ended later.
func (n *Notifier) Fetched(from netip.Addr, key, apex dnswire.Name, serial uint32) {
	for at, s := range n.of(from, key, apex) {
		if s == nil {
			s = &state{serial: serial}
			n.states[at] = s
		}
		if int32(serial-s.serial) > 0 {
			s.serial = serial
		}
		if !s.sent || int32(serial-s.fetched) > 0 {
			s.has(serial, true)
		}
	}
}

// Names tells that a secondary names a version of a zone as the one that it has, and reports whether it
// got it from this process.
func (n *Notifier) Names(from netip.Addr, key, apex dnswire.Name, serial uint32) (sent bool) {
	for _, s := range n.of(from, key, apex) {
		if s != nil && s.names(serial) {
			sent = true
		}
	}
	n.look()
	return sent
}

// of yields the states of a zone at the secondaries that a request may come from; nil is no state. The
// lock is held meanwhile.
func (n *Notifier) of(from netip.Addr, key, apex dnswire.Name) iter.Seq2[pair, *state] {
	zone := apex.Bare()
	return func(yield func(pair, *state) bool) {
		n.mu.Lock()
		defer n.mu.Unlock()
		for _, s := range n.known() {
			at := pair{s.ID, zone}
			if s.matches(from, key) && s.takes(zone) && !yield(at, n.states[at]) {
				return
			}
		}
	}
}

// has notes the version that the secondary has.
func (s *state) has(serial uint32, sent bool) {
	s.fetched, s.known, s.sent = serial, true, sent
	if !s.behind() {
		s.moved, s.due, s.fault = time.Time{}, time.Time{}, nil
	}
}

// names notes the version that the secondary says to have, and reports whether this process has sent it.
// If not, the present serial or a later one is from a database that is lost, because Renew gave each zone
// a new one. A server that signs may have any serial, so the zone is moved only once.
func (s *state) names(serial uint32) (sent bool) {
	later := serial - s.serial
	switch {
	case s.known && s.sent && s.fetched == serial:
		return true
	case later <= maxAhead && !s.passed:
		s.ahead, s.due = serial, time.Now()
	case int32(later) <= 0:
		s.has(serial, false)
	}
	return false
}

// Run sends messages until ctx ends. It begins with all zones, because what was told before is not
// known.
func (n *Notifier) Run(ctx context.Context) error {
	var sending sync.WaitGroup
	defer sending.Wait()
	slots := make(chan struct{}, atOnce)
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	for changed := n.change(); ; {
		n.begin(ctx)
		for restart := false; !restart; {
			timer := time.NewTimer(n.send(ctx, slots, &sending))
			select {
			case <-timer.C:
			case <-n.wake:
			case <-look.C:
				n.tellLags(ctx)
			case <-changed:
				changed, restart = n.change(), true
			case <-ctx.Done():
				timer.Stop()
				return nil
			}
			timer.Stop()
		}
	}
}

// begin makes a message about every zone due, and forgets secondaries that are gone.
func (n *Notifier) begin(ctx context.Context) {
	zones, err := n.zones.All(ctx)
	if err != nil {
		n.log.Error("secondaries are not told of the zones", "error", err)
	}
	now := time.Now()
	n.mu.Lock()
	defer n.mu.Unlock()
	here := map[string]bool{}
	for _, s := range n.known() {
		here[s.ID] = true
		for zone, serial := range zones {
			if s.takes(zone) && (n.states[pair{s.ID, zone}] == nil || n.states[pair{s.ID, zone}].behind()) {
				n.move(pair{s.ID, zone}, serial, now)
			}
		}
	}
	for at := range n.states {
		if !here[at.id] {
			delete(n.states, at)
			delete(n.told, at.id)
		}
	}
}

// send begins the messages that are due, and returns the time until the next one.
func (n *Notifier) send(ctx context.Context, slots chan struct{}, sending *sync.WaitGroup) (pause time.Duration) {
	now := time.Now()
	pause = longest
	n.mu.Lock()
	defer n.mu.Unlock()
	for at, s := range n.states {
		if s.due.IsZero() || s.busy {
			continue
		}
		if wait := s.due.Sub(now); wait > 0 {
			pause = min(pause, wait)
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			return pause // the end of a message wakes
		}
		s.busy = true
		sending.Go(func() {
			defer func() {
				<-slots
				n.look()
			}()
			if err := tasks.Call(func() error { n.notify(ctx, at); return nil }); err != nil {
				n.crashed(at, err)
			}
		})
	}
	return pause
}

// notify sends one message, and plans the next one. A secondary that does not come after a message is
// asked for its version.
func (n *Notifier) notify(ctx context.Context, at pair) {
	began := time.Now()
	again, err := n.movePast(ctx, at)
	soa, serial, ok, unread := n.zones.SOA(ctx, at.zone)
	to := n.find(at.id)
	var answer dnswire.Message
	if err = cmp.Or(err, unread); err == nil && ok && to != nil {
		answer, err = n.tell(ctx, *to, soa, again)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	s := n.states[at]
	if s == nil {
		return
	}
	if s.busy = false; to == nil || err == nil && !ok {
		delete(n.states, at)
		return
	}
	s.notified, s.fault = began, err
	if int32(serial-s.serial) > 0 {
		s.serial = serial
	}
	if named, ok := serialIn(answer); ok && s.due.Before(began) {
		s.names(named)
	}
	s.plan(began)
}

// crashed plans the next message about a zone to a secondary after a panic, as after one without an answer.
func (n *Notifier) crashed(at pair, crash error) {
	n.log.Error("the work for a secondary has crashed", "secondary", at.id, "zone", at.zone, "error", crash)
	n.mu.Lock()
	defer n.mu.Unlock()
	if s := n.states[at]; s != nil {
		now := time.Now()
		s.busy, s.notified, s.fault = false, now, crash
		s.plan(now)
	}
}

// movePast moves the zone past a version from a lost database, if the secondary has one. again reports
// whether an earlier message was in vain.
func (n *Notifier) movePast(ctx context.Context, at pair) (again bool, err error) {
	ahead := uint32(0)
	n.mu.Lock()
	if s := n.states[at]; s != nil {
		again, ahead = s.pause > firstPause, s.ahead
		if s.ahead = 0; ahead != 0 {
			s.passed = true
		}
	}
	n.mu.Unlock()
	if ahead != 0 {
		err = n.zones.MovePast(ctx, at.zone, ahead)
	}
	return again, err
}

// plan plans the message after one that was sent.
func (s *state) plan(sent time.Time) {
	switch {
	case !s.behind() && s.ahead == 0:
		s.moved, s.due = time.Time{}, time.Time{}
	case s.due.Before(sent): // no change since
		s.due = sent.Add(s.pause)
		s.pause = min(2*s.pause, longest)
	default:
		s.due = sent.Add(apart)
	}
}

// find returns the secondary with an id, nil if there is none.
func (n *Notifier) find(id string) *Secondary {
	for _, s := range n.known() {
		if s.ID == id {
			return &s
		}
	}
	return nil
}

// Errors of a message.
var (
	errNoAnswer = msg.Errorf("no answer to NOTIFY")
	errRefused  = msg.Errorf("NOTIFY is refused")
)

// tell sends a NOTIFY message (RFC 1996), and waits for its answer. With ask it then asks for the SOA
// record that the secondary has, and returns the answer.
func (n *Notifier) tell(ctx context.Context, to Secondary, soa dnswire.RR, ask bool) (answer dnswire.Message, err error) {
	question := []dnswire.Question{{Name: soa.Name, Type: dnswire.TypeSOA, Class: dnswire.ClassIN}}
	answer, err = n.exchange(ctx, to, dnswire.Message{Opcode: dnswire.OpcodeNotify, Authoritative: true, Questions: question, Answers: []dnswire.RR{soa}})
	if err == nil && answer.Rcode != dnswire.RcodeSuccess {
		err = msg.Errorf("%w: %s", errRefused, answer.Rcode.String())
	}
	n.mu.Lock()
	if err == nil {
		n.counts[1]++
	} else {
		n.counts[0]++
	}
	n.mu.Unlock()
	if err != nil || !ask {
		return dnswire.Message{}, err
	}
	if answer, err = n.exchange(ctx, to, dnswire.Message{Questions: question}); err != nil || answer.Rcode != dnswire.RcodeSuccess {
		return dnswire.Message{}, nil // the version stays unknown
	}
	return answer, nil
}

// serialIn returns the serial of the SOA record in an answer about it.
func serialIn(answer dnswire.Message) (serial uint32, ok bool) {
	if len(answer.Answers) != 1 || len(answer.Questions) != 1 || answer.Answers[0].Type != dnswire.TypeSOA ||
		answer.Answers[0].Name.Fold() != answer.Questions[0].Name.Fold() {
		return 0, false
	}
	soa, err := dnswire.ParseSOA(answer.Answers[0])
	return soa.Serial, err == nil
}

// exchange sends a message to a secondary, signed with its key, and returns the answer. It drops an answer
// that is not signed with the key, whatever its rcode: any host may have sent it.
func (n *Notifier) exchange(ctx context.Context, to Secondary, m dnswire.Message) (answer dnswire.Message, err error) {
	m.ID = uint16(rand.Uint32())
	request := m.Pack()
	var mac []byte
	if to.KeyName != "" {
		request, mac = to.key.Sign(request, time.Now())
	}
	dialer := net.Dialer{Timeout: answerTime}
	if n.from.IsValid() && n.from.Is4() == to.Address.Addr().Is4() {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.from, 0))
	}
	conn, err := dialer.DialContext(ctx, "udp", to.Address.String())
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(request); err != nil {
		return answer, err
	}
	conn.SetReadDeadline(time.Now().Add(answerTime))
	buffer := make([]byte, dnswire.MaxMessage)
	for dropped := error(nil); ; {
		size, err := conn.Read(buffer)
		if err != nil {
			return dnswire.Message{}, cmp.Or(dropped, errors.Join(errNoAnswer, ctx.Err()))
		}
		answer, err = dnswire.Parse(buffer[:size])
		if err != nil || !answer.Response || answer.ID != m.ID || answer.Opcode != m.Opcode {
			continue
		}
		if mac == nil {
			return answer, nil
		}
		if dropped = to.key.Verify(buffer[:size], mac, time.Now()); dropped == nil {
			return answer, nil
		}
		dropped = fmt.Errorf("%w: %s: %w", errNoAnswer, answer.Rcode, dropped)
	}
}

// WriteMetrics writes the metrics of the secondaries.
func (n *Notifier) WriteMetrics(page *metrics.Page) {
	n.mu.Lock()
	defer n.mu.Unlock()
	page.Family("meshddns_secondary_notifies_total", "counter", "NOTIFY messages to secondaries.")
	page.Figure(n.counts[1], metrics.Label{Name: "result", Value: "acknowledged"})
	page.Figure(n.counts[0], metrics.Label{Name: "result", Value: "failed"})
	page.Family("meshddns_secondary_lag_seconds", "gauge", "Time since the oldest change of a zone that a secondary has not fetched.")
	now, lags := time.Now(), map[string]time.Duration{}
	for at, s := range n.states {
		if s.behind() && !s.moved.IsZero() {
			lags[at.id] = max(lags[at.id], now.Sub(s.moved))
		}
	}
	for _, s := range n.known() {
		page.Float(lags[s.ID].Seconds(), metrics.Label{Name: "secondary", Value: s.ID})
	}
}

// tellLags stores an event for each secondary that has been behind for a minute, and for each that has
// caught up.
func (n *Notifier) tellLags(ctx context.Context) {
	now := time.Now()
	late := map[string]int{}
	n.mu.Lock()
	for at, s := range n.states {
		if s.behind() && !s.moved.IsZero() && now.Sub(s.moved) >= behindAfter {
			late[at.id]++
		}
	}
	var all []events.Event
	for _, s := range n.known() {
		kind := events.SecondaryBehind
		if late[s.ID] == 0 {
			kind = events.SecondaryCaughtUp
		}
		if (late[s.ID] > 0) != n.told[s.ID] {
			n.told[s.ID] = late[s.ID] > 0
			all = append(all, events.Event{Kind: kind, Detail: events.Detail{Count: late[s.ID], After: events.JSON(s.ID)}})
		}
	}
	n.mu.Unlock()
	for _, e := range all {
		if err := n.events.Note(ctx, e); err != nil && ctx.Err() == nil {
			n.log.Error("an event is not stored", "error", err)
		}
	}
}
