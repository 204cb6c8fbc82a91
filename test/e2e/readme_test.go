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

	"meshddns/test/support"
)

// step is a command of a page and the output printed under it.
type step struct {
	command, output string
	where           string // as its block says: "" or "in the sources"
}

// block begins commands that are run, and says where.
var block = regexp.MustCompile("<!-- run ?(.*) -->\n```console\n")

// steps gives the commands behind "<!-- run -->", in their order.
func steps(text string) (all []step) {
	for _, at := range block.FindAllStringSubmatchIndex(text, -1) {
		lines, _, _ := strings.Cut(text[at[1]:], "```")
		for line := range strings.Lines(lines) {
			if command, ok := strings.CutPrefix(line, "$ "); ok {
				all = append(all, step{command: strings.TrimSpace(command), where: text[at[2]:at[3]]})
			} else {
				all[len(all)-1].output += line
			}
		}
	}
	return all
}

// scripts are the files that a page shows behind "<!-- file NAME -->", which a reader has in the folder.
var scripts = regexp.MustCompile("(?s)<!-- file (\\S+) -->\n```sh\n(.*?)```")

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
	support.Need(t, "curl", "dig", "bash")
	t.Parallel()
	if !inNamespace(t) { // the README's ports are its own there
		return
	}
	ip(t, "link set lo up")
	text, all := readPage(t, "../../README.md", 6)
	startAsSaid(t, firstCommand(t, text))
	shell := startShell(t, "../..")
	for _, s := range all {
		shell.want(s)
	}
}

// A reader of a page in docs has done what the README says, and goes on with the
// page's commands, in a folder of their own.
func TestPages(t *testing.T) {
	notShort(t)
	support.Need(t, "curl", "jq", "dig", "sqlite3", "bash", "knotd", "keymgr", "delv", "pdns_server", "ddclient")
	t.Parallel()
	if !inNamespace(t) {
		return
	}
	ip(t, "link set lo up")
	readme, before := readPage(t, "../../README.md", 6)
	_, flags, _ := strings.Cut(firstCommand(t, readme), " . ")
	for page, least := range map[string]int{"api": 24, "certificates": 17, "clients": 11, "dns": 5, "image": 9, "nodes": 6, "operate": 16, "providers": 3, "secondaries": 29, "tls": 12} {
		t.Run(page, func(t *testing.T) {
			text, all := readPage(t, "../../docs/"+page+".md", least)
			more := ""
			switch page {
			case "certificates":
				support.Need(t, "pebble", "lego", "certbot", "openssl")
				more = " -node-listen 127.0.0.1:8054"
			case "nodes":
				more = " -node-listen 127.0.0.1:8054"
			case "secondaries":
				more = " -dns-catalog catalog.invalid"
			}
			startAsSaid(t, binary(t)+" "+flags+more)
			folder := t.TempDir()
			for _, script := range scripts.FindAllStringSubmatch(text, -1) {
				if err := os.WriteFile(filepath.Join(folder, script[1]), []byte(script[2]), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			shell := startShell(t, folder)
			for _, s := range before {
				shell.run(s.command)
			}
			for _, s := range all {
				shell.want(s)
			}
		})
	}
}

// readPage gives a page and its commands, of which there are some at least.
func readPage(t *testing.T, path string, least int) (text string, all []step) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if all = steps(string(page)); len(all) < least {
		t.Fatalf("only %d commands found in %s", len(all), path)
	}
	return string(page), all
}

// firstCommand gives the one that starts the program.
func firstCommand(t *testing.T, readme string) string {
	t.Helper()
	_, rest, _ := strings.Cut(readme, "```console\n$ ")
	command, _, _ := strings.Cut(rest, "\n")
	if !strings.HasPrefix(command, "go run -v . ") {
		t.Fatalf("the first command is %q", command)
	}
	return command
}

// startAsSaid starts the program by a command.
func startAsSaid(t *testing.T, command string) {
	t.Helper()
	cmd := exec.Command("bash", "-c", command)
	cmd.Dir = "../.."
	cmd.Env = append(support.Environ(), "MESHDDNS_DB="+filepath.Join(t.TempDir(), "meshddns.db"))
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // go run's child goes with it
	log := &support.Log{}
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

// startShell starts one in a folder, with the program in its PATH.
func startShell(t *testing.T, folder string) *shell {
	t.Helper()
	sources, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	outRead, outWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	inRead, inWrite, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("bash")
	cmd.Dir = folder
	cmd.Env = append(support.Environ(), "TMPDIR="+t.TempDir(), "SOURCES="+sources, "PATH="+filepath.Dir(binary(t))+":"+os.Getenv("PATH"))
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
	return &shell{t: t, in: inWrite, out: bufio.NewReader(outRead)}
}

// want types a command, which has to print what the page says.
func (s *shell) want(step step) {
	s.t.Helper()
	command := step.command
	if step.where == "in the sources" {
		command = "cd \"$SOURCES\"\n" + command + "\ncd - > /dev/null"
	}
	if got := s.run(command); stable(got) != stable(step.output) {
		s.t.Errorf("$ %s\nprinted:\n%s\nthe page says:\n%s", step.command, got, step.output)
	}
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
