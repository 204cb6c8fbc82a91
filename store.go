package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/mattn/go-sqlite3"

	"meshddns/builtin"
	"meshddns/dbfile"
	"meshddns/dnsname"
	"meshddns/meshtxt"
	"meshddns/provider"
	"meshddns/reconcile"
)

// schemaSQL is always today's schema: a new file gets it at once.
//
//go:embed schema.sql
var schemaSQL string

//go:embed migrations/3.sql
var migration3 string

// migrations lead from one version of the schema to the next: the first from
// version 1 to version 2. The list only grows.
var migrations = []func(context.Context, *sql.Tx) error{addConfigurationZone, makePlaces}

// What a store function reports beside faults of the database itself.
var (
	errNoConfiguration = errors.New("no configuration is stored")
	errNoService       = errors.New("no such service")
	errNoUsage         = errors.New("no such usage")
	errNoLeftover      = errors.New("no such leftover")
	errServiceExists   = errors.New("a service with this id exists")
	errServiceInUse    = errors.New("the service has usages")
	errDomainInUse     = errors.New("the service has usages, its domain cannot change")
	errPrefixTaken     = errors.New("the prefix is taken")
	errNameTooLong     = errors.New("the full record name is too long")
	errServiceConfig   = errors.New("the service's config is not a JSON object")
	errNoDomain        = errors.New("the service's config has no domain")
	errNoSecret        = errors.New("no stored secret belongs to these credentials")
	errOwnOwner        = errors.New("the owner is this database's own")
)

// store is the database. There is one writer, for SQLite has one; readers
// work beside it on the last committed state (WAL).
type store struct {
	path      string
	file      *dbfile.File
	writer    *sql.DB
	reader    *sql.DB
	owner     string // marks the values in DNS that are ours
	now       func() time.Time
	newID     func() (string, error)
	committed func() // called after each commit: something may be due
}

const readers = 4

// openStore opens the database file, makes it when it is not there, and
// brings its schema to this program's version.
func openStore(ctx context.Context, path string, log *slog.Logger) (_ *store, err error) {
	s := &store{path: filepath.Clean(path), now: time.Now, newID: newUUID, committed: func() {}}
	if s.file, err = dbfile.Open(path); err != nil {
		return nil, err
	}
	if err := dbfile.RemoveTempFolders(s.path); err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	if s.writer, err = sql.Open("sqlite3", dataSource(s.path, url.Values{"_txlock": {"immediate"}})); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.file.Close())
	}
	s.writer.SetMaxOpenConns(1)
	if s.reader, err = sql.Open("sqlite3", dataSource(s.path, url.Values{"_query_only": {"1"}})); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.writer.Close(), s.file.Close())
	}
	s.reader.SetMaxOpenConns(readers)
	s.reader.SetMaxIdleConns(readers)
	if err := s.migrate(ctx, log); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.Close())
	}
	return s, nil
}

// dataSource holds the settings of every connection: a PRAGMA would reach
// one connection of a pool only.
func dataSource(path string, settings url.Values) string {
	settings.Set("_journal_mode", "WAL")
	settings.Set("_synchronous", "FULL")
	settings.Set("_foreign_keys", "1")
	settings.Set("_busy_timeout", "5000")
	settings.Set("_stmt_cache_size", "64")
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + settings.Encode()
}

// Close ends the use of the database. The last connection to go writes the
// log back into the file.
func (s *store) Close() error {
	return errors.Join(s.reader.Close(), s.writer.Close(), s.file.Close())
}

// Ping reports whether the database answers.
func (s *store) Ping(ctx context.Context) error {
	var one int
	return s.reader.QueryRowContext(ctx, `SELECT 1 FROM appliance`).Scan(&one)
}

// schemaVersion is that of schema.sql.
func schemaVersion() int { return len(migrations) + 1 }

func (s *store) migrate(ctx context.Context, log *slog.Logger) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var version int
		if err := tx.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
			return err
		}
		switch {
		case version > schemaVersion():
			return fmt.Errorf("schema version %d is newer than this program's %d", version, schemaVersion())
		case version == 0:
			if err := create(ctx, tx); err != nil {
				return err
			}
		case version < schemaVersion():
			log.Info("the database is brought to this program's version", "file", s.path, "from", version, "to", schemaVersion())
			for ; version < schemaVersion(); version++ {
				if err := migrations[version-1](ctx, tx); err != nil {
					return fmt.Errorf("migrate to version %d: %w", version+1, err)
				}
			}
		}
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, schemaVersion())); err != nil {
			return err
		}
		return tx.QueryRowContext(ctx, `SELECT owner FROM appliance`).Scan(&s.owner)
	})
}

// create makes the tables of a new file.
func create(ctx context.Context, tx *sql.Tx) error {
	var owner [6]byte
	rand.Read(owner[:])
	if _, err := tx.ExecContext(ctx, schemaSQL); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	_, err := tx.ExecContext(ctx, `
		INSERT INTO appliance (id, owner) VALUES (1, ?);
		INSERT INTO pass (id, number, requested, requested_at, running, last) VALUES (1, 0, '', 0, '', '')`, hex.EncodeToString(owner[:]))
	return err
}

// addConfigurationZone leads to version 2: the configuration has a zone as
// services have, and every zone is written anew with A-labels, which SQL cannot.
func addConfigurationZone(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, `ALTER TABLE configuration ADD COLUMN zone TEXT NOT NULL DEFAULT ''`); err != nil {
		return err
	}
	services, err := collect(ctx, tx, scanPair, `SELECT id, config FROM services`)
	if err != nil {
		return err
	}
	for _, r := range services {
		config, _ := parseServiceConfig(r[1]) // an older row may have anything, and then no zone
		if _, err := tx.ExecContext(ctx, `UPDATE services SET zone = ? WHERE id = ?`, dnsname.Parse(config.Domain), r[0]); err != nil {
			return err
		}
	}
	configurations, err := collect(ctx, tx, scanPair, `SELECT domain, '' FROM configuration`)
	for _, r := range configurations {
		_, err = tx.ExecContext(ctx, `UPDATE configuration SET zone = ?`, dnsname.Parse(r[0]))
	}
	return err
}

