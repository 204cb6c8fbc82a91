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
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/mattn/go-sqlite3"
)

//go:embed schema.sql
var schemaSQL string

// migrations are the statements that lead from one version of the schema to
// the next: version n of a file is the first n of them. The list only grows.
var migrations = []string{schemaSQL, configurationZone}

// configurationZone gives the configuration its zone as services have theirs:
// the domain as DNS has it, empty for none.
const configurationZone = `ALTER TABLE configuration ADD COLUMN zone TEXT NOT NULL DEFAULT ''`

// zonesVersion is the schema's version from which zones are written with
// A-labels.
const zonesVersion = 2

// What a store function reports beside faults of the database itself.
var (
	errNotFound      = errors.New("not found")
	errExists        = errors.New("exists already")
	errInUse         = errors.New("in use")
	errPrefixTaken   = errors.New("prefix is taken")
	errNoSecret      = errors.New("no stored secret belongs to these credentials")
	errValuesChanged = errors.New("values at the name have changed")
)

// store is the database. There is one writer, for SQLite has one; readers
// work beside it on the last committed state (WAL).
type store struct {
	path   string
	writer *sql.DB
	reader *sql.DB
	now    func() time.Time
	newID  func() (string, error)
}

const readers = 4

// openStore opens the database file, makes it when it is not there, and
// brings its schema to this program's version.
func openStore(ctx context.Context, path string) (*store, error) {
	s := &store{path: filepath.Clean(path), now: time.Now, newID: newUUID}
	err := errors.Join(ownFile(path), s.removeLeftBackups())
	if err != nil {
		return nil, err
	}
	if s.writer, err = sql.Open("sqlite3", dataSource(s.path, url.Values{"_txlock": {"immediate"}})); err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s.writer.SetMaxOpenConns(1)
	if s.reader, err = sql.Open("sqlite3", dataSource(s.path, url.Values{"_query_only": {"1"}})); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.writer.Close())
	}
	s.reader.SetMaxOpenConns(readers)
	s.reader.SetMaxIdleConns(readers)
	if err := s.migrate(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), s.Close())
	}
	return s, nil
}

// fileHeader begins every SQLite file (https://sqlite.org/fileformat.html).
const fileHeader = "SQLite format 3\x00"

// ownFile makes the database readable by its owner only, with its companions
// -wal and -shm: it holds access keys. A file that is no database is left as
// it is.
func ownFile(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	header, err := io.ReadAll(io.LimitReader(file, int64(len(fileHeader))))
	if err != nil {
		return err
	}
	if len(header) > 0 && string(header) != fileHeader {
		return fmt.Errorf("%s is not a database", path)
	}
	for _, suffix := range []string{"-wal", "-shm"} {
		if err := os.Chmod(path+suffix, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return file.Chmod(0o600)
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
	return errors.Join(s.reader.Close(), s.writer.Close())
}

// Ping reports whether the database answers.
func (s *store) Ping(ctx context.Context) error {
	var one int
	return s.reader.QueryRowContext(ctx, `SELECT 1 FROM appliance`).Scan(&one)
}

func (s *store) migrate(ctx context.Context) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		var version int
		if err := tx.QueryRowContext(ctx, `PRAGMA user_version`).Scan(&version); err != nil {
			return err
		}
		if version > len(migrations) {
			return fmt.Errorf("schema version %d is newer than this program's %d", version, len(migrations))
		}
		stored := version
		for ; version < len(migrations); version++ {
			if _, err := tx.ExecContext(ctx, migrations[version]); err != nil {
				return fmt.Errorf("migrate to version %d: %w", version+1, err)
			}
		}
		if 0 < stored && stored < zonesVersion {
			if err := writeZones(ctx, tx); err != nil {
				return fmt.Errorf("write zones: %w", err)
			}
		}
		if _, err := tx.ExecContext(ctx, fmt.Sprintf(`PRAGMA user_version = %d`, len(migrations))); err != nil {
			return err
		}
		var owner [6]byte
		rand.Read(owner[:])
		_, err := tx.ExecContext(ctx, `INSERT INTO appliance (id, owner) VALUES (1, ?) ON CONFLICT DO NOTHING`, hex.EncodeToString(owner[:]))
		return err
	})
}

