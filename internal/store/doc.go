// Package store keeps the control plane's rows: tasks, their stages, outputs,
// sandboxes, events and egress decisions, tokens, owners of sandboxes, and the
// rows of the audit. It decides nothing: it refuses what package task calls an
// illegal move, and otherwise remembers what it is told.
//
// Words. A fact is a row that somebody relies on after a crash; each change of
// facts is one transaction, on disk before the call returns, and the event
// that tells of it is in the same transaction. An event is a numbered message
// about one task. A log is a file, appended to and not transactional.
//
// The database is SQLite in WAL mode with full synchronisation. The SQL is
// portable: no implicit row ids, times are integers (nanoseconds since 1970,
// UTC), lists and records are JSON text.
//
// Not promised: that what was appended to a log survives a power cut before
// its Close; that two machines may share a data folder.
package store
