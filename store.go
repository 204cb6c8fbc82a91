// The database is opened here, and asked and changed: configuration, services, usages. Package main has no other SQL; the
// rows that other packages read, too, are in package ledger.

package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sort"
	"strconv"
	"time"

	"github.com/google/uuid"

	"meshddns/internal/answers"
	"meshddns/internal/builtin"
	"meshddns/internal/dns"
	"meshddns/internal/events"
	"meshddns/internal/hostaddr"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/migrations"
	"meshddns/internal/msg"
	"meshddns/internal/notify"
	"meshddns/internal/reconcile"
	"meshddns/internal/rights"
	"meshddns/internal/secondary"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// schemaSQL is today's schema, which a new file gets.
//
//go:embed schema.sql
var schemaSQL string

var schema = sqlite.Schema{
	Tables: schemaSQL, Own: []string{"appliance", "usages"}, First: firstRows, Probe: `SELECT 1 FROM appliance`, Oldest: migrations.Oldest, Steps: migrations.Steps(),
	Secrets: [][4]string{
		{"configuration", ledger.SecretRow, "access_key_secret", ""}, {"accounts", ledger.SecretRow, "access_key_secret", "key_hash"}, {"services", "id", "config", ""},
		{"notifications", "id", "url", ""}, {"notifications", "id", "secret", ""}, {"secondaries", "id", "key_secret", ""},
	},
}

// firstRows stores the owner of a new database, and the first state of its synchronisation.
func firstRows(ctx context.Context, tx *sql.Tx) error {
	var owner [6]byte
	rand.Read(owner[:])
	_, err := tx.ExecContext(ctx, `
		INSERT INTO appliance (id, owner) VALUES (1, ?);
		INSERT INTO pass (id, number, requested, requested_at, running, last) VALUES (1, 0, '', 0, '', '')`,
		hex.EncodeToString(owner[:]))
	return err
}

// Store functions return these errors besides database faults. A transaction
// returns one only before it changes anything.
const (
	errNoConfiguration = ledger.ErrNoConfiguration
	errNoService       = ledger.ErrNoService
	errNoUsage         = ledger.ErrNoUsage
	errReleased        = sqlite.Refusal(msg.LeaseReleased)
	errServiceExists   = sqlite.Refusal(msg.ServiceExists)
	errServiceInUse    = sqlite.Refusal(msg.ServiceInUse)
	errDomainInUse     = sqlite.Refusal(msg.ServiceDomainInUse)
	errPrefixTaken     = sqlite.Refusal(msg.PrefixTaken)
	errNameTooLong     = sqlite.Refusal(msg.NameTooLong)
	errServiceConfig   = sqlite.Refusal(msg.ServiceConfigInvalid)
	errNoDomain        = sqlite.Refusal(msg.ServiceDomainMissing)
	errNoSecret        = sqlite.Refusal(msg.SecretNotStored)
	errBackupRuns      = sqlite.Refusal(msg.BackupRuns)
	errNotPermitted    = sqlite.Refusal(msg.NotPermitted)
)

// store is the database with the questions of this program.
type store struct {
	db          *sqlite.Database
	ledger      *ledger.Ledger
	events      *events.Log
	targets     *notify.Table
	secondaries *secondary.Table
	zones       *builtin.Table
	replays     *answers.Replays
	now         func() time.Time
	newID       func() (string, error)
}

// openDatabase opens the database file, and creates it when there is none. It returns the owner, and this host's
// last known addresses, too.
func openDatabase(ctx context.Context, path string, schema sqlite.Schema, log *slog.Logger) (db *sqlite.Database, owner string, last mesh.Addresses, err error) {
	if db, err = sqlite.Open(ctx, path, schema, log); err != nil {
		return nil, "", last, err
	}
	if err = db.Reader.QueryRowContext(ctx, `SELECT owner FROM appliance`).Scan(&owner); err == nil {
		last, err = hostaddr.Stored(ctx, db.Reader)
	}
	if err != nil {
		return nil, "", last, errors.Join(fmt.Errorf("read %s: %w", path, err), db.Close())
	}
	return db, owner, last, nil
}

