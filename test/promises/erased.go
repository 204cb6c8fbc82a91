package promises

import (
	"bytes"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"testing"

	"meshddns/internal/reconcile"
	"meshddns/test/support"
)

// What was replaced or deleted is in no octet of the files, and of a copy; a control
// shows that the search finds it.
func (suite database) TestOldSecretsAreErased(t *testing.T) {
	for name, control := range map[string]bool{"erased": false, "without secure_delete": true} {
		t.Run(name, func(t *testing.T) {
			s := suite.filled(t)
			if control {
				support.Exec(t, s.Writer, `PRAGMA secure_delete = off`)
			}
			current := changeSecretsOften(t, s, rand.New(rand.NewPCG(9, 5)))
			s.Settle()
			contents := map[string][]byte{"the copy": s.copy()}
			for _, suffix := range []string{"", "-wal", "-shm"} {
				var err error
				if contents[suffix], err = os.ReadFile(s.Path + suffix); err != nil {
					t.Fatal(err)
				}
			}
			old, known := 0, 0
			for where, content := range contents {
				for _, secret := range oneSecret.FindAllString(string(content), -1) {
					if known++; !current[secret] {
						if old++; !control {
							t.Errorf("%s is in %q", secret, where)
						}
					}
				}
			}
			if known == 0 || control && old == 0 {
				t.Errorf("%d secrets are found, %d of them old: the search finds nothing", known, old)
			}
		})
	}
}

var oneSecret = regexp.MustCompile(`canary[0-9]{5}`)

// withSecret is a configuration with a secret.
func withSecret(secret string) members {
	return members{"provider": "cloudflare", "access_key_id": "token", "access_key_secret": secret, "domain": "example.org", "txt_record_name": "x"}
}

// changeSecretsOften stores, replaces and deletes some hundred secrets, short and long,
// in the configuration and in services, and gives those that are to be there.
func changeSecretsOften(t *testing.T, s *host, random *rand.Rand) map[string]bool {
	t.Helper()
	var made int
	secret := func() string { made++; return fmt.Sprintf("canary%05d", made) }
	services, configured := map[string]string{}, ""
	for range 600 {
		id, err := fmt.Sprint("s", random.IntN(60)), error(nil)
		switch kind := random.IntN(8); {
		case kind == 0:
			configured = secret()
			s.configure(withSecret(configured))
		case kind < 3 && services[id] != "":
			delete(services, id)
			err = s.deleteService(id)
		default:
			services[id] = secret()
			size := random.IntN(600)
			if random.IntN(10) == 0 {
				size = random.IntN(20_000)
			}
			config := fmt.Sprintf(`{"domain":"example.com","provider":"cloudflare","access_key_id":"%s","access_key_secret":"%s","note":"%s"}`,
				id, services[id], strings.Repeat("n", size))
			err = s.putService(id, config)
		}
		support.Must(t, err)
	}
	current := map[string]bool{configured: true}
	for _, secret := range services {
		current[secret] = true
	}
	return current
}

// The key that a place was published with goes with the last that needs it.
func (suite database) TestKeysOfEndedPlacesGo(t *testing.T) {
	for name, end := range map[string]func(s *host) error{
		"ended": func(s *host) error {
			return s.Ledger.Settle(t.Context(), reconcile.Settlement{Ended: []reconcile.Place{{ID: 5, Account: reconcile.Account{ID: 7}}}})
		},
		"forgotten": func(s *host) error { return s.Ledger.ForgetLeftover(t.Context(), 5) },
	} {
		t.Run(name, func(t *testing.T) {
			s := suite.filled(t)
			support.Exec(t, s.Writer, `
				INSERT INTO accounts VALUES (7, 'cloudflare', '', 'token', 'canary00001', 'hash');
				INSERT INTO places VALUES (5, 'a.example.com', '', '', 7, 'example.com', '', 'leftover', 'x', '', '', 0, 0, '', '', '', 0, '', '')`)
			support.Must(t, end(s))
			s.Settle()
			for _, suffix := range []string{"", "-wal"} {
				if content, err := os.ReadFile(s.Path + suffix); err != nil || bytes.Contains(content, []byte("canary")) {
					t.Errorf("%q has the secret, %v", suffix, err)
				}
			}
		})
	}
}

// A reader that holds the log keeps no change waiting; the log is emptied once it has
// gone.
func (suite database) TestSecretsGoWhenTheLogIsFree(t *testing.T) {
	s := suite.filled(t)
	held, err := s.Reader.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
	support.Must(t, err)
	defer held.Rollback()
	support.Must(t, held.QueryRow(`SELECT count(*) FROM services`).Scan(new(int)))
	s.configure(withSecret("canary00001"))
	s.configure(withSecret("another"))
	if log, err := os.Stat(s.Path + "-wal"); err != nil || log.Size() == 0 {
		t.Fatal("the log is empty while it is read", err)
	}
	support.Must(t, held.Rollback())
	s.Settle()
	for _, suffix := range []string{"", "-wal"} {
		if content, err := os.ReadFile(s.Path + suffix); err != nil || bytes.Contains(content, []byte("canary")) {
			t.Errorf("%q has the secret, %v", suffix, err)
		}
	}
}
