// Package source reads the source of the program and holds it to rules.
package source

import (
	"cmp"
	"database/sql"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"maps"
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

var beginning = regexp.MustCompile(`^\s*(SELECT|INSERT( OR \w+)? INTO|REPLACE INTO|UPDATE|DELETE FROM|WITH)\s`)

// readStatements gives every statement in the files of a package. A variable stands for each of the texts
// that its function gives it. all are the constants of all packages.
func readStatements(files []*ast.File, all map[string]string) (found []statement) {
	r := sourceReader{constants: maps.Clone(all), results: map[string][]string{}}
	for name, text := range all {
		if own, ok := strings.CutPrefix(name, files[0].Name.Name+"."); ok {
			r.constants[own] = text
		}
	}
	for range 2 { // the first time, so that the functions know what the others give
		found = nil
		for _, file := range files {
			for _, d := range file.Decls {
				if f, ok := d.(*ast.FuncDecl); ok {
					for _, text := range r.function(f) {
						found = append(found, statement{files[0].Name.Name + "." + f.Name.Name, text})
					}
				}
			}
		}
	}
	return found
}

// readConstants adds the texts of a package's constants, by "package.name".
func readConstants(files []*ast.File, all map[string]string) {
	r := sourceReader{constants: maps.Clone(all)}
	for range 3 { // one may be made of one that stands after it
		for _, file := range files {
			for _, d := range file.Decls {
				d, ok := d.(*ast.GenDecl)
				if !ok || d.Tok != token.CONST {
					continue
				}
				for _, spec := range d.Specs {
					for i, value := range spec.(*ast.ValueSpec).Values {
						if texts := r.texts(value); len(texts) == 1 {
							name := spec.(*ast.ValueSpec).Names[i].Name
							r.constants[name], all[file.Name.Name+"."+name] = texts[0], texts[0]
						}
					}
				}
			}
		}
	}
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
							if !slices.Contains(r.variables[name.Name], text) {
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

// narrow is what a statement may walk through: tables with few rows, what a statement has selected before, and lists
// that the program gives.
var narrow = regexp.MustCompile(`^SCAN (appliance|addresses|adopted|totals|notifications|secondaries|page|last|\(subquery-\d+\)|CONSTANT ROW|json_each .*|pragma_\w+ .*|sqlite_schema|sqlite_master)$`)

// permitted are the other walks and sorts, with the reason.
var permitted = map[string]string{
	"builtin.MoveAll: SCAN zone_serials USING INDEX sqlite_autoindex_zone_serials_2": "all zones move, because this host's addresses changed",
	"builtin.Renew: SCAN z": "all zones move, once at the start",
	"builtin.Renew: SCAN zone_serials USING INDEX sqlite_autoindex_zone_serials_2": "the same",
	"builtin.forgetIdle: SCAN z":  "of all zones, once at the start",
	"builtin.readCatalog: SCAN z": "the catalog lists all zones",

	"ledger.Checked: SCAN services USING INDEX services_checked": "the services with a check",
	"ledger.Checked: SCAN usage_options":                         "finds all usages with a check",
	"ledger.Checked: USE TEMP B-TREE FOR ORDER BY":               "the seqs of two selections",
	"check.dead: SCAN dead_endpoints":                            "all dead endpoints, of those that are checked",

	"ledger.Amiss: SCAN amiss":                   "at most 10 000 usages, which it has found by their states",
	"ledger.Amiss: USE TEMP B-TREE FOR ORDER BY": "the same, grouped",

	"events.AddRestored: SCAN events":                "the last row",
	"events.firstKept: SCAN events":                  "counts the rows that are kept, where their seqs leave it open",
	"events.Newest: SCAN events":                     "the last row",
	"events.Page: SCAN events":                       "from a seq on, as many as are asked for; at most all that are kept",
	"events.Page: USE TEMP B-TREE FOR ORDER BY":      "the events of one usage or name, because an index leads to each of its usages",
	"events.query: SCAN events":                      "as Page",
	"events.query: USE TEMP B-TREE FOR ORDER BY":     "as Page",
	"events.LastAbout: USE TEMP B-TREE FOR ORDER BY": "as Page",
	"events.Counts: USE TEMP B-TREE FOR GROUP BY":    "a row for each kind and span",

	"main.Listing: USE TEMP B-TREE FOR ORDER BY": "the usages of one prefix or name",
	"main.Usages: USE TEMP B-TREE FOR ORDER BY":  "the same",

	"lease.Load: SCAN l":                              "all leases with endpoints, once at the start",
	"ledger.standingAt: USE TEMP B-TREE FOR DISTINCT": "the places of a batch of names",
	"ledger.usagesAt: USE TEMP B-TREE FOR ORDER BY":   "the usages of a batch of names",
}

// No statement walks through a table that grows, none sorts, and none is compiled each time
// that it runs. Usages of one state are found by their index.
func TestQueryPlans(t *testing.T) {
	db := newDatabase(t)
	peeks := regexp.MustCompile(`LIMIT \?\d*\s*(\)|$)`)
	statements := allStatements(t)
	used, ofState := map[string]bool{}, 0
	for _, q := range statements {
		if q.function == "sqlite.reseal" { // its tables are variables, and it reads all of them
			continue
		}
		if peeks.MatchString(q.text) {
			t.Errorf("%s: the plan depends on the number that LIMIT gets: want ? + 0 in\n%s", q.function, q.text)
		}
		steps := explain(t, db, q.text)
		if strings.Contains(q.text, " u.state = ?3 AND u.seq > ?1") {
			ofState++
			if plan, want := strings.Join(steps, "; "), "SEARCH u USING INDEX usages_by_state (state=? AND seq>?)"; !strings.Contains(plan, want) {
				t.Errorf("%s: %s, want %s", q.function, plan, want)
			}
		}
		for _, step := range steps {
			what := q.function + ": " + step
			if !strings.Contains(step, "TEMP B-TREE") && (!strings.HasPrefix(step, "SCAN ") || narrow.MatchString(step)) {
				continue
			}
			if used[what] = true; permitted[what] == "" {
				t.Errorf("%s in\n%s", what, q.text)
			}
		}
	}
	for what := range permitted {
		if !used[what] {
			t.Errorf("%s: no statement does it any more", what)
		}
	}
	if len(statements) < 300 || ofState < 2 {
		t.Errorf("only %d statements were found, and %d that look for a state", len(statements), ofState)
	}
}

// allStatements gives the statements of the program's packages. Those of migrations are about older tables.
func allStatements(t *testing.T) (all []statement) {
	t.Helper()
	packages := map[string][]*ast.File{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() && (entry.Name() == "test" || entry.Name() == "testdata" || entry.Name() == "migrations") {
			return cmp.Or(err, fs.SkipDir)
		}
		if entry.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		packages[filepath.Dir(path)] = append(packages[filepath.Dir(path)], file)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	constants := map[string]string{"main.describing": fmt.Sprint(len(mesh.Describing))}
	for range 2 { // one may be made of one of another package
		for _, files := range packages {
			readConstants(files, constants)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(packages)) {
		all = append(all, readStatements(packages[path], constants)...)
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
		t.Errorf("%v in %s", err, query)
		return
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
		t.Errorf("%v in %s", err, query)
		return
	}
	return steps
}