// makePlaces leads to version 3: what stands at the providers has places, and
// what is due is in the database.
func makePlaces(ctx context.Context, tx *sql.Tx) error {
	if _, err := tx.ExecContext(ctx, migration3); err != nil {
		return err
	}
	c, err := selectConfiguration(ctx, tx)
	if errors.Is(err, errNoConfiguration) {
		return nil
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE configuration SET name = ?`, c.recordName())
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, `INSERT INTO names (name, version, due, lane, pass) VALUES (?, 1, NULL, '', 0) ON CONFLICT DO NOTHING`, c.recordName())
	}
	return err
}

func scanPair(row scanner) (pair [2]string, err error) {
	err = row.Scan(&pair[0], &pair[1])
	return pair, err
}

// tx runs f in one transaction, which is committed when f succeeds. A client
// that goes away does not cancel it: what has begun is finished.
func (s *store) tx(ctx context.Context, f func(ctx context.Context, tx *sql.Tx) error) error {
	ctx = context.WithoutCancel(ctx)
	tx, err := s.writer.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin: %w", err)
	}
	defer tx.Rollback()
	if err := f(ctx, tx); err != nil {
		return err
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("commit: %w", err)
	}
	s.committed()
	return nil
}

// timestamp is now as it is stored to be shown.
func (s *store) timestamp() string {
	return s.now().UTC().Format("2006-01-02T15:04:05.000Z")
}

// stamp is a time as it is stored to be compared; the zero time is 0.
func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func stamped(milliseconds int64) time.Time {
	if milliseconds == 0 {
		return time.Time{}
	}
	return time.UnixMilli(milliseconds)
}

// newUUID gives an id that sorts after the earlier ones, so that inserts go
// to the end of an index.
func newUUID() (string, error) {
	id, err := uuid.NewV7()
	return id.String(), err
}

// networkID is an unsigned 64-bit number. SQLite's integers are signed, so it
// is stored as two's complement.
type networkID uint64

func (n networkID) Value() (driver.Value, error) { return int64(n), nil }

func (n *networkID) Scan(value any) error {
	stored, ok := value.(int64)
	if !ok {
		return fmt.Errorf("network id is stored as %T", value)
	}
	*n = networkID(stored)
	return nil
}

func (n networkID) String() string { return strconv.FormatUint(uint64(n), 10) }

// textList is a list of strings, stored as a JSON array.
type textList []string

func (l textList) Value() (driver.Value, error) {
	if l == nil {
		return "[]", nil
	}
	text, err := json.Marshal([]string(l))
	return string(text), err
}

func (l *textList) Scan(value any) error {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("list is stored as %T", value)
	}
	if *l = nil; text == "[]" {
		return nil
	}
	return json.Unmarshal([]byte(text), l)
}

// scanner is a row.
type scanner interface{ Scan(...any) error }

// queryer is what a pool and a transaction have in common.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// collect gives the rows of a query.
func collect[T any](ctx context.Context, q queryer, scan func(scanner) (T, error), query string, args ...any) ([]T, error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var all []T
	for rows.Next() {
		v, err := scan(rows)
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, rows.Err()
}

func scanText(row scanner) (text string, err error) {
	err = row.Scan(&text)
	return text, err
}

// absent turns the absence of a row into the error that says what is missing.
func absent(err, missing error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return missing
	}
	return err
}

// mustAffect is an error when a statement touched no row.
func mustAffect(result sql.Result, err, missing error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return missing
}

func isConstraint(err error, code sqlite3.ErrNoExtended) bool {
	fault, ok := errors.AsType[sqlite3.Error](err)
	return ok && fault.ExtendedCode == code
}

// configuration is the DDNS configuration. A number is not valid where the
// client gave none.
type configuration struct {
	Provider, AccessKeyID, Endpoint string
	Secret                          provider.Secret
	Domain, TXTRecordName, SyncMode string
	RetryInterval, MaxRetries       sql.Null[int64]
	Enabled                         bool
	Endpoints                       textList
	UpdatedAt                       string
	Zone                            string // Domain as DNS has it
	AccountID                       int64
}

// Configuration gives the stored configuration, or errNoConfiguration.
func (s *store) Configuration(ctx context.Context) (configuration, error) {
	return selectConfiguration(ctx, s.reader)
}

func selectConfiguration(ctx context.Context, q queryer) (c configuration, err error) {
	err = q.QueryRowContext(ctx, `
		SELECT provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode,
		       retry_interval, max_retries, enabled, txt_endpoints, updated_at, zone, account
		FROM configuration WHERE id = 1`).Scan(
		&c.Provider, &c.AccessKeyID, &c.Secret, &c.Endpoint, &c.Domain, &c.TXTRecordName, &c.SyncMode,
		&c.RetryInterval, &c.MaxRetries, &c.Enabled, &c.Endpoints, &c.UpdatedAt, &c.Zone, &c.AccountID)
	return c, absent(err, errNoConfiguration)
}

// PutConfiguration stores the configuration, and asks for a pass over all names.
// With keepSecret the stored secret stays, which is errNoSecret unless it belongs
// to the same credentials: it must not be sent to another address.
func (s *store) PutConfiguration(ctx context.Context, c configuration, keepSecret bool) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		stored, err := selectConfiguration(ctx, tx)
		if err != nil && !errors.Is(err, errNoConfiguration) {
			return err
		}
		if keepSecret {
			if !stored.sameCredentials(c) {
				return errNoSecret
			}
			c.Secret = stored.Secret
		}
		account, err := useAccount(ctx, tx, newAccount(c.Provider, c.Endpoint, c.AccessKeyID, c.Secret))
		if err != nil {
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
			c.RetryInterval, c.MaxRetries, c.Enabled, c.Endpoints, s.timestamp(), dnsname.Parse(c.Domain), c.recordName(), account)
		if err != nil {
			return err
		}
		for _, name := range slices.Compact([]string{c.recordName(), cmp.Or(stored.storedName(), c.recordName())}) {
			if _, err := s.markDue(ctx, tx, name, reconcile.LaneChanged); err != nil {
				return err
			}
		}
		return errors.Join(s.requestPass(ctx, tx, reconcile.TriggerChange), leaveAccount(ctx, tx, stored.AccountID, account))
	})
}

// storedName is the record name of a configuration that is stored, "" without.
func (c configuration) storedName() string {
	if c.AccountID == 0 {
		return ""
	}
	return c.recordName()
}

// sameCredentials reports whether c's secret, if there is one, is for the
// account and the address of d.
func (c configuration) sameCredentials(d configuration) bool {
	return c.Secret != "" && c.Provider == d.Provider && c.AccessKeyID == d.AccessKeyID && c.Endpoint == d.Endpoint
}

// requestPass asks for a pass over all names, when further changes have had a
// moment to come.
func (s *store) requestPass(ctx context.Context, tx *sql.Tx, trigger string) error {
	_, err := tx.ExecContext(ctx, `UPDATE pass SET requested = ?, requested_at = ? WHERE id = 1`, trigger, stamp(s.now().Add(reconcile.Debounce)))
	return err
}

// useAccount stores an account that something is to use: its newest key counts.
func useAccount(ctx context.Context, tx *sql.Tx, a reconcile.Account) (id int64, err error) {
	err = tx.QueryRowContext(ctx, `
		INSERT INTO accounts (provider, endpoint, access_key_id, access_key_secret) VALUES (?, ?, ?, ?)
		ON CONFLICT DO UPDATE SET access_key_secret = excluded.access_key_secret
		RETURNING id`, a.Provider, a.Endpoint, a.AccessKeyID, a.Secret).Scan(&id)
	return id, err
}

// leaveAccount is called when something has gone from one account to another: it
// keeps the key of who still uses it, else that of the last as long as a place
// needs it, and erases it then.
func leaveAccount(ctx context.Context, tx *sql.Tx, id, to int64) error {
	if id == 0 || id == to {
		return nil
	}
	var secret provider.Secret
	err := tx.QueryRowContext(ctx, `SELECT access_key_secret FROM configuration WHERE account = ?`, id).Scan(&secret)
	if errors.Is(err, sql.ErrNoRows) {
		var config string
		err = tx.QueryRowContext(ctx, `SELECT config FROM services WHERE account = ? ORDER BY updated_at DESC LIMIT 1`, id).Scan(&config)
		parsed, _ := parseServiceConfig(config)
		secret = parsed.Secret
	}
	switch {
	case err == nil:
		_, err = tx.ExecContext(ctx, `UPDATE accounts SET access_key_secret = ? WHERE id = ? AND provider <> 'builtin'`, secret, id)
	case errors.Is(err, sql.ErrNoRows):
		_, err = tx.ExecContext(ctx, `DELETE FROM accounts WHERE id = ? AND NOT EXISTS (SELECT 1 FROM places WHERE account = accounts.id)`, id)
	}
	return err
}

// service is a registered DNS service.
type service struct {
	ID, Name, Config     string
	Domain               sql.Null[string] // not valid when Config is not a JSON object
	Zone                 string           // the domain as DNS has it
	AccountID            int64            // 0 when it has none of its own
	UsageCount           int
	CreatedAt, UpdatedAt string
}

const selectServices = `
	SELECT id, name, config, domain, zone, coalesce(account, 0), usage_count, created_at, updated_at
	FROM services`

func scanService(row scanner) (v service, err error) {
	err = row.Scan(&v.ID, &v.Name, &v.Config, &v.Domain, &v.Zone, &v.AccountID, &v.UsageCount, &v.CreatedAt, &v.UpdatedAt)
	return v, absent(err, errNoService)
}

// Service gives one service, or errNoService.
func (s *store) Service(ctx context.Context, id string) (service, error) {
	return scanService(s.reader.QueryRowContext(ctx, selectServices+` WHERE id = ?`, id))
}

// Services gives all services in the order of their ids.
func (s *store) Services(ctx context.Context) ([]service, error) {
	return collect(ctx, s.reader, scanService, selectServices+` WHERE id > '' ORDER BY id`)
}

// CreateService registers a service; errServiceExists when its id is in use.
func (s *store) CreateService(ctx context.Context, v service) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := scanService(tx.QueryRowContext(ctx, selectServices+` WHERE id = ?`, v.ID))
		if err == nil {
			return errServiceExists
		}
		if !errors.Is(err, errNoService) {
			return err
		}
		return s.saveService(ctx, tx, v)
	})
}

// PutService creates or replaces a service with what change makes of the
// stored one, which is zero when there is none. A changed zone is errDomainInUse
// while usages exist: their names would change under them.
func (s *store) PutService(ctx context.Context, id string, change func(stored service) (service, error)) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		stored, err := scanService(tx.QueryRowContext(ctx, selectServices+` WHERE id = ?`, id))
		if err != nil && !errors.Is(err, errNoService) {
			return err
		}
		changed, err := change(stored)
		if err != nil {
			return err
		}
		changed.ID, changed.UsageCount, changed.AccountID = id, stored.UsageCount, stored.AccountID
		if config, _ := parseServiceConfig(changed.Config); stored.UsageCount > 0 && stored.Zone != dnsname.Parse(config.Domain) {
			return errDomainInUse
		}
		return s.saveService(ctx, tx, changed)
	})
}

// saveService stores a service and what the program reads in its config, and
// marks all its names as due.
func (s *store) saveService(ctx context.Context, tx *sql.Tx, v service) error {
	config, err := parseServiceConfig(v.Config)
	if err != nil {
		return err
	}
	var account sql.Null[int64]
	if config.Provider != "" {
		account.Valid = true
		if account.V, err = useAccount(ctx, tx, config.account()); err != nil {
			return err
		}
	}
	now := s.timestamp()
	_, err = tx.ExecContext(ctx, `
		INSERT INTO services (id, name, config, domain, zone, provider, txt_endpoints, account, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
		ON CONFLICT (id) DO UPDATE SET
		    name = excluded.name, config = excluded.config, domain = excluded.domain, zone = excluded.zone, provider = excluded.provider,
		    txt_endpoints = excluded.txt_endpoints, account = excluded.account, updated_at = excluded.updated_at`,
		v.ID, v.Name, v.Config, config.Domain, dnsname.Parse(config.Domain), config.Provider, textList(config.Endpoints), account, now, now)
	if err != nil {
		return err
	}
	if v.UsageCount > 0 {
		if _, err := tx.ExecContext(ctx, `INSERT INTO marks (service_id, after) VALUES (?, 0) ON CONFLICT DO UPDATE SET after = 0`, v.ID); err != nil {
			return err
		}
	}
	return leaveAccount(ctx, tx, v.AccountID, account.V)
}

// DeleteService removes a service; errServiceInUse while usages exist. Its key
// stays as long as a value stands that it was published with.
func (s *store) DeleteService(ctx context.Context, id string) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		v, err := scanService(tx.QueryRowContext(ctx, selectServices+` WHERE id = ?`, id))
		switch {
		case err != nil:
			return err
		case v.UsageCount > 0:
			return errServiceInUse
		}
		if _, err := tx.ExecContext(ctx, `DELETE FROM services WHERE id = ?`, id); err != nil {
			return err
		}
		return leaveAccount(ctx, tx, v.AccountID, 0)
	})
}

// usage is a reserved prefix with its binding and its service.
type usage struct {
	Seq                         int64
	ID, ServiceID, Mode, Prefix string
	RecordType, Description     string
	Exclusive                   bool
	Endpoints                   textList
	CreatedAt                   string
	Name                        string              // full record name as DNS has it
	Network                     sql.Null[networkID] // not valid without a binding
	Status                      string              // of the binding
	ServiceName, Domain         sql.Null[string]    // not valid without the service, or its config
}

// States of a binding.
const (
	statusActive    = "active"
	statusReleasing = "releasing"
)

// Ways to come by a prefix.
const (
	modeAutomatic = "auto"
	modeCustom    = "custom"
)

const (
	usageType     = "mesh_sync"
	recordTypeTXT = "TXT"
)

// CreateUsage stores a usage and its binding to a network, both or neither, and
// what is due because of it. It is errPrefixTaken when the service has the custom
// prefix already, and tells what is wrong with the service. It gives the usage
// as it is stored.
func (s *store) CreateUsage(ctx context.Context, u usage) (usage, error) {
	usageID, err := s.newID()
	if err != nil {
		return u, err
	}
	bindingID, err := s.newID()
	if err != nil {
		return u, err
	}
	u.ID = usageID
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var zone string
		err := tx.QueryRowContext(ctx, `SELECT domain, zone FROM services WHERE id = ?`, u.ServiceID).Scan(&u.Domain, &zone)
		switch {
		case err != nil:
			return absent(err, errNoService)
		case !u.Domain.Valid:
			return errServiceConfig
		case u.Domain.V == "":
			return errNoDomain
		}
		if u.Name = dnsname.Fold(fullName(u.Prefix, zone)); !dnsname.Fits(u.Name) {
			return errNameTooLong
		}
		inserted, err := tx.ExecContext(ctx, `
			INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, 1, '[]', ?, ?)`,
			u.ID, u.ServiceID, usageType, u.Mode, u.Prefix, recordTypeTXT, u.Description, u.Name, s.timestamp())
		if isConstraint(err, sqlite3.ErrConstraintUnique) && !strings.Contains(err.Error(), "usages.id") {
			return errPrefixTaken
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
		_, err = s.markDue(ctx, tx, u.Name, reconcile.LaneChanged)
		return err
	})
	return u, err
}

// CountUsages counts the usages of a service with a prefix, letter case aside.
func (s *store) CountUsages(ctx context.Context, serviceID, prefix string) (count int, err error) {
	err = s.reader.QueryRowContext(ctx, `
		SELECT count(*) FROM usages WHERE provider_id = ? AND record_prefix = ? COLLATE NOCASE`, serviceID, prefix).Scan(&count)
	return count, err
}

const selectUsages = `
	SELECT u.seq, u.id, u.provider_id, u.prefix_mode, u.record_prefix, u.record_type, u.description, u.is_exclusive,
	       u.txt_endpoints, u.created_at, u.name, b.network_id, coalesce(b.status, ''), s.name, s.domain
	FROM usages u
	LEFT JOIN bindings b ON b.seq = u.seq
	LEFT JOIN services s ON s.id = u.provider_id`

func scanUsage(row scanner) (u usage, err error) {
	err = row.Scan(&u.Seq, &u.ID, &u.ServiceID, &u.Mode, &u.Prefix, &u.RecordType, &u.Description, &u.Exclusive,
		&u.Endpoints, &u.CreatedAt, &u.Name, &u.Network, &u.Status, &u.ServiceName, &u.Domain)
	return u, absent(err, errNoUsage)
}

// usageFilter selects usages; a zero field selects all.
type usageFilter struct {
	serviceID string
	network   sql.Null[networkID]
	state     string // of the publishing
	after     int64  // only those with a higher seq
}

// Usages gives at most limit usages in the order of their reservation.
func (s *store) Usages(ctx context.Context, f usageFilter, limit int) ([]usage, error) {
	query, args := ` WHERE u.seq > ?`, []any{f.after}
	switch {
	case f.network.Valid:
		query, args = ` WHERE u.seq IN (SELECT seq FROM bindings WHERE network_id = ? AND seq > ? ORDER BY seq)`, []any{f.network, f.after}
		if f.serviceID != "" {
			query, args = query+` AND u.provider_id = ?`, append(args, f.serviceID)
		}
	case f.serviceID != "":
		query, args = ` WHERE u.provider_id = ? AND u.seq > ?`, []any{f.serviceID, f.after}
	}
	return collect(ctx, s.reader, scanUsage, selectUsages+query+` AND u.record_type = 'TXT' ORDER BY u.seq LIMIT ?`, append(args, limit)...)
}

// Usage gives one usage, or errNoUsage.
func (s *store) Usage(ctx context.Context, id string) (usage, error) {
	return scanUsage(s.reader.QueryRowContext(ctx, selectUsages+` WHERE u.id = ? AND u.record_type = 'TXT'`, id))
}

// ChangeUsage sets what a usage publishes and its description; nil leaves
// either as it is.
func (s *store) ChangeUsage(ctx context.Context, id string, endpoints textList, description *string) error {
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
		if err == nil {
			_, err = s.markDue(ctx, tx, name, reconcile.LaneChanged)
		}
		return absent(err, errNoUsage)
	})
}

// markDue makes a name due: a person's order at once, a change when further ones
// have had a moment to come. It gives the version of the name.
func (s *store) markDue(ctx context.Context, tx *sql.Tx, name, lane string) (version int64, err error) {
	due := s.now()
	if lane == reconcile.LaneChanged {
		due = due.Add(reconcile.Debounce)
	}
	err = tx.QueryRowContext(ctx, `
		INSERT INTO names (name, version, due, lane, pass) VALUES (?1, 1, ?2, ?3, 0)
		ON CONFLICT DO UPDATE SET
		    version = version + 1, pass = 0,
		    due = iif(due IS NOT NULL AND (lane = 'ask' OR lane = ?3), min(due, ?2), ?2),
		    lane = iif(due IS NOT NULL AND lane = 'ask', lane, ?3)
		RETURNING version`, name, stamp(due), lane).Scan(&version)
	return version, err
}

// released is what came of the wish to release a usage.
type released struct {
	freed   bool
	version int64 // of the name, whose value is to be withdrawn first
}

// ReleaseUsage gives a prefix free, or marks its usage as releasing until nothing
// of it can stand at a provider any more. By force it is free at once, and what
// stands is a leftover; so it is in mode upsert-only.
func (s *store) ReleaseUsage(ctx context.Context, id string, force bool) (r released, err error) {
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		u, err := scanUsage(tx.QueryRowContext(ctx, selectUsages+` WHERE u.id = ?`, id))
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, `UPDATE bindings SET status = ? WHERE seq = ?`, statusReleasing, u.Seq); err != nil {
			return err
		}
		state, err := s.state(ctx, tx, []string{u.Name})
		if err != nil {
			return err
		}
		leave := force || state.UpsertOnly
		r.freed = leave || !u.Network.Valid || slices.Contains(reconcile.Free(state.Names[0]), id)
		if leave {
			if err := s.leave(ctx, tx, state.Names[0], u); err != nil {
				return err
			}
		}
		if r.freed {
			if _, err := tx.ExecContext(ctx, `DELETE FROM usages WHERE id = ?`, id); err != nil {
				return err
			}
		}
		lane := reconcile.LaneAsked
		if r.freed {
			lane = reconcile.LaneChanged
		}
		if r.version, err = s.markDue(ctx, tx, u.Name, lane); err != nil {
			return err
		}
		return dropName(ctx, tx, u.Name, r.version)
	})
	return r, err
}

// leave makes leftovers of the places that hold a usage's value, if nobody else
// wants it there.
func (s *store) leave(ctx context.Context, tx *sql.Tx, n reconcile.Name, u usage) error {
	if slices.ContainsFunc(n.Usages, func(o reconcile.Usage) bool { return !o.Releasing }) || n.Own != nil {
		return nil
	}
	for _, p := range n.Places {
		if p.State == reconcile.Withdrawn || p.Standing == "" && p.Doubt == "" {
			continue
		}
		p.State = reconcile.Leftover
		if err := s.savePlace(ctx, tx, &p); err != nil {
			return err
		}
	}
	return nil
}

// dropName forgets a name of which there is nothing to know any more.
func dropName(ctx context.Context, tx *sql.Tx, name string, version int64) error {
	_, err := tx.ExecContext(ctx, `
		DELETE FROM names
		WHERE name = ? AND version = ? AND
		      NOT EXISTS (SELECT 1 FROM usages WHERE usages.name = names.name) AND
		      NOT EXISTS (SELECT 1 FROM places WHERE places.name = names.name) AND
		      NOT EXISTS (SELECT 1 FROM configuration WHERE id = 1 AND configuration.name = names.name)`, name, version)
	return err
}

// State gives what is stored about some names, at one moment.
func (s *store) State(ctx context.Context, names []string) (reconcile.State, error) {
	tx, err := s.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return reconcile.State{}, err
	}
	defer tx.Rollback()
	return s.state(ctx, tx, names)
}

func (s *store) state(ctx context.Context, q queryer, names []string) (state reconcile.State, err error) {
	state.Owner = s.owner
	if state.Adopted, err = collect(ctx, q, scanText, `SELECT owner FROM adopted`); err != nil || len(names) == 0 {
		return state, err
	}
	l := loader{q: q, names: textList(names), at: map[string]int{}, accounts: map[int64]*reconcile.Account{}}
	for i, name := range names {
		state.Names = append(state.Names, reconcile.Name{Name: name})
		l.at[name] = i
	}
	c, err := selectConfiguration(ctx, q)
	if err == nil {
		l.configured = &c
		state.UpsertOnly = c.mode() == modeUpsertOnly
	} else if !errors.Is(err, errNoConfiguration) {
		return state, err
	}
	for _, load := range []func(context.Context, []reconcile.Name) error{l.versions, l.usages, l.places, l.own} {
		if err := load(ctx, state.Names); err != nil {
			return state, err
		}
	}
	return state, nil
}

// loader fills in what is stored about names.
type loader struct {
	q          queryer
	names      textList
	at         map[string]int // of a name in the list
	configured *configuration
	accounts   map[int64]*reconcile.Account
}

func (l *loader) rows(ctx context.Context, query string, read func(rows *sql.Rows) error, args ...any) error {
	rows, err := l.q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := read(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (l *loader) account(ctx context.Context, id int64) (*reconcile.Account, error) {
	if a := l.accounts[id]; a != nil {
		return a, nil
	}
	a := &reconcile.Account{ID: id}
	err := l.q.QueryRowContext(ctx, `SELECT provider, endpoint, access_key_id, access_key_secret FROM accounts WHERE id = ?`, id).Scan(
		&a.Provider, &a.Endpoint, &a.AccessKeyID, &a.Secret)
	l.accounts[id] = a
	return a, err
}

func (l *loader) versions(ctx context.Context, names []reconcile.Name) error {
	return l.rows(ctx, `SELECT name, version, pass FROM names WHERE name IN (SELECT value FROM json_each(?))`, func(rows *sql.Rows) error {
		var n reconcile.Name
		err := rows.Scan(&n.Name, &n.Version, &n.Pass)
		names[l.at[n.Name]].Version, names[l.at[n.Name]].Pass = n.Version, n.Pass
		return err
	}, l.names)
}

// storedUsage is a usage as it is stored, with its service's id.
type storedUsage struct {
	reconcile.Usage
	name, service string
	seq           int64
	endpoints     textList
}

func scanStoredUsage(row scanner) (u storedUsage, err error) {
	var network networkID
	var status string
	err = row.Scan(&u.seq, &u.name, &u.ID, &u.service, &u.endpoints, &network, &status)
	u.Network, u.Releasing = network.String(), status == statusReleasing
	return u, err
}

func (l *loader) usages(ctx context.Context, names []reconcile.Name) error {
	all, err := collect(ctx, l.q, scanStoredUsage, `
		SELECT u.seq, u.name, u.id, u.provider_id, u.txt_endpoints, b.network_id, b.status
		FROM usages u JOIN bindings b ON b.seq = u.seq
		WHERE u.name IN (SELECT value FROM json_each(?)) AND u.record_type = 'TXT'`, l.names)
	if err != nil {
		return err
	}
	slices.SortFunc(all, func(a, b storedUsage) int { return cmp.Compare(a.seq, b.seq) })
	services := map[string]*reconcile.Usage{}
	for _, u := range all {
		of := services[u.service]
		if of == nil {
			if of, err = l.service(ctx, u.service); err != nil {
				return err
			}
			services[u.service] = of
		}
		u.Account, u.Domain, u.Endpoints = of.Account, of.Domain, of.Endpoints
		if len(u.endpoints) > 0 {
			u.Endpoints = u.endpoints
		}
		n := &names[l.at[u.name]]
		n.Usages = append(n.Usages, u.Usage)
	}
	return nil
}

// service gives what a usage has from its service: its own account, else the
// configuration's when its domain is, or lies below, the configuration's.
func (l *loader) service(ctx context.Context, id string) (*reconcile.Usage, error) {
	var u reconcile.Usage
	var account sql.Null[int64]
	var endpoints textList
	err := l.q.QueryRowContext(ctx, `SELECT zone, account, txt_endpoints FROM services WHERE id = ?`, id).Scan(&u.Domain, &account, &endpoints)
	if err != nil {
		return &u, absent(err, nil) // a row that is older than the checks has nowhere to go
	}
	if c := l.configured; c != nil {
		if !account.Valid && dnsname.Within(u.Domain, c.Zone) {
			account = sql.Null[int64]{V: c.AccountID, Valid: true}
		}
		if len(endpoints) == 0 {
			endpoints = c.Endpoints
		}
	}
	u.Endpoints = endpoints
	if account.Valid {
		u.Account, err = l.account(ctx, account.V)
	}
	return &u, err
}

const selectPlaces = `
	SELECT id, name, account, zone, zone_id, state, standing, intent, doubt, look_at, disturbed, code, detail, attempts, at, since
	FROM places`

// storedPlace is a place as it is stored, with what is shown of it.
type storedPlace struct {
	reconcile.Place
	At, Since string
}

func scanPlace(row scanner) (p storedPlace, err error) {
	var look int64
	err = row.Scan(&p.ID, &p.Name, &p.Account.ID, &p.Zone, &p.ZoneID, &p.State, &p.Standing, &p.Intent, &p.Doubt, &look,
		&p.Disturbed, &p.Fault.Code, &p.Fault.Detail, &p.Attempts, &p.At, &p.Since)
	p.LookAt = stamped(look)
	return p, absent(err, errNoLeftover)
}

func (l *loader) places(ctx context.Context, names []reconcile.Name) error {
	all, err := collect(ctx, l.q, scanPlace, selectPlaces+` WHERE name IN (SELECT value FROM json_each(?))`, l.names)
	if err != nil {
		return err
	}
	for _, p := range all {
		account, err := l.account(ctx, p.Account.ID)
		if err != nil {
			return err
		}
		p.Account = *account
		n := &names[l.at[p.Name]]
		n.Places = append(n.Places, p.Place)
	}
	return nil
}

func (l *loader) own(ctx context.Context, names []reconcile.Name) error {
	if l.configured == nil {
		return nil
	}
	i, ok := l.at[l.configured.recordName()]
	if !ok {
		return nil
	}
	account, err := l.account(ctx, l.configured.AccountID)
	names[i].Own = &reconcile.Own{Account: *account, Domain: l.configured.Zone, Endpoints: l.configured.Endpoints}
	return err
}

// savePlace stores a place, and gives a new one its id.
func (s *store) savePlace(ctx context.Context, tx *sql.Tx, p *reconcile.Place) error {
	now := s.timestamp()
	values := []any{p.Name, p.Account.ID, p.Zone, p.ZoneID, p.State, p.Standing, p.Intent, p.Doubt, stamp(p.LookAt), p.Disturbed,
		p.Fault.Code, p.Fault.Detail, p.Attempts, now}
	if p.ID == 0 {
		return tx.QueryRowContext(ctx, `
			INSERT INTO places (name, account, zone, zone_id, state, standing, intent, doubt, look_at, disturbed, code, detail, attempts, at, since)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			RETURNING id`, append(values, now)...).Scan(&p.ID)
	}
	_, err := tx.ExecContext(ctx, `
		UPDATE places SET
		    name = ?1, account = ?2, zone = ?3, zone_id = ?4, since = iif(state = ?5, since, ?14), state = ?5, standing = ?6, intent = ?7,
		    doubt = ?8, look_at = ?9, disturbed = ?10, code = ?11, detail = ?12, attempts = ?13, at = ?14
		WHERE id = ?15`, append(values, p.ID)...)
	return err
}

// endPlace forgets a place, and the key that nothing else needs.
func endPlace(ctx context.Context, tx *sql.Tx, p reconcile.Place) error {
	if _, err := tx.ExecContext(ctx, `DELETE FROM places WHERE id = ?`, p.ID); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, `
		DELETE FROM accounts
		WHERE id = ? AND
		      NOT EXISTS (SELECT 1 FROM places WHERE account = accounts.id) AND
		      NOT EXISTS (SELECT 1 FROM services WHERE account = accounts.id) AND
		      NOT EXISTS (SELECT 1 FROM configuration WHERE account = accounts.id)`, p.Account.ID)
	return err
}

// Intend commits what is about to be written, if it is still wanted.
func (s *store) Intend(ctx context.Context, names []string, decide func(reconcile.State) []*reconcile.Place) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		state, err := s.state(ctx, tx, names)
		if err != nil {
			return err
		}
		for _, p := range decide(state) {
			if err := s.savePlace(ctx, tx, p); err != nil {
				return err
			}
		}
		return nil
	})
}

// Settle commits what came of some work: places, usages that are free by it, and
// when to come back to the names, unless they have changed meanwhile.
func (s *store) Settle(ctx context.Context, work reconcile.Settlement) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, p := range work.Places {
			if err := s.savePlace(ctx, tx, &p); err != nil {
				return err
			}
		}
		for _, p := range work.Ended {
			if err := endPlace(ctx, tx, p); err != nil {
				return err
			}
		}
		for _, d := range work.Names {
			if err := s.settleName(ctx, tx, d); err != nil {
				return err
			}
		}
		return nil
	})
}

func (s *store) settleName(ctx context.Context, tx *sql.Tx, d reconcile.Due) error {
	if d.Released {
		state, err := s.state(ctx, tx, []string{d.Name})
		if err != nil {
			return err
		}
		for _, id := range reconcile.Free(state.Names[0]) {
			if _, err := tx.ExecContext(ctx, `DELETE FROM usages WHERE id = ?`, id); err != nil {
				return err
			}
		}
	}
	_, err := tx.ExecContext(ctx, `
		UPDATE names SET due = nullif(?, 0), lane = ?, pass = iif(?3 = 0, pass, ?3)
		WHERE name = ? AND version = ?`, stamp(d.At), d.Lane, d.Pass, d.Name, d.Version)
	if err == nil && (d.Released || d.Empty) {
		err = dropName(ctx, tx, d.Name, d.Version)
	}
	return err
}

// Settings gives what the configuration says about the work itself.
func (s *store) Settings(ctx context.Context) (reconcile.Settings, error) {
	c, err := s.Configuration(ctx)
	if errors.Is(err, errNoConfiguration) {
		return reconcile.Settings{}, nil
	}
	return reconcile.Settings{Configured: true, Enabled: c.Enabled, Automatic: c.mode() != modeManual, Retry: retryPolicy(c)}, err
}

// Due gives names of a lane that are due by a time, the longest due first.
func (s *store) Due(ctx context.Context, lane string, by time.Time, limit int) ([]string, error) {
	return collect(ctx, s.reader, scanText, `SELECT name FROM names WHERE lane = ? AND due <= ? ORDER BY due LIMIT ?`, lane, stamp(by), limit)
}

// NextDue gives the earliest time at which a name of the lane is due.
func (s *store) NextDue(ctx context.Context, lane string) (at time.Time, ok bool, err error) {
	var due int64
	err = s.reader.QueryRowContext(ctx, `SELECT due FROM names WHERE lane = ? AND due > 0 ORDER BY due LIMIT 1`, lane).Scan(&due)
	if errors.Is(err, sql.ErrNoRows) {
		return at, false, nil
	}
	return stamped(due), err == nil, err
}

// ZoneLanes gives the lanes of zones in which names wait: each is one search.
func (s *store) ZoneLanes(ctx context.Context) (lanes []string, err error) {
	for last := reconcile.LaneLook; ; {
		err := s.reader.QueryRowContext(ctx, `SELECT lane FROM names WHERE lane > ? AND due > 0 ORDER BY lane LIMIT 1`, last).Scan(&last)
		if err != nil {
			return lanes, absent(err, nil)
		}
		lanes = append(lanes, last)
	}
}

// SpreadMarks makes some of the names due whose service was marked.
func (s *store) SpreadMarks(ctx context.Context, limit int) (more bool, err error) {
	var id string
	err = s.reader.QueryRowContext(ctx, `SELECT service_id FROM marks WHERE service_id > '' ORDER BY service_id LIMIT 1`).Scan(&id)
	if err != nil {
		return false, absent(err, nil)
	}
	return true, s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var after int64
		if err := tx.QueryRowContext(ctx, `SELECT after FROM marks WHERE service_id = ?`, id).Scan(&after); err != nil {
			return absent(err, nil)
		}
		usages, err := collect(ctx, tx, scanUsage, selectUsages+` WHERE u.provider_id = ? AND u.seq > ? ORDER BY u.seq LIMIT ?`, id, after, limit)
		if err != nil {
			return err
		}
		for _, u := range usages {
			after = u.Seq
			if _, err := s.markDue(ctx, tx, u.Name, reconcile.LaneChanged); err != nil {
				return err
			}
		}
		if len(usages) < limit {
			_, err = tx.ExecContext(ctx, `DELETE FROM marks WHERE service_id = ?`, id)
		} else {
			_, err = tx.ExecContext(ctx, `UPDATE marks SET after = ? WHERE service_id = ?`, after, id)
		}
		return err
	})
}

// Pass gives how far the running pass is, nil when none runs, and what asks for
// a new one.
func (s *store) Pass(ctx context.Context) (p *reconcile.Progress, r reconcile.Request, err error) {
	var running string
	var at int64
	err = s.reader.QueryRowContext(ctx, `SELECT running, requested, requested_at FROM pass WHERE id = 1`).Scan(&running, &r.Trigger, &at)
	r.At = stamped(at)
	if err == nil && running != "" {
		err = json.Unmarshal([]byte(running), &p)
	}
	return p, r, err
}

// BeginPass numbers a new pass, and drops what asked for it.
func (s *store) BeginPass(ctx context.Context, p reconcile.Progress) (number int64, err error) {
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if err := tx.QueryRowContext(ctx, `UPDATE pass SET number = number + 1, requested = '' WHERE id = 1 RETURNING number`).Scan(&number); err != nil {
			return err
		}
		p.Number = number
		_, err := tx.ExecContext(ctx, `UPDATE pass SET running = ? WHERE id = 1`, text(p))
		return err
	})
	return number, err
}

// SavePass stores how far a pass is.
func (s *store) SavePass(ctx context.Context, p reconcile.Progress) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE pass SET running = ? WHERE id = 1`, text(p))
		return err
	})
}

