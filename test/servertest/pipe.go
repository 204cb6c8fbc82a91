package servertest

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
)

// pipe is a program that takes one request after the other, because its start costs more than its work. It starts at the
// first request.
type pipe struct {
	args []string

	mu  sync.Mutex
	cmd *exec.Cmd
	in  io.Writer
	out *bufio.Reader
}

// newUpdates returns nsupdate with a key.
func newUpdates() *pipe {
	return &pipe{args: []string{"nsupdate", "-v", "-y", "hmac-sha256:" + Key + ":" + Secret}}
}

// newQuestions returns dig for a server. dig counts its time from the answer before, not from the question.
func newQuestions(host, port string) *pipe {
	return &pipe{args: []string{"dig", "@" + host, "-p", port, "+tcp", "+time=600", "+norecurse", "+noall", "+answer", "+stats", "-f", "-"}}
}

// ask writes lines, and returns those of the program up to the first that is the last one.
func (p *pipe) ask(lines string, last func(line string) bool) (answer []string, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		if err := p.start(); err != nil {
			return nil, err
		}
	}
	if _, err := io.WriteString(p.in, lines); err != nil {
		return nil, err
	}
	for {
		line, err := p.out.ReadString('\n')
		if err != nil {
			return answer, fmt.Errorf("%s: %w", strings.Join(append(answer, line), "\n"), err)
		}
		if answer = append(answer, strings.TrimSuffix(line, "\n")); last(answer[len(answer)-1]) {
			return answer, nil
		}
	}
}

func (p *pipe) start() error {
	cmd := exec.Command(p.args[0], p.args[1:]...)
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.in, p.out = cmd, in, bufio.NewReader(out)
	return nil
}

// end ends the program, if it has started.
func (p *pipe) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd != nil {
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
}
