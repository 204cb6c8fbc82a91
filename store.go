// The database: opened, kept well and copied; the questions about the configuration and the
// services; those about usages. Package main has no other SQL.

package main

import (
	"cmp"
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"github.com/mattn/go-sqlite3"

	"meshddns/internal/answers"
	"meshddns/internal/builtin"
	"meshddns/internal/dnsname"
	"meshddns/internal/ledger"
	"meshddns/internal/mesh"
	"meshddns/internal/migrations"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
)

// schemaSQL is always today's schema: a new file gets it at once.
//
//go:embed schema.sql
var schemaSQL string

var schema = migrations.Schema{Tables: schemaSQL, Steps: migrations.Steps()}

// What a store function reports beside faults of the database itself. A
// transaction ends with one of these only before it has changed anything.
const (
	errNoConfiguration = sqlite.Refusal("no configuration is stored")
	errNoService       = sqlite.Refusal("no such service")
	errNoUsage         = sqlite.Refusal("no such usage")
	errServiceExists   = sqlite.Refusal("a service with this id exists")
	errServiceInUse    = sqlite.Refusal("the service has usages")
	errDomainInUse     = sqlite.Refusal("the service has usages, its domain cannot change")
	errPrefixTaken     = sqlite.Refusal("the prefix is taken")
	errNameTooLong     = sqlite.Refusal("the full record name is too long")
	errServiceConfig   = sqlite.Refusal("the service's config is not a JSON object")
	errNoDomain        = sqlite.Refusal("the service's config has no domain")
	errNoSecret        = sqlite.Refusal("no stored secret belongs to these credentials")
	errBackupRuns      = sqlite.Refusal("a backup is being made or sent")
)

// store is the database. There is one writer, for SQLite has one; readers
// work beside it on the last committed state (WAL).
type store struct {
	path      string
	file      *sqlite.File
	gate      *sqlite.Pools
	writer    *sql.DB
	commits   *sqlite.Queue
	keeper    *sqlite.Checkpointer
	reader    *sql.DB
	opening   sync.WaitGroup // of a reader, beside the start
	eraser    *sqlite.Eraser
	owner     string         // marks the values in DNS that are ours
	addresses mesh.Addresses // this host's public ones that were last known when the database was opened
	ledger    *ledger.Ledger
	zones     *builtin.Table
	now       func() time.Time
	newID     func() (string, error)
	committed func()                // called after each commit: something may be due
	full      atomic.Bool           // a write has found the disk full, and no later one that there is room
	damage    atomic.Pointer[error] // what a look at the whole file has found
}

const readers = 4

// openStore opens the database file, makes it when it is not there, and
// brings its schema to this program's version.
func openStore(ctx context.Context, path string, log *slog.Logger) (_ *store, err error) {
	s := &store{path: filepath.Clean(path), now: time.Now, newID: newUUID, committed: func() {}}
	if s.file, err = takeFile(ctx, path); err != nil {
		return nil, err
	}
	if err := s.file.RemoveTempFolders(); err != nil {
		log.Warn("what a backup has left beside the database stays there", "error", err)
	}
	// A megabyte each holds the upper pages of every index, and what a list reads it reads once.
	s.gate = sqlite.NewPools(s.file.Check, dataSource(s.path, url.Values{"_query_only": {"1"}, "_cache_size": {"-1000"}}), bareSource(s.path))
	s.reader = s.gate.Readers(readers)
	// Eight megabytes hold the pages of many indexes that reservations in no order change.
	s.writer = s.gate.Writer(dataSource(s.path, url.Values{"_txlock": {"immediate"}, "_cache_size": {"-8000"}, "_secure_delete": {"on"}}))
	s.keeper = sqlite.NewCheckpointer(s.writer, s.reader)
	s.commits = sqlite.NewQueue(s.writer, func() {
		s.keeper.Committed()
		s.committed()
	})
	s.commits.Confirm = s.file.CheckLogged
	s.eraser = sqlite.NewEraser(s.writer, s.reader, busyTime, log)
	if err := s.begin(ctx, log); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.Close())
	}
	s.zones = builtin.NewTable(s.reader, s.writer, s.path, s.tx, func() time.Time { return s.now() })
	s.ledger = ledger.New(s.reader, s.tx, func() time.Time { return s.now() }, s.owner)
	s.ledger.Erased = s.eraser.Ask
	return s, nil
}

// takeFile takes a database file that is this program's, or is made.
func takeFile(ctx context.Context, path string) (*sqlite.File, error) {
	file, err := sqlite.FindFile(path)
	if err != nil {
		return nil, err
	}
	source := bareSource(file.Target()) // which makes no file beside it
	if file.LogSize() > 0 {
		source = dataSource(file.Target(), url.Values{"mode": {"ro"}})
	}
	if err := schema.Refuse(ctx, source); err != nil {
		return nil, fmt.Errorf("%s: %w", file.Target(), err)
	}
	return file, file.Take()
}

// openReader opens a connection that reads, beside what its caller does until it waits for
// that: the first request finds it open.
func (s *store) openReader(ctx context.Context) (wait func() error) {
	var err error
	s.opening.Go(func() { err = s.reader.PingContext(ctx) })
	return func() error { s.opening.Wait(); return err }
}

// busyTime is how long a connection waits for another program.
const busyTime = 5 * time.Second

