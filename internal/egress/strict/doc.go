// Package strict reads the bytes of HTTP/1 requests ahead of a server, and lets
// only those through that everybody reads alike (RFC 9112): what two programs
// could divide into requests differently never reaches the server.
//
// Words. A head is a request line with its header fields. It passes whole or
// not at all. A head that must not pass is replaced by a harmless one, so that
// the server comes to answer it in its turn; Refused tells the server's handler
// which request that is. Nothing passes after it.
//
// A body whose chunks are malformed ends as one that was cut.
package strict
