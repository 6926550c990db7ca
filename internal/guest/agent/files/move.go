package files

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"

	"github.com/cofferdam/cofferdam/internal/guest"
)

const copyBytes = 128 << 10

// Read sends a header and the bytes that it announces.
func (p Place) Read(dst io.Writer, r guest.FileReadRequest) error {
	if r.Offset < 0 || r.Length < -1 {
		return guest.Errorf(guest.ReasonInvalid, "offset %d, length %d: neither may be negative", r.Offset, r.Length)
	}
	s, err := p.to(r.Path, how{follow: r.Follow, last: true})
	if err != nil {
		return err
	}
	defer s.close()
	f, err := p.openRegular(s)
	if err != nil {
		return err
	}
	defer f.close()
	head := guest.FileHeader{Info: f.info(), Offset: min(r.Offset, f.stat.Size)}
	head.Info.Name = base(r.Path)
	if head.Length = f.stat.Size - head.Offset; r.Length >= 0 {
		head.Length = min(head.Length, r.Length)
	}
	if r.Digest {
		if head.Info.SHA256, err = f.digest(); err != nil {
			return s.fail(err)
		}
	}
	text := guest.Marshal(head)
	if _, err := dst.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(text))), text...)); err != nil {
		return err
	}
	if _, err := unix.Seek(f.fd, head.Offset, io.SeekStart); err != nil {
		return s.fail(err)
	}
	n, err := io.CopyBuffer(struct{ io.Writer }{dst}, io.LimitReader(f, head.Length), make([]byte, copyBytes))
	if err != nil {
		return s.fail(err)
	}
	if n < head.Length {
		return s.refuse(guest.ReasonConflict, "became shorter while it was read")
	}
	return nil
}

// Write puts the announced bytes at a name, whole or not at all.
func (p Place) Write(src io.Reader, w guest.FileWriteRequest) (guest.FileInfo, error) {
	if err := p.announced(w); err != nil {
		return guest.FileInfo{}, err
	}
	s, err := p.to(w.Path, how{follow: w.Follow, last: true})
	if err != nil {
		return guest.FileInfo{}, err
	}
	defer s.close()
	if s.itself() {
		return guest.FileInfo{}, s.refuse(guest.ReasonInvalid, "is a folder and no file")
	}
	before, err := p.before(s, w)
	if err != nil {
		return guest.FileInfo{}, err
	}
	temp, err := newTemp(s)
	if err != nil {
		return guest.FileInfo{}, err
	}
	defer temp.discard()
	if err := temp.fill(src, w); err != nil {
		return guest.FileInfo{}, err
	}
	if err := unix.Fchmod(temp.fd, before.mode); err != nil {
		return guest.FileInfo{}, s.fail(err)
	}
	if err := unix.Fsync(temp.fd); err != nil {
		return guest.FileInfo{}, s.fail(err)
	}
	if err := p.unchanged(s, w, before); err != nil {
		return guest.FileInfo{}, err
	}
	info, err := p.place(s, temp, w)
	info.Name = base(w.Path)
	return info, err
}

// announced checks what was said of the bytes.
func (p Place) announced(w guest.FileWriteRequest) error {
	switch {
	case w.Size < 0:
		return guest.Errorf(guest.ReasonInvalid, "size %d: it may not be negative", w.Size)
	case !validSum(w.SHA256):
		return guest.Errorf(guest.ReasonInvalid, "sha256 %.80q: it must be 64 lowercase hexadecimal digits", w.SHA256)
	case w.IfSHA256 != "" && !validSum(w.IfSHA256):
		return guest.Errorf(guest.ReasonInvalid, "ifSHA256 %.80q: it must be 64 lowercase hexadecimal digits", w.IfSHA256)
	case w.IfSHA256 != "" && w.Create:
		return guest.Errorf(guest.ReasonInvalid, "create: it can't be had together with ifSHA256")
	case w.Mode != nil:
		return p.mode(*w.Mode)
	}
	return nil
}

func validSum(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && hex.EncodeToString(b) == s
}

// present is what stood at the name before.
type present struct {
	there bool
	stat  unix.Stat_t // where it was hashed
	mode  uint32      // that the new file gets
}

// before looks at what is to be replaced and refuses what a file doesn't replace.
func (p Place) before(s spot, w guest.FileWriteRequest) (present, error) {
	b := present{mode: 0o644}
	info, stat, err := describe(s.dir, s.name)
	switch {
	case errors.Is(err, unix.ENOENT):
		if w.IfSHA256 != "" {
			return b, s.refuse(guest.ReasonConflict, "is not there")
		}
	case err != nil:
		return b, s.fail(err)
	case info.Kind != guest.KindFile:
		return b, s.refuse(guest.ReasonInvalid, "is a %s and no file", info.Kind)
	case w.Create:
		return b, p.conflict(s, "is there already")
	default:
		b.there, b.stat, b.mode = true, stat, stat.Mode&0o777
		if w.IfSHA256 != "" {
			if b.stat, err = p.expect(s, w.IfSHA256); err != nil {
				return b, err
			}
		}
	}
	if w.Mode != nil {
		b.mode = *w.Mode
	}
	return b, nil
}

