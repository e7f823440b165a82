package phase

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"meridian/kv"
)

// Ids of the tests' vocabulary.
const (
	thinkID  = 90
	endID    = 91
	newline  = 92
	openID   = 93
	message  = 94
	closeID  = 95
	analysis = 96
	final    = 97
	startID  = 98
)

func ids(of ...uint32) Marker { return Marker{IDs: of} }

var (
	single   = Markers{Start: []Marker{ids(thinkID)}, End: []Marker{ids(endID)}, Disables: true, Texts: letters}
	several  = Markers{Start: []Marker{ids(1, 2, 3), ids(1, 2, 4, 5)}, End: []Marker{ids(6, 6, 7), ids(1, 8)}}
	habitual = Markers{Start: several.Start, End: several.End, Opens: true}
	prose    = Markers{
		Start: []Marker{{Text: "Here is my thought:"}, {Text: "Here's my thought:"}},
		End:   []Marker{{Text: "Here is my answer:"}, {Text: "Here's my answer:"}}, Prose: true, Texts: letters,
	}
	harmony = Markers{Channel: Channel{Open: openID, Message: message, Close: closeID, Think: []uint32{analysis}, Answer: []uint32{final}}}
	none    = Markers{}
)

// pieces is a vocabulary in which a text can be spelled in many ways.
var pieces = []string{
	"Here", " is", "'s", " my", " thought", ":", ":\n\n", " answer", "\n", " ", "H", "e", "r", " i", "s", "/no", "_think", "/think", "ow", ". Her", "thought: Here is my answer: 4", "e is",
}

func letters(id uint32) []byte {
	if int(id) >= len(pieces) {
		return nil
	}
	return []byte(pieces[id])
}

func spelled(t *testing.T, words ...string) []uint32 {
	t.Helper()
	var out []uint32
	for _, w := range words {
		i := slices.Index(pieces, w)
		if i < 0 {
			t.Fatalf("%q is no piece", w)
		}
		out = append(out, uint32(i))
	}
	return out
}

func model(t testing.TB, m Markers) *Model {
	t.Helper()
	model, err := NewModel(m)
	if err != nil {
		t.Fatal(err)
	}
	return model
}

func enter(at int) Event       { return Event{Kind: EnterThink, At: at} }
func exit(at, think int) Event { return Event{Kind: ExitThink, At: at, Think: think} }
func over(at, think int) Event { return Event{Kind: Complete, At: at, Think: think} }

