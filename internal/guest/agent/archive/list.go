package archive

import (
	"bytes"
	"encoding/binary"
	"errors"

	"golang.org/x/sys/unix"
)

// item is a name in a folder's list, and what kind of thing the list says it is.
type item struct {
	name string
	kind byte // unix.DT_REG and the like
}

// direntName is where the name begins in an entry of the kernel's list: after its
// number, the next one's place, its length and its kind.
const direntName = 8 + 8 + 2 + 1

// items reads the next names of an open folder; none are left when it gives none.
func items(dir int, buf []byte) ([]item, error) {
	for {
		n, err := unix.Getdents(dir, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil || n <= 0 {
			return nil, err
		}
		if list := parse(buf[:n]); len(list) > 0 {
			return list, nil
		}
	}
}

// parse cuts the kernel's list.
func parse(buf []byte) []item {
	var list []item
	for len(buf) >= direntName {
		size := int(binary.NativeEndian.Uint16(buf[16:]))
		if size < direntName || size > len(buf) {
			return list
		}
		name, _, _ := bytes.Cut(buf[direntName:size], []byte{0})
		if text := string(name); text != "" && text != "." && text != ".." {
			list = append(list, item{name: text, kind: buf[18]})
		}
		buf = buf[size:]
	}
	return list
}
