package notify

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"meshddns/internal/answers"
	"meshddns/internal/events"
	"meshddns/internal/msg"
	"meshddns/internal/secrets"
)

// maxListed is the number of events that a message for people lists.
const maxListed = 20

// timeForm is the form of times in messages.
const timeForm = "2006-01-02 15:04:05 UTC"

// separators stand between the parts of a line, by language.
var separators = map[msg.Language]string{msg.Chinese: "；", msg.English: "; "}

// message is what a target is told at once.
type message struct {
	language msg.Language
	events   []events.Event // in order; the first ones if there are more
	more     int            // events that are not in events
	test     bool
}

// title returns the title. It has the word that a receiver with a keyword asks for.
func (m message) title() string {
	switch {
	case m.test:
		return msg.MessageTest.In(m.language)
	case len(m.events)+m.more == 1:
		return "meshddns: " + kindText(m.events[0].Kind, m.language)
	}
	return msg.MessageTitles.In(m.language, len(m.events)+m.more)
}

// body returns a line for each event, in at most room octets, and says how many are left out.
func (m message) body(room int) string {
	if m.test {
		return msg.MessageTestBody.In(m.language)
	}
	const reserve = 64 // for the line about the rest
	var lines []string
	more := m.more
	for i, e := range m.events {
		text := line(e, m.language)
		if room -= len(text) + 1; room < reserve && i > 0 || i == maxListed {
			more += len(m.events) - i
			break
		}
		lines = append(lines, text)
	}
	if more > 0 {
		lines = append(lines, msg.MessageMore.In(m.language, more))
	}
	return strings.Join(lines, "\n")
}

// text returns title and body in at most room octets.
func (m message) text(room int) string {
	title := m.title()
	return title + "\n" + m.body(room-len(title)-1)
}

// kindText returns the name of a kind of event.
func kindText(k events.Kind, language msg.Language) string { return msg.ID(k).In(language) }

// line returns the line of an event: when, what, the name with its network, the value, and why.
func line(e events.Event, language msg.Language) string {
	words := []string{e.At.UTC().Format(timeForm)}
	if e.Kind == events.Gap {
		words = append(words, msg.MessageGap.In(language, e.Detail.To-e.Detail.From+1))
		return strings.Join(words, " ")
	}
	words = append(words, kindText(e.Kind, language))
	about := e.Name
	if about == "" {
		about = e.ServiceID
	}
	if about != "" {
		words = append(words, msg.Printable(about))
	}
	if e.Network.Valid {
		words = append(words, msg.MessageNetwork.In(language, e.Network.V.String()))
	}
	text := strings.Join(words, " ")
	for _, detail := range []string{change(e.Detail), count(e.Detail, language), e.Detail.Fault.In(language)} {
		if detail != "" {
			text += separators[language] + detail
		}
	}
	return clip(text, secrets.MaxPart)
}

// change returns what stood before and after.
func change(d events.Detail) string {
	before, after := valueText(d.Before), valueText(d.After)
	if before != "" && after != "" {
		return before + " -> " + after
	}
	return before + after
}

// count returns the number of changes of a provision file.
func count(d events.Detail, language msg.Language) string {
	if d.Count == 0 {
		return ""
	}
	return msg.MessageCount.In(language, d.Count)
}

// valueText returns a JSON value as a text: a string without its quotes, "" for none.
func valueText(value json.RawMessage) string {
	var text string
	if json.Unmarshal(value, &text) != nil {
		text = string(value)
	}
	return msg.Printable(text)
}

// clip cuts a text that has more than limit octets.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	cut := limit - len("...")
	for !utf8.RuneStart(text[cut]) {
		cut--
	}
	return text[:cut] + "..."
}

// eventsJSON returns the events in the form of GET /api/v1/ddns/events.
func (m message) eventsJSON() []answers.Event {
	all := []answers.Event{}
	for _, e := range m.events {
		all = append(all, answers.NewEvent(e, m.language))
	}
	return all
}

// delivery names the message by the seqs of its first and last event. A test has none.
func (m message) delivery() string {
	if len(m.events) == 0 {
		return "0-0"
	}
	return fmt.Sprintf("%d-%d", m.events[0].Seq, m.events[len(m.events)-1].Seq)
}
