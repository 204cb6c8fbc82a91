package reconcile

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// Codes of faults beside the kinds of package provider.
const (
	CodeUnknownProvider  = "unknown_provider"
	CodeNotListening     = "not_listening"
	CodeNoProvider       = "no_provider"
	CodeInvalid          = "invalid"
	CodeInvalidName      = "invalid_name"
	CodeNetworkConflict  = "network_conflict"
	CodeCredentialsGone  = "credentials_gone"
	CodeDeletesForbidden = "deletes_forbidden"
	CodeAddressUnknown   = "address_unknown"
	CodeSameOwner        = "same_owner_elsewhere"
	CodeZoneUnreachable  = "zone_unreachable"
	CodeDatabase         = "database_down"
	CodeInterrupted      = "interrupted"
	CodeOrphan           = "orphan"
	CodeNotSearched      = "not_searched"
)

// Fault is why something is not as it should be: a code that has a text in each
// language, and the particulars.
type Fault struct {
	Code   string   `json:"code,omitempty"`
	Detail msg.Text `json:"detail,omitempty"`
	Key    string   `json:"key,omitempty"` // of a provider's failure, whose key met it: see Account.UsedBy
}

// Describe turns a failure that an account has met into a fault. A provider may repeat the
// secret in its words, and send what is no text: here, where all of them come by, it goes.
func Describe(err error, account Account) Fault {
	f, kind := Fault{Code: string(provider.BadAnswer), Detail: msg.TextOf(err)}, ""
	if e, ok := errors.AsType[*provider.Error](err); ok {
		kind = string(e.Kind)
		f = Fault{Code: kind, Detail: e.Message()}
	}
	if f.Key = account.UsedBy; errors.Is(err, context.Canceled) {
		f.Code, f.Key = CodeInterrupted, ""
	}
	f.Detail = f.Detail.Map(func(text string) string {
		return account.Secret.ScrubLine(strings.TrimPrefix(strings.TrimPrefix(text, kind), ": "))
	})
	return f
}

// transient reports whether the same work may succeed when it is done again. A clock is set
// right by itself.
func (f Fault) transient() bool {
	return f.Code == CodeDatabase || f.Code == CodeInterrupted || f.Code == string(provider.ClockSkew) || (&provider.Error{Kind: provider.Kind(f.Code)}).Transient()
}

// Outcome is what became of one record.
type Outcome struct {
	Name     string        `json:"name"`
	Provider string        `json:"provider"`
	Zone     string        `json:"zone"`
	Network  string        `json:"network,omitempty"`
	Action   string        `json:"action"`
	Value    string        `json:"value"`
	Fault    Fault         `json:"fault,omitzero"`
	Attempts int           `json:"attempts"`
	Duration time.Duration `json:"duration"`

	at       string // the account, and of a withdrawal the place
	zoneDown bool   // it failed with its zone, and not by itself
	was      string // what was wrong before
}

func (o Outcome) bad() bool { return o.Action == ActionFailed || o.Action == ActionConflict }

// warning reports whether a record that is as it should be has news all the
// same.
func (o Outcome) warning() bool {
	return o.Fault.Code == CodeAddressUnknown || o.Fault.Code == CodeSameOwner || o.Fault.Code == CodeZoneUnreachable
}

// writes reports whether a value comes to stand.
func (o Outcome) writes() bool { return o.Action == ActionCreate || o.Action == ActionUpdate }

// changed reports whether something was written.
func (o Outcome) changed() bool { return o.writes() || o.Action == ActionDelete }

// written gives the outcomes that changed something.
func written(all []Outcome) []Outcome {
	return slices.DeleteFunc(slices.Clone(all), func(o Outcome) bool { return !o.changed() })
}

// Report is what one pass did.
type Report struct {
	StartedAt  time.Time      `json:"started_at"`
	FinishedAt time.Time      `json:"finished_at"`
	Trigger    string         `json:"trigger"`
	Complete   bool           `json:"complete"`
	Names      int            `json:"names"` // that were looked at
	Bad        int            `json:"bad"`   // of them, not as they should be
	Counts     map[string]int `json:"counts"`
	Records    []Outcome      `json:"records"` // in order of name, what is not just unchanged
}

// maxRecords bounds the records of a report.
const maxRecords = 1000

// CountedActions are the members of a report's counts.
var CountedActions = []string{
	ActionCreate, ActionUpdate, ActionDelete, ActionUnchanged, ActionConflict, ActionFailed, ActionSkipped, ActionLeftover, ActionOrphan, "warning",
}

// OK reports whether every name is as it should be.
func (r Report) OK() bool { return r.Complete && r.Bad == 0 }

// FirstBad gives the first record that is not as it should be.
func (r Report) FirstBad() Outcome {
	if at := slices.IndexFunc(r.Records, Outcome.bad); at >= 0 {
		return r.Records[at]
	}
	return Outcome{}
}

// add counts the outcomes at one name. One that was counted before, and is
// looked at again, has no news in that nothing had to be changed.
func (r *Report) add(outcomes []Outcome, again, wasBad bool) {
	counted, bad := false, false
	for _, o := range outcomes {
		if o.Action == "" || again && (o.Action == ActionUnchanged && !o.warning() || o.bad() && wasBad) {
			continue
		}
		counted, bad = true, bad || o.bad()
		if r.Counts == nil {
			r.Counts = map[string]int{}
		}
		r.Counts[o.Action]++
		if o.warning() {
			r.Counts["warning"]++
		}
		if o.Action != ActionUnchanged || o.warning() {
			r.Records = append(r.Records, o)
		}
	}
	if counted && !again {
		r.Names++
	}
	if bad && !(again && wasBad) {
		r.Bad++
	}
	if len(r.Records) > 2*maxRecords {
		r.trim()
	}
}

// takeBack takes back that a name was not as it should be, if that was told: it was worked on again,
// and is.
func (r *Report) takeBack(name string) {
	before := len(r.Records)
	r.Records = slices.DeleteFunc(r.Records, func(o Outcome) bool {
		old := o.Name == name && o.bad()
		if old {
			r.Counts[o.Action]--
		}
		return old
	})
	if len(r.Records) < before {
		r.Bad--
	}
}

// trim keeps the first records in order of name; of more than fit, those that
// are not as they should be stay.
func (r *Report) trim() {
	byName := func(a, b Outcome) int { return strings.Compare(a.Name, b.Name) }
	slices.SortStableFunc(r.Records, byName)
	if len(r.Records) > maxRecords {
		good := func(o Outcome) bool { return !o.bad() }
		bad := slices.DeleteFunc(slices.Clone(r.Records), good)
		r.Records = append(bad, slices.DeleteFunc(slices.Clone(r.Records), Outcome.bad)...)[:maxRecords]
		slices.SortStableFunc(r.Records, byName)
	}
}

// finish closes the report.
func (r *Report) finish(now time.Time) {
	r.trim()
	r.FinishedAt, r.Complete = now, true
}