// dataSource holds the settings of every connection: a PRAGMA would reach
// one connection of a pool only.
func dataSource(path string, settings url.Values) string {
	if !settings.Has("mode") {
		settings.Set("mode", "rw") // dbfile makes the file: should it go, no connection makes another one
	}
	settings.Set("_journal_mode", "WAL")
	if !settings.Has("_synchronous") {
		settings.Set("_synchronous", "FULL")
	}
	settings.Set("_foreign_keys", "1")
	settings.Set("_busy_timeout", strconv.FormatInt(busyTime.Milliseconds(), 10))
	settings.Set("_mutex", "no") // database/sql has one use a connection at a time; an interrupt needs no lock
	settings.Set("_stmt_cache_size", "64")
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + settings.Encode()
}

// bareSource is for reading the file alone, which nobody changes.
func bareSource(path string) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?mode=ro&immutable=1&_cache_size=-1000&_mutex=no&_stmt_cache_size=64"
}

// Close ends the use of the database. The last connection to go writes the
// log back into the file.
func (s *store) Close() error {
	s.opening.Wait()
	s.eraser.Close()
	return errors.Join(s.reader.Close(), s.writer.Close(), s.gate.Close(), s.file.Close())
}

const (
	minRoom    = 4 << 10  // octets of a page
	enoughRoom = 64 << 10 // for a change, and the log's index
)

// Health tells why the database does not work as it should, nil when it does: when it
// does not answer, is not the file any more that was opened, is damaged, or can store
// nothing.
func (s *store) Health(ctx context.Context) error {
	var one int
	if err := s.reader.QueryRowContext(ctx, `SELECT 1 FROM appliance`).Scan(&one); err != nil {
		return err
	}
	if err := s.file.Check(); err != nil {
		return err
	}
	if damage := s.damage.Load(); damage != nil {
		return *damage
	}
	return s.room(ctx)
}

