package embedded

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// filter carries what etcd logs over to slog. An operator of a directory of
// one cares for little of it: progress goes to debug, and so does what etcd
// calls errors while it closes.
type filter struct {
	to      *slog.Logger
	closing atomic.Bool
}

func newFilter(to *slog.Logger) *filter { return &filter{to: to} }

func (f *filter) zap() *zap.Logger { return zap.New(&core{filter: f}) }

// advice is for operators of clusters; here it is wrong or of no use. A new directory has no
// version of its storage before its first term is written; etcd looks again until it has.
var advice = []string{
	"Running http and grpc server on single port. This is not recommended for production.",
	"simple token is not cryptographically signed",
	"serving client traffic insecurely; this is strongly discouraged!",
	"Failed to detect schema version",
	"failed to update storage version",
}

// core is zap's side of the filter.
type core struct {
	filter *filter
	fields []zapcore.Field
}

func (c *core) level(e zapcore.Entry) slog.Level {
	switch {
	case c.filter.closing.Load() || e.Level <= zapcore.InfoLevel || slices.Contains(advice, e.Message):
		return slog.LevelDebug
	case e.Level == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// Enabled spares etcd the work for lines that the logger drops.
func (c *core) Enabled(l zapcore.Level) bool {
	return c.filter.to.Enabled(context.Background(), c.level(zapcore.Entry{Level: l}))
}

func (c *core) With(fields []zapcore.Field) zapcore.Core {
	return &core{filter: c.filter, fields: slices.Concat(c.fields, fields)}
}

func (c *core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.filter.to.Enabled(context.Background(), c.level(e)) {
		return checked.AddCore(e, c)
	}
	return checked
}

func (c *core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	values := zapcore.NewMapObjectEncoder()
	for _, f := range slices.Concat(c.fields, fields) {
		f.AddTo(values)
	}
	attributes := make([]slog.Attr, 0, len(values.Fields))
	for name, value := range values.Fields {
		attributes = append(attributes, slog.Any(name, value))
	}
	slices.SortFunc(attributes, func(a, b slog.Attr) int { return strings.Compare(a.Key, b.Key) })
	c.filter.to.LogAttrs(context.Background(), c.level(e), "etcd: "+e.Message, attributes...)
	return nil
}

func (c *core) Sync() error { return nil }
