// Package audit keeps the account that must be believed in a year: an
// append-only chain of records, one signed receipt a task, a log that every
// receipt enters, and the verification of all of it without the data folder.
//
// Words. A record is one fact about a task: what happened (kind and facts),
// when, and who saw it. Records form one chain per installation and, within
// it, one per task: each names the hash of the record before it in both. A
// receipt is the account of one ended task: a body that says who asked, where
// it ran, what was reachable, what it left and how it ended, with the count and
// the head of the task's records, signed. Receipts are the leaves of a
// transparency log (RFC 6962 trees, golang.org/x/mod/sumdb/tlog). A checkpoint
// signs the log's size and root and the count and head of the installation's
// chain. Signatures are notes (golang.org/x/mod/sumdb/note, Ed25519). JSON that
// is hashed is canonical (RFC 8785).
//
// Evidence. Each record says who saw the fact, from strongest to weakest:
// the control plane (it did it itself), the gateway (an unprivileged process
// outside the sandbox), the worker (root on a machine that runs hostile code)
// and the guest (inside the sandbox, reporting about itself). Strength orders
// them; a reader should not believe a weaker witness against a stronger one.
//
// Not promised: that what a witness said is true; that a holder of the signing
// key did not write another history from the start; that an export which ends
// earlier than the newest one is complete, unless the reader kept a checkpoint
// or a receipt outside. The first two need a witness elsewhere, the third is
// what VerifyOptions is for.
package audit
