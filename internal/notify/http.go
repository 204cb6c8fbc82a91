package notify

import (
	"net/http"

	"meshddns/internal/answers"
	"meshddns/internal/envelope"
	"meshddns/internal/msg"
	"meshddns/internal/strictjson"
)

// members are the members of a target that requests and answers have.
var members = strictjson.Fields[shownTarget]()

// List answers with all targets.
func (s *Sender) List(r *http.Request) (envelope.Reply, error) {
	targets, err := s.Table.Targets(r.Context())
	all := []shownTarget{}
	for _, t := range targets {
		all = append(all, shown(t, envelope.Language(r)))
	}
	return envelope.Reply{Data: all}, err
}

// Show answers with one target.
func (s *Sender) Show(r *http.Request) (envelope.Reply, error) {
	t, err := s.Table.Target(r.Context(), r.PathValue("id"))
	return envelope.Reply{Data: shown(t, envelope.Language(r))}, err
}

// Put creates or replaces a target.
func (s *Sender) Put(r *http.Request) (envelope.Reply, error) {
	var body Body
	given, err := envelope.DecodeMembers(r, &body)
	if err != nil {
		return envelope.Reply{}, err
	}
	body.ID = r.PathValue("id")
	t, err := body.Check(envelope.Language(r))
	if err != nil {
		return envelope.Reply{}, err
	}
	saved, err := s.Table.Save(r.Context(), t)
	return envelope.Reply{Message: msg.NotificationSaved, Data: struct {
		shownTarget
		Warnings []string `json:"warnings,omitempty"`
	}{shown(saved, envelope.Language(r)), answers.WarningTexts(answers.WarnMembers(given, members), envelope.Language(r))}}, err
}

// Delete deletes a target.
func (s *Sender) Delete(r *http.Request) (envelope.Reply, error) {
	return envelope.Reply{Message: msg.NotificationDeleted}, s.Table.Delete(r.Context(), r.PathValue("id"))
}

// Test sends a message now, and answers with the outcome. A success also makes a target that is
// stopped, or waits for its next try, try at once.
func (s *Sender) Test(r *http.Request) (envelope.Reply, error) {
	t, err := s.Table.Target(r.Context(), r.PathValue("id"))
	if err != nil {
		return envelope.Reply{}, err
	}
	ctx, cancel, err := envelope.Wait(r, callTime)
	defer cancel()
	if err != nil {
		return envelope.Reply{}, err
	}
	result := send(ctx, t, message{language: t.Language, test: true}, s.Table.now())
	if result.ok() && t.state != OK {
		err = s.Table.restart(r.Context(), t)
	}
	return envelope.Reply{Data: struct {
		OK      bool   `json:"ok"`
		Status  int    `json:"status"`
		Message string `json:"message"`
	}{result.ok(), result.status, result.text(envelope.Language(r))}}, err
}