// EndPass stores the report of a pass that is through.
func (s *store) EndPass(ctx context.Context, r reconcile.Report) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE pass SET running = '', last = ? WHERE id = 1`, text(r))
		return err
	})
}

// text is JSON of what can be nothing else.
func text(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // a type that JSON cannot hold: a mistake of this program
	}
	return string(data)
}

// LastReport gives the report of the last whole pass, nil when there was none.
func (s *store) LastReport(ctx context.Context) (r *reconcile.Report, err error) {
	var last string
	err = s.reader.QueryRowContext(ctx, `SELECT last FROM pass WHERE id = 1`).Scan(&last)
	if err == nil && last != "" {
		err = json.Unmarshal([]byte(last), &r)
	}
	return r, err
}

// NamesAfter gives names in their order, but for those that the pass has worked
// on, and those that wait for their zone.
func (s *store) NamesAfter(ctx context.Context, cursor string, pass int64, limit int) ([]string, error) {
	return collect(ctx, s.reader, scanText, `
		SELECT name FROM names WHERE name > ? AND pass <> ? AND (due IS NULL OR lane <= 'look') ORDER BY name LIMIT ?`, cursor, pass, limit)
}

// Zones gives every zone in which something of ours may be: those of the places,
// each found by one search, and those of the domains.
func (s *store) Zones(ctx context.Context) (zones []reconcile.Zone, err error) {
	l := loader{q: s.reader, accounts: map[int64]*reconcile.Account{}}
	for account, apex := int64(0), ""; ; {
		err := s.reader.QueryRowContext(ctx, `
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
	c, err := s.Configuration(ctx)
	if err != nil {
		return zones, err
	}
	services, err := s.Services(ctx)
	for _, v := range append(services, service{Zone: c.Zone, AccountID: c.AccountID}) {
		id := v.AccountID
		if id == 0 && dnsname.Within(v.Zone, c.Zone) {
			id = c.AccountID
		}
		if id == 0 || v.Zone == "" {
			continue
		}
		a, err := l.account(ctx, id)
		if err != nil {
			return nil, err
		}
		zones = append(zones, reconcile.Zone{Account: *a, Domain: v.Zone})
	}
	return zones, err
}

