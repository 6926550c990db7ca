package outbound

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/cofferdam/cofferdam/internal/egress/answer"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/mask"
)

// mark stands for a value that is taken out of what a far side sent back.
const mark = "[sealed]"

// Loan is a value that was lent to one request. The zero Loan lends nothing.
type Loan struct {
	lease   *task.Lease
	carrier carrier // nil lends nothing
	signed  *signed // how the request was signed inside, where that is carried
	value   Secret
	why     string // nothing is lent, for the program inside; mostly empty
}

// Why says why nothing is lent, beyond the reason, for the program inside.
func (l Loan) Why() string { return l.why }

// Apply puts what is lent into the request that goes out. An error means that
// it must not go; it never holds the value.
func (l Loan) Apply(out *http.Request) error {
	if l.carrier == nil {
		return nil
	}
	answer.Ask(out.Header)
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

// Masker finds the lent value, and the others, in what answers the request; nil
// when nothing was lent.
func (l Loan) Masker(others ...Secret) *mask.Masker {
	if l.value.Empty() {
		return nil
	}
	return mask.New(append(others, l.value)...)
}

// answered takes the value out of an answer, so that a far side which repeats it
// does not bring it into what is kept of the conversation. An error means that
// the answer must not be given.
func (l Loan) answered(res *http.Response) error {
	m := l.Masker()
	if m == nil {
		return nil
	}
	if err := answer.Readable(m, res); err != nil {
		return err
	}
	res.Body = mask.NewReader(res.Body, m, mask.Options{})
	res.ContentLength = -1
	res.Header.Del("Content-Length")
	return nil
}
