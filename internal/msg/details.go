package msg

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Detail says in a language the particulars of a fault, which are kept in English
// as they come from the clients of providers. What a provider itself said stays.
func Detail(text string, language Language) string {
	if language != Chinese {
		return text
	}
	for _, p := range phrases() {
		if strings.Contains(text, p.longest) {
			text = p.translate(text)
		}
	}
	return text
}

// phrase is a part of a detail: literal parts, and a word between each and the next.
type phrase struct {
	parts   []string
	longest string // of the parts
	first   bool   // stands at the beginning only
	chinese string
}

// phrases are those of the table, the longest first: some are parts of others.
var phrases = sync.OnceValue(func() (all []phrase) {
	for _, line := range details {
		all = append(all, phraseOf(line))
	}
	slices.SortStableFunc(all, func(a, b phrase) int { return len(b.longest) - len(a.longest) })
	return all
})

func phraseOf(line [2]string) phrase {
	english, first := strings.CutPrefix(line[0], "^")
	parts := strings.Split(english, "*")
	longest := slices.MaxFunc(parts, func(a, b string) int { return len(a) - len(b) })
	return phrase{parts: parts, longest: longest, first: first, chinese: line[1]}
}

// translate puts Chinese in the place of the phrase, wherever it stands.
func (p phrase) translate(text string) string {
	var out strings.Builder
	unfit := 0 // end of a word that the phrase does not begin with: no end of it fits its rest either
	for at := 0; at < len(text); {
		if at > 0 && p.first {
			return out.String() + text[at:]
		}
		words, behind, ok := match(p.parts, text[at:], at < unfit)
		if ok {
			out.WriteString(p.with(words))
			at = len(text) - len(behind)
			continue
		}
		if p.parts[0] == "" && at >= unfit {
			unfit = at + unspacedWord(text[at:])
		}
		out.WriteByte(text[at])
		at++
	}
	return out.String()
}

// with gives the Chinese with words in the place of $1, $2 and so on.
func (p phrase) with(words []string) string {
	var pairs []string
	for i, word := range words {
		pairs = append(pairs, "$"+strconv.Itoa(i+1), word)
	}
	return strings.NewReplacer(pairs...).Replace(p.chinese)
}

// match reads parts, with words between them, at the beginning of a text: a word is as long
// as can be, so that the part behind it fits. The first may have to be a quoted one.
func match(parts []string, text string, inQuotes bool) (words []string, behind string, ok bool) {
	rest, ok := strings.CutPrefix(text, parts[0])
	if !ok || len(parts) == 1 {
		return nil, rest, ok
	}
	if length := quotedWord(rest); length > 0 {
		if words, behind, ok := match(parts[1:], rest[length:], false); ok {
			return append([]string{rest[:length]}, words...), behind, true
		}
	}
	if inQuotes {
		return nil, "", false
	}
	for length := unspacedWord(rest); length > 0; length-- {
		if strings.IndexByte(":,;", rest[length-1]) >= 0 {
			continue // belongs to what is behind the word
		}
		if words, behind, ok := match(parts[1:], rest[length:], false); ok {
			return append([]string{rest[:length]}, words...), behind, true
		}
	}
	return nil, "", false
}

// quotedWord gives the length of the quoted word that a text begins with, 0 when there is none.
func quotedWord(text string) int {
	if !strings.HasPrefix(text, `"`) {
		return 0
	}
	for i := 1; i < len(text); i++ {
		switch text[i] {
		case '"':
			return i + 1
		case '\\':
			i++
		}
	}
	return 0
}

// unspacedWord gives how much of a text is before its first space.
func unspacedWord(text string) int {
	if end := strings.IndexAny(text, " \t\n\f\r"); end >= 0 {
		return end
	}
	return len(text)
}

