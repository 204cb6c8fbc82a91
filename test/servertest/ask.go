package servertest

import (
	"context"
	"fmt"
	"testing"
	"time"

	"meshddns/internal/dnswire"
)

// patience bounds the wait for an answer.
const patience = 30 * time.Second

// Ask asks a server one question.
func Ask(t testing.TB, server, name string, kind dnswire.Type) dnswire.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	owner, err := dnswire.ParseName(name)
	if err != nil {
		t.Fatal(err)
	}
	query := dnswire.Message{ID: 7, Questions: []dnswire.Question{{Name: owner, Type: kind, Class: dnswire.ClassIN}}}
	data, err := dnswire.Exchange(ctx, server, query.Pack())
	if err != nil {
		t.Fatal(err)
	}
	answer, err := dnswire.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// AnswerText gives the type and TTL of an answer, or whose lack it is.
func AnswerText(m dnswire.Message) string {
	switch {
	case len(m.Answers) > 0 && m.Answers[0].Type == dnswire.TypeNS:
		return fmt.Sprintf("NS %d %s", m.Answers[0].TTL, dnswire.Name(m.Answers[0].Data))
	case len(m.Answers) > 0:
		kinds := map[dnswire.Type]string{dnswire.TypeTXT: "TXT", dnswire.TypeSOA: "SOA", dnswire.TypeA: "A"}
		return fmt.Sprintf("%s %d", kinds[m.Answers[0].Type], m.Answers[0].TTL)
	case len(m.Authority) > 0 && m.Authority[0].Type == dnswire.TypeSOA:
		return "no data of " + m.Authority[0].Name.String()
	}
	return "nothing"
}
