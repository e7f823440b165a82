package config

import (
	"slices"
	"strings"

	"meridian/decide/phase"
	"meridian/engine/token"
)

func idMarkers(ids []uint32) []phase.Marker {
	markers := make([]phase.Marker, len(ids))
	for i, id := range ids {
		markers[i] = phase.Marker{IDs: []uint32{id}}
	}
	return markers
}

func textMarkers(texts []string) []phase.Marker {
	markers := make([]phase.Marker, len(texts))
	for i, text := range texts {
		markers[i] = phase.Marker{Text: text}
	}
	return markers
}

// MarkerIDs are the tokens that mark thoughts, where each marker is one; none where one is
// not, or is known by its text alone.
func (m Model) MarkerIDs() (starts, ends []uint32) {
	single := func(markers []phase.Marker) []uint32 {
		var ids []uint32
		for _, marker := range markers {
			if len(marker.IDs) != 1 {
				return nil
			}
			ids = append(ids, marker.IDs[0])
		}
		return ids
	}
	starts, ends = single(m.Markers.Start), single(m.Markers.End)
	if len(starts) < len(m.Markers.Start) || len(ends) == 0 {
		return nil, nil
	}
	return starts, ends
}

// answerRole stands before a message of the answer in harmony, the format of
// gpt_oss: a thought that is ended from outside goes on with it.
const answerRole = "<|start|>assistant"

// markers turns a model's fields into its markers, before any tokenizer, and adds
// what its parser says of the family's habits.
func (m Model) markers() phase.Markers {
	markers := phase.Markers{
		Opens: m.ReasoningParser == "deepseek_r1", Prose: m.ReasoningParser == "granite" || m.ReasoningParser == "anthropic",
		Disables: m.SupportsThinkDisable,
	}
	switch {
	case m.Channel != Channel{}:
		// A thought ends where its message closes; what follows may be another
		// thought, a tool call or the answer's own channel.
		markers.Start = []phase.Marker{{Text: m.Channel.Open + m.Channel.Think + m.Channel.Message}}
		markers.End = []phase.Marker{{Text: m.Channel.Close}}
	case len(m.ThinkEndTokenIDs) > 0:
		markers.Start, markers.End = idMarkers(m.ThinkStartTokenIDs), idMarkers(m.ThinkEndTokenIDs)
	default:
		markers.Start, markers.End = textMarkers(m.ThinkStartTexts), textMarkers(m.ThinkEndTexts)
	}
	return markers
}

// resolver looks marker texts up in a model's tokenizer.
type resolver struct {
	c          *checker
	path       string // of the model's table
	vocabulary *token.Vocabulary
}

// resolve reads the tokenizer of m, if it names one, checks every marker text
// against it and returns the markers with their ids.
func (c *checker) resolve(path string, m Model) phase.Markers {
	markers := m.markers()
	tokenizerPath := path + ".tokenizer"
	if m.Tokenizer == "" || c.broken[tokenizerPath] {
		return markers
	}
	file := m.TokenizerPath
	vocabulary, err := token.Open(file)
	if err != nil {
		c.faultAt(tokenizerPath, "cannot be read as a tokenizer.json: "+err.Error(), display(m.Tokenizer))
		return markers
	}
	r := resolver{c: c, path: path, vocabulary: vocabulary}
	if markers.Prose || markers.Disables {
		spell(&markers, file)
	}
	if markers.Prose {
		return markers // tokens spell prose in more than one way: its text is looked for
	}
	if m.Channel != (Channel{}) {
		if slices.ContainsFunc(channelFields, func(f string) bool { return c.broken[path+".channel."+f] }) {
			return markers // what is missing has been said
		}
		r.texts("channel.open", []string{m.Channel.Open + m.Channel.Think + m.Channel.Message}, markers.Start)
		r.texts("channel.close", []string{m.Channel.Close}, markers.End)
		r.texts("channel.answer", []string{m.Channel.Open + m.Channel.Answer + m.Channel.Message}, nil)
		r.channel(m.Channel, &markers)
		return markers
	}
	start := r.texts("think_start_texts", m.ThinkStartTexts, nil)
	end := r.texts("think_end_texts", m.ThinkEndTexts, nil)
	if len(m.ThinkEndTokenIDs) == 0 {
		markers.Start, markers.End = start, end
		return markers
	}
	r.agree("think_start_token_ids", m.ThinkStartTokenIDs, start)
	r.agree("think_end_token_ids", m.ThinkEndTokenIDs, end)
	return markers
}

// spell has markers read the tokenizer's texts. One that can be read for its ids
// only leaves them without, and who looks for prose then says so.
func spell(markers *phase.Markers, file string) {
	tokenizer, err := token.OpenTokenizer(file)
	if err != nil {
		return
	}
	markers.Texts = tokenizer.Text
	if markers.Prose && len(markers.End) > 0 {
		markers.Force = tokenizer.Encode("\n\n" + markers.End[0].Text)
	}
}

// channel resolves the parts of a channel where each is one token, and what ends
// a thought. Where one is not, the markers as a whole are looked for.
func (r resolver) channel(of Channel, markers *phase.Markers) {
	var channel phase.Channel
	for _, part := range []struct {
		text string
		into *uint32
	}{{of.Open, &channel.Open}, {of.Message, &channel.Message}, {of.Close, &channel.Close}} {
		ids, err := r.vocabulary.Marker(part.text)
		if err != nil || len(ids) != 1 {
			return
		}
		*part.into = ids[0]
	}
	think, thinkErr := r.vocabulary.Marker(of.Think)
	answer, answerErr := r.vocabulary.Marker(of.Answer)
	if thinkErr != nil || answerErr != nil {
		return
	}
	channel.Think, channel.Answer = think, answer
	markers.Channel = channel
	// A vocabulary without the role has no known end for its thoughts.
	markers.Force, _ = r.vocabulary.Marker(of.Close + answerRole + of.Open + of.Answer + of.Message)
}

// texts resolves each text; into, where given, receives the ids.
func (r resolver) texts(field string, texts []string, into []phase.Marker) []phase.Marker {
	if into == nil {
		into = textMarkers(texts)
	}
	for i, text := range texts {
		ids, err := r.vocabulary.Marker(text)
		if err != nil {
			reason := strings.TrimPrefix(err.Error(), "token: ")
			r.c.faultAt(r.path+"."+field, "no such marker in the tokenizer: "+reason, display(text))
			continue
		}
		into[i].IDs = ids
	}
	return into
}

// agree demands that ids given beside texts are what the texts resolve to.
func (r resolver) agree(field string, ids []uint32, resolved []phase.Marker) {
	if len(resolved) == 0 || !r.c.sound(r.path+"."+field, r.path+"."+strings.Replace(field, "_token_ids", "_texts", 1)) {
		return
	}
	for _, m := range resolved {
		if len(m.IDs) == 1 && slices.Contains(ids, m.IDs[0]) {
			continue
		}
		reason := "disagrees with the tokenizer, where " + display(m.Text) + " is " + displayIDs(m.IDs)
		if len(m.IDs) > 1 {
			reason = "each id is a marker by itself, but " + display(m.Text) + " is several tokens, " + displayIDs(m.IDs) + "; leave the ids out"
		}
		r.c.faultAt(r.path+"."+field, reason, displayIDs(ids))
		return
	}
}

func displayIDs(ids []uint32) string {
	var list []string
	for _, id := range ids {
		list = append(list, display(int64(id)))
	}
	return "[" + strings.Join(list, ", ") + "]"
}
