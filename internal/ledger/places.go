package ledger

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/reconcile"
	"meshddns/internal/sqlite"
)

// SecretRow is what the secret of a configuration or an account is bound to: the row, and where the program sends it.
const SecretRow = `id || char(10) || provider || char(10) || endpoint || char(10) || access_key_id`

// secretRow is SecretRow of values.
func secretRow(id int64, provider, endpoint, keyID string) string {
	return strings.Join([]string{strconv.FormatInt(id, 10), provider, endpoint, keyID}, "\n")
}

// UseAccount returns the id of an account that a configuration or a service is about to
// use, and stores the account if it is new. Another secret is another account.
func (g *Ledger) UseAccount(ctx context.Context, tx *sql.Tx, a reconcile.Account) (id int64, err error) {
	id, unused, err := g.storeAccount(ctx, tx, a)
	if err != nil || !unused {
		return id, err
	}
	_, err = dropUnused(ctx, tx, a, id) // an account in use needs no heir, so newer unused secrets may go
	return id, err
}

// storeAccount returns the id of an account, and reports whether it was already stored and
// had no user.
func (g *Ledger) storeAccount(ctx context.Context, tx *sql.Tx, a reconcile.Account) (id int64, unused bool, err error) {
	hash := g.config.Key.Hash(string(a.Secret))
	err = tx.QueryRowContext(ctx, `
		SELECT id, `+hasNoUser+` FROM accounts a WHERE provider = ? AND endpoint = ? AND access_key_id = ? AND key_hash = ?`,
		a.Provider, a.Endpoint, a.AccessKeyID, hash).Scan(&id, &unused)
	if errors.Is(err, sql.ErrNoRows) {
		err = tx.QueryRowContext(ctx, `
			INSERT INTO accounts (provider, endpoint, access_key_id, access_key_secret, key_hash) VALUES (?, ?, ?, '', ?)
			RETURNING id`, a.Provider, a.Endpoint, a.AccessKeyID, hash).Scan(&id)
		if err == nil { // now the id is known
			sealed := g.config.Key.Seal(string(a.Secret), "accounts", secretRow(id, a.Provider, a.Endpoint, a.AccessKeyID), "access_key_secret")
			_, err = tx.ExecContext(ctx, `UPDATE accounts SET access_key_secret = ? WHERE id = ?`, sealed, id)
		}
	}
	return id, unused, err
}

// hasNoUser is the condition that no configuration and no service uses account a, and nothing can be adopted there.
const hasNoUser = `
	NOT EXISTS (SELECT 1 FROM unmarked WHERE account = a.id) AND NOT EXISTS (SELECT 1 FROM services WHERE account = a.id) AND NOT EXISTS (SELECT 1 FROM configuration WHERE account = a.id)`

// LeaveAccount deletes an account and its secret if no configuration, service or place uses
// it. A newer secret of a key id stays while a place needs an older one, because the
// provider may refuse the older one by then. It reports whether a secret was deleted; then the commit's notice says so.
func LeaveAccount(ctx context.Context, tx *sql.Tx, id int64) (deleted bool, err error) {
	var left reconcile.Account
	err = tx.QueryRowContext(ctx, `
		SELECT provider, endpoint, access_key_id FROM accounts a
		WHERE id = ? AND `+hasNoUser+` AND NOT EXISTS (SELECT 1 FROM places WHERE account = a.id)`, id).Scan(&left.Provider, &left.Endpoint, &left.AccessKeyID)
	if err != nil {
		return false, sqlite.Absent(err, nil)
	}
	if deleted, err = dropUnused(ctx, tx, left, 0); deleted {
		sqlite.Touch(ctx, sqlite.Replaced{})
	}
	return deleted, err
}

// dropUnused deletes the accounts of a key id that have no user and no place, unless an
// older unused account of the key id has a place. It keeps the account inUse, which is
// about to get a user.
func dropUnused(ctx context.Context, tx *sql.Tx, key reconcile.Account, inUse int64) (deleted bool, err error) {
	count, err := sqlite.Exec(ctx, tx, `
		WITH key AS (SELECT id FROM accounts WHERE provider = ? AND endpoint = ? AND access_key_id = ? AND id <> ?),
		     unused AS (SELECT id FROM key AS a WHERE `+hasNoUser+`)
		DELETE FROM accounts
		WHERE id IN (SELECT id FROM unused) AND
		      NOT EXISTS (SELECT 1 FROM places WHERE account = accounts.id) AND
		      NOT EXISTS (SELECT 1 FROM unused JOIN places ON account = unused.id WHERE unused.id < accounts.id)`,
		key.Provider, key.Endpoint, key.AccessKeyID, inUse)
	return count > 0, err
}

