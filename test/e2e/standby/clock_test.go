package standby

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"meshddns/test/support"
)

// clockName is the variable that asks for wall clocks which can be set, wallName that of the file with a machine's shift.
const clockName, wallName = "MESHDDNS_STANDBY_CLOCK", "STANDBY_WALL"

// wallClock builds the program and Litestream with a wall clock that can be set, and gives the variables with their paths.
// The kernel has one such clock for all its namespaces, so a test must not set that. It is package time of Go that adds
// the shift. Its monotonic clock, by which timers and deadlines run, stays as it is, as it does when a real clock is set.
func wallClock(t *testing.T) []string {
	t.Helper()
	source := filepath.Join(runtime.GOROOT(), "src/time/time.go")
	text, err := os.ReadFile(source)
	support.Must(t, err)
	changed := string(text)
	for _, m := range []mistake{
		{source, "import (", "import (\n\t\"syscall\""},
		{source, "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n", "func Now() Time {\n\tsec, nsec, mono := runtimeNow()\n\tsec += wallShift()\n"},
	} {
		changed = m.apply(t, changed)
	}
	changed += `
func wallShift() int64 {
	path, _ := syscall.Getenv("` + wallName + `")
	file, err := open(path)
	if err != nil {
		return 0
	}
	var text [16]byte
	n, _ := read(file, text[:])
	closefd(file)
	seconds, _ := atoi(string(text[:n]))
	return int64(seconds)
}
`
	dir := t.TempDir()
	support.WriteFile(t, filepath.Join(dir, "time.go"), changed)
	overlay := filepath.Join(dir, "overlay.json")
	support.WriteFile(t, overlay, fmt.Sprintf(`{"Replace": {%q: %q}}`, source, filepath.Join(dir, "time.go")))
	for _, words := range [][]string{
		{"build", "-overlay", overlay, "-o", filepath.Join(dir, "meshddns"), root},
		{"-C", filepath.Join(root, "test/e2e/replica"), "build", "-overlay", overlay, "-o", filepath.Join(dir, "litestream"), "github.com/benbjohnson/litestream/cmd/litestream"},
	} {
		if out, err := exec.Command("go", words...).CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(words, " "), err, out)
		}
	}
	return []string{programName + "=" + filepath.Join(dir, "meshddns"), "PATH=" + dir + ":" + os.Getenv("PATH")}
}
