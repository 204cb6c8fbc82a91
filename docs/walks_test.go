package docs

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"meshddns/test/support"
)

// sources are the files of the project that develop.md names.
var sources = regexp.MustCompile("`((?:internal|test|testdata|docs)/[\\w/.*]+|\\w+\\.(?:go|sql))`")

// TestWalks follows the walks of develop.md, which are its sections "A new ...", in a scratch copy of the
// tree. It makes the edits of the walk's file in testdata/walks, and runs the commands in the section. All
// files that the page names have to be there, those of a walk after its edits.
func TestWalks(t *testing.T) {
	page, err := os.ReadFile("develop.md")
	if err != nil {
		t.Fatal(err)
	}
	var walks []string
	for _, section := range strings.Split(string(page), "\n## ") {
		if strings.HasPrefix(section, "A new ") {
			walks = append(walks, section)
		} else {
			wantFiles(t, "..", section)
		}
	}
	if len(walks) != 4 {
		t.Fatalf("%d walks", len(walks))
	}
	if os.Getenv(support.Long) == "" {
		t.Skip("long: " + support.Long + "=1")
	}
	tree := copyTree(t)
	for _, walk := range walks {
		title, text, _ := strings.Cut(walk, "\n")
		t.Run(title, func(t *testing.T) {
			follow(t, tree, text, filepath.Join("testdata", "walks", anchors("# " + title)[0]+".txt"))
		})
	}
}

// wantFiles fails for each file that a text names and the tree does not have.
func wantFiles(t *testing.T, tree, text string) {
	t.Helper()
	for _, match := range sources.FindAllStringSubmatch(text, -1) {
		if found, err := filepath.Glob(filepath.Join(tree, match[1])); err != nil || len(found) == 0 {
			t.Errorf("%s is not there", match[1])
		}
	}
}

// copyTree copies the sources to a scratch folder, without hidden files.
func copyTree(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && path != "..":
			return filepath.SkipDir
		case !entry.Type().IsRegular():
			return nil
		}
		text, err := os.ReadFile(path)
		support.WriteFile(t, filepath.Join(to, strings.TrimPrefix(path, "../")), string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return to
}

// follow makes the edits of a walk, each behind a line ">>> FILE", and runs its commands. In the end the tree is
// as it was.
func follow(t *testing.T, tree, walk, file string) {
	edits, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, section := range strings.Split("\n"+string(edits), "\n>>> ")[1:] {
		name, text, _ := strings.Cut(section, "\n")
		if !strings.Contains(walk, "`"+name+"`") {
			t.Errorf("the walk does not name %s", name)
		}
		edit(t, filepath.Join(tree, name), strings.TrimSuffix(text, "\n"))
	}
	wantFiles(t, tree, walk)
	commands := 0
	for line := range strings.Lines(walk) {
		command, ok := strings.CutPrefix(line, "    go ")
		if !ok {
			continue
		}
		commands++
		cmd := exec.Command("bash", "-c", "go "+command)
		cmd.Dir, cmd.Env = tree, append(support.Environ(), "GOFLAGS=-trimpath -vet=off")
		out, err := cmd.CombinedOutput()
		if t.Logf("go %s", command); err != nil || strings.Contains(string(out), "[no tests to run]") {
			t.Errorf("%v\n%s", err, out)
		}
	}
	if commands == 0 {
		t.Error("the walk has no commands")
	}
}

// edit makes a new file of a text, or changes the file that is there: the text then has a line "@@" before
// each edit, which is what the file has once, a line "=>", and what replaces it.
func edit(t *testing.T, path, text string) {
	t.Helper()
	edits := strings.Split("\n"+text, "\n@@\n")[1:]
	before, err := os.ReadFile(path)
	switch {
	case len(edits) == 0 && err == nil:
		t.Fatalf("%s is there already", path)
	case len(edits) == 0:
		t.Cleanup(func() { os.Remove(path) })
		support.WriteFile(t, path, text+"\n")
		return
	case err != nil:
		t.Fatal(err)
	}
	t.Cleanup(func() { support.WriteFile(t, path, string(before)) })
	after := string(before)
	for _, edit := range edits {
		old, replacement, _ := strings.Cut(edit, "\n=>\n")
		if n := strings.Count(after, old); n != 1 {
			t.Fatalf("%s has %d times\n%s", path, n, old)
		}
		after = strings.Replace(after, old, replacement, 1)
	}
	support.WriteFile(t, path, after)
}
