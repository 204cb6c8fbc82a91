package secondary

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"meshddns/internal/daemon"
	"meshddns/internal/dns"
	"meshddns/internal/events"
	"meshddns/internal/term"
)

const (
	answerTime = 2 * time.Second // for the answer to a message
	answerSize = 4096            // octets; one without EDNS has 512 and a signature
	lookEvery  = 5 * time.Second // between two looks at lags
)

// Zones are the zones that secondaries take.
type Zones interface {
	// All returns the zones and their serials.
	All(ctx context.Context) (map[string]uint32, error)
	// SOA returns the SOA record of a zone; ok is false if there is no such zone.
	SOA(ctx context.Context, zone string) (soa dns.RR, serial uint32, ok bool, err error)
	// MovePast gives a zone a serial after another one.
	MovePast(ctx context.Context, zone string, serial uint32) error
}

// Notifier tells secondaries of new versions of zones.
type Notifier struct {
	*Table
	zones  Zones
	from   netip.Addr // of the messages; not valid: the system chooses
	events *events.Log
	log    *slog.Logger
	counts [2]atomic.Uint64 // messages without and with an answer

	reading, storing daemon.Fault
}

// NewNotifier returns a notifier of secondaries. zones is nil if there are none. Messages come from an
// address, if it is valid.
func NewNotifier(secondaries *Table, zones Zones, from netip.Addr, log *events.Log, logger *slog.Logger) *Notifier {
	if zones == nil {
		zones = none{}
	}
	return &Notifier{Table: secondaries, zones: zones, from: from, events: log, log: logger}
}

// none has no zone.
type none struct{}

func (none) All(context.Context) (map[string]uint32, error) { return nil, nil }

func (none) SOA(context.Context, string) (soa dns.RR, serial uint32, ok bool, err error) { return }

func (none) MovePast(context.Context, string, uint32) error { return nil }

