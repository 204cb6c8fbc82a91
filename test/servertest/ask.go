package servertest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"meshddns/internal/dns"
	"meshddns/test/support"
)

// Ask asks a server one question, again if the answer takes longer than Exchange waits.
func Ask(t testing.TB, server, name string, kind dns.Type) dns.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), support.Patience)
	defer cancel()
	owner, err := dns.ParseName(name)
	support.Must(t, err)
	query := dns.Message{ID: 7, Questions: []dns.Question{{Name: owner, Type: kind, Class: dns.ClassIN}}}
	data, err := dns.Exchange(ctx, server, query.Pack())
	for ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		data, err = dns.Exchange(ctx, server, query.Pack())
	}
	support.Must(t, err)
	answer, err := dns.ParseMessage(data)
	support.Must(t, err)
	return answer
}

// AnswerText gives the type and TTL of an answer, or whose lack it is.
func AnswerText(m dns.Message) string {
	switch {
	case len(m.Answers) > 0 && m.Answers[0].Type == dns.TypeNS:
		return fmt.Sprintf("NS %d %s", m.Answers[0].TTL, dns.Name(m.Answers[0].Data))
	case len(m.Answers) > 0:
		kinds := map[dns.Type]string{dns.TypeTXT: "TXT", dns.TypeSOA: "SOA", dns.TypeA: "A"}
		return fmt.Sprintf("%s %d", kinds[m.Answers[0].Type], m.Answers[0].TTL)
	case len(m.Authority) > 0 && m.Authority[0].Type == dns.TypeSOA:
		return "no data of " + m.Authority[0].Name.String()
	}
	return "nothing"
}