// Strangers gives those of the names that have no place in the zone, whatever
// key it was published with.
func (s *store) Strangers(ctx context.Context, z reconcile.Zone, names []string) ([]string, error) {
	return collect(ctx, s.reader, scanText, `
		SELECT value FROM json_each(?1)
		WHERE NOT EXISTS (SELECT 1 FROM places p JOIN accounts a ON a.id = p.account
		                  WHERE p.name = value AND p.zone = ?2 AND p.zone_id = ?3 AND a.provider = ?4 AND a.endpoint = ?5)`,
		textList(names), z.Apex, z.ID, z.Account.Provider, z.Account.Endpoint)
}

// AddLeftovers stores places to withdraw, and makes their names due.
func (s *store) AddLeftovers(ctx context.Context, places []reconcile.Place) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		for _, p := range places {
			if err := s.savePlace(ctx, tx, &p); err != nil {
				return err
			}
			if _, err := s.markDue(ctx, tx, p.Name, reconcile.LaneAsked); err != nil {
				return err
			}
		}
		return nil
	})
}

// Leftovers gives at most limit leftovers in the order of their ids, and when
// each is tried again.
func (s *store) Leftovers(ctx context.Context, after int64, limit int) ([]storedPlace, error) {
	places, err := collect(ctx, s.reader, scanPlace, selectPlaces+` WHERE state = 'leftover' AND id > ? ORDER BY id LIMIT ?`, after, limit)
	l := loader{q: s.reader, accounts: map[int64]*reconcile.Account{}}
	for i := range places {
		a, err := l.account(ctx, places[i].Account.ID)
		if err != nil {
			return nil, err
		}
		places[i].Account = *a
	}
	return places, err
}

