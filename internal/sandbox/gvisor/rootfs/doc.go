// Package rootfs makes read-only images of the machine's own folders, such as
// /usr, for sandboxes to stand on. A view through a bind mount asks a helper
// process and the host's kernel for each file; an image is mapped once and read
// by the sandbox's kernel itself, several times faster where many files are
// looked at.
//
// Words. A source is a folder of the host. Its digest is a hash over the name,
// kind, owner, mode, size and times of everything below it; an image (EROFS) is
// made once per digest and named by it. Its stamp is a hash over the few places
// that change when software is installed or removed; it costs a millisecond and
// is looked at for each sandbox. A source whose stamp has changed has no image
// until it has been scanned again, so a sandbox never stands on yesterday's
// machine because of an apt upgrade or a new tool in /usr/local. A change that the
// stamp can't see (a file deep inside is edited in place) is seen by the next
// scan, at most RescanPace later.
//
// Images are made in the background, by one builder at a time over all processes
// that share the folder, and under another name until they are whole, synced,
// proved by running a program from them, and the source still has the digest it
// had before. Whoever has no image yet uses a view instead.
//
// Who uses an image holds a shared lock on its file; an image that nobody locks
// is removed. A sandbox that runs needs no lock: it has the file open.
//
// Not promised: extended attributes and file capabilities of the source, which
// mean nothing to a process that may not gain privileges.
package rootfs
