package gateway

import (
	"strings"

	"meridian/openai"
)

// thinksNot: the client has turned thinking off, by what templates call it or by an effort of
// none, of which vLLM makes the same.
func (c *clientRequest) thinksNot() bool {
	asked := false
	for name, value := range openai.Members(c.body.Get("chat_template_kwargs")) {
		if name == "enable_thinking" || name == "thinking" {
			if asked = true; string(value) == "false" {
				return true
			}
		}
	}
	return !asked && strings.TrimSpace(string(c.body.Get("reasoning_effort"))) == `"none"`
}
