// Package cli is the command line: it parses arguments, calls the API through
// package client, and prints what came back. It decides nothing.
//
// Words. A document is the one JSON value that a command prints with --json,
// failures included: then it is {"error":{"code","detail"}}, or, where part of
// the answer was on its way already, the answer with a field error at its end.
// Bytes from inside are bytes that a sandbox chose: on a terminal they are
// shown with everything that could move, hide or reorder text escaped; into a
// pipe or a file they go as they are.
//
// Each command has a file: one function parses, another works and takes a
// context, options and where to write. The exit code is told by the error
// alone, in one place (see ExitCode).
//
// Not promised: the layout of what is printed for people. Programs use --json.
package cli
