package secondary

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// TestAddresses: an address is that of one host, with or without a port. "" is a refusal.
func TestAddresses(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.1":               "192.0.2.1:53",
		"192.0.2.1:5300":          "192.0.2.1:5300",
		"2001:db8::1":             "[2001:db8::1]:53",
		"[2001:db8::1]":           "[2001:db8::1]:53",
		"[2001:db8::1]:5300":      "[2001:db8::1]:5300",
		"fe80::1%eth0":            "[fe80::1%eth0]:53",
		"::ffff:192.0.2.1":        "192.0.2.1:53",
		"[::ffff:192.0.2.1]:5300": "192.0.2.1:5300",
		"":                        "",
		"host.example":            "",
		"192.0.2.1:0":             "",
		"192.0.2.1:65536":         "",
		"192.0.2.1:":              "",
		"[192.0.2.1]":             "",
		"]]192.0.2.1[[":           "",
		"]]192.0.2.1[[:53":        "",
		"[2001:db8::1":            "",
		"2001:db8::1]":            "",
		"[[2001:db8::1]]":         "",
		"0.0.0.0":                 "",
		"0.0.0.0:53":              "",
		"::":                      "",
		"[::]":                    "",
		"[::]:53":                 "",
		"::ffff:0.0.0.0":          "",
		"224.0.0.1":               "",
		"239.1.2.3:53":            "",
		"ff02::1":                 "",
		"[ff02::1%eth0]:53":       "",
		"255.255.255.255":         "",
	} {
		s, err := Secondary{ID: "a", Address: text}.Check(msg.English)
		if err == nil && s.Address != want || err != nil && want != "" {
			t.Errorf("%q: %s, %v, want %q", text, s.Address, err, want)
		}
	}
}

// TestSecretStaysWithItsKey: a mask keeps the stored secret of a key with the same name, in any letter case, and the
// same algorithm, whatever else changes.
func TestSecretStaysWithItsKey(t *testing.T) {
	w := newWorld(t)
	if _, _, err := w.Apply(t.Context(), []byte(`{"id":"a","address":"10.0.0.1","key_name":"k.example","key_secret":"c2VjcmV0"}`)); err != nil {
		t.Fatal(err)
	}
	for body, want := range map[string]error{
		`{"id":"a","address":"10.0.0.2","key_name":"K.example","key_secret":"********","zones":[]}`:                       nil,
		`{"id":"a","address":"10.0.0.1","key_name":"other.example","key_secret":"********"}`:                              ErrSecretMasked,
		`{"id":"a","address":"10.0.0.1","key_name":"k.example","key_secret":"********","key_algorithm":"hmac-sha512"}`:    ErrSecretMasked,
		`{"id":"new","address":"10.0.0.1","key_name":"k.example","key_secret":"********"}`:                                ErrSecretMasked,
		`{"id":"new","address":"10.0.0.1","key_name":"K.example","key_secret":"b3RoZXI="}`:                                ErrKeyDiffers,
		`{"id":"new","address":"10.0.0.1","key_name":"k.EXAMPLE","key_secret":"c2VjcmV0","key_algorithm":"hmac-sha512"}`:  ErrKeyDiffers,
		`{"id":"same","address":"10.0.0.1","key_name":"k.EXAMPLE","key_secret":"c2VjcmV0","key_algorithm":"hmac-sha256"}`: nil,
		`{"id":"bare","address":"10.0.0.1"}`: nil,
	} {
		if _, _, err := w.Apply(t.Context(), []byte(body)); err != want {
			t.Errorf("%s: %v, want %v", body, err, want)
		}
	}
	for _, s := range w.Known() {
		if s.KeyName != "" && (s.Secret != "c2VjcmV0" || s.key.Name == "") {
			t.Errorf("%s has the secret %q", s.ID, string(s.Secret))
		}
	}
}

