// Package servertest runs real DNS servers for tests: BIND, Knot and
// PowerDNS, each a process of its own on loopback, with one small zone that
// takes dynamic updates. Only tests import it.
package servertest

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"text/template"
	"time"

	"meshddns/internal/dns"
	"meshddns/test/support"
)

// What every server knows. Key and Key512 may change the zone, Key may also
// transfer it; ReadOnlyKey is known and may do neither. PartKey may change what
// is within Part only, and PowerDNS, which has no such rights, does not know it. Key names are written as for dns.ParseKey.
const (
	Zone = "example.com"

	Key         = "mesh-key"
	Secret      = "bWVzaC1rZXktc2VjcmV0LW9mLTMyLW9jdGV0cy1sb24="
	Key512      = "hmac-sha512:mesh512"
	Secret512   = "bWVzaDUxMi1zZWNyZXQtb2YtNjQtb2N0ZXRzLTAxMjM0NTY3ODlhYmNkZWYwMTIzNDU2Nzg5YWJjZGVmMDEyMzQ1Njc="
	ReadOnlyKey = "readonly-key"
	ReadOnly    = "cmVhZG9ubHkta2V5LXNlY3JldC1vZi0zMi1vY3RldHM="
	Part        = "part.example.com"
	PartKey     = "part-key"
	PartSecret  = "cGFydC1rZXktc2VjcmV0LW9mLTMyLW9jdGV0cy1sb24="
)

// zoneFile is the zone on every server. The token at "instance" tells this
// server from one that another test started.
const zoneFile = `$ORIGIN example.com.
$TTL 300
@        IN SOA ns1 hostmaster 1 3600 600 86400 60
@        IN NS ns1
ns1      IN A 127.0.0.1
keep     IN TXT "existing value"
alias    IN CNAME keep
tree     IN DNAME keep
child    IN NS ns1.child
ns1.child IN A 127.0.0.1
*.wild   IN TXT "from a wildcard"
*.detour IN CNAME keep
instance IN TXT "{{.Token}}"
`

// Server is a running server.
type Server struct {
	Name   string // "BIND", "Knot" or "PowerDNS"
	Addr   string // host:port, UDP and TCP
	Dir    string // its files: configuration, zone, log
	API    string // base URL of PowerDNS's HTTP API; empty for the others
	APIKey string

	updates, questions *pipe // nil: a program of its own for each
}

// program is how a server is set up and started.
type program struct {
	name  string
	needs []string          // programs
	files map[string]string // templates by file name, executed with a setup
	setup [][]string        // commands before the start, templates too
	start []string
}

// setup is what the templates are executed with.
type setup struct {
	Dir, Token, Port, APIPort string

	Secret, Secret512, ReadOnly, Part string
}

// clients are the programs that Update and TXT run.
var clients = []string{"nsupdate", "dig"}

const (
	startTime  = support.Patience // until a server must answer
	stopTime   = 5 * time.Second  // until a server that does not stop is killed
	startTries = 3                // a free port can be taken before the server has it
	pollTime   = 10 * time.Millisecond
	logLines   = 30 // of the log that a failed test shows
)

// Each runs a test against a server of each kind, side by side; in the short run
// against Knot only, which starts the fastest.
func Each(t *testing.T, test func(t *testing.T, s Server)) {
	all := []program{knot, bind, powerDNS}
	if testing.Short() {
		all = all[:1]
	}
	for _, p := range all {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			test(t, run(t, p))
		})
	}
}

// BIND starts named; the end of the test stops it.
func BIND(t testing.TB) Server { return run(t, bind) }

// BINDWith starts named with one more statement in its zone, such as "check-names ignore;".
func BINDWith(t testing.TB, statement string) Server {
	p := bind
	p.files = maps.Clone(bind.files)
	p.files["named.conf"] = strings.Replace(p.files["named.conf"], "type primary;", "type primary;\n\t"+statement, 1)
	return run(t, p)
}

