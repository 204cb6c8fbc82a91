package cloudtest

import (
	"cmp"
	"encoding/hex"
	"encoding/xml"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Route53 is Amazon Route 53, API version 2013-04-01, signed with AWS
// Signature Version 4. It has no disabled records: AddOff makes a weighted one.
// Lists show a change at once; after SetLag it is PENDING for so many looks.
// Other users spell their values with more escapes than are needed.
func Route53(t testing.TB) *Cloud {
	s := &route53{pending: map[string]int{}}
	return start(t, &Cloud{
		Provider: "route53", Signed: true, AccessKeyID: "AKIAIOSFODNN7EXAMPLE", AccessKeySecret: "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
	}, vendor{
		authorize: r53Authorize, serve: s.serve, spell: r53Spell, read: r53Read,
		throttle: r53Failure(http.StatusBadRequest, "Throttling", "Rate exceeded"),
	})
}

// route53 has what no other vendor has: changes that are not everywhere yet.
type route53 struct {
	pending map[string]int // looks until the change is INSYNC, by its id
}

const (
	r53RequestID = "b25f48e8-84fd-11e6-80d9-574e0c4664cb"
	r53Space     = "https://route53.amazonaws.com/doc/2013-04-01/"
)

// r53XML makes an answer of a document.
func r53XML(status int, name string, content any) Answer {
	var body strings.Builder
	body.WriteString(xml.Header)
	if err := xml.NewEncoder(&body).EncodeElement(content, xml.StartElement{Name: xml.Name{Space: r53Space, Local: name}}); err != nil {
		panic(err)
	}
	header := map[string]string{"Content-Type": "text/xml", "x-amzn-RequestId": r53RequestID}
	return Answer{Status: status, Header: header, Body: body.String()}
}

func r53Failure(status int, code, message string) Answer {
	type failure struct{ Type, Code, Message string }
	return r53XML(status, "ErrorResponse", struct {
		Error     failure
		RequestId string
	}{failure{"Sender", code, message}, r53RequestID})
}

// r53BatchFailure is the one refusal with a document of its own.
func r53BatchFailure(messages ...string) Answer {
	return r53XML(http.StatusBadRequest, "InvalidChangeBatch", struct {
		Messages  []string `xml:"Messages>Message"`
		RequestId string
	}{messages, r53RequestID})
}

var r53Authorization = regexp.MustCompile(`^AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/us-east-1/route53/aws4_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$`)

// r53Authorize computes the signature from the request as it came.
func r53Authorize(c *Cloud, r Request) *Answer {
	fail := func(code, message string) *Answer { return new(r53Failure(http.StatusForbidden, code, message)) }
	parts := r53Authorization.FindStringSubmatch(r.Header.Get("Authorization"))
	if parts == nil {
		return fail("IncompleteSignature", "Authorization header requires 'Credential', 'Signature' and 'SignedHeaders' parameters.")
	}
	if parts[1] != c.AccessKeyID {
		return fail("InvalidClientTokenId", "The security token included in the request is invalid.")
	}
	const layout = "20060102T150405Z"
	date, now := r.Header.Get("X-Amz-Date"), c.now().UTC()
	at, err := time.Parse(layout, date)
	switch {
	case err != nil || parts[2] != date[:8]:
		return fail("SignatureDoesNotMatch", "Date in Credential scope does not match YYYYMMDD from ISO-8601 version of date from HTTP.")
	case now.Sub(at) > MaxSkew:
		return fail("SignatureDoesNotMatch", fmt.Sprintf("Signature expired: %s is now earlier than %s (%s - 5 min.)", date, now.Add(-MaxSkew).Format(layout), now.Format(layout)))
	case at.Sub(now) > MaxSkew:
		return fail("SignatureDoesNotMatch", fmt.Sprintf("Signature not yet current: %s is still later than %s (%s + 5 min.)", date, now.Add(MaxSkew).Format(layout), now.Format(layout)))
	}
	names := strings.Split(parts[3], ";")
	for name := range r.Header {
		name = strings.ToLower(name)
		if (name == "content-type" || strings.HasPrefix(name, "x-amz-")) && !slices.Contains(names, name) {
			return fail("SignatureDoesNotMatch", "'"+name+"' must be a 'SignedHeader' in the AWS Authorization.")
		}
	}
	if want := r53Signature(c, r, names, date); !slices.Contains(names, "host") || want != parts[4] {
		return fail("SignatureDoesNotMatch", "The request signature we calculated does not match the signature you provided. Check your AWS Secret Access Key and signing method.")
	}
	return nil
}

func r53Signature(c *Cloud, r Request, names []string, date string) string {
	path, _, _ := strings.Cut(r.Target, "?")
	segments := strings.Split(path, "/")
	for i, segment := range segments {
		segments[i] = reescape(url.QueryEscape(segment))
	}
	scope := date[:8] + "/us-east-1/route53/aws4_request"
	text := "AWS4-HMAC-SHA256\n" + date + "\n" + scope + "\n" + sha256Hex(requestText(r, strings.Join(segments, "/"), names))
	key := mac([]byte("AWS4"+c.AccessKeySecret), date[:8])
	key = mac(mac(mac(key, "us-east-1"), "route53"), "aws4_request")
	return hex.EncodeToString(mac(key, text))
}

func (s *route53) serve(c *Cloud, r Request) Answer {
	path, versioned := strings.CutPrefix(r.Path, "/2013-04-01/")
	parts := strings.Split(strings.TrimSuffix(path, "/"), "/")
	action := r.Method + " " + parts[0]
	if len(parts) > 2 {
		action += " " + strings.Join(parts[2:], "/")
	}
	switch {
	case !versioned:
	case action == "GET hostedzonesbyname" && len(parts) == 1:
		return r53Zones(c, r)
	case action == "GET change" && len(parts) == 2:
		return s.change(parts[1])
	case (action == "GET hostedzone" || action == "GET hostedzone rrset" || action == "POST hostedzone rrset") && len(parts) > 1:
		z, ok := c.zoneWhere(func(z zone) bool { return r53ID(z) == parts[1] })
		if !ok {
			return r53Failure(http.StatusNotFound, "NoSuchHostedZone", "No hosted zone found with ID: "+parts[1])
		}
		switch action {
		case "GET hostedzone":
			return r53XML(http.StatusOK, "GetHostedZoneResponse", struct {
				HostedZone  r53Zone
				NameServers []string `xml:"DelegationSet>NameServers>NameServer"`
			}{r53ZoneOf(z), []string{"ns-2048.awsdns-64.com", "ns-2049.awsdns-65.net"}})
		case "GET hostedzone rrset":
			return r53List(c, r, z)
		}
		return s.batch(c, r, z)
	}
	return r53Failure(http.StatusNotFound, "UnknownOperationException", "Unknown operation "+r.Method+" "+r.Path)
}

func r53ID(z zone) string { return fmt.Sprintf("Z%08d", z.id) }

type r53Zone struct {
	Id, Name, CallerReference string
	PrivateZone               bool `xml:"Config>PrivateZone"`
	ResourceRecordSetCount    int
}

func r53ZoneOf(z zone) r53Zone {
	return r53Zone{Id: "/hostedzone/" + r53ID(z), Name: r53Name(z.name), CallerReference: "ref", PrivateZone: z.private}
}

// r53Name spells a name: lower case, a final dot, octal escapes.
func r53Name(name string) string {
	var text strings.Builder
	for _, octet := range []byte(fold(name)) {
		if strings.IndexByte("abcdefghijklmnopqrstuvwxyz0123456789-_.", octet) < 0 {
			fmt.Fprintf(&text, `\%03o`, octet)
		} else {
			text.WriteByte(octet)
		}
	}
	return text.String() + "."
}

// r53Order is where a name stands in lists: by its labels from the last, each
// with a dot behind it.
func r53Order(name string) string {
	labels := strings.Split(fold(strings.ReplaceAll(name, `\052`, "*")), ".")
	slices.Reverse(labels)
	return strings.Join(labels, ".") + "."
}

// r53Zones lists all zones from a name and an id on.
func r53Zones(c *Cloud, r Request) Answer {
	zones := slices.SortedFunc(slices.Values(c.zones), func(a, b zone) int {
		return cmp.Or(strings.Compare(r53Order(a.name), r53Order(b.name)), strings.Compare(r53ID(a), r53ID(b)))
	})
	if start := r.Query("dnsname"); start != "" {
		zones = slices.DeleteFunc(zones, func(z zone) bool {
			order := strings.Compare(r53Order(z.name), r53Order(start))
			return order < 0 || order == 0 && r53ID(z) < r.Query("hostedzoneid")
		})
	}
	shown := page(zones, 1, c.size(number(r.Query("maxitems")), 100, 100))
	var list struct {
		HostedZones      []r53Zone `xml:"HostedZones>HostedZone"`
		DNSName          string    `xml:",omitempty"`
		IsTruncated      bool
		NextDNSName      string `xml:",omitempty"`
		NextHostedZoneId string `xml:",omitempty"`
		MaxItems         string
	}
	for _, z := range shown {
		list.HostedZones = append(list.HostedZones, r53ZoneOf(z))
	}
	if list.IsTruncated = len(shown) < len(zones); list.IsTruncated {
		list.NextDNSName, list.NextHostedZoneId = r53Name(zones[len(shown)].name), r53ID(zones[len(shown)])
	}
	list.DNSName, list.MaxItems = r.Query("dnsname"), r.Query("maxitems")
	return r53XML(http.StatusOK, "ListHostedZonesByNameResponse", list)
}

// r53Set is a set, as it is listed and as it is sent.
type r53Set struct {
	Name          string
	Type          string
	SetIdentifier string      `xml:",omitempty"`
	Weight        *int        `xml:",omitempty"`
	TTL           *uint32     `xml:",omitempty"`
	Records       []r53Record `xml:"ResourceRecords>ResourceRecord"`

	order string // where it stands in lists
}

type r53Record struct{ Value string }

// values gives the values in the order of their texts.
func (s r53Set) values() (values []string) {
	for _, r := range s.Records {
		values = append(values, r.Value)
	}
	slices.Sort(values)
	return values
}

// r53List lists the sets of the zone from a name and a type on.
func r53List(c *Cloud, r Request, z zone) Answer {
	name, kind := r.Query("name"), r.Query("type")
	if name == "" && kind != "" {
		return r53Failure(http.StatusBadRequest, "InvalidInput", "The input is not valid.")
	}
	sets := r53Sets(c, z, "")
	slices.SortFunc(sets, func(a, b r53Set) int {
		return cmp.Or(strings.Compare(a.order, b.order), strings.Compare(a.Type, b.Type), strings.Compare(a.SetIdentifier, b.SetIdentifier))
	})
	first := r53Order(name)
	sets = slices.DeleteFunc(sets, func(s r53Set) bool {
		order := strings.Compare(s.order, first)
		return name != "" && (order < 0 || order == 0 && s.Type < kind ||
			order == 0 && s.Type == kind && s.SetIdentifier < r.Query("identifier"))
	})
	shown := page(sets, 1, c.size(number(r.Query("maxitems")), 300, 300))
	list := struct {
		Sets           []r53Set `xml:"ResourceRecordSets>ResourceRecordSet"`
		IsTruncated    bool
		NextRecordName string `xml:",omitempty"`
		NextRecordType string `xml:",omitempty"`
		NextIdentifier string `xml:"NextRecordIdentifier,omitempty"`
		MaxItems       string
	}{Sets: shown, MaxItems: r.Query("maxitems")}
	if list.IsTruncated = len(shown) < len(sets); list.IsTruncated {
		next := sets[len(shown)]
		list.NextRecordName, list.NextRecordType, list.NextIdentifier = next.Name, next.Type, next.SetIdentifier
	}
	return r53XML(http.StatusOK, "ListResourceRecordSetsResponse", list)
}

// r53Sets joins the records of a zone to sets, beside those that every zone
// has; those of a name, unless it is "".
func r53Sets(c *Cloud, z zone, name string) []r53Set {
	hour := uint32(3600)
	sets := []r53Set{
		{Name: r53Name(z.name), Type: "NS", TTL: &hour, Records: []r53Record{{"ns-2048.awsdns-64.com."}}},
		{Name: r53Name(z.name), Type: "SOA", TTL: &hour, Records: []r53Record{{"ns-2048.awsdns-64.com. awsdns-hostmaster.amazon.com. 1 7200 900 1209600 86400"}}},
	}
	for i := range sets {
		sets[i].order = r53Order(sets[i].Name)
	}
	known := map[[3]string]int{}
	for _, record := range c.records {
		if record.zone != z.name || z.private || name != "" && record.name != name {
			continue
		}
		set := r53Set{Name: r53Name(record.name), Type: record.kind, TTL: &record.ttl}
		if record.off {
			weight := 10
			set.SetIdentifier, set.Weight = strconv.Itoa(record.id), &weight
		}
		key := [3]string{set.Name, set.Type, set.SetIdentifier}
		at, ok := known[key]
		if !ok {
			at, set.order = len(sets), r53Order(set.Name)
			known[key] = at
			sets = append(sets, set)
		}
		sets[at].Records = append(sets[at].Records, r53Record{record.content})
	}
	return sets
}

func r53Changed(id, status string) any {
	type info struct{ Id, Status, SubmittedAt string }
	return struct{ ChangeInfo info }{info{"/change/" + id, status, "2026-03-04T05:06:07.000Z"}}
}

// change tells whether a change is on all servers.
func (s *route53) change(id string) Answer {
	looks, ok := s.pending[id]
	if !ok {
		return r53Failure(http.StatusNotFound, "NoSuchChange", "Could not find resource with ID: "+id)
	}
	if looks > 0 {
		s.pending[id]--
		return r53XML(http.StatusOK, "GetChangeResponse", r53Changed(id, "PENDING"))
	}
	return r53XML(http.StatusOK, "GetChangeResponse", r53Changed(id, "INSYNC"))
}

type r53Step struct {
	Action string
	Set    r53Set `xml:"ResourceRecordSet"`
}

// batch makes all changes, or none and says why.
func (s *route53) batch(c *Cloud, r Request, z zone) Answer {
	var batch struct {
		XMLName xml.Name  `xml:"https://route53.amazonaws.com/doc/2013-04-01/ ChangeResourceRecordSetsRequest"`
		Steps   []r53Step `xml:"ChangeBatch>Changes>Change"`
	}
	if err := xml.Unmarshal(r.Body, &batch); err != nil || len(batch.Steps) == 0 || r.Header.Get("Content-Type") != "application/xml" {
		return r53Failure(http.StatusBadRequest, "InvalidInput", "Invalid XML ; the request is not a change batch")
	}
	elements, characters := 0, 0
	for _, step := range batch.Steps {
		for _, record := range step.Set.Records {
			elements, characters = elements+1, characters+len(record.Value)
		}
	}
	if elements > 1000 || characters > 32000 {
		return r53BatchFailure("Number of records limit of 1000 exceeded.")
	}
	records, changes := slices.Clone(c.records), c.changes
	var messages []string
	for _, step := range batch.Steps {
		if message := r53Apply(c, z, step); message != "" {
			messages = append(messages, message)
		}
	}
	if len(messages) > 0 {
		c.records, c.changes = records, changes
		return r53BatchFailure(messages...)
	}
	id := fmt.Sprintf("C%08d", c.newID())
	s.pending[id] = c.lag
	return r53XML(http.StatusOK, "ChangeResourceRecordSetsResponse", r53Changed(id, "PENDING"))
}

// r53Apply makes one step, or says why not.
func r53Apply(c *Cloud, z zone, step r53Step) (message string) {
	set, name := step.Set, fold(step.Set.Name)
	if message := r53Wrong(z, set); message != "" {
		return message
	}
	what := fmt.Sprintf("resource record set [name='%s', type='%s']", r53Name(name), set.Type)
	sets := r53Sets(c, z, name)
	at := slices.IndexFunc(sets, func(s r53Set) bool { return s.Name == r53Name(name) && s.Type == set.Type && s.SetIdentifier == "" })
	switch {
	case step.Action == "DELETE" && at < 0:
		return "Tried to delete " + what + " but it was not found"
	case step.Action == "DELETE" && (*sets[at].TTL != *set.TTL || !slices.Equal(sets[at].values(), set.values())):
		return "Tried to delete " + what + " but the values provided do not match the current values"
	case step.Action == "DELETE":
		c.changes++
		c.records = slices.DeleteFunc(slices.Clone(c.records), func(r *record) bool { return r.name == name && r.kind == set.Type && !r.off })
	case step.Action != "CREATE":
		return "no action " + step.Action
	case c.aliased(name):
		return "RRSet of type " + set.Type + " with DNS name " + r53Name(name) + " is not permitted because a conflicting RRSet of type  CNAME with the same DNS name already exists in zone " + r53Name(z.name)
	case at >= 0:
		return "Tried to create " + what + " but it already exists"
	case slices.ContainsFunc(sets, func(s r53Set) bool { return s.Name == r53Name(name) && s.Type == set.Type }):
		return "RRSet with DNS name " + r53Name(name) + ", type " + set.Type + ", SetIdentifier null cannot be created as other RRSets exist with the same name and type."
	default:
		for _, record := range set.Records {
			c.insert(name, set.Type, record.Value, *set.TTL).hidden = 0
		}
	}
	return ""
}

// r53Wrong says what is wrong with a set in itself.
func r53Wrong(z zone, set r53Set) string {
	name := fold(set.Name)
	switch {
	case z.private || name != z.name && !strings.HasSuffix(name, "."+z.name):
		return "RRSet with DNS name " + set.Name + " is not permitted in zone " + r53Name(z.name)
	case !slices.Contains(kinds, set.Type) || set.SetIdentifier != "" || set.TTL == nil || len(set.Records) == 0:
		return "Invalid request: expected a TTL and at least one record of a known type"
	}
	for i, value := range set.values() {
		switch {
		case i > 0 && set.values()[i-1] == value:
			return "Duplicate Resource Record: '" + value + "'"
		case len(value) > 4000:
			return "Invalid Resource Record: 'FATAL problem: TXTRDATATooLong (Value is too long) encountered with '" + value + "''"
		case !rightData(set.Type, value):
			return "Invalid Resource Record: 'FATAL problem: " + set.Type + "RRDATAIllegal (Value is not valid) encountered with '" + value + "''"
		case set.Type == "TXT" && r53Read(value) == nil:
			return "Invalid Resource Record: 'FATAL problem: InvalidCharacterString (Value should be enclosed in quotation marks) encountered with '" + value + "''"
		}
	}
	return ""
}

// r53Spell quotes a value, with every octet but letters, digits and spaces escaped.
func r53Spell(value []string) string {
	var text strings.Builder
	for i, s := range value {
		if i > 0 {
			text.WriteByte(' ')
		}
		text.WriteByte('"')
		for _, octet := range []byte(s) {
			if octet == ' ' || '0' <= octet && octet <= '9' || 'A' <= octet && octet <= 'Z' || 'a' <= octet && octet <= 'z' {
				text.WriteByte(octet)
			} else {
				fmt.Fprintf(&text, `\%03o`, octet)
			}
		}
		text.WriteByte('"')
	}
	return text.String()
}

var (
	r53Quoted = regexp.MustCompile(`^("(?:[ !#-\[\]-~]|\\[0-3][0-7]{2}|\\["\\])*")(?: ("(?:[ !#-\[\]-~]|\\[0-3][0-7]{2}|\\["\\])*"))*$`)
	r53String = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	r53Escape = regexp.MustCompile(`\\([0-7]{3}|.)`)
)

// r53Read gives the strings of a value, nil if it is not quoted as it should.
func r53Read(text string) (value []string) {
	if !r53Quoted.MatchString(text) {
		return nil
	}
	for _, quoted := range r53String.FindAllString(text, -1) {
		s := r53Escape.ReplaceAllStringFunc(quoted[1:len(quoted)-1], func(escaped string) string {
			if octet, err := strconv.ParseUint(escaped[1:], 8, 8); err == nil && len(escaped) == 4 {
				return string([]byte{byte(octet)})
			}
			return escaped[1:]
		})
		if len(s) > 255 {
			return nil
		}
		value = append(value, s)
	}
	return value
}
