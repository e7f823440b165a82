package telemetry

import (
	"fmt"
	"io"
	"log/slog"
	"time"
)

// LogOptions configures NewLogger with the words of meridian.toml.
type LogOptions struct {
	Level  string // debug, info, warn, error
	Format string // text, json
}

// NewLogger writes to w: lines for people, or one JSON object a line.
func NewLogger(w io.Writer, o LogOptions) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(o.Level)); err != nil {
		return nil, fmt.Errorf("telemetry: log level %q: use debug, info, warn or error", o.Level)
	}
	switch o.Format {
	case "json":
		return slog.New(slog.NewJSONHandler(w, &slog.HandlerOptions{Level: level})), nil
	case "text":
		return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level, ReplaceAttr: shortTime})), nil
	}
	return nil, fmt.Errorf("telemetry: log format %q: use text or json", o.Format)
}

// shortTime keeps a person's line short: milliseconds.
func shortTime(groups []string, a slog.Attr) slog.Attr {
	if len(groups) == 0 && a.Key == slog.TimeKey && a.Value.Kind() == slog.KindTime {
		a.Value = slog.StringValue(a.Value.Time().Format(time.DateOnly + "T15:04:05.000Z07:00"))
	}
	return a
}