// writeZones writes every zone anew as DNS has it, which SQL cannot: domains may
// be in any script.
func writeZones(ctx context.Context, tx *sql.Tx) error {
	type row struct{ id, config string }
	scan := func(s interface{ Scan(...any) error }) (r row, err error) {
		err = s.Scan(&r.id, &r.config)
		return r, err
	}
	services, err := collect(ctx, tx, scan, `SELECT id, config FROM services`)
	if err != nil {
		return err
	}
	for _, r := range services {
		config, _ := parseServiceConfig(r.config) // an older row may have anything, and then no zone
		if _, err := tx.ExecContext(ctx, `UPDATE services SET zone = ? WHERE id = ?`, dnsName(config.Domain), r.id); err != nil {
			return err
		}
	}
	c, err := selectConfiguration(ctx, tx)
	if errors.Is(err, errNotFound) {
		return nil
	}
	if err == nil {
		_, err = tx.ExecContext(ctx, `UPDATE configuration SET zone = ?`, dnsName(c.Domain))
	}
	return err
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
	return nil
}

// timestamp is now as it is stored.
func (s *store) timestamp() string {
	return s.now().UTC().Format("2006-01-02T15:04:05.000Z")
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
	return json.Unmarshal([]byte(text), l)
}

// notFound turns the absence of a row into errNotFound.
func notFound(err error) error {
	if errors.Is(err, sql.ErrNoRows) {
		return errNotFound
	}
	return err
}

// mustAffect is errNotFound when a statement touched no row.
func mustAffect(result sql.Result, err error) error {
	if err != nil {
		return err
	}
	if n, err := result.RowsAffected(); err != nil || n > 0 {
		return err
	}
	return errNotFound
}

func isConstraint(err error, code sqlite3.ErrNoExtended) bool {
	fault, ok := errors.AsType[sqlite3.Error](err)
	return ok && fault.ExtendedCode == code
}

// configuration is the DDNS configuration. A pointer is nil where the client
// gave no number.
type configuration struct {
	Provider, AccessKeyID, AccessKeySecret, Endpoint string
	Domain, TXTRecordName, SyncMode                  string
	RetryInterval, MaxRetries                        *int64
	Enabled                                          bool
	Endpoints                                        textList
	UpdatedAt                                        string
}

// queryer is what a pool and a transaction have in common.
type queryer interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// Configuration gives the stored configuration, or errNotFound.
func (s *store) Configuration(ctx context.Context) (configuration, error) {
	return selectConfiguration(ctx, s.reader)
}

func selectConfiguration(ctx context.Context, q queryer) (c configuration, err error) {
	err = q.QueryRowContext(ctx, `
		SELECT provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name, sync_mode,
		       retry_interval, max_retries, enabled, txt_endpoints, updated_at
		FROM configuration`).Scan(
		&c.Provider, &c.AccessKeyID, &c.AccessKeySecret, &c.Endpoint, &c.Domain, &c.TXTRecordName, &c.SyncMode,
		&c.RetryInterval, &c.MaxRetries, &c.Enabled, &c.Endpoints, &c.UpdatedAt)
	return c, notFound(err)
}

