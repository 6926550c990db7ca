package host

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// FileDo carries an operation on one file out. With a key it has its effect once,
// over as many epochs as it takes.
func (c *Conn) FileDo(ctx context.Context, op guest.FileOp) (guest.FileResult, error) {
	answer, err := c.call(ctx, guest.FileDo, op)
	if err != nil {
		return guest.FileResult{}, wrap(op.Kind, err)
	}
	if answer.File == nil {
		return guest.FileResult{}, wrap(op.Kind, guest.Errorf(guest.ReasonInternal, "the guest does not say what became of it"))
	}
	r := *answer.File
	if err := plausible(op, r); err != nil {
		return guest.FileResult{}, wrap(op.Kind, err)
	}
	return r, nil
}

// plausible refuses results that no guest of ours gives.
func plausible(op guest.FileOp, r guest.FileResult) error {
	if len(r.Entries) > guest.MaxFilePage {
		return guest.Errorf(guest.ReasonInternal, "the guest lists %d entries at once", len(r.Entries))
	}
	last := op.After
	for _, e := range r.Entries {
		if err := plausibleInfo(e); err != nil {
			return err
		}
		if bytes.Compare(e.Name, last) <= 0 {
			return guest.Errorf(guest.ReasonInternal, "the guest lists entries out of order")
		}
		last = e.Name
	}
	if len(r.Next) > 0 && bytes.Compare(r.Next, last) < 0 || len(r.Next) > guest.MaxName {
		return guest.Errorf(guest.ReasonInternal, "the guest's list goes backwards")
	}
	if (op.Kind == guest.FileList || op.Kind == guest.FileRemove) != (r.Info == nil) {
		return guest.Errorf(guest.ReasonInternal, "the guest answers something else")
	}
	if r.Info != nil {
		return plausibleInfo(*r.Info)
	}
	return nil
}

// plausibleInfo refuses what can't be said of a file.
func plausibleInfo(i guest.FileInfo) error {
	wrong := guest.Errorf(guest.ReasonInternal, "the guest tells what no file is")
	switch i.Kind {
	case guest.KindFile, guest.KindFolder, guest.KindLink, guest.KindPipe, guest.KindSocket, guest.KindDevice:
	default:
		return wrong
	}
	if len(i.Name) == 0 || len(i.Name) > guest.MaxName || bytes.ContainsAny(i.Name, "/\x00") || len(i.Target) > guest.MaxPath ||
		i.Size < 0 || i.Mode > 0o7777 || !i.Modified.IsZero() && !guest.PlausibleTime(i.Modified) {
		return wrong
	}
	if i.SHA256 != "" {
		if sum, err := hex.DecodeString(i.SHA256); err != nil || len(sum) != 32 {
			return wrong
		}
	}
	return nil
}

// FileRead opens bytes of a file: exactly as many as the header says, or an error
// in their place. An error that is known before the first byte is returned at once.
func (c *Conn) FileRead(ctx context.Context, r guest.FileReadRequest) (guest.FileHeader, io.ReadCloser, error) {
	d, err := c.download(ctx, guest.FileRead, r)
	if err != nil {
		return guest.FileHeader{}, nil, wrap("read", err)
	}
	head, err := readFileHeader(d)
	if err != nil {
		d.Close()
		return guest.FileHeader{}, nil, wrap("read", err)
	}
	return head, &exact{download: d, left: head.Length}, nil
}

func readFileHeader(r io.Reader) (guest.FileHeader, error) {
	var (
		head guest.FileHeader
		size [4]byte
	)
	_, err := io.ReadFull(r, size[:])
	n := binary.BigEndian.Uint32(size[:])
	if err == nil && n > guest.MaxFileHeader {
		return head, guest.Errorf(guest.ReasonInternal, "the guest begins a file with %d bytes about it", n)
	}
	text := make([]byte, n)
	if err == nil {
		_, err = io.ReadFull(r, text)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = guest.Errorf(guest.ReasonInternal, "the guest does not begin the file")
	}
	if err != nil {
		return head, err
	}
	if err := json.Unmarshal(text, &head); err != nil || head.Length < 0 || head.Offset < 0 {
		return head, guest.Errorf(guest.ReasonInternal, "the guest begins a file with what can't be read")
	}
	return head, plausibleInfo(head.Info)
}

// exact gives the bytes that were announced and no others.
type exact struct {
	*download
	left int64
}

// Read returns the file's next bytes.
func (e *exact) Read(p []byte) (int, error) {
	if e.left == 0 {
		// The end counts when the guest says so.
		n, err := e.download.Read(make([]byte, 1))
		if n > 0 {
			err = guest.Errorf(guest.ReasonInternal, "the guest sends more of the file than it announced")
		}
		return 0, err
	}
	n, err := e.download.Read(p[:min(int64(len(p)), e.left)])
	e.left -= int64(n)
	if errors.Is(err, io.EOF) {
		err = guest.Errorf(guest.ReasonInternal, "the guest sends less of the file than it announced")
	}
	return n, err
}

// FileWrite gives a name the announced bytes, whole or not at all.
// ErrInterrupted may be tried again with a fresh stream.
func (c *Conn) FileWrite(ctx context.Context, w guest.FileWriteRequest, src io.Reader) (guest.FileInfo, error) {
	answer, err := c.upload(ctx, guest.FileWrite, w, src)
	if err != nil {
		return guest.FileInfo{}, wrap("write", err)
	}
	if answer.File == nil || answer.File.Info == nil {
		return guest.FileInfo{}, wrap("write", guest.Errorf(guest.ReasonInternal, "the guest does not say what became of it"))
	}
	info := *answer.File.Info
	if err := plausibleInfo(info); err != nil {
		return guest.FileInfo{}, wrap("write", err)
	}
	if info.SHA256 != w.SHA256 || info.Size != w.Size {
		return guest.FileInfo{}, wrap("write", fmt.Errorf("the guest has %d bytes with sha256 %s: %w", info.Size, info.SHA256,
			guest.Errorf(guest.ReasonInternal, "the guest wrote something else")))
	}
	return info, nil
}
