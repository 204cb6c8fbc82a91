package msg

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestPreferred(t *testing.T) {
	for header, want := range map[string]Language{
		"":                             Chinese,
		"en":                           English,
		"EN-us":                        English,
		"zh-CN,en;q=0.8":               Chinese,
		"en-GB,zh;q=0.9":               English,
		"zh;q=0.4, en;q=0.5":           English,
		"fr":                           Chinese,
		"fr, en;q=0.1":                 English,
		"en;q=0":                       Chinese,
		"en;q=x":                       Chinese,
		"english":                      Chinese,
		"*":                            Chinese,
		"en;q=0.5,zh-Hans;q=0.5,zh-TW": Chinese,
	} {
		if got := Preferred(header); got != want {
			t.Errorf("Preferred(%q) = %v, want %v", header, got, want)
		}
	}
}

// Both languages take the same arguments, in the same order.
func TestTextsAgree(t *testing.T) {
	verbs := regexp.MustCompile(`%[a-z]`)
	for id, text := range texts {
		chinese, english := verbs.FindAllString(text[Chinese], -1), verbs.FindAllString(text[English], -1)
		if text[Chinese] == "" || text[English] == "" || !slices.Equal(chinese, english) {
			t.Errorf("%s: %q and %q do not match", id, text[Chinese], text[English])
		}
	}
}

// english is two words of English in a row: neither a name of the program's nor a
// vendor's term, which have "_", "-", digits, or more capitals than one.
var english = regexp.MustCompile(`(^|[^\w.:/-])([A-Z]?[a-z]['a-z]*)[,;:]? ([a-z]['a-z]*)($|[^\w./-])`)

// quoted is a value within a text.
var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// hasEnglish reports whether a Chinese text has English words in it, beside values.
func hasEnglish(text string) bool { return english.MatchString(quoted.ReplaceAllString(text, `""`)) }

func TestHasEnglish(t *testing.T) {
	for text, want := range map[string]bool{
		"txt_endpoints 中的地址无效：not an endpoint": true, "没有 no such zone": true, "Zone，is": false, "错误：it is": true, "参数 a b": true,
		"字段 \"not a value\" 无效": false, "应为 true 或 false": false, "upsert-only 模式": false, "access_key_id、endpoint": false,
		"HTTP API、AccessKey Secret、IPv4": false, "只能包含字母、数字和 . _ ~ -": false,
	} {
		if hasEnglish(text) != want {
			t.Errorf("%q: %t", text, !want)
		}
	}
}

// No Chinese text has English in it, whatever its arguments are.
func TestChineseIsChinese(t *testing.T) {
	for id, text := range texts {
		if hasEnglish(filled(text[Chinese])) || !regexp.MustCompile(`\p{Han}`).MatchString(text[Chinese]) && id != TypeBool && id != Because {
			t.Errorf("%s: %q", id, text[Chinese])
		}
		if regexp.MustCompile(`\p{Han}`).MatchString(text[English]) {
			t.Errorf("%s: %q", id, text[English])
		}
	}
	for name, text := range providerTexts {
		for _, both := range [][2]string{text.title, text.keyID, text.secret, text.endpoint} {
			if both[0] != both[1] && hasEnglish(both[Chinese]) { // the same in both is the vendor's own term
				t.Errorf("%s: %q", name, both[Chinese])
			}
		}
	}
}

// filled has something in the place of each verb.
func filled(text string) string {
	text = regexp.MustCompile(`%q`).ReplaceAllString(text, `"x y"`)
	text = regexp.MustCompile(`%\+?[.0-9]*[df]`).ReplaceAllString(text, "7")
	text = regexp.MustCompile(`%U`).ReplaceAllString(text, "U+0041")
	text = regexp.MustCompile(`:? ?%w:? ?`).ReplaceAllString(text, "")
	return regexp.MustCompile(`%s`).ReplaceAllString(text, "x.example")
}

// notSaid are texts in the sources of clients that reach no answer: what a vendor
// says, and what goes into a log.
var notSaid = []string{
	"Unauthorized to access requested resource", "application/json, application/xml;q=0.9", "over ratelimit", "Invalid domain*", "Domain is not opted in*",
	"Invalid record ID*", "Create error: We were unable to*", "Edit error: We were unable to*", "Conflicts with pre-existing RRset", "uplicate record",
	"Could not find domain", "does not support editing", "Consumer zones", "Signature expired", "Signature not yet current", "conflicting RRSet of type CNAME",
	"conflicts with other records", "cannot be created as", "already exists", "not found", "values provided do not match", "limit of", "Exceeded limit",
	"Cannot have more than", "meshddns test ",
}

