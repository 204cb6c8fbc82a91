package ledger

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"sort"

	"meshddns/internal/dns"
	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
	"meshddns/internal/rights"
	"meshddns/internal/sqlite"
)

// StatusReleasing is the status of a binding whose usage is deleted once its value is
// withdrawn.
const StatusReleasing = "releasing"

// selectConfigured returns nil if there is no configuration.
func (g *Ledger) selectConfigured(ctx context.Context, q sqlite.Queryer) (*mesh.Configuration, error) {
	c, err := g.SelectConfiguration(ctx, q)
	if errors.Is(err, ErrNoConfiguration) {
		return nil, nil
	}
	return &c, err
}

// snapshot begins a read transaction. Its queries see one state of the database: otherwise
// a row could be deleted before a query reads the row that refers to it.
func (g *Ledger) snapshot(ctx context.Context) (*sql.Tx, error) {
	return g.config.Reader.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
}

// State reads everything that is stored about some names, in one snapshot.
func (g *Ledger) State(ctx context.Context, names []string) (reconcile.State, error) {
	tx, err := g.snapshot(ctx)
	if err != nil {
		return reconcile.State{}, err
	}
	defer tx.Rollback()
	return g.StateIn(ctx, tx, names)
}

// OwnState returns the state of the configuration's own record, "" without a configuration.
func (g *Ledger) OwnState(ctx context.Context) (reconcile.PlaceState, error) {
	_, state, err := g.own(ctx)
	if err != nil || len(state.Names) == 0 {
		return "", err
	}
	return reconcile.OwnState(state, g.config.Addresses()), nil
}

// own reads what is stored about the name of the configuration's own record, no name without a configuration.
func (g *Ledger) own(ctx context.Context) (name string, state reconcile.State, err error) {
	c, err := g.selectConfigured(ctx, g.config.Reader)
	if err != nil || c == nil {
		return "", state, err
	}
	state, err = g.State(ctx, []string{c.RecordName()})
	return c.RecordName(), state, err
}

