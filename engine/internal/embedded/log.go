package embedded

import (
	"context"
	"log/slog"

	"go.temporal.io/server/common/log"
	"go.temporal.io/server/common/log/tag"
)

// logger gives the server's log lines to slog. What the server calls info is
// debug here: it tells about the server's insides.
type logger struct {
	to    *slog.Logger
	fatal func()
}

func newLogger(to *slog.Logger, fatal func()) log.Logger { return logger{to: to, fatal: fatal} }

func (l logger) line(level slog.Level, msg string, tags []tag.Tag) {
	if !l.to.Enabled(context.Background(), level) {
		return
	}
	attrs := make([]slog.Attr, 0, len(tags))
	for _, t := range tags {
		attrs = append(attrs, slog.Any(t.Key(), t.Value()))
	}
	l.to.LogAttrs(context.Background(), level, msg, attrs...)
}

// Debug logs below everything.
func (l logger) Debug(msg string, tags ...tag.Tag) { l.line(slog.LevelDebug-4, msg, tags) }

// Info logs at debug level.
func (l logger) Info(msg string, tags ...tag.Tag) { l.line(slog.LevelDebug, msg, tags) }

// Warn logs a warning.
func (l logger) Warn(msg string, tags ...tag.Tag) { l.line(slog.LevelWarn, msg, tags) }

// Error logs an error.
func (l logger) Error(msg string, tags ...tag.Tag) { l.line(slog.LevelError, msg, tags) }

// DPanic logs an error; it panics in the server's own development only.
func (l logger) DPanic(msg string, tags ...tag.Tag) { l.line(slog.LevelError, msg, tags) }

// Panic logs an error and panics.
func (l logger) Panic(msg string, tags ...tag.Tag) {
	l.line(slog.LevelError, msg, tags)
	panic(msg)
}

// Fatal logs an error and ends the process.
func (l logger) Fatal(msg string, tags ...tag.Tag) {
	l.line(slog.LevelError, msg, tags)
	l.fatal()
}
