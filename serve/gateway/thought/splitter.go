package thought

import "strings"

// splitter tells thought from answer in the text of one answer, as it comes. What it gives
// depends on the text alone, not on the pieces in which it comes: it holds back what may be
// the beginning of a marker, and no more.
//
//	beginning ── start marker ──► thinking ── end marker ──► answering
//	     └──── anything else ──► thinking where the prompt opened the thought, else answering
//
// Markers are left out, and so is white space before a start marker; vLLM's parsers do the
// same. What looks like a marker in an answer is part of it.
type splitter struct {
	starts, ends []string
	// opened: the prompt has ended with a start marker, so that the answer may begin within
	// the thought.
	opened bool
	state  splitState
	held   string
}

type splitState uint8

const (
	atBeginning splitState = iota
	thinking
	answering
)

// maxLeading is how much white space may stand before a start marker.
const maxLeading = 64

// white is what counts as white space before a marker.
const white = " \t\r\n"

// take splits the next piece; last gives out what is held back.
func (s *splitter) take(text string, last bool) (thought, answer string) {
	text, s.held = s.held+text, ""
	if s.state == atBeginning {
		if text = s.begin(text, last); s.state == atBeginning {
			return "", ""
		}
	}
	if s.state == answering {
		return "", text
	}
	if from, to := firstMarker(text, s.ends); to > 0 {
		s.state = answering
		return text[:from], text[to:]
	}
	if !last {
		kept := len(text) - beginsMarker(text, s.ends)
		text, s.held = text[:kept], text[kept:]
	}
	return text, ""
}

// begin decides what the text begins with, and returns what follows. It stays at the
// beginning, and holds the text, where that is not clear yet.
func (s *splitter) begin(text string, last bool) string {
	rest := strings.TrimLeft(text, white)
	if len(text)-len(rest) <= maxLeading {
		possible := false
		shortest := 0 // of two that fit it is the one that is complete first
		for _, start := range s.starts {
			switch {
			case strings.HasPrefix(rest, start):
				if shortest == 0 || len(start) < shortest {
					shortest = len(start)
				}
			case strings.HasPrefix(start, rest):
				possible = true
			}
		}
		if shortest > 0 {
			s.state = thinking
			return rest[shortest:]
		}
		if possible && !last {
			s.held = text
			return ""
		}
	}
	if s.state = answering; s.opened {
		s.state = thinking
	}
	return text
}

// firstMarker is where the marker stands that is complete first; to is 0 where there is none.
func firstMarker(text string, markers []string) (from, to int) {
	for _, m := range markers {
		at := strings.Index(text, m)
		if at < 0 {
			continue
		}
		if end := at + len(m); to == 0 || end < to || end == to && at < from {
			from, to = at, end
		}
	}
	return from, to
}

// beginsMarker is how many bytes at the end of a text a marker may begin with.
func beginsMarker(text string, markers []string) int {
	longest := 0
	for _, m := range markers {
		for n := min(len(m)-1, len(text)); n > longest; n-- {
			if strings.HasSuffix(text, m[:n]) {
				longest = n
			}
		}
	}
	return longest
}
