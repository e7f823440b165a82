package config

import (
	"slices"
	"strings"
)

// Rules across fields. Each speaks only when the fields it reads are sound by
// themselves, so that one mistake is reported once.

func (c *checker) rules() {
	c.orderRule("scheduler.min_think_tokens", "scheduler.max_think_tokens")
	c.orderRule("store.low_watermark", "store.high_watermark")
	enabled, fabric := c.settings["disagg.enabled"], c.settings["disagg.fabric"]
	if c.sound("disagg.enabled", "disagg.fabric") && enabled.value == true && fabric.value == "none" {
		c.faultAt("disagg.fabric", `must name a fabric while disagg.enabled is true; use "meridian"`, display(fabric.value))
	}
	c.pairRule("tls.cert", "tls.key", Auto)
	c.pairRule("gateway.tls_cert", "gateway.tls_key", None)
	c.pairRule("store.s3.endpoint", "store.s3.bucket", None)
	for _, path := range c.tables[gatewayBackend.Name] {
		if url := path + ".url"; c.sound(url) && !isGiven(c.settings[url].value) {
			c.faultAt(url, "must be given", "")
		}
	}
	for _, path := range c.tables[model.Name] {
		c.modelRules(path)
	}
}

// pairRule blames the half that is missing.
func (c *checker) pairRule(one, two, absent string) {
	given := func(path string) bool { return c.settings[path].value != absent }
	if !c.sound(one, two) || given(one) == given(two) {
		return
	}
	missing, other := one, two
	if given(one) {
		missing, other = two, one
	}
	c.faultAt(missing, "must be given, because "+other+" is", "")
}

// orderRule blames the bound that was set, not the default it ran into.
func (c *checker) orderRule(minPath, maxPath string) {
	least, most := c.settings[minPath], c.settings[maxPath]
	if !c.sound(minPath, maxPath) || least.value.(int64) < most.value.(int64) {
		return
	}
	if least.origin == Default {
		c.faultAt(maxPath, "must be > "+minPath+", which is "+display(least.value), display(most.value))
		return
	}
	c.faultAt(minPath, "must be < "+maxPath+", which is "+display(most.value), display(least.value))
}

func (c *checker) sound(paths ...string) bool {
	return !slices.ContainsFunc(paths, func(p string) bool { return c.broken[p] })
}

// faultAt reports a rule broken at path, where path was set or should stand.
func (c *checker) faultAt(path, reason, given string) {
	source, place := c.document.source, c.document.at(path)
	switch {
	case c.settings[path].origin == FromEnvironment:
		section, field, _ := strings.Cut(path, ".")
		s, _ := findSection(section)
		source, place = "environment "+s.EnvName(field), position{}
	case source == "":
		source = "built-in defaults"
	}
	c.fault(Fault{Path: path, Source: source, Reason: reason, Given: given}, place)
}

// isGiven is false for what is not set and for an empty list.
func isGiven(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case []uint32:
		return len(v) > 0
	case []string:
		return len(v) > 0
	}
	return true
}

var channelFields = []string{"open", "message", "close", "think", "answer"}

func (c *checker) modelRules(path string) {
	given := func(field string) bool { return isGiven(c.settings[path+"."+field].value) }
	for _, kind := range []string{"_token_ids", "_texts"} {
		start, end := "think_start"+kind, "think_end"+kind
		if c.sound(path+"."+start, path+"."+end) && given(start) && !given(end) {
			c.faultAt(path+"."+end, "must be given, because "+start+" is", "")
		}
	}
	ids := given("think_start_token_ids") || given("think_end_token_ids")
	texts := given("think_start_texts") || given("think_end_texts")
	channels := 0
	for _, f := range channelFields {
		if given("channel."+f) || c.broken[path+".channel."+f] {
			channels++
		}
	}
	if channels > 0 {
		for _, f := range channelFields {
			if !given("channel."+f) && !c.broken[path+".channel."+f] {
				c.faultAt(path+".channel."+f, "must be given, because the other channel fields are", "")
			}
		}
		if ids || texts {
			c.faultAt(path+".channel", "cannot stand beside think ids or texts; keep one of them", "")
		}
	}
	c.sharedIDs(path)
	c.parserRule(path, ids, texts, channels > 0)
}

func (c *checker) sharedIDs(path string) {
	starts, _ := c.settings[path+".think_start_token_ids"].value.([]uint32)
	ends, _ := c.settings[path+".think_end_token_ids"].value.([]uint32)
	isStart := make(map[uint32]bool)
	for _, id := range starts {
		isStart[id] = true
	}
	for _, id := range ends {
		if isStart[id] {
			c.faultAt(path+".think_end_token_ids", "must share no id with think_start_token_ids", display(int64(id)))
			return
		}
	}
}

// parserRule: each parser that needs one kind of marker refuses the others.
func (c *checker) parserRule(path string, ids, texts, channel bool) {
	parser, _ := c.settings[path+".reasoning_parser"].value.(string)
	wrong := ""
	switch parser {
	case "anthropic", "granite":
		if ids || channel {
			wrong = parser + " takes think_start_texts and think_end_texts: such a model has no think token ids"
		}
	case "gpt_oss":
		if ids || texts {
			wrong = "gpt_oss takes a channel table: the model marks thoughts by channel"
		}
	default:
		if parser != "" && channel {
			wrong = parser + " takes ids or texts; only gpt_oss has channels"
		}
	}
	if wrong != "" {
		c.faultAt(path+".reasoning_parser", wrong, "")
	}
}