// Knot starts knotd; the end of the test stops it.
func Knot(t testing.TB) Server { return run(t, knot) }

// PowerDNS starts pdns_server with its HTTP API; the end of the test stops it.
func PowerDNS(t testing.TB) Server { return run(t, powerDNS) }

// run starts a server and waits until it answers. Without the program the
// test is skipped, but not in CI: there a skipped test would be believed.
func run(t testing.TB, p program) Server {
	t.Helper()
	for _, name := range slices.Concat(p.needs, clients) {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("%s is not installed: %v", p.name, err)
			}
			t.Skipf("%s is not installed: %v", p.name, err)
		}
	}
	var err error
	for range startTries {
		var s Server
		if s, err = try(t, p); err == nil {
			return s
		}
		t.Logf("start %s: %v", p.name, err)
	}
	t.Fatalf("%s does not start", p.name)
	return Server{}
}

// At is the server at an address, which another one has started.
func At(t testing.TB, address string) Server {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	support.Must(t, err)
	s := Server{Addr: address, updates: newUpdates(), questions: newQuestions(host, port)}
	t.Cleanup(s.updates.end)
	t.Cleanup(s.questions.end)
	return s
}

func try(t testing.TB, p program) (Server, error) {
	// Not t.TempDir: a socket's path in it must stay under 108 octets.
	dir, err := os.MkdirTemp("", "dns")
	if err != nil {
		return Server{}, err
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	in := setup{Dir: dir, Token: rand.Text(), Secret: Secret, Secret512: Secret512, ReadOnly: ReadOnly, Part: PartSecret}
	if in.Port, err = freePort(); err != nil {
		return Server{}, err
	}
	if in.APIPort, err = freePort(); err != nil {
		return Server{}, err
	}
	if err := p.prepare(in); err != nil {
		return Server{}, err
	}
	s := At(t, net.JoinHostPort("127.0.0.1", in.Port))
	s.Name, s.Dir = p.name, dir
	if p.name == powerDNS.name {
		s.API, s.APIKey = "http://"+net.JoinHostPort("127.0.0.1", in.APIPort), in.Token
	}
	exited, err := launch(t, s, in.fill(p.start))
	if err != nil {
		return Server{}, err
	}
	return s, s.wait(in.Token, exited)
}

// freePort gives a port that is free for UDP and TCP.
func freePort() (string, error) {
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer tcp.Close()
	udp, err := net.ListenPacket("udp", tcp.Addr().String())
	if err != nil {
		return "", err
	}
	defer udp.Close()
	_, port, err := net.SplitHostPort(tcp.Addr().String())
	return port, err
}

// prepare writes the server's files and runs what comes before its start.
func (p program) prepare(in setup) error {
	for name, text := range p.files {
		if err := os.WriteFile(filepath.Join(in.Dir, name), []byte(in.expand(text)), 0o600); err != nil {
			return err
		}
	}
	for _, command := range p.setup {
		args := in.fill(command)
		if output, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(args[:2], " "), err, output)
		}
	}
	return nil
}

func (in setup) expand(text string) string {
	var out strings.Builder
	if err := template.Must(template.New("").Parse(text)).Execute(&out, in); err != nil {
		panic(err)
	}
	return out.String()
}

func (in setup) fill(command []string) []string {
	var args []string
	for _, arg := range command {
		args = append(args, in.expand(arg))
	}
	return args
}

// launch starts the process, which the end of the test stops; exited is
// closed when it has ended.
func launch(t testing.TB, s Server, args []string) (exited chan struct{}, err error) {
	log, err := os.Create(s.logFile())
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited = make(chan struct{})
	go func() {
		defer close(exited)
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		select {
		case <-exited:
		case <-time.After(stopTime):
			cmd.Process.Kill()
			<-exited
		}
		if t.Failed() {
			t.Logf("the last lines of %s:\n%s", s.Name, s.log())
		}
	})
	return exited, nil
}

func (s Server) logFile() string { return filepath.Join(s.Dir, "log") }