// details are {English, Chinese}; "*" is a word, $1 the first of them, and "^" the
// beginning. A word is a quoted text, or one without spaces and without the sign behind it.
var details = [][2]string{
	{"the list goes on, but the answer does not say where", "列表未完，但应答未给出续读位置"},
	{"the list has over * pages", "列表超过 $1 页"},
	{"the list has over ", "列表超过 "},
	{"the list changes while it is read: a record is on two pages", "读取期间列表发生变化：同一记录出现在两页"},
	{"the list changes while it is read: an item is on two pages", "读取期间列表发生变化：同一条目出现在两页"},
	{"the list ends after * items of *", "列表在第 $1 条（共 $2 条）处中断"},
	{"the list had * items, and has * while it is read", "读取期间列表由 $1 条变为 $2 条"},
	{"the account's zones are on over * pages", "账号的区域列表超过 $1 页"},
	{"page * of the account's zones is one of those before it", "账号区域列表的第 $1 页与此前某页相同"},
	{"the list of zones goes on where it began", "区域列表的续读位置未前进"},
	{"the list of zones has over * pages", "区域列表超过 $1 页"},
	{"the list of record sets does not end", "记录集列表没有尽头"},
	{"neither a list nor its length", "既无列表也无长度"},
	{"another change is under way", "另一项更改正在进行"},
	{"another search for a zone is under way", "另一次区域查询正在进行"},
	{"another search for zones is under way", "另一次区域查询正在进行"},
	{"* is of another zone than the changes before it", "$1 与此前的更改不在同一区域"},
	{"two changes of * at once", "对 $1 同时有两项更改"},
	{"* is in two changes of one call", "$1 在一次调用中出现于两项更改"},
	{"* is in zone *, and others of one call are not", "$1 在区域 $2 中，同一次调用的其他名称不在"},
	{"* is an alias: it points to *", "$1 是别名，指向 $2"},
	{"an alias: it points to *", "别名，指向 $1"},
	{"* is an alias: * points to *", "$1 是别名：$2 指向 $3"},
	{"* by the DNAME at *", "$1，经由 $2 处的 DNAME"},
	{"delegated to *", "委派给 $1"},
	{"the record is there, but disabled or for some resolvers only", "记录已存在，但被停用或仅对部分解析线路生效"},
	{"the record is there, but disabled", "记录已存在，但被停用"},
	{"disabled, or for some resolvers only", "被停用或仅对部分解析线路生效"},
	{"the record set is disabled", "记录集已被停用"},
	{"a value there is not UTF-8, and would not go back as it is", "该处有非 UTF-8 的值，无法原样写回"},
	{"the API token has characters that no token has", "API 令牌含有非法字符"},
	{"^list zones at *: ", "列出区域（$1）："},
	{"^list records at *: ", "列出记录（$1）："},
	{"^create record at *: ", "创建记录（$1）："},
	{"^edit record at *: ", "修改记录（$1）："},
	{"^delete record at *: ", "删除记录（$1）："},
	{"^change records at *: ", "更改记录（$1）："},
	{"^read zone at *: ", "读取区域（$1）："},
	{"^read server at *: ", "读取服务器信息（$1）："},
	{"^change zone at *: ", "更改区域（$1）："},
	{"^* at *: ", "$1（$2）："},
	{"the answer, or a part of it, is too long: it broke off after * octets", "应答或其中一部分过长：读取 $1 字节后中止"},
	{"the list has * items, on over * pages", "列表有 $1 项，超过 $2 页"},
	{"neither success nor an error", "既无成功标志也无错误"},
	{"no result", "没有 result"},
	{"list of zones", "区域列表"},
	{"list zones", "列出区域"},
	{"list records", "列出记录"},
	{"create record", "创建记录"},
	{"edit record", "修改记录"},
	{"delete record", "删除记录"},
	{"change records", "更改记录"},
	{"read zone", "读取区域"},
	{"read server", "读取服务器信息"},
	{"change zone", "更改区域"},
	{"list of sets", "记录集列表"},
	{"record that can be read", "可识别的记录"},
	{"record sets", "记录集"},
	{"id of the change", "更改的 ID"},
	{"the provider takes no empty value", "服务商不接受空值"},
	{"the provider takes at most 4096 octets, with one for the length of each string", "服务商最多接受 4096 字节（每段另计 1 字节）"},
	{"the provider takes at most * characters, quotes and escapes included", "服务商最多接受 $1 个字符（含引号和转义）"},
	{"the provider takes at most * octets", "服务商最多接受 $1 字节"},
	{"the provider takes no value without character-strings", "服务商不接受不含字符串的值"},
	{"a character-string has at most * octets", "每段字符串最多 $1 字节"},
	{"not character-strings of at most * octets", "不是每段最多 $1 字节的字符串"},
	{"the provider does not list the zone for this key", "服务商不允许该密钥列出此区域"},
	{"the key pair has a line break or another control character", "密钥对含有换行或其他控制字符"},
	{"not a URL", "不是合法的 URL"},
	{"want https://, not *", "应为 https://，而不是 $1"},
	{"want a URL of scheme, host and path alone", "URL 只能包含协议、主机和路径"},
	{"want https://: plain http is for loopback addresses only", "应为 https://（http:// 仅限本机地址）"},
	{"the answer is over * octets", "应答超过 $1 字节"},
	{"too long", "过长"},
	{"a redirect (HTTP *), which is not followed", "重定向（HTTP $1），不予跟随"},
	{"* at *: HTTP *", "$1（$2）：HTTP $3"},
	{"the provider's time minus ours is * s", "服务商时间减本机时间为 $1 秒"},
	{"server's time minus ours is * s", "服务器时间减本机时间为 $1 秒"},
	{"not an answer of this vendor", "不是该服务商的应答"},
	{"* at *: the answer has no *", "$1（$2）：应答缺少 $3"},
	{"the answer has no *", "应答缺少 $1"},
	{"records of another type stand there, such as an alias", "该处有其他类型的记录，例如别名"},
	{"the provider could not carry out a change: record set * has status ERROR", "服务商未能完成更改：记录集 $1 的状态为 ERROR"},
	{"the provider is still at work on the record set", "服务商仍在处理该记录集"},
	{"the provider does not keep the characters * as they are", "服务商不能原样保存字符 $1"},
	{"endpoint: PowerDNS has no common address: want that of the server, such as *", "endpoint：PowerDNS 没有统一地址，请填写服务器地址，例如 $1"},
	{"(no such zone, or the server's id is not *)", "（没有该区域，或服务器 ID 不是 $1）"},
	{"the zone * is a copy on this server (*): change it at its primary", "区域 $1 在该服务器上只是副本（$2），请在主服务器上修改"},
	{"look through the zone for disabled records (before version 5 there is no other way)", "在区域中查找停用的记录（5.0 之前的版本只能如此）"},
	{"the server would cut a string of over * octets", "服务器会截断超过 $1 字节的字符串"},
	{"a value has one string at least", "值至少包含一段字符串"},
	{"a record holds at most * octets", "一条记录最多 $1 字节"},
	{"the records at the name are no longer those seen", "该名称下的记录已被改动"},
	{"the provider has taken the change and does not show it yet", "服务商已接受更改，但尚未显示"},
	{"the DNS server is missing: want host or host:port", "缺少 DNS 服务器，应为 host 或 host:port"},
	{"* has no port from 1 to 65535", "$1 的端口不在 1 到 65535 之间"},
	{"* is not host or host:port", "$1 不是 host 或 host:port"},
	{"* serves no zone that contains *", "$1 没有包含 $2 的区域"},
	{"* is in zone * of *, not in *", "$1 属于 $3 上的区域 $2，而不是 $4"},
	{"TXT record at *", "$1 的 TXT 记录"},
	{"query * * at *", "查询 $1 $2（$3）"},
	{"* is delegated to other servers", "$1 已委派给其他服务器"},
	{"the server does not serve the zone itself", "该服务器并不负责此区域"},
	{"the values do not fit into one message", "这些值超出一个报文的长度"},
	{"the answer is not whole", "应答不完整"},
	{"the server does not take key * with this algorithm here", "服务器在此不接受密钥 $1 及其算法"},
	{"the server has another secret for key *", "服务器上密钥 $1 的内容不同"},
	{"(unsigned)", "（未签名）"},
	{"the server does not take signed queries", "服务器不接受签名查询"},
	{"the server does not take this dynamic update", "服务器不接受此动态更新"},
	{"the server does not take dynamic updates", "服务器不接受动态更新"},
	{"the server does not take transfers", "服务器不接受区域传送"},
	{"the server has a fault", "服务器故障"},
	{"the server has no such zone, or does not transfer it for this key", "服务器没有该区域，或不允许此密钥传送"},
	{"the server has no such zone, or not for this key", "服务器没有该区域，或不允许此密钥访问"},
	{"the server does not accept the key", "服务器不接受该密钥"},
	{"the server is not the zone's primary", "该服务器不是此区域的主服务器"},
	{"an answer that is not expected here", "意外的应答"},
	{", or the key's name, algorithm or secret, or the clock, is wrong", "，或者密钥名称、算法、内容或时钟有误"},
	{"the root is no name for records", "根域不能存放记录"},
	{"update * in zone * at *", "更新区域 $2 中的 $1（$3）"},
	{"update * names, * to *, in zone * at *", "更新区域 $4 中的 $1 个名称，$2 至 $3（$5）"},
	{"a TXT value at * is not one or more strings of at most * octets", "$1 的 TXT 值不是一段或多段最多 $2 字节的字符串"},
	{"the key may not change this", "该密钥无权更改此处"},
	{"the key may not transfer the zone", "该密钥无权传送此区域"},
	{"the name is outside the zone", "名称不在区域内"},
	{"the zone is too large to be transferred whole", "区域过大，无法整体传送"},
	{"the records are not a zone from its SOA record to its SOA record", "传送的记录不是从 SOA 到 SOA 的完整区域"},
	{"transfer zone * from *", "从 $2 传送区域 $1"},
	{"the account has * public hosted zones named * (*): delete those that the name is not delegated to", "账号下有 $1 个名为 $2 的公共托管区域（$3），请删除未被委派的"},
	{"what the provider chooses", "由服务商决定的内容"},
	{"the TXT records there are weighted, for some resolvers only, an alias or a traffic policy's, which this program does not change",
		"该处的 TXT 记录带权重、仅对部分线路生效、是别名或属于流量策略，本程序不予改动"},
	{"no RequestId, which every answer has", "缺少每个应答都有的 RequestId"},
	{"not quoted character-strings", "不是带引号的字符串"},
	{"the provider is not known to keep what is not printable ASCII", "无法确定服务商能否保存可打印 ASCII 以外的内容"},
	{"the provider strips spaces at the ends", "服务商会去掉首尾空格"},
	{"the provider does not keep the cut into character-strings", "服务商不保留字符串的分段"},
	{"no ResponseMetadata", "没有 ResponseMetadata"},
	{"no status", "没有 status"},
	{"no Result", "没有 Result"},
	{"want the address of the bridge", "请填写脚本的地址"},
	{"HTTP Basic knows no user with a colon", "HTTP Basic 的用户名不能含冒号"},
	{"not a status that a bridge answers with", "不是脚本应返回的状态码"},
	{"list at *: no list of zones", "列表（$1）：没有区域列表"},
	{"list at *: no list of the zone's names", "列表（$1）：没有区域内的名称列表"},
	{"read at *", "读取（$1）"},
	{"list at *", "列表（$1）"},
	{"change at *", "更改（$1）"},
	{"no list of zones", "没有区域列表"},
	{"no list of the zone's names", "没有区域内的名称列表"},
	{"no list of values", "没有值的列表"},
	{"zone * does not contain *", "区域 $1 不包含 $2"},
	{"the bridge has * in the zone *, not in *", "脚本认为 $1 属于区域 $2，而不是 $3"},
	{"a bridge is asked in JSON, which has no octets but UTF-8", "脚本以 JSON 调用，只能传递 UTF-8"},
	{"a bridge is told * octets a character-string, and no other cut", "脚本按每段 $1 字节传递，不支持其他分段"},
	{"find a zone", "查找区域"},
	{"list zone *", "列出区域 $1"},
	{"nothing came for 10s", "10 秒内没有收到任何数据"},
	{"the search for the zone has ended", "查找区域已中止"},
	{"the list of the zone has ended", "列出区域已中止"},
	{"the account has no zone that contains *", "账号下没有包含 $1 的区域"},
	{"the account has no zone *", "账号下没有区域 $1"},
	{"public DNS has no name servers that answer for *", "公网 DNS 上没有负责 $1 的域名服务器"},
	{"public DNS asks * about *, the provider's servers are *", "公网 DNS 向 $1 查询 $2，而服务商的服务器是 $3"},
	{"* without authority", "$1，非权威应答"},
	{"no configuration and no service has a domain at or above *", "没有任何配置或服务的域名等于或高于 $1"},
	{"a name at * is a wildcard elsewhere (RFC 4592), and the built-in server has none", "$1 处的名称在别处是通配符（RFC 4592），内置服务器不支持"},
	{"a value has strings of 255 octets at most", "值的每段字符串最多 255 字节"},
	{"no answer from *", "$1 无应答"},
	{"read answer", "读取应答"},
	{"the answer is to another question", "应答与查询不符"},
	{"* octets are more than TCP can frame", "$1 字节超出 TCP 报文长度"},
	{"not a domain name", "不是域名"},
	{"* has a broken escape", "$1 含有不完整的转义"},
	{"* has a label of * octets, 1 to * are allowed", "$1 有一段为 $2 字节，应为 1 到 $3 字节"},
	{"it is empty", "为空"},
	{"* is longer than * octets", "$1 超过 $2 字节"},
	{"unknown TSIG algorithm *: want hmac-sha1, -sha224, -sha256, -sha384 or -sha512", "不支持的 TSIG 算法 $1，应为 hmac-sha1、-sha224、-sha256、-sha384 或 -sha512"},
	{"TSIG key name", "TSIG 密钥名"},
	{"TSIG secret: not base64", "TSIG 密钥不是 base64"},
	{"answer carries no TSIG", "应答未带 TSIG"},
	{"answer's TSIG does not verify", "应答的 TSIG 校验失败"},
	{"its form in ASCII is over * octets", "转换为 ASCII 后超过 $1 字节"},
	{"it is not UTF-8", "不是 UTF-8"},
	{"it begins with a mark, *", "以附加符号 $1 开头"},
	{"it begins or ends with a hyphen", "以连字符开头或结尾"},
	{"it has hyphens in places 3 and 4, which are kept for A-labels", "第 3、4 位是连字符，该形式保留给 A-label"},
	{"* is a part of a decomposed letter: write the letter composed, as one code point (form NFC)", "$1 属于分解形式的字母，请改用单个码位（NFC）"},
	{"* is a form of a letter for compatibility: write the usual letter", "$1 是兼容字符，请改用普通字符"},
	{"* is a small Cherokee letter: write the capital", "$1 是切罗基小写字母，请改用大写"},
	{"*, the capital I with a dot, has no small form of its own: write i", "$1（带点的大写 I）没有对应的小写，请改用 i"},
	{"* is invisible", "$1 不可见"},
	{"* is no letter, mark, digit or hyphen", "$1 不是字母、附加符号、数字或连字符"},
	{"a number in it is too large", "其中的数字过大"},
	{"the value has * octets, * at most", "值为 $1 字节，最多 $2 字节"},
	{"* is not scheme://host:port", "$1 不是 scheme://host:port"},

	{"^network *", "网络 $1"},

	{"context deadline exceeded", "超时"},
	{"context canceled", "已取消"},
	{"i/o timeout", "超时"},
	{"connection refused", "连接被拒绝"},
	{"connection reset by peer", "连接被对方重置"},
	{"broken pipe", "连接已断开"},
	{"no route to host", "没有到主机的路由"},
	{"network is unreachable", "网络不可达"},
	{"no such host", "找不到主机"},
	{"unexpected EOF", "连接意外中断"},
	{"server misbehaving", "解析服务器异常"},
	{"server gave HTTP response to HTTPS client", "服务器以 HTTP 应答了 HTTPS 请求"},
	{"tls: failed to verify certificate", "TLS 证书校验失败"},
	{"certificate signed by unknown authority", "证书由未知机构签发"},
	{"certificate has expired or is not yet valid", "证书已过期或尚未生效"},
	{"invalid character * looking for beginning of value", "不是 JSON：非法字符 $1"},
	{"unexpected end of JSON input", "JSON 不完整"},
	{"the JSON has a * at *, which does not belong there", "JSON 类型不符：$2 处为 $1"},
	{"expected element type * but have *", "XML 元素应为 $1，而不是 $2"},
	{"lookup * on *", "解析 $1（$2）"},
	{"dial tcp *", "连接 $1"},
	{"dial udp *", "连接 $1"},
	{"read tcp *", "读取 $1"},
	{"read udp *", "读取 $1"},
	{"write tcp *", "写入 $1"},
	{"write udp *", "写入 $1"},
}
