// Package server is the HTTP door: it turns requests under /v1 into calls of
// the rooms behind it and their answers into the types of package api. It
// decides nothing about tasks and sandboxes; it does decide who may ask for
// what, which is one table (the access of each operation) and one question
// (whose is it).
//
// Words. An operation is a method and a path with an access: public, user
// (users and admins, each for their own, admins for all) or admin. The zero
// access refuses. A problem is a failure as told outside: the reason code, a
// text, never internals. What is another's does not exist: the answer is the
// same as for an id that never was.
//
// Promised: a stream (events, logs, output of a command) ends cleanly only
// when what it shows has ended; a server that stops breaks it off instead, so
// that a client knows to come back and resume. Not promised: an answer to a
// client that stopped reading for a minute.
package server
