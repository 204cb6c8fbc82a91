// The rows of usages with their bindings and options, as clients, checks and the status page read them.

package ledger

import (
	"context"
	"database/sql"
	"fmt"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/rights"
	"meshddns/internal/sqlite"
)

// ErrNoUsage is the error for a usage that is not there.
const ErrNoUsage = sqlite.Refusal(msg.UnknownUsage)

// PublishColumns are the columns of mesh.Publishing for a usage u with binding b, whose state is
// about the place p: attempts, state, the standing value of its network, fault, time. A change that waits in
// LaneLater is a fault with the time until which it waits, and what waits in a paused program has mesh.Configuration.Paused.
const PublishColumns = `
	coalesce(p.attempts, 0), u.state,
	CASE WHEN u.state = 'published' THEN coalesce(p.standing, '') WHEN u.rival <> '' THEN ''
	     WHEN p.standing LIKE '% n=' || printf('%u', b.network_id) || ' %' THEN p.standing
	     ELSE coalesce((SELECT standing FROM places WHERE name = u.name AND standing LIKE '% n=' || printf('%u', b.network_id) || ' %' LIMIT 1), '') END,` + faultColumns

const faultColumns = `
	CASE WHEN u.rival <> '' THEN 'network_conflict' WHEN coalesce(p.code, '') <> '' THEN p.code
	     WHEN u.state IN ('pending', 'withdrawing') AND (` + pausedDetail + `) > '' THEN 'paused'
	     WHEN u.state = 'pending' THEN iif(EXISTS (` + waitingChange + `), 'writes_used_up', '') WHEN u.state <> 'none' THEN ''
	     WHEN EXISTS (SELECT 1 FROM configuration WHERE id = 1) THEN 'no_provider' ELSE 'unknown_configuration' END,
	CASE WHEN u.rival <> '' THEN u.rival WHEN coalesce(p.code, '') <> '' THEN p.detail
	     WHEN u.state IN ('pending', 'withdrawing') THEN coalesce((` + pausedDetail + `), (` + waitingChange + `), '') ELSE '' END,
	coalesce(p.key_of, ''), coalesce(p.at, '')`

const waitingChange = `SELECT strftime('%Y-%m-%dT%H:%M:%SZ', due / 1000, 'unixepoch') FROM names WHERE name = u.name AND lane = 'later' AND due > 0`

// pausedDetail is the detail of mesh.Configuration.Paused, NULL for none. A release is a person's order, for which only enabled
// counts. SQLite runs its subqueries once, because they do not depend on the row.
const pausedDetail = `CASE WHEN (SELECT enabled = 0 FROM configuration WHERE id = 1) THEN '` + mesh.PausedOff + `'
	     WHEN u.state = 'pending' AND (SELECT sync_mode NOT IN ('auto', 'upsert-only') FROM configuration WHERE id = 1) THEN '` + mesh.PausedManual + `' END`

// SelectUsages reads usages u for ScanUsage, with their bindings b.
const SelectUsages = `
	SELECT u.seq, u.id, u.provider_id, u.tenant, u.prefix_mode, u.record_prefix, u.record_type, u.description, u.is_exclusive,
	       u.txt_endpoints, u.created_at, u.name, b.network_id, coalesce(b.status, ''), s.name, s.domain,
	       coalesce(o.formats, '[]'), coalesce(o.checking, ''), coalesce(o.peer_id, ''), ` + PublishColumns + `
	FROM usages u
	LEFT JOIN bindings b ON b.seq = u.seq
	LEFT JOIN services s ON s.id = u.provider_id
	LEFT JOIN places p ON p.id = u.place
	LEFT JOIN usage_options o ON o.usage = u.seq`