// NameDue gives the time at which a name is due, zero when a pass will come by.
func (s *store) NameDue(ctx context.Context, name string) (time.Time, error) {
	var due int64
	err := s.reader.QueryRowContext(ctx, `SELECT coalesce(due, 0) FROM names WHERE name = ?`, name).Scan(&due)
	return stamped(due), absent(err, nil)
}

// ForgetLeftover ends a leftover that a person has removed.
func (s *store) ForgetLeftover(ctx context.Context, id int64) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		p, err := scanPlace(tx.QueryRowContext(ctx, selectPlaces+` WHERE id = ? AND state = 'leftover'`, id))
		if err != nil {
			return err
		}
		if err := endPlace(ctx, tx, p.Place); err != nil {
			return err
		}
		_, err = s.markDue(ctx, tx, p.Name, reconcile.LaneAsked)
		return err
	})
}

// Adopt makes the values of another owner count as ours, and asks for a pass.
func (s *store) Adopt(ctx context.Context, owner string) error {
	if owner == s.owner {
		return errOwnOwner
	}
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if _, err := tx.ExecContext(ctx, `INSERT INTO adopted (owner) VALUES (?) ON CONFLICT DO NOTHING`, owner); err != nil {
			return err
		}
		return s.requestPass(ctx, tx, reconcile.TriggerChange)
	})
}