// TestRanges: a range has one spelling. "" is a refusal.
func TestRanges(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.5":                      "10.0.0.5/32",
		"10.0.0.5/8":                    "10.0.0.0/8",
		"10.0.0.5/32":                   "10.0.0.5/32",
		"::ffff:10.0.0.5":               "10.0.0.5/32",
		"::ffff:10.0.0.5/104":           "10.0.0.0/8",
		"2001:DB8::1":                   "2001:db8::1/128",
		"2001:db8::1/32":                "2001:db8::/32",
		"0.0.0.0/0":                     "0.0.0.0/0",
		"::/0":                          "::/0",
		"10.0.0.0/25 10.0.0.128/25":     "10.0.0.0/25 10.0.0.128/25",
		"0.0.0.0/0 ::/0":                "0.0.0.0/0 ::/0",
		"::ffff:10.0.0.5/95":            "",
		"fe80::1%eth0":                  "",
		"10.0.0.5/33":                   "",
		"10.0.0.5:53":                   "",
		"10.0.0.5-10.0.0.9":             "",
		"host.example":                  "",
		" ":                             "",
		"10.0.0.5 10.0.0.5":             "",
		"10.0.0.5 10.0.0.5/31":          "",
		"10.0.0.5/8 192.0.2.1 10.0.0.5": "",
	} {
		s, err := Secondary{ID: "a", Address: "10.0.0.1", From: strings.Split(text, " "), KeyName: "k", Secret: "c2VjcmV0"}.Check(msg.English)
		if got := strings.Join(s.From, " "); err == nil && got != want || err != nil && want != "" {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := (Secondary{ID: "a", Address: "10.0.0.1", From: []string{"10.0.0.1"}}).Check(msg.English); err == nil || !strings.Contains(err.Error(), "from needs a key") {
		t.Errorf("ranges without a key: %v", err)
	}
}

// TestRangesOfOthers: the ranges of secondaries with one key have no address in common, and none is the address of another
// one. Keys are compared as names of DNS.
func TestRangesOfOthers(t *testing.T) {
	w := newWorld(t)
	put := func(id, address, key, from string) error {
		_, _, err := w.Apply(t.Context(), fmt.Appendf(nil, `{"id":%q,"address":%q,"key_name":%q,"key_secret":"c2VjcmV0","from":[%s]}`, id, address, key, from))
		return err
	}
	if err := cmp.Or(put("a", "10.0.0.1", "k.example", `"10.1.0.0/16","2001:db8::/32"`), put("b", "10.0.0.2", "k.example", ``)); err != nil {
		t.Fatal(err)
	}
	const shared = `the secondary "a" has the same key, and addresses in common: give each secondary a key of its own`
	for _, test := range []struct{ address, key, from, want string }{
		{"10.0.0.1", "k.example", ``, ""}, // as before there were ranges
		{"10.0.0.1", "k.example", `"10.2.0.0/16"`, ""},
		{"10.0.0.3", "k.example", `"10.1.2.3"`, shared},
		{"10.0.0.3", "K.Example.", `"10.0.0.0/8"`, shared},
		{"10.0.0.3", "k.example", `"192.0.2.1","2001:db8::1"`, shared},
		{"10.0.0.3", "k.example", `"10.0.0.1"`, shared},
		{"10.1.0.1", "k.example", ``, shared},
		{"10.1.0.1", "other.example", `"0.0.0.0/0","::/0"`, ""},
		{"10.0.0.3", "k.example", `"10.0.0.2/31"`, strings.Replace(shared, `"a"`, `"b"`, 1)},
		{"10.0.0.3", "k.example", `"10.2.0.0/16","2001:db9::/32"`, ""},
	} {
		err := put("c", test.address, test.key, test.from)
		if err == nil && test.want != "" || err != nil && err.Error() != test.want {
			t.Errorf("%+v: %v", test, err)
		}
	}
	if err := put("a", "10.0.0.1", "k.example", `"10.1.0.0/17","10.0.0.1"`); err != nil { // its own ones are not in the way
		t.Error(err)
	}
}

// TestMembers: what a body leaves open has its default, and names and addresses have one spelling. An answer masks
// the secret.
func TestMembers(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":"a","address":"10.0.0.1"}`:                                                                    `{"id":"a","address":"10.0.0.1:53","from":[],"key_name":"","key_secret":"","key_algorithm":"hmac-sha256","zones":["*"],"notify":true}`,
		`{"id":"a","address":"10.0.0.1","notify":false}`:                                                     `{"id":"a","address":"10.0.0.1:53","from":[],"key_name":"","key_secret":"","key_algorithm":"hmac-sha256","zones":["*"],"notify":false}`,
		`{"id":"a","address":"10.0.0.1","zones":[]}`:                                                         `{"id":"a","address":"10.0.0.1:53","from":[],"key_name":"","key_secret":"","key_algorithm":"hmac-sha256","zones":[],"notify":true}`,
		`{"id":"a","address":"10.0.0.1","zones":["A.Example.","*"]}`:                                         `{"id":"a","address":"10.0.0.1:53","from":[],"key_name":"","key_secret":"","key_algorithm":"hmac-sha256","zones":["a.example","*"],"notify":true}`,
		`{"id":"a","address":"10.0.0.1","from":["10.1.2.3/8","::1"],"key_name":"K","key_secret":"c2VjcmV0"}`: `{"id":"a","address":"10.0.0.1:53","from":["10.0.0.0/8","::1/128"],"key_name":"K","key_secret":"` + secrets.Mask + `","key_algorithm":"hmac-sha256","zones":["*"],"notify":true}`,
		`{"id":"a","address":"::1","key_name":"K","key_secret":"c2VjcmV0","key_algorithm":"hmac-sha512"}`:    `{"id":"a","address":"[::1]:53","from":[],"key_name":"K","key_secret":"` + secrets.Mask + `","key_algorithm":"hmac-sha512","zones":["*"],"notify":true}`,
	} {
		w := newWorld(t)
		if _, changed, err := w.Apply(t.Context(), []byte(body)); err != nil || !changed {
			t.Errorf("%s: %v, %v", body, changed, err)
			continue
		}
		stored, err := w.One(t.Context(), "a")
		got, _ := json.Marshal(stored)
		if err != nil || string(got) != want {
			t.Errorf("%s: %s, %v, want %s", body, got, err, want)
		}
		if _, changed, err := w.Apply(t.Context(), got); err != nil || changed {
			t.Errorf("%s is a change: %v", got, err)
		}
	}
}

// TestFaultOfTheTable: while the secondaries cannot be read, none may transfer. They are read again at the next look,
// and told of the zones.
func TestFaultOfTheTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.serials["example.com"] = 7
		w.exec(`CREATE TRIGGER broken AFTER INSERT ON secondaries BEGIN UPDATE secondaries SET address = 'broken' WHERE id = new.id; END`)
		s, err := Secondary{ID: "a", Address: "127.0.0.1:1"}.Check(msg.English)
		if err == nil {
			_, err = w.Save(t.Context(), s)
		}
		if err != nil || w.Any() {
			t.Fatalf("%v, known: %+v", err, w.Known())
		}
		told := false
		w.asked = func() { told = true }
		w.run()
		synctest.Wait()
		w.exec(`UPDATE secondaries SET address = '127.0.0.1:1'`)
		if <-time.After(lookEvery - time.Second); w.Any() {
			t.Error("the secondary is known before the next look")
		}
		<-time.After(2 * time.Second)
		if synctest.Wait(); !w.Any() || !told {
			t.Errorf("known: %+v, told: %v", w.Known(), told)
		}
	})
}