// newStore makes the store of a database. own has the names of -dns-host and -dns-catalog; addresses gives this host's addresses.
func newStore(ctx context.Context, db *sqlite.Database, owner string, own mesh.Program, addresses func() reconcile.Addresses, log *slog.Logger) (*store, error) {
	s := &store{db: db, now: time.Now, newID: newUUID}
	began, now := time.Now(), func() time.Time { return s.now() }
	s.events = events.New(db.Reader, db.Tx, now, db.Note)
	s.targets, s.secondaries = notify.NewTable(db, now), secondary.NewTable(db)
	s.zones = builtin.NewTable(db, own.Catalog, s.secondaries.Any, now)
	s.ledger = ledger.New(ledger.Config{Reader: db.Reader, Tx: db.Tx, Key: db.Key, Zones: s.zones, Program: own, Events: s.events, Addresses: addresses, Now: now}, owner)
	newest, err := s.events.Newest(ctx)
	s.replays = answers.NewReplays(now, func() time.Duration { return now().Sub(began) }, newest)
	for _, committed := range []func(sqlite.Notice){s.events.Committed, s.targets.Committed, s.secondaries.Committed, s.tellMoved} {
		db.Subscribe(committed)
	}
	if err := errors.Join(err, s.noticeRestore(ctx), s.secondaries.Refresh(ctx)); err != nil {
		return nil, fmt.Errorf("read the database: %w", err)
	}
	return s, nil
}

// tellMoved tells the secondaries of the zones that a commit has moved.
func (s *store) tellMoved(n sqlite.Notice) {
	for _, what := range n {
		if moved, ok := what.(builtin.Moved); ok {
			s.secondaries.Moved(moved.Zone, moved.Serial)
		}
	}
}

// newUUID returns an id that sorts after earlier ids, so that inserts go to the end of an index.
func newUUID() (string, error) {
	id, err := uuid.NewV7()
	return id.String(), err
}

// noticeRestore stores an event if the database is an older one than the last that was used in its folder, or new
// there. On a full disk the next start does it.
func (s *store) noticeRestore(ctx context.Context) error {
	last, err := s.events.Last(ctx)
	if noted, known := s.db.Noted(); err != nil || last >= noted && known || last == 0 && !known {
		return err
	}
	if err = s.db.Tx(ctx, s.events.AddRestored); sqlite.FaultOf(err) == sqlite.Full {
		return nil
	}
	return err
}

// stamp returns the time as rows have it.
func (s *store) stamp() string { return sqlite.Shown(s.now()) }

// Close closes the database.
func (s *store) Close() error { return s.db.Close() }

// changeSecrets runs a transaction that may replace or delete secrets and change the set of
// built-in zones. After the commit the old secrets are erased from the files.
func (s *store) changeSecrets(ctx context.Context, f func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error) error {
	return s.zones.ChangeZones(ctx, func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error {
		sqlite.Touch(ctx, sqlite.Replaced{})
		return f(ctx, tx, zones)
	})
}

// Configuration gives the stored configuration, or errNoConfiguration.
func (s *store) Configuration(ctx context.Context) (mesh.Configuration, error) {
	return s.ledger.SelectConfiguration(ctx, s.db.Reading(ctx))
}