const selectPlaces = `
	SELECT id, name, owner, type, account, zone, zone_id, state, standing, doubt, gone, look_at, disturbed, code, detail, key_of, attempts, at, since
	FROM places`

func scanPlace(row sqlite.Scanner) (p reconcile.StoredPlace, err error) {
	at, look, doubt := &p.Place, int64(0), ""
	err = row.Scan(&at.ID, &at.Name, &at.Sibling.Owner, &at.Sibling.Type, &at.Account.ID, &at.Zone, &at.ZoneID, &at.State, &at.Standing, &doubt, &at.Gone, &look,
		&at.Disturbed, &at.Fault.Code, &at.Fault.Detail, &at.Fault.Key, &at.Attempts, &p.At, &p.Since)
	at.LookAt, at.Doubt = sqlite.Stamped(look), reconcile.ParseDoubt(doubt)
	return p, sqlite.Absent(err, ErrNoLeftover)
}

// savePlace stores a place and returns its id.
func (g *Ledger) savePlace(ctx context.Context, tx *sql.Tx, p reconcile.Place) (id int64, err error) {
	now := sqlite.Shown(g.config.Now())
	values := []any{p.Name, p.Sibling.Owner, p.Sibling.Type, p.Account.ID, p.Zone, p.ZoneID, p.State, p.Standing, p.Doubt.String(), p.Gone, sqlite.Stamp(p.LookAt), p.Disturbed,
		p.Fault.Code, p.Fault.Detail, p.Fault.Key, p.Attempts, now}
	if p.ID == 0 {
		return sqlite.One[int64](ctx, tx, `
			INSERT INTO places (name, owner, type, account, zone, zone_id, state, standing, doubt, gone, look_at, disturbed, code, detail, key_of, attempts, at, since)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			RETURNING id`, append(values, now)...)
	}
	_, err = tx.ExecContext(ctx, `
		UPDATE places SET
		    name = ?1, owner = ?2, type = ?3, account = ?4, zone = ?5, zone_id = ?6, since = iif(state = ?7, since, ?17), state = ?7,
		    standing = ?8, doubt = ?9, gone = ?10, look_at = ?11, disturbed = ?12, code = ?13, detail = ?14, key_of = ?15, attempts = ?16, at = ?17
		WHERE id = ?18`, append(values, p.ID)...)
	return p.ID, err
}

// writePlaces deletes places and then stores others, which may take the zone of a deleted one. Last it
// deletes the accounts that nothing else uses. It returns the ids of the stored places. before has the
// stored places as they were.
func (g *Ledger) writePlaces(ctx context.Context, tx *sql.Tx, before map[int64]reconcile.Place, stored, ended []reconcile.Place) (ids []int64, err error) {
	err = g.config.Zones.Around(ctx, tx, leftZones(before, stored, ended), func() error {
		for _, p := range ended {
			if _, err := tx.ExecContext(ctx, `DELETE FROM places WHERE id = ?`, p.ID); err != nil {
				return err
			}
		}
		for _, p := range stored {
			id, err := g.savePlace(ctx, tx, p)
			if err != nil {
				return err
			}
			ids = append(ids, id)
		}
		return nil
	})
	for i := 0; i < len(ended) && err == nil; i++ {
		_, err = LeaveAccount(ctx, tx, ended[i].Account.ID)
	}
	return ids, err
}

// leftZones returns the built-in zones that places leave, because they end or move to another one.
func leftZones(before map[int64]reconcile.Place, stored, ended []reconcile.Place) (zones []string) {
	for _, p := range ended {
		if p.Account.Builtin() {
			zones = append(zones, p.Zone)
		}
	}
	for _, p := range stored {
		if was := before[p.ID].Zone; p.Account.Builtin() && was != p.Zone {
			zones = append(zones, was)
		}
	}
	slices.Sort(zones)
	return slices.Compact(zones)
}

// known returns the places that are stored after some work. A place without an id was never
// written to, so it is not stored if its account or its name is gone.
func (g *Ledger) known(ctx context.Context, tx *sql.Tx, places []reconcile.Place) (known []reconcile.Place, err error) {
	for _, p := range places {
		stored := p.ID > 0
		if !stored {
			err := tx.QueryRowContext(ctx, `
				SELECT EXISTS (SELECT 1 FROM accounts WHERE id = ?) AND EXISTS (SELECT 1 FROM names WHERE name = ?)`, p.Account.ID, p.Name).Scan(&stored)
			if err != nil {
				return nil, err
			}
		}
		if stored {
			known = append(known, p)
		}
	}
	return known, nil
}

