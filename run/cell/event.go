package cell

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strconv"
	"strings"
	"time"
)

// attribute is one name and value of an event.
type attribute struct{ key, value string }

// attributesOf reads the line of an event, which parts write as logging.format says:
// an object of JSON, or words such as msg="agent is open" agent=decode. A line that is
// neither has none.
func attributesOf(line string) []attribute {
	if strings.HasPrefix(line, "{") {
		return fromObject(line)
	}
	return fromWords(line)
}

// fromObject keeps the order in which an object was written.
func fromObject(line string) []attribute {
	decoder := json.NewDecoder(strings.NewReader(line))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return nil
	}
	var all []attribute
	for decoder.More() {
		key, err := decoder.Token()
		name, isText := key.(string)
		var value json.RawMessage
		if err != nil || !isText || decoder.Decode(&value) != nil {
			return nil
		}
		text := string(value)
		if len(value) > 0 && value[0] == '"' {
			if err := json.Unmarshal(value, &text); err != nil {
				return nil
			}
		}
		all = append(all, attribute{name, text})
	}
	if end, err := decoder.Token(); err != nil || end != json.Delim('}') || decoder.More() {
		return nil
	}
	return all
}

func fromWords(line string) []attribute {
	var all []attribute
	for line != "" {
		key, rest, found := strings.Cut(line, "=")
		if !found || key == "" || strings.ContainsAny(key, " \"\t") {
			return nil
		}
		value := rest
		if strings.HasPrefix(rest, `"`) {
			quoted, err := strconv.QuotedPrefix(rest)
			if err != nil {
				return nil
			}
			if value, err = strconv.Unquote(quoted); err != nil {
				return nil
			}
			rest = rest[len(quoted):]
		} else {
			value, _, _ = strings.Cut(rest, " ")
			rest = rest[len(value):]
		}
		all = append(all, attribute{key, value})
		if rest != "" && rest[0] != ' ' {
			return nil
		}
		line = strings.TrimPrefix(rest, " ")
	}
	return all
}

// ownTime is when an event happened by its own word; zero where it does not say.
func ownTime(line string) time.Time {
	text, found := strings.CutPrefix(line, "time=")
	if found {
		text, _, _ = strings.Cut(text, " ")
	} else if strings.HasPrefix(line, "{") {
		for _, a := range fromObject(line) {
			if a.key == "time" {
				text = a.value
				break
			}
		}
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}
	}
	return t
}

// eventLine is the line of an event: one object of JSON, or words for people. An event
// without a time has none in its words.
func eventLine(at time.Time, isJSON bool, level slog.Level, name string, attributes ...any) string {
	var b bytes.Buffer
	var h slog.Handler = slog.NewTextHandler(&b, &slog.HandlerOptions{Level: level, ReplaceAttr: shortTime})
	if isJSON {
		h = slog.NewJSONHandler(&b, &slog.HandlerOptions{Level: level})
	}
	r := slog.NewRecord(at, level, name, 0)
	r.Add(attributes...)
	if err := h.Handle(context.Background(), r); err != nil {
		panic(err) // a buffer takes everything
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func shortTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.StringValue(a.Value.Time().Format(logTime))
	}
	return a
}

// Words are the line for people, without its time, whichever way it was written.
func (l Line) Words() string {
	if l.Event == nil {
		_, rest, _ := strings.Cut(l.Text, " ")
		if strings.HasPrefix(l.Text, "time=") && !ownTime(l.Text).IsZero() {
			return rest
		}
		return l.Text
	}
	level, name, others := slog.LevelInfo, "", []any(nil)
	for _, a := range fromObject(string(l.Event)) {
		switch a.key {
		case slog.TimeKey:
		case slog.LevelKey:
			_ = level.UnmarshalText([]byte(a.value)) // one that is not known is not told
		case slog.MessageKey:
			name = a.value
		default:
			others = append(others, a.key, a.value)
		}
	}
	return eventLine(time.Time{}, false, level, name, others...)
}
