package hostaddr

import (
	"net/netip"

	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

// Verdict says what an address, or the look for one, is worth to a host outside.
type Verdict string

// The verdicts. Each row's verdict is the first of this list that one of its families has.
const (
	Differs Verdict = "differs" // the sources in one list do not agree
	DSLite  Verdict = "ds-lite" // 192.0.0.0/29: the host's end of a tunnel to the carrier's NAT (RFC 6333)
	CGNAT   Verdict = "cgnat"   // 100.64.0.0/10: shared with others behind a carrier's NAT (RFC 6598)
	Private Verdict = "private" // any other address that is not globally reachable
	Public  Verdict = "public"
	None    Verdict = "none" // there is no address
)

// verdicts has all verdicts, the most telling first.
var verdicts = []Verdict{Differs, DSLite, CGNAT, Private, Public, None}

// verdictOf returns the verdict of an address.
func verdictOf(a netip.Addr) Verdict {
	switch {
	case !a.IsValid():
		return None
	case mesh.DSLite.Contains(a):
		return DSLite
	case mesh.CarrierNAT.Contains(a):
		return CGNAT
	case !mesh.IsPublic(a):
		return Private
	}
	return Public
}

// kind describes an address that is not public.
func kind(a netip.Addr) msg.Text {
	switch {
	case mesh.CarrierNAT.Contains(a):
		return msg.Say("shared with others behind a carrier's NAT (RFC 6598)")
	case mesh.DSLite.Contains(a):
		return msg.Say("this end of a tunnel to a carrier's NAT (DS-Lite, RFC 6333)")
	case a.IsPrivate():
		return msg.Say("private")
	case a.IsLinkLocalUnicast():
		return msg.Say("link-local")
	case a.IsLoopback():
		return msg.Say("loopback")
	}
	return msg.Say("not reachable from everywhere")
}