// Places gives the places of a name with what is shown of them.
func (s *store) Places(ctx context.Context, name string) ([]storedPlace, error) {
	return collect(ctx, s.reader, scanPlace, selectPlaces+` WHERE name = ?`, name)
}

// Addresses gives this host's last known public addresses.
func (s *store) Addresses(ctx context.Context) (a meshtxt.Addresses, err error) {
	var ipv4, ipv6 string
	if err = s.reader.QueryRowContext(ctx, `SELECT ipv4, ipv6 FROM appliance WHERE id = 1`).Scan(&ipv4, &ipv6); err != nil {
		return a, err
	}
	a.IPv4, _ = netip.ParseAddr(ipv4) // "" is none
	a.IPv6, _ = netip.ParseAddr(ipv6)
	return a, nil
}

// SaveAddresses stores changed addresses, and asks for a pass.
func (s *store) SaveAddresses(ctx context.Context, a meshtxt.Addresses) error {
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
		return s.requestPass(ctx, tx, reconcile.TriggerAddress)
	})
}

// BuiltinZone gives the longest of some names, in lower case, that is a zone
// of the built-in DNS server, and the serial of all its zones. It is
// builtin.ErrNoZone when none is.
func (s *store) BuiltinZone(ctx context.Context, names []string) (zone string, serial uint32, err error) {
	var longest sql.Null[int] // makes value that of the row of the maximum
	err = s.reader.QueryRowContext(ctx, `
		SELECT coalesce(value, ''), (SELECT dns_serial FROM appliance WHERE id = 1), max(length(value))
		FROM json_each(?)
		WHERE EXISTS (SELECT 1 FROM services WHERE zone = value AND provider = 'builtin') OR
		      EXISTS (SELECT 1 FROM configuration WHERE id = 1 AND zone = value AND provider = 'builtin')`,
		textList(names)).Scan(&zone, &serial, &longest)
	if err == nil && !longest.Valid {
		err = builtin.ErrNoZone
	}
	return zone, serial, err
}

