package notify

import (
	"net/http"

	"meshddns/internal/answers"
	"meshddns/internal/msg"
	"meshddns/internal/strictjson"
	"meshddns/internal/web"
)

// members are the members of a target that requests and answers have.
var members = strictjson.Fields[shownTarget]()

// List answers with all targets.
func (s *Sender) List(r *http.Request) (web.Reply, error) {
	targets, err := s.Table.Targets(r.Context())
	all := []shownTarget{}
	for _, t := range targets {
		all = append(all, shown(t, web.Language(r)))
	}
	return web.Reply{Data: all}, err
}

// Show answers with one target.
func (s *Sender) Show(r *http.Request) (web.Reply, error) {
	t, err := s.Table.Target(r.Context(), r.PathValue("id"))
	return web.Reply{Data: shown(t, web.Language(r))}, err
}

// Put creates or replaces a target.
func (s *Sender) Put(r *http.Request) (web.Reply, error) {
	var body Body
	given, err := web.DecodeMembers(r, &body)
	if err != nil {
		return web.Reply{}, err
	}
	body.ID = r.PathValue("id")
	t, err := body.Check(web.Language(r))
	if err != nil {
		return web.Reply{}, err
	}
	saved, err := s.Table.Save(r.Context(), t)
	return web.Reply{Message: msg.NotificationSaved, Data: struct {
		shownTarget
		Warnings []string `json:"warnings,omitempty"`
	}{shown(saved, web.Language(r)), answers.WarningTexts(answers.WarnMembers(given, members), web.Language(r))}}, err
}

// Delete deletes a target.
func (s *Sender) Delete(r *http.Request) (web.Reply, error) {
	return web.Reply{Message: msg.NotificationDeleted}, s.Table.Delete(r.Context(), r.PathValue("id"))
}

// Test sends a message now, and answers with the outcome. A success also makes a target that is
// stopped, or waits for its next try, try at once.
func (s *Sender) Test(r *http.Request) (web.Reply, error) {
	t, err := s.Table.Target(r.Context(), r.PathValue("id"))
	if err != nil {
		return web.Reply{}, err
	}
	ctx, cancel, err := web.Wait(r, callTime)
	defer cancel()
	if err != nil {
		return web.Reply{}, err
	}
	result := send(ctx, t, message{language: t.Language, test: true}, s.Table.now())
	if result.ok() && t.state != OK {
		err = s.Table.restart(r.Context(), t)
	}
	return web.Reply{Data: struct {
		OK      bool   `json:"ok"`
		Status  int    `json:"status"`
		Message string `json:"message"`
	}{result.ok(), result.status, result.text(web.Language(r))}}, err
}
