package mesh

import (
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"meshddns/internal/msg"
	"meshddns/internal/strictjson"
)

// CheckKind is a way to find out whether an endpoint lives.
type CheckKind string

// The kinds of checks.
const (
	CheckTCP  CheckKind = "tcp"  // it accepts a connection
	CheckTLS  CheckKind = "tls"  // a TLS handshake completes, with any certificate
	CheckWS   CheckKind = "ws"   // it answers a WebSocket handshake with 101
	CheckHTTP CheckKind = "http" // it answers a GET with a status below 500
	CheckNone CheckKind = "none" // no check, whatever the service has
)

// Checking says how the endpoints of a usage are checked.
type Checking struct {
	Kind     CheckKind `json:"kind"`
	Interval int       `json:"interval"` // seconds between two probes of an endpoint
	Fall     int       `json:"fall"`     // failures in a row that make it dead
	Rise     int       `json:"rise"`     // successes in a row that make it alive again
	Path     string    `json:"path,omitempty"`
}

// CheckedEndpoint is the state of an endpoint that may be checked.
type CheckedEndpoint struct {
	Endpoint string `json:"endpoint"`
	Slot     string `json:"slot,omitempty"`
	Alive    *bool  `json:"alive"` // null if it is not checked, or not yet
	Since    string `json:"since"`
	Error    string `json:"error"`
}

// SecondaryZone is a built-in zone at a secondary, as answers show it.
type SecondaryZone struct {
	Zone       string  `json:"zone"`
	Serial     uint32  `json:"serial"`
	Fetched    *uint32 `json:"fetched_serial"` // null: not known since the start
	Lag        int64   `json:"lag_seconds"`
	NotifiedAt string  `json:"notified_at"`
	Error      string  `json:"error"`
}

// NodeLease is a lease of a node, as the status pages show it.
type NodeLease struct {
	Usage             int64 // its seq
	UsageID, Name     string
	Slot, State, From string // State is "live", "held", "ended" or "new"
	Endpoints         []string
	Renewed, Ends     time.Time
	ACME              bool // it may put challenges
}

// Every returns the time between two probes of an endpoint.
func (c Checking) Every() time.Duration { return time.Duration(c.Interval) * time.Second }

// Text returns the check as JSON, "" for none.
func (c *Checking) Text() string {
	if c == nil {
		return ""
	}
	text, _ := json.Marshal(c) // strings and numbers always have a form in JSON
	return string(text)
}

// number is a numeric member of a check with its bounds.
type number struct {
	name     string
	into     *int
	from, to int
}

const (
	checkMembers = "kind | interval | fall | rise | path"
	checkKinds   = "tcp | tls | ws | http | none"
	maxPath      = 255 // octets
)

// ParseCheck reads a check. An empty object gives nil. It refuses a member that is unknown or wrong
// by its name.
func ParseCheck(text []byte) (*Checking, error) {
	members, err := strictjson.Object(text)
	if err != nil {
		return nil, msg.Refuse(msg.CheckInvalid, "check", "{"+checkMembers+"}")
	}
	if len(members) == 0 {
		return nil, nil
	}
	c := Checking{Interval: 10, Fall: 3, Rise: 2}
	numbers := []number{{"interval", &c.Interval, 5, 3600}, {"fall", &c.Fall, 1, 10}, {"rise", &c.Rise, 1, 10}}
	for _, m := range members {
		name, value := m.Name.Text, m.Value
		at := slices.IndexFunc(numbers, func(n number) bool { return n.name == name })
		switch {
		case at < 0 && name != "kind" && name != "path":
			return nil, msg.Refuse(msg.CheckInvalid, "check."+strconv.Quote(name[:min(len(name), maxPath/4)]), checkMembers)
		case value.Kind == strictjson.KindNull:
		case at >= 0:
			if want := numbers[at].read(value); want != "" {
				return nil, msg.Refuse(msg.CheckInvalid, "check."+name, want)
			}
		case name == "kind":
			c.Kind = CheckKind(value.Text)
		default:
			if c.Path = value.Text; value.Kind != strictjson.KindString || !goodPath(c.Path) {
				return nil, msg.Refuse(msg.CheckInvalid, "check.path", "/...")
			}
		}
	}
	if !slices.Contains([]CheckKind{CheckTCP, CheckTLS, CheckWS, CheckHTTP, CheckNone}, c.Kind) {
		return nil, msg.Refuse(msg.CheckInvalid, "check.kind", checkKinds)
	}
	return &c, nil
}

// read stores a number. It returns what the member wants if the value is another.
func (n number) read(value strictjson.Value) (want string) {
	given, err := strconv.Atoi(value.Text)
	if value.Kind != strictjson.KindNumber || err != nil || given < n.from || given > n.to {
		return strconv.Itoa(n.from) + ".." + strconv.Itoa(n.to)
	}
	*n.into = given
	return ""
}

// goodPath reports whether a path can stand in a request line as it is.
func goodPath(path string) bool {
	return len(path) <= maxPath && strings.HasPrefix(path, "/") &&
		!strings.ContainsFunc(path, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '#' })
}
