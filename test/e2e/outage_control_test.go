package e2e

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"meshddns/test/cloudtest"
)

// outageControl is something wrong that the test of providers has to find.
type outageControl struct {
	name, finds string
	hopeless    string               // the wait that it keeps from its end
	outage      outage               // HTML, if it is not named
	before      func(h *outageHouse) // the fault
	after       func(h *outageHouse) // it
}

var outageControls = []outageControl{
	{name: "nothing", finds: ""},
	{
		name: "a fault that is none", finds: "the usage says what is wrong", hopeless: "the usage says what is wrong",
		before: func(h *outageHouse) { h.set = func(string) {} },
	},
	{
		name: "a fault without an end", finds: "all is as wanted again", hopeless: "all is as wanted again",
		before: func(h *outageHouse) {
			set := h.set
			h.set = func(fault string) {
				if fault != "" {
					set(fault)
				}
			}
		},
	},
	{
		name: "a provider that answers well and stores nothing", finds: "the whole zone has", hopeless: "all is as wanted again",
		before: func(h *outageHouse) {
			other := strings.TrimPrefix(cloudtest.Webhook(h.t).URL, "http://")
			h.door.(*gate).target.Store(&other)
		},
	},
	{
		name: "a value that stands twice", finds: "the whole zone has", hopeless: "all is as wanted again",
		after: func(h *outageHouse) { h.foreign = append(h.foreign, h.foreign[0]) },
	},
	{
		name: "a value that is left", finds: "the whole zone has", hopeless: "all is as wanted again",
		after: func(h *outageHouse) { h.foreign = h.foreign[1:] },
	},
	{
		name: "a reservation that is gone", finds: "were acknowledged", hopeless: "all is as wanted again",
		after: func(h *outageHouse) { h.ids["never reserved"] = "x" },
	},
	{
		name: "many records that are kept", finds: "the program took",
		outage: outage{name: manyRecords, env: "GOGC=off"},
	},
	{
		name: "descriptors that stay", finds: "descriptors and memory are as before", hopeless: "descriptors and memory are as before",
		after: func(h *outageHouse) {
			for range 100 {
				c, err := net.Dial("tcp", h.p.http)
				if err != nil {
					h.t.Fatal(err)
				}
				h.t.Cleanup(func() { c.Close() })
				io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n") // a client that has asked may stay
			}
			h.p.eventually("they are accepted", func() bool { return resourcesOf(h.p.cmd.Process.Pid).files > h.before.files+2*spareFiles })
		},
	},
}

// plantPatience is how long a test waits for what a plant keeps from coming true. Whatever else
// has to come true before has the usual time.
const plantPatience = 5 * time.Second

// TestProviderFaultsControls plants what TestProviderFaults is there to find.
func TestProviderFaultsControls(t *testing.T) {
	if buildFlag == "-race" {
		t.Skip("see TestProviderFaults")
	}
	t.Parallel()
	for _, control := range outageControls {
		t.Run(control.name, func(t *testing.T) {
			t.Parallel()
			if control.outage.name == manyRecords && zoneRecords(t) < largeZone {
				t.Skipf("long: %s is less than %d", largeZones, largeZone)
			}
			if control.outage.name == "" {
				control.outage = outage{name: "HTML", codes: `^bad_answer$`}
			}
			err := control.found(newOutageHouse(t, "webhook", control.outage))
			switch {
			case control.finds == "" && err != nil:
				t.Error(err)
			case control.finds != "" && (err == nil || !strings.Contains(err.Error(), control.finds)):
				t.Errorf("found is %v, want %q", err, control.finds)
			}
		})
	}
}

// found gives what the test finds in a house with something wrong.
func (c outageControl) found(h *outageHouse) error {
	if err := h.begin(); err != nil {
		return err
	}
	h.hopeless = c.hopeless
	if c.before != nil {
		c.before(h)
	}
	if err := h.during(); err != nil {
		return err
	}
	if c.after != nil {
		c.after(h)
	}
	return h.after()
}
