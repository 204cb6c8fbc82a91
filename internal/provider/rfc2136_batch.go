package provider

import (
	"context"
	"crypto/rand"
	"errors"
	"slices"

	"meshddns/internal/dnsname"
	"meshddns/internal/dnswire"
	"meshddns/internal/msg"
)

// Bounds of ChangeAll.
const (
	maxBatch   = 400                       // names in one message
	maxUpdate  = dnswire.MaxMessage - 1024 // octets of a message of several names, before it is signed
	maxRefused = 32                        // refused messages since the last that was made
)

// Change makes all of a change or nothing. Unless it is Unmade, an error does not say
// which: the answer may be what was lost or spoiled, and one that is not signed may be
// anybody's. So read again before the next change. A change that adds and
// removes nothing proves that the key may change the values at the name.
//
// PowerDNS compares the values seen with its own spelling of them and without
// letter case. Beside two values that differ in case only, or one that its
// HTTP API stored unescaped or longer than a string, it makes no change: each
// fails as Changed. The client of that API has no such limit.
func (c *RFC2136) Change(ctx context.Context, ch Change) error {
	message, err := updateMessage(ch)
	if err != nil {
		return unmade(err)
	}
	return c.send(ctx, batch{{change: ch, message: message}})
}

// BatchSize is what fits into one message.
func (c *RFC2136) BatchSize() int { return maxBatch }

