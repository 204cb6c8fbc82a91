package listing

import (
	"bytes"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"meshddns/sqlrow"
)

func FuzzAppendString(f *testing.F) {
	f.Add("a\"b\\c/<>&\x00\x1f\x7f\b\f\n\r\t \u2028\u2029\u2027 \xff\xe2\x80 \xed\xa0\x80 文\U0001f600")
	f.Fuzz(func(t *testing.T, text string) {
		if got, want := string(appendString(nil, text)), standard(t, text); got != want {
			t.Errorf("%q is %s, want %s", text, got, want)
		}
	})
}

// standard is what encoding/json makes of a value.
func standard(t *testing.T, value any) string {
	t.Helper()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		t.Fatal(err)
	}
	return string(bytes.TrimSuffix(out.Bytes(), []byte("\n")))
}

// alphabet has what JSON escapes, what is not UTF-8, and what is nearly either.
var alphabet = []string{"a", "~", " ", `"`, `\`, "/", "<", "\x00", "\x1e", "\x1f", "\x7f", "\n", "\t", "é", "\u2027", "\u2028", "\u2029", "\ufffd", "\xff", "\xe2\x80", "😀"}

// An entry is what encoding/json makes of it, whatever is in it.
func TestAppend(t *testing.T) {
	random := rand.New(rand.NewPCG(8, 1))
	text := func() (s string) {
		for range random.IntN(12) {
			s += alphabet[random.IntN(len(alphabet))]
		}
		return s
	}
	for range 5000 {
		u := Usage{
			ID: text(), ProviderID: text(), Mode: text(), Prefix: text(), RecordType: text(), Description: text(),
			IsOccupied: random.IntN(2) == 0, FullDomain: text(),
		}
		if random.IntN(4) > 0 {
			n := sqlrow.NetworkID(random.Uint64() >> random.IntN(64))
			u.NetworkID = &n
		}
		if random.IntN(4) > 0 {
			u.Provider = &Provider{ID: text(), Name: text()}
		}
		if got, want := string(Append([]byte("x"), &u)), "x"+standard(t, u); got != want {
			t.Fatalf("%s\nwant %s", got, want)
		}
	}
}

// A page is read when it has as many rows and fields as it must.
func TestAll(t *testing.T) {
	const whole = "7\x1fid\x1fsvc\x1fauto\x1fp\x1fd\x1f1\x1f-1\x1fexample.com\x1f="
	const page = whole + "\x1e" + "8\x1f\x1f\x1f\x1f\x1f\x1f0\x1f\x1f\x1f"
	if !Whole(page, 2) {
		t.Fatal("two rows are not two")
	}
	all, last := AppendAll(nil, All(page, 2))
	if want := `{"id":"id","provider_id":"svc","prefix_mode":"auto","record_prefix":"p","record_type":"TXT",` +
		`"description":"d","is_occupied":true,"network_id":18446744073709551615,"full_domain":"","provider":{"id":"svc","name":""}}` + "\n" +
		`,{"id":"","provider_id":"","prefix_mode":"","record_prefix":"","record_type":"TXT","description":"","is_occupied":false,"full_domain":""}` + "\n"; string(all) != want || last != 8 {
		t.Errorf("%d %s\nwant 8 %s", last, all, want)
	}
	if first, last := AppendAll(nil, All(page, 1)); !bytes.HasPrefix(all, first) || last != 7 {
		t.Errorf("the first is %d %s", last, first)
	}
	for u := range All(page, 2) {
		if u.Domain != "example.com" {
			t.Errorf("the domain is %q", u.Domain)
		}
		break
	}
	for _, page := range []string{whole + "\x1f", whole + "\x1e", whole + "\x1e" + whole, whole + "\x1e" + whole + "\x1fx", "7", ""} {
		if Whole(page, 1) {
			t.Errorf("%q is one row", page)
		}
	}
	if !Whole("", 0) {
		t.Error("no rows are some")
	}
}

// The list is written as a whole without a limit, however many pages it has; with one,
// the cursor of the next page is there when there is such a page.
func TestWrite(t *testing.T) {
	for _, test := range []struct{ entries, limit, written, cursor int }{
		{0, 0, 0, 0}, {19, 0, 19, 0}, {20, 0, 20, 0}, {60, 0, 60, 0}, {61, 0, 61, 0}, {8000, 0, 8000, 0},
		{0, 5, 0, 0}, {5, 5, 5, 0}, {6, 5, 5, 5}, {60, 5, 5, 5},
	} {
		read := func(after int64, size int) Page {
			var entries []*Usage
			for n := after + 1; n <= int64(test.entries) && len(entries) < size; n++ {
				entries = append(entries, &Usage{Seq: n, ID: strconv.FormatInt(n, 10)})
			}
			return PageOf(entries, nil)
		}
		var out bytes.Buffer
		if err := Write(&out, test.limit, read(0, FirstSize(test.limit)), read); err != nil {
			t.Fatal(err)
		}
		var answer struct {
			Data []Usage `json:"data"`
			Next string  `json:"next_cursor"`
		}
		if err := json.Unmarshal(out.Bytes(), &answer); err != nil {
			t.Fatalf("%+v: %v", test, err)
		}
		for i, u := range answer.Data {
			if u.ID != strconv.Itoa(i+1) {
				t.Fatalf("%+v: entry %d is %s", test, i+1, u.ID)
			}
		}
		if next, _ := strconv.Atoi(answer.Next); len(answer.Data) != test.written || next != test.cursor || answer.Data == nil {
			t.Errorf("%+v: %d entries, then %q", test, len(answer.Data), answer.Next)
		}
	}
}

// A page that cannot be read ends the answer where it is.
func TestWriteFails(t *testing.T) {
	fault := errors.New("no page")
	full := PageOf(slices.Repeat([]*Usage{{Seq: 1}}, firstSize), nil)
	var out bytes.Buffer
	if err := Write(&out, 0, full, func(int64, int) Page { return Page{Err: fault} }); err != fault || json.Valid(out.Bytes()) {
		t.Errorf("%v after %s", err, out.Bytes())
	}
}
