package lease

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/web"
)

// documents returns the leases of usage u1 as GET state has them, in the body of a usage.
func (w *world) documents() string {
	w.t.Helper()
	of, stop := w.Documents(w.t.Context())
	defer stop()
	all, err := of(1)
	w.must(err)
	text, err := json.Marshal(struct {
		Leases []mesh.Lease `json:"leases"`
	}{all})
	w.must(err)
	return string(text)
}

// save saves the leases of a provisioning file, and says what came of it: the codes of refusals by their places.
func (w *world) save(body string, prune bool) string {
	w.t.Helper()
	changed, err := w.SaveLeases(w.t.Context(), "u1", []byte(body), prune)
	said := []string{fmt.Sprint(changed)}
	for _, fault := range msg.Faults("", err) {
		if inside, ok := fault.(msg.Inside); ok {
			said = append(said, inside.At+" "+string(web.FailureOf(fault, nil).ID))
		} else if fault != nil {
			said = append(said, fault.Error())
		}
	}
	return strings.Join(said, ", ")
}

// TestDocuments: the leases of a database, saved in a new one, have their tokens: a node renews there as before. What is saved
// once more changes nothing, and no token is in a document.
func TestDocuments(t *testing.T) {
	first, second := newWorld(t), newWorld(t)
	_, token := first.lease(`{"slot":"a","ttl":60,"schemes":["tcp"],"cidrs":["192.0.2.9/24"],"template":["tcp://{ip}:1"],"peer_id":""}`)
	_, other := first.lease(`{"slot":"b","ttl":604800}`)
	document := first.documents()
	if strings.Contains(document, string(token)) || !strings.Contains(document, `"token_hash":"`+token.hash()+`"`) {
		t.Errorf("the document is %s", document)
	}
	for i, want := range []string{"true", "false", "false"} {
		if got := second.save(document, i == 2); got != want || second.documents() != document {
			t.Errorf("saving %d: %s\n%s\nwant\n%s", i, got, second.documents(), document)
		}
	}
	second.renew(token, "tcp://192.0.2.7:1")
	second.renew(other, "tcp://192.0.2.8:1")
	if got := second.told(); got != "lease.created lease.created lease.renewed lease.renewed" {
		t.Errorf("the events are %s", got)
	}
	if got, want := first.save(document, true), "false"; got != want || first.told() != "lease.created lease.created" {
		t.Errorf("where they come from: %s, %s", got, first.told())
	}
}

// TestSaveLeases changes members of a lease whose endpoints stay, and its token, and ends what a list lacks.
func TestSaveLeases(t *testing.T) {
	w := newWorld(t)
	const first, second = "the-first-token-1", "the-second-token"
	body := func(members string) string { return `{"leases":[{"slot":"a",` + members + `}]}` }
	for _, step := range []struct {
		members, want string
		renews        Token
	}{
		{`"ttl":60,"token":"` + first + `"`, "true", first},
		{`"ttl":60,"token":"********"`, "false", first},
		{`"ttl":60,"token_hash":"` + strings.ToUpper(Token(first).hash()) + `"`, "false", first},
		{`"ttl":120,"token":"********"`, "true", first},
		{`"ttl":120,"schemes":["tcp"],"cidrs":["192.0.2.0/24"],"token":"` + first + `"`, "true", first},
		{`"ttl":120,"template":["tcp://{ip}:1"],"peer_id":"12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA","token":"` + first + `"`, "true", first},
		{`"ttl":120,"token":"` + second + `"`, "true", second},
	} {
		if got := w.save(body(step.members), true); got != step.want {
			t.Errorf("%s: %s", step.members, got)
		}
		w.renew(step.renews, "tcp://192.0.2.7:1")
	}
	w.want(`SELECT id || ' ' || ttl || ' ' || endpoints FROM leases`, `l1 120 ["tcp://192.0.2.7:1"]`)
	if _, err := w.try(first); err != ErrUnknown {
		t.Errorf("the replaced token: %v", err)
	}
	before := w.published()
	w.save(body(`"ttl":120,"token":"`+second+`"`), true)
	if w.published() != before {
		t.Error("a name is due although nothing has changed")
	}
	w.save(body(`"ttl":60,"token":"********"`), true)
	if w.published() == before {
		t.Error("the name of a changed lease is not due")
	}
	w.renew(second, "tcp://192.0.2.7:1")
	if left := w.ExpiresAt(1).Sub(w.at); left != time.Minute {
		t.Errorf("%v are left after a renewal, want the new time", left)
	}
	w.want(`SELECT kind FROM events WHERE kind = 'lease.ended'`)
	if kept, ended := w.save(`{"leases":[]}`, false), w.save(`{"leases":[]}`, true); kept != "false" || ended != "true" {
		t.Errorf("without prune %s, with prune %s", kept, ended)
	}
	w.want(`SELECT slot FROM leases`)
	w.want(`SELECT kind FROM events WHERE kind = 'lease.ended'`, "lease.ended")
}

