package msg

import (
	"cmp"
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
	return newText(english, cmp.Or(errorTexts[english], english))
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
	text := newText(in(English, english), in(Chinese, cmp.Or(errorTexts[english], english)))
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

// errorTexts maps the English formats of Errorf and Textf, and the words of Say, to Chinese.
var errorTexts = map[string]string{
	// Calls of a provider's API, and missing parts of the answers.
	"%s at %s":                         "%s（%s）",
	"%s: HTTP %d":                      "%s：HTTP %d",
	"list":                             "列表",
	"read":                             "读取",
	"change":                           "更改",
	"list zones":                       "列出区域",
	"list records":                     "列出记录",
	"create record":                    "创建记录",
	"edit record":                      "修改记录",
	"delete record":                    "删除记录",
	"change records":                   "更改记录",
	"read zone":                        "读取区域",
	"read server":                      "读取服务器信息",
	"change zone":                      "更改区域",
	"list of zones":                    "区域列表",
	"list of values":                   "值的列表",
	"list of the zone's names":         "区域内的名称列表",
	"list of sets":                     "记录集列表",
	"record that can be read":          "可识别的记录",
	"records":                          "记录",
	"record sets":                      "记录集",
	"id of the change":                 "更改的 ID",
	"the answer has no %s":             "应答缺少 %s",
	"the answer is over %d octets: %w": "应答超过 %d 字节：%w",
	"the answer, or a part of it, broke off after %d octets: %w": "应答或其中一部分在读取 %d 字节后中止：%w",
	"too long": "过长",
	"a redirect (HTTP %d), which is not followed":          "重定向（HTTP %d），不予跟随",
	"no message can be made for this URL":                  "无法为此 URL 生成消息",
	"%s: the provider's time minus ours is %+.0f s":        "%s：服务商时间减本机时间为 %+.0f 秒",
	"the JSON has a %q at %q, which does not belong there": "JSON 类型不符：%[2]q 处为 %[1]q",
	"not an answer of this vendor":                         "不是该服务商的应答",
	"neither success nor an error":                         "既无成功标志也无错误",
	"no result":                                            "没有 result",
	"no Result":                                            "没有 Result",
	"no ResponseMetadata":                                  "没有 ResponseMetadata",
	"no RequestId, which every answer has":                 "缺少每个应答都有的 RequestId",
	"no status":                                            "没有 status",

	// Lists.
	"neither a list nor its length":                              "既无列表也无长度",
	"the list goes on, but the answer does not say where":        "列表未完，但应答未给出续读位置",
	"the list has over %d pages":                                 "列表超过 %d 页",
	"the list has %d items, on over %d pages":                    "列表有 %d 项，超过 %d 页",
	"the list had %d items, and has %d while it is read":         "读取期间列表由 %d 条变为 %d 条",
	"the list ends after %d items of %d":                         "列表在第 %d 条（共 %d 条）处中断",
	"the list changes while it is read: an item is on two pages": "读取期间列表发生变化：同一条目出现在两页",
	"page %d of the account's zones is one of those before it":   "账号区域列表的第 %d 页与此前某页相同",
	"the list of zones goes on where it began":                   "区域列表的续读位置未前进",
	"the list of record sets does not end":                       "记录集列表没有尽头",
	"the provider does not list the zone for this key":           "服务商不允许该密钥列出此区域",
	"the zone is too large to be transferred whole":              "区域过大，无法整体传送",

	// Zones.
	"find a zone":                              "查找区域",
	"list zone %s":                             "列出区域 %s",
	"nothing came for 10s":                     "10 秒内没有收到任何数据",
	"the search for the zone has ended":        "查找区域已中止",
	"the list of the zone has ended":           "列出区域已中止",
	"another search for a zone is under way":   "另一次区域查询正在进行",
	"the account has no zone that contains %q": "账号下没有包含 %q 的区域",
	"the account has no zone %q":               "账号下没有区域 %q",
	"the account has %d public hosted zones named %s (%s): delete those that the name is not delegated to": "账号下有 %d 个名为 %s 的公共托管区域（%s），请删除未被委派的",
	"the zone %q is a copy on this server (%s): change it at its primary":                                  "区域 %q 在该服务器上只是副本（%s），请在主服务器上修改",
	"%s (no such zone, or the server's id is not %q)":                                                      "%s（没有该区域，或服务器 ID 不是 %q）",
	"no configuration and no service has a domain at or above %q":                                          "没有任何配置或服务的域名等于或高于 %q",
	"public DNS has no name servers that answer for %s":                                                    "公网 DNS 上没有负责 %s 的域名服务器",
	"public DNS asks %s about %s, the provider's servers are %s":                                           "公网 DNS 向 %s 查询 %s，而服务商的服务器是 %s",
	"the key has another zone of this name":                                                                "该密钥对应另一个同名区域",
	"the key has another zone: %s":                                                                         "该密钥对应另一个区域：%s",
	"the key has other zones":                                                                              "该密钥对应其他区域",

	// Changes.
	"the records at the name are no longer those seen":                        "该名称下的记录已被改动",
	"the time of this batch is used up":                                       "这一批的时间已用完",
	"the provider has taken the change and does not show it yet":              "服务商已接受更改，但尚未显示",
	"the change was made by a retry, and an earlier attempt may still arrive": "更改已由重试完成，先前的尝试仍可能生效",
	"%s: another change is under way":                                         "%s：另一项更改正在进行",
	"%s is in two changes of one call":                                        "%s 在一次调用中出现于两项更改",
	"%s is of another zone than the changes before it":                        "%s 与此前的更改不在同一区域",
	"%s is an alias: it points to %s":                                         "%s 是别名，指向 %s",
	"%s is an alias: %s points to %s":                                         "%s 是别名：%s 指向 %s",
	"an alias: it points to %s":                                               "别名，指向 %s",
	"what the provider chooses":                                               "由服务商决定的内容",
	"delegated to %s":                                                         "委派给 %s",
	"%s by the DNAME at %s":                                                   "%s，经由 %s 处的 DNAME",
	"%s: records of another type stand there, such as an alias":               "%s：该处有其他类型的记录，例如别名",
	"%s: the record is there, but disabled or for some resolvers only":        "%s：记录已存在，但被停用或仅对部分解析线路生效",
	"%s: the record is there, but disabled":                                   "%s：记录已存在，但被停用",
	"%s: the record set is disabled":                                          "%s：记录集已被停用",
	`%q, of owner %s: if that was this appliance before a reset, POST /api/v1/ddns/adopt {"owner":"%[2]s"}`:                           `%q，所有者为 %s：若这是本设备重置之前的数据，请 POST /api/v1/ddns/adopt {"owner":"%[2]s"}`,
	"disabled, or for some resolvers only: %q":                                                                                        "被停用或仅对部分解析线路生效：%q",
	"%s: a value there is not UTF-8, and would not go back as it is":                                                                  "%s：该处有非 UTF-8 的值，无法原样写回",
	"%s: the records there are weighted, for some resolvers only, an alias or a traffic policy's, which this program does not change": "%s：该处的记录带权重、仅对部分线路生效、是别名或属于流量策略，本程序不予改动",
	"%s: the provider could not carry out a change: record set %s has status ERROR":                                                   "%s：服务商未能完成更改：记录集 %s 的状态为 ERROR",
	"%s: the provider is still at work on the record set":                                                                             "%s：服务商仍在处理该记录集",
	"look through the zone for disabled records (before version 5 there is no other way): %w":                                         "在区域中查找停用的记录（5.0 之前的版本只能如此）：%w",

	// Values.
	"value %q":                             "值 %q",
	"the value has %d octets, %d at most":  "值为 %d 字节，最多 %d 字节",
	"the provider takes no empty value":    "服务商不接受空值",
	"the provider takes at most %d octets": "服务商最多接受 %d 字节",
	"the provider takes at most 4096 octets, with one for the length of each string": "服务商最多接受 4096 字节（每段另计 1 字节）",
	"the provider takes at most %d characters, quotes and escapes included":          "服务商最多接受 %d 个字符（含引号和转义）",
	"the provider is not known to keep what is not printable ASCII":                  "无法确定服务商能否保存可打印 ASCII 以外的内容",
	"the provider strips spaces at the ends":                                         "服务商会去掉首尾空格",
	"the provider does not keep the characters %s as they are":                       "服务商不能原样保存字符 %s",
	"the provider does not keep the cut into character-strings":                      "服务商不保留字符串的分段",
	"not quoted character-strings":                                                   "不是带引号的字符串",
	"not character-strings of at most %d octets":                                     "不是每段最多 %d 字节的字符串",
	"a record holds at most %d octets":                                               "一条记录最多 %d 字节",
	"a bridge is asked in JSON, which has no octets but UTF-8":                       "脚本以 JSON 调用，只能传递 UTF-8",
	"a bridge is told %d octets a character-string, and no other cut":                "脚本按每段 %d 字节传递，不支持其他分段",

	// Settings.
	"the key pair has a line break or another control character": "密钥对含有换行或其他控制字符",
	"the API token has characters that no token has":             "API 令牌含有非法字符",
	"not a URL":                "不是合法的 URL",
	"want https://, not %s://": "应为 https://，而不是 %s://",
	"want a URL of scheme, host and path alone":                                                        "URL 只能包含协议、主机和路径",
	"want https://: plain http is for loopback addresses only":                                         "应为 https://（http:// 仅限本机地址）",
	"endpoint: PowerDNS has no common address: want that of the server, such as http://192.0.2.1:8081": "endpoint：PowerDNS 没有统一地址，请填写服务器地址，例如 http://192.0.2.1:8081",
	"the DNS server is missing: want host or host:port":                                                "缺少 DNS 服务器，应为 host 或 host:port",
	"%q has no port from 1 to 65535":                                                                   "%q 的端口不在 1 到 65535 之间",
	"%q is not host or host:port, with an IPv6 address in brackets":                                    "%q 不是 host 或 host:port（IPv6 地址加方括号）",
	"%q is not scheme://host:port, with a port from 1 to 65535 and an IPv6 address in brackets":        "%q 不是 scheme://host:port（端口 1 到 65535，IPv6 地址加方括号）",
	"want the address of the bridge":                                                                   "请填写脚本的地址",
	"HTTP Basic knows no user with a colon":                                                            "HTTP Basic 的用户名不能含冒号",
	"unknown TSIG algorithm %.32q: want hmac-sha1, -sha224, -sha256, -sha384 or -sha512":               "不支持的 TSIG 算法 %.32q，应为 hmac-sha1、-sha224、-sha256、-sha384 或 -sha512",
	"TSIG key name: %w":       "TSIG 密钥名：%w",
	"TSIG secret: not base64": "TSIG 密钥不是 base64",

	// Addresses of this host.
	"there is no default route for IPv%d":                                                                    "没有 IPv%d 默认路由",
	"%s, the interface of the default route, has no IPv%d address":                                           "默认路由的接口 %s 没有 IPv%d 地址",
	"%s, the interface of the default route, has only %s: url:URL asks a service outside for the public one": "默认路由的接口 %s 只有 %s；可用 url:URL 向外部服务查询公网地址",
	"%s has no IPv%d address":                                                                                "%s 没有 IPv%d 地址",
	"%s has only %s":                                                                                         "%s 只有 %s",
	"%s, which is %s":                                                                                        "%s（%s）",
	"%s, and %s":                                                                                             "%s，以及 %s",
	"%s has %s":                                                                                              "%s 为 %s",
	"%s is %s: it is published, and reached from its own network only": "%s 是%s：仍会发布，但只有其所在网络能访问",
	"shared with others behind a carrier's NAT (RFC 6598)":             "运营商级 NAT 的共享地址（RFC 6598）",
	"this end of a tunnel to a carrier's NAT (DS-Lite, RFC 6333)":      "DS-Lite 隧道的本端地址（RFC 6333）",
	"private":                       "内网地址",
	"link-local":                    "链路本地地址",
	"loopback":                      "环回地址",
	"not reachable from everywhere": "公网不可达的地址",
	"the sources differ: %s":        "各来源的结果不一致：%s",
	"two sources have to agree: %s": "至少要有两个来源的结果一致：%s",
	"%w: RestrictAddressFamilies= has to have AF_NETLINK":                "%w：RestrictAddressFamilies= 必须包含 AF_NETLINK",
	"%s is not an IPv%d address":                                         "%s 不是 IPv%d 地址",
	"%s has a zone, which DNS cannot hold":                               "%s 带有区域标识，DNS 无法保存",
	"%s is the unspecified address":                                      "%s 是未指定地址",
	"%s is a multicast address":                                          "%s 是组播地址",
	"%s is a loopback address, which no other host can reach":            "%s 是环回地址，其他主机无法访问",
	"%s is a link-local address, which only hosts on its link can reach": "%s 是链路本地地址，只有同一链路上的主机能访问",
	"%s is a broadcast address":                                          "%s 是广播地址",
	"the answer is not one address":                                      "应答不是单个地址",
	"the answer is too long for an address":                              "应答过长，不是地址",
	"status %d":                                                          "状态码 %d",
	"no valid HTTP answer":                                               "没有有效的 HTTP 应答",
	"redirected too often or to a URL that is not safe to follow":        "重定向过多，或指向不安全的 URL",
	"the file is too long for addresses":                                 "文件过长，不是地址文件",
	"the file has a line that is not one address":                        "文件中有一行不是单个地址",
	"the file has two IPv%d addresses":                                   "文件中有两个 IPv%d 地址",
	"%s is not a placeholder: want {ipv4}, {ipv6}, {wan2.ipv4} or {ipv6/64:::1234}, a length from 1 to 127 and a host part without a bit inside the prefix": "%s 不是占位符，应为 {ipv4}、{ipv6}、{wan2.ipv4} 或 {ipv6/64:::1234}（前缀长度 1 到 127，主机部分在前缀内的位须为 0）",

	// Formats of endpoints.
	"%d formats, %d at most": "共 %d 种格式，最多 %d 种",
	"it is given twice":      "重复",
	"there is no such format: want %s or srv:_service._tcp":                                                    "没有这种格式，应为 %s 或 srv:_service._tcp",
	"want srv:_service._tcp or srv:_service._udp":                                                              "应为 srv:_service._tcp 或 srv:_service._udp",
	"the host %q is neither an address nor a name":                                                             "主机 %q 既不是地址也不是域名",
	"the host is a name, and this format has addresses only":                                                   "主机是域名，而该格式只能发布地址",
	"the host is an IPv6 address, and this format has IPv4 only":                                               "主机是 IPv6 地址，而该格式只有 IPv4",
	"this format has no endpoints of scheme %q":                                                                "该格式不含协议为 %q 的地址",
	"NS records at %s delegate the name to other servers":                                                      "%s 的 NS 记录将该名称委派给了其他服务器",
	"the endpoint has no peer_id":                                                                              "该地址没有 peer_id",
	"%q is no peer id of libp2p":                                                                               "%q 不是 libp2p 的节点 ID",
	"clients read at most %d records at a name":                                                                "客户端在一个名称下最多读取 %d 条记录",
	"the DNS answer would have %d octets, %d at most":                                                          "DNS 应答将为 %d 字节，最多 %d 字节",
	"%q is no endpoint id of iroh: want 64 hex digits or 52 characters of z-base-32":                           "%q 不是 iroh 的节点 ID，应为 64 位十六进制数或 52 个 z-base-32 字符",
	"%q is no DNS name: a label has 1 to %d letters, digits, hyphens or underscores, a name at most %d octets": "%q 不是 DNS 名称：每段为 1 到 %d 个字母、数字、连字符或下划线，全长最多 %d 字节",

	// Data of records.
	"not the canonical form %q":              "不是规范形式 %q",
	"not an address for a record of type %s": "不是 %s 记录的地址",
	"no type of records: %q":                 "没有这种记录类型：%q",
	"not priority, weight, port and target":  "应为优先级、权重、端口和目标",
	"not a number from 0 to 65535: %q":       "应为 0 到 65535 的整数：%q",

	"%q is not of this usage: it is another usage's, or not from this program": "%q 不属于此预留：属于另一预留，或不是本程序发布的",

	// A file.
	"the file begins with a byte order mark (BOM): save it as UTF-8 without one": "文件以字节顺序标记（BOM）开头，请存为不带 BOM 的 UTF-8",

	// Secondaries.
	"no valid answer to NOTIFY": "对 NOTIFY 没有有效的应答",
	"NOTIFY is refused":         "NOTIFY 被拒绝",
	"the secondary takes no NOTIFY from this host or with this key (allow-notify in BIND, acl in Knot)": "辅助服务器不接受本机或此密钥的 NOTIFY（BIND 的 allow-notify、Knot 的 acl）",
	"the secondary has not added the zone with this host as its primary, or does not know the key":      "辅助服务器未把本机设为该区域的主服务器，或没有此密钥",
	"the secondary's software does not know NOTIFY":                                                     "辅助服务器的软件不支持 NOTIFY",
	"the secondary has another key_secret for this key_name":                                            "辅助服务器上同名密钥的 key_secret 不同",
	"the secondary has no key of this key_name with this key_algorithm":                                 "辅助服务器上没有此 key_name 与 key_algorithm 的密钥",
	"the clocks of the two hosts differ by over 5 minutes":                                              "两台主机的时钟相差超过 5 分钟",
	"compare the key with the secondary's, and see its log":                                             "请核对辅助服务器上的密钥，并查看其日志",

	// Endpoints.
	"the lease does not permit this address": "租约不允许此地址",
	"the answer is too long for a probe":     "应答过长，无法检查",
	"HTTP status %d":                         "HTTP 状态码 %d",

	// A bridge.
	"not a status that a bridge answers with":     "不是脚本应返回的状态码",
	"zone %q does not contain %s":                 "区域 %q 不包含 %s",
	"the bridge has %s in the zone %s, not in %s": "脚本认为 %s 属于区域 %s，而不是 %s",

	// A DNS server.
	"%s serves no zone that contains %s":                                 "%s 没有包含 %s 的区域",
	"%s is in zone %s of %s, not in %s":                                  "%[1]s 属于 %[3]s 上的区域 %[2]s，而不是 %[4]s",
	"%s is delegated to other servers":                                   "%s 已委派给其他服务器",
	"the server does not serve the zone itself":                          "该服务器并不负责此区域",
	"%s answers %s without authority":                                    "%s 应答 %s，非权威应答",
	"%s record at %s":                                                    "%[2]s 的 %[1]s 记录",
	"query %s %s at %s":                                                  "查询 %s %s（%s）",
	"transfer zone %s from %s":                                           "从 %[2]s 传送区域 %[1]s",
	"update nothing in zone %s at %s":                                    "在区域 %s 中试更新（%s）",
	"update %s in zone %s at %s":                                         "更新区域 %[2]s 中的 %[1]s（%[3]s）",
	"update %d names, %s to %s, in zone %s at %s":                        "更新区域 %[4]s 中的 %[1]d 个名称，%[2]s 至 %[3]s（%[5]s）",
	"no answer from %s: %w":                                              "%s 无应答：%w",
	"read answer: %w":                                                    "读取应答：%w",
	"%s: the answer is not whole":                                        "%s：应答不完整",
	"%w: the answer is to another question":                              "%w：应答与查询不符",
	"malformed DNS message":                                              "DNS 报文格式错误",
	"%w: %d octets are more than TCP can frame":                          "%w：%d 字节超出 TCP 报文长度",
	"%s: the values do not fit into one message":                         "%s：这些值超出一个报文的长度",
	"an answer that is not expected here":                                "意外的应答",
	"the records are not a zone from its SOA record to its SOA record":   "传送的记录不是从 SOA 到 SOA 的完整区域",
	"the server does not take signed queries":                            "服务器不接受签名查询",
	"the server does not take this dynamic update":                       "服务器不接受此动态更新",
	"the server does not take dynamic updates":                           "服务器不接受动态更新",
	"the server does not take transfers":                                 "服务器不接受区域传送",
	"the server has a fault":                                             "服务器故障",
	"the server has no such zone, or not for this key":                   "服务器没有该区域，或不允许此密钥访问",
	"the server has no such zone, or does not transfer it for this key":  "服务器没有该区域，或不允许此密钥传送",
	"the server is not the zone's primary":                               "该服务器不是此区域的主服务器",
	"the server does not accept the key":                                 "服务器不接受该密钥",
	"the key may not change this":                                        "该密钥无权更改此处",
	"the key may not transfer the zone":                                  "该密钥无权传送此区域",
	"the target %s is no host name, and PowerDNS takes no other":         "目标 %s 不是主机名，PowerDNS 不接受",
	"host names only, without an underscore (check-names in BIND)":       "只接受不含下划线的主机名（BIND 的 check-names）",
	"the name is outside the zone":                                       "名称不在区域内",
	"%s: the server does not take key %s with this algorithm here":       "%s：服务器在此不接受密钥 %s 及其算法",
	"%s: the server has another secret for key %s":                       "%s：服务器上密钥 %s 的内容不同",
	"%s: the server's time minus ours is %+d s":                          "%s：服务器时间减本机时间为 %+d 秒",
	"%s, or the key's name, algorithm or secret, or the clock, is wrong": "%s，或者密钥名称、算法、内容或时钟有误",
	"%s (unsigned)":                                                      "%s（未签名）",
	"answer carries no TSIG":                                             "应答未带 TSIG",
	"answer's TSIG does not verify":                                      "应答的 TSIG 校验失败",

	// Names.
	"the root is no name for records": "根域不能存放记录",
	"%s: a name at * is a wildcard elsewhere (RFC 4592), and the built-in server has none": "%s：* 处的名称在别处是通配符（RFC 4592），内置服务器不支持",
	"not a domain name":              "不是域名",
	"%w: it is empty":                "%w：为空",
	"%w: %.255q has a broken escape": "%w：%.255q 含有不完整的转义",
	"%w: %.255q has a label of %d octets, 1 to %d are allowed":      "%w：%.255q 有一段为 %d 字节，应为 1 到 %d 字节",
	"%w: %.255q is longer than %d octets":                           "%w：%.255q 超过 %d 字节",
	"label %.*q: %w":                                                "标签 %.*q：%w",
	"its form in ASCII is over %d octets":                           "转换为 ASCII 后超过 %d 字节",
	"it is not UTF-8":                                               "不是 UTF-8",
	"it begins with a mark, %U":                                     "以附加符号 %U 开头",
	"it begins or ends with a hyphen":                               "以连字符开头或结尾",
	"it has hyphens in places 3 and 4, which are kept for A-labels": "第 3、4 位是连字符，该形式保留给 A-label",
	"%U is a part of a decomposed letter: write the letter composed, as one code point (form NFC)": "%U 属于分解形式的字母，请改用单个码位（NFC）",
	"%U is a form of a letter for compatibility: write the usual letter":                           "%U 是兼容字符，请改用普通字符",
	"%U is a small Cherokee letter: write the capital":                                             "%U 是切罗基小写字母，请改用大写",
	"%U, the capital I with a dot, has no small form of its own: write i":                          "%U（带点的大写 I）没有对应的小写，请改用 i",
	"%U is invisible":                        "%U 不可见",
	"%U is no letter, mark, digit or hyphen": "%U 不是字母、附加符号、数字或连字符",
	"a number in it is too large":            "其中的数字过大",
}