// expect refuses a file that has another hash, and tells which.
func (p Place) expect(s spot, sum string) (unix.Stat_t, error) {
	f, err := p.openRegular(s)
	if err != nil {
		return unix.Stat_t{}, err
	}
	defer f.close()
	have, err := f.digest()
	if err != nil {
		return f.stat, s.fail(err)
	}
	if have != sum {
		return f.stat, s.refuse(guest.ReasonConflict, "has changed; its sha256 is %s", have)
	}
	return f.stat, nil
}

// unchanged looks again at what is to be replaced, as late as can be.
func (p Place) unchanged(s spot, w guest.FileWriteRequest, b present) error {
	if w.IfSHA256 == "" {
		return nil
	}
	_, now, err := describe(s.dir, s.name)
	if err == nil && now.Dev == b.stat.Dev && now.Ino == b.stat.Ino && now.Size == b.stat.Size && now.Mtim == b.stat.Mtim && now.Ctim == b.stat.Ctim {
		return nil
	}
	_, err = p.expect(s, w.IfSHA256)
	if errors.Is(err, unix.ENOENT) {
		return s.refuse(guest.ReasonConflict, "is not there any more")
	}
	return err
}

// temp is the new file beside the name.
type temp struct {
	file
	spot spot
	sum  string
}

// newTemp makes a file of a name that nobody can foresee, which only its owner may
// read until it is whole.
func newTemp(s spot) (*temp, error) {
	var random [12]byte
	rand.Read(random[:])
	name := ".cofferdam-" + hex.EncodeToString(random[:])
	fd, err := unix.Openat(s.dir, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, s.fail(err)
	}
	return &temp{file: file{fd: fd, name: name}, spot: s}, nil
}

// discard removes what has not taken the name.
func (t *temp) discard() {
	if t.name != "" {
		_ = unix.Unlinkat(t.spot.dir, t.name, 0) // The sandbox's disk is what it would take.
	}
	t.close()
}

// fill takes exactly the announced bytes.
func (t *temp) fill(src io.Reader, w guest.FileWriteRequest) error {
	sum := sha256.New()
	n, err := io.CopyBuffer(struct{ io.Writer }{io.MultiWriter(&t.file, sum)}, io.LimitReader(src, w.Size+1), make([]byte, copyBytes))
	if err != nil {
		return t.spot.fail(err)
	}
	if n > w.Size {
		return t.spot.refuse(guest.ReasonInvalid, "size %d was announced and more bytes came", w.Size)
	}
	if n < w.Size {
		return t.spot.refuse(guest.ReasonInvalid, "size %d was announced and %d bytes came", w.Size, n)
	}
	if t.sum = hex.EncodeToString(sum.Sum(nil)); t.sum != w.SHA256 {
		return t.spot.refuse(guest.ReasonInvalid, "sha256 %s was announced and the bytes have %s", w.SHA256, t.sum)
	}
	return nil
}

// place gives the new file the name, and sees that it has it.
func (p Place) place(s spot, t *temp, w guest.FileWriteRequest) (guest.FileInfo, error) {
	flags := uint(0)
	if w.Create {
		flags = unix.RENAME_NOREPLACE
	}
	err := unix.Renameat2(s.dir, t.name, s.dir, s.name, flags)
	switch {
	case errors.Is(err, unix.EEXIST) && w.Create:
		return guest.FileInfo{}, p.conflict(s, "is there already")
	case errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENOTEMPTY):
		return guest.FileInfo{}, s.refuse(guest.ReasonConflict, "became a folder meanwhile")
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EXDEV):
		// What is protected is mounted onto itself.
		return guest.FileInfo{}, s.refuse(guest.ReasonProtected, "can't be replaced: it is protected")
	case errors.Is(err, unix.ENOENT):
		return guest.FileInfo{}, s.refuse(guest.ReasonConflict, "lost its new content to somebody else in the folder")
	case err != nil:
		return guest.FileInfo{}, s.fail(err)
	}
	t.name = ""
	if fd, err := unix.Openat(s.dir, ".", unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0); err == nil {
		err = unix.Fsync(fd)
		unix.Close(fd)
		if err != nil {
			return guest.FileInfo{}, s.fail(fmt.Errorf("the folder: %w", err))
		}
	} // A folder that its owner may not read is written all the same.
	info, stat, err := describe(s.dir, s.name)
	if err == nil {
		err = unix.Fstat(t.fd, &t.stat)
	}
	if err != nil || stat.Ino != t.stat.Ino || stat.Dev != t.stat.Dev {
		return guest.FileInfo{}, s.refuse(guest.ReasonConflict, "was replaced by somebody else at once")
	}
	info.SHA256 = t.sum
	return info, nil
}

// Drain takes what nobody needs any more, so that the sender hears the answer.
func Drain(src io.Reader) error {
	_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{src}, make([]byte, copyBytes))
	return err
}