// room tells whether something can be stored. When a write has failed for want of room
// another one is tried once there is some: what is left in the log may take a small one.
func (s *store) room(ctx context.Context) error {
	free, folder := s.file.Free()
	full := s.full.Load()
	switch {
	case free < minRoom, full && free < enoughRoom:
		return fmt.Errorf("%d octets are free in %s: %w", free, folder, syscall.ENOSPC)
	case !full:
		return nil
	}
	err := s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE appliance SET owner = owner WHERE id = 1`)
		return err
	})
	if err == nil {
		s.full.Store(false)
	}
	return err
}

// lookAfter is how long a start has the disk for itself.
const lookAfter = 300 * time.Millisecond

// LookThrough looks once at the whole file, a moment after the start.
func (s *store) LookThrough(ctx context.Context, log *slog.Logger) {
	select {
	case <-ctx.Done():
	case <-time.After(lookAfter):
		s.lookThrough(ctx, log)
	}
}

// lookThrough goes table by table, so that the log can be emptied meanwhile, and cleans
// the file of what earlier programs have left in it.
func (s *store) lookThrough(ctx context.Context, log *slog.Logger) {
	s.file.RemoveFoldersElsewhere()
	if !s.gate.Frozen() {
		if err := s.eraser.Clean(ctx, s.file.RoomToRewrite); err != nil && ctx.Err() == nil {
			log.Warn("secrets that were replaced or deleted may still be in the database; the next start tries again", "error", err)
		}
		if s.file.LogSize() > 0 {
			s.eraser.Ask() // the program may have been killed before it could
		}
	}
	begun := time.Now()
	err := sqlite.FindDamage(ctx, s.reader)
	switch {
	case ctx.Err() != nil:
	case err == nil:
		log.Info("the database is sound", "time", time.Since(begun))
	case sqlite.FaultOf(err) == sqlite.Damaged:
		s.damage.Store(&err)
		log.Error("restore a backup", "file", s.path, "error", err)
	default:
		log.Warn("the database is not looked through", "error", err)
	}
}

// begin reads the schema's version, and brings the schema to today's. On a full disk
// what is there is read.
func (s *store) begin(ctx context.Context, log *slog.Logger) error {
	version, err := schema.VersionOf(ctx, s.writer)
	if sqlite.FaultOf(err) == sqlite.Full {
		return s.beginFrozen(ctx, log, err)
	}
	switch {
	case err != nil:
		return err
	case version > schema.Version():
		return schema.Newer(version, s.file)
	case 0 < version && version < schema.Version():
		if err := schema.KeepCopy(ctx, s.writer, s.file, version, log); err != nil {
			return err
		}
	}
	if err := errors.Join(s.migrate(ctx, log), s.keeper.Begin(ctx)); err != nil {
		return err
	}
	if version == 0 {
		path, _ := filepath.Abs(s.path)
		log.Warn("a new database is made", "file", path) // the path may be a mistake
	}
	return s.file.CheckLogged()
}

// beginFrozen reads a database on a disk that has no room for the index of its log.
// A log that is left needs no index for who has the database alone.
func (s *store) beginFrozen(ctx context.Context, log *slog.Logger, full error) error {
	if s.file.LogSize() > 0 {
		if err := sqlite.FoldLog(ctx, "file:"+(&url.URL{Path: s.path}).EscapedPath()); err != nil {
			return fmt.Errorf("%w; its log cannot be read without room: make some", errors.Join(full, err))
		}
	}
	s.gate.Freeze()
	var version int
	if err := s.reader.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
		return err
	}
	switch {
	case version > schema.Version():
		return schema.Newer(version, s.file)
	case version < schema.Version():
		return fmt.Errorf("bring the schema from version %d to %d: %w", version, schema.Version(), full)
	}
	log.Error("the disk is full: nothing can be stored until it has room", "file", s.path, "error", full)
	s.full.Store(true)
	return s.readAppliance(ctx, s.reader)
}

// migrate brings the schema to today's, and reads whose database it is.
func (s *store) migrate(ctx context.Context, log *slog.Logger) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := schema.Migrate(ctx, tx, log.With("file", s.path)); err != nil {
			return err
		}
		return s.readAppliance(ctx, tx)
	})
}

func (s *store) readAppliance(ctx context.Context, q sqlite.Queryer) error {
	var ipv4, ipv6 string
	err := q.QueryRowContext(ctx, `SELECT owner, ipv4, ipv6 FROM appliance`).Scan(&s.owner, &ipv4, &ipv6)
	s.addresses.IPv4, _ = netip.ParseAddr(ipv4) // "" is none
	s.addresses.IPv6, _ = netip.ParseAddr(ipv6)
	return err
}

// tx runs f in a transaction, which is committed when f succeeds, together with
// those of other callers: f may run twice. A client that goes away does not cancel
// it: what has begun is finished.
func (s *store) tx(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	err := s.commits.Do(ctx, f)
	if err != nil && sqlite.FaultOf(err) == sqlite.Full {
		s.full.Store(true)
	}
	return err
}

// changeSecrets runs a transaction that may replace or delete secrets, and may change
// what names are built-in zones. Of the old secrets nothing stays in the files.
func (s *store) changeSecrets(ctx context.Context, f func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error) error {
	err := s.zones.ChangeZones(ctx, f)
	if err == nil {
		s.eraser.Ask()
	}
	return err
}

// reading is where to read: the transaction that the context was made for, which has
// changes that nobody else sees yet, or else the last committed state.
func (s *store) reading(ctx context.Context) sqlite.Queryer {
	if tx := sqlite.Tx(ctx); tx != nil {
		return tx
	}
	return s.reader
}

// newUUID gives an id that sorts after the earlier ones, so that inserts go
// to the end of an index.
func newUUID() (string, error) {
	id, err := uuid.NewV7()
	return id.String(), err
}

func isConstraint(err error, code sqlite3.ErrNoExtended) bool {
	fault, ok := errors.AsType[sqlite3.Error](err)
	return ok && fault.ExtendedCode == code
}

// configuration is the DDNS configuration. A number is not valid where the
// client gave none.
type configuration struct {
	Provider, AccessKeyID, Endpoint string
	Secret                          secrets.Secret
	Domain, TXTRecordName, SyncMode string
	RetryInterval, MaxRetries       sql.Null[int64]
	Enabled                         bool
	Endpoints                       sqlite.TextList
	UpdatedAt                       string
	Zone                            string // Domain as DNS has it
	AccountID                       int64
}

// Configuration gives the stored configuration, or errNoConfiguration.
func (s *store) Configuration(ctx context.Context) (configuration, error) {
	return selectConfiguration(ctx, s.reading(ctx))
}

func selectConfiguration(ctx context.Context, q sqlite.Queryer) (c configuration, err error) {
	err = q.QueryRowContext(ctx, `
		SELECT provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode,
		       retry_interval, max_retries, enabled, txt_endpoints, updated_at, zone, account
		FROM configuration WHERE id = 1`).Scan(
		&c.Provider, &c.AccessKeyID, &c.Secret, &c.Endpoint, &c.Domain, &c.TXTRecordName, &c.SyncMode,
		&c.RetryInterval, &c.MaxRetries, &c.Enabled, &c.Endpoints, &c.UpdatedAt, &c.Zone, &c.AccountID)
	return c, sqlite.Absent(err, errNoConfiguration)
}

// PutConfiguration stores the configuration, and asks for a pass over all names.
// With keepSecret the stored secret stays, which is errNoSecret unless it belongs
// to the same credentials: it must not be sent to another address.
func (s *store) PutConfiguration(ctx context.Context, c configuration, keepSecret bool) error {
	return s.changeSecrets(ctx, func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error {
		stored, err := selectConfiguration(ctx, tx)
		if err != nil && !errors.Is(err, errNoConfiguration) {
			return err
		}
		c := c // this may run twice
		if keepSecret {
			if c, err = c.unmasked(stored); err != nil {
				return err
			}
		}
		account, err := ledger.UseAccount(ctx, tx, newAccount(c.Provider, c.Endpoint, c.AccessKeyID, c.Secret))
		if err != nil {
			return err
		}
		if err := zones.Begin(ctx, tx, stored.Zone, dnsname.Parse(c.Domain)); err != nil {
			return err
		}
		_, err = tx.ExecContext(ctx, `
			INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name,
			                           sync_mode, retry_interval, max_retries, enabled, txt_endpoints, updated_at, zone, name, account)
			VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET
			    provider = excluded.provider, access_key_id = excluded.access_key_id,
			    access_key_secret = excluded.access_key_secret, endpoint = excluded.endpoint, domain = excluded.domain,
			    txt_record_name = excluded.txt_record_name, sync_mode = excluded.sync_mode,
			    retry_interval = excluded.retry_interval, max_retries = excluded.max_retries, enabled = excluded.enabled,
			    txt_endpoints = excluded.txt_endpoints, updated_at = excluded.updated_at, zone = excluded.zone,
			    name = excluded.name, account = excluded.account`,
			c.Provider, c.AccessKeyID, c.Secret, c.Endpoint, c.Domain, c.TXTRecordName, c.SyncMode,
			c.RetryInterval, c.MaxRetries, c.Enabled, c.Endpoints, sqlite.Shown(s.now()), dnsname.Parse(c.Domain), c.recordName(), account)
		if err != nil {
			return err
		}
		for _, name := range slices.Compact([]string{c.recordName(), cmp.Or(stored.storedName(), c.recordName())}) {
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

// DeleteConfiguration forgets the configuration, or is errNoConfiguration. Its value is to be
// withdrawn at once, with its key; what services have published with that key, in a pass. It
// gives the version of the configuration's name.
func (s *store) DeleteConfiguration(ctx context.Context) (version int64, err error) {
	err = s.changeSecrets(ctx, func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error {
		stored, err := selectConfiguration(ctx, tx)
		if err != nil {
			return err
		}
		if err := zones.Begin(ctx, tx, stored.Zone); err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM configuration WHERE id = 1`); err != nil {
			return err
		}
		if err := s.ledger.MarkDue(ctx, tx, stored.recordName(), reconcile.LaneAsked); err != nil {
			return err
		}
		if version, err = ledger.Version(ctx, tx, stored.recordName()); err != nil {
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

// service is a registered DNS service.
type service struct {
	ID, Name             string
	Config               secrets.Secret   // as registered
	Domain               sql.Null[string] // not valid when Config is not a JSON object
	Zone                 string           // the domain as DNS has it
	AccountID            int64            // 0 when it has none of its own
	UsageCount           int
	CreatedAt, UpdatedAt string
}

const selectServices = `
	SELECT id, name, config, domain, zone, coalesce(account, 0), usage_count, created_at, updated_at
	FROM services`

func scanService(row sqlite.Scanner) (v service, err error) {
	err = row.Scan(&v.ID, &v.Name, &v.Config, &v.Domain, &v.Zone, &v.AccountID, &v.UsageCount, &v.CreatedAt, &v.UpdatedAt)
	return v, sqlite.Absent(err, errNoService)
}

// Service gives one service, or errNoService.
func (s *store) Service(ctx context.Context, id string) (service, error) {
	return scanService(s.reading(ctx).QueryRowContext(ctx, selectServices+` WHERE id = ?`, id))
}

// ServiceBeside gives the id of another service with a service's zone, "" without one.
func (s *store) ServiceBeside(ctx context.Context, v service) (id string, err error) {
	err = s.reading(ctx).QueryRowContext(ctx, `SELECT id FROM services WHERE zone = ? AND zone <> '' AND id <> ? LIMIT 1`, v.Zone, v.ID).Scan(&id)
	return id, sqlite.Absent(err, nil)
}

// ServicesOutside counts the services with usages that use the configuration's provider and
// whose zones it does not have: nothing is published for them. It gives the id of one.
func (s *store) ServicesOutside(ctx context.Context, zone string) (count int, id string, err error) {
	err = s.reading(ctx).QueryRowContext(ctx, `
		SELECT count(*), coalesce(min(id), '') FROM services
		WHERE provider = '' AND zone <> '' AND usage_count > 0 AND
		      NOT (zone_key = ?1 OR zone_key > ?1 || '.' AND zone_key < ?1 || '/')`, dnsname.Reverse(zone)).Scan(&count, &id)
	return count, id, err
}

// Services gives at most limit services in the order of their ids, from an id on.
func (s *store) Services(ctx context.Context, after string, limit int) ([]service, error) {
	return sqlite.Collect(ctx, s.reading(ctx), scanService, selectServices+` WHERE id > ? ORDER BY id LIMIT ? + 0`, after, limit)
}

// servicePage bounds a page of services, of which each may have a config of 64 KiB.
const servicePage = 100

// AllServices gives all services in the order of their ids.
func (s *store) AllServices(ctx context.Context) iter.Seq2[service, error] {
	return sqlite.Pages(servicePage, func(behind service) ([]service, error) { return s.Services(ctx, behind.ID, servicePage) })
}

// CreateService registers a service; errServiceExists when its id is in use.
func (s *store) CreateService(ctx context.Context, v service) error {
	return s.changeSecrets(ctx, func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error {
		_, err := scanService(tx.QueryRowContext(ctx, selectServices+` WHERE id = ?`, v.ID))
		if err == nil {
			return errServiceExists
		}
		if !errors.Is(err, errNoService) {
			return err
		}
		return s.saveService(ctx, tx, v, zones)
	})
}

// PutService creates or replaces a service with what change makes of the
// stored one, which is zero when there is none. A changed zone is errDomainInUse
// while usages exist: their names would change under them.
func (s *store) PutService(ctx context.Context, id string, change func(stored service) (service, error)) error {
	return s.changeSecrets(ctx, func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error {
		stored, err := scanService(tx.QueryRowContext(ctx, selectServices+` WHERE id = ?`, id))
		if err != nil && !errors.Is(err, errNoService) {
			return err
		}
		changed, err := change(stored)
		if err != nil {
			return err
		}
		changed.ID, changed.Zone, changed.UsageCount, changed.AccountID = id, stored.Zone, stored.UsageCount, stored.AccountID
		if config, _ := parseServiceConfig(changed.Config); stored.UsageCount > 0 && stored.Zone != dnsname.Parse(config.Domain) {
			return errDomainInUse
		}
		return s.saveService(ctx, tx, changed, zones)
	})
}

// saveService stores a service and what the program reads in its config, and
// marks all its names as due. Its zone is still the one that was stored.
func (s *store) saveService(ctx context.Context, tx *sql.Tx, v service, zones *builtin.ZoneChange) error {
	config, err := parseServiceConfig(v.Config)
	if err != nil {
		return err
	}
	var account sql.Null[int64]
	if config.Provider != "" {
		account.Valid = true
		if account.V, err = ledger.UseAccount(ctx, tx, config.account()); err != nil {
			return err
		}
	}
	now, zone := sqlite.Shown(s.now()), dnsname.Parse(config.Domain)
	if err := zones.Begin(ctx, tx, v.Zone, zone); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, `
		INSERT INTO services (id, name, config, domain, zone, zone_key, provider, txt_endpoints, account, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET
		    name = excluded.name, config = excluded.config, domain = excluded.domain, zone = excluded.zone, zone_key = excluded.zone_key,
		    provider = excluded.provider,
		    txt_endpoints = excluded.txt_endpoints, account = excluded.account, updated_at = excluded.updated_at`,
		v.ID, v.Name, v.Config, config.Domain, zone, dnsname.Reverse(zone), config.Provider, sqlite.TextList(config.Endpoints), account, now, now)
	if err != nil {
		return err
	}
	if v.UsageCount > 0 {
		if _, err := tx.ExecContext(ctx, `INSERT INTO marks (service_id, after) VALUES (?, 0) ON CONFLICT DO UPDATE SET after = 0`, v.ID); err != nil {
			return err
		}
	}
	_, err = ledger.LeaveAccount(ctx, tx, v.AccountID)
	return err
}

