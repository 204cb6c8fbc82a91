package hostaddr

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

func TestParseNamed(t *testing.T) {
	for texts, want := range map[string]string{
		"wan2=interface:ppp1":                           "[{wan2 interface:ppp1 interface:ppp1}]",
		"a=192.0.2.1 a=2001:db8::1":                     "[{a 192.0.2.1 2001:db8::1}]",
		"a=file:/x b=auto a=url:http://u:secret@h/?b=c": "[{a file:/x,url:h file:/x,url:h} {b auto auto}]",
		"a=file:/x a=2001:db8::1":                       "[{a file:/x file:/x,2001:db8::1}]",
		"":                                              "NAME=SOURCE",
		"wan2":                                          "NAME=SOURCE",
		"=auto":                                         "NAME=SOURCE",
		"Wan=auto":                                      "NAME=SOURCE",
		"ipv4=auto":                                     "NAME=SOURCE",
		"a=none":                                        "none stands alone",
		"a=file:":                                       "want the path of a file",
		"a=127.0.0.1":                                   "a: 127.0.0.1 is a loopback address",
		"a=auto a=auto":                                 "a: auto is given twice",
		"a=url:http://h/?secret a=url:http://h/?secret": "a: url:h is given twice",
		"a=https://user:secret@h/":                      "want auto, none",
	} {
		got, err := ParseNamed(strings.Split(texts, " "))
		said := fmt.Sprint(got)
		if err != nil {
			said = err.Error()
		}
		if !strings.Contains(said, want) || strings.Contains(said, "secret") {
			t.Errorf("%s: %s, want %s", texts, said, want)
		}
	}
	for text, want := range map[string]string{"auto,none": "none stands alone", "url:http://h/a,url:http://h/a": "given twice", "192.0.2.1,": "want auto"} {
		if _, err := ParseSource(IPv4, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestAgreed(t *testing.T) {
	for said, want := range map[string]string{
		"a a":       "a",
		"a b":       "differs",
		"a b b":     "b",
		"a a b b":   "differs",
		"a b b a a": "a",
		"a -":       "",
		"- -":       "",
		"a !":       "",
		"a ! a":     "a",
		"a b !":     "differs",
	} {
		var all []told
		for i, word := range strings.Fields(said) {
			o := told{by: origin{text: fmt.Sprint("file:", i), file: "x"}}
			switch word {
			case "!":
				o.err = errors.New("down")
			case "-":
				o.note = "nothing"
			default:
				o.addr = netip.AddrFrom4([4]byte{192, 31, 195, word[0]})
			}
			all = append(all, o)
		}
		f := agreed(all)
		got := string(f.verdict)
		if f.addr.IsValid() {
			got = string(rune(f.addr.As4()[3]))
		}
		if got != want || (f.note == "") != f.addr.IsValid() {
			t.Errorf("%s: %q, %q, want %q", said, got, f.note, want)
		}
	}
}

func TestVerdicts(t *testing.T) {
	for text, want := range map[string]Verdict{
		"192.31.195.7": Public, "2620:4f:8000::7": Public, "10.0.0.1": Private, "fd00::1": Private, "203.0.113.7": Private, "100.63.255.255": Public, "100.64.0.0": CGNAT,
		"100.127.255.255": CGNAT, "100.128.0.0": Public, "192.0.0.0": DSLite, "192.0.0.7": DSLite, "192.0.0.8": Private, "191.255.255.255": Public,
	} {
		if got := verdictOf(netip.MustParseAddr(text)); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	if got := verdictOf(netip.Addr{}); got != None {
		t.Errorf("no address: %s", got)
	}
}

// The errors of both families are told, and once if they are the same.
func TestErrorsOfASource(t *testing.T) {
	for notes, want := range map[[2]string]string{{"", ""}: "", {"a", ""}: "a", {"", "b"}: "b", {"a", "b"}: "a; b", {"a", "a"}: "a"} {
		var s ShownSource
		for i, note := range notes {
			e := entry{source: Source{family: []Family{IPv4, IPv6}[i]}, note: msg.Say(note), verdict: verdicts[0]}
			e.addTo(&s, msg.English)
		}
		if s.Error != want {
			t.Errorf("%q: %q, want %q", notes, s.Error, want)
		}
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "address")
	for text, want := range map[string]string{
		"192.0.2.1":                     "192.0.2.1 invalid IP",
		"\n2001:db8::1 \r\n192.0.2.1\n": "192.0.2.1 2001:db8::1",
		"":                              "invalid IP invalid IP",
		"192.0.2.1\n192.0.2.2":          "two IPv4 addresses",
		"192.0.2.1 192.0.2.2":           "not one address",
		"127.0.0.1":                     "loopback",
		"\ufeff192.0.2.1\n":             "byte order mark (BOM)",
		"::ffff:192.0.2.1":              "not an IPv6 address",
		strings.Repeat("\n", 300):       "too long",
	} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range []Family{IPv4, IPv6} {
			found, err := mustParse(t, f, "file:"+path).look(t.Context())
			if err != nil {
				got = []string{err.Error()}
				break
			}
			got = append(got, found.addr.String())
		}
		if said := strings.Join(got, " "); !strings.Contains(said, want) {
			t.Errorf("%q: %s, want %s", text, said, want)
		}
	}
}

func FuzzParseFile(f *testing.F) {
	f.Add([]byte("192.0.2.1\n2001:db8::1\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, family := range []Family{IPv4, IPv6} {
			if a, err := parseFile(family, text); a.IsValid() && (err != nil || checkAddr(family, a) != nil) {
				t.Errorf("%s, %v", a, err)
			}
		}
	})
}

// namedBook makes a book of a named source, beside one for IPv4 that has two origins.
func namedBook(t *testing.T, last mesh.Addresses) (w *bookWorld, other *teller, file string) {
	t.Helper()
	w, other, file = &bookWorld{}, &teller{}, filepath.Join(t.TempDir(), "address")
	a, b := httptest.NewServer(&w.service), httptest.NewServer(other)
	t.Cleanup(a.Close)
	t.Cleanup(b.Close)
	named, err := ParseNamed([]string{"wan2=file:" + file, "gone=192.0.0.2"})
	if err != nil {
		t.Fatal(err)
	}
	sources := Sources{IPv4: mustParse(t, IPv4, "url:"+a.URL+",url:"+b.URL), Named: named}
	w.Book = NewBook(sources, last, slog.New(slog.NewTextHandler(&w.log, nil)))
	return w, other, file
}

// rows are the sources as the API shows them, without the times.
func (w *bookWorld) rows(t *testing.T, language msg.Language) (all []string) {
	t.Helper()
	for _, s := range w.Sources(language) {
		if s.Since == "" {
			t.Errorf("%s has no time", s.Source)
		}
		s.Since = ""
		text, err := json.Marshal([]any{s.Source, s.IPv4, s.IPv6, s.Verdict, s.Error != ""})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return all
}

// Two web services that differ change nothing, warn once, and are shown.
func TestServicesThatDiffer(t *testing.T) {
	w, other, _ := namedBook(t, mesh.Addresses{})
	w.service.say(home)
	other.say(home)
	w.look(t.Context())
	other.say(away)
	for range 3 {
		w.look(t.Context())
	}
	last, now := w.Known()
	if last.IPv4.String() != home || now.IPv4.IsValid() || w.logged("level=WARN") != 4 || w.logged("the sources differ: url:") != 1 { // the others: the file twice, and DS-Lite
		t.Errorf("last %s, now %s\n%s", last.IPv4, now.IPv4, w.log.String())
	}
	if row := w.rows(t, msg.English)[0]; row != `["ipv4","192.31.195.7","","differs",true]` {
		t.Error(row)
	}
	if text := w.Sources(msg.Chinese)[0].Error; !strings.Contains(text, "各来源的结果不一致：url:") || !strings.Contains(text, home) || !strings.Contains(text, away) {
		t.Errorf("in Chinese: %s", text)
	}
	w.service.say(away)
	w.look(t.Context())
	if row := w.rows(t, msg.English)[0]; row != `["ipv4","192.31.195.8","","public",false]` {
		t.Error(row)
	}
}

// A named source begins with what was stored, keeps it while nothing is found, and one that is gone is forgotten.
func TestNamedSources(t *testing.T) {
	stored := func(name string) mesh.Pair {
		return mesh.Pair{IPv4: netip.MustParseAddr(home), IPv6: netip.MustParseAddr(home6)}
	}
	w, _, file := namedBook(t, mesh.Addresses{Named: map[string]mesh.Pair{"wan2": stored("wan2"), "old": stored("old")}})
	want := []string{`["ipv4","","","none",false]`, `["ipv6","","","none",false]`, `["wan2","192.31.195.7","2620:4f:8000::7","public",false]`, `["gone","","","none",false]`}
	if got := w.rows(t, msg.English); !slices.Equal(got, want) {
		t.Errorf("at the start: %s", got)
	}
	w.look(t.Context())
	want = []string{`["ipv4","","","none",true]`, `["ipv6","","","none",false]`, `["wan2","192.31.195.7","2620:4f:8000::7","public",true]`, `["gone","192.0.0.2","","ds-lite",true]`}
	if got := w.rows(t, msg.English); !slices.Equal(got, want) {
		t.Errorf("without the file: %s", got)
	}
	if err := os.WriteFile(file, []byte("100.64.0.1\n2620:4f:8000::8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w.look(t.Context())
	if got := w.rows(t, msg.English)[2]; got != `["wan2","100.64.0.1","2620:4f:8000::8","cgnat",true]` {
		t.Error(got)
	}
	saved := w.shelf.all()
	if len(saved) != 2 || len(saved[0].Named) != 2 || saved[1].Named["wan2"].IPv4.String() != "100.64.0.1" || len(w.All()) != 0 {
		t.Errorf("saved %v, own addresses %v", saved, w.All())
	}
}
