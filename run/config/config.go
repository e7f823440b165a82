package config

import (
	"fmt"
	"reflect"
	"strings"

	"meridian/decide/phase"
)

// Config is a checked configuration.
type Config struct {
	Governor  Governor         `toml:"governor"`
	Scheduler Scheduler        `toml:"scheduler"`
	Entropy   Entropy          `toml:"entropy"`
	KVMemory  KVMemory         `toml:"kv_memory"`
	Disagg    Disagg           `toml:"disagg"`
	Model     map[string]Model `toml:"model"`
	Agent     Agent            `toml:"agent"`
	Door      Door             `toml:"door"`
	TLS       TLS              `toml:"tls"`
	Directory Directory        `toml:"directory"`
	Gateway   Gateway          `toml:"gateway"`
	Store     Store            `toml:"store"`
	Telemetry Telemetry        `toml:"telemetry"`
	Logging   Logging          `toml:"logging"`
}

// Governor is the table [governor].
type Governor struct {
	Enabled bool  `toml:"enabled"`
	WaitUs  int64 `toml:"wait_us"`
}

// Scheduler is the table [scheduler].
type Scheduler struct {
	Policy               string  `toml:"policy"`
	PreemptMaxFraction   float64 `toml:"preempt_max_fraction"`
	ThinkTPOTBudgetMs    float64 `toml:"think_tpot_budget_ms"`
	OutputTPOTBudgetMs   float64 `toml:"output_tpot_budget_ms"`
	ThinkBatchMultiplier float64 `toml:"think_batch_multiplier"`
	MaxThinkTokens       int64   `toml:"max_think_tokens"`
	MinThinkTokens       int64   `toml:"min_think_tokens"`
}

// Entropy is the table [entropy].
type Entropy struct {
	Enabled                    bool    `toml:"enabled"`
	EMAAlpha                   float64 `toml:"ema_alpha"`
	RPDIThreshold              float64 `toml:"rpdi_threshold"`
	EATEMAVarianceThreshold    float64 `toml:"eat_ema_variance_threshold"`
	TransitionEntropyThreshold float64 `toml:"transition_entropy_threshold"`
	EATProbeIntervalTokens     int64   `toml:"eat_probe_interval_tokens"`
}

// KVMemory is the table [kv_memory].
type KVMemory struct {
	AggressiveThinkEviction  bool    `toml:"aggressive_think_eviction"`
	ThinkPhaseMemoryFraction float64 `toml:"think_phase_memory_fraction"`
	BlockSize                Bytes   `toml:"block_size_bytes"`
	Capacity                 Bytes   `toml:"capacity_bytes"`
}

// Bytes is a size, or "auto": to be found out when an engine registers.
type Bytes struct {
	Auto  bool
	Count int64
}

func (b Bytes) String() string {
	if b.Auto {
		return Auto
	}
	return fmt.Sprint(b.Count)
}

// Disagg is the table [disagg].
type Disagg struct {
	Enabled                bool   `toml:"enabled"`
	Fabric                 string `toml:"fabric"`
	OffloadThresholdBlocks int64  `toml:"offload_threshold_blocks"`
}

// Agent is the table [agent].
type Agent struct {
	Name               string   `toml:"name"`
	Fabrics            []string `toml:"fabrics"`
	Listen             string   `toml:"listen"`
	Advertise          string   `toml:"advertise"`
	Insecure           bool     `toml:"insecure"`
	Streams            int64    `toml:"streams"`
	MaxStrangers       int64    `toml:"max_strangers"`
	HandshakeTimeoutMs int64    `toml:"handshake_timeout_ms"`
	MaxGrants          int64    `toml:"max_grants"`
	StateDir           string   `toml:"state_dir"`
}

// TLS is the table [tls].
type TLS struct {
	Mode string `toml:"mode"`
	CA   string `toml:"ca"`
	Cert string `toml:"cert"`
	Key  string `toml:"key"`
}

// Directory is the table [directory].
type Directory struct {
	Endpoint string `toml:"endpoint"`
	Prefix   string `toml:"prefix"`
}

