package clip

import (
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Whatever the text, what is kept is within the limit, begins as the text does and
// is whole characters; a short one is kept as it is.
func TestText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text, mark := rapid.String().Draw(t, "text"), rapid.SampledFrom([]string{"", "…", "… (cut)"}).Draw(t, "mark")
		limit := rapid.IntRange(len(mark), 64).Draw(t, "limit")
		kept := Text(text, limit, mark)
		if len(text) <= limit {
			if kept != text {
				t.Fatalf("%q became %q", text, kept)
			}
			return
		}
		begin, marked := strings.CutSuffix(kept, mark)
		if !marked || len(kept) > limit || !utf8.ValidString(kept) || !strings.HasPrefix(strings.ToValidUTF8(text, ""), begin) {
			t.Fatalf("%q became %q, limit %d", text, kept, limit)
		}
	})
}
