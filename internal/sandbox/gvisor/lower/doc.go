// Package lower makes the lower folder: the root file system that sandboxes share
// read-only, with the machine's toolchains as views or images on top. It holds a
// filtered copy of the host's /etc, the files of /etc that the sandbox has of its
// own, the folders that programs expect, and the guest program.
//
// Not promised: that a file of /etc which is not on the list is there.
package lower