// PutConfiguration stores the configuration. With keepSecret the stored
// secret stays, which is errNoSecret unless it belongs to the same
// credentials: it must not be sent to another address.
func (s *store) PutConfiguration(ctx context.Context, c configuration, keepSecret bool) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if keepSecret {
			stored, err := selectConfiguration(ctx, tx)
			if err != nil && !errors.Is(err, errNotFound) {
				return err
			}
			if !stored.sameCredentials(c) {
				return errNoSecret
			}
			c.AccessKeySecret = stored.AccessKeySecret
		}
		_, err := tx.ExecContext(ctx, `
			INSERT INTO configuration (id, provider, access_key_id, access_key_secret, endpoint, domain, txt_record_name,
			                           sync_mode, retry_interval, max_retries, enabled, txt_endpoints, updated_at, zone)
			VALUES (1, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET
			    provider = excluded.provider, access_key_id = excluded.access_key_id,
			    access_key_secret = excluded.access_key_secret, endpoint = excluded.endpoint, domain = excluded.domain,
			    txt_record_name = excluded.txt_record_name, sync_mode = excluded.sync_mode,
			    retry_interval = excluded.retry_interval, max_retries = excluded.max_retries, enabled = excluded.enabled,
			    txt_endpoints = excluded.txt_endpoints, updated_at = excluded.updated_at, zone = excluded.zone`,
			c.Provider, c.AccessKeyID, c.AccessKeySecret, c.Endpoint, c.Domain, c.TXTRecordName, c.SyncMode,
			c.RetryInterval, c.MaxRetries, c.Enabled, c.Endpoints, s.timestamp(), dnsName(c.Domain))
		return err
	})
}

// sameCredentials reports whether c's secret, if there is one, is for the
// account and the address of d.
func (c configuration) sameCredentials(d configuration) bool {
	return c.AccessKeySecret != "" && c.Provider == d.Provider && c.AccessKeyID == d.AccessKeyID && c.Endpoint == d.Endpoint
}

// service is a registered DNS service.
type service struct {
	ID, Name, Config     string
	Zone, Provider       string // out of Config, for the database to search
	UsageCount           int
	CreatedAt, UpdatedAt string
}

const selectServices = `
	SELECT id, name, config, zone, provider, created_at, updated_at,
	       (SELECT count(*) FROM usages WHERE provider_id = services.id)
	FROM services`

func scanService(row interface{ Scan(...any) error }) (v service, err error) {
	err = row.Scan(&v.ID, &v.Name, &v.Config, &v.Zone, &v.Provider, &v.CreatedAt, &v.UpdatedAt, &v.UsageCount)
	return v, notFound(err)
}

// Service gives one service, or errNotFound.
func (s *store) Service(ctx context.Context, id string) (service, error) {
	return scanService(s.reader.QueryRowContext(ctx, selectServices+` WHERE id = ?`, id))
}

// Services gives all services in the order of their ids.
func (s *store) Services(ctx context.Context) ([]service, error) {
	return collect(ctx, s.reader, scanService, selectServices+` ORDER BY id`)
}

// collect gives the rows of a query.
func collect[T any](ctx context.Context, q queryer, scan func(interface{ Scan(...any) error }) (T, error), query string, args ...any) ([]T, error) {
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

// CreateService registers a service; errExists when its id is in use.
func (s *store) CreateService(ctx context.Context, v service) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := s.insertService(ctx, tx, v)
		if isConstraint(err, sqlite3.ErrConstraintPrimaryKey) {
			return errExists
		}
		return err
	})
}

func (s *store) insertService(ctx context.Context, tx *sql.Tx, v service) error {
	now := s.timestamp()
	_, err := tx.ExecContext(ctx, `
		INSERT INTO services (id, name, config, zone, provider, created_at, updated_at)
		VALUES (?, ?, ?, ?, ?, ?, ?)`, v.ID, v.Name, v.Config, v.Zone, v.Provider, now, now)
	return err
}

// PutService creates or replaces a service with what change makes of the
// stored one, which is zero when there is none. A changed zone is errInUse
// while usages exist: their names would change under them.
func (s *store) PutService(ctx context.Context, id string, change func(stored service) (service, error)) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		stored, err := scanService(tx.QueryRowContext(ctx, selectServices+` WHERE id = ?`, id))
		absent := errors.Is(err, errNotFound)
		if err != nil && !absent {
			return err
		}
		changed, err := change(stored)
		if err != nil {
			return err
		}
		changed.ID = id
		if absent {
			return s.insertService(ctx, tx, changed)
		}
		if stored.UsageCount > 0 && stored.Zone != changed.Zone {
			return errInUse
		}
		_, err = tx.ExecContext(ctx, `UPDATE services SET name = ?, config = ?, zone = ?, provider = ?, updated_at = ? WHERE id = ?`,
			changed.Name, changed.Config, changed.Zone, changed.Provider, s.timestamp(), id)
		return err
	})
}

