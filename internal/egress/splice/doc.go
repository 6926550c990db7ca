// Package splice reads the first bytes of a connection far enough to know what
// it is and which name it is for, and then moves bytes both ways.
//
// Words. The opening is what the client has sent before anything is forwarded.
// A ClientHello is the first message of TLS (RFC 8446 §4.1.2); SNI is the
// server name in it (RFC 6066 §3). Where a ClientHello is encrypted (ECH), the
// outer one is what is seen, and its name is the name.
//
// Everything ambiguous is an error: what two programs could read differently
// is not forwarded.
package splice
