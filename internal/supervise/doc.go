// Package supervise runs the daemons of one machine as child processes: it
// makes their folders, starts them in order, restarts the ones that exit, ends
// them in reverse order, and takes over from a supervisor that was killed.
//
// Words. An installation is a data folder and what runs for it. A program is
// one of the four daemons. A record is a small file in DATA/run that says which
// process is a program; a process is only ever ended by its record, which names
// its number, its start time and its executable, never by a name. Holding is
// how a program is started: a process waits until its record is on disk and
// only then becomes the program, so that a supervisor killed at any moment
// leaves no program without a record. Draining is destroying every sandbox
// before the worker ends.
//
// Not promised: that a program which a person started by hand is found. A
// killed supervisor leaves its programs and all sandboxes running; the next Up
// or Down of the same data folder deals with them.
package supervise