// DeleteService removes a service; errServiceInUse while usages exist. Its key
// stays as long as a value stands that it was published with.
func (s *store) DeleteService(ctx context.Context, id string) error {
	return s.changeSecrets(ctx, func(ctx context.Context, tx *sql.Tx, zones *builtin.ZoneChange) error {
		v, err := scanService(tx.QueryRowContext(ctx, selectServices+` WHERE id = ?`, id))
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
		_, err = ledger.LeaveAccount(ctx, tx, v.AccountID)
		return err
	})
}

// usage is a reserved prefix with its binding and its service.
type usage struct {
	Seq                         int64
	ID, ServiceID, Mode, Prefix string
	RecordType, Description     string
	Exclusive                   bool
	Endpoints                   sqlite.TextList
	CreatedAt                   string
	Name                        string                     // full record name as DNS has it
	Network                     sql.Null[sqlite.NetworkID] // not valid without a binding
	Status                      string                     // of the binding
	ServiceName, Domain         sql.Null[string]           // not valid without the service, or its config
	HeldBy                      sql.Null[sqlite.NetworkID] // the network that has the name, or the prefix, when a usage is created
	Publish                     publishing
}

// publishing is how far the record of a usage is.
type publishing struct {
	State    reconcile.PlaceState
	Value    string // of the usage's network, that stands
	Fault    reconcile.Fault
	Attempts int
	At       string // of the last news
}