// DeleteService removes a service; errInUse while usages exist.
func (s *store) DeleteService(ctx context.Context, id string) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		err := mustAffect(tx.ExecContext(ctx, `DELETE FROM services WHERE id = ?`, id))
		if isConstraint(err, sqlite3.ErrConstraintForeignKey) || isConstraint(err, sqlite3.ErrConstraintTrigger) {
			return errInUse
		}
		return err
	})
}

// usage is a reserved prefix with its binding and its service.
type usage struct {
	ID, ServiceID, Mode, Prefix string
	RecordType, Description     string
	Exclusive                   bool
	Endpoints                   textList
	CreatedAt                   string
	Network                     *networkID // nil without a binding
	Status                      string     // of the binding
	ServiceName, ServiceConfig  *string    // nil without the service
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

// CreateUsage stores a usage and its binding to a network, both or neither.
// It is errPrefixTaken when the service has the custom prefix already, and
// errNotFound when the service is gone.
func (s *store) CreateUsage(ctx context.Context, u usage, network networkID) (id string, err error) {
	usageID, err := s.newID()
	if err != nil {
		return "", err
	}
	bindingID, err := s.newID()
	if err != nil {
		return "", err
	}
	err = s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		if u.Mode == modeCustom {
			if count, err := countUsages(ctx, tx, u.ServiceID, u.Prefix); err != nil || count > 0 {
				return cmp.Or(err, errPrefixTaken)
			}
		}
		_, err := tx.ExecContext(ctx, `
			INSERT INTO usages (id, provider_id, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, created_at)
			VALUES (?, ?, ?, ?, ?, ?, ?, 1, '[]', ?)`,
			usageID, u.ServiceID, usageType, u.Mode, u.Prefix, recordTypeTXT, u.Description, s.timestamp())
		switch {
		case isConstraint(err, sqlite3.ErrConstraintUnique):
			return errPrefixTaken
		case isConstraint(err, sqlite3.ErrConstraintForeignKey):
			return errNotFound
		case err != nil:
			return fmt.Errorf("insert usage: %w", err)
		}
		_, err = tx.ExecContext(ctx, `INSERT INTO bindings (id, network_id, usage_id, provider_id, status) VALUES (?, ?, ?, ?, ?)`,
			bindingID, network, usageID, u.ServiceID, statusActive)
		if err != nil {
			return fmt.Errorf("insert binding: %w", err)
		}
		return nil
	})
	return usageID, err
}

// CountUsages counts the usages of a service with a prefix, letter case aside.
func (s *store) CountUsages(ctx context.Context, serviceID, prefix string) (count int, err error) {
	return countUsages(ctx, s.reader, serviceID, prefix)
}

func countUsages(ctx context.Context, q queryer, serviceID, prefix string) (count int, err error) {
	err = q.QueryRowContext(ctx, `
		SELECT count(*) FROM usages WHERE provider_id = ? AND record_prefix = ? COLLATE NOCASE`, serviceID, prefix).Scan(&count)
	return count, err
}

const selectUsages = `
	SELECT u.id, u.provider_id, u.prefix_mode, u.record_prefix, u.record_type, u.description, u.is_exclusive,
	       u.txt_endpoints, u.created_at, b.network_id, coalesce(b.status, ''), s.name, s.config
	FROM usages u
	LEFT JOIN bindings b ON b.usage_id = u.id
	LEFT JOIN services s ON s.id = u.provider_id
	WHERE u.record_type = 'TXT'`

