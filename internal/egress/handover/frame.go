package handover

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

const (
	headerLen = 8
	// frameMax holds a full table of the longest names.
	frameMax = 8 << 20
)

// writeFrame sends one frame; file, when not nil, goes with its first byte.
func writeFrame(conn *net.UnixConn, body []byte, file *os.File) error {
	if len(body) > frameMax {
		return fmt.Errorf("frame of %d bytes: too large", len(body))
	}
	frame := make([]byte, headerLen, headerLen+len(body))
	binary.BigEndian.PutUint32(frame, uint32(len(body)))
	frame[5] = Version
	if file == nil {
		_, err := conn.Write(append(frame, body...))
		return err
	}
	frame[4] = 1
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	// Control keeps the descriptor open while it is being sent.
	var sent error
	if err := raw.Control(func(fd uintptr) {
		_, _, sent = conn.WriteMsgUnix(frame, unix.UnixRights(int(fd)), nil)
	}); err != nil {
		return err
	}
	if sent != nil {
		return sent
	}
	_, err = conn.Write(body)
	return err
}

// readFrame receives one frame. The file, if any, is the caller's.
func readFrame(conn *net.UnixConn) (body []byte, file *os.File, err error) {
	header := make([]byte, headerLen)
	var files []*os.File
	defer func() {
		if err != nil {
			for _, f := range files {
				f.Close()
			}
			file = nil
		}
	}()
	for n := 0; n < headerLen; {
		oob := make([]byte, unix.CmsgSpace(4*4))
		got, gotOOB, flags, _, err := conn.ReadMsgUnix(header[n:], oob)
		received, rightsErr := rights(oob[:gotOOB])
		files = append(files, received...)
		switch {
		case err != nil:
			return nil, nil, err
		case rightsErr != nil:
			return nil, nil, rightsErr
		case flags&unix.MSG_CTRUNC != 0:
			return nil, nil, fmt.Errorf("%w: too many descriptors", ErrMessage)
		case got == 0:
			return nil, nil, io.EOF
		}
		n += got
	}
	length := binary.BigEndian.Uint32(header)
	if header[5] != Version || header[6] != 0 || header[7] != 0 || length > frameMax || len(files) != int(header[4]) || len(files) > 1 {
		return nil, nil, fmt.Errorf("%w: header %x with %d descriptors", ErrMessage, header, len(files))
	}
	body = make([]byte, 0, min(length, 64<<10))
	for len(body) < int(length) {
		// Grow as bytes arrive: a length alone must not cost memory.
		chunk := make([]byte, min(int(length)-len(body), 64<<10))
		if _, err := io.ReadFull(conn, chunk); err != nil {
			return nil, nil, err
		}
		body = append(body, chunk...)
	}
	if len(files) == 1 {
		file = files[0]
	}
	return body, file, nil
}

// rights takes the descriptors out of control data. Go's ReadMsgUnix asks for
// them to be closed on exec.
func rights(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("%w: control data", ErrMessage)
	}
	var files []*os.File
	for _, m := range messages {
		fds, err := unix.ParseUnixRights(&m)
		if err != nil {
			return files, fmt.Errorf("%w: control data", ErrMessage)
		}
		for _, fd := range fds {
			if err := unix.SetNonblock(fd, true); err != nil {
				return append(files, os.NewFile(uintptr(fd), "descriptor")), errors.Join(ErrMessage, err)
			}
			files = append(files, os.NewFile(uintptr(fd), "descriptor"))
		}
	}
	return files, nil
}
