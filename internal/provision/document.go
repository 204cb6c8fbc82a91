// Package provision reads files with the wanted state of the program, in the form of the document that
// GET state returns. Read and Check find every mistake in them, with file, line and member. Apply uses
// the operations of the API to bring the stored state to that of the files. A second Apply changes
// nothing.
package provision

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/mesh"
	"meshddns/internal/notify"
	"meshddns/internal/secondary"
	"meshddns/internal/secrets"
	"meshddns/internal/strictjson"
)

// The parts of a document. Entries of other parts depend on no other entry.
const (
	Owner         = "owner"
	Configuration = "configuration"
	Services      = "services"
	Usages        = "usages"
	Notifications = "notifications"
	Secondaries   = "secondaries"
	Leases        = "leases" // a member of usages
)

// Document is the content of all files.
type Document struct {
	Entries map[string][]Entry // by part; nil: no file has the part
	Prune   Prune
	Unread  int      // credentials that were not read
	Hidden  []string // files of the folder that are not read: their names begin with a dot

	pruneAt     *Entry
	seen        map[string]Entry // parts, entries with an id, and custom prefixes
	mistakes    Mistakes
	lasting     Mistakes // of the document from which these waiting entries come, not about the entries
	credentials CredentialFolder
}

// Prune decides about stored usages and services that the document lacks. It applies only to the parts
// that the document has.
type Prune string

const (
	PruneNone Prune = ""    // keeps them
	PruneFew  Prune = "few" // removes them, unless they are over fewAtMost and over a third
	PruneAll  Prune = "all" // removes them
)

// Entry is a part of a document. Body is the body of the equivalent request, with the credentials in
// place.
type Entry struct {
	Body secrets.JSON

	file   string
	line   int
	path   path
	raw    secrets.JSON // as written in the file
	bad    bool         // it has mistakes, so that its meaning is unclear
	number int          // of a usage: how many with the same network in the same service stand before it
	prune  bool         // of a usage: its other leases end
}

// Mistake returns a mistake in a member of the entry, "" for the whole entry. Dots separate nested
// members.
func (e Entry) Mistake(member, reason string) Mistake {
	if member == "" {
		return Mistake{File: e.file, Line: e.line, Member: e.path.String(), Reason: reason}
	}
	steps := strings.Split(member, ".")
	v := e.value()
	at := v.Begin
	for i := range steps {
		if there := v.At(steps[:i+1]); there != nil {
			at = there.Begin
		}
	}
	return e.mistakeAt(at, steps, reason)
}

// mistakeAt returns a mistake at an octet of the entry, in the value at a path.
func (e Entry) mistakeAt(octet int, at path, reason string) Mistake {
	line := e.line + bytes.Count(e.raw[:octet], []byte("\n"))
	return Mistake{File: e.file, Line: line, Member: slices.Concat(e.path, at).String(), Reason: reason}
}

// value returns the entry as written in the file.
func (e Entry) value() value {
	v, _ := strictjson.Parse(string(e.raw), strictjson.AllLevels)
	return v
}

// text returns the text of a member, "" if it is absent or no string.
func (e Entry) text(name string) string {
	v := e.value()
	if m := member(v, name); m != nil && m.Kind == strictjson.KindString {
		return m.Text
	}
	return ""
}

// Masked returns a mistake for each masked secret of the entry.
func (e Entry) Masked(reason string) (all Mistakes) {
	secrets.EachSecret(e.value(), nil, func(v value, at path) bool {
		if v.Kind == strictjson.KindString && v.Text == secrets.Mask {
			all = append(all, e.mistakeAt(v.Begin, at, reason))
		}
		return true
	})
	return all
}

// Types of members in the words of mistakes.
const (
	aText     = string(strictjson.KindString)
	aBoolean  = string(strictjson.KindBoolean)
	anObject  = string(strictjson.KindObject)
	texts     = "an array of strings"
	anInteger = "a 64-bit integer"
	aNatural  = "an integer from 0 to 18446744073709551615"
	aSecret   = `a string or {"credential": "<name>"}`
)

// maxShown is the length up to which a mistake shows a number.
const maxShown = 30

// form is the members of an object and their types.
type form struct {
	members  map[string]string
	required []string
	others   bool // other members are allowed
}

