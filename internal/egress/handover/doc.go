// Package handover is the conversation between a worker and its gateway over a
// Unix socket: who is attached, with which device, names, authority and grant.
//
// Words. A frame is eight bytes (length, number of descriptors, version) and a
// JSON message. A request has an id and gets one reply with the same id; both
// sides ask. A message carries at most one descriptor, sent with the first
// byte of its frame (SCM_RIGHTS). The epoch is the gateway's boot id.
//
// The worker asks: hello (first, once), attach, grant, detach, device. The
// gateway asks: name, broken. Frames are bounded and strict; a bad one ends the
// connection, and the worker connects again.
//
// Not promised: an order between requests that are under way together.
package handover