// Run sends messages until ctx ends. It begins with all zones, because what was told before is not
// known.
func (n *Notifier) Run(ctx context.Context) error {
	var sending sync.WaitGroup
	defer sending.Wait()
	look := time.Tick(lookEvery)
	changed := n.Changed()
	begun := n.begin(ctx)
	for {
		due := time.After(n.send(ctx, &sending))
		select {
		case <-due:
		case <-n.wake:
		case <-look:
			n.Refresh(ctx) // the readers of requests tell of a fault of the database
			begun = begun || n.begin(ctx)
			n.tellLags(ctx)
		case <-changed:
			changed = n.Changed()
			begun = n.begin(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// begin makes a message about every zone due, and reports whether it could read the zones.
func (n *Notifier) begin(ctx context.Context) bool {
	zones, err := n.zones.All(ctx)
	if ctx.Err() == nil {
		n.reading.Note(n.log, "secondaries are not told of the zones", err)
	}
	now := time.Now()
	for _, s := range n.Known() {
		s.begin(zones, now)
	}
	return err == nil
}

// send begins the messages that are due, and returns the time until the next one.
func (n *Notifier) send(ctx context.Context, sending *sync.WaitGroup) (pause time.Duration) {
	now := time.Now()
	pause = longest
	for _, to := range n.Known() {
		for {
			s, wait := to.follower.next(now)
			if s == nil {
				pause = min(pause, wait)
				break
			}
			sending.Go(func() {
				n.notify(ctx, to, s)
				n.signal()
			})
		}
	}
	return pause
}

// notify sends one message, and plans the next one. A secondary that has fetched the newest version, or does not come after a
// message, is asked for its version. A panic counts as a message without an answer.
func (n *Notifier) notify(ctx context.Context, to Secondary, s *state) {
	began := time.Now()
	f := to.follower
	var serial uint32
	var ok, fetched bool
	var answer dns.Message
	err := daemon.Call(func() error {
		again, err := n.movePast(ctx, f, s)
		soa, newest, found, unread := n.zones.SOA(ctx, s.zone)
		serial, ok = newest, found
		if err = cmp.Or(err, unread); err != nil || !ok {
			return err
		}
		known := f.state(s.zone)
		if fetched = !known.lacks(serial); !fetched {
			err = n.tell(ctx, to, soa)
		}
		if fetched || err == nil && again {
			answer, _ = n.exchange(ctx, to, dns.Message{Questions: []dns.Question{{Name: soa.Name, Type: dns.TypeSOA, Class: dns.ClassIN}}})
		}
		return err
	})
	if crash, crashed := errors.AsType[*daemon.Panic](err); crashed {
		n.log.Error("the work for a secondary has crashed", "secondary", to.ID, "zone", s.zone, "error", crash)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	s.busy = false
	f.underway--
	switch {
	case f.zones[s.zone] != s: // forgotten meanwhile
		return
	case err == nil && !ok && s.due.IsZero():
		delete(f.zones, s.zone)
		return
	}
	if ok && int32(serial-s.serial) > 0 {
		s.serial = serial
	}
	named, told := serialIn(answer)
	pauses := pauses
	if fetched {
		pauses = asking
		defer f.tell(s, answer.Response)
		f.answered(s, answer)
	} else {
		f.silent = err != nil && !errors.Is(err, errRefused)
		s.notified, s.fault = began, err
		defer f.tell(s, err == nil)
		if told && s.due.IsZero() && s.behind() {
			f.names(s, to.at.Addr(), named)
		}
	}
	switch {
	case !s.behind() && s.ahead == 0:
		s.moved, s.fault = time.Time{}, nil // it serves the zone, whatever it says to the message
		f.plan(s, time.Time{})
	case s.due.IsZero(): // no change since
		s.vain++
		f.plan(s, began.Add(pauses.Pause(s.vain)))
	case s.lacks(s.serial):
		f.plan(s, began.Add(apart))
	default:
		f.plan(s, s.due)
	}
}

// movePast gives the zone a serial above the one that the secondary has from a lost database, if such a
// serial is noted. again reports whether the secondary has not fetched the zone after an earlier message.
func (n *Notifier) movePast(ctx context.Context, f *follower, s *state) (again bool, err error) {
	f.mu.Lock()
	again = s.vain > 0
	ahead := s.ahead
	if s.ahead = 0; ahead != 0 {
		s.passed = true
	}
	f.mu.Unlock()
	if ahead == 0 {
		return again, nil
	}
	if err = n.zones.MovePast(ctx, s.zone, ahead); err != nil { // the next message tries it again
		f.mu.Lock()
		s.ahead, s.passed = ahead, false
		f.mu.Unlock()
	}
	return again, err
}

// tell sends a NOTIFY message (RFC 1996), and waits for its answer.
func (n *Notifier) tell(ctx context.Context, to Secondary, soa dns.RR) error {
	question := []dns.Question{{Name: soa.Name, Type: dns.TypeSOA, Class: dns.ClassIN}}
	answer, err := n.exchange(ctx, to, dns.Message{Opcode: dns.OpcodeNotify, Authoritative: true, Questions: question, Answers: []dns.RR{soa}})
	if err == nil && answer.Rcode != dns.RcodeSuccess {
		err = because(errRefused, answer.Rcode, nil)
	}
	if err == nil {
		n.counts[1].Add(1)
	} else {
		n.counts[0].Add(1)
	}
	return err
}

// serialIn returns the serial of the SOA record in an answer about it.
func serialIn(answer dns.Message) (serial uint32, ok bool) {
	if len(answer.Answers) != 1 || len(answer.Questions) != 1 || answer.Answers[0].Type != dns.TypeSOA ||
		answer.Answers[0].Name.Fold() != answer.Questions[0].Name.Fold() {
		return 0, false
	}
	soa, err := dns.ParseSOA(answer.Answers[0])
	return soa.Serial, err == nil
}

// exchange sends a message to a secondary, signed with its key, and returns the answer. It drops an answer
// that is not signed with the key, whatever its rcode: any host may have sent it.
func (n *Notifier) exchange(ctx context.Context, to Secondary, m dns.Message) (answer dns.Message, err error) {
	m.ID = uint16(rand.Uint32())
	request := m.Pack()
	var mac []byte
	if to.KeyName != "" {
		request, mac = to.key.Sign(request, time.Now())
	}
	dialer := net.Dialer{Timeout: answerTime}
	if n.from.IsValid() && n.from.Is4() == to.at.Addr().Is4() {
		dialer.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(n.from, 0))
	}
	conn, err := term.Dial(ctx, dialer, "udp", to.Address)
	if err != nil {
		return answer, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	if _, err := conn.Write(request); err != nil {
		return answer, err
	}
	conn.SetReadDeadline(time.Now().Add(answerTime))
	buffer := make([]byte, answerSize)
	for dropped := error(nil); ; {
		size, err := conn.Read(buffer)
		if err != nil {
			return dns.Message{}, cmp.Or(dropped, errors.Join(errNoAnswer, ctx.Err()))
		}
		answer, err = dns.ParseMessage(buffer[:size])
		if err != nil || !answer.Response || answer.ID != m.ID || answer.Opcode != m.Opcode {
			continue
		}
		if mac == nil {
			return answer, nil
		}
		unproven := to.key.Verify(buffer[:size], mac, time.Now())
		if unproven == nil {
			return answer, nil
		}
		dropped = because(errNoAnswer, answer.Rcode, unproven)
	}
}

// Taken waits until the secondaries that live answer with the present version of a zone, and reports whether they
// do when ctx ends.
func (n *Notifier) Taken(ctx context.Context, zone string) bool {
	changed := n.Changed()
	_, serial, ok, err := n.zones.SOA(ctx, zone)
	for _, s := range n.Known() {
		for ok && err == nil && s.takes(zone) {
			news := s.follower.wants(zone, serial, time.Now())
			if news == nil {
				break
			}
			select {
			case <-news:
			case <-changed: // perhaps this secondary is no more
				return n.Taken(ctx, zone)
			case <-ctx.Done():
				return false
			}
		}
	}
	return err == nil
}

// WriteMetrics writes the metrics of the secondaries.
func (n *Notifier) WriteMetrics(page *daemon.Page) {
	page.Family("meshddns_secondary_notifies_total", "counter", "NOTIFY messages to secondaries.")
	page.Figure(n.counts[1].Load(), daemon.Label{Name: "result", Value: "acknowledged"})
	page.Figure(n.counts[0].Load(), daemon.Label{Name: "result", Value: "failed"})
	page.Family("meshddns_secondary_lag_seconds", "gauge", "Time since the oldest change of a zone that a secondary does not serve.")
	now := time.Now()
	for _, s := range n.Known() {
		oldest, _ := s.follower.lag(now)
		page.Float(oldest.Seconds(), daemon.Label{Name: "secondary", Value: s.ID})
	}
}

// tellLags stores an event for each secondary that has been behind for a minute, and for each that has
// caught up. What it cannot store, the next look tells.
func (n *Notifier) tellLags(ctx context.Context) {
	now := time.Now()
	for _, s := range n.Known() {
		_, late := s.follower.lag(now)
		if (late > 0) == s.follower.told {
			continue
		}
		kind := events.SecondaryBehind
		if late == 0 {
			kind = events.SecondaryCaughtUp
		}
		err := n.events.Note(ctx, events.Event{Kind: kind, Detail: events.Detail{Count: late, After: events.JSON(s.ID)}})
		if ctx.Err() == nil {
			n.storing.Note(n.log, "an event of a secondary is not stored: the next look tries again", err)
		}
		if err != nil {
			return
		}
		s.follower.told = late > 0
	}
}
