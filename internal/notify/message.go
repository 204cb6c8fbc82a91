package notify

import (
	"cmp"
	"fmt"
	"slices"
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

// separators stand between the parts of a line, and colons before its name, by language.
var (
	separators = [2]string{msg.Chinese: "；", msg.English: "; "}
	colons     = [2]string{msg.Chinese: "：", msg.English: ": "}
)

// aboutValue are the kinds of events whose value is the id of what they are about.
var aboutValue = []events.Kind{events.SecondaryBehind, events.SecondaryCaughtUp, events.NotificationStopped}

// counted says what the number of an event counts; others count entries of a provisioning file.
var counted = map[events.Kind]msg.ID{events.SecondaryBehind: msg.MessageZones, events.LeaseHeld: msg.MessageLeases}

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
		return "meshddns: " + msg.ID(m.events[0].Kind).In(m.language)
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

// line returns the line of an event: when, what, whose, where, how many, why, and what has changed.
func line(e events.Event, language msg.Language) string {
	text := e.At.UTC().Format(timeForm) + " "
	if e.Kind == events.Gap {
		return text + msg.MessageGap.In(language, e.Detail.To-e.Detail.From+1)
	}
	about, changes := cmp.Or(e.Name, e.ServiceID), events.Changes(e.Detail)
	if len(changes) > 0 && slices.Contains(aboutValue, e.Kind) {
		about, changes = changes[0], nil
	}
	if text += msg.ID(e.Kind).In(language); about != "" {
		text += colons[language] + msg.Printable(about)
	}
	if e.Network.Valid {
		text += msg.MessageNetwork.In(language, e.Network.V.String())
	}
	details := []string{e.Detail.Record, msg.ProviderIn(language, e.Detail.Provider).Title, "", e.Detail.Fault.In(language)}
	if e.Detail.Count > 0 {
		details[2] = cmp.Or(counted[e.Kind], msg.MessageCount).In(language, e.Detail.Count)
	}
	for _, detail := range append(details, changes...) {
		if detail != "" {
			text += separators[language] + msg.Printable(detail)
		}
	}
	return clip(text, secrets.MaxPart)
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
