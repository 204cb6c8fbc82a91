package msg

// Refusals of a request.
const (
	ParameterError   ID = "parameter_error"
	BodyTooLarge     ID = "body_too_large"
	QueryMissing     ID = "query_missing"
	QueryInvalid     ID = "query_invalid"
	TooManyStreams   ID = "too_many_streams"
	TooManyWaiting   ID = "too_many_waiting"
	TooManyRequests  ID = "too_many_requests"
	LastEventInvalid ID = "last_event_id_invalid"

	IdempotencyKeyInvalid ID = "idempotency_key_invalid"
	IdempotencyKeyReused  ID = "idempotency_key_reused"
	NotFound              ID = "not_found"
	UnknownName           ID = "unknown_name"
	MethodNotAllowed      ID = "method_not_allowed"
	InternalError         ID = "internal_error"
	DatabaseDown          ID = "database_unavailable"
	DiskFull              ID = "disk_full"
	DatabaseLocked        ID = "database_locked"
	DatabaseDamaged       ID = "database_damaged"
	DatabaseGone          ID = "database_gone"
	BackupNoRoom          ID = "backup_no_room"
	Unauthorized          ID = "unauthorized"
	BasicReadsOnly        ID = "basic_reads_only"
	TooManyAttempts       ID = "too_many_attempts"
	CrossSite             ID = "cross_site"
	OwnNotification       ID = "own_notification"
	HostNotAllowed        ID = "host_not_allowed"

	ProviderEmpty      ID = "provider_empty"
	AccessKeyEmpty     ID = "access_key_empty"
	DomainEmpty        ID = "domain_empty"
	TXTRecordNameEmpty ID = "txt_record_name_empty"
	SecretNotStored    ID = "secret_not_stored"
	EndpointInvalid    ID = "endpoint_invalid"
	FormatInvalid      ID = "format_invalid"
	PeerIDInvalid      ID = "peer_id_invalid"
	CheckInvalid       ID = "check_invalid"
	ValueTooLong       ID = "value_too_long"

	ServiceIDEmpty       ID = "service_id_empty"
	PrefixModeInvalid    ID = "prefix_mode_invalid"
	UnknownService       ID = "unknown_service"
	ServiceConfigInvalid ID = "service_config_invalid"
	ServiceDomainMissing ID = "service_domain_missing"
	NetworkIDMissing     ID = "network_id_missing"
	PrefixEmpty          ID = "prefix_empty"
	PrefixTooLong        ID = "prefix_too_long"
	PrefixCharacters     ID = "prefix_characters"
	PrefixReserved       ID = "prefix_reserved"
	PrefixTaken          ID = "prefix_taken"
	NameTooLong          ID = "name_too_long"
	UnknownUsage         ID = "unknown_usage"

	ServiceNameEmpty   ID = "service_name_empty"
	ServiceConfigShape ID = "service_config_not_object"
	ServiceEntryType   ID = "service_entry_not_string"

	ServiceDomainInvalid ID = "service_domain_invalid"
	DomainIsCatalog      ID = "domain_is_catalog"

	ServiceIDInvalid   ID = "service_id_invalid"
	ServiceExists      ID = "service_exists"
	ServiceInUse       ID = "service_in_use"
	ServiceDomainInUse ID = "service_domain_in_use"
	SyncDisabled       ID = "sync_disabled"
	SyncNotConfigured  ID = "sync_not_configured"
	SyncFailed         ID = "sync_failed"
	SyncUnfinished     ID = "sync_unfinished"
	StoreFailed        ID = "store_failed"
	UnknownLeftover    ID = "unknown_leftover"

	UnknownConfiguration ID = "unknown_configuration"

	OwnerInvalid ID = "owner_invalid"
	OwnerIsOwn   ID = "owner_is_own"
	BackupRuns   ID = "backup_runs"

	UnknownNotification      ID = "unknown_notification"
	TooManyNotifications     ID = "too_many_notifications"
	NotificationKind         ID = "notification_kind_invalid"
	NotificationURL          ID = "notification_url_invalid"
	NotificationSecret       ID = "notification_secret_invalid"
	NotificationEvents       ID = "notification_events_invalid"
	NotificationLanguage     ID = "notification_language_invalid"
	NotificationURLMasked    ID = "notification_url_not_stored"
	NotificationSecretMasked ID = "notification_secret_not_stored"

	UnknownSecondary      ID = "unknown_secondary"
	TooManySecondaries    ID = "too_many_secondaries"
	SecondaryAddress      ID = "secondary_address_invalid"
	SecondaryKey          ID = "secondary_key_invalid"
	SecondarySecret       ID = "secondary_secret_invalid"
	SecondaryAlgorithm    ID = "secondary_algorithm_invalid"
	SecondaryZones        ID = "secondary_zones_invalid"
	SecondarySecretMasked ID = "secondary_secret_not_stored"
	SecondaryKeyDiffers   ID = "secondary_key_differs"

	UnknownLease          ID = "unknown_lease"
	LeaseExists           ID = "lease_exists"
	TooManyLeases         ID = "too_many_leases"
	LeaseSlot             ID = "lease_slot_invalid"
	LeaseTTL              ID = "lease_ttl_invalid"
	LeaseSchemes          ID = "lease_schemes_invalid"
	LeaseCIDRs            ID = "lease_cidrs_invalid"
	LeaseTemplate         ID = "lease_template_invalid"
	LeasePeerID           ID = "lease_peer_id_invalid"
	LeaseToken            ID = "lease_token_invalid" // in provisioning files, as the next one
	LeaseTokenTaken       ID = "lease_token_taken"
	LeaseNoTemplate       ID = "lease_template_missing"
	LeaseNoAddress        ID = "lease_address_missing"
	LeaseScheme           ID = "lease_scheme_refused"
	LeaseAddress          ID = "lease_address_refused"
	LeaseTooManyEndpoints ID = "lease_too_many_endpoints"
	LeaseEndpoint         ID = "lease_endpoint_invalid"
	LeaseEndpointsMissing ID = "lease_endpoints_missing"
	LeaseReleased         ID = "lease_usage_released"
	LeaseTooSoon          ID = "lease_too_soon"
)