var (
	configurationForm = formOf(new(mesh.Configuration))
	serviceForm       = formOf(new(mesh.ServiceBody), "config", "id", "name")
	configForm        = form{others: true, members: formOf(new(mesh.ServiceConfig)).members}
	usageForm         = formOf(new(usageBody))
	leaseForm         = formOf(new(mesh.Lease), "slot", "ttl")
	// otherForms are the parts whose entries depend on no other entry.
	otherForms = map[string]form{
		Notifications: formOf(new(notify.Target), "id", "kind", "url"),
		Secondaries:   formOf(new(secondary.Secondary), "address", "id"),
	}
	// otherParts are their names, in the order of their saving.
	otherParts = []string{Notifications, Secondaries}
	parts      = slices.Concat([]string{Owner, Configuration, Services, Usages}, otherParts)
	members    = append(slices.Clone(parts), "prune")
)

// formOf returns the form of the objects that are decoded into the struct that v points to.
func formOf(v any, required ...string) form {
	f := form{members: map[string]string{}, required: required}
	strictjson.EachField(v, func(name string, field any) error {
		f.members[name] = typeOf(field)
		return nil
	})
	return f
}

// typeOf returns the type of a member by the field that it is decoded into.
func typeOf(field any) string {
	switch field.(type) {
	case *bool, **bool:
		return aBoolean
	case *[]string:
		return texts
	case *int64, **int64:
		return anInteger
	case **mesh.NetworkID:
		return aNatural
	case *secrets.Secret, *secrets.Masked, *notify.URL:
		return aSecret
	case *secrets.JSON, *json.RawMessage:
		return anObject
	case *[]mesh.Lease:
		return string(strictjson.KindArray)
	}
	return aText
}

// read reads a file into the document.
func (d *Document) read(name, text string) {
	f := &file{Document: d, name: name, text: text}
	if v, ok := f.parse(); ok {
		f.members(v, nil, f.part)
	}
}

// part reads a part of the document. The file may be the whole answer of GET state, with the document
// in its member data, because some programs would round ids when they extract it.
func (f *file) part(v value, at path) {
	switch name := at[len(at)-1]; {
	case v.Kind == strictjson.KindNull && slices.Contains(members, name): // it counts as absent
	case name == Services:
		f.list(v, at, f.service)
	case name == Usages:
		f.list(v, at, f.usage)
	case slices.Contains(otherParts, name):
		f.list(v, at, func(v value, at path) { f.other(name, v, at) })
	case name == "data" && len(at) == 1 && v.Kind == strictjson.KindObject:
		f.members(v.Expand(f.text, 1), at, f.part)
	default:
		f.single(name, f.whole(v, at), at)
	}
}

// single reads a part that is not a list.
func (f *file) single(name string, v value, at path) {
	e := f.entry(v, at)
	switch name {
	case Owner:
		f.wants(v, at, aText)
		f.Entries[name] = nil
		f.add(name, e)
	case Configuration:
		f.object(v, at, configurationForm)
		e.Body = secrets.JSON(v.Edited(f.text, f.credentialsOf(v, at)))
		f.Entries[name] = nil
		f.add(name, e)
	case "prune":
		switch {
		case v.Kind == strictjson.KindBoolean && v.Text == "true":
			f.Prune = PruneFew
		case v.Kind == strictjson.KindString && v.Text == "all":
			f.Prune = PruneAll
		case v.Kind != strictjson.KindBoolean:
			f.fault(v, at, `want true, false or "all"`)
		}
		f.pruneAt = &e
	default:
		f.fault(v, at, noMember(members))
		return
	}
	f.once(name, e)
}

// add adds an entry to its part.
func (f *file) add(part string, e Entry) {
	e.bad = f.anew()
	f.Entries[part] = append(f.Entries[part], e)
}

func noMember(known []string) string {
	return "no such member, want one of " + strings.Join(known, ", ")
}

// once adds a mistake for a part, a service or a custom prefix that appears twice, even in two files.
func (f *file) once(what string, e Entry, member ...string) {
	first, there := f.seen[what]
	if !there {
		f.seen[what] = e
		return
	}
	if first.file == e.file && slices.Equal(first.path, e.path) {
		return // a duplicate member, which is a mistake already
	}
	m := e.Mistake(strings.Join(member, "."), fmt.Sprintf("stands in %s:%d already", first.file, first.line))
	f.mistakes = append(f.mistakes, m)
}

// onceBy is once for the text of a member, such as an id, among some entries.
func (f *file) onceBy(member, among string, v value, e Entry) {
	if m := v.Member(member); m != nil && m.Kind == strictjson.KindString {
		f.once(among+" "+m.Text, e, member)
	}
}

