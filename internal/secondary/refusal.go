package secondary

import (
	"cmp"
	"errors"

	"meshddns/internal/dns"
	"meshddns/internal/msg"
)

// Errors of a message.
var (
	errNoAnswer = msg.Errorf("no valid answer to NOTIFY")
	errRefused  = msg.Errorf("NOTIFY is refused")
	errOlder    = msg.Errorf("the secondary was sent the version, and serves an older one or none: see its log")
)

// causes say what to check, by the rcode of an answer or of its TSIG record.
var causes = map[dns.Rcode]string{
	dns.RcodeRefused: "the secondary takes no NOTIFY from this host or with this key (allow-notify in BIND, acl in Knot)",
	dns.RcodeNotAuth: "the secondary has not added the zone with this host as its primary, or does not know the key",
	dns.RcodeNotImp:  "the secondary's software does not know NOTIFY",
	dns.RcodeBadSig:  "the secondary has another key_secret for this key_name",
	dns.RcodeBadKey:  "the secondary has no key of this key_name with this key_algorithm",
	dns.RcodeBadTime: "the clocks of the two hosts differ by over 5 minutes",
}

// because adds to an error the rcode of an answer, or the error of its TSIG record, and what to check.
func because(err error, rcode dns.Rcode, signature error) error {
	if e, ok := errors.AsType[*dns.TSIGError](signature); ok {
		rcode = e.Code
	}
	return msg.Errorf("%w: %s: %s", err, rcode.String(), msg.Say(cmp.Or(causes[rcode], "compare the key with the secondary's, and see its log")))
}
