package secondary

import (
	"encoding/json"
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

// TestMembers: what a body leaves open has its default, and names and addresses have one spelling. An answer masks
// the secret.
func TestMembers(t *testing.T) {
	for body, want := range map[string]string{
		`{"id":"a","address":"10.0.0.1"}`:                                                                 `{"id":"a","address":"10.0.0.1:53","key_name":"","key_secret":"","key_algorithm":"hmac-sha256","zones":["*"]}`,
		`{"id":"a","address":"10.0.0.1","zones":[]}`:                                                      `{"id":"a","address":"10.0.0.1:53","key_name":"","key_secret":"","key_algorithm":"hmac-sha256","zones":[]}`,
		`{"id":"a","address":"10.0.0.1","zones":["A.Example.","*"]}`:                                      `{"id":"a","address":"10.0.0.1:53","key_name":"","key_secret":"","key_algorithm":"hmac-sha256","zones":["a.example","*"]}`,
		`{"id":"a","address":"::1","key_name":"K","key_secret":"c2VjcmV0","key_algorithm":"hmac-sha512"}`: `{"id":"a","address":"[::1]:53","key_name":"K","key_secret":"` + secrets.Mask + `","key_algorithm":"hmac-sha512","zones":["*"]}`,
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