func scanUsage(row interface{ Scan(...any) error }) (u usage, err error) {
	err = row.Scan(&u.ID, &u.ServiceID, &u.Mode, &u.Prefix, &u.RecordType, &u.Description, &u.Exclusive,
		&u.Endpoints, &u.CreatedAt, &u.Network, &u.Status, &u.ServiceName, &u.ServiceConfig)
	return u, notFound(err)
}

// usageFilter selects usages; a zero field selects all.
type usageFilter struct {
	serviceID string
	network   *networkID
	after     string // an id: only later ones
}

// Usages gives at most limit usages in the order of their ids, which is that
// of their creation.
func (s *store) Usages(ctx context.Context, f usageFilter, limit int) ([]usage, error) {
	query, args := selectUsages+` AND u.id > ?`, []any{f.after}
	if f.serviceID != "" {
		query, args = query+` AND u.provider_id = ?`, append(args, f.serviceID)
	}
	if f.network != nil {
		query, args = query+` AND u.id IN (SELECT usage_id FROM bindings WHERE network_id = ?)`, append(args, *f.network)
	}
	return collect(ctx, s.reader, scanUsage, query+` ORDER BY u.id LIMIT ?`, append(args, limit)...)
}

// Usage gives one usage, or errNotFound.
func (s *store) Usage(ctx context.Context, id string) (usage, error) {
	return scanUsage(s.reader.QueryRowContext(ctx, selectUsages+` AND u.id = ?`, id))
}

// ChangeUsage sets what a usage publishes and its description; nil leaves
// either as it is.
func (s *store) ChangeUsage(ctx context.Context, id string, endpoints textList, description *string) error {
	var changed any
	if endpoints != nil {
		changed = endpoints
	}
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return mustAffect(tx.ExecContext(ctx, `
			UPDATE usages SET txt_endpoints = coalesce(?, txt_endpoints), description = coalesce(?, description)
			WHERE id = ?`, changed, description, id))
	})
}

// BeginRelease marks a usage as releasing: its prefix stays occupied until
// DeleteUsage. A usage without a binding has nothing to mark.
func (s *store) BeginRelease(ctx context.Context, id string) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `UPDATE bindings SET status = ? WHERE usage_id = ?`, statusReleasing, id)
		return err
	})
}

// DeleteUsage frees the prefix: the usage and its binding are gone.
func (s *store) DeleteUsage(ctx context.Context, id string) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		return mustAffect(tx.ExecContext(ctx, `DELETE FROM usages WHERE id = ?`, id))
	})
}

// publication is what stands, or may stand, at a provider under a name.
type publication struct {
	Name, Provider, Endpoint string
	AccessKeyID              string     // of the key that it was last published with
	Network                  *networkID // nil for the configuration's record
	Held                     *networkID // whose value was there before, and may still be
	Value                    string     // wanted, "" to be withdrawn
	Written                  bool       // a value of ours may stand there
	State, Code, Detail      string
	Attempts                 int
	At                       string
}

// States of a publication.
const (
	statePending     = "pending"
	statePublished   = "published"
	stateFailed      = "failed"
	stateConflict    = "conflict"
	stateWithdrawing = "withdrawing"
)

const selectPublications = `
	SELECT name, provider, endpoint, access_key_id, network_id, held_network_id, value, written, state, code, detail, attempts, at
	FROM publications`

func scanPublication(row interface{ Scan(...any) error }) (p publication, err error) {
	err = row.Scan(&p.Name, &p.Provider, &p.Endpoint, &p.AccessKeyID, &p.Network, &p.Held, &p.Value, &p.Written, &p.State, &p.Code, &p.Detail, &p.Attempts, &p.At)
	return p, err
}

// Publications gives what is published under one name.
func (s *store) Publications(ctx context.Context, name string) ([]publication, error) {
	return collect(ctx, s.reader, scanPublication, selectPublications+` WHERE name = ?`, name)
}

