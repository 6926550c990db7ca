// Package guest is the protocol between a worker and the first process of a
// sandbox, and the words both use. guest/agent is the inside, guest/host the
// worker's side. It imports nothing of ours.
//
// Words. The channel is two FIFOs: the guest's standard input and output. A
// frame is the unit on it; frames are separated by a zero byte that occurs
// nowhere else, so that a reader that starts in the middle finds the next one.
// An epoch is the time in which one worker holds the channel: it begins with the
// worker's hello, and frames of another epoch are dropped. A command is a process
// with all its descendants, which are its tree. Output is a sequence of chunks,
// addressed by an offset that counts the payload bytes of standard output and
// error together; the guest keeps them until the worker acknowledges the offset.
//
// Why it survives a death in mid-frame: the new worker sends a zero byte and a
// hello with a new epoch; what was half sent fails its checksum, what was sent
// for the old epoch is dropped, and the guest sends again whatever was not
// acknowledged. Commands are named by their callers, and a name starts one
// process for ever, so a request whose answer was lost may be repeated.
//
// Not promised: isolation between the commands of one sandbox; that output
// acknowledged by a worker survives a power cut of the machine, since the
// sandbox doesn't either.
package guest
