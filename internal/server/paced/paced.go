// Package paced answers requests of clients that may be slow, but not for ever: each
// piece of a request and of its answer has a time of its own.
package paced

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"time"
)

// The times a client may take.
const (
	bodyIdle   = 60 * time.Second // between two pieces of a request's body
	writeStall = 60 * time.Second // before a reader that doesn't read is cut off
)

// Answer remembers the status and size of what was answered, and cuts off a
// client that does not read.
type Answer struct {
	http.ResponseWriter
	control *http.ResponseController
	status  int
	bytes   int64
}

// NewAnswer wraps w, and gives the client of r a limited time for each piece of
// the request's body.
func NewAnswer(w http.ResponseWriter, r *http.Request) *Answer {
	a := &Answer{ResponseWriter: w, control: http.NewResponseController(w)}
	if r.Body != nil && r.Body != http.NoBody {
		r.Body = &body{ReadCloser: r.Body, control: a.control}
	}
	return a
}

// Status is what was answered; 0 before anything was.
func (w *Answer) Status() int { return w.status }

// Bytes is how many of the body were written.
func (w *Answer) Bytes() int64 { return w.bytes }

// Unwrap is for http.ResponseController.
func (w *Answer) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader remembers the status.
func (w *Answer) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
	w.ResponseWriter.WriteHeader(status)
}

// Write sets the time the client has for this piece.
func (w *Answer) Write(p []byte) (int, error) {
	if w.status == 0 {
		w.status = http.StatusOK
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(writeStall)) // not supported by test recorders
	n, err := w.ResponseWriter.Write(p)
	w.bytes += int64(n)
	return n, err
}

// Flush sends what was written so far.
func (w *Answer) Flush() {
	_ = w.control.SetWriteDeadline(time.Now().Add(writeStall))
	_ = w.control.Flush()
}

// Hijack hands the connection over, without our deadlines.
func (w *Answer) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, rw, err := w.control.Hijack()
	if err == nil {
		w.status = http.StatusSwitchingProtocols
		err = conn.SetDeadline(time.Time{})
	}
	return conn, rw, err
}

// body gives a client a limited time for each piece of its request.
type body struct {
	io.ReadCloser
	control *http.ResponseController
}

// Read sets a deadline, and takes it away at the end: a deadline left behind
// would end the request while it is being answered.
func (b *body) Read(p []byte) (int, error) {
	_ = b.control.SetReadDeadline(time.Now().Add(bodyIdle))
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		_ = b.control.SetReadDeadline(time.Time{})
	}
	return n, err
}
