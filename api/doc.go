// Package api holds the wire types of the HTTP API under /v1: what requests
// and answers look like as JSON, the problem document every failure is told
// in, and the binary frames a command's output travels in. It imports the
// standard library only, so that anyone may link it; package client speaks it
// and internal/server answers it.
//
// Words. A task is one request to run an agent on a repository. A sandbox is
// one isolated place. A command is a program started in a sandbox under an id
// the caller chose. A code is a reason code such as "limit.time": dotted, and
// never changing its meaning. A digest is "sha256:" and 64 hex digits.
//
// Promised: within /v1 fields are added, never removed or given another
// meaning. Readers ignore fields they don't know; the server refuses them.
package api
