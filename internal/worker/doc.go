// Package worker is the door of a machine: it translates what cofferdamd asks
// through the tunnel into calls of a sandbox.Driver and of the gateway's keeper.
//
// Words. A request belongs to the connection it came on. When that ends, the
// request's context has ended before the next connection begins, so a request
// that comes to act late finds that out and does not act. An effect (create, grant,
// destroy) that has begun is carried to its end whatever becomes of the
// connection; effects on one sandbox take turns. An answer that is cut off says
// nothing about the effect: asking again is safe.
//
// The door decides nothing: who may ask is settled by the tunnel, what may be
// reached by the grant it is handed.
//
// Not promised: anything to a caller that is not the other end of the tunnel. The
// door has no authentication of its own and must not be served elsewhere.
package worker
