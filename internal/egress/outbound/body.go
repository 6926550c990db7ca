package outbound

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"sync"

	"github.com/cofferdam/cofferdam/internal/policy/decide"
)

// Bodies bounds how much of bodies is held at once while requests are decided.
// Nil bounds each body alone. It may be used by many at once.
type Bodies struct {
	mu   sync.Mutex
	left int64
}

// NewBodies allows so many bytes.
func NewBodies(most int64) *Bodies { return &Bodies{left: most} }

func (b *Bodies) take(n int64) bool {
	if b == nil {
		return true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left < n {
		return false
	}
	b.left -= n
	return true
}

func (b *Bodies) give(n int64) {
	if b != nil {
		b.mu.Lock()
		b.left += n
		b.mu.Unlock()
	}
}

const bodyStep = 64 << 10

// read takes a request's body into memory, as far as a rule may look at it, and
// leaves the same body in the request. held is what must be given back.
func (b *Bodies) read(r *http.Request) (body *decide.Body, held int64) {
	switch {
	case r.Body == nil || r.Body == http.NoBody:
		return &decide.Body{}, 0
	case r.ContentLength > decide.MaxBody, len(r.Header["Content-Encoding"]) > 0:
		return &decide.Body{Unread: true}, 0
	}
	var buffer bytes.Buffer
	whole := false
	for !whole && buffer.Len() <= decide.MaxBody && b.take(bodyStep) {
		held += bodyStep
		_, err := io.CopyN(&buffer, r.Body, bodyStep)
		if whole = errors.Is(err, io.EOF); err != nil && !whole {
			break
		}
	}
	read := buffer.Bytes()
	if !whole || len(read) > decide.MaxBody {
		r.Body = joined{io.MultiReader(bytes.NewReader(read), r.Body), r.Body}
		return &decide.Body{Unread: true}, held
	}
	r.Body = joined{bytes.NewReader(read), r.Body}
	// What goes out is what was read: its length is known, and nothing is read again.
	r.ContentLength, r.TransferEncoding, r.Trailer = int64(len(read)), nil, nil
	r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(read)), nil }
	return &decide.Body{Bytes: read}, held
}

// joined is a body that was read, and its end.
type joined struct {
	io.Reader
	io.Closer
}
