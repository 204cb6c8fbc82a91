// Package provision reads files that say how the program is to be configured: the
// document that GET state gives. It finds every mistake in them, and where it is, and
// brings what there is to what they say.
package provision

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"meshddns/internal/dnsname"
	"meshddns/internal/secrets"
)

// Document is what the files say together. A part that none of them has is nil.
type Document struct {
	Owner         *Entry
	Configuration *Entry
	Services      []Entry
	Usages        []Entry
	Prune         Prune
	Unread        int // credentials that were not looked at

	hasServices, hasUsages bool
	pruneAt                *Entry
	seen                   map[string]Entry // parts, services and custom prefixes
	mistakes               Mistakes
	lasting                Mistakes // of the document that these entries are left of, and not about them
	credentials            CredentialFolder
}

// Prune says what becomes of what the document lacks, in the parts that it has.
type Prune string

const (
	PruneNone Prune = ""
	PruneFew  Prune = "few" // it goes, unless that is most of it
	PruneAll  Prune = "all"
)

// Entry is a part of a document. Its body is that of the request that does the same,
// with the credentials in place.
type Entry struct {
	Body secrets.JSON

	file string
	line int
	path path
	Raw  secrets.JSON // as it stands in the file
	bad  bool         // it has mistakes: what it says is not clear
}

// Mistake tells that a member of the entry, "" for all of it, is wrong. Nested members
// are separated by dots.
func (e Entry) Mistake(member, reason string) Mistake {
	m := Mistake{File: e.file, Line: e.line, Member: e.path.String(), Reason: reason}
	if member == "" {
		return m
	}
	steps := strings.Split(member, ".")
	m.Member = append(slices.Clone(e.path), steps...).String()
	n := e.node()
	for i := 0; n != nil; i++ {
		if m.Line = n.line; i == len(steps) {
			break
		}
		n = n.member(steps[i])
	}
	return m
}

// alone gives the entry without the rest of the file in memory.
func (e Entry) alone() Entry {
	e.Body, e.Raw = slices.Clone(e.Body), slices.Clone(e.Raw)
	return e
}

// node is the entry as it stands in the file.
func (e Entry) node() *node {
	r := &reader{body: e.Raw, base: e.line, fault: func(int, path, string) {}}
	r.begin()
	return r.value(nil)
}

// text is an entry that is a string.
func (e Entry) text() string { return e.node().text }

// member is what a member says that is a string.
func (e Entry) member(name string) string {
	if n := e.node().member(name); n != nil {
		return n.text
	}
	return ""
}

// Masked gives a mistake for each secret of the entry that is masked.
func (e Entry) Masked(reason string) (all Mistakes) {
	e.node().secrets(nil, false, func(n *node, at path) {
		if n.kind == isString && n.text == secrets.Mask {
			all = append(all, Mistake{File: e.file, Line: n.line, Member: slices.Concat(e.path, at).String(), Reason: reason})
		}
	})
	return all
}

// secrets gives the values in an object whose names are those of secrets, and those
// within them.
func (n *node) secrets(at path, inside bool, each func(n *node, at path)) {
	for _, m := range n.members {
		here, secret := at.member(m.name), inside || secrets.IsSecretName(m.name)
		if secret {
			each(m.value, here)
		}
		m.value.secrets(here, secret, each)
	}
	for i, item := range n.items {
		if inside {
			each(item, at.item(i))
		}
		item.secrets(at.item(i), inside, each)
	}
}

// What a member takes, as it is called in a mistake.
const (
	text     = isString
	texts    = "an array of strings"
	integer  = "a 64-bit integer"
	natural  = "an integer from 0 to 18446744073709551615"
	boolean  = isBoolean
	object   = isObject
	secret   = `a string or {"credential": "<name>"}`
	required = ", and it has to be there"
)

// maxShown is how long a number may be to be shown.
const maxShown = 30

var (
	configurationMembers = map[string]string{
		"provider": text, "access_key_id": text, "access_key_secret": secret, "endpoint": text, "domain": text,
		"txt_record_name": text, "txt_endpoints": texts, "sync_mode": text, "retry_interval": integer, "max_retries": integer,
		"enabled": boolean,
	}
	serviceMembers = map[string]string{"id": text + required, "name": text + required, "config": object + required}
	configMembers  = map[string]string{ // beside which there may be others
		"domain": text, "provider": text, "access_key_id": text, "endpoint": text, "txt_endpoints": texts,
	}
	usageMembers = map[string]string{
		"service_id": text, "prefix_mode": text, "custom_prefix": text, "network_id": natural, "network_name": text,
		"txt_endpoints": texts, "description": text,
	}
	parts = []string{"owner", "configuration", "services", "usages", "prune"}
)

// file is a file that is read into a document.
type file struct {
	*Document
	name string
	body []byte
	told int // mistakes that are about other entries
}

// anew reports whether there are mistakes since it was asked last.
func (f *file) anew() bool {
	before := f.told
	f.told = len(f.mistakes)
	return f.told > before
}

func (f *file) fault(line int, at path, reason string) {
	f.mistakes = append(f.mistakes, Mistake{File: f.name, Line: line, Member: at.String(), Reason: reason})
}

// add reads a file into the document.
func (d *Document) add(name string, body []byte) {
	f := &file{Document: d, name: name, body: body}
	r, ok := newReader(body, f.fault)
	if !ok {
		return
	}
	if r.peek() != '{' {
		n := r.value(nil)
		f.fault(n.line, nil, "is "+n.kind+", want "+isObject)
		return
	}
	r.token()
	r.members(nil, func(name string, at path) { f.member(r, name, at) })
}