// Leave makes the places of a name leftovers, if no value is wanted at the name.
func (g *Ledger) Leave(ctx context.Context, tx *sql.Tx, n reconcile.Name) error {
	if n.Wants() {
		return nil
	}
	var left []reconcile.Place
	for _, p := range n.Places {
		p, _ := p.After(reconcile.Event{Kind: reconcile.Forced}, reconcile.Wish{}, reconcile.Write, g.config.Now())
		left = append(left, p)
	}
	_, err := g.changePlaces(ctx, tx, left, nil)
	return err
}

// AddLeftovers stores leftovers, and makes their names due, a part in each transaction. It skips a name that has got a
// place in the zone meanwhile, or one whose zone is being found, and one whose account is gone, as that of a write test is
// after it.
func (g *Ledger) AddLeftovers(ctx context.Context, places []reconcile.Place) (err error) {
	for part := range slices.Chunk(places, partNames) {
		if err = g.addLeftovers(sqlite.Background(ctx), part); err != nil {
			break // the next sweep finds the rest
		}
	}
	return err
}

// addLeftovers is AddLeftovers for one part.
func (g *Ledger) addLeftovers(ctx context.Context, places []reconcile.Place) error {
	return g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, p := range places {
			skipped, err := sqlite.One[bool](ctx, tx, `
				SELECT EXISTS (SELECT 1 FROM places WHERE name = ?1 AND owner = '' AND account = ?2 AND zone IN ('', ?3)) OR
				       NOT EXISTS (SELECT 1 FROM accounts WHERE id = ?2)`, p.Name, p.Account.ID, p.Zone)
			if err != nil {
				return err
			}
			if skipped {
				continue
			}
			if _, err := g.savePlace(ctx, tx, p); err != nil {
				return err
			}
			if err := g.tellOrphan(ctx, tx, spot{name: p.Name, zone: p.Zone, provider: p.Account.Provider}, p.Standing); err != nil {
				return err
			}
			if err := g.addAll(ctx, tx, incidentEvents(reconcile.Place{}, p), sqlite.TextList{p.Name}); err != nil {
				return err
			}
			if err := g.MarkDue(ctx, tx, p.Name, reconcile.LaneAsked); err != nil {
				return err
			}
		}
		return nil
	})
}

// AddProbe stores the place of a probe before it is written, and sets its id. Without
// EndProbe the engine withdraws the probe after reconcile.ProbeTime. An account without an
// id is stored too.
func (g *Ledger) AddProbe(ctx context.Context, p *reconcile.Place) error {
	var stored reconcile.Place
	err := g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) (err error) {
		stored, _ = p.After(reconcile.Event{Kind: reconcile.Intent, Value: p.Doubt.Value}, reconcile.Wish{}, reconcile.Write, g.config.Now())
		if stored.Account.ID == 0 {
			if stored.Account.ID, _, err = g.storeAccount(ctx, tx, stored.Account); err != nil {
				return err
			}
		}
		if stored.ID, err = g.savePlace(ctx, tx, stored); err != nil {
			return err
		}
		due := sql.Null[int64]{V: sqlite.Stamp(g.config.Now().Add(reconcile.ProbeTime)), Valid: true}
		_, err = addName(ctx, tx, stored.Name, reconcile.LaneAsked, due)
		return err
	})
	if err == nil {
		*p = stored
	}
	return err
}

// EndProbe deletes the place of a probe that is gone, and its account if nothing else uses it.
func (g *Ledger) EndProbe(ctx context.Context, p reconcile.Place) error {
	return g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := g.writePlaces(ctx, tx, nil, nil, []reconcile.Place{p}); err != nil {
			return err
		}
		version, err := Version(ctx, tx, p.Name)
		if err != nil {
			return err
		}
		return DropName(ctx, tx, p.Name, version)
	})
}

// Leftovers reads at most limit leftovers after an id, in the order of their ids.
func (g *Ledger) Leftovers(ctx context.Context, after int64, limit int) ([]reconcile.StoredPlace, error) {
	tx, err := g.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	l := loader{ledger: g, q: tx, accounts: map[int64]*reconcile.Account{}}
	return l.left(ctx, selectPlaces+` WHERE state = 'leftover' AND id > ?1 UNION ALL`+selectUnmarked+` WHERE id > ?1 ORDER BY id LIMIT ?2 + 0`, after, limit)
}

// left reads leftovers with their accounts.
func (l *loader) left(ctx context.Context, query string, args ...any) ([]reconcile.StoredPlace, error) {
	places, err := sqlite.Collect(ctx, l.q, scanPlace, query, args...)
	for i := range places {
		a, err := l.account(ctx, places[i].Place.Account.ID)
		if err != nil {
			return nil, err
		}
		places[i].Place.Account = *a
	}
	return places, err
}

// PlacesOf reads the places of a name, with the ids of their accounts only.
func (g *Ledger) PlacesOf(ctx context.Context, name string) ([]reconcile.StoredPlace, error) {
	return sqlite.Collect(ctx, g.config.Reader, scanPlace, selectPlaces+` WHERE name = ?`, name)
}

