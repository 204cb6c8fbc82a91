package msg

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// notSaid are texts in the sources of clients that reach no answer: messages of vendors, a part of a description. Patterns of
// vendors' messages, which have a "*", reach none either.
var notSaid = []string{
	"application/json, application/xml;q=0.9", "already exists", "not found", "mesh sync - ",
}

// tellers are the files with errors for people.
var tellers = []string{"provider/*.go", "reconcile/probing.go", "reconcile/public.go", "dns/*.go", "builtin/builtin.go",
	"mesh/value.go", "mesh/endpoint.go", "mesh/format.go", "mesh/usage.go", "mesh/peer.go", "mesh/rules.go", "mesh/sets.go", "notify/receiver.go", "check/probe.go", "secondary/refusal.go"}

// sources returns the files below internal/ that match patterns, without tests.
func sources(t *testing.T, patterns ...string) (files []*ast.File) {
	t.Helper()
	set := token.NewFileSet()
	for _, pattern := range patterns {
		names, err := filepath.Glob(filepath.Join("..", pattern))
		if err != nil || len(names) == 0 {
			t.Fatal(pattern, err)
		}
		for _, name := range names {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(set, name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, file)
		}
	}
	return files
}

// literals returns the texts in a part of a source.
func literals(t *testing.T, part ast.Node) (all []string) {
	t.Helper()
	ast.Inspect(part, func(n ast.Node) bool {
		if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
			text, err := strconv.Unquote(l.Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, text)
		}
		return true
	})
	return all
}

// TestErrorsAreWhole: every text of ours in an error has a Chinese one, and every Chinese text is used.
func TestErrorsAreWhole(t *testing.T) {
	used := map[string]bool{}
	for _, file := range sources(t, "reconcile/*.go", "hostaddr/*.go", "mesh/placeholder.go") { // most of their texts are for the log
		for _, text := range literals(t, file) {
			used[text] = true
		}
	}
	for _, file := range sources(t, tellers...) {
		for _, text := range literals(t, file) {
			used[text] = true
			if hasEnglish(filled(text)) && errorTexts[ID(text)][Chinese] == "" && !slices.Contains(notSaid, text) && !strings.Contains(text, "*") {
				t.Errorf("%s: %q has no Chinese", file.Name, text)
			}
		}
	}
	for english := range errorTexts {
		if !used[string(english)] {
			t.Errorf("%q is in no error", english)
		}
	}
}

// TestErrorsAreOurs: Errorf makes every error with English words, because errors of packages errors and
// fmt have no Chinese.
func TestErrorsAreOurs(t *testing.T) {
	for _, file := range sources(t, tellers...) {
		ast.Inspect(file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			f, ok := call.Fun.(*ast.SelectorExpr)
			if !ok || f.Sel.Name != "New" && f.Sel.Name != "Errorf" && f.Sel.Name != "Sprintf" {
				return true
			}
			if from, ok := f.X.(*ast.Ident); ok && (from.Name == "errors" || from.Name == "fmt") {
				for _, text := range literals(t, call) {
					if hasEnglish(filled(text)) {
						t.Errorf("%s: %s.%s says %q", file.Name, from.Name, f.Sel.Name, text)
					}
				}
			}
			return true
		})
	}
}

// TestErrorTextsAgree: both languages have the same arguments, and the Chinese has no English words.
func TestErrorTextsAgree(t *testing.T) {
	for _, text := range errorTexts {
		english, chinese := text[English], text[Chinese]
		if a, b := arguments(english), arguments(chinese); !slices.Equal(a, b) {
			t.Errorf("%q takes %q, and %q takes %q", english, a, chinese, b)
		}
		plain := regexp.MustCompile(`%\[\d\]`).ReplaceAllString(chinese, "%")
		if hasEnglish(filled(plain)) || !regexp.MustCompile(`\p{Han}|^%s（%s）$|^%s：HTTP %d$`).MatchString(plain) {
			t.Errorf("%q is %q in Chinese", english, chinese)
		}
	}
}

// arguments returns the verbs of a format with the numbers of their arguments, sorted by number.
func arguments(format string) (all []string) {
	next := 1
	for _, verb := range regexp.MustCompile(`%(?:\[(\d)\])?([+.*0-9]*[a-zA-Z])`).FindAllStringSubmatch(format, -1) {
		if n, err := strconv.Atoi(verb[1]); err == nil {
			next = n
		}
		all = append(all, fmt.Sprint(next, verb[2]))
		next++
	}
	slices.Sort(all)
	return all
}