// member reads a member of the document. The answer of GET state may be the file as it
// is, with the document in its data: some programs that would take that out round ids.
func (f *file) member(r *reader, name string, at path) {
	switch name {
	case "services":
		r.array(at, f.service)
		f.hasServices = true
	case "usages":
		r.array(at, f.usage)
		f.hasUsages = true
	case "data":
		if len(at) == 1 && r.peek() == '{' {
			r.token()
			r.members(at, func(name string, at path) { f.member(r, name, at) })
			r.token()
			return
		}
		fallthrough
	default:
		f.part(name, r.value(at), at)
	}
}

// part reads a part that is no list.
func (f *file) part(name string, n *node, at path) {
	if n.kind == isNull && slices.Contains(parts, name) {
		return
	}
	e := f.entry(n, at)
	switch name {
	case "owner":
		f.wants(n, at, text)
		e.bad = f.anew()
		f.Owner = &e
	case "configuration":
		f.object(n, at, configurationMembers, true)
		e.Body = f.resolved(n, f.credentialsOf(n, at))
		e.bad = f.anew()
		f.Configuration = &e
	case "prune":
		switch {
		case n.kind == isBoolean && n.text == "true":
			f.Prune = PruneFew
		case n.kind == isString && n.text == "all":
			f.Prune = PruneAll
		case n.kind != isBoolean:
			f.fault(n.line, at, `want true, false or "all"`)
		}
		f.pruneAt = &e
	default:
		f.fault(n.line, at, "no such member, want one of "+strings.Join(parts, ", "))
		return
	}
	f.once(name, e)
}

// once finds what is there twice, also in two files.
func (f *file) once(what string, e Entry, member ...string) {
	first, there := f.seen[what]
	if !there {
		f.seen[what] = e
		return
	}
	if first.file == e.file && slices.Equal(first.path, e.path) {
		return // a member that stands twice, which is told
	}
	m := e.Mistake(strings.Join(member, "."), fmt.Sprintf("stands in %s:%d already", first.file, first.line))
	f.mistakes = append(f.mistakes, m)
}

func (f *file) entry(n *node, at path) Entry {
	return Entry{Body: secrets.JSON(f.body[n.begin:n.end]), Raw: secrets.JSON(f.body[n.begin:n.end]), file: f.name, line: n.line, path: at}
}

func (f *file) service(n *node, at path) {
	e := f.entry(n, at)
	f.object(n, at, serviceMembers, true)
	if config := n.member("config"); config != nil && config.kind == isObject {
		f.object(config, at.member("config"), configMembers, false)
		e.Body = f.resolved(n, f.credentialsOf(config, at.member("config")))
		if key := config.member("access_key_secret"); key != nil && key.kind != isObject {
			f.wants(key, at.member("config").member("access_key_secret"), secret)
		}
	}
	if id := n.member("id"); id != nil && id.kind == isString {
		f.once("service "+id.text, e, "id")
	}
	e.bad = f.anew()
	f.Services = append(f.Services, e)
}

func (f *file) usage(n *node, at path) {
	e := f.entry(n, at)
	f.object(n, at, usageMembers, true)
	service, prefix := n.member("service_id"), n.member("custom_prefix")
	switch mode := n.member("prefix_mode"); {
	case prefix == nil || prefix.text == "" || mode == nil:
	case mode.text == "auto":
		f.fault(prefix.line, at.member("custom_prefix"), "mode auto makes the prefix of the network")
	case service != nil:
		f.once("prefix "+service.text+" "+dnsname.Fold(prefix.text), e, "custom_prefix")
	}
	e.bad = f.anew()
	f.Usages = append(f.Usages, e)
}

// object looks for mistakes in the members of an object, of which some are known.
func (f *file) object(n *node, at path, known map[string]string, noOthers bool) {
	if n.kind != isObject {
		f.fault(n.line, at, "is "+n.kind+", want "+isObject)
		return
	}
	for _, m := range n.members {
		want, ok := known[m.name]
		switch here := at.member(m.name); {
		case ok && m.value.kind != isNull:
			f.wants(m.value, here, strings.TrimSuffix(want, required))
		case !ok && noOthers:
			f.fault(m.value.line, here, "no such member, want one of "+strings.Join(slices.Sorted(maps.Keys(known)), ", "))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(known)) {
		if want, ok := strings.CutSuffix(known[name], required); ok && n.member(name) == nil {
			f.fault(n.line, at.member(name), "is missing, want "+want)
		}
	}
}

// wants looks whether a value is of a type.
func (f *file) wants(n *node, at path, want string) {
	var ok bool
	switch want {
	case texts:
		_, ok = n.strings()
	case integer:
		_, err := strconv.ParseInt(n.text, 10, 64)
		ok = n.kind == isNumber && err == nil
	case natural:
		_, err := strconv.ParseUint(n.text, 10, 64)
		ok = n.kind == isNumber && err == nil
	case secret:
		ok = n.kind == isString || n.kind == isObject // which credentialsOf looks at
	default:
		ok = n.kind == want
	}
	if !ok {
		is := n.kind
		if (is == isNumber || is == isBoolean) && len(n.text) <= maxShown && want != secret {
			is = n.text
		}
		f.fault(n.line, at, "is "+is+", want "+want)
	}
}
