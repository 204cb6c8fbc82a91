// Package source reads the source of the program and holds it to rules.
package source

import (
	"database/sql"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"meshddns/internal/mesh"
)

// root is the folder of the program.
const root = "../.."

// statement is a text of SQL in the program's source.
type statement struct{ function, text string }

// sourceReader finds the SQL in a source file: what its string expressions can be.
type sourceReader struct {
	constants map[string]string   // and what is known of other packages
	results   map[string][]string // what functions give, the first of it
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
	r := sourceReader{
		constants: map[string]string{"mesh.Label": mesh.Label, "mesh.Describing": mesh.Describing, "describing": fmt.Sprint(len(mesh.Describing))},
		results:   map[string][]string{},
	}
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
	for _, d := range file.Decls { // so that the others know what these give
		if f, ok := d.(*ast.FuncDecl); ok {
			r.function(f)
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
			switch n := n.(type) {
			case *ast.ReturnStmt:
				if len(n.Results) > 0 {
					r.results[f.Name.Name] = r.texts(n.Results[0])
				}
			case *ast.AssignStmt:
				for i, left := range n.Lhs[:len(n.Rhs)] {
					if name, ok := left.(*ast.Ident); ok {
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
	case *ast.SelectorExpr:
		if text, ok := r.constants[types.ExprString(e)]; ok {
			return []string{text}
		}
	case *ast.CallExpr:
		if method, ok := e.Fun.(*ast.SelectorExpr); ok {
			return r.results[method.Sel.Name]
		}
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
	"services", "s", "usages", "u", "bindings", "b", "names", "places", "p", "zone_records", "zone_serials", "accounts", "a", "marks",
}

// No statement walks through a table that grows, none sorts, and none is compiled each time
// that it runs.
func TestQueryPlans(t *testing.T) {
	db := newDatabase(t)
	walks, peeks := regexp.MustCompile(`SCAN (\w+)`), regexp.MustCompile(`LIMIT \?\d*\s*(\)|$)`)
	statements := allStatements(t)
	for _, q := range statements {
		if peeks.MatchString(q.text) {
			t.Errorf("%s: the plan depends on the number that LIMIT gets: want ? + 0 in\n%s", q.function, q.text)
		}
		for _, step := range explain(t, db, q.text) {
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

// TestStateIsSearched wants the usages of one state to be found by their index.
func TestStateIsSearched(t *testing.T) {
	db := newDatabase(t)
	found := 0
	for _, q := range allStatements(t) {
		if !strings.Contains(q.text, " u.state = ? AND u.seq > ?") {
			continue
		}
		found++
		plan := strings.Join(explain(t, db, q.text), "; ")
		if want := "SEARCH u USING INDEX usages_by_state (state=? AND seq>?)"; !strings.Contains(plan, want) {
			t.Errorf("%s: %s, want %s", q.function, plan, want)
		}
	}
	if found < 2 {
		t.Errorf("%d statements look for a state", found)
	}
}

// allStatements gives the statements of the program's queries.
func allStatements(t *testing.T) (all []statement) {
	t.Helper()
	for _, path := range []string{"store.go", "internal/builtin/table.go", "internal/ledger/ledger.go", "internal/ledger/places.go", "internal/ledger/state.go",
		"internal/page/samples.go"} {
		all = append(all, readStatements(t, filepath.Join(root, path))...)
	}
	return all
}

// newDatabase makes a database with today's tables.
func newDatabase(t *testing.T) *sql.DB {
	t.Helper()
	schema, err := os.ReadFile(filepath.Join(root, "schema.sql"))
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", "file:"+filepath.Join(t.TempDir(), "x.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	if _, err := db.Exec(string(schema)); err != nil {
		t.Fatal(err)
	}
	return db
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
