package provider

import (
	"cmp"
	"context"
	"encoding/xml"
	"net/http"
	"net/url"
	"strings"
	"time"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// route53 is Amazon Route 53, API version 2013-04-01: XML documents, signed with AWS Signature Version 4.
// All values of a name and type are one set. A batch replaces a set atomically, and only if the set is
// still as it was read.
type route53 struct {
	api      *api
	poll     time.Duration // the first pause between two looks at a change
	patience time.Duration // limit for all looks
}

const (
	route53Endpoint    = "https://route53.amazonaws.com/2013-04-01"
	route53PageSize    = "100"
	route53SetsPage    = "300"
	route53Elements    = 1000    // records in a batch
	route53Characters  = 32000   // characters of the values in a batch
	route53MaxValue    = 4000    // characters, escaped
	route53Odd         = `\%03o` // format of octets in values that are not printable ASCII
	route53SyncTime    = 10 * time.Second
	route53LongestPoll = 4 * time.Second // not documented: reports say five requests a second for an account
)

// NewRoute53 makes a client of Amazon Route 53. The key pair is access key id and secret access key of
// an IAM user. It needs the rights route53:ListHostedZonesByName, ListResourceRecordSets,
// ChangeResourceRecordSets and GetChange, and GetHostedZone to read the zone's name servers.
func NewRoute53(c Credentials) (*Client, error) {
	return open(route53Endpoint, c, func(a *api) *route53 { return &route53{a, pollInterval, route53SyncTime} })
}

// route53Scope is the scope of the only region that has the API.
var route53Scope = scoped{"AWS4-HMAC-SHA256", "AWS4", "us-east-1", "route53", "aws4_request"}

// signRoute53 signs a request over the named headers. The signed path has each segment escaped a second
// time.
func signRoute53(r *http.Request, signed []string, body []byte, key Credentials, at time.Time) {
	r.Header.Set("X-Amz-Date", at.UTC().Format(basicTime))
	segments := strings.Split(r.URL.EscapedPath(), "/")
	for i, segment := range segments {
		segments[i] = escape(segment)
	}
	r.Header.Set("Authorization", route53Scope.authorization(r, strings.Join(segments, "/"), signed, body, key, at))
}

// route53Errors are the codes of the API and those common to AWS, and what only its messages tell, of which
// none is documented.
var route53Errors = codeKinds{
	{"SignatureDoesNotMatch: *Signature expired*|SignatureDoesNotMatch: *Signature not yet current*", ClockSkew},
	{"InvalidSignatureException: *Signature expired*|InvalidSignatureException: *Signature not yet current*", ClockSkew},
	{"InvalidChangeBatch: *conflicting RRSet of type CNAME*", Conflict}, // the message also has "already exists"
	{"InvalidChangeBatch: *conflicts with other records*", Conflict},
	{"InvalidChangeBatch: *cannot be created as*", Conflict}, // beside weighted sets and similar ones
	{"InvalidChangeBatch: *already exists*|InvalidChangeBatch: *not found*", Changed},
	{"InvalidChangeBatch: *values provided do not match*", Changed},
	{"InvalidChangeBatch: *limit of*|InvalidChangeBatch: *Exceeded limit*|InvalidChangeBatch: *Cannot have more than*", Quota},
	{"InvalidClientTokenId|UnrecognizedClient*|SignatureDoesNotMatch|InvalidSignature*", BadCredentials},
	{"IncompleteSignature*|MissingAuthenticationToken*|ExpiredToken*", BadCredentials},
	{"AccessDenied*|OptInRequired", Permission},
	{"RequestExpired", ClockSkew},
	{"NoSuchHostedZone", ZoneNotFound},
	{"InvalidInput|InvalidDomainName", Invalid},
	{"LimitsExceeded", Quota},
	{"Throttl*|RequestThrottled*|TooManyRequests*|RequestLimitExceeded|SlowDown|PriorRequestNotComplete", Throttled},
	{"NoSuchChange", Temporary}, // the client asks only for changes that were accepted
	{"ServiceUnavailable*|Internal*", Temporary},
}

// refused parses an error: an ErrorResponse, or a document named after its code, such as
// InvalidChangeBatch, which has a list of messages.
func (v *route53) refused(c call, ans answer) error {
	var failure struct {
		XMLName   xml.Name
		Code      string   `xml:"Error>Code"`
		Message   string   `xml:"Error>Message"`
		Bare      string   `xml:"Message"`
		Messages  []string `xml:"Messages>Message"`
		RequestID string   `xml:"RequestId"`
	}
	err := xml.Unmarshal(ans.body, &failure)
	message := cmp.Or(failure.Message, failure.Bare, strings.Join(failure.Messages, "; "))
	if err != nil || failure.Code+message == "" {
		return v.api.unreadable(c, ans, cmp.Or(err, errNotTheirs))
	}
	code := cmp.Or(failure.Code, failure.XMLName.Local)
	id := cmp.Or(failure.RequestID, ans.header.Get("X-Amzn-Requestid"))
	return v.api.refused(c, ans, verdict{code, message, id}, route53Errors)
}

// do makes one call and parses its answer into out, whose XMLName is the name of the expected document.
func (v *route53) do(ctx context.Context, c call, out any) error {
	signed := []string{"host", "x-amz-date"}
	c.header = map[string]string{"Accept": "*/*"} // some AWS services answer in JSON if the client accepts it
	if len(c.body) > 0 {
		c.header["Content-Type"] = "application/xml"
		signed = append([]string{"content-type"}, signed...)
	}
	ans, err := v.api.send(ctx, c, func(r *http.Request, body []byte) {
		signRoute53(r, signed, body, v.api.Key, v.api.now())
	})
	if err != nil {
		return err
	}
	if ans.status != http.StatusOK {
		return v.refused(c, ans)
	}
	return v.api.unreadable(c, ans, xml.Unmarshal(ans.body, out))
}

// route53Name decodes the vendor's spelling of a name, with `\052` for "*". A dot or backslash within a
// label stays escaped.
func route53Name(text string) string {
	var name strings.Builder
	for rest := text; rest != ""; {
		octet, length, err := octetAt(rest, 8)
		if err != nil {
			return dns.Fold(text)
		}
		if length > 1 && (octet == '.' || octet == '\\') {
			name.WriteByte('\\')
		}
		name.WriteByte(octet)
		rest = rest[length:]
	}
	return dns.Fold(name.String())
}

func (v *route53) zone(ctx context.Context, name string) (zone, bool, error) {
	zones, err := v.zonesFrom(ctx, name, maxPages)
	z, found := pick(zones, name)
	if err = cmp.Or(err, z.fault); err != nil || !found {
		return zone{}, false, err
	}
	return v.complete(ctx, z), true, nil
}

// complete asks for the zone's name servers.
func (v *route53) complete(ctx context.Context, z zone) zone {
	var answer struct {
		XMLName     xml.Name `xml:"GetHostedZoneResponse"`
		NameServers []string `xml:"DelegationSet>NameServers>NameServer"`
	}
	if v.do(ctx, call{name: "GetHostedZone", method: http.MethodGet, path: "/hostedzone/" + escape(z.id)}, &answer) == nil {
		z.servers = answer.NameServers // without the right to ask, they stay unknown
	}
	return z
}

func (v *route53) zones(ctx context.Context) ([]zone, error) { return v.zonesFrom(ctx, "", zonePages) }

// zonesFrom returns the public zones with the name only, or all if only is "". If the account has several of one
// name, that is a fault, because the client does not know which one the name is delegated to.
func (v *route53) zonesFrom(ctx context.Context, only string, pages int) (zones []zone, err error) {
	ids := map[string][]string{}
	err = v.eachZone(ctx, only, pages, func(name, id string) {
		if ids[name] == nil {
			zones = append(zones, zone{id: id, unique: id, name: name})
		}
		ids[name] = append(ids[name], id)
	})
	for i, z := range zones {
		if own := ids[z.name]; len(own) > 1 {
			zones[i].fault = &Error{Kind: Conflict, Detail: msg.Textf(
				"the account has %d public hosted zones named %s (%s): delete those that the name is not delegated to",
				len(own), z.name, strings.Join(own, ", "))}
		}
	}
	return zones, err
}

// eachZone calls do for each of these zones. The vendor lists all zones of the account from the name on.
func (v *route53) eachZone(ctx context.Context, only string, pages int, do func(name, id string)) error {
	query := url.Values{"maxitems": {route53PageSize}}
	if only != "" {
		query.Set("dnsname", only+".")
	}
	for range pages {
		var answer struct {
			XMLName xml.Name `xml:"ListHostedZonesByNameResponse"`
			Zones   []struct {
				ID      string `xml:"Id"`
				Name    string
				Private bool `xml:"Config>PrivateZone"`
			} `xml:"HostedZones>HostedZone"`
			IsTruncated bool
			NextDNSName string
			NextID      string `xml:"NextHostedZoneId"`
		}
		err := v.do(ctx, call{name: "ListHostedZonesByName", method: http.MethodGet, path: "/hostedzonesbyname", query: query}, &answer)
		if err != nil {
			return err
		}
		for _, z := range answer.Zones {
			if name := route53Name(z.Name); !z.Private && (only == "" || name == only) {
				do(name, strings.TrimPrefix(z.ID, "/hostedzone/"))
			}
		}
		if !answer.IsTruncated || only != "" && route53Name(answer.NextDNSName) != only {
			return nil
		}
		next := strings.TrimPrefix(answer.NextID, "/hostedzone/")
		if answer.NextDNSName == query.Get("dnsname") && next == query.Get("hostedzoneid") {
			return &Error{Kind: BadAnswer, Detail: msg.Say("the list of zones goes on where it began")}
		}
		query.Set("dnsname", answer.NextDNSName)
		query.Set("hostedzoneid", next)
	}
	return manyPages(tooMany, pages)
}

// route53Set is the record set of a name and type, or one of several such sets, which then have
// identifiers.
type route53Set struct {
	Name                    string
	Type                    string
	SetIdentifier           string          `xml:",omitempty"`
	TTL                     uint32          // 0 is a valid TTL; only an alias has none
	Records                 []route53Record `xml:"ResourceRecords>ResourceRecord"`
	AliasTarget             *struct{}       `xml:",omitempty"`
	TrafficPolicyInstanceID string          `xml:"TrafficPolicyInstanceId,omitempty"`
}

type route53Record struct{ Value string }

// special reports whether the client must not change the set: it is one of several sets between which
// the vendor chooses, an alias, or made by a traffic policy.
func (s route53Set) special() bool {
	return s.SetIdentifier != "" || s.AliasTarget != nil || s.TrafficPolicyInstanceID != ""
}

func route53Sets(z zone) string { return "/hostedzone/" + escape(z.id) + "/rrset" }

// list asks for one set, because all are special if a name has several of one type. Name and type in
// the query are only the beginning of the list.
func (v *route53) list(ctx context.Context, z zone, at setKey) (set recordSet, err error) {
	page, err := v.page(ctx, z, url.Values{"name": {at.name + "."}, "type": {string(at.kind)}, "maxitems": {"1"}})
	for _, s := range page.Sets {
		if s.Type == string(at.kind) && route53Name(s.Name) == at.name {
			set = s.addTo(set)
		}
	}
	return set, err
}

// target returns the target of an alias.
func (s route53Set) target() string {
	if len(s.Records) == 0 {
		return "what the provider chooses"
	}
	return s.Records[0].Value
}

// addTo adds a set to the records of its name and type.
func (s route53Set) addTo(set recordSet) recordSet {
	set.ttl = s.TTL
	if s.special() && len(s.Records) == 0 {
		set.records = append(set.records, record{off: true, hides: true}) // an alias: its values are elsewhere
	}
	for _, r := range s.Records {
		set.records = append(set.records, record{value: valueOf(s.Type, r.Value, readRoute53), raw: r.Value, ttl: s.TTL, off: s.special(), hides: s.special()})
	}
	return set
}

// readRoute53 parses the vendor's spelling of a TXT value. One that cannot be read is kept as text.
func readRoute53(text string) Value {
	value, err := unquoteTXT(text, 8)
	if err != nil {
		return cutTXT(text)
	}
	return value
}

// route53Change is a step of a batch, CREATE or DELETE.
type route53Change struct {
	Action string
	Set    route53Set `xml:"ResourceRecordSet"`
}

func (v *route53) fits(t Type, value Value) error {
	if len(t.spell(value, route53Odd)) > route53MaxValue {
		return msg.Errorf("the provider takes at most %d characters, quotes and escapes included", route53MaxValue)
	}
	return nil
}
