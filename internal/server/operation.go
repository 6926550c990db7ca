package server

import (
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/paced"
	"github.com/cofferdam/cofferdam/internal/task"
)

// register adds an operation to the API and its description.
func register[I, O any](s *Server, op operation.Operation, handler func(context.Context, *I) (*O, error)) {
	operation.Register(s.door, op, handler)
}

// who is asking, as the door found out.
func who(ctx context.Context) identity.Principal { return operation.Who(ctx) }

// upload is embedded by inputs whose body is streamed to the room behind.
type upload struct {
	body io.Reader
}

// Resolve takes the body without reading it.
func (u *upload) Resolve(ctx huma.Context) []error {
	r, w := humago.Unwrap(ctx)
	u.body = r.Body
	if limit := ctx.Operation().MaxBodyBytes; limit > 0 {
		if r.ContentLength > limit {
			u.body = &tooLarge{limit}
		} else {
			u.body = http.MaxBytesReader(w, r.Body, limit)
		}
	}
	return nil
}

// tooLarge is a body that announced more than allowed.
type tooLarge struct{ limit int64 }

// Read fails as http.MaxBytesReader does.
func (t *tooLarge) Read([]byte) (int, error) { return 0, &http.MaxBytesError{Limit: t.limit} }

// bodyFailure tells why a body could not be taken.
func bodyFailure(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return task.Fail(task.LimitSize, "the upload is larger than allowed", err)
	}
	return err
}

// raw is a streamed answer: send is called after the headers were set and
// writes the body. An error breaks the connection off, so that the client
// knows that the end is missing.
type raw struct {
	Body func(huma.Context)
}

// stream answers with what send writes.
func (s *Server) stream(kind string, header map[string]string, send func(ctx context.Context, w *paced.Answer) error) *raw {
	return s.streamAs(http.StatusOK, kind, header, send)
}

// streamAs is stream with another status.
func (s *Server) streamAs(status int, kind string, header map[string]string, send func(ctx context.Context, w *paced.Answer) error) *raw {
	return &raw{Body: func(hc huma.Context) {
		_, rw := humago.Unwrap(hc)
		w, ok := rw.(*paced.Answer)
		if !ok {
			panic("server: the front is missing")
		}
		w.Header().Set("Content-Type", kind)
		for k, v := range header {
			w.Header().Set(k, v)
		}
		w.WriteHeader(status)
		ctx, cancel := context.WithCancelCause(hc.Context())
		defer cancel(nil)
		defer context.AfterFunc(s.closing, func() { cancel(errClosing) })()
		if err := send(ctx, w); err != nil {
			if ctx.Err() == nil {
				s.log.WarnContext(ctx, "stream broken off", "request", requestID(ctx), "error", err.Error())
			}
			panic(http.ErrAbortHandler)
		}
	}}
}

var errClosing = errors.New("the server is stopping")
