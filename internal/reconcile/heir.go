package reconcile

import (
	"context"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// inherit tries again, with the heir, the withdrawals whose own key is refused or gone. If
// the heir fails too, an item keeps the failure of its own key.
func (e *Engine) inherit(ctx context.Context, b *batch) {
	heirs := map[int64]*batch{}
	refused := map[*item]item{}
	for _, i := range b.items {
		heir := i.record.Withdrawal.Heir
		if refused := i.fault.Code == string(provider.BadCredentials) || i.fault.Code == CodeCredentialsGone; heir.ID == 0 || i.record.Withdrawal.Keep || !refused {
			continue
		}
		if heirs[heir.ID] == nil {
			e.mu.Lock()
			heirs[heir.ID] = &batch{db: b.db, addresses: b.addresses, now: b.now, probe: b.probe, conn: e.connection(heir), heir: true}
			e.mu.Unlock()
		}
		refused[i] = *i
		i.fault, i.phase = Fault{}, unread
		heirs[heir.ID].items = append(heirs[heir.ID].items, i)
	}
	for _, h := range heirs {
		h.rescue(func() { h.work(ctx) }, h.items...)
	}
	for i, before := range refused {
		if i.fault.Code != "" && i.fault.Code != CodeInterrupted && i.before == nil {
			*i = before
		}
	}
}

// heirZone finds the zone of a place with the heir's key, also if the name lies in an inner zone by now.
// An equal key id means the same user, so a zone that the heir does not find is gone, except at Cloudflare.
// heirZone fails if another zone has the name by now.
func (b *batch) heirZone(ctx context.Context, r Record) (zone, id string, err error) {
	zone, err = b.conn.client.Zone(ctx, r.Place.Zone)
	if err == nil && dns.Fold(zone) != r.Place.Zone {
		err = &provider.Error{Kind: provider.ZoneNotFound, Detail: msg.Textf("the key has another zone: %s", zone)}
	}
	if oneWord := r.Account.Provider == "cloudflare"; oneWord && provider.KindOf(err) == provider.ZoneNotFound {
		err = &provider.Error{Kind: provider.BadCredentials, Detail: msg.Say("the key has other zones")} // every token has the id "token"
	}
	identifier, ok := b.conn.client.(provider.ZoneIdentifier)
	if err != nil || !ok {
		return zone, r.Place.ZoneID, err
	}
	id, err = identifier.ZoneID(ctx, r.Place.Zone)
	if err == nil && r.Place.ZoneID != "" && id != r.Place.ZoneID {
		err = &provider.Error{Kind: provider.BadCredentials, Detail: msg.Say("the key has another zone of this name")}
	}
	return zone, id, err
}
