package denial

import "golang.org/x/sys/unix"

// olderCalls adds the calls that only older machines have.
func olderCalls(calls map[uint64]Call) {
	for number, operation := range map[uint64]string{
		unix.SYS_OPEN: "open", unix.SYS_CREAT: "open", unix.SYS_UNLINK: "unlink", unix.SYS_RMDIR: "rmdir", unix.SYS_MKDIR: "mkdir",
		unix.SYS_MKNOD: "mknod", unix.SYS_CHMOD: "chmod", unix.SYS_CHOWN: "chown", unix.SYS_LCHOWN: "chown",
		unix.SYS_UTIME: "utime", unix.SYS_UTIMES: "utime",
	} {
		calls[number] = Call{operation, []PathArg{{-1, 0}}}
	}
	calls[unix.SYS_FUTIMESAT] = Call{"utime", []PathArg{{0, 1}}}
	calls[unix.SYS_SYMLINK] = Call{"symlink", []PathArg{{-1, 1}}}
	calls[unix.SYS_RENAME] = Call{"rename", []PathArg{{-1, 1}, {-1, 0}}}
	calls[unix.SYS_LINK] = Call{"link", []PathArg{{-1, 1}, {-1, 0}}}
}