// log gives the end of what the server wrote; its start tells how it was built.
func (s Server) log() string {
	text, err := os.ReadFile(s.logFile())
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(text), "\n")
	return strings.Join(lines[max(0, len(lines)-logLines):], "\n")
}

// Update changes the zone with nsupdate, as another program would; each
// command is one such as `add NAME 60 TXT "value"`.
func (s Server) Update(t testing.TB, commands ...string) {
	t.Helper()
	host, port, _ := net.SplitHostPort(s.Addr)
	updates := s.updates
	if updates == nil {
		updates = newUpdates()
		defer updates.end()
	}
	lines := slices.Concat([]string{"server " + host + " " + port, "zone " + Zone}, commands, []string{"send", "answer", ""})
	failed := false
	output, err := updates.ask(strings.Join(lines, "\n"), func(line string) bool {
		failed = failed || strings.Contains(line, "failed")
		return failed || strings.Contains(line, "opcode: UPDATE, status: ")
	})
	if err != nil || failed || !strings.Contains(output[len(output)-1], "status: NOERROR,") {
		t.Fatalf("nsupdate of %s: %v\n%s", s.Name, err, strings.Join(output, "\n"))
	}
}

// RemoveZone takes the zone from the server.
func (s Server) RemoveZone(t testing.TB) {
	t.Helper()
	if s.Name == powerDNS.name {
		if output, err := exec.Command("pdnsutil", "--config-dir="+s.Dir, "delete-zone", Zone).CombinedOutput(); err != nil {
			t.Fatalf("delete-zone: %v\n%s", err, output)
		}
	} else if err := s.reconfigure(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTime)
	defer cancel()
	for len(s.dig(t, Zone, "SOA")) > 0 {
		if ctx.Err() != nil {
			t.Fatalf("%s still has the zone", s.Name)
		}
	}
}

// reconfigure cuts the zone out of the configuration of BIND or Knot and lets
// the server read it again.
func (s Server) reconfigure() error {
	config, pidFile, from, to := "named.conf", "named.pid", "zone \"example.com\"", ""
	if s.Name == knot.name {
		config, pidFile, from, to = "knot.conf", "knot.pid", "zone:\n", "log:\n"
	}
	text, err := os.ReadFile(filepath.Join(s.Dir, config))
	if err != nil {
		return err
	}
	before, after, _ := strings.Cut(string(text), from)
	if to != "" {
		_, after, _ = strings.Cut(after, to)
		before += to + after
	}
	if err := os.WriteFile(filepath.Join(s.Dir, config), []byte(before), 0o600); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(s.Dir, pidFile))
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		return err
	}
	return syscall.Kill(pid, syscall.SIGHUP)
}

// TXT gives the values at a name as dig prints them, sorted.
func (s Server) TXT(t testing.TB, name string) []string {
	t.Helper()
	values := s.dig(t, name, "TXT")
	slices.Sort(values)
	return values
}

// Values gives the values at a name as any resolver gets them.
func (s Server) Values(t testing.TB, name string) (values [][]string) {
	t.Helper()
	answer := Ask(t, s.Addr, name, dns.TypeTXT)
	for _, rr := range answer.Answers {
		if rr.Type == dns.TypeTXT && rr.Name.Fold() == answer.Questions[0].Name.Fold() {
			value, err := dns.ParseTXT(rr.Data)
			support.Must(t, err)
			values = append(values, value)
		}
	}
	return values
}

// Resolver is one that asks a server about everything.
func Resolver(address string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, address)
	}}
}

// Add adds a value as another program would.
func (s Server) Add(t testing.TB, name string, value []string) {
	t.Helper()
	s.Update(t, "add "+name+" 60 TXT "+presentation(value))
}

// Remove takes a value away as another program would.
func (s Server) Remove(t testing.TB, name string, value []string) {
	t.Helper()
	s.Update(t, "delete "+name+" TXT "+presentation(value))
}