// anew reports whether there are new mistakes since the last call.
func (f *file) anew() bool {
	before := f.told
	f.told = len(f.mistakes)
	return f.told > before
}

func (f *file) entry(v value, at path) Entry {
	raw := secrets.JSON(f.text[v.Begin:v.End])
	return Entry{Body: raw, raw: raw, file: f.name, line: f.lineAt(v.Begin), path: at}
}

func (f *file) service(v value, at path) {
	e := f.entry(v, at)
	f.object(v, at, serviceForm)
	if config := member(v, "config"); config != nil && config.Kind == strictjson.KindObject {
		at := at.Member("config")
		f.object(*config, at, configForm)
		e.Body = secrets.JSON(v.Edited(f.text, f.credentialsOf(*config, at)))
	}
	f.onceBy("id", Services, v, e)
	f.add(Services, e)
}

func (f *file) usage(v value, at path) {
	e := f.entry(v, at)
	f.object(v, at, usageForm)
	service, prefix, network := member(v, "service_id"), member(v, "custom_prefix"), member(v, "network_id")
	given := prefix != nil && prefix.Text != ""
	switch mode := member(v, "prefix_mode"); {
	case mode == nil:
	case given && mode.Text == "auto":
		f.fault(*prefix, at.Member("custom_prefix"), "mode auto makes the prefix of the network")
	case service == nil:
	case given:
		f.once("prefix "+mesh.Usage{ServiceID: service.Text, Prefix: prefix.Text}.Key(), e, "custom_prefix")
	case network != nil:
		same := "network " + service.Text + " " + network.Text
		if last, there := f.seen[same]; there {
			e.number = last.number + 1
		}
		f.seen[same] = e
	}
	if list := member(v, Leases); list != nil {
		e.Body = secrets.JSON(v.Edited(f.text, f.leases(*list, at.Member(Leases))))
	}
	f.add(Usages, e)
}

// leases checks the form of the leases of a usage, and returns the edits for their credentials.
func (f *file) leases(list value, at path) (all []strictjson.Edit) {
	place := f.entry(list, at).Mistake("", "").where()
	for i, v := range list.Items {
		e := f.entry(v, at.Item(i))
		f.object(v, e.path, leaseForm)
		f.onceBy("slot", place, v, e)
		f.onceBy("token_hash", "token", v, e)
		all = append(all, f.otherCredentials(leaseForm, v, e.path)...)
	}
	return all
}

// other reads an entry of another part.
func (f *file) other(part string, v value, at path) {
	e := f.entry(v, at)
	f.object(v, at, otherForms[part])
	e.Body = secrets.JSON(v.Edited(f.text, f.otherCredentials(otherForms[part], v, at)))
	f.onceBy("id", part, v, e)
	f.add(part, e)
}

// object adds mistakes in the members of an object.
func (f *file) object(v value, at path, form form) {
	if v.Kind != strictjson.KindObject {
		f.fault(v, at, wrongKind(v, strictjson.KindObject))
		return
	}
	for _, m := range v.Members {
		want, ok := form.members[m.Name.Text]
		switch here := at.Member(m.Name.Text); {
		case ok && m.Value.Kind != strictjson.KindNull:
			f.wants(m.Value, here, want)
		case !ok && !form.others:
			f.fault(m.Value, here, noMember(slices.Sorted(maps.Keys(form.members))))
		}
	}
	for _, name := range form.required {
		if member(v, name) == nil {
			f.fault(v, at.Member(name), "is missing, want "+form.members[name])
		}
	}
}

// wants adds a mistake if a value is not of a type.
func (f *file) wants(v value, at path, want string) {
	var ok bool
	number := v.Kind == strictjson.KindNumber
	switch want {
	case texts:
		ok = v.Kind == strictjson.KindArray && !slices.ContainsFunc(v.Items, func(item value) bool { return item.Kind != strictjson.KindString })
	case anInteger:
		_, err := strconv.ParseInt(v.Text, 10, 64)
		ok = number && err == nil
	case aNatural:
		_, err := strconv.ParseUint(v.Text, 10, 64)
		ok = number && err == nil
	case aSecret:
		ok = v.Kind == strictjson.KindString || v.Kind == strictjson.KindObject // credentialsOf checks the object
	default:
		ok = string(v.Kind) == want
	}
	if !ok {
		is := string(v.Kind)
		if (number || v.Kind == strictjson.KindBoolean) && len(v.Text) <= maxShown && want != aSecret {
			is = v.Text
		}
		f.fault(v, at, "is "+is+", want "+want)
	}
}
