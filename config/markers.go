package config

import (
	"path/filepath"
	"slices"
	"strings"

	"meridian/token"
)

// Marker is one way a thought may start or end: a sequence of token ids where
// they are known, and its text where that was given.
type Marker struct {
	IDs  []uint32
	Text string
}

// Markers is how a model's thoughts start and end. No End means that the model
// does not mark thoughts at all.
type Markers struct {
	Start, End []Marker
}

func idMarkers(ids []uint32) []Marker {
	markers := make([]Marker, len(ids))
	for i, id := range ids {
		markers[i] = Marker{IDs: []uint32{id}}
	}
	return markers
}

func textMarkers(texts []string) []Marker {
	markers := make([]Marker, len(texts))
	for i, text := range texts {
		markers[i] = Marker{Text: text}
	}
	return markers
}

// markers turns a model's fields into its markers, before any tokenizer.
func (m Model) markers() Markers {
	switch {
	case m.Channel != Channel{}:
		// A thought ends where its message closes; what follows may be another
		// thought, a tool call or the answer's own channel.
		return Markers{
			Start: []Marker{{Text: m.Channel.Open + m.Channel.Think + m.Channel.Message}},
			End:   []Marker{{Text: m.Channel.Close}},
		}
	case len(m.ThinkEndTokenIDs) > 0:
		return Markers{Start: idMarkers(m.ThinkStartTokenIDs), End: idMarkers(m.ThinkEndTokenIDs)}
	default:
		return Markers{Start: textMarkers(m.ThinkStartTexts), End: textMarkers(m.ThinkEndTexts)}
	}
}

// resolver looks marker texts up in a model's tokenizer.
type resolver struct {
	c          *checker
	path       string // of the model's table
	vocabulary *token.Vocabulary
}

// resolve reads the tokenizer of m, if it names one, checks every marker text
// against it and returns the markers with their ids.
func (c *checker) resolve(path, dir string, m Model) Markers {
	markers := m.markers()
	tokenizerPath := path + ".tokenizer"
	if m.Tokenizer == "" || c.broken[tokenizerPath] {
		return markers
	}
	file := m.Tokenizer
	if !filepath.IsAbs(file) {
		file = filepath.Join(dir, file)
	}
	vocabulary, err := token.Open(file)
	if err != nil {
		c.faultAt(tokenizerPath, "cannot be read as a tokenizer.json: "+err.Error(), display(m.Tokenizer))
		return markers
	}
	r := resolver{c: c, path: path, vocabulary: vocabulary}
	if m.Channel != (Channel{}) {
		if slices.ContainsFunc(channelFields, func(f string) bool { return c.broken[path+".channel."+f] }) {
			return markers // what is missing has been said
		}
		r.texts("channel.open", []string{m.Channel.Open + m.Channel.Think + m.Channel.Message}, markers.Start)
		r.texts("channel.close", []string{m.Channel.Close}, markers.End)
		r.texts("channel.answer", []string{m.Channel.Open + m.Channel.Answer + m.Channel.Message}, nil)
		return markers
	}
	start := r.texts("think_start_texts", m.ThinkStartTexts, nil)
	end := r.texts("think_end_texts", m.ThinkEndTexts, nil)
	if len(m.ThinkEndTokenIDs) == 0 {
		return Markers{Start: start, End: end}
	}
	r.agree("think_start_token_ids", m.ThinkStartTokenIDs, start)
	r.agree("think_end_token_ids", m.ThinkEndTokenIDs, end)
	return markers
}

// texts resolves each text; into, where given, receives the ids.
func (r resolver) texts(field string, texts []string, into []Marker) []Marker {
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
func (r resolver) agree(field string, ids []uint32, resolved []Marker) {
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