// PutConfiguration stores the configuration, and asks for a pass over all names.
// With keepSecret the stored secret stays, which is errNoSecret unless it belongs
// to the same credentials: it must not be sent to another address.
func (s *store) PutConfiguration(ctx context.Context, c mesh.Configuration, keepSecret bool) error {
	return s.changeSecrets(ctx, func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error {
		stored, err := s.ledger.SelectConfiguration(ctx, tx)
		if err != nil && !errors.Is(err, errNoConfiguration) {
			return err
		}
		c := c // this may run twice
		if keepSecret {
			var ok bool
			if c, ok = c.Unmasked(stored); !ok {
				return errNoSecret
			}
		}
		if err := s.zones.CheckZone(c.Provider, dns.Parse(c.Domain)); err != nil {
			return err
		}
		account, err := s.ledger.UseAccount(ctx, tx, reconcile.ConfiguredAccount(c))
		if err != nil {
			return err
		}
		if err := zones.Begin(ctx, tx, stored.Zone, dns.Parse(c.Domain)); err != nil {
			return err
		}
		c.AccountID, c.UpdatedAt = account, s.stamp()
		if err := s.ledger.SaveConfiguration(ctx, tx, c); err != nil {
			return err
		}
		if stored.AccountID == 0 || !c.SameAs(stored) {
			if err := s.events.Add(ctx, tx, events.OfConfiguration(stored, c)); err != nil {
				return err
			}
		}
		for _, name := range slices.Compact([]string{c.RecordName(), cmp.Or(stored.StoredName(), c.RecordName())}) {
			if err := s.ledger.MarkDue(ctx, tx, name, reconcile.LaneChanged); err != nil {
				return err
			}
		}
		if err := s.ledger.RequestPass(ctx, tx, reconcile.TriggerChange); err != nil {
			return err
		}
		_, err = ledger.LeaveAccount(ctx, tx, stored.AccountID)
		return err
	})
}

