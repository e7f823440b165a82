package config

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/pelletier/go-toml/v2"
)

// numbered repeats a line, each time with its number, up to a quarter of the largest file.
func numbered(line string) string {
	var b strings.Builder
	for i := 0; ; i++ {
		next := fmt.Sprintf(line, i)
		if b.Len()+len(next) > maxFileBytes/4 {
			return b.String()
		}
		b.WriteString(next)
	}
}

// fastest is the least time of a few runs, which a busy machine distorts least.
func fastest(run func()) time.Duration {
	best := time.Duration(1<<63 - 1)
	for range 3 {
		start := time.Now()
		run()
		best = min(best, time.Since(start))
	}
	return best
}

// What is done beside decoding costs little. (The decoder's own time grows with
// the square of the number of keys; that is why maxFileBytes is not more.)
func TestLargeFilesAreReadAtTheDecodersPace(t *testing.T) {
	for name, text := range map[string]string{
		"unknown keys": numbered("k%d = 1\n"),
		"models":       numbered("[model.m%d]\n"),
	} {
		t.Run(name, func(t *testing.T) {
			for round := 1; ; round++ { // a machine may stand still in the middle of one
				decoding := fastest(func() {
					if err := toml.Unmarshal([]byte(text), new(map[string]any)); err != nil {
						t.Fatal(err)
					}
				})
				reading := fastest(func() { _, _ = Parse("large.toml", []byte(text)) })
				if reading <= 3*decoding+time.Second/10 {
					return
				}
				if round == 5 {
					t.Fatalf("read in %v, decoded in %v", reading, decoding)
				}
			}
		})
	}
}

// No path is made of an far too long key: a thousand of them would not fit.
func TestAbsurdFilesAreOneFaultWithItsPlace(t *testing.T) {
	long := strings.Repeat("m", maxFileBytes/4)
	for text, line := range map[string]int{
		"[model." + long + "]\n" + numbered("k%d = 1\n"):                                   1,
		"\n" + strings.Repeat("a.", maxFileBytes/4) + "a = 1":                              2,
		"\n\n[" + strings.Repeat("a.", maxFileBytes/4) + "a]":                              3,
		"\n[[" + strings.Repeat("a.", maxFileBytes/4) + "a]]":                              2,
		"[tls]\nx = 0\ny = " + strings.Repeat("[", 500) + strings.Repeat("]", 500):         3,
		"[tls]\ny = " + strings.Repeat("{a=", 500) + "1" + strings.Repeat("}", 500):        2,
		"a = " + strings.Repeat("[", maxFileBytes/4) + strings.Repeat("]", maxFileBytes/4): 1,
	} {
		_, err := Parse("over.toml", []byte(text))
		if got := faultPaths(t, err); got != "(syntax)" {
			t.Errorf("%.40q: %s", text, got)
		}
		if fault := err.(*Error).Faults[0]; fault.Line != line || fault.Column == 0 {
			t.Errorf("%.40q: %v", text, fault)
		}
	}
}