func scanZoneRecord(row scanner) (r builtin.Record, err error) {
	err = row.Scan(&r.Name, &r.Data, &r.TTL)
	return r, err
}

// ZoneRecords gives the records at some names, whose labels begin at the root.
func (s *store) ZoneRecords(ctx context.Context, names []string) ([]builtin.Record, error) {
	return selectZoneRecords(ctx, s.reader, names)
}

func selectZoneRecords(ctx context.Context, q queryer, names []string) ([]builtin.Record, error) {
	return collect(ctx, q, scanZoneRecord, `
		SELECT name, data, ttl FROM zone_records WHERE name IN (SELECT value FROM json_each(?))`, textList(names))
}

// ZoneRecordsAfter gives records at and below a name, from a name on.
func (s *store) ZoneRecordsAfter(ctx context.Context, zone, after string, limit int) ([]builtin.Record, error) {
	return collect(ctx, s.reader, scanZoneRecord, `
		SELECT name, data, ttl FROM zone_records
		WHERE name > ?1 AND name >= ?2 AND name < ?2 || '/'
		ORDER BY name, data LIMIT ?3`, after, zone, limit)
}

// ZoneHasBelow reports whether a built-in zone has anything below a name,
// given with its labels from the root and, for zones of their own, as text.
func (s *store) ZoneHasBelow(ctx context.Context, name, text string) (below bool, err error) {
	err = s.reader.QueryRowContext(ctx, `
		SELECT EXISTS (SELECT 1 FROM zone_records WHERE name > ?1 || '.' AND name < ?1 || '/') OR
		       EXISTS (SELECT 1 FROM services WHERE provider = 'builtin' AND substr(zone, -length(?2) - 1) = '.' || ?2) OR
		       EXISTS (SELECT 1 FROM configuration
		               WHERE id = 1 AND provider = 'builtin' AND substr(zone, -length(?2) - 1) = '.' || ?2)`,
		name, text).Scan(&below)
	return below, err
}