func TestMachine(t *testing.T) {
	for name, c := range map[string]struct {
		markers Markers
		prompt  Prompt
		stream  []uint32
		want    []Event
		output  int
	}{
		"a thought":                    {single, Prompt{}, []uint32{thinkID, 5, 6, endID, 7, 8}, []Event{enter(1), exit(4, 2), over(6, 2)}, 2},
		"an empty thought":             {single, Prompt{}, []uint32{thinkID, endID, 7}, []Event{enter(1), exit(2, 0), over(3, 0)}, 1},
		"no thought":                   {single, Prompt{}, []uint32{5, thinkID, 6, endID}, []Event{over(4, 0)}, 4},
		"a second thought is text":     {single, Prompt{}, []uint32{thinkID, 5, endID, thinkID, 6, endID}, []Event{enter(1), exit(3, 1), over(6, 1)}, 3},
		"cut off while thinking":       {single, Prompt{}, []uint32{thinkID, 5, 6}, []Event{enter(1), over(3, 2)}, 0},
		"nothing was generated":        {single, Prompt{}, nil, []Event{over(0, 0)}, 0},
		"opened in the prompt":         {single, Prompt{Tokens: []uint32{1, thinkID, newline}}, []uint32{5, 6, endID, 7}, []Event{enter(1), exit(3, 2), over(4, 2)}, 1},
		"opened, and said again":       {single, Prompt{Tokens: []uint32{1, thinkID, newline}}, []uint32{thinkID, 6, endID, 7}, []Event{enter(1), exit(3, 1), over(4, 1)}, 1},
		"opened, and over at once":     {single, Prompt{Tokens: []uint32{1, thinkID, newline}}, []uint32{endID, 7}, []Event{enter(1), exit(1, 0), over(2, 0)}, 1},
		"opened and closed":            {single, Prompt{Tokens: []uint32{1, thinkID, newline, endID, newline}}, []uint32{5, thinkID}, []Event{over(2, 0)}, 2},
		"a user's marker":              {single, Prompt{Tokens: []uint32{thinkID, 1, 2, 3}}, []uint32{5, 6}, []Event{over(2, 0)}, 2},
		"asked not to":                 {single, Prompt{NoThink: true}, []uint32{thinkID, endID, 6}, []Event{over(3, 0)}, 3},
		"directive":                    {single, Prompt{Tokens: []uint32{0, 15, 16}}, []uint32{thinkID, endID, 6}, []Event{over(3, 0)}, 3},
		"directive taken back":         {single, Prompt{Tokens: []uint32{15, 16, 0, 17}}, []uint32{thinkID, endID, 6}, []Event{enter(1), exit(2, 0), over(3, 0)}, 1},
		"white space before a thought": {single, Prompt{}, append(spelled(t, "\n", " ", "\n"), thinkID, 5, endID, 7), []Event{enter(4), exit(6, 1), over(7, 1)}, 1},
		"white space before an answer": {single, Prompt{}, append(spelled(t, "\n", "ow"), thinkID, endID), []Event{over(4, 0)}, 4},
		"nothing but white space":      {single, Prompt{}, spelled(t, "\n", "\n"), []Event{over(2, 0)}, 2},
		"too much white space":         {single, Prompt{}, append(slices.Repeat(spelled(t, "\n"), maxLeading+1), thinkID, endID), []Event{over(maxLeading+3, 0)}, maxLeading + 3},
		"as much as is waited for":     {single, Prompt{}, append(slices.Repeat(spelled(t, "\n"), maxLeading), thinkID, endID), []Event{enter(maxLeading + 1), exit(maxLeading+2, 0), over(maxLeading+2, 0)}, 0},
		"several ids":                  {several, Prompt{}, []uint32{1, 2, 4, 5, 9, 6, 6, 6, 7, 8}, []Event{enter(4), exit(9, 2), over(10, 2)}, 1},
		"another end":                  {several, Prompt{}, []uint32{1, 2, 3, 1, 1, 8, 8}, []Event{enter(3), exit(6, 1), over(7, 1)}, 1},
		"begun and given up":           {several, Prompt{}, []uint32{1, 2, 4, 9}, []Event{over(4, 0)}, 4},
		"begun and cut off":            {several, Prompt{}, []uint32{1, 2, 4}, []Event{over(3, 0)}, 3},
		"habit: no start marker":       {habitual, Prompt{}, []uint32{9, 9, 1, 8, 9}, []Event{enter(1), exit(4, 2), over(5, 2)}, 1},
		"habit: begun, but the end":    {habitual, Prompt{}, []uint32{1, 8, 9}, []Event{enter(2), exit(2, 0), over(3, 0)}, 1},
		"habit: begun and given up":    {habitual, Prompt{}, []uint32{1, 2, 4, 9, 1, 8}, []Event{enter(4), exit(6, 4), over(6, 4)}, 0},
		"habit: with start marker":     {habitual, Prompt{}, []uint32{1, 2, 3, 9, 1, 8, 9}, []Event{enter(3), exit(6, 1), over(7, 1)}, 1},
		"prose":                        {prose, Prompt{}, spelled(t, "Here", " is", " my", " thought", ":\n\n", "ow", "ow", "Here", " is", " my", " answer", ":", "ow"), []Event{enter(5), exit(12, 2), over(13, 2)}, 1},
		"prose across tokens":          {prose, Prompt{}, spelled(t, "\n", "H", "e", "r", "e", "'s", " my", " thought", ":", "ow", ". Her", "e is", " my", " answer", ":\n\n"), []Event{enter(9), exit(15, 1), over(15, 1)}, 0},
		"prose without a thought":      {prose, Prompt{}, spelled(t, "Here", " is", " answer"), []Event{over(3, 0)}, 3},
		"prose, all in one token":      {prose, Prompt{}, spelled(t, "Here", " is", " my", " ", "thought: Here is my answer: 4", "ow"), []Event{enter(5), exit(5, 0), over(6, 0)}, 1},
		"prose, opened in the prompt":  {prose, Prompt{Tokens: spelled(t, "Here", " is", " my", " thought", ":\n\n")}, spelled(t, "ow", "Here", " is", " my", " answer", ":"), []Event{enter(1), exit(6, 1), over(6, 1)}, 0},
		"prose, opened and begun":      {prose, Prompt{Tokens: spelled(t, "Here", " is", " my", " thought", ":\n\n")}, spelled(t, "Here", " is", " my", " answer", ":", "ow"), []Event{enter(4), exit(5, 0), over(6, 0)}, 1},
		"channels":                     {harmony, Prompt{}, []uint32{openID, analysis, message, 1, 2, closeID, startID, 3, openID, final, message, 4}, []Event{enter(3), exit(11, 2), over(12, 2)}, 1},
		"channels: two thoughts":       {harmony, Prompt{}, []uint32{openID, analysis, message, 1, closeID, startID, 3, openID, analysis, message, 2, closeID, openID, final, message}, []Event{enter(3), exit(15, 2), over(15, 2)}, 0},
		"channels: a tool":             {harmony, Prompt{}, []uint32{openID, analysis, message, 1, closeID, openID, 40, 41, message, 2}, []Event{enter(3), exit(9, 1), over(10, 1)}, 1},
		"channels: an answer":          {harmony, Prompt{}, []uint32{openID, final, message, 4, 5}, []Event{over(5, 0)}, 2},
		"channels: a role before":      {harmony, Prompt{}, []uint32{startID, 3, openID, analysis, message, 4}, []Event{enter(5), over(6, 1)}, 0},
		"channels: opened":             {harmony, Prompt{Tokens: []uint32{1, openID, analysis, message}}, []uint32{1, 2, closeID, openID, final, message}, []Event{enter(1), exit(6, 2), over(6, 2)}, 0},
		"channels: answer opened":      {harmony, Prompt{Tokens: []uint32{1, openID, final, message}}, []uint32{1, openID}, []Event{over(2, 0)}, 2},
		"channels: no frames at all":   {harmony, Prompt{}, []uint32{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []Event{over(10, 0)}, 10},
		"channels: frames lost":        {harmony, Prompt{}, []uint32{openID, analysis, message, closeID, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, []Event{enter(3), over(14, 2)}, 0},
		"a model that does not think":  {none, Prompt{Tokens: []uint32{thinkID}}, []uint32{thinkID, endID}, []Event{over(2, 0)}, 2},
		"a special token within prose": {prose, Prompt{}, []uint32{0, 1, 3, 4, 5, 70, 0, 70, 1, 3, 7, 5}, []Event{enter(5), exit(12, 2), over(12, 2)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := model(t, c.markers).Begin(c.prompt)
			got := m.End(m.Step(c.stream, nil))
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("events: %s", diff)
			}
			if m.Tokens() != len(c.stream) || m.Output() != c.output || m.Phase() != kv.Complete {
				t.Errorf("%d tokens, %d of the answer (want %d), %v", m.Tokens(), m.Output(), c.output, m.Phase())
			}
			if again := m.End(m.Step(c.stream, nil)); len(again) != 0 {
				t.Errorf("after its end: %v", again)
			}
		})
	}
}

// A marker and the token behind it come in one step, and the phase is that of
// the last token.
func TestPhaseWithinAStep(t *testing.T) {
	m := model(t, single).Begin(Prompt{})
	if got := m.Step([]uint32{thinkID, 4, endID, 5}, nil); len(got) != 2 || m.Phase() != kv.Output || m.Output() != 1 {
		t.Errorf("%v, %v, %d", got, m.Phase(), m.Output())
	}
}

var kinds = map[string]Markers{"single": single, "several": several, "habitual": habitual, "prose": prose, "harmony": harmony, "none": none}

func familyNames() []string {
	names := make([]string, 0, len(kinds))
	for name := range kinds {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// drawn is a model, a prompt and a stream in which markers are likely.
func drawn(t *rapid.T) (Markers, Prompt, []uint32) {
	markers := kinds[rapid.SampledFrom(familyNames()).Draw(t, "kind")]
	high := uint32(9)
	id := rapid.Uint32Range(0, high)
	switch {
	case markers.Prose:
		id = rapid.Uint32Range(0, uint32(len(pieces)))
	case !markers.Channel.isZero() || len(markers.End) == 1:
		id = rapid.Uint32Range(88, startID)
	}
	p := Prompt{Tokens: rapid.SliceOfN(id, 0, 12).Draw(t, "prompt"), NoThink: rapid.IntRange(0, 9).Draw(t, "no think") == 0}
	return markers, p, rapid.SliceOfN(id, 0, 60).Draw(t, "stream")
}

// However a stream is cut into steps, and wherever it is resumed, the same
// events come.
func TestStepsDoNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		markers, prompt, stream := drawn(t)
		here, err := NewModel(markers)
		if err != nil {
			t.Fatal(err)
		}
		there, _ := NewModel(markers)
		whole := here.Begin(prompt)
		want := whole.End(whole.Step(stream, nil))

		cut := here.Begin(prompt)
		var got []Event
		for rest := stream; len(rest) > 0; {
			n := rapid.IntRange(0, min(len(rest), 8)).Draw(t, "step")
			if got = cut.Step(rest[:n], got); rapid.Bool().Draw(t, "resumed elsewhere") {
				cut = moved(t, there, cut)
			}
			rest = rest[n:]
		}
		got = cut.End(got)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("wrong events in steps: %s", diff)
		}
		if cut.Think() != whole.Think() || cut.Output() != whole.Output() || cut.Tokens() != whole.Tokens() {
			t.Fatalf("wrong counts in steps: %+v, %+v", cut, whole)
		}
	})
}