// DeleteConfiguration deletes the configuration, or returns errNoConfiguration. Its value is due for
// withdrawal at once; the next pass withdraws the values of services that use its key. It returns
// the version of the configuration's name.
func (s *store) DeleteConfiguration(ctx context.Context) (version int64, err error) {
	err = s.changeSecrets(ctx, func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error {
		stored, err := s.ledger.SelectConfiguration(ctx, tx)
		if err != nil {
			return err
		}
		if err := zones.Begin(ctx, tx, stored.Zone); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM configuration WHERE id = 1`); err != nil {
			return err
		}
		if err := s.events.Add(ctx, tx, events.OfConfiguration(stored, mesh.Configuration{})); err != nil {
			return err
		}
		if err := s.ledger.MarkDue(ctx, tx, stored.RecordName(), reconcile.LaneAsked); err != nil {
			return err
		}
		if version, err = ledger.Version(ctx, tx, stored.RecordName()); err != nil {
			return err
		}
		if err := s.ledger.RequestPass(ctx, tx, reconcile.TriggerChange); err != nil {
			return err
		}
		_, err = ledger.LeaveAccount(ctx, tx, stored.AccountID)
		return err
	})
	return version, err
}

// Service gives one service, or errNoService; errNotPermitted if the caller of ctx may not see it.
func (s *store) Service(ctx context.Context, id string) (mesh.Service, error) {
	if _, permitted := rights.Narrow(ctx, id); !permitted {
		return mesh.Service{}, errNotPermitted
	}
	return s.ledger.ScanService(s.db.Reading(ctx).QueryRowContext(ctx, ledger.SelectServices+` WHERE id = ?`, id))
}

// Services reads at most limit services after an id, in the order of their ids.
func (s *store) Services(ctx context.Context, after string, limit int) ([]mesh.Service, error) {
	return sqlite.Collect(ctx, s.db.Reading(ctx), s.ledger.ScanService, ledger.SelectServices+` WHERE id > ? ORDER BY id LIMIT ? + 0`, after, limit)
}

// servicePage bounds a page of services, of which each may have a config of 64 KiB.
const servicePage = 100

// AllServices reads all services in the order of their ids.
func (s *store) AllServices(ctx context.Context) iter.Seq2[mesh.Service, error] {
	return sqlite.Pages(servicePage, func(behind mesh.Service) ([]mesh.Service, error) { return s.Services(ctx, behind.ID, servicePage) })
}

// CreateService registers a service; errServiceExists when its id is in use.
func (s *store) CreateService(ctx context.Context, v mesh.Service) error {
	return s.changeSecrets(ctx, func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error {
		_, err := s.ledger.ScanService(tx.QueryRowContext(ctx, ledger.SelectServices+` WHERE id = ?`, v.ID))
		if err == nil {
			return errServiceExists
		}
		if !errors.Is(err, errNoService) {
			return err
		}
		return s.saveService(ctx, tx, mesh.Service{}, v, zones)
	})
}

// PutService creates or replaces a service. A masked secret keeps the stored one; without one it
// returns errNoSecret. A new zone is errDomainInUse while usages exist, because their names would
// change.
func (s *store) PutService(ctx context.Context, v mesh.Service) error {
	return s.changeSecrets(ctx, func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error {
		stored, err := s.ledger.ScanService(tx.QueryRowContext(ctx, ledger.SelectServices+` WHERE id = ?`, v.ID))
		if err != nil && !errors.Is(err, errNoService) {
			return err
		}
		changed, ok := v.Over(stored)
		if !ok {
			return errNoSecret
		}
		if config, _ := mesh.ParseServiceConfig(changed.Config); stored.UsageCount > 0 && stored.Zone != dns.Parse(config.Domain) {
			return errDomainInUse
		}
		return s.saveService(ctx, tx, stored, changed, zones)
	})
}

// saveService stores a service and the members of its config that the program reads, and marks all
// its names as due. before is the stored service, zero for a new one.
func (s *store) saveService(ctx context.Context, tx *sql.Tx, before, v mesh.Service, zones *builtin.ZoneChange) error {
	config, err := mesh.ParseServiceConfig(v.Config)
	if err != nil {
		return err
	}
	if err := s.zones.CheckZone(config.Provider, dns.Parse(config.Domain)); err != nil {
		return err
	}
	var account sql.Null[int64]
	if config.Provider != "" {
		account.Valid = true
		if account.V, err = s.ledger.UseAccount(ctx, tx, reconcile.ServiceAccount(config)); err != nil {
			return err
		}
	}
	if err := zones.Begin(ctx, tx, before.Zone, dns.Parse(config.Domain)); err != nil {
		return err
	}
	if err := s.ledger.SaveService(ctx, tx, v, config, account, s.stamp()); err != nil {
		return err
	}
	if before.ID == "" || !v.SameAs(before) {
		if err := s.events.Add(ctx, tx, events.OfService(before, v)); err != nil {
			return err
		}
	}
	if err := s.ledger.MarkAround(ctx, tx, before.Zone, dns.Parse(config.Domain)); err != nil {
		return err
	}
	if before.UsageCount > 0 {
		if _, err := tx.ExecContext(ctx, `INSERT INTO marks (service_id, after) VALUES (?, 0) ON CONFLICT DO UPDATE SET after = 0`, v.ID); err != nil {
			return err
		}
	}
	_, err = ledger.LeaveAccount(ctx, tx, before.AccountID)
	return err
}

// DeleteService deletes a service, or returns errServiceInUse while usages exist. Its key stays
// until no value needs it.
func (s *store) DeleteService(ctx context.Context, id string) error {
	return s.changeSecrets(ctx, func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error {
		v, err := s.ledger.ScanService(tx.QueryRowContext(ctx, ledger.SelectServices+` WHERE id = ?`, id))
		switch {
		case err != nil:
			return err
		case v.UsageCount > 0:
			return errServiceInUse
		}
		if err := zones.Begin(ctx, tx, v.Zone); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM services WHERE id = ?`, id); err != nil {
			return err
		}
		if err := s.ledger.MarkAround(ctx, tx, v.Zone, ""); err != nil {
			return err
		}
		if err := s.events.Add(ctx, tx, events.OfService(v, mesh.Service{})); err != nil {
			return err
		}
		_, err = ledger.LeaveAccount(ctx, tx, v.AccountID)
		return err
	})
}

// CheckService returns the reason why a service can have no usages, or nil.
func (s *store) CheckService(ctx context.Context, id string) error {
	_, err := selectZone(ctx, s.db.Reading(ctx), id)
	return err
}

// usageZone is the domain of a service, under which its usages are.
type usageZone struct {
	domain     sql.Null[string] // as typed
	zone       string           // as DNS has it
	configured string           // the configuration's, "" for none
	own        sql.Null[string] // the name of the configuration's record; not valid without a configuration
	nowhere    bool             // no account can publish
}

