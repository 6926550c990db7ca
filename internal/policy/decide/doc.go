// Package decide answers one use of a grant with a decision and a reason. It is
// pure, and all that the gateway needs of policy: no file is read here.
//
// Words. A use is one connection asked for, a request one HTTP request on it. An
// index answers for grants of any length, with what rules need compiled once.
//
// A request is allowed only when a rule stands for all of it: host, port, method,
// path, query, headers and body. Where a rule about bodies may stand for one, the
// answer is a denial that asks for the body; whoever has it asks again.
//
// Not promised: that a name's address is harmless. The gateway checks the address
// it is about to dial (egress).
package decide