// ChangeZoneRecords makes changes in the built-in zones in one transaction, and
// gives all zones a new serial. A change that decide refuses is not made.
func (s *store) ChangeZoneRecords(ctx context.Context, names []string, decide func(now []builtin.Record) (add, remove []builtin.Record)) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now, err := selectZoneRecords(ctx, tx, names)
		if err != nil {
			return err
		}
		add, remove := decide(now)
		for _, r := range remove {
			if _, err := tx.ExecContext(ctx, `DELETE FROM zone_records WHERE name = ? AND data = ?`, r.Name, r.Data); err != nil {
				return err
			}
		}
		for _, r := range add {
			if _, err := tx.ExecContext(ctx, `INSERT INTO zone_records (name, data, ttl) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, r.Name, r.Data, r.TTL); err != nil {
				return err
			}
		}
		if len(add) == 0 && len(remove) == 0 {
			return nil
		}
		_, err = tx.ExecContext(ctx, `UPDATE appliance SET dns_serial = max(dns_serial + 1, ?) WHERE id = 1`, s.now().Unix())
		return err
	})
}

// Totals gives the numbers of services, of usages, and of places by state.
func (s *store) Totals(ctx context.Context) (map[string]uint64, error) {
	totals := map[string]uint64{}
	l := loader{q: s.reader}
	return totals, l.rows(ctx, `SELECT what, count FROM totals`, func(rows *sql.Rows) error {
		var what string
		var count uint64
		err := rows.Scan(&what, &count)
		totals[what] = count
		return err
	})
}

// Backup makes a consistent copy of the live database beside it and opens it.
// The copy has no name any more, so it is gone when it is closed.
func (s *store) Backup(ctx context.Context) (_ *os.File, err error) {
	dir, err := dbfile.TempFolder(s.path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	db, err := sql.Open("sqlite3", dataSource(s.path, url.Values{}))
	if err != nil {
		return nil, err
	}
	defer db.Close()
	path := filepath.Join(dir, "copy.db")
	if _, err := db.ExecContext(ctx, `VACUUM INTO ?`, path); err != nil {
		return nil, fmt.Errorf("copy database: %w", err)
	}
	return os.Open(path)
}
