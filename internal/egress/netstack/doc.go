// Package netstack ends a sandbox's network device in user space: frames come
// from a descriptor, and what comes out are TCP connections that were asked
// for, UDP packets of the name service, and a report of what was refused.
//
// Words. The device is the descriptor of a TAP (in tests one end of a socket
// pair). The screen is the first look at a raw frame: it passes only the
// plainest packets on to gVisor's stack (no fragments, no IP options, no
// extension headers, nothing but TCP, DNS to the gateway, echo to the gateway
// and neighbour discovery), answers the rest with an ICMP error, and so keeps
// most of what hostile frames could reach away from it.
//
// Not promised: a panic inside gVisor's own goroutines (TCP processors and
// timers) can't be contained and ends the process. A panic while a frame is
// being delivered ends this one stack only.
package netstack