// Door is the table [door].
type Door struct {
	AllowUIDs       []uint32 `toml:"allow_uids"`
	RequireLeg      bool     `toml:"require_leg"`
	RequireCacheLeg bool     `toml:"require_cache_leg"`
}

// Gateway is the table [gateway].
type Gateway struct {
	Listen              string    `toml:"listen"`
	AdminListen         string    `toml:"admin_listen"`
	AdminKeyFile        string    `toml:"admin_key_file"`
	MetricsListen       string    `toml:"metrics_listen"`
	Insecure            bool      `toml:"insecure"`
	TLSCert             string    `toml:"tls_cert"`
	TLSKey              string    `toml:"tls_key"`
	APIKeyFile          string    `toml:"api_key_file"`
	ProxyPaths          []string  `toml:"proxy_paths"`
	Resume              bool      `toml:"resume"`
	MoveAtThinkEnd      bool      `toml:"move_at_think_end"`
	MoveForBalance      bool      `toml:"move_for_balance"`
	WarmNextTurn        bool      `toml:"warm_next_turn"`
	DirectPromptTokens  int64     `toml:"direct_prompt_tokens"`
	PromiseTokens       int64     `toml:"promise_tokens"`
	PrefixAffinity      float64   `toml:"prefix_affinity"`
	StoredTokenWeight   float64   `toml:"stored_token_weight"`
	MaxBodyBytes        int64     `toml:"max_body_bytes"`
	MaxBodyMemoryBytes  int64     `toml:"max_body_memory_bytes"`
	MaxRunning          int64     `toml:"max_running"`
	MaxWaiting          int64     `toml:"max_waiting"`
	MaxConnections      int64     `toml:"max_connections"`
	QueueTimeoutMs      int64     `toml:"queue_timeout_ms"`
	ClientTimeoutMs     int64     `toml:"client_timeout_ms"`
	PrefillTimeoutMs    int64     `toml:"prefill_timeout_ms"`
	FirstTokenTimeoutMs int64     `toml:"first_token_timeout_ms"`
	AnswerTimeoutMs     int64     `toml:"answer_timeout_ms"`
	StallTimeoutMs      int64     `toml:"stall_timeout_ms"`
	Effort              Effort    `toml:"effort"`
	Backend             []Backend `toml:"backend"`
}

// Effort is the table [gateway.effort].
type Effort struct {
	Minimal float64 `toml:"minimal"`
	Low     float64 `toml:"low"`
	Medium  float64 `toml:"medium"`
	High    float64 `toml:"high"`
	XHigh   float64 `toml:"xhigh"`
}

// Backend is one table [[gateway.backend]].
type Backend struct {
	URL            string `toml:"url"`
	Role           string `toml:"role"`
	Phases         string `toml:"phases"`
	Engine         string `toml:"engine"`
	APIKeyFile     string `toml:"api_key_file"`
	KVEvents       string `toml:"kv_events"`
	KVEventsReplay string `toml:"kv_events_replay"`
	KVEventsRanks  int64  `toml:"kv_events_ranks"`
}

// Store is the table [store].
type Store struct {
	Enabled        bool   `toml:"enabled"`
	Bytes          int64  `toml:"bytes"`
	PageBytes      int64  `toml:"page_bytes"`
	Master         bool   `toml:"master"`
	Policy         string `toml:"policy"`
	HighWatermark  int64  `toml:"high_watermark"`
	LowWatermark   int64  `toml:"low_watermark"`
	TenantQuota    int64  `toml:"tenant_quota"`
	WriteTimeoutMs int64  `toml:"write_timeout_ms"`
	DirectMap      bool   `toml:"direct_map"`
	Tenant         string `toml:"tenant"`
	BlockTokens    int64  `toml:"block_tokens"`
	Replicas       int64  `toml:"replicas"`
	FindWaitUs     int64  `toml:"find_wait_us"`
	FindTimeoutMs  int64  `toml:"find_timeout_ms"`
	// KeepBytesInFlight bounds what engines have on its way to be kept.
	KeepBytesInFlight int64     `toml:"keep_bytes_in_flight"`
	Disk              StoreDisk `toml:"disk"`
	S3                StoreS3   `toml:"s3"`
}

