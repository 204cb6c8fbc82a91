package provider_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"meshddns/internal/provider"
	"meshddns/test/cloudtest"
)

// together makes changes that add "ours" to so many names.
func together(n int) (changes []provider.Change) {
	for i := range n {
		changes = append(changes, provider.Change{
			Zone: cloudtest.Zone, Name: fmt.Sprintf("together%d.%s", i, cloudtest.Zone), Type: provider.TXT, Add: []provider.Value{{"ours"}}, TTL: 60,
		})
	}
	return changes
}

// byName are the providers that do not list zones.
var byName = []string{"godaddy", "porkbun"}

// TestZonesOnce finds the zones of many names, existing or not, and asks the provider for each fact at
// most once.
func TestZonesOnce(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		client := newClient(t, c)
		find := func() {
			for i := range 20 {
				for _, zone := range []string{cloudtest.Zone, cloudtest.ChildZone, "nowhere.example"} {
					found, err := client.Zone(t.Context(), fmt.Sprintf("_mesh.p%d.%s", i, zone))
					if zone == "nowhere.example" && provider.KindOf(err) != provider.ZoneNotFound || zone != "nowhere.example" && found != zone {
						t.Errorf("%s: %q, %v", zone, found, err)
					}
				}
			}
		}
		find()
		if limit := 8; !slices.Contains(byName, c.Provider) && c.Requests() > limit {
			t.Errorf("%d requests for the zones of 60 names, want at most %d", c.Requests(), limit)
		}
		before := c.Requests()
		find()
		if again := c.Requests() - before; again > 0 {
			t.Errorf("%d requests for what was found, or found missing, before", again)
		}
	})
}

// TestZoneIDs tells the zones of two accounts apart where two accounts can
// have a zone of one name, and never those of one.
func TestZoneIDs(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		second := c.Second(t, cloudtest.Zone)
		var ids []string
		for _, account := range []*cloudtest.Cloud{c, c, second} {
			id, err := newClient(t, account).ZoneID(t.Context(), cloudtest.Zone)
			if silent := c.Provider == "webhook"; err != nil || (id == "") != silent { // the stand-in tells no ids
				t.Fatalf("%q, %v", id, err)
			}
			ids = append(ids, id)
		}
		unique := slices.Contains([]string{"powerdns", "godaddy", "porkbun", "webhook"}, c.Provider)
		if ids[0] != ids[1] || unique != (ids[0] == ids[2]) {
			t.Errorf("%q", ids)
		}
		if _, err := newClient(t, second).Zone(t.Context(), cloudtest.ChildZone); err != nil {
			t.Error(err)
		}
	})
}

// TestChangeAllEnds has the provider fail for all names: it is not asked for
// each of them.
func TestChangeAllEnds(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		client := newClient(t, c)
		if _, err := client.ReadAll(t.Context(), cloudtest.Zone, nil); err != nil {
			t.Fatal(err)
		}
		before := c.Requests()
		c.Fail(slices.Repeat([]cloudtest.Fault{cloudtest.Throttle}, 1000)...)
		for _, err := range client.ChangeAll(t.Context(), together(200)) {
			if provider.KindOf(err) != provider.Throttled {
				t.Fatal(err)
			}
		}
		c.FailNoMore()
		c.Fail(slices.Concat([]cloudtest.Fault{cloudtest.Pass}, slices.Repeat([]cloudtest.Fault{cloudtest.Throttle}, 1000))...)
		for _, err := range client.ChangeAll(t.Context(), together(200)) {
			if provider.KindOf(err) != provider.Throttled {
				t.Fatal(err)
			}
		}
		c.FailNoMore()
		if asked := c.Requests() - before; asked > 12 {
			t.Errorf("%d requests for what fails for all names", asked)
		}
	})
}

// TestChangeAllHalves finds the one bad name of many in few requests.
func TestChangeAllHalves(t *testing.T) {
	for _, start := range []func(testing.TB) *cloudtest.Cloud{cloudtest.PowerDNS, cloudtest.Route53} {
		c := start(t)
		client := newClient(t, c)
		c.SetPageLimit(0)
		if _, err := client.ReadAll(t.Context(), cloudtest.Zone, nil); err != nil {
			t.Fatal(err)
		}
		changes := together(128)
		changes[77].Name = "elsewhere.example.net"
		before := c.Requests()
		for i, err := range client.ChangeAll(t.Context(), changes) {
			if (i == 77) != (err != nil) {
				t.Errorf("%s: %s: %v", c.Provider, changes[i].Name, err)
			}
		}
		if asked := c.Requests() - before; asked > 30 {
			t.Errorf("%s: %d requests to find one bad name of 128", c.Provider, asked)
		}
	}
}

// TestBatchSizes changes as many names as one call may change, and one more, each with one record.
func TestBatchSizes(t *testing.T) {
	for _, test := range []struct {
		start func(testing.TB) *cloudtest.Cloud
		names int
	}{{cloudtest.Cloudflare, 200}, {cloudtest.Route53, 1000}} {
		for _, names := range []int{test.names, test.names + 1} {
			c := test.start(t)
			c.SetPageLimit(0)
			for i, err := range newClient(t, c).ChangeAll(t.Context(), together(names)) {
				if err != nil {
					t.Fatal(c.Provider, i, err)
				}
			}
			writes := 0
			for _, r := range c.Asked() {
				if r.Method != http.MethodGet {
					writes++
				}
			}
			if want := 1 + names - test.names; writes != want {
				t.Errorf("%s: %d calls for %d names, want %d", c.Provider, writes, names, want)
			}
		}
	}
}

