package provider

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// zoneLister is a vendor that lists all zones of the account.
type zoneLister interface {
	// zones returns the public zones, each name once. It fails with tooMany or errTooLong if searches for
	// single names are better.
	zones(ctx context.Context) ([]zone, error)
}

// zoneCompleter is a zoneLister whose list may lack details of a zone.
type zoneCompleter interface {
	complete(ctx context.Context, z zone) zone
}

// tooMany is the kind of a list of zones that is too long.
const tooMany Kind = "too_many"

// zonePages is the greatest number of pages of a list of zones. For larger accounts the client asks for
// single names.
const zonePages = 20

// known is the result of a search for a zone.
type known struct {
	zone  zone
	there bool
	whole bool  // with all details that the vendor tells
	err   error // the vendor's reason, if there is no usable zone
}

// Zone returns the longest zone of the account that contains name. A client searches for each zone once.
func (c *Client) Zone(ctx context.Context, name string) (string, error) {
	if ctx.Err() != nil {
		return "", &Error{Kind: Network, Detail: msg.Say("find a zone"), Err: context.Cause(ctx)}
	}
	if err := c.listZones(ctx); err != nil {
		return "", err
	}
	for at := range dns.Ancestors(dns.Fold(name)) {
		if !strings.Contains(at, ".") {
			break
		}
		z, found, err := c.find(ctx, at)
		if err != nil {
			return "", err
		}
		if found {
			return z.name, nil
		}
	}
	return "", &Error{Kind: ZoneNotFound, Detail: msg.Textf("the account has no zone that contains %q", name)}
}

// ZoneID returns the zone's id: the vendor's id if another account can have a zone of the same name,
// else the name. "" means unknown.
func (c *Client) ZoneID(ctx context.Context, zone string) (string, error) {
	z, err := c.named(ctx, zone)
	if err != nil {
		return "", err
	}
	if _, shared := c.vendor.(interface{ sharesNames() }); shared || z.unique != "" {
		return z.unique, nil
	}
	return z.name, nil
}

// ZonesKnown lists the zones and reports whether the client knows all zones of the account.
func (c *Client) ZonesKnown(ctx context.Context) (bool, error) {
	err := c.listZones(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.all, err
}

// Delegated returns the name of the NS records at or above domain and below the apex. A client reads each name
// once. A bridge has records of types that it can change only.
func (c *Client) Delegated(ctx context.Context, zone, domain string) (cut string, err error) {
	if _, only := c.vendor.(interface{ listsTXT() }); only {
		return "", nil
	}
	z, err := c.named(ctx, zone)
	if err != nil {
		return "", err
	}
	wait := c.searching(ctx, func() error {
		for at := range dns.Ancestors(dns.Fold(domain)) {
			if cut != "" || err != nil || at == z.name || !dns.Within(at, z.name) {
				break
			}
			cut, err = c.cutAt(ctx, z, at)
		}
		return nil
	})
	return cut, cmp.Or(wait, err)
}

// cutAt returns the name itself if NS records delegate it. The caller has the turn to search.
func (c *Client) cutAt(ctx context.Context, z zone, at string) (string, error) {
	cut, known := c.cuts[at]
	if !known {
		set, err := c.vendor.list(ctx, z, setKey{at, NS})
		if err != nil {
			return "", err
		}
		if slices.ContainsFunc(set.records, func(r record) bool { return !r.off }) {
			cut = at
		}
		c.cuts[at] = cut
	}
	return cut, nil
}

// named returns a zone by its name.
func (c *Client) named(ctx context.Context, name string) (zone, error) {
	name = dns.Fold(name)
	z, found, err := c.find(ctx, name)
	if err == nil && (!found || z.name != name) {
		err = &Error{Kind: ZoneNotFound, Detail: msg.Textf("the account has no zone %q", name)}
	}
	return z, err
}

// find searches for a zone, and remembers the result.
func (c *Client) find(ctx context.Context, name string) (zone, bool, error) {
	k, found := c.remembered(name)
	if !found {
		err := c.searching(ctx, func() (err error) {
			if k, found = c.remembered(name); found {
				return nil
			}
			if k, err = c.ask(ctx, name, k); err != nil {
				return err
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			c.zones[name] = k
			if k.there {
				c.zones[k.zone.name] = k
			}
			return nil
		})
		if err != nil {
			return zone{}, false, err
		}
	}
	return k.zone, k.there, k.err
}

// remembered returns the result of an earlier search or list, if it is complete.
func (c *Client) remembered(name string) (k known, found bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, found = c.zones[name]
	return k, found && (k.whole || !k.there) || !found && c.all
}

// ask asks the vendor for a zone, or for the details that its list lacks.
func (c *Client) ask(ctx context.Context, name string, listed known) (known, error) {
	if v, ok := c.vendor.(zoneCompleter); ok && listed.there {
		return known{zone: v.complete(ctx, listed.zone), there: true, whole: true}, nil
	}
	z, found, err := c.vendor.zone(ctx, name)
	if KindOf(err) == ZoneNotFound {
		return known{err: err}, nil
	}
	return known{zone: z, there: found, whole: true}, err
}

// listZones reads all zones of the account, if the vendor lists them.
func (c *Client) listZones(ctx context.Context) error {
	v, ok := c.vendor.(zoneLister)
	if !ok || c.listed.Load() {
		return nil
	}
	return c.searching(ctx, func() error {
		if c.listed.Load() {
			return nil
		}
		zones, err := v.zones(ctx)
		if err != nil && KindOf(err) != tooMany && !errors.Is(err, errTooLong) {
			return err
		}
		_, partly := c.vendor.(zoneCompleter)
		c.mu.Lock()
		defer c.mu.Unlock()
		c.all = err == nil
		for _, z := range zones {
			if !c.zones[z.name].there {
				c.zones[z.name] = known{zone: z, there: true, whole: !partly || z.fault != nil, err: z.fault}
			}
		}
		c.listed.Store(true)
		return nil
	})
}

// searching runs a search when its turn comes. If another search got no answer meanwhile, it returns the same
// failure, because a second wait would not help.
func (c *Client) searching(ctx context.Context, search func() error) error {
	before := c.failure.Load()
	if !c.search.take(ctx) {
		return &Error{Kind: Network, Detail: msg.Say("another search for a zone is under way"), Err: context.Cause(ctx)}
	}
	defer c.search.end()
	if failure := c.failure.Load(); failure != before {
		return *failure
	}
	err := search()
	if kind := KindOf(err); kind == Network || kind == Temporary || kind == Throttled {
		c.failure.Store(&err)
	}
	return err
}