// ScanUsage scans a row of SelectUsages, or returns ErrNoUsage.
func ScanUsage(row sqlite.Scanner) (u mesh.Usage, err error) {
	p := &u.Publish
	err = row.Scan(&u.Seq, &u.ID, &u.ServiceID, &u.Tenant, &u.Mode, &u.Prefix, &u.RecordType, &u.Description, &u.Exclusive,
		(*sqlite.TextList)(&u.Endpoints), &u.CreatedAt, &u.Name, &u.Network, &u.Status, &u.ServiceName, &u.Domain,
		(*sqlite.TextList)(&u.Options.Formats), (*[]byte)(&u.Options.Check), &u.Options.PeerID,
		&p.Attempts, &p.State, &p.Value, &p.Fault.Code, &p.Fault.Detail, &p.Fault.Key, &p.At)
	return u, sqlite.Absent(err, ErrNoUsage)
}

// InsertUsage stores a usage with its binding and options, and returns its seq; 0 if its service has the custom
// prefix already.
func InsertUsage(ctx context.Context, tx *sql.Tx, u mesh.Usage, bindingID string) (seq int64, err error) {
	inserted, err := tx.ExecContext(ctx, `
		INSERT INTO usages (id, provider_id, tenant, usage_type, prefix_mode, record_prefix, record_type, description, is_exclusive, txt_endpoints, name, created_at, state, rival)
		VALUES (?, ?, ?, 'mesh_sync', ?, ?, 'TXT', ?, 1, ?, ?, ?, ?, ?)
		ON CONFLICT (name, provider_id, iif(substr(record_prefix, 1, 5) = '_mesh' COLLATE NOCASE, id, '')) DO NOTHING`,
		u.ID, u.ServiceID, u.Tenant, u.Mode, u.Prefix, u.Description, sqlite.TextList(u.Endpoints), u.Name, u.CreatedAt, u.Publish.State, u.Rival)
	if err != nil {
		return 0, fmt.Errorf("insert usage: %w", err)
	}
	if count, err := inserted.RowsAffected(); err != nil || count == 0 {
		return 0, err
	}
	if seq, err = inserted.LastInsertId(); err != nil {
		return 0, fmt.Errorf("insert usage: %w", err)
	}
	_, err = tx.ExecContext(ctx, `INSERT INTO bindings (seq, id, network_id, usage_id, provider_id, status) VALUES (?, ?, ?, ?, ?, ?)`,
		seq, bindingID, u.Network, u.ID, u.ServiceID, mesh.Active)
	if err != nil {
		return 0, fmt.Errorf("insert binding: %w", err)
	}
	if u.Options.Equal(mesh.Options{}) { // most usages have none
		return seq, nil
	}
	return seq, saveOptions(ctx, tx, seq, u.Options)
}

// UpdateUsage stores the members of a usage that clients change.
func UpdateUsage(ctx context.Context, tx *sql.Tx, u mesh.Usage) error {
	_, err := tx.ExecContext(ctx, `UPDATE usages SET txt_endpoints = ?, description = ? WHERE seq = ?`, sqlite.TextList(u.Endpoints), u.Description, u.Seq)
	if err != nil {
		return err
	}
	return saveOptions(ctx, tx, u.Seq, u.Options)
}

// saveOptions stores the options of a usage. Without any, the usage has no row.
func saveOptions(ctx context.Context, tx *sql.Tx, usage int64, o mesh.Options) error {
	if o.Equal(mesh.Options{}) {
		_, err := tx.ExecContext(ctx, `DELETE FROM usage_options WHERE usage = ?`, usage)
		return err
	}
	_, err := tx.ExecContext(ctx, `INSERT OR REPLACE INTO usage_options (usage, formats, checking, peer_id) VALUES (?, ?, ?, ?)`,
		usage, sqlite.TextList(o.Formats), string(o.Check), o.PeerID)
	return err
}