// TestErrorf checks errors in both languages. A provider's message stays unchanged.
func TestErrorf(t *testing.T) {
	asked := Textf("%s at %s", Say("list zones"), "dns.example:443")
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	unsigned := Errorf("answer carries no TSIG")
	for _, test := range []struct {
		err              error
		english, chinese string
	}{
		{Errorf("%s: HTTP %d", asked, 400), "list zones at dns.example:443: HTTP 400", "列出区域（dns.example:443）：HTTP 400"},
		{Errorf("%s: %s", asked, "Code.X: Your key has no balance"), "list zones at dns.example:443: Code.X: Your key has no balance", "列出区域（dns.example:443）: Code.X: Your key has no balance"},
		{Errorf("%s: %w", asked, refused), "list zones at dns.example:443: connect to 127.0.0.1:1: the connection is refused, as if nothing listens there", "列出区域（dns.example:443）: 连接 127.0.0.1:1: 连接被拒绝"},
		{Errorf("the account has no zone that contains %q", "a b.example"), `the account has no zone that contains "a b.example"`, `账号下没有包含 "a b.example" 的区域`},
		{Errorf("transfer zone %s from %s", "a", "b"), "transfer zone a from b", "从 b 传送区域 a"},
		{Errorf("TSIG key name: %w", Errorf("%w: it is empty", Errorf("not a domain name"))), "TSIG key name: not a domain name: it is empty", "TSIG 密钥名：不是域名：为空"},
		{Errorf("%w: %w", unsigned, io.ErrUnexpectedEOF), "answer carries no TSIG: the connection ended too early", "应答未带 TSIG: 连接意外中断"},
		{Errorf("%s", Say("no status\nof ours")), "no status of ours", "no status of ours"},
	} {
		if text := TextOf(test.err); text.In(English) != test.english || text.In(Chinese) != test.chinese {
			t.Errorf("%q is told as\n%q\n%q, want\n%q\n%q", test.err, text.In(English), text.In(Chinese), test.english, test.chinese)
		}
	}
	if err := Errorf("%s: %w", asked, refused); !strings.HasSuffix(err.Error(), ": dial tcp 127.0.0.1:1: connect: connection refused") {
		t.Errorf("the log gets %q", err)
	}
	err := fmt.Errorf("read: %w", Errorf("%w: %w", unsigned, refused))
	if op, ok := errors.AsType[*net.OpError](err); !ok || op != refused || !errors.Is(err, unsigned) || errors.Is(err, io.EOF) {
		t.Errorf("%v does not wrap what it names", err)
	}
}

// TestGoErrors checks the texts of the errors of Go's own packages.
func TestGoErrors(t *testing.T) {
	var number int
	peer := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 53}
	for _, test := range []struct {
		err              error
		english, chinese string
	}{
		{context.DeadlineExceeded, "no answer in time", "超时"},
		{&net.OpError{Op: "read", Net: "udp", Addr: peer, Err: os.ErrDeadlineExceeded}, "read from 192.0.2.1:53: no answer in time", "读取 192.0.2.1:53: 超时"},
		{&net.OpError{Op: "read", Net: "tcp", Addr: peer, Err: os.NewSyscallError("read", syscall.ECONNRESET)},
			"read from 192.0.2.1:53: the other side has broken the connection off", "读取 192.0.2.1:53: 连接被对方重置"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "a.example", Server: "127.0.0.53:53"}},
			"look up a.example at 127.0.0.53:53: there is no such host", "解析 a.example（127.0.0.53:53）: 找不到主机"},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", Name: "a.example"}}, "look up a.example: there is no such host", "解析 a.example: 找不到主机"},
		{&url.Error{Op: "Get", URL: "https://a.example", Err: io.EOF}, `Get "https://a.example": the connection ended too early`, `Get "https://a.example": 连接意外中断`},
		{json.Unmarshal([]byte("<html>"), &number), "not JSON: the character '<' is no value", "不是 JSON：非法字符 '<'"},
		{json.Unmarshal([]byte("{"), &number), "the JSON is not whole", "JSON 不完整"},
		{xml.Unmarshal([]byte("<html/>"), &struct {
			XMLName xml.Name `xml:"Answer"`
		}{}), "want the XML element <Answer>, not <html>", "XML 元素应为 <Answer>，而不是 <html>"},
		{&net.OpError{Op: "dial", Net: "tcp", Addr: peer, Err: Errorf("the answer is too long for a probe")},
			"connect to 192.0.2.1:53: the answer is too long for a probe", "连接 192.0.2.1:53: 应答过长，无法检查"},
		{errors.New("of none of them"), "of none of them", "of none of them"},
	} {
		if got := TextOf(test.err); got.In(Chinese) != test.chinese || got.In(English) != test.english {
			t.Errorf("%q is %q, want %q and %q", test.err, got, test.english, test.chinese)
		}
	}
}

// TestText: a text is stored unchanged, and logged in English. One line is the text in both languages.
func TestText(t *testing.T) {
	text := Textf("the list has over %d pages", 7)
	stored, err := json.Marshal(text)
	if err != nil {
		t.Fatal(err)
	}
	var read Text
	if err := json.Unmarshal(stored, &read); err != nil || read != text || read.In(Chinese) != "列表超过 7 页" {
		t.Errorf("%s is read as %q, %v", stored, read, err)
	}
	if line := Text("dns.example:443"); line.In(Chinese) != string(line) || line.In(English) != string(line) {
		t.Errorf("one line is %q and %q", line.In(Chinese), line.In(English))
	}
	var log bytes.Buffer
	slog.New(slog.NewJSONHandler(&log, nil)).Info("zone is down", "detail", text)
	slog.New(slog.NewTextHandler(&log, nil)).Info("zone is down", "detail", text)
	if got := log.String(); strings.Count(got, "the list has over 7 pages") != 2 || strings.Contains(got, "列表") {
		t.Errorf("the log is %s", got)
	}
	if got := text.Map(strings.ToUpper); got.In(English) != "THE LIST HAS OVER 7 PAGES" || got.In(Chinese) != text.In(Chinese) {
		t.Errorf("mapped, the text is %q", got)
	}
}
