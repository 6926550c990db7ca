// Package agent is the inside of a sandbox: its first process. It answers the
// worker on its standard input and output, starts commands, reaps every process,
// keeps output until the worker has it on disk, and unpacks and packs files.
//
// Words. A command's main process is the one it started; its tree is that and
// all descendants, however they left: each process carries the command's mark,
// an otherwise unused resource limit (RSS) that children inherit and that only
// ever sinks. A process whose mark is nobody's belongs to every command.
//
// A command has ended when its main process has; what it wrote until then is
// reported first. Children may live on and write on; they are listed, and a
// signal to the command reaches them.
//
// The guest holds no secret. Files are moved with the workload's own credentials,
// so that a link the workload laid leads nowhere it could not go itself.
package agent