// TestCloudflareWithoutBatch speaks to an API that does not know batches.
func TestCloudflareWithoutBatch(t *testing.T) {
	c := cloudtest.Cloudflare(t)
	client := newClient(t, c)
	if _, err := client.ReadAll(t.Context(), cloudtest.Zone, nil); err != nil {
		t.Fatal(err)
	}
	answer := cloudtest.JSON(http.StatusBadRequest, map[string]any{
		"success": false, "errors": []any{map[string]any{"code": 7000, "message": "No route for that URI"}},
	})
	c.Fail(cloudtest.Pass, cloudtest.Pass, cloudtest.Instead(answer)) // the two lists
	for i, err := range client.ChangeAll(t.Context(), together(5)) {
		if err != nil {
			t.Error(i, err)
		}
		wantValues(t, c, fmt.Sprintf("together%d.%s", i, cloudtest.Zone), "ours")
	}
}

// TestReadAllWhole has incomplete lists.
func TestReadAllWhole(t *testing.T) {
	cloudtest.Each(t, func(t *testing.T, c *cloudtest.Cloud) {
		for i := range 3 * cloudtest.PageLimit {
			c.Add(t, fmt.Sprintf("n%d.%s", i, cloudtest.Zone), []string{"one"})
		}
		client := newClient(t, c)
		sets, err := client.ReadAll(t.Context(), cloudtest.Zone, nil)
		if err != nil || len(sets) != 3*cloudtest.PageLimit {
			t.Fatalf("%d names, %v", len(sets), err)
		}
		before := c.Requests()
		client.ReadAll(t.Context(), cloudtest.Zone, nil)
		for at := range c.Requests() - before {
			c.Fail(slices.Concat(slices.Repeat([]cloudtest.Fault{cloudtest.Pass}, at), []cloudtest.Fault{cloudtest.Throttle})...)
			if sets, err := client.ReadAll(t.Context(), cloudtest.Zone, nil); err == nil {
				t.Errorf("request %d fails: %d names, %v", at, len(sets), err)
			}
			c.FailNoMore()
		}
	})
}

// TestReadAllRefused has a key that may read names, but not list the zone.
func TestReadAllRefused(t *testing.T) {
	c := cloudtest.AliDNS(t)
	client := newClient(t, c)
	if _, err := client.Zone(t.Context(), cloudtest.Zone); err != nil {
		t.Fatal(err)
	}
	refusal := cloudtest.JSON(http.StatusForbidden, map[string]any{"RequestId": "r", "Code": "Forbidden.RAM", "Message": "not authorized"})
	c.Fail(cloudtest.Instead(refusal))
	if _, err := client.ReadAll(t.Context(), cloudtest.Zone, nil); !errors.Is(err, provider.ErrNotListed) || !strings.Contains(err.Error(), "Forbidden.RAM") {
		t.Error(err)
	}
	fresh := newClient(t, c)
	if _, err := fresh.Zone(t.Context(), cloudtest.Zone); err != nil {
		t.Fatal(err)
	}
	c.Fail(cloudtest.Instead(refusal))
	for _, err := range fresh.ChangeAll(t.Context(), together(9)) {
		if err != nil {
			t.Error(err)
		}
	}
}

// TestExistsMeansAlias has the code for a record that exists, where a CNAME is.
func TestExistsMeansAlias(t *testing.T) {
	c := cloudtest.TencentCloud(t)
	client := newClient(t, c)
	if _, err := client.Zone(t.Context(), cloudtest.Zone); err != nil {
		t.Fatal(err)
	}
	c.AddAlias(faultyName, "elsewhere.example.net")
	exists := cloudtest.JSON(http.StatusOK, map[string]any{"Response": map[string]any{
		"RequestId": "r", "Error": map[string]any{"Code": "InvalidParameter.DomainRecordExist", "Message": "The record exists."},
	}})
	c.Fail(cloudtest.Pass, cloudtest.Instead(exists))
	err := client.Change(t.Context(), provider.Change{Zone: cloudtest.Zone, Name: faultyName, Type: provider.TXT, Add: []provider.Value{{"ours"}}, TTL: 60})
	wantKind(t, c, err, provider.Conflict)
}

// TestRetryKeepsTheDoubt loses the outcome of a batch, whose halves then succeed: the batch may still
// arrive. Which request has the batch depends on the provider.
func TestRetryKeepsTheDoubt(t *testing.T) {
	for _, start := range []func(testing.TB) *cloudtest.Cloud{cloudtest.PowerDNS, cloudtest.Route53, cloudtest.Cloudflare} {
		doubts := 0
		for before := range 4 {
			c := start(t)
			client := newClient(t, c)
			if _, err := client.ReadAll(t.Context(), cloudtest.Zone, nil); err != nil {
				t.Fatal(err)
			}
			late := cloudtest.JSON(http.StatusGatewayTimeout, map[string]any{})
			c.Fail(append(slices.Repeat([]cloudtest.Fault{cloudtest.Pass}, before), cloudtest.Instead(late))...)
			for _, err := range client.ChangeAll(t.Context(), together(8)) {
				if errors.Is(err, provider.ErrRepeated) {
					doubts++
				}
			}
		}
		if doubts != 8 {
			t.Errorf("%s: %d of 8 changes of a lost batch are in doubt", start(t).Provider, doubts)
		}
	}
}
