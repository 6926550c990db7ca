// Package postgres speaks the beginning of PostgreSQL's protocol 3.0 on both
// sides of the gateway: it is a server to the program in the sandbox and a client
// to the server outside, so that the one logs in with a placeholder and the other
// sees a login with the real password.
//
// Words. A packet is what a connection begins with, before there are messages:
// a request for encryption, a start-up, or a request to cancel. A message has a
// letter, a length and a body. A refusal is what the program inside reads as the
// server's error. A verifier is what a server keeps of a password in order to
// check it (RFC 5802 §3); the one here is the placeholder's. The binding is the
// hash of a server's certificate that both sides of SCRAM-SHA-256-PLUS prove
// (RFC 5929 §4). A key names a session to a request that cancels what runs in it.
//
// What comes from either side is hostile: every length is bounded before memory
// is taken, and what two programs could read differently is refused. The
// password itself goes to nobody: it is used for SCRAM-SHA-256 (RFC 7677) only,
// over TLS that was verified, and a server that asks for it in another way, or
// for none at all, is refused.
//
// Not promised: anything about the statements of a session. Once it is ready its
// bytes are passed on and not looked at.
package postgres
