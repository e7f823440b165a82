package engine

import (
	"encoding/json"
	"strconv"
	"unicode/utf8"

	"meridian/serve/openai"
)

// head begins a chunk.
func (p *response) head(to []byte) []byte {
	if p.prefix == nil {
		object := openai.ObjectCompletion
		if p.chat {
			object = openai.ObjectChatChunk
		}
		p.prefix = append(p.prefix, `data: {"id":"`+p.id+`","object":"`+object+`","created":`+strconv.FormatInt(p.created, 10)+`,"model":`...)
		p.prefix = appendText(p.prefix, p.model)
		p.prefix = append(p.prefix, `,"system_fingerprint":`...)
		p.prefix = append(appendText(p.prefix, p.fingerprint), `,"choices":[`...)
	}
	return append(to, p.prefix...)
}

// appendOutput appends the chunks of an output: none where there is nothing to
// tell. The end of the last answer is kept back for appendEnd.
func (p *response) appendOutput(to []byte, o *Output) []byte {
	a := &p.choices()[o.Choice]
	if p.chat && !a.begun {
		to = p.appendChunk(to, o.Choice, `"delta":{"role":"assistant","content":""}`, &Output{})
	}
	a.begun = true
	if o.Text == "" && o.Thought == "" && o.Finish == "" && len(o.Logprobs) == 0 && !p.tokenIDs {
		return to
	}
	if o.Finish == openai.FinishMoved && len(o.Tokens) > 0 {
		// Its end is no client's; what it says is.
		said := *o
		said.Finish = ""
		to = p.appendChunk(to, o.Choice, "", &said)
		o = &Output{Choice: o.Choice, Finish: o.Finish}
	}
	if o.Finish != "" {
		p.open--
	}
	if p.open > 0 {
		return p.appendChunk(to, o.Choice, "", o)
	}
	p.last = p.chunkBody(p.last[:0], o.Choice, "", o)
	return to
}

// appendEnd appends what comes before [DONE]: the end of the last answer, the
// usage where it was asked for, and the report with the very last chunk.
func (p *response) appendEnd(to []byte, r Result) []byte {
	report := appendJSON([]byte(`,"meridian":`), r.Report)
	if len(p.last) > 0 {
		to = append(to, p.last...)
		if transfer := r.transfer(); transfer != nil {
			to = appendJSON(append(to, `,"kv_transfer_params":`...), transfer)
		}
		if !p.includeUsage {
			to = append(to, report...)
		}
		to = append(to, "}\n\n"...)
	}
	if p.includeUsage {
		to = append(p.head(to), `],"usage":`...)
		to = append(appendJSON(to, r.Usage), report...)
		to = append(to, "}\n\n"...)
	}
	return to
}

func (p *response) appendChunk(to []byte, choice int, delta string, o *Output) []byte {
	return append(p.chunkBody(to, choice, delta, o), "}\n\n"...)
}

// chunkBody appends an event without the brace that closes it. delta, where
// given, replaces what o says.
func (p *response) chunkBody(to []byte, choice int, delta string, o *Output) []byte {
	to = append(strconv.AppendInt(append(p.head(to), `{"index":`...), int64(choice), 10), ',')
	switch {
	case delta != "":
		to = append(to, delta...)
	case p.chat:
		to = appendDelta(to, o)
	default:
		to = appendText(append(to, `"text":`...), o.Text)
	}
	to = append(to, `,"logprobs":`...)
	switch {
	case !p.request.Logprobs || delta != "":
		to = append(to, "null"...)
	case p.chat:
		to = appendJSON(to, p.chatLogprobs(o.Logprobs))
	default:
		to = appendJSON(to, p.textLogprobs(&p.answers[choice], o.Logprobs))
	}
	to = append(to, `,"finish_reason":`...)
	if o.Finish == "" {
		to = append(to, "null"...)
	} else {
		to = appendText(to, o.Finish)
	}
	if p.tokenIDs {
		to = openai.AppendIDs(append(to, `,"token_ids":`...), o.Tokens)
	}
	to = append(to, "}]"...)
	if p.tokenIDs && !p.begun {
		to = openai.AppendIDs(append(to, `,"prompt_token_ids":`...), p.request.Prompts[0])
	}
	p.begun = true
	return to
}

func appendDelta(to []byte, o *Output) []byte {
	to = append(to, `"delta":{`...)
	if o.Thought != "" {
		to = appendText(append(to, `"reasoning_content":`...), o.Thought)
	}
	if o.Text != "" {
		if o.Thought != "" {
			to = append(to, ',')
		}
		to = appendText(append(to, `"content":`...), o.Text)
	}
	return append(to, '}')
}

// appendText appends a JSON string.
func appendText(to []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= utf8.RuneSelf || c == '"' || c == '\\' || c == 0x7F {
			return appendJSON(to, s)
		}
	}
	return append(append(append(to, '"'), s...), '"')
}

func appendJSON(to []byte, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs and texts
	}
	return append(to, data...)
}
