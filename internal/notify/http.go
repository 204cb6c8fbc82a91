package notify

import (
	"net/http"
	"strings"

	"meshddns/internal/msg"
	"meshddns/internal/web"
)

// List answers with all targets.
func (n *Table) List(r *http.Request) (web.Reply, error) { return n.Table.List(r, shown) }

// Show answers with one target.
func (n *Table) Show(r *http.Request) (web.Reply, error) { return n.Table.Show(r, shown) }

// Put creates or replaces a target.
func (n *Table) Put(r *http.Request) (web.Reply, error) {
	return n.Table.Put(r, func(t Target, warnings []string, language msg.Language) any {
		return shown(t, append(warnings, t.warnings(language)...), language)
	})
}

// Test sends a message now, and answers with the outcome, or for an address of another form with that. A success also makes a target that is
// stopped, or waits for its next try, try at once.
func (s *Sender) Test(r *http.Request) (web.Reply, error) {
	t, err := s.Targets.One(r.Context(), r.PathValue("id"))
	if err != nil {
		return web.Reply{}, err
	}
	ctx, cancel, err := web.Wait(r, callTime)
	defer cancel()
	if err != nil {
		return web.Reply{}, err
	}
	result := send(ctx, t, message{language: languages[t.Language], test: true}, s.Targets.now())
	if result.ok() && t.state != OK {
		err = s.Targets.restart(r.Context(), t)
	}
	said := result.text(web.Language(r))
	if warnings := t.warnings(web.Language(r)); result.ok() && len(warnings) > 0 {
		said = strings.Join(warnings, "; ")
	}
	return web.Reply{Data: struct {
		OK      bool   `json:"ok"`
		Status  int    `json:"status"`
		Message string `json:"message"`
	}{result.ok(), result.status, said}}, err
}
