package main

import (
	"database/sql"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"meshddns/sqlrow"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"meshddns/provider"
	"meshddns/reconcile"
)

// statement is a text of SQL in the program's source.
type statement struct{ function, text string }

// sourceReader finds the SQL in a source file: what its string expressions can be.
type sourceReader struct {
	constants map[string]string
	variables map[string][]string // of the function that is being read
}

var beginning = regexp.MustCompile(`^\s*(SELECT|INSERT|UPDATE|DELETE|WITH)\s`)

// readStatements gives every statement in a file. A variable stands for each of
// the texts that its function gives it.
func readStatements(t *testing.T, path string) (all []statement) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	r := sourceReader{constants: map[string]string{}}
	for _, d := range file.Decls {
		if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.CONST {
			for _, spec := range d.Specs {
				for i, value := range spec.(*ast.ValueSpec).Values {
					if texts := r.texts(value); len(texts) == 1 {
						r.constants[spec.(*ast.ValueSpec).Names[i].Name] = texts[0]
					}
				}
			}
		}
	}
	for _, d := range file.Decls {
		if f, ok := d.(*ast.FuncDecl); ok {
			for _, text := range r.function(f) {
				all = append(all, statement{f.Name.Name, text})
			}
		}
	}
	return all
}

func (r *sourceReader) function(f *ast.FuncDecl) (found []string) {
	r.variables = map[string][]string{}
	for range 2 { // the second time with what a variable is by then
		ast.Inspect(f, func(n ast.Node) bool {
			if n, ok := n.(*ast.AssignStmt); ok {
				for i, left := range n.Lhs {
					if name, ok := left.(*ast.Ident); ok && len(n.Lhs) == len(n.Rhs) {
						for _, text := range r.texts(n.Rhs[i]) {
							if !slices.Contains(r.variables[name.Name], text) && strings.Count(text, " AND u.provider_id") < 2 {
								r.variables[name.Name] = append(r.variables[name.Name], text)
							}
						}
					}
				}
			}
			return true
		})
	}
	ast.Inspect(f, func(n ast.Node) bool {
		e, ok := n.(ast.Expr)
		if !ok {
			return true
		}
		texts := r.texts(e)
		for _, text := range texts {
			for part := range strings.SplitSeq(text, ";") {
				if beginning.MatchString(part) && !slices.Contains(found, part) {
					found = append(found, part)
				}
			}
		}
		return len(texts) == 0
	})
	return found
}

// texts gives what a string expression can be, nothing where that is not known.
func (r *sourceReader) texts(e ast.Expr) (texts []string) {
	switch e := e.(type) {
	case *ast.BasicLit:
		if text, err := strconv.Unquote(e.Value); err == nil && e.Kind == token.STRING {
			return []string{text}
		}
	case *ast.Ident:
		if text, ok := r.constants[e.Name]; ok {
			return []string{text}
		}
		return r.variables[e.Name]
	case *ast.BinaryExpr:
		if e.Op != token.ADD {
			return nil
		}
		for _, left := range r.texts(e.X) {
			for _, right := range r.texts(e.Y) {
				texts = append(texts, left+right)
			}
		}
	}
	return texts
}

// growing are the tables that have a row for each of something, by the names
// that they have in the statements.
var growing = []string{
	"services", "s", "usages", "u", "bindings", "b", "names", "places", "p", "zone_records", "accounts", "a", "marks",
}

// migrating are the functions whose statements run once in the life of a file.
var migrating = []string{"create", "addConfigurationZone", "makePlaces"}

// No statement walks through a table that grows, and none sorts.
func TestQueryPlans(t *testing.T) {
	s := mustOpen(t, filepath.Join(t.TempDir(), "meshddns.db"))
	walks := regexp.MustCompile(`SCAN (\w+)`)
	var statements []statement
	for _, path := range []string{"store.go", "ledger/ledger.go", "ledger/places.go", "ledger/state.go"} {
		statements = append(statements, readStatements(t, path)...)
	}
	for _, q := range statements {
		if slices.Contains(migrating, q.function) {
			continue
		}
		for _, step := range explain(t, s.writer, q.text) {
			table := walks.FindStringSubmatch(step)
			if strings.Contains(step, "TEMP B-TREE") || table != nil && slices.Contains(growing, table[1]) {
				t.Errorf("%s: %s in\n%s", q.function, step, q.text)
			}
		}
	}
	if len(statements) < 80 {
		t.Errorf("only %d statements were found", len(statements))
	}
}

// explain gives the steps of a query's plan.
func explain(t *testing.T, db *sql.DB, query string) (steps []string) {
	t.Helper()
	rows, err := db.Query("EXPLAIN QUERY PLAN "+query, make([]any, 20)...)
	if err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	defer rows.Close()
	for rows.Next() {
		var id, parent, unused int
		var step string
		if err := rows.Scan(&id, &parent, &unused, &step); err != nil {
			t.Fatal(err)
		}
		steps = append(steps, step)
	}
	if err := rows.Err(); err != nil {
		t.Fatalf("%v in %s", err, query)
	}
	return steps
}