// Title returns the title of a new usage, and its reason, as reconcile.TitleOf does. alone says that neither another usage nor
// the configuration has the name, P, or a name below P.
func (g *Ledger) Title(ctx context.Context, tx *sql.Tx, u mesh.Usage, alone bool) (title mesh.Title, reason string, err error) {
	inner, err := Inner(ctx, tx, []string{u.Name})
	if err != nil || alone && len(inner) == 0 {
		return mesh.Owned, "", err
	}
	state, err := g.stateIn(ctx, tx, []string{u.Name}, marked)
	if err != nil {
		return mesh.Owned, "", err
	}
	title, reason = reconcile.TitleOf(state.Names[0], u.ID)
	return title, reason, nil
}

// PrefixHolder returns the network that has the usage's prefix in its service. It is not valid if
// that usage has no binding.
func PrefixHolder(ctx context.Context, tx *sql.Tx, u mesh.Usage) (network sql.Null[mesh.NetworkID], err error) {
	err = tx.QueryRowContext(ctx, `
		SELECT b.network_id FROM usages u JOIN bindings b ON b.seq = u.seq
		WHERE u.name = ? AND u.provider_id = ? LIMIT 1`, u.Name, u.ServiceID).Scan(&network)
	return network, sqlite.Absent(err, nil)
}

// SelectUsage reads one usage, or returns ErrNoUsage, also if the caller of ctx may not see its service.
func SelectUsage(ctx context.Context, q sqlite.Queryer, id string) (mesh.Usage, error) {
	u, err := ScanUsage(q.QueryRowContext(ctx, SelectUsages+` WHERE u.id = ? AND u.record_type = 'TXT'`, id))
	if _, permitted := rights.Narrow(ctx, u.ServiceID); !permitted {
		return mesh.Usage{}, ErrNoUsage
	}
	u.Publish.Fault = u.Publish.Fault.For(rights.Of(ctx).Service)
	return u, err
}

// Found reads at most limit usages after a seq that a search is about, in the order of their reservation. A prefix is
// looked for below the zones of the first thousand services.
func (g *Ledger) Found(ctx context.Context, s mesh.Search, after int64, limit int) ([]mesh.Usage, error) {
	return sqlite.Collect(ctx, g.config.Reader, ScanUsage, SelectUsages+`
		WHERE u.seq IN (
		    SELECT seq FROM usages WHERE name IN (SELECT value FROM json_each(?1))
		    UNION ALL SELECT seq FROM usages WHERE name IN (
		        SELECT '_mesh.' || ?2 || '.' || zone FROM services WHERE ?2 <> '' AND zone > '' ORDER BY zone LIMIT 1000)
		    UNION ALL SELECT seq FROM bindings WHERE network_id = ?3 AND seq > ?4)
		AND u.seq > ?4 AND u.record_type = 'TXT' AND (?5 = '' OR +u.state = ?5) AND (?6 = '' OR +u.provider_id = ?6)
		ORDER BY u.seq LIMIT ?7 + 0`, sqlite.TextList(s.Names), s.Prefix, s.Network, after, s.State, s.Service, limit)
}

const (
	// AmissRead is the greatest number of usages that Amiss reads.
	AmissRead  = 10_000
	amissNamed = 5 // names of each group
)