// SavePublication stores what is intended for a name, or what came of it.
func (s *store) SavePublication(ctx context.Context, p publication) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `
			INSERT INTO publications (name, provider, endpoint, access_key_id, network_id, held_network_id, value, written, state, code, detail, attempts, at)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT (name, provider, endpoint) DO UPDATE SET
			    access_key_id = excluded.access_key_id, network_id = excluded.network_id,
			    held_network_id = excluded.held_network_id, value = excluded.value, written = excluded.written,
			    state = excluded.state, code = excluded.code, detail = excluded.detail, attempts = excluded.attempts, at = excluded.at`,
			p.Name, p.Provider, p.Endpoint, p.AccessKeyID, p.Network, p.Held, p.Value, p.Written, p.State, p.Code, p.Detail, p.Attempts, s.timestamp())
		return err
	})
}

// DeletePublication forgets a name at a provider: nothing of ours is there.
func (s *store) DeletePublication(ctx context.Context, p publication) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, `DELETE FROM publications WHERE name = ? AND provider = ? AND endpoint = ?`, p.Name, p.Provider, p.Endpoint)
		return err
	})
}

// snapshot is everything that decides what is to be published, at one moment.
type snapshot struct {
	owner         string
	configuration *configuration // nil when none is stored
	services      []service
	usages        []usage // in the order of their creation
	publications  []publication
}

// Snapshot reads the whole of it in one transaction.
func (s *store) Snapshot(ctx context.Context) (snap snapshot, err error) {
	tx, err := s.reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return snap, err
	}
	defer tx.Rollback()
	if err := tx.QueryRowContext(ctx, `SELECT owner FROM appliance`).Scan(&snap.owner); err != nil {
		return snap, err
	}
	c, err := selectConfiguration(ctx, tx)
	if err == nil {
		snap.configuration = &c
	} else if !errors.Is(err, errNotFound) {
		return snap, err
	}
	if snap.services, err = collect(ctx, tx, scanService, selectServices); err != nil {
		return snap, err
	}
	if snap.usages, err = collect(ctx, tx, scanUsage, selectUsages+` ORDER BY u.id`); err != nil {
		return snap, err
	}
	snap.publications, err = collect(ctx, tx, scanPublication, selectPublications+` ORDER BY name, provider, endpoint`)
	return snap, err
}

// Owner gives the mark of this database's values in DNS.
func (s *store) Owner(ctx context.Context) (owner string, err error) {
	err = s.reader.QueryRowContext(ctx, `SELECT owner FROM appliance`).Scan(&owner)
	return owner, err
}

// BuiltinZone gives the longest of some names, in lower case, that is a zone
// of the built-in DNS server, and the serial of all its zones. It is
// errNotFound when none is.
func (s *store) BuiltinZone(ctx context.Context, names textList) (zone string, serial uint32, err error) {
	err = s.reader.QueryRowContext(ctx, `
		SELECT value, dns_serial
		FROM json_each(?), appliance
		WHERE EXISTS (SELECT 1 FROM services WHERE zone = value AND provider = 'builtin') OR
		      EXISTS (SELECT 1 FROM configuration WHERE zone = value AND provider = 'builtin')
		ORDER BY length(value) DESC
		LIMIT 1`, names).Scan(&zone, &serial)
	return zone, serial, notFound(err)
}

// zoneRecord is one TXT record of the built-in zones.
type zoneRecord struct {
	Data []byte // RDATA
	TTL  uint32 // seconds
}

func scanZoneRecord(row interface{ Scan(...any) error }) (r zoneRecord, err error) {
	err = row.Scan(&r.Data, &r.TTL)
	return r, err
}

const selectZoneRecords = `SELECT data, ttl FROM zone_records WHERE name = ? ORDER BY data`

// ZoneRecords gives the records at a name, whose labels begin at the root.
func (s *store) ZoneRecords(ctx context.Context, name string) ([]zoneRecord, error) {
	return collect(ctx, s.reader, scanZoneRecord, selectZoneRecords, name)
}