// States of a binding.
const (
	statusActive    = "active"
	statusReleasing = ledger.StatusReleasing
)

const (
	usageType     = "mesh_sync"
	recordTypeTXT = "TXT"
)

// CheckService tells why a service can have no usages, nil when it can.
func (s *store) CheckService(ctx context.Context, id string) error {
	_, err := selectZone(ctx, s.reading(ctx), id)
	return err
}

// usageZone is the domain that the usages of a service are below.
type usageZone struct {
	domain  sql.Null[string] // as typed
	zone    string           // as DNS has it
	nowhere bool             // there is no account to publish with
}

// state is that of a usage of which nothing is known but its service.
func (z usageZone) state() reconcile.PlaceState {
	if z.nowhere {
		return reconcile.None
	}
	return reconcile.Pending
}

func selectZone(ctx context.Context, q sqlite.Queryer, service string) (z usageZone, err error) {
	var own bool
	var configured sql.Null[string]
	err = q.QueryRowContext(ctx, `
		SELECT domain, zone, account IS NOT NULL, (SELECT zone FROM configuration WHERE id = 1) FROM services WHERE id = ?`, service).Scan(
		&z.domain, &z.zone, &own, &configured)
	switch {
	case err != nil:
		return z, sqlite.Absent(err, errNoService)
	case !z.domain.Valid:
		return z, errServiceConfig
	case z.domain.V == "":
		return z, errNoDomain
	}
	z.nowhere = !configured.Valid || !own && !dnsname.Within(z.zone, configured.V)
	return z, nil
}