// NameDue returns the time at which a name is due, zero if it waits for a pass.
func (g *Ledger) NameDue(ctx context.Context, name string) (time.Time, error) {
	due, err := sqlite.One[int64](ctx, g.config.Reader, `SELECT coalesce(due, 0) FROM names WHERE name = ?`, name)
	return sqlite.Stamped(due), sqlite.Absent(err, nil)
}

// ForgetLeftover deletes a leftover whose value a person has removed. It returns
// ErrNoLeftover if there is none.
func (g *Ledger) ForgetLeftover(ctx context.Context, id int64) error {
	return g.config.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		l := loader{ledger: g, q: tx, accounts: map[int64]*reconcile.Account{}}
		left, err := l.left(ctx, selectPlaces+` WHERE id = ?1 AND state = 'leftover' UNION ALL`+selectUnmarked+` WHERE id = ?1`, id)
		switch {
		case err != nil:
			return err
		case len(left) == 0:
			return ErrNoLeftover
		case left[0].Place.Fault.Code == reconcile.CodeMaybeOurs:
			return g.dropUnmarked(ctx, tx, left[0].Place)
		}
		if _, err := g.changePlaces(ctx, tx, nil, []reconcile.Place{left[0].Place}); err != nil {
			return err
		}
		return g.MarkDue(ctx, tx, left[0].Place.Name, reconcile.LaneAsked)
	})
}

// Zones reads every zone that may have values of ours: the zones of the places, with one
// index search for each, and the zones of the domains.
func (g *Ledger) Zones(ctx context.Context) (zones []reconcile.Zone, err error) {
	tx, err := g.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	l := loader{ledger: g, q: tx, accounts: map[int64]*reconcile.Account{}}
	for account, apex := int64(0), ""; ; {
		err := tx.QueryRowContext(ctx, `
			SELECT account, zone FROM places WHERE (account, zone) > (?, ?) ORDER BY account, zone LIMIT 1`, account, apex).Scan(&account, &apex)
		if errors.Is(err, sql.ErrNoRows) {
			break
		}
		if err != nil {
			return nil, err
		}
		a, err := l.account(ctx, account)
		if err != nil {
			return nil, err
		}
		if apex != "" {
			zones = append(zones, reconcile.Zone{Account: *a, Apex: apex})
		}
	}
	return l.domains(ctx, zones)
}

// domains adds the zones of the services and of the configuration.
func (l *loader) domains(ctx context.Context, zones []reconcile.Zone) ([]reconcile.Zone, error) {
	c, err := l.ledger.selectConfigured(ctx, l.q)
	if err != nil || c == nil {
		return zones, err
	}
	found := map[reconcile.Zone]bool{{Domain: c.Zone, Account: reconcile.Account{ID: c.AccountID}}: true}
	err = l.rows(ctx, `SELECT zone, coalesce(account, 0) FROM services WHERE id > ''`, func(rows *sql.Rows) error {
		var z reconcile.Zone
		err := rows.Scan(&z.Domain, &z.Account.ID)
		if z.Account.ID == 0 && dns.Within(z.Domain, c.Zone) {
			z.Account.ID = c.AccountID
		}
		if z.Account.ID > 0 && z.Domain != "" {
			found[z] = true
		}
		return err
	})
	for z := range found {
		a, fault := l.account(ctx, z.Account.ID)
		err = errors.Join(err, fault)
		zones = append(zones, reconcile.Zone{Account: *a, Domain: z.Domain})
	}
	return zones, err
}

// Strangers returns the names that have no place in the zone, nor in a zone that may be it.
// A zone of the same apex may be it, because an address has several spellings. All built-in zones
// are one table, so any of them is it. It is another zone if only one of both is built in, or if two accounts of one provider and
// endpoint have different ids for it. For one account different ids do not count: the zone
// may have been deleted and made again.
func (g *Ledger) Strangers(ctx context.Context, z reconcile.Zone, names []string) ([]string, error) {
	return sqlite.Collect(ctx, g.config.Reader, sqlite.Text, `
		SELECT value FROM json_each(?1)
		WHERE NOT EXISTS (SELECT 1 FROM places p JOIN accounts a ON a.id = p.account
		                  WHERE p.name = value AND p.owner = '' AND (p.zone = ?2 OR ?4 = 'builtin') AND (a.provider = 'builtin') = (?4 = 'builtin') AND
		                        NOT (a.id <> ?3 AND a.provider = ?4 AND a.endpoint = ?5 AND p.zone_id <> '' AND ?6 <> '' AND p.zone_id <> ?6))`,
		sqlite.TextList(names), z.Apex, z.Account.ID, z.Account.Provider, z.Account.Endpoint, z.ID)
}