// state returns the state of a new usage of the service.
func (z usageZone) state() reconcile.PlaceState {
	if z.nowhere {
		return reconcile.None
	}
	return reconcile.Pending
}

func selectZone(ctx context.Context, q sqlite.Queryer, service string) (z usageZone, err error) {
	if _, permitted := rights.Narrow(ctx, service); !permitted {
		return z, errNotPermitted
	}
	var account bool
	var configured sql.Null[string]
	err = q.QueryRowContext(ctx, `
		SELECT s.domain, s.zone, s.account IS NOT NULL, c.zone, c.name
		FROM services s LEFT JOIN configuration c ON c.id = 1 WHERE s.id = ?`, service).Scan(
		&z.domain, &z.zone, &account, &configured, &z.own)
	switch {
	case err != nil:
		return z, sqlite.Absent(err, errNoService)
	case !z.domain.Valid:
		return z, errServiceConfig
	case z.domain.V == "":
		return z, errNoDomain
	}
	z.configured = configured.V
	z.nowhere = !configured.Valid || !account && !dns.Within(z.zone, configured.V)
	return z, nil
}

// CreateUsage stores a usage, its binding to a network and its due name, all or none, and returns the
// usage with its title. It returns errPrefixTaken if the service has the custom prefix already; then HeldBy of the result is the
// network that has it.
func (s *store) CreateUsage(ctx context.Context, u mesh.Usage) (mesh.Usage, error) {
	bindingID, err := s.newID()
	if err == nil {
		u.ID, err = s.newID()
	}
	if err != nil {
		return u, err
	}
	err = s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		zone, err := selectZone(ctx, tx, u.ServiceID)
		if err != nil {
			return err
		}
		u.Domain = zone.domain
		if u.Name = dns.Fold(mesh.FullName(u.Prefix, zone.zone)); !dns.Fits(u.Name) {
			return errNameTooLong
		}
		u.CreatedAt, u.Publish.State, u.Rival = s.stamp(), string(zone.state()), ""
		if u.Tenant = rights.Of(ctx).Service != ""; u.Tenant && zone.own.V == u.Name {
			u.Publish.State, u.Rival = string(reconcile.Conflict), mesh.UsedByConfiguration
		}
		if u.Seq, err = ledger.InsertUsage(ctx, tx, u, bindingID); err != nil {
			return err
		}
		if u.Seq == 0 {
			if u.HeldBy, err = ledger.PrefixHolder(ctx, tx, u); err != nil {
				return err
			}
			return errPrefixTaken
		}
		known, err := s.ledger.AddName(ctx, tx, u.Name, zone.own)
		if err != nil {
			return err
		}
		if err := s.events.Add(ctx, tx, events.Reserved(u)); err != nil {
			return err
		}
		// A tenant's usage at the name of the configuration's record is in conflict from here on.
		waits := reconcile.Usage{ID: u.ID, Network: u.Network.V.String(), Shown: reconcile.Shown{Rival: u.Rival}}
		if err := s.ledger.NoteRival(ctx, tx, reconcile.ShownChange{Now: waits}); err != nil {
			return err
		}
		if known { // else no other usage, nor the configuration's record, has the name
			if err := s.ledger.MarkDue(ctx, tx, u.Name, reconcile.LaneChanged); err != nil {
				return err
			}
		}
		u.Title, u.Rival, err = s.ledger.Title(ctx, tx, u, !known && !dns.Within(zone.configured, dns.Parent(u.Name)))
		return err
	})
	return u, err
}

// CountUsages counts the usages of a service with a prefix, letter case aside. The search takes a few microseconds, so
// the end of ctx does not cancel it: a goroutine that watches for the end costs as much.
func (s *store) CountUsages(ctx context.Context, serviceID, prefix string) (count int64, err error) {
	if _, permitted := rights.Narrow(ctx, serviceID); !permitted {
		return 0, errNotPermitted
	}
	return sqlite.One[int64](context.WithoutCancel(ctx), s.db.Reader, `
		SELECT count(*) FROM usages
		WHERE name = '_mesh.' || lower(?2) || '.' || (SELECT zone FROM services WHERE id = ?1) AND provider_id = ?1`, serviceID, prefix)
}

