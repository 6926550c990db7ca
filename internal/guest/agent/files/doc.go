// Package files does one operation on one name of a sandbox: stat, list, read,
// write, rename, remove, make a folder, change a mode.
//
// Words. A root is a folder that operations stay beneath: the workspace, HOME and
// /tmp. A path is absolute, clean and begins with a root; its names are any bytes
// but slash and zero. A walk opens a path a name at a time, from the file system's
// top, each name in the folder that was opened before and without following it; so
// whatever is swapped meanwhile, what is opened lies in what was opened before.
// Links are data: one on the way is refused, or, where the caller wants links
// followed, read and walked like a path that must stay beneath the same root.
//
// A write goes to a new file beside the name, is checked against the size and hash
// that were announced, and takes the name at once. Only regular files are read,
// and nothing that is opened can block.
//
// The caller runs it with the workload's own credentials: it can do no more than
// the workload could. Root, for the platform's steps, refuses files with a second
// name, which may be one that the workload couldn't touch.
//
// Not promised: that a folder which was opened is still where it was when the
// operation ends; that an entry made while a folder is listed is listed.
package files
