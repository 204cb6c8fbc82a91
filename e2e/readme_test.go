package e2e

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
)

// step is a command of the README and the output printed under it.
type step struct{ command, output string }

// readmeSteps gives the commands behind "<!-- run -->", in their order.
func readmeSteps(text string) (steps []step) {
	for _, block := range strings.Split(text, "<!-- run -->\n```console\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		for line := range strings.Lines(block) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				steps = append(steps, step{command: strings.TrimSpace(command)})
			} else {
				steps[len(steps)-1].output += line
			}
		}
	}
	return steps
}

// volatile is what differs from one run to the next.
var volatile = map[string]*regexp.Regexp{
	"<id>":    regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`),
	"<time>":  regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`),
	"o=<own>": regexp.MustCompile(`o=[0-9a-f]{12}`),
}

func stable(output string) string {
	for mark, pattern := range volatile {
		output = pattern.ReplaceAllString(output, mark)
	}
	return output
}

// A new user types the README's first command and then the others, in one
// shell, and sees what is printed there.
func TestReadme(t *testing.T) {
	need(t, "curl", "jq", "dig", "sqlite3", "bash")
	if !inNamespace(t) { // the README's ports are its own there
		return
	}
	ip(t, "link set lo up")
	text, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	steps := readmeSteps(string(text))
	if len(steps) < 30 {
		t.Fatalf("only %d commands found", len(steps))
	}
	runFirstCommand(t, string(text))
	shell := startShell(t)
	for _, s := range steps {
		if got := shell.run(s.command); stable(got) != stable(s.output) {
			t.Errorf("$ %s\nprinted:\n%s\nthe README says:\n%s", s.command, got, s.output)
		}
	}
}

// runFirstCommand starts the program as the README does.
func runFirstCommand(t *testing.T, readme string) {
	t.Helper()
	_, rest, _ := strings.Cut(readme, "```console\n$ ")
	command, _, _ := strings.Cut(rest, "\n")
	if !strings.HasPrefix(command, "go run . ") {
		t.Fatalf("the first command is %q", command)
	}
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir = ".."
	cmd.Env = append(environ(), "MESHDDNS_DB="+filepath.Join(t.TempDir(), "meshddns.db"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run's child goes with it
	log := &buffer{}
	cmd.Stderr = log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		cmd.Wait()
	})
	p := &program{t: t, log: log}
	p.eventually("the program has started", func() bool { return strings.Contains(log.String(), "msg=started") })
}

// shell is a bash whose variables last from one command to the next.
type shell struct {
	t   *testing.T
	in  *os.File
	out *bufio.Reader
}

func startShell(t *testing.T) *shell {
	t.Helper()
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash")
	cmd.Dir = ".."
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = inRead, outWrite, os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	inRead.Close()
	outWrite.Close()
	t.Cleanup(func() {
		inWrite.Close()
		cmd.Wait()
		outRead.Close()
	})
	return &shell{t, inWrite, bufio.NewReader(outRead)}
}

// run types a command and gives what it prints.
func (s *shell) run(command string) (output string) {
	s.t.Helper()
	const end = "-- end of output --"
	// curl shows its progress on a pipe where a person sees none.
	fmt.Fprintf(s.in, "%s\necho '%s'\n", strings.ReplaceAll(command, "curl ", "curl -sS "), end)
	for {
		line, err := s.out.ReadString('\n')
		if err != nil {
			s.t.Fatalf("the shell ended at %q: %v", command, err)
		}
		if text, ended := strings.CutSuffix(line, end+"\n"); ended {
			return output + text
		}
		output += line
	}
}
