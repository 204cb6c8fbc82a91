package msg

import (
	"cmp"
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
)

// Text is a text in both languages, in its stored form: one line in English and, if the Chinese differs,
// a second line in Chinese.
type Text string

// newText joins two texts, with spaces in place of line breaks.
func newText(english, chinese string) Text {
	english, chinese = strings.ReplaceAll(english, "\n", " "), strings.ReplaceAll(chinese, "\n", " ")
	if chinese == english {
		return Text(english)
	}
	return Text(english + "\n" + chinese)
}

// In returns the text in a language.
func (t Text) In(language Language) string {
	english, chinese, both := strings.Cut(string(t), "\n")
	if both && language == Chinese {
		return chinese
	}
	return english
}

// String returns the English text.
func (t Text) String() string { return t.In(English) }

// LogValue returns the English text, because the log has one language.
func (t Text) LogValue() slog.Value { return slog.StringValue(t.In(English)) }

// Map returns the text with f applied to each language.
func (t Text) Map(f func(string) string) Text { return newText(f(t.In(English)), f(t.In(Chinese))) }

// Say returns words in both languages. Words that errorTexts lacks, such as a name or a vendor's message,
// are the same in both.
func Say(english string) Text {
	return newText(english, cmp.Or(errorTexts[ID(english)][Chinese], english))
}

// Textf returns the text of Errorf.
func Textf(english string, args ...any) Text { return TextOf(Errorf(english, args...)) }

// Errorf is fmt.Errorf for an error in both languages. The English format is the key of the Chinese one
// in errorTexts; a format without words needs none. An argument that is a Text or an error appears in the
// language of the text; all others are the same in both.
func Errorf(english string, args ...any) error {
	in := func(language Language, format string) string {
		said := slices.Clone(args)
		for i, arg := range args {
			if err, ok := arg.(error); ok {
				arg = TextOf(err)
			}
			if text, ok := arg.(Text); ok {
				said[i] = text.In(language)
			}
		}
		return fmt.Sprintf(strings.ReplaceAll(format, "%w", "%s"), said...)
	}
	text := newText(in(English, english), in(Chinese, cmp.Or(errorTexts[ID(english)][Chinese], english)))
	return &failure{fmt.Errorf(english, args...), text}
}

// told is an error with a text in both languages.
type told interface {
	error
	Message() Text
}

// failure is the error that Errorf makes.
type failure struct {
	error // in English, with the words of Go's own packages; it wraps the arguments of %w
	text  Text
}

func (f *failure) Unwrap() error { return f.error }
func (f *failure) Message() Text { return f.text }

// TextOf returns the text of an error. For an error that Errorf did not make, such as one of Go's own
// packages, only the common words are those of a person.
func TextOf(err error) Text {
	if e, ok := err.(told); ok {
		return e.Message()
	}
	english, chinese := err.Error(), err.Error()
	var inner told
	if errors.As(err, &inner) {
		chinese = strings.ReplaceAll(english, inner.Error(), inner.Message().In(Chinese))
	}
	english, chinese = goLookup(english, English), goLookup(chinese, Chinese)
	for _, part := range goParts {
		english, chinese = strings.ReplaceAll(english, part[0], part[2]), strings.ReplaceAll(chinese, part[0], part[1])
	}
	return newText(english, chinese)
}

// goLookup says "lookup NAME on SERVER" of an error of package net, whose words goParts cannot move.
func goLookup(text string, language Language) string {
	before, rest, _ := strings.Cut(text, "lookup ")
	name, rest, found := strings.Cut(rest, " on ")
	if !found || strings.ContainsRune(name, ' ') {
		return text
	}
	server, after, more := strings.Cut(rest, ": ")
	if more {
		after = ": " + after
	}
	return before + [2]string{"解析 " + name + "（" + server + "）", "look up " + name + " at " + server}[language] + after
}

// goParts are parts of the errors of Go's own packages, each with what a person says: {Go, Chinese, English}. The names of
// system calls go first.
var goParts = [][3]string{
	{"connect: ", "", ""},
	{"read: ", "", ""},
	{"write: ", "", ""},
	{"dial tcp: ", "", ""},
	{"dial udp: ", "", ""},
	{" (Client.Timeout exceeded while awaiting headers)", "", ""},
	{"context deadline exceeded", "超时", "no answer in time"},
	{"context canceled", "已取消", "broken off"},
	{"i/o timeout", "超时", "no answer in time"},
	{"net/http: timeout awaiting response headers", "超时", "no answer in time"},
	{"net/http: TLS handshake timeout", "TLS 握手超时", "no answer to the TLS handshake in time"},
	{"connection refused", "连接被拒绝", "the connection is refused, as if nothing listens there"},
	{"connection reset by peer", "连接被对方重置", "the other side has broken the connection off"},
	{"broken pipe", "连接已断开", "the other side has closed the connection"},
	{"no route to host", "没有到主机的路由", "no route leads to the host"},
	{"network is unreachable", "网络不可达", "no route leads to the network"},
	{"no such host", "找不到主机", "there is no such host"},
	{"unexpected EOF", "连接意外中断", "the connection ended too early"},
	{": EOF", ": 连接意外中断", ": the connection ended too early"},
	{"lookup ", "解析 ", "look up "},
	{"server misbehaving", "解析服务器异常", "the resolver fails"},
	{"server gave HTTP response to HTTPS client", "服务器以 HTTP 应答了 HTTPS 请求", "the server answers a request over HTTPS with plain HTTP"},
	{"tls: failed to verify certificate: x509: ", "TLS 证书校验失败：", "the certificate is not accepted: "},
	{"certificate signed by unknown authority", "证书由未知机构签发", "an unknown authority has signed it"},
	{"certificate has expired or is not yet valid", "证书已过期或尚未生效", "it has expired or is not valid yet"},
	{"invalid character ", "不是 JSON：非法字符 ", "not JSON: the character "},
	{" looking for beginning of value", "", " is no value"},
	{"unexpected end of JSON input", "JSON 不完整", "the JSON is not whole"},
	{"expected element type ", "XML 元素应为 ", "want the XML element "},
	{" but have ", "，而不是 ", ", not "},
	{"dial tcp4", "通过 IPv4 连接", "connect by IPv4 to"},
	{"dial tcp6", "通过 IPv6 连接", "connect by IPv6 to"},
	{"dial tcp ", "连接 ", "connect to "},
	{"dial udp ", "连接 ", "connect to "},
	{"read tcp ", "读取 ", "read from "},
	{"read udp ", "读取 ", "read from "},
	{"write tcp ", "写入 ", "write to "},
	{"write udp ", "写入 ", "write to "},
}

//go:embed errors.txt
var errorLines string

// errorTexts has the English formats of Errorf and Textf, and the words of Say.
var errorTexts = Table(errorLines)
