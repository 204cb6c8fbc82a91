package msg

// Provider is the title of a provider, and the meaning of its fields.
type Provider struct{ Title, AccessKeyID, AccessKeySecret, Endpoint string }

// ProviderIn returns the texts for a provider in a language.
func ProviderIn(language Language, name string) Provider {
	text := providerTexts[name]
	return Provider{text.title[language], text.keyID[language], text.secret[language], text.endpoint[language]}
}

// both is a text that is the same in both languages, such as a vendor's term.
func both(text string) [2]string { return [2]string{text, text} }

// vendorAddress is for providers with a well-known address.
var vendorAddress = [2]string{"一般留空；区域或私有的 API 地址", "normally empty; a regional or private API address"}

// providerTexts are {Chinese, English}.
var providerTexts = map[string]struct{ title, keyID, secret, endpoint [2]string }{
	"builtin": {
		[2]string{"内置 DNS 服务器", "Built-in DNS server"},
		[2]string{"任意非空文本", "any non-empty text"},
		[2]string{"任意非空文本", "any non-empty text"},
		[2]string{"不使用", "not used"},
	},
	"rfc2136": {
		[2]string{"动态更新（RFC 2136，TSIG）：BIND、Knot、PowerDNS", "Dynamic update (RFC 2136, TSIG): BIND, Knot, PowerDNS"},
		[2]string{"TSIG 密钥名，可写作 算法:名称，默认 hmac-sha256", "TSIG key name, optionally algorithm:name, default hmac-sha256"},
		[2]string{"TSIG 密钥（base64）", "TSIG secret (base64)"},
		[2]string{"DNS 服务器 host:port，必填", "the DNS server, host:port, required"},
	},
	"alidns":       {[2]string{"阿里云 云解析 DNS", "Alibaba Cloud DNS"}, both("AccessKey ID"), both("AccessKey Secret"), vendorAddress},
	"tencentcloud": {[2]string{"腾讯云 DNSPod（API 3.0）", "Tencent Cloud DNSPod (API 3.0)"}, both("SecretId"), both("SecretKey"), vendorAddress},
	"huaweicloud":  {[2]string{"华为云 云解析服务", "Huawei Cloud DNS"}, both("Access Key Id (AK)"), both("Secret Access Key (SK)"), vendorAddress},
	"volcengine":   {[2]string{"火山引擎 TrafficRoute DNS", "Volcengine TrafficRoute DNS"}, both("Access Key ID"), both("Secret Access Key"), vendorAddress},
	"baiducloud":   {[2]string{"百度智能云 DNS", "Baidu AI Cloud DNS"}, both("Access Key"), both("Secret Key"), vendorAddress},
	"route53":      {[2]string{"亚马逊 Route 53", "Amazon Route 53"}, both("Access key ID"), both("Secret access key"), vendorAddress},
	"cloudflare": {
		both("Cloudflare"),
		[2]string{"账号邮箱，或单词 token", "the account's e-mail address, or the word token"},
		[2]string{"API 令牌（需区域读取、DNS 编辑权限）", "API token (with the rights Zone Read and DNS Edit)"},
		vendorAddress,
	},
	"powerdns": {
		[2]string{"PowerDNS（HTTP API）", "PowerDNS (HTTP API)"},
		[2]string{"服务器 ID，一般为 localhost", "server id, normally localhost"},
		[2]string{"API 密钥（X-API-Key）", "API key (X-API-Key)"},
		[2]string{"API 地址，如 http://192.0.2.53:8081，必填", "the API's address, such as http://192.0.2.53:8081, required"},
	},
	"dnspod":  {[2]string{"DNSPod（旧版令牌）", "DNSPod (legacy token)"}, [2]string{"令牌 ID", "token ID"}, [2]string{"令牌", "token"}, vendorAddress},
	"jdcloud": {[2]string{"京东云 云解析 DNS", "JD Cloud DNS"}, both("Access Key ID"), both("Access Key Secret"), vendorAddress},
	"godaddy": {both("GoDaddy"), both("API Key"), both("API Secret"), vendorAddress},
	"porkbun": {both("Porkbun"), both("API Key"), both("Secret API Key"), vendorAddress},
	"webhook": {
		[2]string{"自建脚本（HTTP）", "A script of your own (HTTP)"},
		[2]string{"用户名（HTTP Basic）", "user name (HTTP Basic)"},
		[2]string{"密码（HTTP Basic）", "password (HTTP Basic)"},
		[2]string{"脚本地址 https://，必填；http:// 仅限本机", "the script's address, https://, required; http:// on loopback only"},
	},
}