// TestSaveLeasesRefuses: all mistakes in the form are told, each with its place, and nothing is saved; a refusal of what is
// stored keeps the others.
func TestSaveLeasesRefuses(t *testing.T) {
	w := newWorld(t)
	hash := Token("the-first-token-1").hash()
	lease := func(slot, more string) string { return `{"slot":"` + slot + `","ttl":60,` + more + `}` }
	list := func(all ...string) string { return `{"leases":[` + strings.Join(all, ",") + `]}` }
	many := func(count int) string {
		var all []string
		for i := range count {
			all = append(all, lease(fmt.Sprint("s", i), fmt.Sprintf(`"token_hash":"%064x"`, i)))
		}
		return list(all...)
	}
	const prune = "256" // the step that ends all others
	for _, step := range []struct{ name, body, want string }{
		{"15 and 16 characters", list(lease("a", `"token":"123456789012345"`), lease("b", `"token":"1234567890123456"`)), "false, leases.[0] lease_token_invalid"},
		{"white space", list(lease("a", `"token":"1234567890 123456"`)), "false, leases.[0] lease_token_invalid"},
		{"both", list(lease("a", `"token":"12345678901234567","token_hash":"`+hash+`"`)), "false, leases.[0] lease_token_invalid"},
		{"neither", list(lease("a", `"peer_id":""`)), "false, leases.[0] lease_token_invalid"},
		{"no hash", list(lease("a", `"token_hash":"`+hash[2:]+`"`), lease("b", `"token_hash":"`+hash[1:]+`g"`)), "false, leases.[0] lease_token_invalid, leases.[1] lease_token_invalid"},
		{"several of one", list(`{"slot":"A","ttl":59,"cidrs":["x","y"],"token":"x"}`),
			"false, leases.[0] lease_slot_invalid, leases.[0] lease_ttl_invalid, leases.[0] lease_cidrs_invalid, leases.[0] lease_cidrs_invalid, leases.[0] lease_token_invalid"},
		{"a mask of nothing", list(lease("a", `"token":"********"`), lease("b", `"token_hash":"`+hash+`"`)), "true, leases.[0] lease_token_invalid"},
		{"the token of another", list(lease("c", `"token":"the-first-token-1"`), lease("b", `"token_hash":"`+hash+`"`)), "false, leases.[0] lease_token_taken"},
		{"twice", list(lease("c", `"token":"another-token-17x"`), lease("b", `"token":"another-token-17x"`)), "true, leases.[1] lease_token_taken"},
		{prune, many(256), "true"},
		{"one more", many(257), "false, leases.[256] too_many_leases"},
	} {
		if got := w.save(step.body, step.name == prune); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
	if _, err := w.SaveLeases(t.Context(), "nope", []byte(list()), false); err != ErrUnknownUsage {
		t.Errorf("no usage: %v", err)
	}
	w.db.Exec(`UPDATE bindings SET status = 'releasing'`)
	if got := w.save(many(1), false); got != "false, leases.[0] lease_usage_released" {
		t.Errorf("of a usage that is released: %s", got)
	}
}
