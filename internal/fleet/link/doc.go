// Package link is what cofferdamd and a worker say to each other: the tunnel,
// and the wire types and encoders of the worker's HTTP interface.
//
// Words. A worker dials out to cofferdamd with an HTTP/1.1 upgrade, so a worker
// needs no open port and no address. Over the upgraded connection runs a
// multiplexer; each of its streams carries plain HTTP/1.1, in which the worker is
// the server and cofferdamd the client. One such connection is a Session. A
// Session that ends ends every request on it; nothing of it goes on under the
// next one.
//
// The worker is trusted less than the control plane: every size that cofferdamd
// reads from it is bounded here, streams that a worker opens are refused, and a
// frame that breaks the rules is an error, never a guess.
//
// Not promised: order between two requests that are under way together, and
// secrecy or integrity on the wire when the server's URL is not https.
package link
