package msg

import (
	"cmp"
	_ "embed"
	"strings"
)

//go:embed texts.txt
var textLines string

// texts are {Chinese, English}.
var texts = Table(textLines)

// Table reads lines of an id, a Chinese and an English text, or of an English text, which is its own id, and a Chinese one.
func Table(lines string) map[ID][2]string {
	all := map[ID][2]string{}
	for _, cells := range rows(lines) {
		if len(cells) == 2 {
			cells = append(cells, cells[0])
		}
		all[ID(cells[0])] = [2]string(cells[1:])
	}
	return all
}

// rows returns the cells of the lines that have tabs between them. Other lines are comments.
func rows(lines string) (all [][]string) {
	for line := range strings.Lines(lines) {
		if cells := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(cells) > 1 {
			all = append(all, cells)
		}
	}
	return all
}

// Refusals of a request.
const (
	ParameterError   ID = "parameter_error"
	BodyTooLarge     ID = "body_too_large"
	QueryMissing     ID = "query_missing"
	QueryInvalid     ID = "query_invalid"
	TooManyStreams   ID = "too_many_streams"
	TooManyWaiting   ID = "too_many_waiting"
	TooManyRequests  ID = "too_many_requests"
	Standby          ID = "standby"
	TermOver         ID = "term_over"
	NotReplicated    ID = "not_replicated"
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
	NotPermitted          ID = "not_permitted"
	ACMEFull              ID = "acme_full"
	ACMEName              ID = "acme_name"
	ACMERaw               ID = "acme_raw"
	ACMEValue             ID = "acme_value_invalid"
	ACMEUnseen            ID = "acme_unseen"

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
	OwnerNotOwn  ID = "owner_not_own"
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
	SecondaryFrom         ID = "secondary_from_invalid"
	SecondaryFromUnsigned ID = "secondary_from_unsigned"
	SecondaryFromShared   ID = "secondary_from_shared"

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
	WantReplica     ID = "want_replica"
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
	WarnReceiver        ID = "warn_receiver"

	SecondarySaved    ID = "secondary_saved"
	SecondaryDeleted  ID = "secondary_deleted"
	SecondaryUnsigned ID = "warn_unsigned"
	SecondaryAnywhere ID = "warn_from_anywhere"

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
	InWork           ID = "in_work"
	Withdrawn        ID = "withdrawn"
	SecondaryLags    ID = "secondary_lags"
	Paused           ID = "paused"
	ZoneUnreachable  ID = "zone_unreachable"
	SharedName       ID = "shared_name"
	EndpointSilent   ID = "endpoint_silent"
	UnsupportedType  ID = "unsupported_record_type"
	NameNotAllowed   ID = "name_not_allowed"
	DatabaseFailed   ID = "database_down"
	NotInReplica     ID = "not_in_replica"
	MaybeOurs        ID = "maybe_ours"
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
	WarnRefused      ID = "warn_refused"
	WarnBlanks       ID = "warn_blanks"
	WarnNumber       ID = "warn_number"
	WarnPaused       ID = "warn_paused"
	WarnEndpoints    ID = "warn_endpoints"
	WarnNoDomain     ID = "warn_no_domain"
	WarnNoConfig     ID = "warn_no_configuration"
	WarnNameHeld     ID = "warn_name_held"
	WarnNameReserved ID = "warn_name_reserved"
	WarnTakesOwn     ID = "warn_takes_own"
	WarnInner        ID = "warn_inner"
	WarnBarred       ID = "warn_barred"
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
	CAARefuses   ID = "caa_refuses"
	SerialStands ID = "serial_stands"
	NoResolver   ID = "no_resolver"
)

// Builtin is the name of the provider of the zones that this program serves.
const Builtin = "builtin"

//go:embed providers.txt
var providerLines string

// providerTexts has a text for each provider and field.
var providerTexts = Table(providerLines)

// Provider is the title of a provider, and the meaning of its fields.
type Provider struct{ Title, AccessKeyID, AccessKeySecret, Endpoint string }

// ProviderIn returns the texts for a provider in a language.
func ProviderIn(language Language, name string) Provider {
	text := func(field string) string { return providerTexts[ID(name+field)][language] }
	return Provider{text(" title"), text(" access_key_id"), text(" access_key_secret"), cmp.Or(text(" endpoint"), providerTexts["endpoint"][language])}
}
