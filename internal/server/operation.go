package server

import (
	"context"
	"errors"
	"io"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/server/paced"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/task"
)

// access says who may call an operation. The zero access refuses everyone.
type access int

const (
	nobody access = iota
	public        // no token
	users         // users and admins
	admins
	gateways
)

// roles that have the access.
func (a access) roles() []identity.Role {
	switch a {
	case users:
		return []identity.Role{identity.User, identity.Admin}
	case admins:
		return []identity.Role{identity.Admin}
	case gateways:
		return []identity.Role{identity.Gateway}
	}
	return nil
}

// operation describes one operation of the API.
type operation struct {
	id      string
	method  string
	path    string
	access  access
	summary string
	status  int    // of success; 0: 200 or 204
	kind    string // media type of a streamed answer; empty: JSON
	body    string // media type of a streamed request; empty: JSON or none
	max     int64  // bytes of the request; 0: 1 MiB
}

// register adds an operation to the API and its description.
func register[I, O any](s *Server, op operation, handler func(context.Context, *I) (*O, error)) {
	schema := s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[api.Problem](), true, "Problem")
	h := huma.Operation{
		OperationID: op.id, Method: op.method, Path: op.path, Summary: op.summary, DefaultStatus: op.status,
		MaxBodyBytes: op.max, BodyReadTimeout: -1, // front paces bodies
		RejectUnknownQueryParameters: true,
		Responses: map[string]*huma.Response{"default": {
			Description: "A problem; code says which.",
			Content:     map[string]*huma.MediaType{api.ProblemType: {Schema: schema}},
		}},
		Metadata: map[string]any{"access": op.access},
	}
	if op.access != public {
		h.Security = []map[string][]string{{"bearer": {}}}
	}
	binary := func() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "binary"} }
	if op.kind != "" {
		h.Responses["200"] = &huma.Response{Description: "OK", Content: map[string]*huma.MediaType{op.kind: {Schema: binary()}}}
	}
	if op.body != "" {
		h.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{op.body: {Schema: binary()}}}
	}
	h.Middlewares = huma.Middlewares{s.admit(op.access)}
	huma.Register(s.api, h, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, problem.Refuse(err)
		}
		return out, nil
	})
	s.operations = append(s.operations, op)
}

type principalKey struct{}

// who is asking, as admit found out.
func who(ctx context.Context) identity.Principal {
	p, _ := ctx.Value(principalKey{}).(identity.Principal)
	return p
}

// admit lets in who has the access, before anything of the body is read.
func (s *Server) admit(a access) func(huma.Context, func(huma.Context)) {
	roles := a.roles()
	return func(ctx huma.Context, next func(huma.Context)) {
		if a == public {
			next(ctx)
			return
		}
		p, err := s.verify(ctx.Context(), ctx.Header("Authorization"), roles)
		if err != nil {
			r, w := humago.Unwrap(ctx)
			s.writeProblem(w, r, err)
			return
		}
		next(huma.WithValue(ctx, principalKey{}, p))
	}
}

// verify says who holds the token of an Authorization header.
func (s *Server) verify(ctx context.Context, header string, roles []identity.Role) (identity.Principal, error) {
	if len(roles) == 0 {
		return identity.Principal{}, problem.Refuse(task.Fail(task.PolicyDenied, "nobody may do this", nil))
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	p, err := s.identities.Verify(ctx, identity.SecretFrom(token), roles...)
	if err != nil {
		told := problem.Refuse(err)
		if r, ok := errors.AsType[*problem.Refusal](told); ok {
			s.logFailure(ctx, r)
		}
		return identity.Principal{}, told
	}
	if note, ok := ctx.Value(seenKey{}).(*seen); ok {
		note.user = p.User
	}
	return p, nil
}

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