func moved(t *rapid.T, to *Model, m Machine) Machine {
	wire, _ := m.Export().AppendBinary(nil)
	state, err := ParseState(wire)
	if err != nil {
		t.Fatal(err)
	}
	resumed, err := to.Resume(state)
	if err != nil {
		t.Fatalf("%v: %+v", err, m)
	}
	return resumed
}

// What holds for every stream: phases move forward, each event comes once, and
// no token is counted twice.
func TestMachineProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		markers, prompt, stream := drawn(t)
		model, err := NewModel(markers)
		if err != nil {
			t.Fatal(err)
		}
		m := model.Begin(prompt)
		var events []Event
		for i := range stream {
			was, think := m.Phase(), m.Think()
			events = m.Step(stream[i:i+1], events)
			if m.Phase() < was {
				t.Fatalf("%v after %v", m.Phase(), was)
			}
			if m.Think()+m.Output() > m.Tokens() || m.Think() < 0 || m.Phase() != kv.Think && was != kv.Think && was != kv.Prefill && m.Think() != think {
				t.Fatalf("%d and %d of %d", m.Think(), m.Output(), m.Tokens())
			}
		}
		thought := m.Phase() == kv.Think || slices.ContainsFunc(events, func(e Event) bool { return e.Kind == ExitThink })
		events = m.End(events)
		for i, e := range events {
			if i > 0 && (e.Kind <= events[i-1].Kind || e.At < events[i-1].At) {
				t.Fatalf("order of %v", events)
			}
		}
		if thought != (events[0].Kind == EnterThink) {
			t.Fatalf("a thought: %v, but %v", thought, events)
		}
		if (prompt.NoThink || !model.Thinks()) && len(events) != 1 {
			t.Fatalf("thinking was off: %v", events)
		}
	})
}

