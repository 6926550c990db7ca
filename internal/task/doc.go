// Package task holds the nouns every room speaks: Task, Stage, Grant,
// Decision, Limits, Output, reason codes, and the rules for moving between
// states. It imports the standard library only and does no I/O, so that any
// program may link it and any two rooms that use its words mean the same thing.
//
// Words. A task is one request to run an agent on a repository. It goes through
// nine stages in a fixed order. A run of the stages in fresh sandboxes is an
// attempt; attempts are numbered from 1. A Grant is what one stage of one
// sandbox may reach, decided once and never changed. A Decision is the answer
// to one use of a Grant.
//
// Every zero value refuses: the zero Verdict is Denied, the zero State is not
// a state, the zero Grant reaches nothing.
package task
