package handover

import (
	"fmt"
	"net"

	"golang.org/x/sys/unix"
)

// PeerUID gives the user that the other end of the connection runs as, as the
// kernel knows it.
func PeerUID(conn *net.UnixConn) (uint32, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return 0, fmt.Errorf("peer: %w", err)
	}
	var cred *unix.Ucred
	var inner error
	if err := raw.Control(func(fd uintptr) {
		cred, inner = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, fmt.Errorf("peer: %w", err)
	}
	if inner != nil {
		return 0, fmt.Errorf("peer: %w", inner)
	}
	return cred.Uid, nil
}
