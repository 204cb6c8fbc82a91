package lease

import (
	"net/http"
	"time"

	"meshddns/internal/answers"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/sqlite"
	"meshddns/internal/web"
)

// shown is a lease in an answer.
type shown struct {
	ID string `json:"id"`
	mesh.LeaseMembers
	Endpoints   []string `json:"endpoints"`
	RenewedAt   string   `json:"renewed_at"`
	ExpiresAt   string   `json:"expires_at"`
	From        string   `json:"from"`
	LastRefused *refusal `json:"last_refused,omitempty"` // since the last renewal and the start of the program
}

func (t *Table) show(l Lease) shown {
	return shown{
		ID: l.ID, LeaseMembers: l.document().LeaseMembers, Endpoints: listed(l.Endpoints), RenewedAt: Shown(l.RenewedAt), ExpiresAt: Shown(t.ExpiresAt(l.Seq)), From: l.RenewedBy,
		LastRefused: t.clocks.lastRefusal(l.Seq),
	}
}

// Shown returns a time for an answer, "" for none.
func Shown(at time.Time) string {
	if at.IsZero() {
		return ""
	}
	return sqlite.Shown(at)
}

// List reads the leases of a usage for an answer.
func (t *Table) List(r *http.Request) (web.PartReader[string], error) {
	return func(after string, size int) (web.Part[string], error) {
		leases, err := t.OfUsage(r.Context(), r.PathValue("id"), after, size)
		return web.Rows(leases, err, func(l Lease) (string, any, error) { return l.Slot, t.show(l), nil })
	}, nil
}

// Post makes a lease. Only this answer has its token, unless the request has an Idempotency-Key.
func (t *Table) Post(r *http.Request) (web.Reply, error) {
	flags, err := web.Flags(r, "replace")
	if err != nil {
		return web.Reply{}, err
	}
	key, err := answers.ReplayKeyOf(r)
	if err != nil {
		return web.Reply{}, err
	}
	var b mesh.LeaseMembers
	given, err := web.DecodeMembers(r, &b)
	if err != nil {
		return web.Reply{}, err
	}
	rules, err := rulesOf(b)
	if err != nil {
		return web.Reply{}, err
	}
	c := Creation{Usage: r.PathValue("id"), Rules: rules, Replace: flags["replace"]}
	if again := key(); again != nil {
		c.Again = new(again.Of(r.URL.RequestURI()))
	}
	l, token, repeated, err := t.Create(r.Context(), c)
	if err != nil {
		return web.Reply{}, err
	}
	warnings := web.WarnMembers(given, mesh.LeaseMembers{})
	if l.ACME && !repeated && t.config.Refused != nil {
		warnings = append(warnings, t.config.Refused(r.Context(), l.Name)...)
	}
	return web.Reply{Message: msg.LeaseCreated, ID: l.ID, Replayed: repeated, Data: struct {
		ID        string   `json:"id"`
		Slot      string   `json:"slot"`
		Token     Token    `json:"token"`
		ExpiresAt string   `json:"expires_at"`
		Warnings  []string `json:"warnings,omitempty"`
	}{l.ID, l.Slot, token, Shown(t.config.Now().Add(l.TTL)), msg.Texts(warnings, web.Language(r))}}, nil
}

// Remove ends a lease.
func (t *Table) Remove(r *http.Request) (web.Reply, error) {
	return web.Reply{Message: msg.LeaseEnded}, t.Delete(r.Context(), r.PathValue("id"), r.PathValue("lease"))
}
