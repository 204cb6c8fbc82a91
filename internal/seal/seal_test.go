package seal

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
)

// line is a key of equal octets, as a file has it.
func line(octet byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{octet}, 32))
}

func read(t *testing.T, text string) Keys {
	t.Helper()
	k, err := Read(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func open(k Key, text any, table, row, column string) (string, error) {
	secret := "before"
	err := k.Open(&secret, table, &row, column).Scan(text)
	return secret, err
}

func TestRead(t *testing.T) {
	sum := sha256.Sum256(bytes.Repeat([]byte{1}, 32))
	one := hex.EncodeToString(sum[:4])
	two := read(t, line(2)).First.ID
	for text, want := range map[string]string{
		line(1):                                one + " ",
		line(1) + "\n":                         one + " ",
		line(1) + "\n\n" + line(2):             one + " " + two,
		" " + line(1) + "\r\n" + line(2) + " ": one + " " + two,
		"none\n" + line(2) + "\n":              " " + two,
		"none":                                 " ",
	} {
		if k := read(t, text); k.First.ID+" "+k.Old.ID != want {
			t.Errorf("%q: %q and %q", text, k.First.ID, k.Old.ID)
		}
	}
}

// TestReadMistakes: a file is refused without telling what is in it.
func TestReadMistakes(t *testing.T) {
	short, long := base64.StdEncoding.EncodeToString(make([]byte, 31)), base64.StdEncoding.EncodeToString(make([]byte, 33))
	for text, want := range map[string]string{
		"":                     "want one or two lines",
		short:                  "want one or two lines",
		long:                   "want one or two lines",
		line(1)[:43]:           "want one or two lines",
		line(1) + "\n" + short: "want one or two lines",
		line(1) + "\nnone":     "want one or two lines",
		line(1) + "\n" + line(2) + "\n" + line(3):           "want one or two lines",
		line(1)[:22] + "\n" + line(1)[22:]:                  "want one or two lines",
		"none\n" + line(2) + "\n" + line(3):                 "want one or two lines",
		line(1) + "\n" + line(2)[:20] + "\n" + line(2)[20:]: "want one or two lines",
		strings.Repeat("x", 1<<20):                          "want one or two lines",
		line(1) + "\n" + line(1):                            "the same key twice",
	} {
		_, err := Read(strings.NewReader(text))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
		if err != nil && strings.Contains(err.Error(), "AQEB") {
			t.Errorf("the error tells the key: %v", err)
		}
	}
}

func TestFind(t *testing.T) {
	k := read(t, line(1)+"\n"+line(2))
	for _, id := range []string{"", k.First.ID, k.Old.ID} {
		if found, err := k.Find(id); err != nil || found.ID != id {
			t.Errorf("%q: %q, %v", id, found.ID, err)
		}
	}
	if _, err := k.Find("01234567"); err == nil || !strings.Contains(err.Error(), "01234567") || !strings.Contains(err.Error(), "-seal-key") {
		t.Error("a key that is not there:", err)
	}
}

// TestPlaces: a sealed secret opens in its place with its key only, and nothing of it can be changed.
func TestPlaces(t *testing.T) {
	k := read(t, line(1)+"\n"+line(2))
	const secret = "s3cr3t\x00 ü"
	sealed := k.First.Seal(secret, "t", "1", "c")
	if again := k.First.Seal(secret, "t", "1", "c"); again == sealed || strings.Contains(sealed, "s3cr3t") {
		t.Error("equal secrets are equal when sealed, or in clear:", sealed)
	}
	if opened, err := open(k.First, sealed, "t", "1", "c"); opened != secret || err != nil {
		t.Errorf("%q, %v", opened, err)
	}
	wrong := map[string][4]string{
		"another table": {sealed, "u", "1", "c"}, "another row": {sealed, "t", "2", "c"}, "another column": {sealed, "t", "1", "d"},
		"a longer row": {sealed, "t", "1\x00c", ""}, "no base64": {"%", "t", "1", "c"}, "a short one": {"AAAA", "t", "1", "c"}, "not sealed": {secret, "t", "1", "c"},
	}
	raw, _ := base64.StdEncoding.DecodeString(sealed)
	for i := range raw {
		flipped := bytes.Clone(raw)
		flipped[i] ^= 1
		wrong[fmt.Sprint("octet ", i)] = [4]string{base64.StdEncoding.EncodeToString(flipped), "t", "1", "c"}
	}
	for name, w := range wrong {
		if opened, err := open(k.First, w[0], w[1], w[2], w[3]); opened != "" || err == nil || strings.Contains(err.Error(), "s3cr3t") {
			t.Errorf("%s: %q, %v", name, opened, err)
		} else if !strings.Contains(err.Error(), "table "+w[1]) || !strings.Contains(err.Error(), fmt.Sprintf("row %q", w[2])) || !strings.Contains(err.Error(), k.First.ID) {
			t.Errorf("%s: the error does not say where: %v", name, err)
		}
	}
	if opened, err := open(k.Old, sealed, "t", "1", "c"); opened != "" || err == nil {
		t.Errorf("another key: %q, %v", opened, err)
	}
}

// TestNoKey: nothing is sealed without a key, and the empty text never is.
func TestNoKey(t *testing.T) {
	k := read(t, line(1)).First
	var none Key
	if sealed := none.Seal("secret", "t", "1", "c"); sealed != "secret" || k.Seal("", "t", "1", "c") != "" {
		t.Error(sealed)
	}
	for _, c := range []struct {
		key    Key
		stored any
		want   string
	}{{none, "secret", "secret"}, {none, "", ""}, {k, "", ""}, {k, nil, ""}} {
		if opened, err := open(c.key, c.stored, "t", "1", "c"); opened != c.want || err != nil {
			t.Errorf("%q: %q, %v", c.stored, opened, err)
		}
	}
}

func TestHash(t *testing.T) {
	k := read(t, line(1)+"\n"+line(2))
	sum := sha256.Sum256([]byte("x"))
	plain := hex.EncodeToString(sum[:])
	if (Key{}).Hash("x") != plain || (Key{}).Hash("") != "" || k.First.Hash("") != "" {
		t.Error("without a key it is not the SHA-256, or the empty text has a hash")
	}
	hashes := map[string]bool{plain: true, k.First.Hash("x"): true, k.Old.Hash("x"): true, k.First.Hash("y"): true}
	if len(hashes) != 4 || k.First.Hash("x") != read(t, line(1)).First.Hash("x") {
		t.Error("hashes are equal that differ, or differ that are equal")
	}
}

// TestPrinted: no verb prints a key.
func TestPrinted(t *testing.T) {
	k := read(t, line(1)+"\n"+line(2))
	k.First.Hash("x")
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%x", "%q"} {
		said := strings.ToLower(fmt.Sprintf(verb, k) + fmt.Sprintf(verb, &k) + fmt.Sprintf(verb, k.First))
		for _, part := range []string{strings.Repeat("01", 8), strings.Repeat("02", 8), "1 1 1 1", "0x1, 0x1", "aqebaq"} {
			if strings.Contains(said, part) {
				t.Errorf("%s prints %q: %s", verb, part, said)
			}
		}
	}
}

func FuzzOpen(f *testing.F) {
	k, err := Read(strings.NewReader(line(1)))
	if err != nil {
		f.Fatal(err)
	}
	f.Add("secret", k.First.Seal("secret", "t", "1", "c"))
	f.Fuzz(func(t *testing.T, secret, stored string) {
		if opened, err := open(k.First, k.First.Seal(secret, "t", secret, "c"), "t", secret, "c"); opened != secret || err != nil {
			t.Errorf("%q opens as %q, %v", secret, opened, err)
		}
		if opened, err := open(k.First, stored, "t", "2", "c"); opened != "" || (err == nil) != (stored == "") {
			t.Errorf("%q opens as %q, %v", stored, opened, err)
		}
	})
}
