// Package protect takes rights on paths of the workspace away from the
// workload, by mounts inside the sandbox: the first process may mount, the
// workload may not.
//
// Words. A leaf is a path that a rule names. A read-only leaf is mounted onto
// itself, read-only; a hidden one is covered with something empty that only root
// could open. A pin is a folder above a leaf, mounted onto itself as it is: a
// mount point can be neither moved nor removed, but a folder above one can. A
// placeholder stands for a leaf that is absent, so that it can't be made; git is
// told not to see it.
//
// Everything in the workspace may have been shaped by hostile code, which has
// ended: paths are walked a name at a time without following links, and what has
// a second name is copied, since the other name would be a way to write.
//
// Not promised: that what is hidden was not copied or linked elsewhere before;
// anything about repositories that are made later; a protection of what a link
// pointed at.
package protect
