package directory

import (
	"errors"
	"strings"
	"testing"
)

// Whatever stands in the directory as an engine is refused, or is the key's engine
// and bounded.
func FuzzEngineRecord(f *testing.F) {
	for _, value := range []string{
		"", "null", "{}", `{"id":"e"}`, `{"id":"another"}`, `{"id":"e","blocks":-1}`,
		`{"id":"e","blocks":1073741825,"block_tokens":16}`,
		`{"id":"e","incarnation":"1","home":"a","home_incarnation":"` + strings.Repeat("ab", 17) + `","url":"http://h:1","role":"both","model":"m","blocks":100,"block_tokens":16,"cache_tokens":64}`,
		`{"id":"e","cache_tokens":-64}`, `{"id":"e","cache_tokens":1e300}`,
		`{"id":"e","model":"` + strings.Repeat("m", maxTextBytes+1) + `"}`,
		`{"id":"e","cut":"` + strings.Repeat("c", MaxValueBytes) + `"}`,
	} {
		f.Add([]byte(value))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		r, err := ParseEngineRecord(Record{Key: EnginePrefix + "e", Value: value})
		if err != nil {
			if !errors.Is(err, ErrInvalid) || len(err.Error()) > 1<<10 {
				t.Fatalf("refused in %d bytes: %.200v", len(err.Error()), err)
			}
			return
		}
		texts := r.Incarnation + r.Home + r.HomeIncarnation + r.URL + r.Role + r.Model + r.Cut
		if r.ID != "e" || len(texts) > 4*maxNameBytes+3*maxTextBytes || r.Blocks*r.BlockTokens < 0 || r.Blocks < 0 || r.CacheTokens < 0 || r.CacheTokens > maxCount {
			t.Fatalf("%+v was taken", r)
		}
	})
}
