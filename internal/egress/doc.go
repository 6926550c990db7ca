// Package egress is the only way out of a sandbox by network: it ends each
// sandbox's device in user space, answers its name service, decides each
// connection and moves the bytes of those that are allowed.
//
// Words. A way is what the gateway holds for one sandbox: its stack, its names,
// its log, its authority and the grant that counts now. A connection is asked
// for by a name (through the virtual address that stands for it) or by a
// literal address, and a port. The decision falls when it is asked for; what
// the client then sends must agree with the name it was allowed for. The epoch
// is the gateway's boot id.
//
// Order of an allowed connection: grant, look-up outside, guard on every
// address found, record in the file, dial of that very address, handshake
// inside, first bytes checked, bytes moved. Nothing is looked up or dialled for
// a connection that is not allowed.
//
// Not promised: what is behind a name. A spliced TLS connection reaches
// whatever answers for that name.
package egress