// The events are those of a reader that sees the whole stream at once.
func TestMachineAgreesWithAWholeReading(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		markers := rapid.SampledFrom([]Markers{several, habitual}).Draw(t, "markers")
		stream := rapid.SliceOfN(rapid.Uint32Range(1, 9), 0, 60).Draw(t, "stream")
		model, _ := NewModel(markers)
		m := model.Begin(Prompt{})
		got := m.Step(stream, nil)
		var exits []Event
		for _, e := range got {
			if e.Kind == ExitThink {
				exits = append(exits, e)
			}
		}
		if diff := cmp.Diff(wholeReading(markers, stream), exits); diff != "" {
			t.Fatalf("wrong: %s", diff)
		}
	})
}

func wholeReading(m Markers, stream []uint32) []Event {
	from := 0
	for _, s := range m.Start {
		if len(stream) >= len(s.IDs) && slices.Equal(stream[:len(s.IDs)], s.IDs) {
			from = len(s.IDs)
		}
	}
	if from == 0 && !m.Opens {
		return nil
	}
	for at := from; at <= len(stream); at++ {
		for _, e := range m.End {
			if n := len(e.IDs); at-from >= n && slices.Equal(stream[at-n:at], e.IDs) {
				return []Event{exit(at, at-from-n)}
			}
		}
	}
	return nil
}

