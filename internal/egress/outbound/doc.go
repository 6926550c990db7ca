// Package outbound makes HTTP requests outside, for a sandbox whose connection
// the gateway inspects and for the control plane's own agent loop alike: the
// same grant, the same guard, the same record, the same injection.
//
// Words. A gate decides the requests to one name and port under one grant. A
// lane carries the requests that passed to one name and port. A lease lends a
// credential: its value is set in one header, only on a connection whose
// certificate was verified for the name that was decided, and only where both
// the matched rule and the lease's own binding allow the request. A placeholder
// is what the sandbox has in its place; anywhere else than where the value goes
// it is refused, not forwarded.
//
// Order of a request: decide, record, look up, guard, record the address, dial
// it, verify TLS, lend, send, count, record the end.
//
// Not promised: that a value does not come back in a response, or that a
// placeholder is noticed in a body.
package outbound