// Amiss reads the usages that are not as they should be, grouped by zone and reason, the largest groups first: at most
// limit groups. It leaves out what waits in a paused program. total is the number of these usages; more means that there
// may be more, because AmissRead usages were read.
func (g *Ledger) Amiss(ctx context.Context, limit int) (groups []mesh.AmissGroup, total int, more bool, err error) {
	rows, err := sqlite.Collect(ctx, g.config.Reader, func(row sqlite.Scanner) (a mesh.AmissGroup, err error) {
		var u mesh.Usage
		err = row.Scan(&a.Zone, &a.Provider, &a.Bad, &a.Fault.Code, &a.Fault.Detail, &a.Fault.Key, &a.Count, &total, &more, &u.ID, &u.Name, &u.Publish.State)
		a.First = []mesh.Usage{u}
		return a, err
	}, `
		WITH amiss (seq, id, name, state, bad, zone, provider, code, detail, key_of, since) AS MATERIALIZED (
		    SELECT u.seq, u.id, u.name, u.state, u.state IN ('conflict', 'failed', 'none'), coalesce(s.zone, ''), coalesce(a.provider, ''), `+faultColumns+`
		    FROM usages u
		    LEFT JOIN services s ON s.id = u.provider_id
		    LEFT JOIN places p ON p.id = u.place
		    LEFT JOIN accounts a ON a.id = p.account
		    WHERE u.state IN ('conflict', 'failed', 'none', 'pending', 'withdrawing') AND u.record_type = 'TXT' LIMIT ?1 + 0)
		SELECT zone, provider, worst, code, iif(varied, '', detail), key_of, number, total, more, id, name, state FROM (
		    SELECT *, max(bad) OVER g AS worst, min(detail) OVER g <> max(detail) OVER g AS varied,
		           count(*) OVER g AS number, row_number() OVER g AS at, (SELECT count(*) FROM amiss WHERE bad OR code NOT IN ('', 'paused')) AS total,
		           (SELECT count(*) >= ?1 FROM amiss) AS more
		    FROM amiss WHERE bad OR code NOT IN ('', 'paused')
		    WINDOW g AS (PARTITION BY zone, provider, code ORDER BY seq ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING))
		WHERE at <= ?2 ORDER BY worst DESC, number DESC, zone, provider, code, at LIMIT ?3 + 0`, AmissRead, amissNamed, limit*amissNamed)
	for _, r := range rows {
		if n := len(groups); n > 0 && groups[n-1].Zone == r.Zone && groups[n-1].Provider == r.Provider && groups[n-1].Fault.Code == r.Fault.Code {
			groups[n-1].First = append(groups[n-1].First, r.First...)
		} else {
			groups = append(groups, r)
		}
	}
	return groups[:min(len(groups), limit)], total, more, err
}

// Checked reads at most limit usages with a check of their own or of their service, which is in their options.
func (g *Ledger) Checked(ctx context.Context, limit int) ([]mesh.Usage, error) {
	return sqlite.Collect(ctx, g.config.Reader, scanChecked, `
		SELECT u.seq, u.id, u.name, u.provider_id, b.network_id, coalesce(nullif(o.checking, ''), s.checking)
		FROM usages u JOIN bindings b ON b.seq = u.seq
		LEFT JOIN usage_options o ON o.usage = u.seq LEFT JOIN services s ON s.id = u.provider_id
		WHERE b.status = 'active' AND u.record_type = 'TXT' AND
		      u.seq IN (SELECT usage FROM usage_options WHERE checking <> ''
		                UNION SELECT seq FROM usages WHERE provider_id IN (SELECT id FROM services WHERE checking <> ''))
		ORDER BY u.seq LIMIT ? + 0`, limit)
}

// CheckedUsage is Checked for the usage with a seq.
func (g *Ledger) CheckedUsage(ctx context.Context, seq int64) ([]mesh.Usage, error) {
	return sqlite.Collect(ctx, g.config.Reader, scanChecked, `
		SELECT u.seq, u.id, u.name, u.provider_id, b.network_id,
		       coalesce(nullif(o.checking, ''), s.checking) AS settings
		FROM usages u JOIN bindings b ON b.seq = u.seq JOIN services s ON s.id = u.provider_id LEFT JOIN usage_options o ON o.usage = u.seq
		WHERE u.seq = ? AND b.status = 'active' AND u.record_type = 'TXT' AND settings <> ''`, seq)
}

func scanChecked(row sqlite.Scanner) (u mesh.Usage, err error) {
	err = row.Scan(&u.Seq, &u.ID, &u.Name, &u.ServiceID, &u.Network, (*[]byte)(&u.Options.Check))
	return u, err
}