// CreateUsage stores a usage and its binding to a network, both or neither, and
// what is due because of it. It is errPrefixTaken when the service has the custom
// prefix already, and tells what is wrong with the service. It gives the usage
// as it is stored. HeldBy is the network that has the name, with errPrefixTaken the
// network that has the prefix.
func (s *store) CreateUsage(ctx context.Context, u usage) (usage, error) {
	bindingID, err := s.newID()
	if err == nil {
		u.ID, err = s.newID()
	}
	if err != nil {
		return u, err
	}
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		zone, err := selectZone(ctx, tx, u.ServiceID)
		if err != nil {
			return err
		}
		u.Domain = zone.domain
		if u.Name = dnsname.Fold(fullName(u.Prefix, zone.zone)); !dnsname.Fits(u.Name) {
			return errNameTooLong
		}
		inserted, err := tx.ExecContext(ctx, `
			INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at, state)
			VALUES (?, ?, ?, ?, ?, ?, ?, 1, '[]', ?, ?, ?)`,
			u.ID, u.ServiceID, usageType, u.Mode, u.Prefix, recordTypeTXT, u.Description, u.Name, sqlite.Shown(s.now()), zone.state())
		if isConstraint(err, sqlite3.ErrConstraintUnique) && !strings.Contains(err.Error(), "usages.id") {
			if u.HeldBy, err = prefixHolder(ctx, tx, u); err == nil {
				err = errPrefixTaken
			}
			return err
		}
		if err != nil {
			return fmt.Errorf("insert usage: %w", err)
		}
		if u.Seq, err = inserted.LastInsertId(); err != nil {
			return fmt.Errorf("insert usage: %w", err)
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status) VALUES (?, ?, ?, ?, ?, ?)`,
			u.Seq, bindingID, u.Network, u.ID, u.ServiceID, statusActive)
		if err != nil {
			return fmt.Errorf("insert binding: %w", err)
		}
		if u.HeldBy, err = nameHolder(ctx, tx, u); err != nil {
			return err
		}
		return s.ledger.MarkDue(ctx, tx, u.Name, reconcile.LaneChanged)
	})
	return u, err
}

// nameHolder gives the network that reserved the usage's name first. An automatic
// name belongs to its network by construction.
func nameHolder(ctx context.Context, tx *sql.Tx, u usage) (network sql.Null[sqlite.NetworkID], err error) {
	if u.Mode == modeAutomatic {
		return u.Network, nil
	}
	var seq int64
	err = tx.QueryRowContext(ctx, `
		SELECT min(u.seq), b.network_id FROM usages u JOIN bindings b ON b.seq = u.seq
		WHERE u.name = ? AND b.status = 'active'`, u.Name).Scan(&seq, &network)
	return network, err
}

// prefixHolder gives the network whose usage has the prefix of the usage's service. It
// is not valid where that usage has no binding.
func prefixHolder(ctx context.Context, tx *sql.Tx, u usage) (network sql.Null[sqlite.NetworkID], err error) {
	err = tx.QueryRowContext(ctx, `
		SELECT b.network_id FROM usages u JOIN bindings b ON b.seq = u.seq
		WHERE u.name = ? AND u.provider_id = ? LIMIT 1`, u.Name, u.ServiceID).Scan(&network)
	return network, sqlite.Absent(err, nil)
}

// CountUsages counts the usages of a service with a prefix, letter case aside. A
// client that goes away does not end the query: to be ready for that costs more
// than a search.
func (s *store) CountUsages(ctx context.Context, serviceID, prefix string) (int64, error) {
	return sqlite.Number(context.WithoutCancel(ctx), s.reader, `
		SELECT count(*) FROM usages
		WHERE name = '_mesh.' || lower(?2) || '.' || (SELECT zone FROM services WHERE id = ?1) AND provider_id = ?1`, serviceID, prefix)
}

// publishColumns are the publishing of a usage u, whose state is about the place p: the
// attempts, the state, the value of its network b that stands, the fault, and the time of
// the last news.
const publishColumns = `
	coalesce(p.attempts, 0), u.state,
	CASE WHEN u.state = 'published' THEN coalesce(p.standing, '') WHEN u.rival <> '' THEN ''
	     WHEN p.standing LIKE '% n=' || printf('%u', b.network_id) || ' %' THEN p.standing
	     ELSE coalesce((SELECT standing FROM places WHERE name = u.name AND standing LIKE '% n=' || printf('%u', b.network_id) || ' %' LIMIT 1), '') END,
	CASE WHEN u.rival <> '' THEN 'network_conflict' WHEN u.state <> 'none' THEN coalesce(p.code, '')
	     WHEN EXISTS (SELECT 1 FROM configuration WHERE id = 1) THEN 'no_provider' ELSE 'unknown_configuration' END,
	iif(u.rival = '', coalesce(p.detail, ''), u.rival),
	coalesce(p.key_of, ''), coalesce(p.at, '')`

const selectUsages = `
	SELECT u.seq, u.id, u.provider_id, u.prefix_mode, u.record_prefix, u.record_type, u.description, u.is_exclusive,
	       u.txt_endpoints, u.created_at, u.name, b.network_id, coalesce(b.status, ''), s.name, s.domain, ` + publishColumns + `
	FROM usages u
	LEFT JOIN bindings b ON b.seq = u.seq
	LEFT JOIN services s ON s.id = u.provider_id
	LEFT JOIN places p ON p.id = u.place`

func scanUsage(row sqlite.Scanner) (u usage, err error) {
	p := &u.Publish
	err = row.Scan(&u.Seq, &u.ID, &u.ServiceID, &u.Mode, &u.Prefix, &u.RecordType, &u.Description, &u.Exclusive,
		&u.Endpoints, &u.CreatedAt, &u.Name, &u.Network, &u.Status, &u.ServiceName, &u.Domain,
		&p.Attempts, &p.State, &p.Value, &p.Fault.Code, &p.Fault.Detail, &p.Fault.Key, &p.At)
	return u, sqlite.Absent(err, errNoUsage)
}

// usageFilter selects usages; a zero field selects all.
type usageFilter struct {
	serviceID string
	network   sql.Null[sqlite.NetworkID]
	state     reconcile.PlaceState // of the publishing
	after     int64                // only those with a higher seq
}

// Usages gives at most limit usages in the order of their reservation.
func (s *store) Usages(ctx context.Context, f usageFilter, limit int) ([]usage, error) {
	where, args := f.where(limit)
	return sqlite.Collect(ctx, s.reading(ctx), scanUsage, selectUsages+where, args...)
}

// usagePage bounds a page of usages that are read in order to read them all.
const usagePage = 100

// AllUsages gives the usages up to a number in the order of their reservation.
func (s *store) AllUsages(ctx context.Context, last int64) iter.Seq2[usage, error] {
	return sqlite.Pages(usagePage, func(behind usage) ([]usage, error) {
		page, err := s.Usages(ctx, usageFilter{after: behind.Seq}, usagePage)
		return slices.DeleteFunc(page, func(u usage) bool { return u.Seq > last }), err
	})
}

// where selects at most limit usages.
func (f usageFilter) where(limit int) (query string, args []any) {
	query, args = ` WHERE u.seq > ?`, []any{f.after}
	switch {
	case f.network.Valid:
		query, args = ` WHERE u.seq IN (SELECT seq FROM bindings WHERE network_id = ? AND seq > ? ORDER BY seq)`, []any{f.network, f.after}
		if f.serviceID != "" {
			query, args = query+` AND u.provider_id = ?`, append(args, f.serviceID)
		}
		if f.state != "" {
			query, args = query+` AND +u.state = ?`, append(args, f.state)
		}
	case f.state != "" && f.serviceID != "":
		query, args = ` WHERE u.state = ? AND u.seq > ? AND +u.provider_id = ?`, []any{f.state, f.after, f.serviceID}
	case f.state != "":
		query, args = ` WHERE u.state = ? AND u.seq > ?`, []any{f.state, f.after}
	case f.serviceID != "":
		query, args = ` WHERE u.provider_id = ? AND u.seq > ?`, []any{f.serviceID, f.after}
	}
	return query + ` AND u.record_type = 'TXT' ORDER BY u.seq LIMIT ? + 0`, append(args, limit)
}

// LastUsage gives the number of the usage that was reserved last, 0 without one.
func (s *store) LastUsage(ctx context.Context) (seq int64, err error) {
	err = s.reader.QueryRowContext(ctx, `SELECT coalesce(max(seq), 0) FROM usages`).Scan(&seq)
	return seq, err
}

// Listing gives what Usages does as a page of the list, with faults in a language. SQLite
// makes one text of it. It looks up no service for those of the first usage's or of the one
// that is asked for.
func (s *store) Listing(ctx context.Context, f usageFilter, limit int, language msg.Language) answers.ListPage {
	rows := answers.ListRows{Fault: func(code, detail, key string) string {
		return answers.FaultText(reconcile.Fault{Code: code, Detail: msg.Text(detail), Key: key}, language)
	}}
	where, args := f.where(limit)
	err := s.reader.QueryRowContext(ctx, `
		WITH common AS (
		    SELECT id, name, domain FROM services
		    WHERE id = coalesce(nullif(?, ''), (SELECT provider_id FROM usages WHERE seq > ? ORDER BY seq LIMIT 1)))
		SELECT count(*), coalesce(group_concat(entry, ''), ''), coalesce((SELECT json_array(id, name, domain) FROM common), '')
		FROM (
		    SELECT CASE u.provider_id WHEN (SELECT id FROM common)
		        THEN json_array(u.id, u.prefix_mode, u.record_prefix, u.description, u.is_exclusive, b.network_id, `+publishColumns+`, u.seq)
		        ELSE (SELECT json_array(u.id, u.prefix_mode, u.record_prefix, u.description, u.is_exclusive, b.network_id,
		                                u.provider_id, s.name, s.domain, `+publishColumns+`, u.seq)
		              FROM (SELECT 1) LEFT JOIN services s ON s.id = u.provider_id)
		        END AS entry
		    FROM usages u
		    LEFT JOIN bindings b ON b.seq = u.seq
		    LEFT JOIN places p ON p.id = u.place`+where+`)`,
		append([]any{f.serviceID, f.after}, args...)...).Scan(&rows.Size, &rows.Text, &rows.Common)
	if err != nil {
		return answers.ListPage{Err: err}
	}
	return rows.Page()
}

// Usage gives one usage, or errNoUsage.
func (s *store) Usage(ctx context.Context, id string) (usage, error) {
	return scanUsage(s.reader.QueryRowContext(ctx, selectUsages+` WHERE u.id = ? AND u.record_type = 'TXT'`, id))
}

// SameUsages gives the usages of a service that reserve a prefix for a network, letter
// case aside, those that are being released behind the others. Few have one name, which
// is what is searched by, and not (+) the service, which may have a million.
func (s *store) SameUsages(ctx context.Context, u usage) (same []usage, err error) {
	q := s.reading(ctx)
	zone, err := selectZone(ctx, q, u.ServiceID)
	if err != nil {
		return nil, err
	}
	same, err = sqlite.Collect(ctx, q, scanUsage, selectUsages+` WHERE u.name = ? AND +u.provider_id = ? AND +b.network_id = ?`,
		dnsname.Fold(fullName(u.Prefix, zone.zone)), u.ServiceID, u.Network)
	slices.SortFunc(same, func(a, b usage) int { return cmp.Or(strings.Compare(a.Status, b.Status), cmp.Compare(a.Seq, b.Seq)) })
	return same, err
}

// KeepUsage takes the release of a usage back.
func (s *store) KeepUsage(ctx context.Context, u usage) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `UPDATE bindings SET status = ? WHERE seq = ?`, statusActive, u.Seq); err != nil {
			return err
		}
		return s.ledger.MarkDue(ctx, tx, u.Name, reconcile.LaneChanged)
	})
}

// UseOwner is called when an owner was taken, before anything is marked with it.
func (s *store) UseOwner(owner string) {
	s.owner = owner
	s.ledger.UseOwner(owner)
}

// ChangeUsage sets what a usage publishes and its description; nil leaves
// either as it is.
func (s *store) ChangeUsage(ctx context.Context, id string, endpoints sqlite.TextList, description *string) error {
	var changed any
	if endpoints != nil {
		changed = endpoints
	}
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var name string
		err := tx.QueryRowContext(ctx, `
			UPDATE usages SET txt_endpoints = coalesce(?, txt_endpoints), description = coalesce(?, description)
			WHERE id = ?
			RETURNING name`, changed, description, id).Scan(&name)
		if err != nil {
			return sqlite.Absent(err, errNoUsage)
		}
		return s.ledger.MarkDue(ctx, tx, name, reconcile.LaneChanged)
	})
}

// released is what came of the wish to release a usage.
type released struct {
	freed   bool
	version int64 // of the name, whose value is to be changed; 0 when nothing is
}

// ReleaseUsage gives a prefix free, or marks its usage as releasing until nothing
// of it can stand at a provider any more. By force it is free at once, and what
// stands is a leftover; so it is in mode upsert-only.
func (s *store) ReleaseUsage(ctx context.Context, id string, force bool) (r released, err error) {
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		r = released{}
		u, err := scanUsage(tx.QueryRowContext(ctx, selectUsages+` WHERE u.id = ?`, id))
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE bindings SET status = ? WHERE seq = ?`, statusReleasing, u.Seq); err != nil {
			return err
		}
		state, err := s.ledger.StateIn(ctx, tx, []string{u.Name})
		if err != nil {
			return err
		}
		next := slices.ContainsFunc(state.Names[0].Usages, func(o reconcile.Usage) bool { return !o.Releasing })
		leave := force || state.UpsertOnly && !next // what another usage replaces is no leftover
		r.freed = leave || !u.Network.Valid || slices.Contains(reconcile.Free(state.Names[0], state.UpsertOnly), id)
		if leave {
			if err := s.ledger.Leave(ctx, tx, state.Names[0]); err != nil {
				return err
			}
		}
		if r.freed {
			if _, err := tx.ExecContext(ctx, `DELETE FROM usages WHERE id = ?`, id); err != nil {
				return err
			}
		}
		lane := reconcile.LaneAsked
		if leave || len(state.Names[0].Places) == 0 {
			lane = reconcile.LaneChanged
		}
		if err := s.ledger.MarkDue(ctx, tx, u.Name, lane); err != nil {
			return err
		}
		version, err := ledger.Version(ctx, tx, u.Name)
		if err != nil {
			return err
		}
		if lane == reconcile.LaneAsked {
			r.version = version
		}
		return ledger.DropName(ctx, tx, u.Name, version)
	})
	return r, err
}