// usageFilter selects usages; a zero field selects all.
type usageFilter struct {
	prefix    sql.NullString // in any letter case
	name      sql.NullString // the full name, or what stands behind its first label
	network   sql.Null[mesh.NetworkID]
	state     reconcile.PlaceState // of the publishing
	serviceID string
	after     int64 // only those with a higher seq
}

// Usages reads at most limit usages in the order of their reservation.
func (s *store) Usages(ctx context.Context, f usageFilter, limit int) ([]mesh.Usage, error) {
	where, args := f.where(limit)
	return sqlite.Collect(ctx, s.db.Reading(ctx), ledger.ScanUsage, ledger.SelectUsages+where, args...)
}

const usagePage = 100 // in which AllUsages reads

// AllUsages reads the usages up to a seq in the order of their reservation.
func (s *store) AllUsages(ctx context.Context, last int64) iter.Seq2[mesh.Usage, error] {
	return sqlite.Pages(usagePage, func(behind mesh.Usage) ([]mesh.Usage, error) {
		page, err := s.Usages(ctx, usageFilter{after: behind.Seq}, usagePage)
		return slices.DeleteFunc(page, func(u mesh.Usage) bool { return u.Seq > last }), err
	})
}

// where returns the conditions for at most limit usages, and their arguments: first the one whose index leads to the usages,
// then all.
func (f usageFilter) where(limit int) (query string, args []any) {
	names, begin := sqlite.TextList(mesh.Meant(f.name.String)), mesh.Label+"."+dns.Fold(f.prefix.String)
	switch query = ` WHERE u.seq > ?1`; {
	case f.name.Valid:
		query = ` WHERE u.name IN (SELECT value FROM json_each(?6)) AND +u.seq > ?1`
	case f.prefix.Valid:
		query = ` WHERE u.name BETWEEN ?7 || '.' AND ?7 || '/' AND +u.seq > ?1`
	case f.network.Valid:
		query = ` WHERE u.seq IN (SELECT seq FROM bindings WHERE network_id = ?4 AND seq > ?1 ORDER BY seq)`
	case f.state != "":
		query = ` WHERE u.state = ?3 AND u.seq > ?1`
	case f.serviceID != "":
		query = ` WHERE u.provider_id = ?2 AND u.seq > ?1`
	}
	return query + ` AND ?2 IN ('', +u.provider_id) AND ?3 IN ('', +u.state) AND (?4 IS NULL OR b.network_id = ?4) AND (?5 IS NULL OR u.record_prefix = ?5 COLLATE NOCASE)
		AND u.record_type = 'TXT' ORDER BY u.seq LIMIT ?8 + 0`, []any{f.after, f.serviceID, f.state, f.network, f.prefix, names, begin, limit}
}

// LastUsage returns the seq of the last reserved usage, 0 without one.
func (s *store) LastUsage(ctx context.Context) (seq int64, err error) {
	return sqlite.One[int64](ctx, s.db.Reader, `SELECT coalesce(max(seq), 0) FROM usages`)
}

