// Package fleet knows which machine a sandbox is on and carries every request
// about it there. It implements stage.Sandboxes over the workers that are
// connected.
//
// Words. A worker is a machine; it has an id that outlives its processes. The
// Registry holds one connection a worker: the newest wins, and the one before it
// is fenced, which means closed with everything that was under way on it. A
// sandbox is placed once, before it is made, and never moves. The grace is how
// long a worker may be away before a request about it fails with
// infra.worker_lost; within it, requests that may be repeated are, so that a
// worker that is killed and comes back is seen as a delay and nothing else.
//
// Workers are trusted less than the control plane: answers are bounded, ids and
// offsets are checked, and a worker that claims another's sandbox is not
// believed.
//
// Not promised: that a sandbox survives its machine, and that capacity is kept
// free. Placement spreads sandboxes by the memory they may use; it refuses none.
package fleet
