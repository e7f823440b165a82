// Package config owns meridian.toml. Every field is declared once, as data, in
// the schema; everything else is made from it:
//
//	Schema ──► Load            strict validation, all faults at once
//	       ──► Example         the annotated file of `meridian config init`
//	       ──► Explain         `meridian config explain`
//	       ──► Reference       the tables of docs/configuration.md
//	       ──► SchemaJSON      python/meridian/schema.json, for the twin in Python
//
// A file is read in three layers, later ones winning: defaults, the file, and
// environment variables named MERIDIAN_SECTION_FIELD. Nothing is half-applied:
// one fault anywhere and there is no Config.
package config

import (
	"fmt"
	"math"
	"strings"
)

// Kind is the type of a field's value.
type Kind string

// The kinds of values.
const (
	Bool     Kind = "bool"
	Int      Kind = "int"
	Float    Kind = "float" // an integer is accepted
	Text     Kind = "text"
	Enum     Kind = "enum"
	Enums    Kind = "enums"  // list of choices, each at most once, at least one
	Size     Kind = "size"   // bytes, or "auto"
	Tokens   Kind = "tokens" // list of token ids, each a u32
	Texts    Kind = "texts"  // list of non-empty texts
	UserIDs  Kind = "uids"   // list of user ids of the system
	Endpoint Kind = "endpoint"
	Listen   Kind = "listen" // host:port, or "" for none
	// Publisher is where something is published, as ZeroMQ writes it, or "auto" or
	// "none".
	Publisher Kind = "publisher"
	Paths     Kind = "paths" // list of paths of URLs, each at most once
)

var kindNames = map[Kind]string{
	Bool: "boolean", Int: "integer", Float: "number", Text: "string", Enum: "string", Enums: "list of strings",
	Size: `integer or "auto"`, Tokens: "list of token ids", Texts: "list of strings", UserIDs: "list of user ids",
	Endpoint: "http(s) URL", Listen: "host:port", Publisher: "ZeroMQ endpoint", Paths: "list of paths",
}

func (k Kind) String() string { return kindNames[k] }

// None is the value of a text that names nothing.
const None = "none"

// Auto is the value of a Size field that is found out when an engine registers.
const Auto = "auto"

// Choice is one value of an Enum, or of Enums. One that is Refused is known, but this build
// cannot do it; the text says what to do instead.
type Choice struct {
	Name    string `json:"name"`
	Refused string `json:"refused,omitempty"`
}

// Range bounds a number. A nil bound is no bound.
type Range struct {
	Min     *float64 `json:"min,omitempty"`
	MinOpen bool     `json:"min_open,omitempty"`
	Max     *float64 `json:"max,omitempty"`
	MaxOpen bool     `json:"max_open,omitempty"`
}

func above(bound float64) Range   { return Range{Min: &bound, MinOpen: true} }
func atLeast(bound float64) Range { return Range{Min: &bound} }

func (r Range) below(bound float64) Range  { r.Max, r.MaxOpen = &bound, true; return r }
func (r Range) atMost(bound float64) Range { r.Max = &bound; return r }

// Contains is false for NaN, whatever the bounds.
func (r Range) Contains(v float64) bool {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return false
	}
	if r.Min != nil && (v < *r.Min || r.MinOpen && v == *r.Min) {
		return false
	}
	return r.Max == nil || !(v > *r.Max || r.MaxOpen && v == *r.Max)
}

func (r Range) String() string {
	var parts []string
	if r.Min != nil {
		parts = append(parts, map[bool]string{true: "> ", false: "≥ "}[r.MinOpen]+number(*r.Min))
	}
	if r.Max != nil {
		parts = append(parts, map[bool]string{true: "< ", false: "≤ "}[r.MaxOpen]+number(*r.Max))
	}
	return strings.Join(parts, " and ")
}

func number(v float64) string {
	if v == math.Trunc(v) && math.Abs(v) < 1<<53 {
		return fmt.Sprintf("%d", int64(v))
	}
	return fmt.Sprintf("%g", v)
}

// Field is one setting.
type Field struct {
	// Name is the path within the section, such as "max_think_tokens".
	Name string
	Kind Kind
	// Default is the value where none is given; nil means "not set".
	Default any
	Unit    string
	Range   Range
	Choices []Choice
	// Rule states in words what a cross-field check enforces.
	Rule string
	Doc  string // what it does
	Tune string // when to change it, and which way
}

// Section is one table of the file.
type Section struct {
	Name string
	// Named sections hold one table per name: [model.qwen3].
	Named bool
	// Listed sections hold any number of tables, which stand in a table of
	// another section: [[gateway.backend]].
	Listed bool
	Doc    string
	Fields []Field
}

// Schema is the whole of meridian.toml, in the order of the example file.
func Schema() []Section {
	return []Section{scheduler, entropy, kvMemory, governor, disagg, model, agent, door, tls, directory, gateway, gatewayBackend, store, telemetry, logging}
}

func findSection(name string) (Section, bool) {
	for _, s := range Schema() {
		if s.Name == name {
			return s, true
		}
	}
	return Section{}, false
}

func (s Section) field(name string) (Field, bool) {
	for _, f := range s.Fields {
		if f.Name == name {
			return f, true
		}
	}
	return Field{}, false
}

// many tells whether there can be several tables of the section.
func (s Section) many() bool { return s.Named || s.Listed }

// EnvName is the variable that overrides a field, or "" for sections of several
// tables, whose names cannot be told from field names in a variable.
func (s Section) EnvName(field string) string {
	if s.many() {
		return ""
	}
	return envPrefix + strings.ToUpper(s.Name+"_"+strings.ReplaceAll(field, ".", "_"))
}

// header is the table header that stands above the section's fields.
func (s Section) header() string {
	switch {
	case s.Named:
		return fmt.Sprintf("[%s.<name>]", s.Name)
	case s.Listed:
		return fmt.Sprintf("[[%s]]", s.Name)
	}
	return fmt.Sprintf("[%s]", s.Name)
}
