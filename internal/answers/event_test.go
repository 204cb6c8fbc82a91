package answers

import (
	"database/sql"
	"testing"
	"time"

	"meshddns/internal/events"
	"meshddns/internal/mesh"
	"meshddns/internal/msg"
)

// TestNewEvent has an event with everything, one of the program itself with nothing, and a gap.
func TestNewEvent(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_700_000, time.FixedZone("", 3600))
	failed := events.Event{
		Seq: 7, At: at, Kind: events.RecordFailed, Name: "_mesh.a\x01.example.com", UsageID: "u", ServiceID: "s",
		Network: sql.Null[mesh.NetworkID]{V: 1<<64 - 1, Valid: true}, By: "token 1",
		Detail: events.Detail{
			Before: events.JSON("a<b"), After: events.JSON(map[string]int{"n": 1}), Zone: "example.com", Provider: "dnspod",
			Fault: mesh.Fault{Code: "quota", Detail: "HTTP 400"}, Count: 3,
		},
	}
	const begin = `{"seq":7,"at":"2026-01-02T02:04:05.006Z","kind":"record.failed","name":"_mesh.a?.example.com","usage_id":"u","service_id":"s",` +
		`"network_id":18446744073709551615,"by":"token 1","detail":{"before":"a\u003cb","after":{"n":1},"zone":"example.com","provider":"dnspod","code":"quota","error":"`
	const end = `","count":3}}`
	for _, test := range []struct {
		event    events.Event
		language msg.Language
		want     string
	}{
		{failed, msg.English, begin + "a quota is used up: HTTP 400" + end},
		{failed, msg.Chinese, begin + "超出服务商的配额：HTTP 400" + end},
		{events.Event{Seq: 8, At: at, Kind: events.BackupMade}, msg.English, `{"seq":8,"at":"2026-01-02T02:04:05.006Z","kind":"backup.made","detail":{}}`},
		{events.Event{Seq: 9, At: at, Kind: events.Gap, Detail: events.Detail{From: 2, To: 9}}, msg.English,
			`{"seq":9,"at":"2026-01-02T02:04:05.006Z","kind":"gap","detail":{"missing_from":2,"missing_to":9}}`},
	} {
		if got := shown(t, NewEvent(test.event, test.language)); got != test.want {
			t.Errorf("%s\nwant\n%s", got, test.want)
		}
	}
}