// ChangeAll makes up to 400 changes with one message. The server makes all of
// a message or nothing, so one that it refuses is halved until the changes
// that are at fault stand alone. Where nothing is made any more, the changes
// that are left are not tried: they get the error of the last that was.
//
// A message of which it is not known whether it was made is sent again only where the
// server says that it has failed; no error of its changes is Unmade then.
func (c *RFC2136) ChangeAll(ctx context.Context, changes []Change) []error {
	all, errs := updatesOf(changes)
	refused := 0
	for queue := all.cut(); len(queue) > 0; queue = queue[1:] {
		b := queue[0]
		err := c.send(ctx, b)
		b.give(errs, err)
		switch kind := KindOf(err); {
		case err == nil:
			refused = 0
		case kind != Changed: // which is of names, and says nothing of the key or the server
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

// updatesOf gives the updates that can be asked for, and the errors of the rest.
func updatesOf(changes []Change) (all batch, errs []error) {
	errs = make([]error, len(changes))
	named := map[string]bool{}
	for i, ch := range changes {
		message, err := updateMessage(ch)
		if name := dnsname.Fold(ch.Name); named[name] {
			err = &Error{Kind: Invalid, Detail: msg.Textf("%s is in two changes of one call", name)}
		} else {
			named[name] = true
		}
		if err == nil && len(all) > 0 && message.Questions[0].Name.Fold() != all[0].message.Questions[0].Name.Fold() {
			err = &Error{Kind: Invalid, Detail: msg.Textf("%s is of another zone than the changes before it", ch.Name)}
		}
		if errs[i] = unmade(err); err == nil {
			all = append(all, update{at: i, change: ch, message: message})
		}
	}
	return all, errs
}

// batch is updates of one zone that go in one message.
type batch []update

type update struct {
	at      int // in the changes of ChangeAll
	change  Change
	message dnswire.Message
	unsure  bool // a message with it may have been made
}

// give gives the changes the error of a message.
func (b batch) give(errs []error, err error) {
	for i := range b {
		u := &b[i]
		if errs[u.at] = err; u.unsure {
			errs[u.at] = unsure(err)
		}
		u.unsure = u.unsure || err != nil && !Unmade(err)
	}
}

// cut divides a batch into such as fit into one message.
func (b batch) cut() (queue []batch) {
	start, size := 0, 0
	for i, u := range b {
		more := len(u.message.Pack()) - dnswire.HeaderSize
		if i > start && (i-start == maxBatch || size+more > maxUpdate) {
			queue = append(queue, b[start:i])
			start, size = i, 0
		}
		size += more
	}
	if start < len(b) {
		queue = append(queue, b[start:])
	}
	return queue
}

// send asks for all updates of a batch, or for none where one cannot be made.
func (c *RFC2136) send(ctx context.Context, b batch) error {
	first, last := b[0], b[len(b)-1]
	call := msg.Textf("update %s in zone %s at %s", first.change.Name, first.change.Zone, c.server)
	message := first.message
	if len(b) > 1 {
		call = msg.Textf("update %d names, %s to %s, in zone %s at %s", len(b), first.change.Name, last.change.Name, first.change.Zone, c.server)
		message.Answers, message.Authority = nil, nil
		for _, u := range b {
			message.Answers = append(message.Answers, u.message.Answers...)
			message.Authority = append(message.Authority, u.message.Authority...)
		}
	}
	answer, signed, err := c.exchange(ctx, call, dnswire.ExchangeTCP, message)
	for _, u := range b {
		c.forget(u.change.Name)
	}
	if err != nil || answer.Rcode == dnswire.RcodeSuccess {
		return err
	}
	failure := rcodeError(call, updateErrors, answer.Rcode, signed)
	if failure.Kind == ZoneNotFound {
		failure.Kind = c.notPrimary(ctx, first.message.Questions[0].Name)
	}
	return failure
}

// notPrimary is the kind of the refusal of a server that is not a zone's primary: it has
// no such zone, or a copy of it, which is no key's to change.
func (c *RFC2136) notPrimary(ctx context.Context, apex dnswire.Name) Kind {
	answer, err := c.query(ctx, apex, dnswire.TypeSOA)
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

// absent gives the failure of a call about a zone that the server has refused to answer:
// ZoneNotFound when it has no such zone, else why it refuses. Of a query all servers say
// REFUSED in both cases. Of an update they say NOTAUTH without a zone (RFC 2136, section
// 3.1.1), and REFUSED or BADKEY where the zone is not for this key. The update changes
// nothing, also where the key may do all.
func (c *RFC2136) absent(ctx context.Context, apex dnswire.Name, refusal error) error {
	call := msg.Textf("update nothing in zone %s at %s", nameText(apex), c.server)
	message, err := updateMessage(Change{Zone: apex.String(), Name: apex.String(), Seen: RRset{Values: []TXT{{rand.Text()}}}})
	if err != nil {
		return err
	}
	answer, _, err := c.exchange(ctx, call, dnswire.ExchangeTCP, message)
	switch {
	case err != nil:
		return err
	case answer.Rcode != dnswire.RcodeNotAuth:
		return refusal
	}
	return &Error{Kind: ZoneNotFound, Detail: msg.Textf("%s: %s", call, answer.Rcode), Err: refusal}
}

// divisible reports whether a message was not made for a reason that may be
// one name's. Knot says BADKEY, and cannot sign that, of names that a key
// may not change.
func divisible(err error) bool {
	if report, ok := errors.AsType[*dnswire.TSIGError](err); ok {
		return report.Code == dnswire.RcodeBadKey
	}
	switch KindOf(err) {
	case Changed, Permission, Invalid, Temporary:
		return !errors.Is(err, dnswire.ErrUnsigned)
	}
	return false
}

// updateMessage asks for the change on condition that the values are exactly
// those seen, and that there is no CNAME: beside one a server ignores what is
// added, and reports success (RFC 2136, section 3.4.2.2).
func updateMessage(ch Change) (dnswire.Message, error) {
	zone, err := ownerName(ch.Zone)
	if err != nil {
		return dnswire.Message{}, err
	}
	owner, err := ownerName(ch.Name)
	if err != nil {
		return dnswire.Message{}, err
	}
	for _, v := range slices.Concat(ch.Seen.Values, ch.Add, ch.Remove) {
		if err := v.Check(); err != nil {
			return dnswire.Message{}, &Error{Kind: Invalid, Detail: msg.Say(ch.Name), Err: err}
		}
	}
	message := dnswire.Message{
		Opcode:    dnswire.OpcodeUpdate,
		Questions: []dnswire.Question{{Name: zone, Type: dnswire.TypeSOA, Class: dnswire.ClassIN}},
		Answers:   []dnswire.RR{{Name: owner, Type: dnswire.TypeCNAME, Class: dnswire.ClassNONE}},
	}
	if len(ch.Seen.Values) == 0 {
		message.Answers = append(message.Answers, dnswire.RR{Name: owner, Type: dnswire.TypeTXT, Class: dnswire.ClassNONE})
	}
	for _, v := range ch.Seen.Values {
		message.Answers = append(message.Answers, txtRecord(owner, dnswire.ClassIN, 0, v))
	}
	message.Authority = updates(owner, ch)
	return message, nil
}

func updates(owner dnswire.Name, ch Change) []dnswire.RR {
	var records []dnswire.RR
	for _, v := range ch.Remove {
		records = append(records, txtRecord(owner, dnswire.ClassNONE, 0, v))
	}
	for _, v := range ch.Add {
		if !slices.ContainsFunc(ch.Remove, v.Equal) {
			records = append(records, txtRecord(owner, dnswire.ClassIN, ch.TTL, v))
		}
	}
	if len(records) == 0 {
		// BIND asks its update-policy about records only, and takes an update
		// without any from every key it knows. This value stands nowhere.
		records = append(records, txtRecord(owner, dnswire.ClassNONE, 0, TXT{rand.Text()}))
	}
	return records
}

func txtRecord(owner dnswire.Name, class dnswire.Class, ttl uint32, v TXT) dnswire.RR {
	return dnswire.RR{Name: owner, Type: dnswire.TypeTXT, Class: class, TTL: ttl, Data: dnswire.TXTData(v)}
}

var updateErrors = map[dnswire.Rcode]meaning{
	dnswire.RcodeFormErr:  {Invalid, "the server does not take this dynamic update"},
	dnswire.RcodeServFail: {Temporary, "the server has a fault"},
	dnswire.RcodeNXDomain: {Changed, stale},
	dnswire.RcodeNotImp:   {Invalid, "the server does not take dynamic updates"},
	dnswire.RcodeRefused:  {Permission, "the key may not change this"},
	dnswire.RcodeYXDomain: {Changed, stale},
	dnswire.RcodeYXRRSet:  {Changed, stale},
	dnswire.RcodeNXRRSet:  {Changed, stale},
	dnswire.RcodeNotAuth:  {ZoneNotFound, "the server is not the zone's primary"},
	dnswire.RcodeNotZone:  {Invalid, "the name is outside the zone"},
}
