package meridian

import (
	"bytes"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// vagueLimit is how many lines of code may hide who acts. It only falls.
const vagueLimit = 20

// vague are the words that hide who acts.
var vague = regexp.MustCompile(`(?i)\b(some|no|any)body\b|\b(some|any)one\b|\bwho(so)?ever\b`)

// A reader of a comment, a log line or an error wants to know who acts: the poster, the
// owner, the reader, a member. Code that names the actor is code whose author knew.
func TestTextsNameTheActor(t *testing.T) {
	var places []string
	for _, path := range sources(t, ".go", ".py") {
		for n, line := range bytes.Split(read(t, path), []byte("\n")) {
			if vague.Match(line) {
				places = append(places, fmt.Sprintf("%s:%d: %s", path, n+1, bytes.TrimSpace(line)))
			}
		}
	}
	if len(places) > vagueLimit {
		t.Errorf("%d lines do not name who acts, and %d may: say the poster, the owner, a member, …\n%s", len(places), vagueLimit, strings.Join(places, "\n"))
	}
}

func TestVagueWordsAreSeen(t *testing.T) {
	text := "Nobo" + "dy waits, who" + "ever it is; any" + "one's, no body, TestNobodyElse, everybody, some one"
	want := []string{"Nobo" + "dy", "who" + "ever", "any" + "one"}
	if got := vague.FindAllString(text, -1); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
