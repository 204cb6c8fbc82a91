package docs

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"flag"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"meshddns/internal/events"
)

var update = flag.Bool("update", false, "pack openapi.json again")

// TestPacked: the program has the contract as it is in the folder.
func TestPacked(t *testing.T) {
	text, err := os.ReadFile("openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		var out bytes.Buffer
		w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression)
		w.Write(text)
		w.Close()
		if err := os.WriteFile("openapi.json.gz", out.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(OpenAPI(), text) {
		t.Error("openapi.json has changed: go test ./docs -run TestPacked -update")
	}
}

// The codes that the program can give are in the contract, and no other.
func TestCodes(t *testing.T) {
	codes := messages(t)
	var contract struct {
		Components struct {
			Schemas map[string]struct{ Enum []string }
		}
	}
	if err := json.Unmarshal(OpenAPI(), &contract); err != nil {
		t.Fatal(err)
	}
	refusals := append(codes["Refusals of a request."], "conflict", "invalid_name", "name_not_allowed", "paused") // the last four: of a challenge
	faults := slices.Concat(codes["Reasons of a record's fault."], codes["Items of a connection test."])
	for name, want := range map[string][]string{"ErrorCode": refusals, "FaultCode": faults} {
		got := contract.Components.Schemas[name].Enum
		slices.Sort(want)
		if slices.Sort(got); len(want) < 20 || !slices.Equal(got, want) {
			t.Errorf("%s in docs/openapi.json:\n%q\nin the program:\n%q", name, got, want)
		}
	}
}

// The kinds of events are in the contract, and no other.
func TestEvents(t *testing.T) {
	var contract struct {
		Components struct {
			Schemas struct {
				Event struct {
					Properties struct{ Kind struct{ Enum []events.Kind } }
				}
			}
		}
	}
	if err := json.Unmarshal(OpenAPI(), &contract); err != nil {
		t.Fatal(err)
	}
	got, want := contract.Components.Schemas.Event.Properties.Kind.Enum, append(slices.Clone(events.Kinds), events.Gap)
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("docs/openapi.json has the kinds\n%q\nthe program has\n%q", got, want)
	}
}

// messages gives the IDs in package msg, by the first sentence about their block.
func messages(t *testing.T) map[string][]string {
	t.Helper()
	codes := map[string][]string{}
	for _, block := range blocks(t) {
		about, _, _ := strings.Cut(block.Doc.Text(), ".")
		about = strings.Join(strings.Fields(about), " ") + "."
		for _, spec := range block.Specs {
			codes[about] = append(codes[about], value(t, spec.(*ast.ValueSpec)))
		}
	}
	return codes
}

func value(t *testing.T, spec *ast.ValueSpec) string {
	t.Helper()
	text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// blocks gives the constants of package msg's texts.
func blocks(t *testing.T) (all []*ast.GenDecl) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../internal/msg/texts.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	for _, declaration := range file.Decls {
		if block, ok := declaration.(*ast.GenDecl); ok && block.Tok == token.CONST {
			all = append(all, block)
		}
	}
	return all
}

var (
	link    = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading = regexp.MustCompile(`(?m)^#+ +(.+)$`)
	fence   = regexp.MustCompile("(?ms)^```.*?^```$")
	noWord  = regexp.MustCompile(`[^\p{L}\p{N} _-]`)
)

// anchors gives what a page can be linked at, as GitHub makes it of the headings.
func anchors(text string) (all []string) {
	for _, match := range heading.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		all = append(all, strings.ReplaceAll(noWord.ReplaceAllString(strings.ToLower(match[1]), ""), " ", "-"))
	}
	return all
}

// deadLinks gives the links of a page that lead nowhere.
func deadLinks(page, text string) (dead []string) {
	for _, match := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
		path, anchor, _ := strings.Cut(match[1], "#")
		if strings.Contains(path, "://") {
			continue
		}
		target := page
		if path != "" {
			target = filepath.Join(filepath.Dir(page), path)
		}
		there, err := os.Stat(target)
		if err == nil && anchor != "" && !there.IsDir() {
			text, errRead := os.ReadFile(target)
			if err = errRead; err == nil && !slices.Contains(anchors(string(text)), anchor) {
				err = os.ErrNotExist
			}
		}
		if err != nil {
			dead = append(dead, match[1])
		}
	}
	return dead
}

// The page of the calls names every code.
func TestPageOfCodes(t *testing.T) {
	page, err := os.ReadFile("api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, codes, _ := strings.Cut(string(page), "\n## Codes\n")
	var contract struct {
		Components struct {
			Schemas struct{ ErrorCode struct{ Enum []string } }
		}
	}
	if err := json.Unmarshal(OpenAPI(), &contract); err != nil {
		t.Fatal(err)
	}
	for _, code := range contract.Components.Schemas.ErrorCode.Enum {
		if !strings.Contains(codes, "`"+code+"`") {
			t.Errorf("api.md does not name %s", code)
		}
	}
}

// No link between the pages is dead, and README leads to each of them.
func TestLinks(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) < 6 {
		t.Fatalf("pages: %q, %v", pages, err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, page := range pages {
		if !strings.Contains(string(readme), "](docs/"+page) {
			t.Errorf("README.md does not lead to docs/%s", page)
		}
	}
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if dead := deadLinks(page, string(text)); len(dead) > 0 {
			t.Errorf("%s: dead links %q", page, dead)
		}
	}
	if dead := deadLinks("design.md", "[a](no.md) [b](../README.md#tests) [c](../README.md#nothing) [d](#transactions) [e](#no)"); !slices.Equal(dead, []string{"no.md", "../README.md#nothing", "#no"}) {
		t.Errorf("dead links found: %q", dead)
	}
}

// A cell of a table has words, not paragraphs: a reader looks it up at a glance.
func TestTables(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil {
		t.Fatal(err)
	}
	cells := 0
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(fence.ReplaceAllString(string(text), "")) {
			if !strings.HasPrefix(line, "| ") {
				continue
			}
			for cell := range strings.SplitSeq(strings.Trim(line, "| \n"), " | ") {
				cells++
				if seen := link.ReplaceAllString(cell, "]"); utf8.RuneCountInString(seen) > longestCell {
					t.Errorf("%s: a cell has more than %d characters: %s", page, longestCell, cell)
				}
			}
		}
	}
	if cells < 500 {
		t.Errorf("only %d cells", cells)
	}
}

// longestCell has room for two short sentences.
const longestCell = 180

// The tests that the page of limits names exist.
func TestLimits(t *testing.T) {
	page, err := os.ReadFile("limits.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	err = filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") && filepath.Ext(path) != ".txt" {
			return err
		}
		if known[filepath.Base(path)] = true; filepath.Ext(path) == ".txt" {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range testFunction.FindAllStringSubmatch(string(text), -1) {
			known[match[1]] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	named := testName.FindAllString(string(page), -1)
	for _, name := range named {
		if !known[name] {
			t.Errorf("limits.md names %s, which does not exist", name)
		}
	}
	if len(named) < 80 || known["TestNothing"] {
		t.Errorf("%d names", len(named))
	}
}

var (
	testFunction = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	testName     = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w+|[a-z-]+(?:_test\.go|\.txt)\b`)
)
