package fuzz

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// tree is a JSON value that is being made: raw text, *members, or list.
type tree any

type raw string

type members struct{ all []named }

type named struct {
	name  string
	value tree
}

type list struct{ items []tree }

// write gives the text of a tree.
func write(out *strings.Builder, t tree) {
	switch t := t.(type) {
	case raw:
		out.WriteString(string(t))
	case *members:
		for i, m := range t.all {
			out.WriteByte("{,"[min(i, 1)])
			out.WriteString(quoted(m.name) + ":")
			write(out, m.value)
		}
		if len(t.all) == 0 {
			out.WriteByte('{')
		}
		out.WriteByte('}')
	case *list:
		out.WriteByte('[')
		for i, item := range t.items {
			if i > 0 {
				out.WriteByte(',')
			}
			write(out, item)
		}
		out.WriteByte(']')
	}
}

func text(t tree) string {
	var out strings.Builder
	write(&out, t)
	return out.String()
}

func quoted(s string) string {
	q, _ := json.Marshal(s) // a string always can be
	return string(q)
}

// generator makes the requests of one client. What it makes depends on its chance and
// on the ids that it was given.
type generator struct {
	*rand.Rand
	d        *Document
	client   int
	usages   []string // that were made, and not released
	services []string // whose id the program has chosen, and that are not deleted
	leases   []lease  // that were given, and not ended
	networks uint64
	only     []*operation // if there are any, no others are asked for
}

type lease struct{ usage, id string }

func pick[T any](g *generator, from ...T) T { return from[g.IntN(len(from))] }

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// service is an id out of few, so that what one request makes another finds.
func (g *generator) service() string { return fmt.Sprintf("svc-%d-%d", g.client%4, g.IntN(5)) }

var domains = []string{"mesh.example.com", "example.com", "a.mesh.example.com", "office.example.org", "xn--fiq228c.example", "MESH.example.com."}

// hint is a value for a member of this name by which things happen: random texts would
// never name a service that exists.
func (g *generator) hint(name string) (string, bool) {
	switch name {
	case "service_id", "id":
		if name == "service_id" && len(g.services) > 0 && g.chance(50) {
			return pick(g, g.services...), true
		}
		return g.service(), true
	case "custom_prefix", "prefix":
		return fmt.Sprintf("p-%d-%d", g.client, g.IntN(40)), true
	case "domain":
		return pick(g, domains...), true
	case "provider":
		return pick(g, "builtin", "builtin", "builtin", "rfc2136", "powerdns", "alidns", "route53", "webhook", "cloudflare", "nobody"), true
	case "endpoint":
		return pick(g, "", "", "http://127.0.0.1:1", "127.0.0.1:1", "https://127.0.0.1:1/x", "http://[::1]:1"), true
	case "txt_record_name":
		return pick(g, "@", "_txt", "a.b"), true
	case "access_key_id":
		return pick(g, "id", "hmac-sha256:key", "token", "localhost"), true
	case "access_key_secret":
		return pick(g, "c2VjcmV0IGtleSB0ZXh0", "********", "secret"), true
	case "sync_mode":
		return pick(g, "auto", "manual", "manual", "upsert-only", "never heard"), true
	case "name", "network_name", "description":
		return pick(g, "Office", "办公室", "a \"b\" \\ <c> \u2028 \u0001"), true
	case "url":
		return pick(g, "http://127.0.0.1:1/hook", "https://127.0.0.1:1/********", "https://receiver.example.com"), true
	case "secret":
		return pick(g, "0123456789abcdef", "********"), true
	case "events", "kind":
		return pick(g, "record.*", "zone.down", "usage.reserved", "service.*"), true
	case "address":
		return pick(g, "127.0.0.1:1", "10.1.2.3", "[::1]:1", "192.0.2.53:0"), true
	case "key_name":
		return pick(g, "", "ns2.example", "ns3.example"), true
	case "key_secret":
		return pick(g, "c2VjcmV0IGtleSB0ZXh0", "********", ""), true
	case "schemes":
		return pick(g, "tcp", "udp", "wss"), true
	case "cidrs", "from":
		return pick(g, "203.0.113.0/24", "198.51.100.7", "2001:db8::/32"), true
	case "template":
		return pick(g, "tcp://{ip}:11010", "udp://{ip}:11011"), true
	case "peer_id":
		return pick(g, "", "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"), true
	case "zones":
		return pick(g, append(domains, "*")...), true
	case "owner":
		return fmt.Sprintf("%012x", g.Uint64()>>16), true
	}
	return "", false
}

