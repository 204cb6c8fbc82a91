package page

import (
	_ "embed"
	"fmt"

	"meshddns/internal/events"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
)

// say returns a text of the page in a language; args replace its verbs.
func say(in msg.Language, id string, args ...any) string {
	text, ok := texts[msg.ID(id)]
	if !ok {
		return id
	}
	return fmt.Sprintf(text[in], args...)
}

//go:embed texts.txt
var textLines string

// texts are {Chinese, English}.
var texts = msg.Table(textLines)

// leaseLevels has the class of each state of a lease.
var leaseLevels = map[string]string{"live": "good", "held": "bad", "ended": "busy", "new": "idle"}

// levels has the class of each state of a usage.
var levels = map[string]string{
	string(reconcile.None): "bad", string(reconcile.Pending): "busy", string(reconcile.Published): "good",
	string(reconcile.Failed): "bad", string(reconcile.Conflict): "bad", string(reconcile.Withdrawing): "busy",
}

// eventLevels has the class of kinds of events that are good or bad news.
var eventLevels = map[events.Kind]string{
	events.RecordPublished: "good", events.RecordRecovered: "good", events.ZoneRecovered: "good", events.LeftoverGone: "good",
	events.RecordFailed: "bad", events.RecordConflict: "bad", events.ZoneDown: "bad", events.ProvisionRefused: "bad", events.SecondaryBehind: "bad", events.SecondaryCaughtUp: "good",
	events.EndpointDead: "bad", events.EndpointAlive: "good",
	events.LeftoverAppeared: "busy", events.OrphanFound: "busy", events.LeaseExpired: "busy", events.LeaseHeld: "bad", events.NotificationStopped: "bad", events.CertificateExpiring: "bad",
}

// advice returns what to do about a fault.
func advice(in msg.Language, code string) string {
	text, ok := texts["do "+msg.ID(code)]
	if !ok {
		text = texts["do "+msg.Temporary]
	}
	return text[in]
}