// Formats reads the records of a usage at its name, in all its formats; none if the usage does not have the name.
func (g *Ledger) Formats(ctx context.Context, name, usage string) ([]reconcile.FormatState, error) {
	state, err := g.State(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	all := reconcile.FormatStates(state, usage, g.config.Addresses())
	if service := rights.Of(ctx).Service; service != "" {
		var shared bool // the endpoints that are left out may be those of another service
		err = g.config.Reader.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM usages WHERE name = ? AND provider_id <> ?)`, name, service).Scan(&shared)
		for i := range all {
			if all[i].Fault = all[i].Fault.For(service); shared {
				all[i].LeftOut = nil
			}
		}
	}
	return all, err
}

// LeftOut reads what the formats of a usage leave out of the endpoints of a slot.
func (g *Ledger) LeftOut(ctx context.Context, name, usage, slot string) ([]reconcile.LeftOut, error) {
	tx, err := g.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback()
	state, err := g.stateIn(ctx, tx, []string{name}, marked)
	if err != nil {
		return nil, err
	}
	return reconcile.LeftOutOf(state, usage, slot, g.config.Addresses()), nil
}

// Challenge reads how far a challenge is, as reconcile.ChallengeOf says.
func (g *Ledger) Challenge(ctx context.Context, name, usage, value string) (reconcile.Challenge, error) {
	state, err := g.State(ctx, []string{name})
	if err != nil {
		return reconcile.Challenge{}, err
	}
	return reconcile.ChallengeOf(state, usage, value, g.config.Addresses()), nil
}

// Listed reads the endpoints of the network that has a name, which may have any form of a domain name; ok is false if its usage has not the
// format "urls".
func (g *Ledger) Listed(ctx context.Context, name string) (endpoints []string, ok bool, err error) {
	state, err := g.State(ctx, []string{dns.Parse(name)})
	if err != nil {
		return nil, false, err
	}
	endpoints, ok = reconcile.Listed(state, g.config.Addresses())
	return endpoints, ok, nil
}

// Totals returns the numbers of 'services' and 'usages', and of records by state: those of usages,
// the configuration's own one, and places in the states 'leftover' and 'withdrawn'; 'paused' is 1 in a paused program.
func (g *Ledger) Totals(ctx context.Context) (map[string]uint64, error) {
	totals := map[string]uint64{}
	_, err := sqlite.Collect(ctx, g.config.Reader, func(row sqlite.Scanner) (count uint64, err error) {
		var what string
		err = row.Scan(&what, &count)
		totals[what] = count
		return count, err
	}, `SELECT what, count FROM totals`)
	for _, state := range reconcile.UsageStates {
		totals["usages"] += totals[string(state)]
	}
	_, own, unread := g.own(ctx)
	if len(own.Names) > 0 {
		totals[string(reconcile.OwnState(own, g.config.Addresses()))]++
	}
	if own.Paused.Code != "" {
		totals["paused"] = 1
	}
	return totals, errors.Join(err, unread)
}

// Conflicts reports whether a record is in conflict, except a tenant's that the rule about owners refuses.
func (g *Ledger) Conflicts(ctx context.Context) (any bool, err error) {
	own, unread := g.OwnState(ctx)
	err = g.config.Reader.QueryRowContext(ctx, `SELECT EXISTS (SELECT 1 FROM usages WHERE state = 'conflict' AND NOT (tenant AND rival <> ''))`).Scan(&any)
	return any || own == reconcile.Conflict, errors.Join(err, unread)
}

// StateIn is State with a caller's transaction.
func (g *Ledger) StateIn(ctx context.Context, q sqlite.Queryer, names []string) (reconcile.State, error) {
	return g.stateIn(ctx, q, names, nil)
}

// marked is the owner name of the record with our mark.
var marked = []string{""}

// stateIn is StateIn. It leaves out the records at other owner names than these, nil being all: a usage
// with many leases has thousands. Where a usage is being released it reads all.
func (g *Ledger) stateIn(ctx context.Context, q sqlite.Queryer, names, owners []string) (state reconcile.State, err error) {
	marks, err := sqlite.Collect(ctx, q, sqlite.Text, `SELECT owner FROM appliance UNION ALL SELECT owner FROM adopted`)
	if err != nil {
		return state, err
	}
	if state.Owner, state.Adopted = marks[0], marks[1:]; len(names) == 0 {
		return state, nil
	}
	l := loader{
		ledger: g, q: q, names: sqlite.TextList(names), at: map[string]int{},
		accounts: map[int64]*reconcile.Account{}, zones: map[string]bool{}, heirs: map[int64]reconcile.Account{},
	}
	for i, name := range names {
		state.Names = append(state.Names, reconcile.Name{Name: name})
		l.at[name] = i
	}
	if l.configured, err = g.selectConfigured(ctx, q); err != nil {
		return state, err
	}
	state.Configured = l.configured != nil
	if state.Configured {
		state.UpsertOnly, state.Paused = l.configured.SyncMode == mesh.UpsertOnly, l.configured.Paused()
	}
	for _, load := range []func(context.Context, []reconcile.Name) error{l.versions, l.usages} {
		if err := load(ctx, state.Names); err != nil {
			return state, err
		}
	}
	l.owners = owners
	for i, n := range state.Names {
		if state.Names[i].Owners = owners; owners == nil || n.Releases() {
			state.Names[i].Owners, l.whole = nil, append(l.whole, n.Name)
		}
	}
	for _, load := range []func(context.Context, []reconcile.Name) error{l.places, l.own} {
		if err := load(ctx, state.Names); err != nil {
			return state, err
		}
	}
	state.Heirs = l.heirs
	return state, g.rival(ctx, q, state.Names)
}

// rival finds the network that has a record in another format at the name of the configuration's own record.
func (g *Ledger) rival(ctx context.Context, q sqlite.Queryer, names []reconcile.Name) error {
	at := slices.IndexFunc(names, func(n reconcile.Name) bool { return n.Own != nil })
	if at < 0 {
		return nil
	}
	beside, err := g.StateIn(ctx, q, reconcile.Beside(names[at].Name))
	if err == nil {
		names[at].Own.Rival = reconcile.BesideOwner(beside, names[at].Name, g.config.Addresses())
	}
	return err
}

// OwnRival returns the name of the configuration's own record, and the network that has it, "" for none.
func (g *Ledger) OwnRival(ctx context.Context) (name, network string, err error) {
	name, state, err := g.own(ctx)
	if err != nil || name == "" {
		return "", "", err
	}
	return name, reconcile.Rival(state.Names[0]), nil
}

// loader reads the parts of a State.
type loader struct {
	ledger     *Ledger
	q          sqlite.Queryer
	names      sqlite.TextList
	at         map[string]int      // index of a name in the list
	configured *mesh.Configuration // nil without a configuration
	owners     sqlite.TextList     // the owner names whose places are read
	whole      sqlite.TextList     // names whose places are all read
	accounts   map[int64]*reconcile.Account
	zones      map[string]bool             // domains of services that are built-in zones
	heirs      map[int64]reconcile.Account // by the id of an account without a user
}

// rows calls read for each row of a query.
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

// account reads an account with its user: the configuration, else the service that uses it
// and was changed last. The built-in server has no key, and so no user.
func (l *loader) account(ctx context.Context, id int64) (*reconcile.Account, error) {
	if a := l.accounts[id]; a != nil {
		return a, nil
	}
	a := &reconcile.Account{ID: id}
	l.accounts[id] = a
	var row string
	var configured bool
	var service sql.Null[string]
	err := l.q.QueryRowContext(ctx, `
		SELECT `+SecretRow+`, provider, endpoint, access_key_id, access_key_secret,
		       EXISTS (SELECT 1 FROM configuration WHERE account = a.id),
		       (SELECT id FROM services WHERE account = a.id ORDER BY updated_at DESC LIMIT 1)
		FROM accounts a WHERE id = ?`, id).Scan(&row, &a.Provider, &a.Endpoint, &a.AccessKeyID, l.ledger.config.Key.Open((*string)(&a.Secret), "accounts", &row, "access_key_secret"), &configured, &service)
	switch {
	case a.Builtin():
	case configured:
		a.UsedBy = mesh.UsedByConfiguration
	case service.Valid:
		a.UsedBy = mesh.UsedByService + service.V
	default:
		a.UsedBy = mesh.UsedByNothing
	}
	return a, err
}

// heir finds the heir of an account without a user: an account in use with another secret
// for the same key id, else the newest such account.
func (l *loader) heir(ctx context.Context, a reconcile.Account) error {
	if _, known := l.heirs[a.ID]; known || a.UsedBy != mesh.UsedByNothing {
		return nil
	}
	l.heirs[a.ID] = reconcile.Account{}
	id, err := sqlite.One[sql.Null[int64]](ctx, l.q, `
		WITH others AS (SELECT id FROM accounts WHERE provider = ? AND endpoint = ? AND access_key_id = ? AND id <> ?)
		SELECT coalesce(
		    (SELECT max(id) FROM others o
		     WHERE EXISTS (SELECT 1 FROM configuration WHERE account = o.id) OR EXISTS (SELECT 1 FROM services WHERE account = o.id)),
		    (SELECT max(id) FROM others))`, a.Provider, a.Endpoint, a.AccessKeyID, a.ID)
	if err != nil || !id.Valid {
		return err
	}
	heir, err := l.account(ctx, id.V)
	l.heirs[a.ID] = *heir
	return err
}

// versions reads the rows of the names. It replaces each name, so it runs first.
func (l *loader) versions(ctx context.Context, names []reconcile.Name) error {
	return l.rows(ctx, `SELECT name, version, pass, coalesce(due, 0), lane, coalesce(look, 0) FROM names WHERE name IN (SELECT value FROM json_each(?))`, func(rows *sql.Rows) error {
		var n reconcile.Name
		var mark, due, look int64
		err := rows.Scan(&n.Name, &n.Version, &mark, &due, &n.Lane, &look)
		n.Pass = parseMark(mark)
		n.Due, n.Look = sqlite.Stamped(due), sqlite.Stamped(look)
		names[l.at[n.Name]] = n
		return err
	}, l.names)
}

// storedUsage is a stored usage.
type storedUsage struct {
	usage     reconcile.Usage
	name      string
	seq       int64
	endpoints sqlite.TextList
}

func scanStoredUsage(row sqlite.Scanner) (u storedUsage, err error) {
	var network mesh.NetworkID
	var status string
	shown := &u.usage.Shown
	err = row.Scan(&u.seq, &u.name, &u.usage.ID, &u.usage.Service, &u.usage.Tenant, &u.endpoints, &network, &status, &shown.State, &shown.Place, &shown.Rival,
		(*sqlite.TextList)(&u.usage.Formats), &u.usage.PeerID)
	u.usage.Network, u.usage.Releasing = network.String(), status == StatusReleasing
	return u, err
}

// usages reads the usages of the names, in the order of their reservation.
func (l *loader) usages(ctx context.Context, names []reconcile.Name) error {
	all, err := sqlite.Collect(ctx, l.q, scanStoredUsage, `
		SELECT u.seq, u.name, u.id, u.provider_id, u.tenant, u.txt_endpoints, b.network_id, b.status, u.state, u.place, u.rival,
		       coalesce(o.formats, '[]'), coalesce(o.peer_id, '')
		FROM usages u JOIN bindings b ON b.seq = u.seq LEFT JOIN usage_options o ON o.usage = u.seq
		WHERE u.name IN (SELECT value FROM json_each(?)) AND u.record_type = 'TXT'`, l.names)
	if err != nil {
		return err
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].seq < all[j].seq })
	if err := l.living(ctx, all); err != nil {
		return err
	}
	services := map[string]*reconcile.Usage{}
	for _, u := range all {
		of := services[u.usage.Service]
		if of == nil {
			if of, err = l.service(ctx, u.usage.Service); err != nil {
				return err
			}
			services[u.usage.Service] = of
		}
		u.usage.Account, u.usage.Domain, u.usage.Endpoints = of.Account, of.Domain, of.Endpoints
		if len(u.endpoints) > 0 {
			u.usage.Endpoints = u.endpoints
		}
		if len(u.usage.Formats) == 0 {
			u.usage.Formats = of.Formats
		}
		n := &names[l.at[u.name]]
		n.Usages = append(n.Usages, u.usage)
		if of.Account != nil && of.Account.Builtin() {
			if n.Ground.Program = l.ledger.config.Program; len(n.Ground.Program.Hosts) == 0 && l.zones[of.Domain] {
				n.Ground.Program.Hosts = []string{"ns." + of.Domain}
			}
		}
	}
	return l.grounds(ctx, names)
}

// grounds reads which other domains and records are at or below the names.
func (l *loader) grounds(ctx context.Context, names []reconcile.Name) error {
	for i := range names {
		if c := l.configured; c != nil {
			names[i].Ground.Own = c.RecordName()
			if dns.Within(c.Zone, dns.Parent(names[i].Name)) {
				names[i].Ground.Inner = c.Zone
			}
		}
	}
	inner, err := Inner(ctx, l.q, l.names)
	for name, zone := range inner {
		names[l.at[name]].Ground.Inner = zone
	}
	return err
}

// living reads what nodes have renewed of the endpoints of usages, which challenges they have put, and which endpoints are dead.
func (l *loader) living(ctx context.Context, usages []storedUsage) error {
	at := map[int64]*reconcile.Usage{}
	var seqs []int64
	for i := range usages {
		at[usages[i].seq] = &usages[i].usage
		seqs = append(seqs, usages[i].seq)
	}
	if len(seqs) == 0 {
		return nil
	}
	err := l.rows(ctx, `
		SELECT usage, slot, peer_id, endpoints FROM leases
		WHERE usage IN (SELECT value FROM json_each(?)) AND endpoints <> '[]' ORDER BY usage, slot`, func(rows *sql.Rows) error {
		var usage int64
		var e mesh.Endpoint
		var endpoints sqlite.TextList
		err := rows.Scan(&usage, &e.Slot, &e.PeerID, &endpoints)
		for _, e.Text = range endpoints {
			at[usage].Leased = append(at[usage].Leased, e)
		}
		return err
	}, string(events.JSON(seqs)))
	if err != nil {
		return err
	}
	err = l.rows(ctx, `SELECT usage, value FROM challenges WHERE usage IN (SELECT value FROM json_each(?))`, func(rows *sql.Rows) error {
		var usage int64
		var value string
		err := rows.Scan(&usage, &value)
		at[usage].Challenges = append(at[usage].Challenges, value)
		return err
	}, string(events.JSON(seqs)))
	if err != nil {
		return err
	}
	return l.rows(ctx, `SELECT usage, endpoint FROM dead_endpoints WHERE usage IN (SELECT value FROM json_each(?))`, func(rows *sql.Rows) error {
		var usage int64
		var endpoint string
		err := rows.Scan(&usage, &endpoint)
		at[usage].Dead = append(at[usage].Dead, endpoint)
		return err
	}, string(events.JSON(seqs)))
}

// service reads the part of a usage that comes from its service. The account is the
// service's own, else the configuration's if the service's domain is, or lies below, the
// configuration's domain.
func (l *loader) service(ctx context.Context, id string) (*reconcile.Usage, error) {
	var u reconcile.Usage
	var account sql.Null[int64]
	var endpoints sqlite.TextList
	var zone bool
	err := l.q.QueryRowContext(ctx, `
		SELECT zone, account, txt_endpoints, formats, EXISTS (SELECT 1 FROM services WHERE zone = s.zone AND provider = 'builtin')
		FROM services s WHERE id = ?`, id).Scan(&u.Domain, &account, &endpoints, (*sqlite.TextList)(&u.Formats), &zone)
	if err != nil {
		return &u, sqlite.Absent(err, nil) // a usage of an old database may lack its service, and then has no account
	}
	l.zones[u.Domain] = zone || l.configured != nil && l.configured.Provider == msg.Builtin && l.configured.Zone == u.Domain
	own := account.Valid
	u.Formats, _ = mesh.ParseFormats(u.Formats) // the normal form of what the service was registered with
	if c := l.configured; c != nil {
		if !own && dns.Within(u.Domain, c.Zone) {
			account = sql.Null[int64]{V: c.AccountID, Valid: true}
		}
		if len(endpoints) == 0 {
			endpoints = c.Endpoints
		}
	}
	u.Endpoints = endpoints
	if !account.Valid {
		return &u, nil
	}
	shared, err := l.account(ctx, account.V)
	used := *shared
	if own && used.UsedBy != "" {
		used.UsedBy = mesh.UsedByService + id
	}
	u.Account = &used
	return &u, err
}

// places reads the places of the names, with their accounts and heirs.
func (l *loader) places(ctx context.Context, names []reconcile.Name) error {
	all, err := sqlite.Collect(ctx, l.q, scanPlace, selectPlaces+` WHERE name IN (SELECT value FROM json_each(?)) AND
		(owner IN (SELECT value FROM json_each(?)) OR name IN (SELECT value FROM json_each(?)))`, l.names, l.owners, l.whole)
	if err != nil {
		return err
	}
	for _, p := range all {
		account, err := l.account(ctx, p.Place.Account.ID)
		if err != nil {
			return err
		}
		p.Place.Account = *account
		if err := l.heir(ctx, *account); err != nil {
			return err
		}
		if now := l.ledger.config.Now(); p.Place.LookAt.After(now.Add(reconcile.SecondLook)) { // the clock was set back
			p.Place.LookAt = now
		}
		n := &names[l.at[p.Place.Name]]
		n.Places = append(n.Places, p.Place)
	}
	return nil
}

// own sets the configuration's own record at its name.
func (l *loader) own(ctx context.Context, names []reconcile.Name) error {
	if l.configured == nil {
		return nil
	}
	i, ok := l.at[l.configured.RecordName()]
	if !ok {
		return nil
	}
	account, err := l.account(ctx, l.configured.AccountID)
	names[i].Own = &reconcile.Own{Account: *account, Domain: l.configured.Zone, Endpoints: l.configured.Endpoints}
	return err
}