// ZoneHasBelow reports whether a built-in zone has anything below a name,
// given with its labels from the root and, for zones of their own, as text.
func (s *store) ZoneHasBelow(ctx context.Context, name, text string) (below bool, err error) {
	err = s.reader.QueryRowContext(ctx, `
		SELECT EXISTS (SELECT 1 FROM zone_records WHERE name > ?1 || '.' AND name < ?1 || '/') OR
		       EXISTS (SELECT 1 FROM services WHERE provider = 'builtin' AND substr(zone, -length(?2) - 1) = '.' || ?2) OR
		       EXISTS (SELECT 1 FROM configuration
		               WHERE provider = 'builtin' AND substr(zone, -length(?2) - 1) = '.' || ?2)`,
		name, text).Scan(&below)
	return below, err
}

// ChangeZoneRecords adds and removes records at a name if the ones there are
// those that were seen, and gives all zones a new serial.
func (s *store) ChangeZoneRecords(ctx context.Context, name string, seen [][]byte, add []zoneRecord, remove [][]byte) error {
	return s.tx(ctx, func(ctx context.Context, tx *sql.Tx) error {
		now, err := collect(ctx, tx, scanZoneRecord, selectZoneRecords, name)
		if err != nil {
			return err
		}
		if !sameData(now, seen) {
			return errValuesChanged
		}
		for _, data := range remove {
			if _, err := tx.ExecContext(ctx, `DELETE FROM zone_records WHERE name = ? AND data = ?`, name, data); err != nil {
				return err
			}
		}
		for _, r := range add {
			if _, err := tx.ExecContext(ctx, `INSERT INTO zone_records (name, data, ttl) VALUES (?, ?, ?) ON CONFLICT DO NOTHING`, name, r.Data, r.TTL); err != nil {
				return err
			}
		}
		_, err = tx.ExecContext(ctx, `UPDATE appliance SET dns_serial = max(dns_serial + 1, ?)`, s.now().Unix())
		return err
	})
}

func sameData(records []zoneRecord, data [][]byte) bool {
	if len(records) != len(data) {
		return false
	}
	there := map[string]bool{}
	for _, r := range records {
		there[string(r.Data)] = true
	}
	for _, d := range data {
		if !there[string(d)] {
			return false
		}
	}
	return true
}

// totals are the numbers of rows.
type totals struct {
	services, usages uint64
	publications     map[string]uint64 // by state
}

// Totals counts the rows, for the metrics.
func (s *store) Totals(ctx context.Context) (t totals, err error) {
	err = s.reader.QueryRowContext(ctx, `SELECT (SELECT count(*) FROM services), (SELECT count(*) FROM usages)`).Scan(&t.services, &t.usages)
	if err != nil {
		return t, err
	}
	rows, err := s.reader.QueryContext(ctx, `SELECT state, count(*) FROM publications GROUP BY state`)
	if err != nil {
		return t, err
	}
	defer rows.Close()
	t.publications = map[string]uint64{}
	for rows.Next() {
		var state string
		var count uint64
		if err := rows.Scan(&state, &count); err != nil {
			return t, err
		}
		t.publications[state] = count
	}
	return t, rows.Err()
}

// backupPrefix begins the name of the folder of a copy under way.
const backupPrefix = ".meshddns-backup-"

// Backup makes a consistent copy of the live database beside it and opens it.
// The copy has no name any more, so it is gone when it is closed.
func (s *store) Backup(ctx context.Context) (_ *os.File, err error) {
	dir, err := os.MkdirTemp(filepath.Dir(s.path), backupPrefix)
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

// removeLeftBackups deletes the copies that an end by SIGKILL left behind.
func (s *store) removeLeftBackups() error {
	entries, err := os.ReadDir(filepath.Dir(s.path))
	for _, entry := range entries {
		if strings.HasPrefix(entry.Name(), backupPrefix) {
			err = errors.Join(err, os.RemoveAll(filepath.Join(filepath.Dir(s.path), entry.Name())))
		}
	}
	return err
}