// Every text of ours in a client of a provider has its Chinese.
func TestDetailsAreWhole(t *testing.T) {
	found := 0
	for _, folder := range []string{"internal/provider", "internal/probe", "internal/dnswire", "internal/dnsname", "internal/builtin/builtin.go"} {
		files, err := filepath.Glob(filepath.Join("../..", folder, "*.go"))
		if strings.HasSuffix(folder, ".go") {
			files = []string{filepath.Join("../..", folder)}
		}
		if err != nil || len(files) == 0 {
			t.Fatal(folder, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			for _, text := range literals(t, file) {
				if !hasEnglish(text) || slices.Contains(notSaid, text) {
					continue
				}
				found++
				whole := filled(text)
				if strings.HasSuffix(whole, " ") {
					whole += "x.example"
				}
				if strings.HasPrefix(whole, " ") {
					whole = "x.example" + whole
				}
				if said := Detail(whole, Chinese); hasEnglish(said) {
					t.Errorf("%s: %q is %q in Chinese", file, text, said)
				}
			}
		}
	}
	if found < 100 {
		t.Errorf("%d texts, want more than 100", found)
	}
}

// literals are the texts in a source.
func literals(t *testing.T, file string) (all []string) {
	t.Helper()
	source, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(source, func(n ast.Node) bool {
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

// What a provider says stays, and so does all of it in English.
func TestDetail(t *testing.T) {
	for text, want := range map[string]string{
		`DescribeDomains at dns.example:443: HTTP 400: Code.X: Your key has no balance (request 1-2)`: `DescribeDomains（dns.example:443）：HTTP 400: Code.X: Your key has no balance (request 1-2)`,
		`list zones at 127.0.0.1:1: dial tcp 127.0.0.1:1: connect: connection refused`:                `列出区域（127.0.0.1:1）：连接 127.0.0.1:1: connect: 连接被拒绝`,
		`the account has no zone that contains "a b.example"`:                                         `账号下没有包含 "a b.example" 的区域`,
		`update 3 names, a.x to c.x, in zone x at 127.0.0.1:53: NOTAUTH: the server does not accept the key, or the key's name, algorithm or secret, or the clock, is wrong: answer carries no TSIG`: `更新区域 x 中的 3 个名称，a.x 至 c.x（127.0.0.1:53）: NOTAUTH: 服务器不接受该密钥，或者密钥名称、算法、内容或时钟有误: 应答未带 TSIG`,
		`endpoint: "a b" is not host or host:port`: `endpoint: "a b" 不是 host 或 host:port`,
	} {
		if got := Detail(text, Chinese); got != want {
			t.Errorf("%q\nis   %q\nwant %q", text, got, want)
		}
		if got := Detail(text, English); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}

// pattern is a phrase of the table as a regular expression.
func pattern(english string) *regexp.Regexp {
	const word = `("(?:[^"\\]|\\.)*"|[^\s]*[^\s:,;])`
	english, first := strings.CutPrefix(english, "^")
	text := strings.ReplaceAll(regexp.QuoteMeta(english), `\*`, word)
	if first {
		text = "^" + text
	}
	return regexp.MustCompile("(?s)" + text)
}

// A phrase is found where a regular expression finds it, in texts made of phrases, words and signs.
func TestPhrasesAreRegular(t *testing.T) {
	var patterns []*regexp.Regexp
	var chinese, pieces []string
	for _, line := range details {
		patterns = append(patterns, pattern(line[0]))
		chinese = append(chinese, regexp.MustCompile(`\$(\d)`).ReplaceAllString(line[1], "$${$1}"))
		pieces = append(pieces, strings.Split(strings.TrimPrefix(line[0], "^"), "*")...)
	}
	pieces = append(pieces, " ", " ", ":", ",", ";", ": ", `"`, `\`, `\"`, "\n", "\t", "\u00a0", "\xff", "域名", "caf\u00e9", "$1",
		"a", "x.example.", "127.0.0.1:53", "7", `"a b"`, `"a \" b:"`, `"a b\\"`, `"unfinished`, `x"y z"`, "at", "::1")
	translated := 0
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(1, seed))
		for i, line := range details {
			p := phraseOf(line)
			text := ""
			for range random.IntN(4) {
				text += pieces[random.IntN(len(pieces))]
			}
			for range 1 + random.IntN(3) {
				for n, part := range p.parts {
					for range min(n, 1) * (1 + random.IntN(3)) {
						text += pieces[len(pieces)-1-random.IntN(27)]
					}
					text += part
				}
				text += pieces[random.IntN(len(pieces))]
			}
			want := patterns[i].ReplaceAllString(text, chinese[i])
			if got := p.translate(text); got != want {
				t.Fatalf("%q in %q\nis   %q\nwant %q", line[0], text, got, want)
			}
			if want != text {
				translated++
			}
		}
	}
	if all := 50 * len(details); translated < all/2 || translated == all {
		t.Errorf("%d of %d texts had their phrase: want most", translated, all)
	}
}

// A long word, as a value may be, takes no time that grows with its square.
func TestDetailOfLongWords(t *testing.T) {
	done := make(chan string, 1)
	for _, piece := range []string{"a", `"`, `"a`, ":"} {
		word := strings.Repeat(piece, 1<<20/len(piece))
		go func() { done <- Detail(word+": it has a broken escape", Chinese) }()
		select {
		case <-done:
		case <-time.After(time.Minute):
			t.Fatalf("a megabyte of %q takes over a minute", piece)
		}
	}
}
