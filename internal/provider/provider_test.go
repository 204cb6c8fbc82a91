package provider

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"meshddns/internal/secrets"
)

// TestWriteContext has a write whose caller leaves, with and without a deadline.
func TestWriteContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, limit := range []time.Duration{time.Hour, time.Second} {
			caller, leave := context.WithTimeout(t.Context(), limit)
			ctx, cancel := WriteContext(caller)
			leave()
			if ctx.Err() != nil {
				t.Error("the write ends with its caller")
			}
			begun := time.Now()
			<-ctx.Done()
			if got, want := time.Since(begun), min(limit, WriteTime); got != want {
				t.Errorf("it has %v, want %v", got, want)
			}
			cancel()
		}
	})
}

// TestSecret prints a secret in every way.
func TestSecret(t *testing.T) {
	const plain = `hid"den`
	var log strings.Builder
	key := Credentials{AccessKeySecret: plain}
	slog.New(slog.NewTextHandler(&log, nil)).Info("x", "secret", key.AccessKeySecret, "key", key)
	text, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	for _, said := range []string{
		fmt.Sprintf("%v %s %q %x %d %+v %#v", key.AccessKeySecret, key.AccessKeySecret, key.AccessKeySecret, key.AccessKeySecret, key.AccessKeySecret, key, key),
		log.String(), string(text), secrets.Scrub(plain+fmt.Sprintf("%q", plain), plain),
	} {
		if strings.Contains(said, "hid") || strings.Contains(said, "686964") || !strings.Contains(said, "***") {
			t.Errorf("the secret is said as %s", said)
		}
	}
	if got := secrets.Scrub("a-b", "-"); got != "a-b" {
		t.Errorf("%q, want that one letter is no secret", got)
	}
}