// Listing reads the same usages as Usages, as a part of the list in JSON. say gives the text of a
// fault. SQLite writes the JSON, because scanning a row costs more than writing it.
func (s *store) Listing(ctx context.Context, f usageFilter, limit int, say func(mesh.Fault) string) (listed web.Part[int64], err error) {
	var permitted bool
	if f.serviceID, permitted = rights.Narrow(ctx, f.serviceID); !permitted {
		return listed, errNotPermitted
	}
	var written string
	where, args := f.where(limit)
	err = s.db.Reader.QueryRowContext(ctx, `
		WITH page (seq, id, service, mode, prefix, description, occupied, network, name, domain, attempts, state, value, code, detail, key_of, at) AS (
		    SELECT u.seq, u.id, u.provider_id, u.prefix_mode, u.record_prefix, u.description, u.is_exclusive, b.network_id, s.name, s.domain, `+ledger.PublishColumns+`
		    FROM usages u
		    LEFT JOIN bindings b ON b.seq = u.seq
		    LEFT JOIN services s ON s.id = u.provider_id
		    LEFT JOIN places p ON p.id = u.place`+where+`)
		SELECT count(*), coalesce(max(seq), 0), coalesce(group_concat(json_object(
		    'id', id, 'provider_id', service, 'prefix_mode', mode, 'record_prefix', prefix, 'record_type', 'TXT',
		    'description', description, 'is_occupied', json(iif(occupied = 1, 'true', 'false')),
		    'network_id', iif(network < 0, json(printf('%u', network)), network),
		    'full_domain', '`+mesh.Label+`.' || prefix || '.' || coalesce(domain, ''),
		    'provider', iif(name IS NULL, NULL, json_object('id', service, 'name', name)),
		    'network_name', iif(substr(description, 1, `+describing+`) = '`+mesh.Describing+`', CAST(substr(CAST(description AS BLOB), `+describing+` + 1) AS TEXT), ''),
		    'publish', json_object('state', state, 'value', value, 'error', iif(code = '', '', json_array(code, detail, key_of)), 'attempts', attempts, 'at', at)),
		    char(10) || ','), '')
		FROM page`, args...).Scan(&listed.Size, &listed.Last, &written)
	listed.Entries = []byte(answers.ListEntries(written, func(code, detail, key string) string {
		return say(mesh.Fault{Code: code, Detail: msg.Text(detail), Key: key}.For(rights.Of(ctx).Service))
	}))
	return listed, err
}

var describing = strconv.Itoa(len(mesh.Describing)) // its length

// Usage reads one usage, or returns errNoUsage.
func (s *store) Usage(ctx context.Context, id string) (mesh.Usage, error) {
	return ledger.SelectUsage(ctx, s.db.Reader, id)
}

// SameUsages reads the usages of a service that reserve a prefix for a network, in any letter case;
// those that are being released come last. The search is by name, which few usages share, and not
// by service (+), which may have a million.
func (s *store) SameUsages(ctx context.Context, u mesh.Usage) (same []mesh.Usage, err error) {
	q := s.db.Reading(ctx)
	zone, err := selectZone(ctx, q, u.ServiceID)
	if err != nil {
		return nil, err
	}
	same, err = sqlite.Collect(ctx, q, ledger.ScanUsage, ledger.SelectUsages+` WHERE u.name = ? AND +u.provider_id = ? AND +b.network_id = ?`,
		dns.Fold(mesh.FullName(u.Prefix, zone.zone)), u.ServiceID, u.Network)
	sort.SliceStable(same, func(i, j int) bool {
		a, b := same[i], same[j]
		return cmp.Or(cmp.Compare(a.Status, b.Status), cmp.Compare(a.Seq, b.Seq)) < 0
	})
	return same, err
}

// UsageName returns the full record name of a prefix of a service, "" if the service can have none.
func (s *store) UsageName(ctx context.Context, service, prefix string) string {
	zone, err := selectZone(ctx, s.db.Reading(ctx), service)
	if err != nil {
		return ""
	}
	return dns.Fold(mesh.FullName(prefix, zone.zone))
}

