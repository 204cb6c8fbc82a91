package hostaddr

import (
	"slices"

	"meshddns/internal/msg"
	"meshddns/internal/secrets"
	"meshddns/internal/sqlite"
)

// ShownSource is a source in an answer.
type ShownSource struct {
	Source  string  `json:"source"`
	IPv4    string  `json:"ipv4"`
	IPv6    string  `json:"ipv6"`
	Verdict Verdict `json:"verdict"`
	Since   string  `json:"since"`
	Error   string  `json:"error"`
}

// Sources returns the sources as answers show them: ipv4 and ipv6 of the flags of these names, then the named ones.
func (b *Book) Sources(language msg.Language) (all []ShownSource) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, e := range b.entries {
		name := e.row()
		at := slices.IndexFunc(all, func(s ShownSource) bool { return s.Source == name })
		if at < 0 {
			at = len(all)
			all = append(all, ShownSource{Source: name, Verdict: None})
		}
		e.addTo(&all[at], language)
	}
	return all
}

// row returns the source's name in an answer.
func (e *entry) row() string {
	if e.name != "" {
		return e.name
	}
	return e.source.family.member()
}

// member returns the family's name in an answer.
func (f Family) member() string {
	if f == IPv4 {
		return "ipv4"
	}
	return "ipv6"
}

// addTo adds a family to the row of its source. The row has the most telling verdict of its families, the time of
// the last change of one, and the errors of both.
func (e *entry) addTo(s *ShownSource, language msg.Language) {
	if e.last.IsValid() {
		address := &s.IPv4
		if e.source.family == IPv6 {
			address = &s.IPv6
		}
		*address = e.last.String()
	}
	if slices.Index(verdicts, e.verdict) < slices.Index(verdicts, s.Verdict) {
		s.Verdict = e.verdict
	}
	s.Since = max(s.Since, sqlite.Shown(e.since))
	switch note := secrets.ScrubLine(e.note.In(language), 400); {
	case note == s.Error: // both fail for one reason
	case s.Error != "" && note != "":
		s.Error += "; " + note
	case note != "":
		s.Error = note
	}
}
