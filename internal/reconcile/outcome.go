package reconcile

import (
	"context"
	"errors"
	"slices"
	"sort"
	"strings"
	"time"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
	"meshddns/internal/provider"
)

// Codes of faults, besides the kinds of package provider.
const (
	CodeUnknownProvider  = "unknown_provider"     // the account's provider has no client
	CodeNoProvider       = "no_provider"          // the usage has no account to publish at
	CodeInvalid          = "invalid"              // the value breaks the rules of package mesh
	CodeInvalidName      = "invalid_name"         // DNS cannot have the name
	CodeNetworkConflict  = "network_conflict"     // the network in Detail has the name
	CodeCredentialsGone  = "credentials_gone"     // the account's secret is not stored any more
	CodeDeletesForbidden = "deletes_forbidden"    // mode upsert-only forbids the withdrawal
	CodeAddressUnknown   = "address_unknown"      // this host's address is not known now: the endpoints in Detail need it
	CodeSameOwner        = "same_owner_elsewhere" // another writer with our mark changes the value
	CodeZoneUnreachable  = "zone_unreachable"     // no resolver finds the built-in zone
	CodeSharedName       = "shared_name"          // TXT values without a mark stand beside the value
	CodeDatabase         = "database_down"        // the database failed
	CodeNotInReplica     = "not_in_replica"       // the replica has not confirmed the intent in time
	CodeInterrupted      = "interrupted"          // the work was interrupted, and is done later
	CodeOrphan           = "orphan"               // the value is an orphan
	CodeMaybeOurs        = "maybe_ours"           // no place knows the value, which may be from before a restore
	CodeAdopted          = "of_adopted_owner"     // the value is an adopted owner's, at a name that is not wanted here
	CodeNotSearched      = "not_searched"         // the zone was not searched for orphans
	CodeWritesUsedUp     = "writes_used_up"       // a change by a node or a check waits in LaneLater, until the time in Detail
)

// Fault is the reason for a failure, a conflict or a warning. Key is the Account.UsedBy of the account that met it.
type Fault = mesh.Fault

// Describe turns a failure that an account has met into a fault. It removes the account's
// secret and unprintable octets from the provider's text, because every failure passes
// here.
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

// transient reports whether a retry may succeed. A wrong clock counts, because time
// synchronisation may correct it.
func transient(f Fault) bool {
	return f.Code == CodeDatabase || f.Code == CodeNotInReplica || f.Code == CodeInterrupted || f.Code == string(provider.ClockSkew) || (&provider.Error{Kind: provider.Kind(f.Code)}).Transient()
}

// Outcome is the outcome of the work on one record.
type Outcome struct {
	Name     string        `json:"name"`
	Sibling  Sibling       `json:"sibling,omitzero"`
	Provider string        `json:"provider"`
	Zone     string        `json:"zone"`
	Network  string        `json:"network,omitempty"`
	Denied   bool          `json:"denied,omitempty"` // the rule about owners refuses a tenant's usage, or a record of one: that is no failure
	Action   string        `json:"action"`
	Value    string        `json:"value"`
	Fault    Fault         `json:"fault,omitzero"`
	Attempts int           `json:"attempts"`
	Duration time.Duration `json:"duration"`

	at       string // the id of the account, and of a withdrawal also of the place
	zoneDown bool   // the record failed because its whole zone failed
}

// bad reports whether the record failed or is in conflict, and was not denied.
func (o Outcome) bad() bool {
	return !o.Denied && (o.Action == ActionFailed || o.Action == ActionConflict)
}

// waits reports whether the record is tried again before its fault counts.
func (o Outcome) waits() bool { return o.Action == "" && o.Fault.Code != "" }

// open reports whether a look has left a record as it was: the value has still to be written, or the look has failed.
func (o Outcome) open() bool { return o.Action == "" && o.Value != "" }

// warnings are the codes of faults of published values.
var warnings = []string{CodeAddressUnknown, CodeSameOwner, CodeZoneUnreachable, CodeSharedName}

// warning reports whether a record has a fault although its value is published.
func (o Outcome) warning() bool {
	return slices.Contains(warnings, o.Fault.Code)
}

// writes reports whether a value was added.
func (o Outcome) writes() bool { return o.Action == ActionCreate || o.Action == ActionUpdate }

// changed reports whether DNS was changed.
func (o Outcome) changed() bool { return o.writes() || o.Action == ActionDelete }

// written returns the outcomes that changed DNS.
func written(all []Outcome) []Outcome {
	return slices.DeleteFunc(slices.Clone(all), func(o Outcome) bool { return !o.changed() })
}

// Report is the report of one pass.
type Report struct {
	StartedAt  time.Time      `json:"started_at"`
	FinishedAt time.Time      `json:"finished_at"`
	Trigger    string         `json:"trigger"`
	Complete   bool           `json:"complete"`
	Swept      bool           `json:"-"`     // after a restore, nothing is left to look at
	Names      int            `json:"names"` // number of names with an outcome
	Bad        int            `json:"bad"`   // number of names that failed or are in conflict
	Counts     map[string]int `json:"counts"`
	Records    []Outcome      `json:"records"` // sorted by name, without unchanged records that have no warning
}

// maxRecords bounds the records of a report.
const maxRecords = 1000

// CountedActions are the members of a report's counts.
var CountedActions = []string{
	ActionCreate, ActionUpdate, ActionDelete, ActionUnchanged, ActionConflict, ActionFailed, ActionSkipped, ActionLeftover, ActionOrphan, "warning",
}

// OK reports whether the pass is complete and no name is bad.
func (r Report) OK() bool { return r.Complete && r.Bad == 0 }

// FirstBad returns the first record that failed or is in conflict, else the zero Outcome.
func (r Report) FirstBad() Outcome {
	if at := slices.IndexFunc(r.Records, Outcome.bad); at >= 0 {
		return r.Records[at]
	}
	return Outcome{}
}

// add counts the outcomes at one name. again means that the name was counted before: then
// unchanged records do not count, nor do bad ones if the name was bad.
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

// takeBack removes the bad records of a name that was worked on again. It reports whether there
// were any: the name does not count as bad any more.
func (r *Report) takeBack(name string) bool {
	before := len(r.Records)
	r.Records = slices.DeleteFunc(r.Records, func(o Outcome) bool {
		old := o.Name == name && o.bad()
		if old {
			r.Counts[o.Action]--
		}
		return old
	})
	if len(r.Records) == before {
		return false
	}
	r.Bad--
	return true
}

// trim sorts the records by name and keeps maxRecords of them, the bad ones first.
func (r *Report) trim() {
	byName := func(i, j int) bool { return r.Records[i].Name < r.Records[j].Name }
	sort.SliceStable(r.Records, byName)
	if len(r.Records) > maxRecords {
		good := func(o Outcome) bool { return !o.bad() }
		bad := slices.DeleteFunc(slices.Clone(r.Records), good)
		r.Records = append(bad, slices.DeleteFunc(slices.Clone(r.Records), Outcome.bad)...)[:maxRecords]
		sort.SliceStable(r.Records, byName)
	}
}

// finish completes the report.
func (r *Report) finish(now time.Time) {
	r.trim()
	r.FinishedAt, r.Complete = now, true
}
