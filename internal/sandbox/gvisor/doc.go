// Package gvisor is the sandbox driver for gVisor: one sentry and one gofer
// process a sandbox, on the systrap platform, which needs no hardware
// virtualisation.
//
// Words. The folder of a sandbox (sandboxes/ID below the driver's folder) holds
// its OCI bundle, its disk (the file behind every byte written inside), the two
// FIFOs of its control channel (in and out), the journals of its commands and
// sandbox.json, which is written last and makes it a sandbox: one without it is
// half made and is destroyed by whoever finds it. The lower folder is the root
// file system that sandboxes share read-only; on top of it each has its own
// size-limited layer. The guest is the first process inside; commands are its
// children.
//
// The driver keeps nothing that it can't find again: every host object is in
// the ledger before it is made, and a sandbox's processes outlive the process
// that made them. A new Driver over the same folder adopts them (Adopt).
//
// Not promised: that a sandbox survives a restart of the machine, or that two
// drivers may use one folder at the same time (a lock refuses the second).
package gvisor

// Gaps names, in a few words, what does not work inside. TestGaps tries each.
const Gaps = "Docker, ping and raw sockets, mounts of the sandbox's own, io_uring, perf, eBPF, userfaultfd, fanotify, kernel modules, core dumps, devices and sockets of the host, tracing of what is no child"
