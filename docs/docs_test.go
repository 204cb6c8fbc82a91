package docs

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// comingCodes are in the contract and not in the program yet.
var comingCodes = []string{"disk_full"}

// The codes that the program can give are in the contract, and no other.
func TestCodes(t *testing.T) {
	codes := messages(t)
	var contract struct {
		Components struct {
			Schemas map[string]struct{ Enum []string }
		}
	}
	if err := json.Unmarshal(OpenAPI, &contract); err != nil {
		t.Fatal(err)
	}
	refusals := slices.DeleteFunc(codes["Refusals of a request."], func(code string) bool {
		part, _ := regexp.MatchString(`^(type|body)_`, code) // of a text: parameter_error is the code
		return part && code != "body_too_large"
	})
	faults := slices.Concat(codes["Why a record is not as it should be."], codes["Items of a connection test."])
	for name, want := range map[string][]string{"ErrorCode": refusals, "FaultCode": faults} {
		got := slices.DeleteFunc(contract.Components.Schemas[name].Enum, func(code string) bool { return slices.Contains(comingCodes, code) })
		slices.Sort(want)
		if slices.Sort(got); len(want) < 20 || !slices.Equal(got, want) {
			t.Errorf("%s in docs/openapi.json:\n%q\nin the program:\n%q", name, got, want)
		}
	}
}

// messages gives the IDs in package msg, by the first sentence about their block.
func messages(t *testing.T) map[string][]string {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../msg/texts.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	codes := map[string][]string{}
	for _, declaration := range file.Decls {
		block, ok := declaration.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST {
			continue
		}
		about, _, _ := strings.Cut(block.Doc.Text(), ".")
		about = strings.Join(strings.Fields(about), " ") + "."
		for _, spec := range block.Specs {
			for _, value := range spec.(*ast.ValueSpec).Values {
				code, err := strconv.Unquote(value.(*ast.BasicLit).Value)
				if err != nil {
					t.Fatal(err)
				}
				codes[about] = append(codes[about], code)
			}
		}
	}
	return codes
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
