package denial

import "golang.org/x/sys/unix"

// Calls are the system calls that can change a path, by number.
func Calls() map[uint64]Call {
	one := func(operation string, folder, text int) Call {
		return Call{operation, []PathArg{{folder, text}}}
	}
	calls := map[uint64]Call{
		unix.SYS_OPENAT: one("open", 0, 1), unix.SYS_OPENAT2: one("open", 0, 1), unix.SYS_TRUNCATE: one("truncate", -1, 0),
		unix.SYS_UNLINKAT: one("unlink", 0, 1), unix.SYS_MKDIRAT: one("mkdir", 0, 1), unix.SYS_MKNODAT: one("mknod", 0, 1),
		unix.SYS_FCHMODAT: one("chmod", 0, 1), unix.SYS_FCHMOD: one("chmod", 0, -1),
		unix.SYS_FCHOWNAT: one("chown", 0, 1), unix.SYS_FCHOWN: one("chown", 0, -1), unix.SYS_UTIMENSAT: one("utime", 0, 1),
		unix.SYS_SETXATTR: one("setxattr", -1, 0), unix.SYS_LSETXATTR: one("setxattr", -1, 0), unix.SYS_FSETXATTR: one("setxattr", 0, -1),
		unix.SYS_REMOVEXATTR: one("removexattr", -1, 0), unix.SYS_LREMOVEXATTR: one("removexattr", -1, 0), unix.SYS_FREMOVEXATTR: one("removexattr", 0, -1),
		unix.SYS_SYMLINKAT: one("symlink", 1, 2), unix.SYS_UMOUNT2: one("umount", -1, 0),
		unix.SYS_RENAMEAT: {"rename", []PathArg{{2, 3}, {0, 1}}}, unix.SYS_RENAMEAT2: {"rename", []PathArg{{2, 3}, {0, 1}}},
		unix.SYS_LINKAT: {"link", []PathArg{{2, 3}, {0, 1}}}, unix.SYS_MOUNT: {"mount", []PathArg{{-1, 1}, {-1, 0}}},
	}
	olderCalls(calls)
	return calls
}