// Parts of refusals. The code is that of the whole text.
const (
	BodyEmpty       ID = "body_empty"
	BodyNotUTF8     ID = "body_not_utf8"
	BodyMarked      ID = "body_marked"
	BodySyntax      ID = "body_syntax"
	BodyNotObject   ID = "body_not_object"
	BodyDuplicate   ID = "body_duplicate"
	BodyWrongType   ID = "body_wrong_type"
	BodyUnread      ID = "body_unread"
	QuerySyntax     ID = "query_syntax"
	ConfigEmpty     ID = "config_empty"
	TypeBool        ID = "type_bool"
	TypeInt64       ID = "type_int64"
	TypeUint64      ID = "type_uint64"
	TypeStrings     ID = "type_strings"
	TypeString      ID = "type_string"
	WantFlag        ID = "want_flag"
	WantNoMember    ID = "want_no_member"
	WantMembers     ID = "want_members"
	WantLimit       ID = "want_limit"
	WantCursor      ID = "want_cursor"
	WantSeq         ID = "want_seq"
	WantSeconds     ID = "want_seconds"
	WantOnce        ID = "want_once"
	WantEventKind   ID = "want_event_kind"
	Because         ID = "because"
	TakenByNetwork  ID = "taken_by_network"
	PublicAddresses ID = "public_addresses"
	FoundBeside     ID = "found_beside" // in NotFound
)

// Results of a request.
const (
	ConfigurationSaved ID = "configuration_saved"

	ConfigurationDeleted ID = "configuration_deleted"
	ConfigurationLeaving ID = "configuration_leaving"

	ServiceSaved      ID = "service_saved"
	ServiceDeleted    ID = "service_deleted"
	UsageCreated      ID = "usage_created"
	UsageChanged      ID = "usage_changed"
	UsageReleased     ID = "usage_released"
	UsageReleasing    ID = "usage_releasing"
	UsageHeld         ID = "usage_held"
	StateLeaving      ID = "state_leaving"
	StateWithdrawn    ID = "state_withdrawn"
	SyncDone          ID = "sync_done"
	SyncPlanned       ID = "sync_planned"
	LeftoverForgotten ID = "leftover_forgotten"
	OwnerAdopted      ID = "owner_adopted"

	NotificationSaved   ID = "notification_saved"
	NotificationDeleted ID = "notification_deleted"
	WarnNoToken         ID = "warn_no_token"

	SecondarySaved    ID = "secondary_saved"
	SecondaryDeleted  ID = "secondary_deleted"
	SecondaryUnsigned ID = "warn_unsigned"

	LeaseCreated ID = "lease_created"
	LeaseEnded   ID = "lease_ended"
)

// Reasons of a record's fault. Those from a provider have the names of package provider's kinds.
const (
	Network          ID = "network"
	Temporary        ID = "temporary"
	Throttled        ID = "throttled"
	Credentials      ID = "credentials"
	Permission       ID = "permission"
	ClockSkew        ID = "clock_skew"
	ZoneNotFound     ID = "zone_not_found"
	Conflict         ID = "conflict"
	Changed          ID = "changed"
	Invalid          ID = "invalid"
	Quota            ID = "quota"
	BadAnswer        ID = "bad_answer"
	UnknownProvider  ID = "unknown_provider"
	NotListening     ID = "not_listening"
	NoProvider       ID = "no_provider"
	InvalidName      ID = "invalid_name"
	NetworkConflict  ID = "network_conflict"
	CredentialsGone  ID = "credentials_gone"
	DeletesForbidden ID = "deletes_forbidden"
	AddressUnknown   ID = "address_unknown"
	Interrupted      ID = "interrupted"
	SameOwner        ID = "same_owner_elsewhere"
	Orphan           ID = "orphan"
	OfAdoptedOwner   ID = "of_adopted_owner"
	NotSearched      ID = "not_searched"
	WritesUsedUp     ID = "writes_used_up"
	Paused           ID = "paused"
	ZoneUnreachable  ID = "zone_unreachable"
	SharedName       ID = "shared_name"
	EndpointSilent   ID = "endpoint_silent"
	UnsupportedType  ID = "unsupported_record_type"
	NameNotAllowed   ID = "name_not_allowed"
	DatabaseFailed   ID = "database_down"
)

// Parts of messages about events. Each kind of event is the ID of its name in messages and on the status page.
const (
	MessageTitles   ID = "message_titles"
	MessageTest     ID = "message_test"
	MessageTestBody ID = "message_test_body"
	MessageMore     ID = "message_more"
	MessageGap      ID = "message_gap"
	MessageNetwork  ID = "message_network"
	MessageCount    ID = "message_count"
	MessageZones    ID = "message_zones"
	MessageLeases   ID = "message_leases"
)

// Reasons why a message is not delivered.
const (
	MessageUnreached  ID = "receiver_unreached"
	MessageLater      ID = "receiver_busy"
	MessageDoubtful   ID = "receiver_doubtful"
	MessageRefused    ID = "receiver_refuses"
	MessageImpossible ID = "message_impossible"
	MessageCrashed    ID = "message_crashed"
	KindNewer         ID = "receiver_kind_newer"
)

// Owners of the key with which a provider failed.
const (
	KeyOfConfiguration ID = "key_of_configuration"
	KeyOfService       ID = "key_of_service"
	KeyOfNothing       ID = "key_of_nothing"
)

