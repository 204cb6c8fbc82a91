package page

import (
	"fmt"

	"meshddns/internal/events"
	"meshddns/internal/msg"
	"meshddns/internal/reconcile"
)

// say returns a text of the page in a language; args replace its verbs.
func say(in msg.Language, id string, args ...any) string {
	text, ok := texts[id]
	if !ok {
		return id
	}
	return fmt.Sprintf(text[in], args...)
}

// texts are {Chinese, English}.
var texts = map[string][2]string{
	"language": {"zh", "en"},
	"comma":    {"，", ", "},

	"well":           {"一切正常：已发布 %s 个名称。", "All is well: %s names are published."},
	"busy":           {"正在处理：%d 个名称等待完成，已发布 %s 个。", "Work is in progress: %d names wait, %s are published."},
	"not well":       {"有异常：%s。", "Not all is well: %s."},
	"not configured": {"尚未配置：没有配置，也没有服务。", "Nothing is configured yet: there is no configuration and no service."},
	"off":            {"同步已停用（配置中 enabled 为 false）", "synchronisation is off (enabled is false in the configuration)"},
	"n failed":       {"%d 个名称发布失败", "names failed: %d"},
	"n conflict":     {"%d 个名称冲突", "names in conflict: %d"},
	"n none":         {"%d 个名称无处发布", "names without a provider: %d"},
	"n down":         {"%d 个区域故障", "zones down: %d"},
	"n faults":       {"预置文件有 %d 处未应用", "faults in the provision file: %d"},
	"n stopped":      {"%d 个通知目标已停止", "notification targets stopped: %d"},
	"hidden":         {"公网无法访问内置区域（请设置 -ipv4、-ipv6 或 -dns-host）", "no resolver finds the built-in zones (set -ipv4, -ipv6 or -dns-host)"},

	"search":          {"名称、前缀或网络 ID", "Name, prefix or network id"},
	"find":            {"查找", "Find"},
	"found":           {"查找结果", "Found"},
	"nothing found":   {"没有找到。已释放的名称请输入完整名称。", "Nothing is found. For a released name enter the full name."},
	"not reserved":    {"未被预留", "not reserved"},
	"network":         {"网络", "network"},
	"history":         {"历史", "History"},
	"more":            {"另有 %d 项", "and %d more"},
	"more found":      {"仅显示前 %d 项；请输入完整名称", "only the first %d are shown; enter a full name"},
	"more amiss":      {"另有 %d 项；完整列表见 GET /api/v1/ddns/usages/available?state=failed 等", "and %d more; GET /api/v1/ddns/usages/available?state=failed lists them all by state"},
	"names":           {"名称", "Names"},
	"amiss":           {"需要处理", "Needs attention"},
	"nothing amiss":   {"没有。", "Nothing."},
	"attempts":        {"已尝试 %d 次", "attempts: %d"},
	"zones":           {"区域与服务商", "Zones and providers"},
	"no zones":        {"没有区域。", "There is no zone."},
	"no provider":     {"没有服务商", "no provider"},
	"zone ok":         {"正常", "ok"},
	"zone down":       {"故障", "down"},
	"zone unknown":    {"状态未知", "state not known yet"},
	"leftovers":       {"遗留记录", "Leftovers"},
	"about leftovers": {"这些值已不需要，但仍在服务商处；程序会继续尝试撤回。手动删除后用 DELETE /api/v1/ddns/leftovers/{id} 停止跟踪。", "These values are not wanted but still stand at their providers; the program keeps trying to withdraw them. After deleting one by hand, forget it with DELETE /api/v1/ddns/leftovers/{id}."},
	"events":          {"最近事件", "Latest events"},
	"no events":       {"没有事件。", "There is none."},
	"entries":         {"%d 项", "entries: %d"},
	"by":              {"由 %s", "by %s"},
	"host":            {"本机", "This host"},
	"address unknown": {"未知", "unknown"},
	"address old":     {"目前未能取得，沿用上次的地址", "not found now, the last known one stays"},
	"versions":        {"版本", "Versions"},
	"as of":           {"%s，时间均为 UTC", "As of %s; all times are UTC"},

	"chart title": {"最近 24 小时各状态的名称数", "Names by state over the last 24 hours"},
	"chart text":  {"目前与 24 小时内：%s。", "Now, and events in 24 hours: %s."},
	"day ago":     {"24 小时前", "24 h ago"},
	"now":         {"现在", "now"},
	"top":         {"最高 %d", "highest %d"},
	"band good":   {"已发布", "published"},
	"band busy":   {"处理中", "in progress"},
	"band bad":    {"异常", "not well"},

	"state none":        {"无处发布", "no provider"},
	"state pending":     {"等待发布", "pending"},
	"state published":   {"已发布", "published"},
	"state failed":      {"失败", "failed"},
	"state conflict":    {"冲突", "conflict"},
	"state withdrawing": {"撤回中", "withdrawing"},
}

// levels has the class of each state of a usage.
var levels = map[string]string{
	string(reconcile.None): "bad", string(reconcile.Pending): "busy", string(reconcile.Published): "good",
	string(reconcile.Failed): "bad", string(reconcile.Conflict): "bad", string(reconcile.Withdrawing): "busy",
}