func TestForce(t *testing.T) {
	if got := model(t, several).Force(); !slices.Equal(got, []uint32{6, 6, 7}) {
		t.Errorf("got %v", got)
	}
	// Whatever stands before it, what is injected ends the thought.
	rapid.Check(t, func(t *rapid.T) {
		markers := rapid.SampledFrom([]Markers{several, habitual}).Draw(t, "markers")
		model, _ := NewModel(markers)
		m := model.Begin(Prompt{})
		m.Step(append([]uint32{1, 2, 3}, rapid.SliceOfN(rapid.Uint32Range(1, 9), 0, 9).Draw(t, "thought")...), nil)
		if m.Step(model.Force(), nil); m.Phase() != kv.Output {
			t.Fatalf("still in %v", m.Phase())
		}
	})
}

func TestMarkersRefused(t *testing.T) {
	long := ids(make([]uint32, 65)...)
	for name, c := range map[string]struct {
		m    Markers
		want string
	}{
		"prose without texts":   {Markers{End: prose.End, Prose: true}, "tokenizer.json"},
		"text without ids":      {Markers{End: prose.End}, "tokenizer.json"},
		"long":                  {Markers{End: []Marker{long}}, "65 long"},
		"many":                  {Markers{End: slices.Repeat([]Marker{ids(1)}, 17)}, "more than 16"},
		"end within start":      {Markers{Start: []Marker{ids(1, 2, 3)}, End: []Marker{ids(2, 3)}}, "within a start marker"},
		"channel without names": {Markers{Channel: Channel{Open: 1, Message: 2}}, "tokenizer.json"},
		"channel of one name":   {Markers{Channel: Channel{Open: 1, Message: 2, Think: []uint32{3}, Answer: []uint32{3}}}, "must differ"},
	} {
		if _, err := NewModel(c.m); !errors.Is(err, ErrMarkers) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzMachine(f *testing.F) {
	f.Add(uint8(1), []byte{1, 2, 3, 9, 6, 6, 7}, []byte{3})
	f.Add(uint8(3), []byte("\x00\x01\x03\x04\x05\x12\x00\x01\x03\x07\x06"), []byte{1, 2})
	f.Add(uint8(4), []byte{93, 96, 94, 1, 95, 93, 97, 94}, []byte{2})
	f.Fuzz(func(t *testing.T, kind uint8, stream, steps []byte) {
		names := familyNames()
		model := model(t, kinds[names[int(kind)%len(names)]])
		tokens := make([]uint32, len(stream))
		for i, b := range stream {
			tokens[i] = uint32(b)
		}
		whole, cut := model.Begin(Prompt{}), model.Begin(Prompt{})
		want := whole.Step(tokens, nil)
		var got []Event
		for i := 0; len(tokens) > 0; i++ {
			n := 1
			if len(steps) > 0 {
				n = min(int(steps[i%len(steps)])+1, len(tokens))
			}
			got, tokens = cut.Step(tokens[:n], got), tokens[n:]
		}
		if !slices.Equal(got, want) {
			t.Fatalf("wrong: %v in steps, %v at once", got, want)
		}
	})
}
