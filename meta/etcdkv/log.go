package etcdkv

import (
	"context"
	"log/slog"
	"runtime"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// harmless are the warnings and errors of every start of an embedded member, which say nothing about this one.
var harmless = map[string]bool{
	// There is one port at most, and none without members or Listen.
	"Running http and grpc server on single port. This is not recommended for production.": true,
	// Tokens are made for users, of whom there are none.
	"simple token is not cryptographically signed": true,
	// A new database, or one that was closed a moment after it was made, has no version until its first snapshot.
	"Failed to detect schema version":  true,
	"failed to update storage version": true,
}

// newZap routes etcd's logs to ours. What etcd calls info is debug here: dozens of lines at each start; so is what is harmless.
// While hush is set everything is debug, since a member that is closed complains of that. fatal hears of fatal and panic
// entries, and the goroutine ends: etcd would end the process. nil: zap's own way.
func newZap(l *slog.Logger, fatal func(level zapcore.Level, msg string), hush *atomic.Bool) *zap.Logger {
	core := &slogCore{h: l.With("component", "etcd").Handler(), hush: hush}
	if fatal == nil {
		return zap.New(core)
	}
	hook := &fatalHook{fatal}
	return zap.New(core, zap.WithFatalHook(hook), zap.WithPanicHook(hook))
}

type fatalHook struct {
	fatal func(zapcore.Level, string)
}

// OnWrite must not return.
func (h *fatalHook) OnWrite(e *zapcore.CheckedEntry, fields []zapcore.Field) {
	msg := e.Message
	for _, f := range fields {
		if err, ok := f.Interface.(error); ok && f.Type == zapcore.ErrorType {
			msg += ": " + err.Error()
		}
	}
	h.fatal(e.Level, msg)
	runtime.Goexit()
}

// slogCore is a zapcore.Core in front of a slog.Handler.
type slogCore struct {
	h    slog.Handler
	hush *atomic.Bool
}

func (c *slogCore) level(e zapcore.Entry) slog.Level {
	l := e.Level
	switch {
	case l <= zapcore.InfoLevel, (c.hush.Load() || harmless[e.Message]) && l <= zapcore.ErrorLevel:
		return slog.LevelDebug
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelError
}

func (c *slogCore) Enabled(l zapcore.Level) bool {
	return c.h.Enabled(context.Background(), c.level(zapcore.Entry{Level: l}))
}

func (c *slogCore) With(fields []zapcore.Field) zapcore.Core {
	return &slogCore{h: c.h.WithAttrs(attrs(fields)), hush: c.hush}
}

func (c *slogCore) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	// zap's hooks run only for entries that some core takes.
	if c.h.Enabled(context.Background(), c.level(e)) || e.Level > zapcore.ErrorLevel {
		return ce.AddCore(e, c)
	}
	return ce
}

func (c *slogCore) Write(e zapcore.Entry, fields []zapcore.Field) error {
	t := e.Time
	if t.IsZero() {
		t = time.Now()
	}
	r := slog.NewRecord(t, c.level(e), e.Message, 0)
	r.AddAttrs(attrs(fields)...)
	return c.h.Handle(context.Background(), r)
}

func (c *slogCore) Sync() error { return nil }

func attrs(fields []zapcore.Field) []slog.Attr {
	enc := zapcore.NewMapObjectEncoder()
	out := make([]slog.Attr, 0, len(fields))
	for _, f := range fields {
		f.AddTo(enc)
	}
	for _, f := range fields {
		if v, ok := enc.Fields[f.Key]; ok {
			out = append(out, slog.Any(f.Key, v))
		}
	}
	return out
}
