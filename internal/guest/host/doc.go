// Package host is the worker's side of the channel to a sandbox's first process:
// it starts commands once per id, keeps their output in journals on disk, and
// moves files.
//
// Words. A journal is a command's output as a file; a record beside it holds the
// command's status. Both are written before the guest is told that it may forget.
// A Conn holds the channel for one epoch after another; when the worker dies,
// another one dials again and goes on from what is on disk. Journals can be read
// without a Conn, so also after the sandbox died.
//
// Everything the guest sends is hostile: sizes, ids, offsets and texts are
// checked, memory is bounded, and what doesn't fit is dropped and counted.
//
// Not promised: that journals survive a power cut whole; a torn tail is cut off.
package host