// What is shown as a total is what counting gives, whatever was called.
func TestTotalsAreCounts(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 1))
	s := filledStore(t)
	ctx := t.Context()
	for i := range 3 {
		if err := s.CreateService(ctx, service{ID: fmt.Sprint("s", i), Config: `{"domain":"s.example","provider":"builtin"}`}); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PutConfiguration(ctx, configuration{Provider: "builtin", Domain: "example.com", TXTRecordName: "_txt", Enabled: true}, false); err != nil {
		t.Fatal(err)
	}
	calls := []func() error{
		func() error {
			u := custom(fmt.Sprint("p", random.IntN(40)), sqlrow.NetworkID(random.Uint64()))
			u.ServiceID = []string{"svc", "s0", "s1", "gone"}[random.IntN(4)]
			_, err := s.CreateUsage(ctx, u)
			return err
		},
		func() error {
			all, err := s.Usages(ctx, usageFilter{after: int64(random.IntN(40))}, 1)
			if err != nil || len(all) == 0 {
				return err
			}
			_, err = s.ReleaseUsage(ctx, all[0].ID, random.IntN(2) == 0)
			return err
		},
		func() error { return s.DeleteService(ctx, fmt.Sprint("s", random.IntN(4))) },
		func() error {
			return s.PutService(ctx, fmt.Sprint("s", random.IntN(4)), func(service) (service, error) {
				return service{Name: "x", Config: `{"domain":"s.example"}`}, nil
			})
		},
		func() error { return settleRandomly(t, s, random) },
		func() error {
			all, err := s.ledger.Leftovers(ctx, 0, 1)
			if err != nil || len(all) == 0 {
				return err
			}
			return s.ledger.ForgetLeftover(ctx, all[0].Place.ID)
		},
	}
	for range 1500 {
		calls[random.IntN(len(calls))]() // many are refused, and leave the counts as they are
	}
	checkTotals(t, s)
}

// settleRandomly brings the place of a name into another state, or ends it.
func settleRandomly(t *testing.T, s *store, random *rand.Rand) error {
	all, err := s.Usages(t.Context(), usageFilter{after: int64(random.IntN(40))}, 1)
	if err != nil || len(all) == 0 {
		return err
	}
	name := all[0].Name
	state, err := s.ledger.State(t.Context(), []string{name})
	if err != nil || len(state.Names[0].Usages) == 0 || state.Names[0].Usages[0].Account == nil {
		return err
	}
	p := reconcile.Place{Name: name, Account: *state.Names[0].Usages[0].Account}
	if stored := state.Names[0].Places; len(stored) > 0 {
		p = stored[0]
	}
	if p.ID != 0 && random.IntN(4) == 0 {
		return s.ledger.Settle(t.Context(), reconcile.Settlement{Ended: []reconcile.Place{p}})
	}
	p.State, p.Standing = reconcile.PlaceStates[random.IntN(len(reconcile.PlaceStates))], "v=mesh1 o=x"
	return s.ledger.Settle(t.Context(), reconcile.Settlement{Places: []reconcile.Place{p}})
}

func checkTotals(t *testing.T, s *store) {
	t.Helper()
	totals, err := s.Totals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	count := map[string]string{"services": `SELECT count(*) FROM services`, "usages": `SELECT count(*) FROM usages`}
	for _, state := range reconcile.PlaceStates {
		count[state] = `SELECT count(*) FROM places WHERE state = '` + state + `'`
	}
	seen := 0
	for what, query := range count {
		got := queryText(t, s.reader, query)[0]
		if got != fmt.Sprint(totals[what]) {
			t.Errorf("total of %s: %d, there are %s", what, totals[what], got)
		}
		if got != "0" {
			seen++
		}
	}
	if seen < 6 {
		t.Errorf("only %d kinds have rows: the test has come to little", seen)
	}
	for _, line := range queryText(t, s.reader, `SELECT id, usage_count, (SELECT count(*) FROM usages WHERE provider_id = services.id) FROM services`) {
		if words := strings.Split(line, " | "); words[1] != words[2] {
			t.Errorf("usages of a service: %s", line)
		}
	}
}

// A key goes when nothing needs it any more, and stays as long as a value stands
// that it was published with.
func TestKeysOfAccounts(t *testing.T) {
	s := filledStore(t)
	ctx := t.Context()
	put := func(key string) {
		t.Helper()
		c := configuration{Provider: "alidns", AccessKeyID: key, Secret: provider.Secret("secret of " + key), Domain: "example.com", TXTRecordName: "_txt"}
		if err := s.PutConfiguration(ctx, c, false); err != nil {
			t.Fatal(err)
		}
	}
	check := func(want ...string) {
		t.Helper()
		got := queryText(t, s.reader, `SELECT access_key_id, access_key_secret FROM accounts ORDER BY access_key_id`)
		for i, key := range want {
			want[i] = key + " | secret of " + key
		}
		if !slices.Equal(got, want) {
			t.Errorf("accounts %q, want %q", got, want)
		}
	}
	put("one")
	put("two")
	check("two")
	state, err := s.ledger.State(ctx, []string{"_txt.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	p := reconcile.Place{Name: "_txt.example.com", Account: state.Names[0].Own.Account, Zone: "example.com", State: reconcile.Published, Standing: "v"}
	if err := s.ledger.Settle(ctx, reconcile.Settlement{Places: []reconcile.Place{p}}); err != nil {
		t.Fatal(err)
	}
	put("three")
	check("three", "two")
	if err := s.CreateService(ctx, service{ID: "own", Config: `{"domain":"o.example","provider":"alidns","access_key_id":"four","access_key_secret":"secret of four"}`}); err != nil {
		t.Fatal(err)
	}
	check("four", "three", "two")
	if err := s.DeleteService(ctx, "own"); err != nil {
		t.Fatal(err)
	}
	check("three", "two")
	if state, err = s.ledger.State(ctx, []string{"_txt.example.com"}); err != nil || len(state.Names[0].Places) != 1 {
		t.Fatal(state, err)
	}
	if err := s.ledger.Settle(ctx, reconcile.Settlement{Ended: state.Names[0].Places}); err != nil {
		t.Fatal(err)
	}
	check("three")
}
