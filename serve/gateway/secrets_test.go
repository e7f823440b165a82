package gateway

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"meridian/serve/gateway/upstream"
	"meridian/serve/openai"
)

// sealed are the ticket and the leg in a request to an engine, in base64.
func sealed(request []byte) (ticket, leg string) {
	var body struct {
		Params struct {
			Ticket string `json:"meridian_ticket"`
			Leg    string `json:"meridian_leg"`
		} `json:"kv_transfer_params"`
	}
	_ = json.Unmarshal(request, &body)
	return body.Params.Ticket, body.Params.Leg
}

// An engine that quotes the request in its refusal, as vLLM does, gives nothing away
// of what the gateway put into it: not to the client, and no word of it to records.
func TestRefusalsQuoteNoSecrets(t *testing.T) {
	bytesOf := func(text string) []byte {
		plain, _ := base64.StdEncoding.DecodeString(text)
		return plain
	}
	for name, quote := range map[string]func(request []byte) string{
		"as it is":   func(r []byte) string { return string(r) },
		"escaped":    func(r []byte) string { return fmt.Sprintf("bad request: %q", r) },
		"as Python":  func(r []byte) string { return "Input: " + strings.ReplaceAll(string(r), `"`, "'") },
		"two values": func(r []byte) string { ticket, leg := sealed(r); return ticket + " " + leg },
		"a part":     func(r []byte) string { _, leg := sealed(r); return "…" + leg[max(0, len(leg)-30):] + "'}" },
		"slashes":    func(r []byte) string { ticket, _ := sealed(r); return strings.ReplaceAll(ticket, "/", `\/`) },
		"in hex":     func(r []byte) string { ticket, _ := sealed(r); return fmt.Sprintf("%x", bytesOf(ticket)) },
		"literal":    func(r []byte) string { _, leg := sealed(r); return fmt.Sprintf("b%+q", bytesOf(leg)) },
	} {
		for status, outcome := range map[int]int{400: 400, 422: 422, 429: 429, 500: 503} {
			t.Run(fmt.Sprint(name, " ", status), func(t *testing.T) {
				c := newCell(t, 1, 1, nil)
				c.decode[0].set(habits{status: status, quote: &quotes{quote}})
				r := c.post(openai.PathCompletions, completion(longPrompt, ""))
				var secrets []string
				for _, request := range c.decode[0].seen() {
					sent, _ := json.Marshal(request.body)
					if ticket, leg := sealed(sent); leg != "" {
						secrets = append(secrets, quote(sent), ticket, leg, fmt.Sprintf("%x", bytesOf(leg)))
					}
				}
				record, err := json.Marshal(c.record(r))
				if err != nil || r.status != outcome || len(secrets) == 0 {
					t.Fatalf("%d %s, with %d secrets sent: %v", r.status, r.body, len(secrets), err)
				}
				for _, text := range []string{string(r.body), string(record)} {
					for _, secret := range secrets {
						if strings.Contains(text, secret) || strings.Contains(text, "meridian_") || strings.Contains(text, "kv_transfer") {
							t.Errorf("%q is told in %s", secret, text)
						}
					}
				}
				if strings.Contains(string(record), longPrompt[:40]) {
					t.Errorf("the prompt is recorded: %s", record)
				}
			})
		}
	}
}

// What an engine says that quotes nothing of the gateway's comes through, and is not
// recorded: it may quote the prompt.
func TestRefusalsAreCutAndNotRecorded(t *testing.T) {
	c := newCell(t, 1, 1, nil)
	said := "This model's maximum context length is 4096 tokens, 'max_tokens' is too large: " + strings.Repeat("word ", 1000)
	c.decode[0].set(habits{status: 400, fault: said})
	r := c.post(openai.PathCompletions, completion(longPrompt, ""))
	_, _, problem, _ := r.text(t)
	if r.status != http.StatusBadRequest || !strings.HasPrefix(problem, said[:500]) || len(problem) > upstream.MaxSaid {
		t.Errorf("%d, %d bytes: %.100s", r.status, len(problem), problem)
	}
	if record := c.record(r); strings.Contains(fmt.Sprint(record), "maximum context") || !strings.Contains(record.Problem, "status 400, code c") {
		t.Errorf("recorded: %s", record)
	}
}