// value makes a value that a schema allows, for a member of a name.
func (g *generator) value(schema any, name string) tree {
	s, _ := g.d.behind(schema, "")
	if c, ok := s["const"]; ok {
		return raw(mustJSON(c))
	}
	if values, ok := s["enum"].([]any); ok {
		return raw(mustJSON(pick(g, values...)))
	}
	if either, ok := s["oneOf"].([]any); ok {
		one := pick(g, either...)
		if member(one, "contentMediaType") != nil { // the other one as a text
			return raw(quoted(text(g.value(either[0], name))))
		}
		return g.value(one, name)
	}
	kind, _ := s["type"].(string)
	if kinds, ok := s["type"].([]any); ok {
		kind, _ = pick(g, kinds...).(string)
	}
	switch kind {
	case "object":
		return g.object(s)
	case "array":
		l := &list{}
		for range g.IntN(4) {
			item := g.value(s["items"], name)
			if s["uniqueItems"] == true && slices.Contains(l.items, item) {
				continue
			}
			l.items = append(l.items, item)
		}
		return l
	case "integer":
		return raw(g.integer(s))
	case "boolean":
		return raw(pick(g, "true", "true", "false"))
	case "null":
		return raw("null")
	}
	return raw(quoted(g.string(s, name)))
}

func mustJSON(value any) string {
	out, err := json.Marshal(value)
	if err != nil {
		panic(err) // it came out of JSON
	}
	return string(out)
}

func (g *generator) object(s object) tree {
	o := &members{}
	properties, _ := s["properties"].(object)
	required, _ := s["required"].([]any)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		if slices.Contains(required, any(name)) || name == "kind" || name == "domain" && g.chance(80) || g.chance(50) { // a check has a kind, or no members
			o.all = append(o.all, named{name, g.value(properties[name], name)})
		}
	}
	if g.chance(10) && (s["additionalProperties"] != false || g.chance(10)) {
		o.all = append(o.all, named{pick(g, "x", "Provider", "x_token", ""), g.anything(3)})
	}
	g.Shuffle(len(o.all), func(i, j int) { o.all[i], o.all[j] = o.all[j], o.all[i] })
	return o
}

// anything is JSON of any form.
func (g *generator) anything(depth int) tree {
	if depth == 0 || g.chance(60) {
		return raw(pick(g, "1", "null", "true", `"x"`, `""`, "-0.5e-3", `{}`, `[]`, `"\u0000\ud83d\ude00"`))
	}
	if g.chance(50) {
		return &list{[]tree{g.anything(depth - 1), g.anything(depth - 1)}}
	}
	return &members{[]named{{"a", g.anything(depth - 1)}, {"secret", g.anything(depth - 1)}}}
}

func (g *generator) integer(s object) string {
	if s["format"] == "uint64" {
		if g.networks++; g.chance(70) {
			return fmt.Sprint(uint64(g.client)*1000 + g.networks%100)
		}
		return pick(g, "0", "1", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551615")
	}
	least, lowest := s["minimum"].(json.Number)
	most, highest := s["maximum"].(json.Number)
	if lowest && highest && !g.chance(5) {
		return pick(g, least, most).String()
	}
	return pick(g, "0", "1", "-1", "5", "3600", "-9223372036854775808", "9223372036854775807")
}

// patterns knows texts for the patterns of the document, by a part of each.
var patterns = []struct {
	part string
	make func(g *generator) []string
}{
	{"://", func(*generator) []string {
		return []string{"tcp://{ipv4}:11010", "udp://203.0.113.7:1", "wss://[{ipv6}]:443", "quic://host.example.com:65535", "tcp://{ipv6}:1", "ws://192.0.2.9:80",
			"tcp://h.example.com:11010", "wg://198.51.100.4:51820", "udp://[2001:db8::5]:7", "tcp://203.0.113.9:11010", "x://y"}
	}},
	{"0-9a-f", func(g *generator) []string { return []string{fmt.Sprintf("%012x", g.Uint64()>>16)} }},
	{"mesh1", func(*generator) []string {
		return []string{"mesh1", "urls", "hostport", "a", "easytier-srv", "ip4p", "dnsaddr", "iroh", "srv:_minecraft._tcp"}
	}},
	{"{1,32}", func(*generator) []string { return []string{"node-1", "node-2", "x"} }},
	{"^/", func(*generator) []string { return []string{"/", "/health?x=y"} }},
	{"[12][0-9]", func(*generator) []string { return []string{"1", "2"} }}, // of the 30 seconds that a wait may take
	{"~-", func(g *generator) []string { return []string{g.service()} }},
	{"[1-9]", func(*generator) []string { return []string{"", "1", "7", "1000"} }},
	{"{0,20}", func(g *generator) []string {
		return []string{"", "0", "42", fmt.Sprint(uint64(g.client)*1000 + g.Uint64N(100))}
	}},
	{"[0-9]*", func(*generator) []string { return []string{"", "0", "17", "9223372036854775807"} }},
}

func (g *generator) string(s object, name string) string {
	if pattern, ok := s["pattern"].(string); ok && !g.chance(5) {
		for _, known := range patterns {
			if strings.Contains(pattern, known.part) {
				return pick(g, known.make(g)...)
			}
		}
	}
	if value, ok := g.hint(name); ok && g.chance(90) {
		return value
	}
	length, _ := s["minLength"].(json.Number)
	least, _ := length.Int64()
	out := ""
	for range int(least) + g.IntN(12) {
		out += pick(g, "a", "Z", "0", "-", "_", ".", " ", "/", "\\", "\"", "é", "文", "😀", "\x00", "\n", "\u202e", "%", "*", ":")
	}
	return out
}
