package thought

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestSplitter(t *testing.T) {
	think := []string{"<think>"}
	end := []string{"</think>"}
	for name, c := range map[string]struct {
		s               splitter
		text            string
		thought, answer string
	}{
		"a thought":                        {splitter{starts: think, ends: end}, "<think>\nhm\n</think>\n\nyes", "\nhm\n", "\n\nyes"},
		"white space before it":            {splitter{starts: think, ends: end}, " \r\n\t<think>hm</think>yes", "hm", "yes"},
		"too much of it":                   {splitter{starts: think, ends: end}, strings.Repeat(" ", 65) + "<think>hm</think>yes", "", strings.Repeat(" ", 65) + "<think>hm</think>yes"},
		"no thought":                       {splitter{starts: think, ends: end}, "yes", "", "yes"},
		"only the beginning of a marker":   {splitter{starts: think, ends: end}, " <thi", "", " <thi"},
		"a marker within an answer":        {splitter{starts: think, ends: end}, "write <think>x</think>", "", "write <think>x</think>"},
		"a second thought":                 {splitter{starts: think, ends: end}, "<think>a</think>b<think>c</think>d", "a", "b<think>c</think>d"},
		"an empty thought":                 {splitter{starts: think, ends: end}, "<think>\n\n</think>\n\nyes", "\n\n", "\n\nyes"},
		"a thought without an end":         {splitter{starts: think, ends: end}, "<think>hm</thin", "hm</thin", ""},
		"a lone end":                       {splitter{starts: think, ends: end}, "hm</think>yes", "", "hm</think>yes"},
		"opened":                           {splitter{starts: think, ends: end, opened: true}, "hm</think>yes", "hm", "yes"},
		"opened, and marked nevertheless":  {splitter{starts: think, ends: end, opened: true}, "\n<think>hm</think>yes", "hm", "yes"},
		"opened, and ended at once":        {splitter{starts: think, ends: end, opened: true}, "</think>yes", "", "yes"},
		"opened, and never ended":          {splitter{starts: think, ends: end, opened: true}, "\nhm", "\nhm", ""},
		"opened, without a start":          {splitter{ends: end, opened: true}, " hm</think>yes", " hm", "yes"},
		"a marker in a marker":             {splitter{starts: []string{"[", "[["}, ends: []string{"abcd", "bc"}}, "[[x-abcd", "[x-a", "d"},
		"what looks like the end":          {splitter{starts: think, ends: end}, "<think>a</thi</think>b", "a</thi", "b"},
		"prose":                            {splitter{starts: []string{"Here is my thought process:"}, ends: []string{"Here is my response:"}}, "Here is my thought process: hm. Here is my response: yes", " hm. ", " yes"},
		"characters of more than one byte": {splitter{starts: []string{"«é"}, ends: []string{"è»"}}, "«éàéè» ü", "àé", " ü"},
	} {
		whole := c.s
		thought, answer := whole.take(c.text, true)
		if thought != c.thought || answer != c.answer {
			t.Errorf("%s: %q and %q, want %q and %q", name, thought, answer, c.thought, c.answer)
		}
		for size := 1; size <= 4; size++ {
			if thought, answer := inPieces(t, c.s, c.text, func() int { return size }); thought != c.thought || answer != c.answer {
				t.Errorf("%s, in pieces of %d: %q and %q, want %q and %q", name, size, thought, answer, c.thought, c.answer)
			}
		}
	}
}

// inPieces splits a text that comes in pieces, and holds what is held back to its bound.
func inPieces(t *testing.T, s splitter, text string, size func() int) (thought, answer string) {
	t.Helper()
	longest := 0
	for _, m := range append(append([]string{}, s.starts...), s.ends...) {
		longest = max(longest, len(m))
	}
	for len(text) > 0 {
		n := min(size(), len(text))
		a, b := s.take(text[:n], false)
		thought, answer, text = thought+a, answer+b, text[n:]
		if len(s.held) >= maxLeading+longest {
			t.Fatalf("%d bytes are held back", len(s.held))
		}
	}
	a, b := s.take("", true)
	if s.held != "" {
		t.Errorf("%q is held back at the end", s.held)
	}
	return thought + a, answer + b
}

// FuzzSplitter: however a text is cut, thought and answer are the same, and nothing is lost
// but markers and white space before the first.
func FuzzSplitter(f *testing.F) {
	for _, text := range []string{"<think>hm</think>yes", " <think></think>", "hm</think>", "<thin</thi", strings.Repeat(" ", 70) + "<think>"} {
		f.Add(text, "<think>", "</think>", false, uint64(1))
		f.Add(text, "<", "</think>k", true, uint64(2))
	}
	f.Fuzz(func(t *testing.T, text, start, end string, opened bool, seed uint64) {
		if start == "" || end == "" || len(start) > 32 || len(end) > 32 {
			return
		}
		s := splitter{starts: []string{start, "<t>", start + "x"}, ends: []string{end, "</t>", "x" + end}, opened: opened}
		whole := s
		thought, answer := whole.take(text, true)
		if lost := len(text) - len(thought) - len(answer); lost < 0 || lost > maxLeading+len(start)+1+max(len(end)+1, 4)+3 {
			t.Fatalf("%q became %q and %q", text, thought, answer)
		}
		random := rand.New(rand.NewPCG(seed, 0))
		for _, size := range []func() int{func() int { return 1 }, func() int { return 1 + random.IntN(9) }} {
			if a, b := inPieces(t, s, text, size); a != thought || b != answer {
				t.Fatalf("%q became %q and %q, in pieces %q and %q", text, thought, answer, a, b)
			}
		}
	})
}
