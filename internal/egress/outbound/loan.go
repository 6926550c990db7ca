package outbound

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/cofferdam/cofferdam/internal/task"
)

// mark stands for a value that is taken out of what a far side sent back.
const mark = "[sealed]"

// Loan is a value that was lent to one request. The zero Loan lends nothing.
type Loan struct {
	lease   *task.Lease
	carrier carrier // nil lends nothing
	signed  *signed // how the request was signed inside, where that is carried
	value   Secret
}

// Apply puts what is lent into the request that goes out. An error means that
// it must not go; it never holds the value.
func (l Loan) Apply(out *http.Request) error {
	if l.carrier == nil {
		return nil
	}
	if c, ok := l.carrier.(signer); ok && l.signed != nil {
		return c.sign(l.signed, l.value, out)
	}
	return l.carrier.put(l.lease, l.value, out)
}

// echoed is a carrier whose far sides repeat what they were sent in the ordinary
// course of things, where programs then send it again.
type echoed interface {
	// back puts the placeholder in place of the value. An error means that the
	// answer must not be given; it never holds the value.
	back(l *task.Lease, value Secret, res *http.Response) error
}

// Returned puts the placeholder where an answer repeats the value as such
// answers do: in an address to go on with, or in what Git LFS says to send next.
// An error means that the answer must not be given.
func (l Loan) Returned(res *http.Response) error {
	if c, ok := l.carrier.(echoed); ok {
		return c.back(l.lease, l.value, res)
	}
	return nil
}

// errFar stands for an error that may quote what a far side sent.
var errFar = errors.New("the far side broke off, or what it sent can't be read")

// Quiet gives an error that may be kept and told. A far side that was sent the
// value may send it back in something malformed, which errors quote: of those
// only the kind is left.
func (l Loan) Quiet(err error) error {
	if err == nil || l.value.Empty() {
		return err
	}
	var op *net.OpError
	var cert *tls.CertificateVerificationError // comes before anything was sent
	for _, safe := range []error{context.Canceled, context.DeadlineExceeded, io.ErrUnexpectedEOF, net.ErrClosed} {
		if errors.Is(err, safe) {
			return safe
		}
	}
	switch {
	case errors.As(err, &cert):
		return cert
	case errors.As(err, &op) && op.Err != nil:
		return fmt.Errorf("%s: %w", op.Op, errFar)
	}
	return errFar
}

// answered takes the value out of an answer, so that a far side which repeats it
// does not bring it into what is kept of the conversation. Other spellings of it,
// encoded ones for example, are not found.
func (l Loan) answered(res *http.Response) {
	if l.value.Empty() {
		return
	}
	for _, text := range l.texts() {
		for name, values := range res.Header {
			for i, v := range values {
				values[i] = strings.ReplaceAll(v, text, mark)
			}
			if strings.Contains(strings.ToLower(name), strings.ToLower(text)) {
				delete(res.Header, name)
			}
		}
		res.Status = strings.ReplaceAll(res.Status, text, mark)
		res.Body = &scrubbed{ReadCloser: res.Body, value: []byte(text)}
	}
	res.ContentLength = -1
	res.Header.Del("Content-Length")
}

// texts are what of the value a far side may be sent, and so repeat.
func (l Loan) texts() []string {
	if l.lease != nil && kindOf(l.lease) == task.KindAWS {
		return parts(l.value.Reveal())
	}
	return []string{l.value.Reveal()}
}

// scrubbed is a body in which a mark stands for each value. What comes is given
// at once, but for an end that may be the beginning of the value.
type scrubbed struct {
	io.ReadCloser
	value []byte
	ready []byte // looked at
	held  []byte // may be the beginning of the value
	err   error
}

// Read gives what holds no value.
func (s *scrubbed) Read(b []byte) (int, error) {
	if len(b) == 0 {
		return 0, nil
	}
	for len(s.ready) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		buf := make([]byte, min(max(len(b), 512), 32<<10))
		n, err := s.ReadCloser.Read(buf)
		all := bytes.ReplaceAll(append(s.held, buf[:n]...), s.value, []byte(mark))
		keep := 0
		if s.err = err; err == nil {
			keep = s.begun(all)
		}
		s.ready, s.held = all[:len(all)-keep], bytes.Clone(all[len(all)-keep:])
	}
	n := copy(b, s.ready)
	s.ready = s.ready[n:]
	return n, nil
}

// begun is how many bytes at the end are the beginning of the value.
func (s *scrubbed) begun(b []byte) int {
	for n := min(len(s.value)-1, len(b)); n > 0; n-- {
		if bytes.HasSuffix(b, s.value[:n]) {
			return n
		}
	}
	return 0
}