// Records gives the data of a type at a name as dig prints them.
func (s Server) Records(t testing.TB, name, kind string) []string {
	t.Helper()
	return s.dig(t, name, kind)
}

// AddRecord adds a record of a type other than TXT as another program would.
func (s Server) AddRecord(t testing.TB, name, kind, text string) {
	t.Helper()
	s.Update(t, "add "+name+" 60 "+kind+" "+recordText(kind, text))
}

// RemoveRecord takes a record away as another program would.
func (s Server) RemoveRecord(t testing.TB, name, kind, text string) {
	t.Helper()
	s.Update(t, "delete "+name+" "+kind+" "+recordText(kind, text))
}

// recordText completes the target of an SRV record, which nsupdate takes as relative without a dot.
func recordText(kind, text string) string {
	if kind == "SRV" && !strings.HasSuffix(text, ".") {
		return text + "."
	}
	return text
}

// presentation writes a value as zone files have it (RFC 1035, section 5.1).
func presentation(value []string) string {
	var text strings.Builder
	for _, s := range value {
		text.WriteString(` "`)
		for _, octet := range []byte(s) {
			fmt.Fprintf(&text, `\%03d`, octet)
		}
		text.WriteString(`"`)
	}
	return strings.TrimSpace(text.String())
}

// Serial gives the zone's serial, which each change moves.
func (s Server) Serial(t testing.TB) string {
	t.Helper()
	return strings.Fields(strings.Join(s.dig(t, Zone, "SOA"), " ") + " - - -")[2]
}

func (s Server) dig(t testing.TB, name, kind string) []string {
	t.Helper()
	questions := s.questions
	if questions == nil {
		host, port, _ := net.SplitHostPort(s.Addr)
		questions = newQuestions(host, port)
		defer questions.end()
	}
	failed := false
	output, err := questions.ask(name+" "+kind+"\n", func(line string) bool {
		failed = failed || strings.Contains(line, "no servers could be reached")
		return failed || strings.HasPrefix(line, ";; MSG SIZE")
	})
	if err != nil || failed {
		t.Fatalf("dig at %s: %v\n%s", s.Name, err, strings.Join(output, "\n"))
	}
	var all []string
	for _, line := range output {
		if found := answered.FindStringSubmatch(line); found != nil {
			all = append(all, found[1])
		}
	}
	return all
}

// answered finds the data of a record as dig prints it.
var answered = regexp.MustCompile(`^[^;\s]\S*\s+\d+\s+IN\s+\S+\s+(.*)$`)

// wait returns when the server answers with its own token, everywhere.
func (s Server) wait(token string, exited chan struct{}) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTime)
	defer cancel()
	ticker := time.NewTicker(pollTime)
	defer ticker.Stop()
	for {
		err := s.ready(ctx, token)
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-exited:
			return fmt.Errorf("ended before it answered\n%s", s.log())
		case <-ctx.Done():
			return fmt.Errorf("no answer in %v: %w", startTime, err)
		}
	}
}

func (s Server) ready(ctx context.Context, token string) error {
	for _, exchange := range []func(context.Context, string, []byte) ([]byte, error){dns.ExchangeTCP, dns.Exchange} {
		name, err := dns.ParseName("instance." + Zone)
		if err != nil {
			return err
		}
		query := dns.Message{Questions: []dns.Question{{Name: name, Type: dns.TypeTXT, Class: dns.ClassIN}}}
		answer, err := exchange(ctx, s.Addr, query.Pack())
		if err != nil {
			return err
		}
		if !strings.Contains(string(answer), token) {
			return fmt.Errorf("not this server's answer: %q", answer)
		}
	}
	if s.API == "" {
		return nil
	}
	return s.readyAPI(ctx)
}

func (s Server) readyAPI(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.API+"/api/v1/servers/localhost", nil)
	if err != nil {
		return err
	}
	request.Header.Set("X-API-Key", s.APIKey)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	io.Copy(io.Discard, response.Body)
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("API answers %s", response.Status)
	}
	return nil
}
