// Package table is what packages of rows beneath the store share with it: the
// open database, how a change of facts is made, and how failures are told.
//
// Words. A change is one writing transaction about one task, or about none;
// what it tells is an event of that task, kept in the same transaction.
package table

import (
	"context"
	"encoding/json"
	"time"

	"github.com/uptrace/bun"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Base is the open database as the store gives it. All fields are set.
type Base struct {
	Write *bun.DB // one connection, each transaction takes the write lock at its start
	Read  *bun.DB
	Now   func() time.Time
	// Change runs f in one writing transaction and wakes the watchers of the task
	// (empty: of none) when it was kept.
	Change func(ctx context.Context, taskID string, f func(tx bun.Tx) error) error
	// Emit adds an event to the task within a change.
	Emit func(ctx context.Context, tx bun.Tx, taskID, kind string, data any) error
	// Failure makes an error of the database a *task.Failure; nil stays nil.
	Failure func(doing string, err error) error
}

// NotFound is the failure for a row that is not there.
func NotFound(what, id string) error {
	if len(id) > 64 {
		id = id[:64] + "…"
	}
	return task.Fail(task.InputNotFound, "no "+what+" "+quote(id), nil)
}

func quote(s string) string {
	text, _ := json.Marshal(s) // a string is always encoded
	return string(text)
}

// Moment is a time from its column: nanoseconds since 1970, UTC.
func Moment(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// Optional is a time from a column that may be NULL.
func Optional(ns *int64) *time.Time {
	if ns == nil {
		return nil
	}
	t := Moment(*ns)
	return &t
}

// Nanos is the column of a time that may be absent.
func Nanos(t *time.Time) *int64 {
	if t == nil {
		return nil
	}
	ns := t.UnixNano()
	return &ns
}

// Text is the column of a value kept as JSON.
func Text(v any) (string, error) {
	b, err := json.Marshal(v)
	return string(b), err
}

// From undoes Text.
func From[T any](text string) (v T, err error) {
	err = json.Unmarshal([]byte(text), &v)
	return v, err
}
