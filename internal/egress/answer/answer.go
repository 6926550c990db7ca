// Package answer takes lent values out of what far sides answer, so that one that
// repeats what it was sent does not hand it to the sandbox.
//
// Words. An answer is its status text, its header, its body and its trailers,
// and the informational ones before it. In a body that goes to a sandbox values
// are covered: its length and its ranges stay what they are. A body that is
// encoded with gzip is decoded first; one that is encoded otherwise is refused,
// since nothing can be found in it. What is spoken after a switch of protocols
// is covered too, as the bytes come: in WebSocket within one frame.
//
// Not promised: a value that comes over several ranges, frames or header fields,
// a part of one, or what package mask does not promise.
package answer

import (
	"compress/gzip"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/task/mask"
)

// idle is how long a short end waits that may be the beginning of a value.
const idle = 200 * time.Millisecond

// Unreadable is the error for an answer in which nothing can be looked for.
type Unreadable struct{ coding string }

// Error says what to do.
func (u *Unreadable) Error() string {
	return "the far side answers a request with a lent credential in the coding " + u.coding + ", in which the credential can't be looked for; it was asked for identity and may use gzip"
}

// Ask prepares a request that a value is lent to: what answers it should be
// readable here.
func Ask(header http.Header) {
	header["Accept-Encoding"] = []string{"identity"}
	delete(header, "Sec-Websocket-Extensions") // which compress
}

// Readable takes values out of the head of an answer, and decodes its body.
// Errors are *Unreadable.
func Readable(m *mask.Masker, res *http.Response) error {
	if m == nil {
		return nil
	}
	Header(m, res.Header)
	res.Status = m.Seal(res.Status)
	var codings []string
	for _, v := range res.Header["Content-Encoding"] {
		for c := range strings.SplitSeq(v, ",") {
			if c = strings.ToLower(strings.TrimSpace(c)); c != "" && c != "identity" {
				codings = append(codings, c)
			}
		}
	}
	switch {
	case len(codings) == 0, bodiless(res):
		return nil
	case slices.Equal(codings, []string{"gzip"}) && res.StatusCode != http.StatusPartialContent:
		res.Body = &unzipped{ReadCloser: res.Body}
		res.ContentLength = -1
		for _, name := range []string{"Content-Encoding", "Content-Length", "Content-Md5", "Content-Digest"} {
			res.Header.Del(name)
		}
		return nil
	}
	return &Unreadable{strings.Join(codings, ", ")}
}

func bodiless(res *http.Response) bool {
	return res.Body == nil || res.Body == http.NoBody || res.ContentLength == 0 || res.StatusCode < 200 ||
		res.StatusCode == http.StatusNoContent || res.StatusCode == http.StatusNotModified || res.Request != nil && res.Request.Method == http.MethodHead
}

// unzipped decodes a body while it is read.
type unzipped struct {
	io.ReadCloser
	z *gzip.Reader
}

func (u *unzipped) Read(b []byte) (int, error) {
	if u.z == nil {
		z, err := gzip.NewReader(u.ReadCloser)
		if err != nil {
			return 0, err
		}
		u.z = z
	}
	return u.z.Read(b)
}

// Header takes values out of header fields. A field whose name has one goes.
func Header(m *mask.Masker, h http.Header) {
	for name, values := range h {
		if m.Names(name) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			values[i] = m.Seal(v)
		}
	}
}

// Writer covers values in what answers one request. It must be finished or
// abandoned before its handler returns.
type Writer struct {
	masker *mask.Masker
	body   *mask.Writer

	mu   sync.Mutex // of to: an end that waited is written beside the handler
	to   http.ResponseWriter
	told bool
}

// NewWriter returns a Writer to another one.
func NewWriter(to http.ResponseWriter, m *mask.Masker) *Writer {
	w := &Writer{masker: m, to: to}
	w.body = mask.NewWriter(sink{w}, func() *mask.Masker { return m }, mask.Options{Cover: true, Idle: idle, Flush: func() { _ = w.FlushError() }})
	return w
}

// sink is where what was looked at goes.
type sink struct{ w *Writer }

func (s sink) Write(b []byte) (int, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.w.tell()
	return s.w.to.Write(b)
}

// tell looks at the header before it goes. The lock is held.
func (w *Writer) tell() {
	if !w.told {
		w.told = true
		Header(w.masker, w.to.Header())
	}
}

// Header implements http.ResponseWriter.
func (w *Writer) Header() http.Header { return w.to.Header() }

// WriteHeader implements http.ResponseWriter.
func (w *Writer) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = false // each informational answer has a header of its own
	w.tell()
	w.to.WriteHeader(status)
}

// Write implements http.ResponseWriter.
func (w *Writer) Write(b []byte) (int, error) { return w.body.Write(b) }

// FlushError is for http.ResponseController.
func (w *Writer) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return http.NewResponseController(w.to).Flush()
}

// Unwrap is for http.ResponseController, which finds the rest.
func (w *Writer) Unwrap() http.ResponseWriter { return w.to }

// Finish writes what was held and looks at the trailers.
func (w *Writer) Finish() error {
	err := w.body.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	Header(w.masker, w.to.Header())
	return err
}

// Abandon ends the Writer when the answer broke off. After Finish it does
// nothing.
func (w *Writer) Abandon() { w.body.Abandon() }

// Switched covers values in what a connection says that switched to another
// protocol.
func Switched(conn io.ReadWriteCloser, m *mask.Masker) io.ReadWriteCloser {
	from, to := io.Pipe()
	w := mask.NewWriter(to, func() *mask.Masker { return m }, mask.Options{Cover: true, Idle: idle})
	go func() {
		_, err := io.Copy(w, conn)
		if err == nil {
			err = w.Close()
		} else {
			w.Abandon()
		}
		_ = to.CloseWithError(err) // which never fails
	}()
	return &switched{ReadWriteCloser: conn, from: from}
}

// switched is read by what looks at it, and written to as it is.
type switched struct {
	io.ReadWriteCloser
	from *io.PipeReader
}

func (s *switched) Read(b []byte) (int, error) { return s.from.Read(b) }

func (s *switched) Close() error {
	err := s.ReadWriteCloser.Close()
	_ = s.from.Close() // which never fails
	return err
}

// CloseWrite ends what is said to the far side, where the connection can.
func (s *switched) CloseWrite() error {
	if half, ok := s.ReadWriteCloser.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return http.ErrNotSupported
}