// Warnings about stored data that cannot work.
const (
	WarnMember       ID = "warn_member"
	WarnNotSet       ID = "warn_not_set"
	WarnProvider     ID = "warn_provider"
	WarnProviderLike ID = "warn_provider_like"
	WarnMode         ID = "warn_sync_mode"
	WarnPrivate      ID = "warn_private_address"
	WarnSource       ID = "warn_unknown_source"
	WarnNoProvider   ID = "warn_no_provider"
	WarnOwnHeld      ID = "warn_own_name_held"
	WarnSharedDomain ID = "warn_shared_domain"
	WarnOutside      ID = "warn_services_outside"
	WarnDomain       ID = "warn_domain"
	WarnRecordName   ID = "warn_record_name"
	WarnNameTwice    ID = "warn_record_name_twice"
	WarnAccount      ID = "warn_account"
	WarnBlanks       ID = "warn_blanks"
	WarnNumber       ID = "warn_number"
	WarnPaused       ID = "warn_paused"
	WarnEndpoints    ID = "warn_endpoints"
	WarnNoDomain     ID = "warn_no_domain"
	WarnNoConfig     ID = "warn_no_configuration"
	WarnNameHeld     ID = "warn_name_held"
	WarnProvisioned  ID = "warn_provisioned"
	WarnFormat       ID = "warn_format"
)

// Texts of GET /healthz while the provisioning file, or a part of it, is not applied, while notification
// targets are stopped, and while both is so. NotProvisioned is the reason of an event.
const (
	NotProvisioned        ID = "not_provisioned"
	WellNotProvisioned    ID = "well_not_provisioned"
	NotificationsStopped  ID = "notifications_stopped"
	NotProvisionedStopped ID = "not_provisioned_stopped"
)

// Items of a connection test.
const (
	TestOK       ID = "ok"
	TestSkipped  ID = "skipped"
	FieldEmpty   ID = "field_empty"
	ValueMissing ID = "value_missing"
	NotDelegated ID = "not_delegated"
	NoResolver   ID = "no_resolver"
)

