package engine

import "strings"

// stopper watches a text for what ends it. It holds back what may be the
// beginning of a stop text, wherever tokens cut it.
type stopper struct {
	stops []string
	held  string
}

// add takes the text that comes next and returns what is certain to be part of
// the answer, and whether a stop text has ended it.
func (s *stopper) add(piece string) (certain string, stopped bool) {
	if len(s.stops) == 0 {
		return piece, false
	}
	text := s.held + piece
	end := -1
	for _, stop := range s.stops {
		if at := strings.Index(text, stop); at >= 0 && (end < 0 || at < end) {
			end = at
		}
	}
	if end >= 0 {
		s.held = ""
		return text[:end], true
	}
	keep := 0
	for _, stop := range s.stops {
		for n := min(len(stop)-1, len(text)); n > keep; n-- {
			if strings.HasSuffix(text, stop[:n]) {
				keep = n
				break
			}
		}
	}
	s.held = text[len(text)-keep:]
	return text[:len(text)-keep], false
}

// flush returns what was held back: no stop text comes any more.
func (s *stopper) flush() string {
	held := s.held
	s.held = ""
	return held
}
