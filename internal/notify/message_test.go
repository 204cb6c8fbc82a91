package notify

import (
	"database/sql"
	"strings"
	"testing"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

// Every kind of event has a name in both languages.
func TestKindTexts(t *testing.T) {
	for _, kind := range append([]events.Kind{events.Gap}, events.Kinds...) {
		english, chinese := msg.ID(kind).In(msg.English), msg.ID(kind).In(msg.Chinese)
		if english == string(kind) || chinese == english || strings.Contains(english+chinese, "%") {
			t.Errorf("%s is %q and %q", kind, english, chinese)
		}
	}
}

// A line says which slot, endpoint, secondary, target or record an event is about and what has changed. It is never raw
// JSON, and a recovery has no reason.
func TestLines(t *testing.T) {
	endpoints := func(slot string, all ...string) []byte {
		return events.JSON(struct {
			ID        string   `json:"id"`
			Slot      string   `json:"slot"`
			Endpoints []string `json:"endpoints"`
		}{"l1", slot, append([]string{}, all...)})
	}
	office := mesh.Service{ServiceMembers: mesh.ServiceMembers{ID: "office", Name: "Office"}, Config: `{"domain":"a.example","provider":"alidns"}`}
	moved := office
	moved.Name, moved.Config = "HQ", `{"domain":"b.example","provider":"alidns","txt_endpoints":["tcp://192.0.2.1:1","tcp://192.0.2.2:1"]}`
	const name = "_mesh.a.example"
	network := sql.Null[mesh.NetworkID]{V: 7, Valid: true}
	silent := mesh.Fault{Code: string(msg.EndpointSilent), Detail: "connection refused"}
	lasting := mesh.Fault{Code: "network", Detail: msg.Say("no route to host")}
	for _, test := range []struct {
		event            events.Event
		english, chinese string
	}{
		{events.Event{Kind: events.LeaseCreated, Name: name, Network: network, ServiceID: "office", Detail: events.Detail{After: endpoints("b-1")}},
			"lease created: _mesh.a.example (network 7); slot: b-1", "租约已创建：_mesh.a.example（网络 7）；slot: b-1"},
		{events.Event{Kind: events.LeaseRenewed, Name: name, Detail: events.Detail{Before: endpoints("b-1", "tcp://192.0.2.1:1"), After: endpoints("b-1", "tcp://192.0.2.2:1")}},
			"lease renewed with other endpoints: _mesh.a.example; slot: b-1; endpoints: tcp://192.0.2.1:1 → tcp://192.0.2.2:1", ""},
		{events.Event{Kind: events.LeaseExpired, Name: name, Detail: events.Detail{Before: endpoints("b-1", "tcp://192.0.2.1:1"), After: endpoints("b-1")}},
			"lease not renewed in time, its endpoints are taken out: _mesh.a.example; slot: b-1; endpoints: tcp://192.0.2.1:1 → -", ""},
		{events.Event{Kind: events.LeaseEnded, Name: name, Detail: events.Detail{Before: endpoints("b-1", "tcp://192.0.2.1:1")}},
			"lease deleted: _mesh.a.example; slot: b-1; endpoints: tcp://192.0.2.1:1", ""},
		{events.Event{Kind: events.LeaseHeld, Detail: events.Detail{Count: 4}},
			"many leases not renewed at once, their endpoints stay for now; leases: 4", "多个租约同时到期，端点暂时保留；4 个租约"},
		{events.Event{Kind: events.SecondaryBehind, Detail: events.Detail{Count: 2, After: events.JSON("ns2")}},
			"secondary has lacked the newest zones for a minute: ns2; zones: 2", "辅助服务器一分钟内未取得最新区域：ns2；2 个区域"},
		{events.Event{Kind: events.SecondaryCaughtUp, Detail: events.Detail{After: events.JSON("ns2")}}, "secondary has all zones again: ns2", ""},
		{events.Event{Kind: events.NotificationStopped, Detail: events.Detail{After: events.JSON("ops"), Fault: mesh.Fault{Code: string(msg.MessageRefused), Detail: "HTTP 410"}}},
			"notification target stopped, it gets no more messages: ops; the receiver refuses the message, so nothing is sent until the target is saved again: HTTP 410", ""},
		{events.Event{Kind: events.EndpointDead, Name: name, Detail: events.Detail{Fault: silent, After: events.JSON(map[string]string{"endpoint": "tcp://192.0.2.1:1", "slot": "b-1"})}},
			"endpoint does not answer and is taken out of the record: _mesh.a.example; the endpoint does not answer: connection refused; endpoint: tcp://192.0.2.1:1; slot: b-1", ""},
		{events.Event{Kind: events.EndpointAlive, Name: name, Detail: events.Detail{After: events.JSON(map[string]string{"endpoint": "tcp://192.0.2.1:1"})}},
			"endpoint answers again and is put back into the record: _mesh.a.example; endpoint: tcp://192.0.2.1:1", ""},
		{events.Event{Kind: events.RecordFailed, Name: name, Detail: events.Detail{Record: "_dnsaddr.a.example TXT", Provider: "dnspod", Fault: lasting, Before: events.JSON([]string{"x", "y"})}},
			"record failed: _mesh.a.example; _dnsaddr.a.example TXT; DNSPod (legacy token); the provider cannot be reached: no route to host; x, y", ""},
		{events.Event{Kind: events.RecordRecovered, Name: name, Detail: events.Detail{Provider: "dnspod", After: events.JSON("x")}}, "record recovered: _mesh.a.example; DNSPod (legacy token); x", ""},
		{events.Event{Kind: events.ZoneRecovered, Name: "a.example", Detail: events.Detail{Provider: "dnspod"}}, "zone recovered: a.example; DNSPod (legacy token)", ""},
		{events.OfService(mesh.Service{}, office), "service created: office; name: Office; domain: a.example; provider: alidns", ""},
		{events.OfService(office, moved), "service changed: office; name: Office → HQ; domain: a.example → b.example; txt_endpoints: - → tcp://192.0.2.1:1, tcp://192.0.2.2:1", ""},
		{events.OfConfiguration(mesh.Configuration{Provider: "dnspod", Enabled: true}, mesh.Configuration{Provider: "dnspod", SyncMode: mesh.Auto, Secret: "other"}),
			"configuration changed; sync_mode: - → auto; enabled: true → false", "配置已更改；sync_mode: - → auto；enabled: true → false"},
		{events.Event{Kind: events.ProvisionRefused, Detail: events.Detail{Count: 3, Fault: mesh.Fault{Code: string(msg.NotProvisioned), Detail: "a.json:3: not JSON"}}},
			"provisioning file not fully applied; entries: 3; it has a mistake: a.json:3: not JSON", "预置文件未完全应用；3 项；有错误：a.json:3: not JSON"},
		{events.Event{Kind: events.Gap, Detail: events.Detail{From: 2, To: 9}}, "8 events are not kept any more", "8 个事件已不再保留"},
	} {
		test.event.At = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
		for language, want := range map[msg.Language]string{msg.English: test.english, msg.Chinese: test.chinese} {
			got := line(test.event, language)
			if want != "" && got != "2026-03-04 05:06:07 UTC "+want || strings.ContainsAny(got, `{}[]"`) {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
		}
	}
}
