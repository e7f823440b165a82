package config

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// quote writes text as a basic string of TOML. Its escapes are also Go's, so
// that strconv.Unquote undoes it.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch escape := strings.IndexRune("\b\t\n\f\r\"\\", r); {
		case escape >= 0:
			b.WriteByte('\\')
			b.WriteByte(`btnfr"\`[escape])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		case r < 0x10000:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			fmt.Fprintf(&b, `\U%08x`, r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

var bareKey = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

// quoteKey writes a key as it stands in a dotted path: quoted only where TOML
// would have to.
func quoteKey(key string) string {
	if bareKey.MatchString(key) {
		return key
	}
	return quote(key)
}

// unquoteKey undoes quoteKey.
func unquoteKey(key string) string {
	if plain, err := strconv.Unquote(key); err == nil {
		return plain
	}
	return key
}

// floatText writes v as the file would: never as an integer.
func floatText(v float64) string {
	text := strings.ToLower(strings.TrimPrefix(fmt.Sprint(v), "+"))
	if !strings.ContainsAny(text, ".en") {
		text += ".0"
	}
	return text
}

// display writes a value as the file would, shortened.
func display(value any) string {
	var text string
	switch v := value.(type) {
	case nil:
		return ""
	case string:
		text = quote(v)
	case map[string]any:
		return "a table"
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case float64:
		text = floatText(v)
	default:
		text = fmt.Sprint(v)
	}
	if runes := []rune(text); len(runes) > 60 {
		return string(runes[:59]) + "…"
	}
	return text
}