// KeepUsage cancels the release of a usage, or returns errNoUsage if the usage is freed already.
func (s *store) KeepUsage(ctx context.Context, id string) error {
	return s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		u, err := ledger.SelectUsage(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE bindings SET status = ? WHERE seq = ?`, mesh.Active, u.Seq); err != nil {
			return err
		}
		kept := u
		kept.Status = mesh.Active
		if err := s.events.Add(ctx, tx, events.Changed(u, kept)); err != nil {
			return err
		}
		return s.ledger.MarkDue(ctx, tx, u.Name, reconcile.LaneChanged)
	})
}

// ChangeUsage changes a usage, or returns errNoUsage, errReleased, or the fault of the endpoints that it would have.
func (s *store) ChangeUsage(ctx context.Context, id string, c mesh.UsageChange) (err error) {
	var fault error
	err = s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		before, err := ledger.SelectUsage(ctx, tx, id)
		if err != nil {
			return err
		}
		if before.Status == mesh.Releasing {
			return errReleased
		}
		after, differs := c.Over(before)
		if fault = nil; c.Endpoints != nil || c.Formats != nil {
			if fault = after.CheckEndpoints(); fault != nil {
				return nil
			}
		}
		if err := ledger.UpdateUsage(ctx, tx, after); err != nil {
			return err
		}
		if differs {
			if err := s.events.Add(ctx, tx, events.Changed(before, after)); err != nil {
				return err
			}
		}
		return s.ledger.MarkDue(ctx, tx, before.Name, reconcile.LaneChanged)
	})
	return cmp.Or(err, fault)
}

// ReleaseUsage deletes a usage, or marks it as releasing while its value may stand at a provider.
// By force, and in mode upsert-only, it deletes the usage at once and makes its value a leftover. It returns the
// version of the name if its value has to change, else 0.
func (s *store) ReleaseUsage(ctx context.Context, id string, force bool) (freed bool, version int64, err error) {
	err = s.db.Tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		freed, version = false, 0
		u, err := ledger.SelectUsage(ctx, tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE bindings SET status = ? WHERE seq = ?`, mesh.Releasing, u.Seq); err != nil {
			return err
		}
		state, err := s.ledger.StateIn(ctx, tx, []string{u.Name})
		if err != nil {
			return err
		}
		next := state.Names[0].Wants()
		leave := force || state.UpsertOnly && !next // a value that another usage replaces is no leftover
		freed = leave || !u.Network.Valid || slices.Contains(reconcile.Free(state.Names[0], state.UpsertOnly), id)
		if leave {
			if err := s.ledger.Leave(ctx, tx, state.Names[0]); err != nil {
				return err
			}
		}
		told := events.UsageReleasing
		if freed {
			told = events.UsageReleased
			if _, err := tx.ExecContext(ctx, `DELETE FROM usages WHERE id = ?`, id); err != nil {
				return err
			}
		}
		if freed || u.Status != mesh.Releasing { // a repeated release changes nothing
			if err := s.events.Add(ctx, tx, events.OfUsage(told, u)); err != nil {
				return err
			}
		}
		lane := reconcile.LaneAsked
		waited := slices.ContainsFunc(state.Names[0].Usages, func(o reconcile.Usage) bool { return o.ID == id && o.Shown.Rival != "" })
		if leave || len(state.Names[0].Places) == 0 || freed && waited && next && state.Paused.Code != "" { // nothing of it stands
			lane = reconcile.LaneChanged
		}
		if err := s.ledger.MarkDue(ctx, tx, u.Name, lane); err != nil {
			return err
		}
		now, err := ledger.Version(ctx, tx, u.Name)
		if err != nil {
			return err
		}
		if lane == reconcile.LaneAsked {
			version = now
		}
		return ledger.DropName(ctx, tx, u.Name, now)
	})
	return freed, version, err
}

// SaveAddresses stores changed addresses, and asks for a pass.
func (s *store) SaveAddresses(ctx context.Context, a mesh.Addresses) error {
	return s.db.Tx(events.By(ctx, reconcile.ByAddress), func(ctx context.Context, tx *sql.Tx) error {
		before, err := hostaddr.Stored(ctx, tx)
		if err != nil {
			return err
		}
		if err := hostaddr.Store(ctx, tx, a); err != nil {
			return err
		}
		if err := s.events.Add(ctx, tx, events.OfAddresses(before, a)); err != nil {
			return err
		}
		if err := s.zones.MoveAll(ctx, tx); err != nil {
			return err
		}
		return s.ledger.RequestPass(ctx, tx, reconcile.TriggerAddress)
	})
}