// eventLevels has the class of kinds of events that are good or bad news.
var eventLevels = map[events.Kind]string{
	events.RecordPublished: "good", events.RecordRecovered: "good", events.ZoneRecovered: "good", events.LeftoverGone: "good",
	events.RecordFailed: "bad", events.RecordConflict: "bad", events.ZoneDown: "bad", events.ProvisionRefused: "bad", events.SecondaryBehind: "bad", events.SecondaryCaughtUp: "good",
	events.EndpointDead: "bad", events.EndpointAlive: "good",
	events.LeftoverAppeared: "busy", events.OrphanFound: "busy", events.LeaseExpired: "busy", events.LeaseHeld: "bad", events.NotificationStopped: "bad",
}

// advice returns what to do about a fault.
func advice(in msg.Language, code string) string {
	text, ok := advices[msg.ID(code)]
	if !ok {
		text = advices[msg.Temporary]
	}
	return text[in]
}

// advices are {Chinese, English}.
var advices = map[msg.ID][2]string{
	msg.Network:              {"检查本机网络和 endpoint；程序会自动重试。", "Check this host's network and the endpoint; the program tries again by itself."},
	msg.Temporary:            {"程序会自动重试；若长时间不恢复，请联系服务商。", "The program tries again by itself; ask the provider if it lasts."},
	msg.Throttled:            {"程序会自动放慢并重试。", "The program slows down and tries again by itself."},
	msg.Credentials:          {"在配置或服务中填写有效的密钥。", "Enter valid credentials in the configuration or service."},
	msg.Permission:           {"在服务商处授予该密钥修改此区域 TXT 记录的权限。", "Give the key the right to change TXT records of this zone at the provider."},
	msg.ClockSkew:            {"校准本机时钟（NTP）。", "Set this host's clock, for example by NTP."},
	msg.ZoneNotFound:         {"在该账号下添加此域名，或改正 domain 与密钥。", "Add the zone to this account, or correct the domain or the key."},
	msg.Conflict:             {"删除该名称上的其他记录，或改用其他前缀。", "Delete the other record at this name, or reserve another prefix."},
	msg.Changed:              {"停用修改此名称的其他程序。", "Stop the other program that writes this name."},
	msg.Invalid:              {"按原因改正设置或地址。", "Correct the setting or the endpoints that the reason names."},
	msg.Quota:                {"在服务商处提高配额，或删除不用的记录。", "Raise the quota at the provider, or delete unused records."},
	msg.BadAnswer:            {"检查 endpoint 是否为该服务商的地址，以及代理是否改动应答。", "Check that the endpoint is this provider's, and that no proxy changes its answers."},
	msg.UnknownProvider:      {"把 provider 改为 GET /api/v1/ddns/providers 中的一个。", "Set provider to one of GET /api/v1/ddns/providers."},
	msg.NotListening:         {"用 -dns-listen 或 meshddns-dns.socket 启动内置 DNS 服务器，或改用其他服务商。", "Start the built-in DNS server with -dns-listen or meshddns-dns.socket, or use another provider."},
	msg.NoProvider:           {"为该服务设置 provider，或使其域名位于全局配置的域名之下。", "Give the service a provider, or a domain below the configuration's."},
	msg.UnknownConfiguration: {"保存全局配置。", "Store a configuration."},
	msg.InvalidName:          {"改用只含字母、数字、_ 和 - 的域名。", "Use a domain of letters, digits, _ and - only."},
	msg.NetworkConflict:      {"释放其中一个网络的预留。", "Release the reservation of one of the two networks."},
	msg.CredentialsGone:      {"在服务商处手动删除该值，或重新填写原来的密钥。", "Delete the value at the provider by hand, or enter its key again."},
	msg.DeletesForbidden:     {"手动删除该值，或更改 sync_mode。", "Delete the value by hand, or change sync_mode."},
	msg.AddressUnknown:       {"检查 -ipv4、-ipv6、-addr 的来源。", "Check the sources in -ipv4, -ipv6 and -addr."},
	msg.SameOwner:            {"停用在别处运行的数据库副本。", "Stop the copy of this database that runs elsewhere."},
	msg.Orphan:               {"用 POST /api/v1/ddns/sync?sweep=1 撤回。", "Withdraw it with POST /api/v1/ddns/sync?sweep=1."},
	msg.NotSearched:          {"程序会在下次同步时重试。", "The next synchronisation tries again."},
	msg.WritesUsedUp:         {"用 POST /api/v1/ddns/sync 可立即写入；-node-writes 可更改上限；事件记录显示哪些节点更改频繁。", "POST /api/v1/ddns/sync writes at once; -node-writes sets another limit; the events tell which nodes change so often."},
	msg.ZoneUnreachable:      {"设置 -ipv4、-ipv6 或 -dns-host。", "Set -ipv4, -ipv6 or -dns-host."},
	msg.DatabaseFailed:       {"查看日志与磁盘空间；程序会自动重试。", "Look at the log and the disk; the program tries again by itself."},
	msg.Interrupted:          {"程序会自动重试。", "The program tries again by itself."},
}