// StoreDisk is the table [store.disk].
type StoreDisk struct {
	Dir       string `toml:"dir"`
	Bytes     int64  `toml:"bytes"`
	TimeoutMs int64  `toml:"timeout_ms"`
}

// StoreS3 is the table [store.s3].
type StoreS3 struct {
	Endpoint          string `toml:"endpoint"`
	Bucket            string `toml:"bucket"`
	Prefix            string `toml:"prefix"`
	Region            string `toml:"region"`
	Bytes             int64  `toml:"bytes"`
	TimeoutMs         int64  `toml:"timeout_ms"`
	RequestsPerSecond int64  `toml:"requests_per_second"`
	BytesPerSecond    int64  `toml:"bytes_per_second"`
}

// Telemetry is the table [telemetry].
type Telemetry struct {
	PrometheusListen string  `toml:"prometheus_listen"`
	OTLPEnabled      bool    `toml:"otlp_enabled"`
	OTLPEndpoint     string  `toml:"otlp_endpoint"`
	TraceFraction    float64 `toml:"trace_fraction"`
}

// Logging is the table [logging].
type Logging struct {
	Level  string `toml:"level"`
	Format string `toml:"format"`
}

// Model is one table [model.<name>].
type Model struct {
	ThinkStartTokenIDs   []uint32 `toml:"think_start_token_ids"`
	ThinkEndTokenIDs     []uint32 `toml:"think_end_token_ids"`
	ThinkStartTexts      []string `toml:"think_start_texts"`
	ThinkEndTexts        []string `toml:"think_end_texts"`
	Channel              Channel  `toml:"channel"`
	Tokenizer            string   `toml:"tokenizer"`
	ReasoningParser      string   `toml:"reasoning_parser"`
	SupportsThinkDisable bool     `toml:"supports_think_disable"`
	SplitThoughts        string   `toml:"split_thoughts"`
	ThinkLimit           string   `toml:"think_limit"`
	Source               string   `toml:"source"`
	// Markers is what the fields above come down to.
	Markers phase.Markers `toml:"-"`
	// TokenizerPath is where Tokenizer is; a relative one is so to the file that names it.
	TokenizerPath string `toml:"-"`
}

// Channel is how gpt-oss keeps thoughts apart: open think message … close.
type Channel struct {
	Open    string `toml:"open"`
	Message string `toml:"message"`
	Close   string `toml:"close"`
	Think   string `toml:"think"`
	Answer  string `toml:"answer"`
}

// Defaults is the configuration without a file and without an environment.
func Defaults() *Config { return decode(newChecker().settings, nil) }

// decode fills a Config from checked settings. The schema and the structs are
// held together by a test, so a field without a setting keeps its zero value.
func decode(settings map[string]setting, tables map[string][]string) *Config {
	c := &Config{Model: make(map[string]Model, len(tables[model.Name]))}
	fill(reflect.ValueOf(c).Elem(), "", settings)
	for _, path := range tables[gatewayBackend.Name] {
		var b Backend
		fill(reflect.ValueOf(&b).Elem(), path+".", settings)
		c.Gateway.Backend = append(c.Gateway.Backend, b)
	}
	for _, path := range tables[model.Name] {
		var m Model
		fill(reflect.ValueOf(&m).Elem(), path+".", settings)
		c.Model[unquoteKey(strings.TrimPrefix(path, model.Name+"."))] = m
	}
	return c
}

func fill(target reflect.Value, prefix string, settings map[string]setting) {
	for i := range target.NumField() {
		name := target.Type().Field(i).Tag.Get("toml")
		field := target.Field(i)
		if _, isBytes := field.Interface().(Bytes); field.Kind() == reflect.Struct && !isBytes && name != "-" {
			fill(field, prefix+name+".", settings)
			continue
		}
		s, given := settings[prefix+name]
		if !given {
			continue
		}
		if target, isBytes := field.Addr().Interface().(*Bytes); isBytes {
			target.Count, _ = s.value.(int64)
			target.Auto = s.value == Auto
			continue
		}
		field.Set(reflect.ValueOf(s.value))
	}
}
