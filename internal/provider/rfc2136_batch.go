package provider

import (
	"context"
	"crypto/rand"
	"errors"
	"net/netip"
	"slices"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// Limits of ChangeAll.
const (
	maxBatch   = 400                   // changes in one message
	maxUpdate  = dns.MaxMessage - 1024 // octets of a message of several names, before it is signed
	maxRefused = 32                    // successive refused messages
)

// Change makes the whole change or nothing. After an error that is not Unmade the outcome is unknown:
// the answer may be lost or damaged, and an unsigned one may be forged. So read again before the next
// change. An empty change proves that the key may change the values at the name.
//
// PowerDNS compares the seen values in its own spelling and without letter case. It refuses every
// change, as Changed, beside two values that differ in case only, and beside a value that its HTTP API
// stored unescaped or in a string that is too long. It does not remove an SRV record whose target another
// program has written with capital letters, and reports success. The client of that API has no such limit.
func (c *RFC2136) Change(ctx context.Context, ch Change) error {
	message, err := updateMessage(ch)
	if err != nil {
		return unmade(err)
	}
	return c.send(ctx, batch{{change: ch, message: message, odd: odd(ch)}})
}

// BatchSize returns the number of changes that fit into one message.
func (c *RFC2136) BatchSize() int { return maxBatch }

// ChangeAll makes up to 400 changes with one message. The server makes all changes of a message or
// none, so ChangeAll halves a refused message until each faulty change is alone. After maxRefused
// successive refusals, or a network failure, it tries no more: the remaining changes get the last
// error. Once a change has an outcome, it sends nothing in the second half of WriteTime.
//
// If the outcome of a message is unknown, ChangeAll sends it again only after the server reported that
// it failed; the errors of its changes are then never Unmade, and the result of a success is ErrRepeated.
func (c *RFC2136) ChangeAll(ctx context.Context, changes []Change) []error {
	all, errs := updatesOf(changes)
	refused, decided := 0, false
	for queue := all.cut(); len(queue) > 0; queue = queue[1:] {
		b := queue[0]
		if decided && late(ctx, WriteTime/2) {
			for _, left := range queue {
				left.give(errs, errLater)
			}
			break
		}
		err := c.send(ctx, b)
		b.give(errs, err)
		decided = decided || err == nil || len(b) == 1
		switch kind := KindOf(err); {
		case err == nil:
			refused = 0
		case kind != Changed: // Changed is about single names, not the key or the server
			refused++
		}
		if refused == maxRefused || KindOf(err) == Network {
			for _, left := range queue[1:] {
				left.give(errs, unmade(err))
			}
			break
		}
		if len(b) > 1 && divisible(err) {
			queue = append(queue, b[:len(b)/2], b[len(b)/2:])
		}
	}
	return errs
}

// updatesOf returns the updates of the valid changes, and the errors of the others.
func updatesOf(changes []Change) (all batch, errs []error) {
	errs = make([]error, len(changes))
	named := map[setKey]bool{}
	for i, ch := range changes {
		message, err := updateMessage(ch)
		if at := ch.at(); named[at] {
			err = &Error{Kind: Changed, Detail: msg.Textf("%s is in two changes of one call", at.name)}
		} else {
			named[at] = true
		}
		if err == nil && len(all) > 0 && message.Questions[0].Name.Fold() != all[0].message.Questions[0].Name.Fold() {
			err = &Error{Kind: Invalid, Detail: msg.Textf("%s is of another zone than the changes before it", ch.Name)}
		}
		if errs[i] = unmade(err); err == nil {
			all = append(all, update{at: i, change: ch, message: message, odd: odd(ch)})
		}
	}
	return all, errs
}

// batch is updates of one zone that share a message.
type batch []update

type update struct {
	at      int // index in the changes of ChangeAll
	change  Change
	message dns.Message
	odd     bool // a server that checks host names refuses it
	unsure  bool // an earlier message with it may have been made
}

// give sets the error of a message for each of its changes.
func (b batch) give(errs []error, err error) {
	for i := range b {
		u := &b[i]
		if errs[u.at] = err; u.unsure {
			errs[u.at] = repeated(err)
		}
		u.unsure = u.unsure || err != nil && !Unmade(err)
	}
}

// cut divides a batch into batches that fit into one message. Odd updates are apart from the others, because
// a refusal of all of them must not prevent the others.
func (b batch) cut() (queue []batch) {
	for _, odd := range []bool{false, true} {
		var part batch
		size := 0
		for _, u := range b {
			if u.odd != odd {
				continue
			}
			more := len(u.message.Pack()) - dns.HeaderSize
			if len(part) > 0 && (len(part) == maxBatch || size+more > maxUpdate) {
				queue = append(queue, part)
				part, size = nil, 0
			}
			part = append(part, u)
			size += more
		}
		if len(part) > 0 {
			queue = append(queue, part)
		}
	}
	return queue
}

// message returns the message with all updates of the batch, or one that tests whether the key may make them.
func (b batch) message(values bool) dns.Message {
	message := b[0].message
	message.Answers, message.Authority = nil, nil
	for i := range b {
		u := &b[i]
		records := u.message.Authority
		if !values {
			records = updates(u.message.Answers[0].Name, Change{Type: u.change.Type, Seen: u.change.Seen})
		}
		message.Answers = append(message.Answers, u.message.Answers...)
		message.Authority = append(message.Authority, records...)
	}
	return message
}

// send makes all updates of a batch, or none if one of them is refused.
func (c *RFC2136) send(ctx context.Context, b batch) error {
	first, last := b[0], b[len(b)-1]
	call := msg.Textf("update %s in zone %s at %s", first.change.Name, first.change.Zone, c.server)
	if len(b) > 1 {
		call = msg.Textf("update %d names, %s to %s, in zone %s at %s", len(b), first.change.Name, last.change.Name, first.change.Zone, c.server)
	}
	answer, signed, err := c.exchange(ctx, call, dns.ExchangeTCP, b.message(true))
	for _, u := range b {
		c.forget(u.change.Name)
	}
	if err != nil || answer.Rcode == dns.RcodeSuccess {
		return err
	}
	failure := rcodeError(call, updateErrors, answer.Rcode, signed)
	switch {
	case failure.Kind == ZoneNotFound:
		failure.Kind = c.notPrimary(ctx, first.message.Questions[0].Name)
	case failure.Kind == Permission && signed && first.odd:
		// BIND answers REFUSED both for a key without the right and for a name that its check-names refuses. The
		// same update without the values is refused only for the key.
		empty, signed, err := c.exchange(ctx, call, dns.ExchangeTCP, b.message(false))
		if err == nil && signed && empty.Rcode == dns.RcodeSuccess {
			failure.Kind, failure.Detail = NameNotAllowed, msg.Textf("%s: %s: %s", call, answer.Rcode, msg.Say(onlyHosts))
		}
	}
	return failure
}

// odd reports whether a server that checks host names refuses a change.
func odd(ch Change) bool {
	for _, v := range ch.Add {
		if !dns.IsHost(ch.Type.host(ch.Name, v)) {
			return true
		}
	}
	return false
}

// notPrimary returns the kind of NOTAUTH: ZoneNotFound if the server has no such zone, Permission if it
// has a copy, which no key may change.
func (c *RFC2136) notPrimary(ctx context.Context, apex dns.Name) Kind {
	answer, err := c.query(ctx, apex, dns.TypeSOA)
	at, found := apexAbove(answer, apex)
	switch kind := KindOf(err); {
	case found && at.Fold() == apex.Fold():
		return Permission
	case err == nil, kind == Permission:
		return ZoneNotFound
	default:
		return kind
	}
}

// absent returns the reason of a refused query: ZoneNotFound if the server has no such zone, else
// refusal. To a query, all servers answer REFUSED in both cases. To an update they answer NOTAUTH for a
// missing zone (RFC 2136, section 3.1.1), and REFUSED or BADKEY if the key has no rights. The update
// changes nothing, even if the key has all rights.
func (c *RFC2136) absent(ctx context.Context, apex dns.Name, refusal error) error {
	call := msg.Textf("update nothing in zone %s at %s", nameText(apex), c.server)
	message, err := updateMessage(Change{Zone: apex.String(), Name: apex.String(), Type: TXT, Seen: RRset{Values: []Value{{rand.Text()}}}})
	if err != nil {
		return err
	}
	answer, _, err := c.exchange(ctx, call, dns.ExchangeTCP, message)
	switch {
	case err != nil:
		return err
	case answer.Rcode != dns.RcodeNotAuth:
		return refusal
	}
	return &Error{Kind: ZoneNotFound, Detail: msg.Textf("%s: %s", call, answer.Rcode), Err: refusal}
}

// divisible reports whether one name may be the reason for a refused message. Knot sends an unsigned
// BADKEY for names that a key may not change. NameNotAllowed holds for each change of the message.
func divisible(err error) bool {
	if report, ok := errors.AsType[*dns.TSIGError](err); ok {
		return report.Code == dns.RcodeBadKey
	}
	switch KindOf(err) {
	case Changed, Permission, Invalid, Temporary:
		return !errors.Is(err, dns.ErrUnsigned)
	}
	return false
}

// updateMessage makes the message of a change. Its prerequisites are exactly the seen values and no
// CNAME: beside a CNAME a server ignores added values and reports success (RFC 2136, section 3.4.2.2).
func updateMessage(ch Change) (dns.Message, error) {
	if err := CheckType((*RFC2136)(nil), ch.Type); err != nil {
		return dns.Message{}, err
	}
	zone, err := ownerName(ch.Zone)
	if err != nil {
		return dns.Message{}, err
	}
	owner, err := ownerName(ch.Name)
	if err != nil {
		return dns.Message{}, err
	}
	for _, v := range slices.Concat(ch.Seen.Values, ch.Add, ch.Remove) {
		if err := ch.Type.Check(v); err != nil {
			return dns.Message{}, &Error{Kind: Invalid, Detail: msg.Say(ch.Name), Err: err}
		}
	}
	message := dns.Message{
		Opcode:    dns.OpcodeUpdate,
		Questions: []dns.Question{{Name: zone, Type: dns.TypeSOA, Class: dns.ClassIN}},
		Answers:   []dns.RR{{Name: owner, Type: dns.TypeCNAME, Class: dns.ClassNONE}},
	}
	if len(ch.Seen.Values) == 0 {
		message.Answers = append(message.Answers, dns.RR{Name: owner, Type: ch.Type.Wire(), Class: dns.ClassNONE})
	}
	for _, v := range ch.Seen.Values {
		message.Answers = append(message.Answers, ch.Type.record(owner, dns.ClassIN, 0, v))
	}
	message.Authority = updates(owner, ch)
	return message, nil
}

func updates(owner dns.Name, ch Change) []dns.RR {
	var records []dns.RR
	for _, v := range ch.Remove {
		records = append(records, ch.Type.record(owner, dns.ClassNONE, 0, v))
	}
	for _, v := range ch.Add {
		if !slices.ContainsFunc(ch.Remove, v.Equal) {
			records = append(records, ch.Type.record(owner, dns.ClassIN, ch.TTL, v))
		}
	}
	if len(records) == 0 {
		// BIND checks its update-policy for records only, and accepts an update without
		// records from every known key. The name does not have this value.
		records = append(records, ch.Type.record(owner, dns.ClassNONE, 0, absentValue(ch)))
	}
	return records
}

// absentValue returns a value that is not among those seen.
func absentValue(ch Change) Value {
	for n := byte(0); ; n++ {
		v := map[Type]Value{
			TXT: {rand.Text()}, A: {netip.AddrFrom4([4]byte{192, 0, 2, n}).String()},
			AAAA: {netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 15: n}).String()}, SRV: {"0 0 0 " + strings.ToLower(rand.Text()) + ".invalid"},
		}[ch.Type]
		if n == 255 || !slices.ContainsFunc(ch.Seen.Values, v.Equal) {
			return v
		}
	}
}

// record returns a record with a value that Check has accepted.
func (t Type) record(owner dns.Name, class dns.Class, ttl uint32, v Value) dns.RR {
	data, _ := t.Data(v)
	return dns.RR{Name: owner, Type: t.Wire(), Class: class, TTL: ttl, Data: data}
}

// onlyHosts is the reason of NameNotAllowed.
const onlyHosts = "host names only, without an underscore (check-names in BIND)"

var updateErrors = map[dns.Rcode]meaning{
	dns.RcodeFormErr:  {Invalid, "the server does not take this dynamic update"},
	dns.RcodeServFail: {Temporary, "the server has a fault"},
	dns.RcodeNXDomain: {Changed, stale},
	dns.RcodeNotImp:   {Invalid, "the server does not take dynamic updates"},
	dns.RcodeRefused:  {Permission, "the key may not change this"},
	dns.RcodeYXDomain: {Changed, stale},
	dns.RcodeYXRRSet:  {Changed, stale},
	dns.RcodeNXRRSet:  {Changed, stale},
	dns.RcodeNotAuth:  {ZoneNotFound, "the server is not the zone's primary"},
	dns.RcodeNotZone:  {Invalid, "the name is outside the zone"},
}