// texts are {Chinese, English}.
var texts = map[ID][2]string{
	ParameterError:        {"参数错误：%s", "parameter error: %s"},
	BodyEmpty:             {"请求体为空", "the body is empty"},
	BodyNotUTF8:           {"不是合法的 UTF-8 文本", "not valid UTF-8"},
	BodyMarked:            {"以字节顺序标记（BOM）开头，请存为不带 BOM 的 UTF-8", "it begins with a byte order mark (BOM): save it as UTF-8 without one"},
	BodySyntax:            {"第 %d 行第 %d 列不是合法的 JSON", "not valid JSON at line %d, column %d"},
	BodyNotObject:         {"不是 JSON 对象", "not a JSON object"},
	BodyDuplicate:         {"字段 %q 重复出现", "member %q is given twice"},
	BodyWrongType:         {"字段 %q 类型不符，应为：%s", "member %q: want %s"},
	BodyTooLarge:          {"请求体超过 %d KiB", "the body is over %d KiB"},
	BodyUnread:            {"请求体未能完整读取", "the body cannot be read whole"},
	QuerySyntax:           {"查询字符串格式错误", "the query is malformed"},
	ConfigEmpty:           {"内容为空", "it is empty"},
	TypeBool:              {"true 或 false", "true or false"},
	TypeInt64:             {"64 位整数", "a 64-bit integer"},
	TypeUint64:            {"0 到 18446744073709551615 的整数", "an integer from 0 to 18446744073709551615"},
	TypeStrings:           {"字符串数组", "an array of strings"},
	TypeString:            {"字符串", "a string"},
	QueryMissing:          {"缺少查询参数 %s", "query parameter %s is missing"},
	QueryInvalid:          {"查询参数 %s 无效，应为：%s", "query parameter %s is not valid: want %s"},
	WantFlag:              {"1、true、0 或 false", "1, true, 0 or false, once"},
	WantNoMember:          {"不带查询参数", "no query parameter with this call"},
	WantMembers:           {"此调用的参数 %s", "a parameter that this call has: %s"},
	WantLimit:             {"1 到 %d 的整数", "an integer from 1 to %d"},
	WantCursor:            {"前一页应答中的 next_cursor", "next_cursor of the answer with the page before"},
	WantSeq:               {"事件的 seq", "the seq of an event"},
	WantOnce:              {"只给出一次的值", "a value that is given once"},
	WantSeconds:           {"1 到 %d 的整数秒", "whole seconds from 1 to %d"},
	IdempotencyKeyInvalid: {"Idempotency-Key 必须为 1 到 255 个可打印的 ASCII 字符，且只出现一次", "Idempotency-Key must be 1 to 255 characters of printable ASCII, given once"},
	IdempotencyKeyReused:  {"该 Idempotency-Key 已用于另一请求体：请换一个新的键", "this Idempotency-Key was used with another body: choose a new key"},
	WantEventKind:         {"事件类型，例如 record.failed，或 record.*", "a kind of event such as record.failed, or record.*"},
	TooManyRequests:       {"每秒请求超过 %d 次，请稍后重试", "more than %d requests a second: try again later"},
	TooManyWaiting:        {"正在等待的请求过多，请稍后重试", "too many requests wait already: try again later"},
	TooManyStreams:        {"事件流已有 %d 个，请稍后重试", "%d streams of events are open already: try again later"},
	LastEventInvalid:      {"Last-Event-ID %q 无效，应为事件的 seq", "Last-Event-ID %q is not valid: want the seq of an event"},
	NotFound:              {"路径不存在%s", "no such path%s"},
	FoundBeside:           {"：此处只有浏览器可见的状态页；API 位于 /api/v1/ddns/ 之下，列于 /api/v1/ddns/openapi.json；说明见 README.md 和 docs/", ": here is only the status page, for browsers; the API is below /api/v1/ddns/, and /api/v1/ddns/openapi.json lists it; README.md and docs/ explain it"},
	UnknownName:           {"没有名称 %q，或它没有 urls 格式的端点", "the name %q is unknown, or has no endpoints in the format urls"},
	MethodNotAllowed:      {"该路径不支持此方法，可用方法：%s", "this path does not take the method; it takes %s"},
	InternalError:         {"服务器内部错误", "internal error"},
	DatabaseDown:          {"无法访问数据库", "the database does not answer"},
	DiskFull:              {"磁盘已满，未保存，请释放空间%s", "the disk is full, nothing is stored: free some room%s"},
	DatabaseLocked:        {"数据库被其他程序锁定，请稍后再试%s", "another program holds the database, try again later%s"},
	DatabaseDamaged:       {"数据库文件已损坏，请恢复备份%s", "the database file is damaged, restore a backup%s"},
	DatabaseGone:          {"数据库文件、其 -wal 或 -lock 文件已被删除、移动或替换，改动可能丢失：请停止程序，把文件放回其 -wal 文件旁，再启动程序%s", "the database file, its -wal or its -lock was deleted, moved or replaced, and changes may be lost: stop the program, put the file back beside its -wal, start%s"},
	BackupNoRoom:          {"没有足够空间生成备份，请释放空间或用 TMPDIR 指定别处%s", "no room for a backup: free some, or name another folder in TMPDIR%s"},
	Because:               {"（%s）", " (%s)"},
	Unauthorized:          {"缺少令牌，或令牌无效", "the token is missing or wrong"},
	BasicReadsOnly:        {"Basic 只用于 GET 和 HEAD，其他请求请用 Authorization: Bearer", "Basic is for GET and HEAD only: send Authorization: Bearer with the token"},
	TooManyAttempts:       {"令牌错误次数过多，请稍后再试", "too many wrong tokens, try again later"},
	OwnNotification:       {"已拒绝本程序发出的通知：通知目标不能是程序自己", "a notification of this program is refused: a target cannot be the program itself"},
	CrossSite:             {"已拒绝来自其他网站的请求", "a request from another site is refused"},
	HostNotAllowed:        {"不允许的 Host %q，可用 -allow-host 放行", "the Host %q is not allowed: the flag -allow-host lets it in"},

	ProviderEmpty:      {"provider 不能为空", "provider must not be empty"},
	AccessKeyEmpty:     {"access_key_id 和 access_key_secret 不能为空", "access_key_id and access_key_secret must not be empty"},
	DomainEmpty:        {"domain 不能为空", "domain must not be empty"},
	TXTRecordNameEmpty: {"txt_record_name 不能为空", "txt_record_name must not be empty"},
	SecretNotStored: {"仅当 provider、access_key_id、endpoint 与已保存的一致时才能沿用已保存的密钥，否则请填写完整密钥",
		"a masked secret keeps the stored one only where provider, access_key_id and endpoint are the stored ones; send the secret itself"},
	PeerIDInvalid:   {"peer_id 无效：应为 libp2p 节点或 iroh 端点的标识", "peer_id is not valid: want a peer id of libp2p or an endpoint id of iroh"},
	FormatInvalid:   {"formats 中的 %q 无效：%s", "formats: %q: %s"},
	EndpointInvalid: {"txt_endpoints 中的地址 %q 无效，应为 scheme://host:port（端口 1 到 65535，IPv6 地址加方括号）%s", "txt_endpoints: %q is not scheme://host:port, with a port from 1 to 65535 and an IPv6 address in brackets%s"},
	EndpointSilent:  {"节点地址没有应答", "the endpoint does not answer"},
	CheckInvalid:    {"%s 无效，应为：%s", "%s is not valid: want %s"},
	ValueTooLong:    {"TXT 记录值过长：%d 字节，最多 %d 字节", "the TXT value is too long: %d octets, %d at most"},

	ServiceIDEmpty:       {"service_id 不能为空", "service_id must not be empty"},
	PrefixModeInvalid:    {"prefix_mode 必须是 auto 或 custom", "prefix_mode must be auto or custom"},
	UnknownService:       {"服务不存在", "no such service"},
	ServiceConfigInvalid: {"服务的配置不是 JSON 对象", "the service's config is not a JSON object"},
	ServiceDomainMissing: {"服务的配置中没有域名", "the service's config has no domain"},
	NetworkIDMissing:     {"参数错误：缺少 network_id", "parameter error: network_id is missing"},
	PrefixEmpty:          {"自定义前缀不能为空", "the prefix must not be empty"},
	PrefixTooLong:        {"自定义前缀最多 63 个字符", "the prefix must be at most 63 characters long"},
	PrefixCharacters:     {"自定义前缀只能包含字母、数字、下划线和连字符", "the prefix may hold only a-z A-Z 0-9 _ -"},
	PrefixReserved:       {"自定义前缀不能以 _mesh 开头（保留给自动模式）", "the prefix must not begin with _mesh, which is reserved for auto"},
	PrefixTaken:          {"该前缀已被占用%s", "the prefix is taken%s"},
	TakenByNetwork:       {"（网络 %s）", " by network %s"},
	NameTooLong:          {"完整记录名超出 DNS 的长度限制（全名 253 字节，每段 63 字节）", "the full record name is longer than DNS allows (253 octets, 63 a label)"},
	UnknownUsage:         {"前缀预留记录不存在", "no such usage"},

	ServiceNameEmpty:     {"name 不能为空", "name must not be empty"},
	ServiceConfigShape:   {"config 无效：%s", "config: %s"},
	ServiceEntryType:     {"config 中的 %s 类型不符，应为：%s", "config entry %s: want %s"},
	ServiceDomainInvalid: {"config 中的 domain %q 不是合法的 DNS 域名%s", "config entry domain: %q is not a DNS name%s"},
	DomainIsCatalog:      {"domain 与目录区域（-dns-catalog）同名", "the domain is the name of the catalog zone (-dns-catalog)"},
	ServiceIDInvalid:     {"id 无效：1 到 128 个字符，只能包含字母、数字和 . _ ~ -", "the id is not valid: 1 to 128 characters of letters, digits and . _ ~ -"},
	ServiceExists:        {"id 相同的服务已存在", "a service with this id exists"},
	ServiceInUse:         {"该服务仍有前缀预留，不能删除", "the service has usages and cannot be deleted"},
	ServiceDomainInUse:   {"该服务仍有前缀预留，不能更改域名", "the service has usages, its domain cannot change"},
	SyncDisabled:         {"已暂停：配置中 enabled 为 false", "paused: enabled is false in the configuration"},
	SyncNotConfigured:    {"同步失败：尚未保存配置", "synchronisation failed: no configuration is stored"},
	SyncFailed:           {"同步失败：%d / %d 个名称未完成，首个为 %s：%s", "synchronisation failed: %d of %d records, the first: %s: %s"},
	SyncUnfinished:       {"同步尚未完成，正在后台继续：已处理 %d / %d 个名称", "the synchronisation goes on in the background: %d of %d names are done so far"},
	StoreFailed:          {"预留保存失败：%s", "the reservation is not stored: %s"},
	UnknownConfiguration: {"尚未保存配置", "no configuration is stored"},
	UnknownLeftover:      {"遗留记录不存在", "no such leftover"},
	OwnerInvalid:         {"owner 必须是 12 位小写十六进制数字", "owner must be 12 hex digits in lower case"},
	OwnerIsOwn:           {"owner 就是本数据库自己的标识", "the owner is this database's own"},
	BackupRuns:           {"另一份备份正在生成或传输，请稍后再试", "another backup is being made or sent: try again when it is through"},

	UnknownNotification:      {"通知目标不存在", "no such notification target"},
	TooManyNotifications:     {"通知目标最多 32 个，请先删除一个", "there are 32 notification targets, which is the most: delete one first"},
	NotificationKind:         {"kind 必须是以下之一：%s", "kind must be one of %s"},
	NotificationURL:          {"url 无效：应为 http:// 或 https:// 地址，含主机，不含用户名和 #，最多 %d 字节", "url is not valid: want http:// or https:// with a host, without user and #, of at most %d octets"},
	NotificationSecret:       {"secret 无效：应为 %d 到 %d 字节，不含控制字符", "secret is not valid: want %d to %d octets without control characters"},
	NotificationEvents:       {"events 中的 %q 不匹配任何事件类型；应为事件类型，或其开头加 .*，最多 %d 项", "events: %q selects no kind of event; want kinds, or their beginnings followed by .*, at most %d"},
	NotificationLanguage:     {"language 必须是 zh 或 en", "language must be zh or en"},
	NotificationURLMasked:    {"仅当 kind 以及 url 的协议和主机与已保存的一致时才能沿用已保存的 url，否则请填写完整地址", "a masked url keeps the stored one only where kind, scheme and host are the stored ones; send the url itself"},
	NotificationSecretMasked: {"仅当 kind 以及 url 的协议和主机与已保存的一致时才能沿用已保存的 secret，否则请填写完整密钥", "a masked secret keeps the stored one only where kind, scheme and host of the url are the stored ones; send the secret itself"},

	UnknownSecondary:      {"辅助服务器不存在", "no such secondary"},
	TooManySecondaries:    {"辅助服务器最多 64 个，请先删除一个", "there are 64 secondaries, which is the most: delete one first"},
	SecondaryAddress:      {"address %q 无效：应为一台主机的 IP 地址，可带端口（1 到 65535，默认 53；此时 IPv6 地址加方括号）", "address %q is not valid: want the IP address of one host, alone or with a port from 1 to 65535 and an IPv6 address in brackets"},
	SecondaryKey:          {"key_name 与 key_secret 须同时填写或同时为空；key_name 应为密钥的域名，不含算法", "key_name and key_secret are given together or not at all; key_name is the key's domain name, without the algorithm"},
	SecondarySecret:       {"key_secret 无效：应为 base64，最多 %d 字节", "key_secret is not valid: want base64, at most %d octets"},
	SecondaryAlgorithm:    {"key_algorithm 必须是以下之一：%s", "key_algorithm must be one of %s"},
	SecondaryZones:        {"zones 中的 %q 无效：应为域名或 *，最多 %d 项", "zones: %q is not valid: want domain names or *, at most %d"},
	SecondarySecretMasked: {"仅当 key_name 与 key_algorithm 和已保存的一致时才能沿用已保存的 key_secret，否则请填写完整密钥", "a masked key_secret keeps the stored one only where key_name and key_algorithm are the stored ones; send the secret itself"},
	SecondaryKeyDiffers:   {"另一辅助服务器有同名密钥，但密钥或算法不同", "another secondary has a key of this name with another secret or algorithm"},

	UnknownLease:          {"租约不存在", "no such lease"},
	LeaseExists:           {"该槽位已有租约；用 ?replace=1 替换", "the slot has a lease; ?replace=1 replaces it"},
	TooManyLeases:         {"该前缀的租约已有 256 个，请先删除一个", "the prefix has 256 leases, which is the most: delete one first"},
	LeaseSlot:             {"slot 无效：应为 1 到 32 个小写字母、数字或 -", "slot is not valid: want 1 to 32 of a-z, 0-9 and -"},
	LeaseTTL:              {"ttl 无效：应为 %d 到 %d 秒", "ttl is not valid: want %d to %d seconds"},
	LeaseSchemes:          {"schemes 无效：应为小写的协议名，最多 %d 项", "schemes is not valid: want schemes in lower case, at most %d"},
	LeaseCIDRs:            {"cidrs 中的 %q 无效：应为地址范围，最多 %d 项", "cidrs: %q is not valid: want address ranges, at most %d"},
	LeaseTemplate:         {"template 中的 %q 无效：应为 协议://{ip}:端口（端口 1 到 65535），最多 %d 项", "template: %q is not valid: want scheme://{ip}:port with a port from 1 to 65535, at most %d"},
	LeasePeerID:           {"peer_id 无效：应为 libp2p 节点或 iroh 端点的标识", "peer_id is not valid: want a peer id of libp2p or an endpoint id of iroh"},
	LeaseToken:            {"令牌无效：token 应为至少 16 个可打印且不含空白的 ASCII 字符，token_hash 应为 64 个十六进制数字；仅当该槽位已有租约时才能沿用已保存的令牌", "the token is not valid: want at least 16 printable ASCII characters without white space in token, or 64 hexadecimal digits in token_hash; only a slot with a lease keeps its stored token"},
	LeaseTokenTaken:       {"另一租约已使用该令牌", "another lease has this token"},
	LeaseNoTemplate:       {"租约没有 template，该前缀也没有租约允许的端点可供填入地址", "the lease has no template, and the prefix has no endpoint that the lease permits to put the address into"},
	LeaseNoAddress:        {"请求没有地址，而发送方的地址 %s 不是公网地址", "the request has no address, and that of the client, %s, is not a public one"},
	LeaseScheme:           {"租约不允许协议 %q；允许：%s", "the lease does not permit the scheme %q; it permits %s"},
	LeaseAddress:          {"租约不允许主机 %q；允许的地址：%s", "the lease does not permit the host %q; it permits %s"},
	PublicAddresses:       {"仅公网地址；若租约有 cidrs，则改为其中的地址", "public addresses only; a lease with cidrs permits the addresses in them instead"},
	LeaseTooManyEndpoints: {"端点过多：最多 %d 个", "there are too many endpoints: at most %d"},
	LeaseEndpoint:         {"端点 %q 无效：应为 协议://主机:端口（端口 1 到 65535，IPv6 地址加方括号）", "the endpoint %q is not scheme://host:port, with a port from 1 to 65535 and an IPv6 address in brackets"},
	LeaseEndpointsMissing: {"缺少 endpoints；空列表表示撤回", "endpoints is missing; an empty list withdraws them"},
	LeaseReleased:         {"该前缀正在释放，不再接受续租", "the prefix is being released and takes no renewal"},
	LeaseTooSoon:          {"端点在 5 秒内已更改过，请稍后再试", "the endpoints have changed within 5 seconds: try again later"},

	ConfigurationSaved:   {"配置已保存", "the configuration is saved"},
	ConfigurationDeleted: {"配置已删除，其记录已撤回", "the configuration is deleted, and its value is withdrawn"},
	ConfigurationLeaving: {"配置已删除；其记录尚未撤回，后台将继续重试", "the configuration is deleted; its value is not withdrawn yet, which is tried again in the background"},

	ServiceSaved:      {"服务已保存", "the service is saved"},
	ServiceDeleted:    {"服务已删除", "the service is deleted"},
	UsageCreated:      {"前缀预留成功", "the prefix is reserved"},
	UsageChanged:      {"前缀预留已更新", "the usage is changed"},
	UsageReleased:     {"前缀已释放", "the prefix is released"},
	StateLeaving:      {"正在撤回：重复此调用，直到返回 200", "the withdrawal goes on: repeat the call until it answers 200"},
	StateWithdrawn:    {"已全部撤回：没有前缀、服务、配置和记录；通知目标和辅助服务器保留", "everything is withdrawn: no usage, service, configuration or record is left; notification targets and secondaries stay"},
	UsageHeld:         {"记录尚未撤回，前缀仍被占用：已暂停（配置中 enabled 为 false），启用后重试", "the record is not withdrawn yet and the prefix stays occupied: paused (enabled is false in the configuration), tried again once it is true"},
	UsageReleasing:    {"记录尚未撤回，前缀仍被占用，将在下次同步时重试", "the record is not withdrawn yet; the prefix stays occupied and the next synchronisation tries again"},
	SyncDone:          {"同步成功", "synchronised"},
	SyncPlanned:       {"仅预览，未写入", "a preview, nothing was written"},
	LeftoverForgotten: {"已不再跟踪该遗留记录", "the leftover is forgotten"},
	OwnerAdopted:      {"已接管，其记录将在下次同步时替换", "adopted: the owner's values are replaced by the next synchronisation"},

	NotificationSaved:   {"通知目标已保存", "the notification target is saved"},
	WarnNoToken:         {"没有 secret：Gotify 不接受不带应用令牌的消息", "there is no secret: Gotify takes no message without the token of an application"},
	NotificationDeleted: {"通知目标已删除", "the notification target is deleted"},

	SecondarySaved:    {"辅助服务器已保存", "the secondary is saved"},
	SecondaryDeleted:  {"辅助服务器已删除", "the secondary is deleted"},
	SecondaryUnsigned: {"没有密钥：传送不经签名，仅允许回环地址和私有地址", "there is no key: transfers are not signed, and only loopback and private addresses get them"},

	LeaseCreated: {"租约已创建；令牌只显示这一次", "the lease is created; its token is shown only now"},
	LeaseEnded:   {"租约已结束", "the lease is ended"},

	MessageTitles:   {"meshddns: %d 个事件", "meshddns: %d events"},
	MessageTest:     {"meshddns: 测试消息", "meshddns: test message"},
	MessageTestBody: {"收到此消息说明通知可以送达。", "This message says that notifications arrive."},
	MessageMore:     {"……另有 %d 个事件", "... and %d more events"},
	MessageGap:      {"%d 个事件已不再保留", "%d events are not kept any more"},
	MessageNetwork:  {"（网络 %s）", " (network %s)"},
	MessageCount:    {"%d 项", "entries: %d"},
	MessageZones:    {"%d 个区域", "zones: %d"},
	MessageLeases:   {"%d 个租约", "leases: %d"},

	MessageUnreached:  {"无法连接接收方", "the receiver cannot be reached"},
	MessageLater:      {"接收方暂时无法接收", "the receiver cannot take the message now"},
	MessageDoubtful:   {"接收方拒绝消息；若一天内一直拒绝则停止发送，重新保存后恢复", "the receiver refuses the message; after a day of refusals nothing is sent until the target is saved again"},
	MessageImpossible: {"程序无法向此目标发送，已停止；重新保存后恢复", "the program cannot send to this target, so nothing is sent until the target is saved again"},
	MessageCrashed:    {"程序向此目标发送时崩溃，已停止，详见日志；重新保存后恢复", "the program crashed at this target, as the log says, so nothing is sent until the target is saved again"},
	KindNewer:         {"此版本的程序不认识该类型，更新程序后恢复", "this version of the program does not know the kind; a version that knows it sends again"},
	MessageRefused:    {"接收方拒绝消息，已停止发送；重新保存后恢复", "the receiver refuses the message, so nothing is sent until the target is saved again"},

	"configuration.changed": {"配置已更改", "configuration changed"},
	"service.created":       {"服务已创建", "service created"},
	"service.changed":       {"服务已更改", "service changed"},
	"service.deleted":       {"服务已删除", "service deleted"},
	"usage.reserved":        {"前缀已预留", "prefix reserved"},
	"usage.changed":         {"前缀预留已更改", "usage changed"},
	"usage.releasing":       {"前缀正在释放", "prefix is being released"},
	"usage.released":        {"前缀已释放", "prefix released"},
	"record.published":      {"记录已发布", "record published"},
	"record.changed":        {"记录已更改", "record changed"},
	"record.withdrawn":      {"记录已撤回", "record withdrawn"},
	"record.failed":         {"记录发布失败", "record failed"},
	"record.conflict":       {"记录冲突", "record in conflict"},
	"record.recovered":      {"记录已恢复", "record recovered"},
	"zone.down":             {"区域故障", "zone down"},
	"zone.recovered":        {"区域已恢复", "zone recovered"},
	"address.changed":       {"本机地址已变化", "address of this host changed"},
	"leftover.appeared":     {"出现遗留记录", "leftover appeared"},
	"leftover.gone":         {"遗留记录已消失", "leftover gone"},
	"orphan.found":          {"发现未登记的记录", "orphan found"},
	"provision.applied":     {"预置文件已应用", "provisioning file applied"},
	"provision.refused":     {"预置文件未完全应用", "provisioning file not fully applied"},
	"backup.made":           {"备份已生成", "backup made"},
	"database.restored":     {"数据库已还原或移动", "database restored or moved"},
	"endpoint.dead":         {"端点没有应答，已从记录中撤下", "endpoint does not answer and is taken out of the record"},
	"endpoint.alive":        {"端点恢复应答，已放回记录", "endpoint answers again and is put back into the record"},
	"lease.created":         {"租约已创建", "lease created"},
	"lease.renewed":         {"租约续期并更换了端点", "lease renewed with other endpoints"},
	"lease.expired":         {"租约未按时续期，端点已撤下", "lease not renewed in time, its endpoints are taken out"},
	"lease.ended":           {"租约已删除", "lease deleted"},
	"lease.held":            {"多个租约同时到期，端点暂时保留", "many leases not renewed at once, their endpoints stay for now"},
	"secondary.behind":      {"辅助服务器一分钟内未取得最新区域", "secondary has lacked the newest zones for a minute"},
	"secondary.caught-up":   {"辅助服务器已取得全部区域", "secondary has all zones again"},
	"notification.stopped":  {"通知目标已停止，不再收到消息", "notification target stopped, it gets no more messages"},
	"gap":                   {"更早的事件已不再保留", "older events are not kept any more"},

	Network:          {"无法连接服务商", "the provider cannot be reached"},
	Temporary:        {"服务商暂时故障", "the provider has a temporary fault"},
	Throttled:        {"请求过于频繁，已被服务商限流", "too many requests"},
	Credentials:      {"服务商不接受该密钥", "the credentials are not accepted"},
	Permission:       {"密钥权限不足", "the key has no permission"},
	ClockSkew:        {"本机时钟与服务商相差过大", "this host's clock differs too much from the provider's"},
	ZoneNotFound:     {"服务商账号下未托管该域名", "the provider does not serve the zone"},
	Conflict:         {"记录名已被他人占用", "the name is held by somebody else"},
	Changed:          {"记录正被其他程序修改", "another writer keeps changing the name"},
	Invalid:          {"服务商不接受该设置或记录值", "the provider does not take this"},
	Quota:            {"超出服务商的配额", "a quota is used up"},
	BadAnswer:        {"无法识别服务商的应答", "the provider's answer cannot be understood"},
	UnknownProvider:  {"不支持的 provider", "unknown provider"},
	NotListening:     {"内置 DNS 服务器未启动（未设置 -dns-listen，也未启用 meshddns-dns.socket）", "the built-in DNS server is not running (-dns-listen is not set, and meshddns-dns.socket is not open)"},
	NoProvider:       {"该服务没有可用的服务商：自身未配置，域名也不在全局配置的域名之下", "nowhere to publish: the service has no provider, and its domain is not below the configuration's"},
	InvalidName:      {"不是合法的 DNS 名称", "not a valid DNS name"},
	NetworkConflict:  {"记录名已属于另一个网络", "the name belongs to another network"},
	CredentialsGone:  {"发布时所用的服务商已不在配置中，请手动删除该记录", "the provider that it was published with is no longer configured; delete the value by hand"},
	DeletesForbidden: {"upsert-only 模式不删除记录", "mode upsert-only deletes nothing"},
	AddressUnknown:   {"公网地址未知，已沿用上次的地址；从未取得过的已跳过", "the public address is not known now: the last known one stays, one that was never known is left out"},
	SameOwner:        {"记录反复被带有本机标识的程序改动：可能有数据库副本在别处运行", "somebody with this database's own mark keeps changing the record: a copy of the database may be in use elsewhere"},
	Orphan:           {"带有本机标识但未登记的记录，可用 ?sweep=1 撤回", "a value with this database's mark that it knows nothing of; ?sweep=1 withdraws it"},
	OfAdoptedOwner:   {"已接管的所有者在此处不需要的名称上的记录，本程序不会改动它", "a value of an adopted owner at a name that is not wanted here: nothing touches it, ?sweep=1 neither"},
	NotSearched:      {"未能列出该区域，未检查其中是否有未登记的记录", "the zone could not be listed, so it was not searched for orphans"},
	WritesUsedUp:     {"节点与检查每小时的写入次数有限，此更改将稍后写入", "nodes and checks may cause only so many writes, so the change is written later"},
	Paused:           {"已暂停", "paused"},
	UnsupportedType:  {"服务商（或其接口）不支持该记录类型", "the provider has no records of this type"},
	NameNotAllowed:   {"服务商不允许使用该名称", "the provider does not allow this name"},
	SharedName:       {"该名称下还有其他 TXT 记录，只读取一条的客户端可能读到它", "other TXT values stand at the name: a client that reads one value may get one of them"},
	ZoneUnreachable:  {"公网无法访问该区域：内置 DNS 服务器没有公网地址，请设置 -ipv4、-ipv6 或 -dns-host", "no resolver finds the zone: the built-in server's name has no public address; set -ipv4, -ipv6 or -dns-host"},
	DatabaseFailed:   {"数据库故障，将在下次同步时重试", "the database fails; the next synchronisation tries again"},
	Interrupted:      {"操作被中断，将在下次同步时重试", "interrupted; the next synchronisation tries again"},

	KeyOfConfiguration: {"（配置中的密钥）", " (key of the configuration)"},
	KeyOfService:       {"（服务 %q 的密钥）", " (key of service %q)"},
	KeyOfNothing:       {"（已无配置或服务使用的密钥）", " (a key that no configuration and no service has any more)"},

	WarnMember:       {"字段 %q 未被识别，已忽略；是否应为 %q？", "member %q is unknown and ignored; is %q meant?"},
	WarnNotSet:       {"字段 %q 已忽略：此调用不能设置它", "member %q is ignored: this call does not set it"},
	WarnProvider:     {"provider %q 不在支持的服务商之列，无法发布", "provider %q is not in the list of providers: nothing can be published"},
	WarnProviderLike: {"provider %q 不在支持的服务商之列，无法发布；是否应为 %q？", "provider %q is not in the list of providers: nothing can be published; is %q meant?"},
	WarnMode:         {"sync_mode %q 无效，按 manual 处理；可用：auto、manual、upsert-only", "sync_mode %q is unknown and counts as manual; there are auto, manual and upsert-only"},
	WarnPrivate:      {"%s 目前是内网地址 %s，外网无法访问", "%s is the private address %s now, which nobody outside can reach"},
	WarnSource:       {"没有名为 %q 的地址来源，无法替换 %s，含有它的地址不会发布；请检查 -addr", "there is no source of addresses named %q, so %s has no address and its endpoint is not published; check -addr"},
	WarnDomain:       {"domain %q 不是合法的 DNS 域名%s，无法发布", "domain %q is not a DNS name%s: nothing can be published"},
	WarnRecordName:   {"记录名 %q 不是合法的 DNS 名称，无法发布", "the record name %q is not a valid DNS name: the configuration's value cannot be published"},
	WarnNameTwice:    {"txt_record_name %q 以域名结尾，记录名为 %q；此字段只应填写域名之前的部分", "txt_record_name %q ends in the domain, so the record's name is %q: leave the domain out"},
	WarnAccount:      {"无法发布：%s", "nothing can be published: %s"},
	WarnBlanks:       {"%s 首尾有空白字符（如换行符），服务商可能不接受", "%s begins or ends with white space, such as the end of a line: the provider may refuse it"},
	WarnNumber:       {"%s 为 %d，超出范围，按 %d 处理", "%s %d is out of range: %d is used"},
	WarnPaused:       {"不会自动写入任何记录（%s）", "nothing is written by itself (%s)"},
	WarnEndpoints:    {"没有 txt_endpoints：所发布的值不含任何地址", "there are no txt_endpoints: the value that is published has no address"},
	WarnNoDomain:     {"config 中没有 domain，无法预留前缀", "config has no domain: no prefix can be reserved"},
	WarnNoConfig:     {"尚未保存配置，保存之前不会发布", "no configuration is stored: nothing is published until there is one"},
	WarnSharedDomain: {"域名 %s 也是服务 %q 的域名：同名的记录只属于先预留它的网络", "the domain %s is also the domain of service %q: a name below both belongs to the network that reserved it first"},
	WarnFormat:       {"格式 %s 无法发布：%s", "format %s cannot be published: %s"},
	WarnProvisioned:  {"程序启动或收到 SIGHUP 时，预置文件会重新添加其中的内容：请先清空文件或去掉 -provision", "the provisioning file adds its entries again at the next start or SIGHUP: empty it, or start without -provision"},
	WarnNameHeld:     {"记录名 %s 属于先预留它的网络 %s，释放之前不会发布本次预留", "the name %s belongs to network %s, which reserved it first: nothing is published for this reservation until that one is released"},
	WarnOwnHeld:      {"记录名 %s 属于网络 %s 的预留，释放之前不会发布全局配置自己的记录", "the name %s belongs to a reservation of network %s: the configuration's own record is not published until that one is released"},
	WarnNoProvider:   {"无法发布：该服务未配置服务商，域名 %s 也不在全局配置的域名 %s 之下", "nothing is published: the service has no provider, and its domain %s is not below the configuration's, %s"},
	WarnOutside:      {"未配置服务商且域名不在全局配置的域名 %s 之下的服务有 %d 个，如 %q：其预留不会发布", "services that have no provider and are not below the configuration's domain %s: %d, such as %q; nothing is published for them"},

	NotProvisioned:        {"有错误", "it has a mistake"},
	WellNotProvisioned:    {"正常，但预置文件未完全应用，原因见日志", "ok, but the provisioning file is not fully applied: the log names each fault"},
	NotificationsStopped:  {"正常，但有通知目标已停止，原因见 GET /api/v1/ddns/notifications", "ok, but notification targets are stopped: GET /api/v1/ddns/notifications says why"},
	NotProvisionedStopped: {"正常，但预置文件未完全应用，且有通知目标已停止，原因见日志", "ok, but the provisioning file is not fully applied, and notification targets are stopped: the log says why"},

	TestOK:       {"正常", "ok"},
	TestSkipped:  {"前面的步骤失败，已跳过", "skipped after the failure before"},
	FieldEmpty:   {"字段不能为空", "a field must not be empty"},
	ValueMissing: {"未能读到所写入的值", "the value that was written is not there"},
	NotDelegated: {"公网 DNS 未将该域名委派给此服务商", "the public DNS does not delegate the zone to this provider"},
	NoResolver:   {"没有可用的 DNS 解析器，无法检查公网 DNS", "no resolver can be reached, so the public DNS is not seen"},
}