// SaveAddresses stores changed addresses, and asks for a pass.
func (s *store) SaveAddresses(ctx context.Context, a mesh.Addresses) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		show := func(address netip.Addr) string {
			if !address.IsValid() {
				return ""
			}
			return address.String()
		}
		if _, err := tx.ExecContext(ctx, `UPDATE appliance SET ipv4 = ?, ipv6 = ? WHERE id = 1`, show(a.IPv4), show(a.IPv6)); err != nil {
			return err
		}
		return s.ledger.RequestPass(ctx, tx, reconcile.TriggerAddress)
	})
}

// CountNames counts the names that a pass goes through. It walks over all of them.
func (s *store) CountNames(ctx context.Context) (int64, error) {
	return sqlite.Number(ctx, s.reader, `SELECT count(*) FROM names WHERE name > ''`)
}

// Totals gives the numbers of 'services' and of 'usages', and of records by state: of the
// usages, of the configuration's own record, and of places that are 'leftover' or
// 'withdrawn'.
func (s *store) Totals(ctx context.Context) (map[string]uint64, error) {
	totals := map[string]uint64{}
	rows, err := s.reader.QueryContext(ctx, `SELECT what, count FROM totals`)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var what string
		var count uint64
		if err := rows.Scan(&what, &count); err != nil {
			return nil, err
		}
		totals[what] = count
	}
	for _, state := range reconcile.UsageStates {
		totals["usages"] += totals[string(state)]
	}
	own, err := s.ledger.OwnState(ctx)
	if own != "" {
		totals[string(own)]++
	}
	return totals, errors.Join(err, rows.Err())
}

// Backup makes a consistent copy of the live database, where there is room for it, and
// opens it. The copy has no name any more, so it is gone when it is closed.
func (s *store) Backup(ctx context.Context) (*os.File, error) {
	return s.file.Copied(func(path string) error {
		if s.gate.Frozen() {
			return sqlite.CopyInto(ctx, bareSource(s.path), path)
		}
		return s.keeper.Hold(ctx, func() error {
			// Nothing but the copy is written, and to flush that would hold up every commit.
			return sqlite.CopyInto(ctx, dataSource(s.path, url.Values{"_synchronous": {"OFF"}}), path)
		})
	})
}
