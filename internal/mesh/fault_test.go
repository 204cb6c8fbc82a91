package mesh

import (
	"testing"

	"meshddns/internal/msg"
)

func TestFaultText(t *testing.T) {
	const code = "credentials"
	for _, test := range []struct {
		fault Fault
		want  string
	}{
		{Fault{Detail: "x", Key: UsedByConfiguration}, ""},
		{Fault{Code: code}, msg.ID(code).In(msg.English)},
		{Fault{Code: code, Detail: "HTTP 403"}, msg.ID(code).In(msg.English) + ": HTTP 403"},
		{Fault{Code: code, Key: UsedByConfiguration}, msg.ID(code).In(msg.English) + msg.KeyOfConfiguration.In(msg.English)},
		{Fault{Code: code, Key: UsedByService + "svc"}, msg.ID(code).In(msg.English) + msg.KeyOfService.In(msg.English, "svc")},
		{Fault{Code: code, Key: UsedByNothing}, msg.ID(code).In(msg.English) + msg.KeyOfNothing.In(msg.English)},
	} {
		if got := test.fault.In(msg.English); got != test.want {
			t.Errorf("%+v is %q, want %q", test.fault, got, test.want)
		}
	}
	if got := (Fault{Code: code, Detail: "HTTP 403"}).In(msg.Chinese); got != msg.ID(code).In(msg.Chinese)+"：HTTP 403" {
		t.Errorf("in Chinese it is %q", got)
	}
}
