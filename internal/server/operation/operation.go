// Package operation is how operations of the API are described and guarded,
// whichever part of the server answers them.
//
// Words. An operation is one method on one path; its access says who may call
// it, and the zero access refuses everyone. A door is where operations are
// registered; a desk is a part of the server that registers its own.
package operation

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/identity"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Access says who may call an operation. The zero Access refuses everyone.
type Access int

// Who may call.
const (
	Nobody   Access = iota
	Public          // no token
	Users           // users and admins
	Admins          // admins
	Gateways        // gateways of workers
)

// roles that have the access.
func (a Access) roles() []identity.Role {
	switch a {
	case Users:
		return []identity.Role{identity.User, identity.Admin}
	case Admins:
		return []identity.Role{identity.Admin}
	case Gateways:
		return []identity.Role{identity.Gateway}
	}
	return nil
}

// Operation describes one operation of the API.
type Operation struct {
	ID      string
	Method  string
	Path    string
	Access  Access
	Summary string
	Status  int    // of success; 0: 200 or 204
	Kind    string // media type of a streamed answer; empty: JSON
	Body    string // media type of a streamed request; empty: JSON or none
	Max     int64  // bytes of the request; 0: 1 MiB
}

// Desk is a part of the server that registers its own operations.
type Desk interface{ Describe(d *Door) }

// Door is where operations are registered.
type Door struct {
	API        huma.API
	Identities *identity.Identities
	// Failed is told of every failure that is the server's own; Refused writes a
	// problem outside of huma; Seen learns who asks.
	Failed  func(ctx context.Context, r *problem.Refusal)
	Refused func(w http.ResponseWriter, r *http.Request, err error)
	Seen    func(ctx context.Context, user string)

	operations []Operation
}

// Operations are those that were registered, in order.
func (d *Door) Operations() []Operation { return d.operations }

// Register adds an operation to the API and its description.
func Register[I, O any](d *Door, op Operation, handler func(context.Context, *I) (*O, error)) {
	schema := d.API.OpenAPI().Components.Schemas.Schema(reflect.TypeFor[api.Problem](), true, "Problem")
	h := huma.Operation{
		OperationID: op.ID, Method: op.Method, Path: op.Path, Summary: op.Summary, DefaultStatus: op.Status,
		MaxBodyBytes: op.Max, BodyReadTimeout: -1, // front paces bodies
		RejectUnknownQueryParameters: true,
		Responses: map[string]*huma.Response{"default": {
			Description: "A problem; code says which.",
			Content:     map[string]*huma.MediaType{api.ProblemType: {Schema: schema}},
		}},
		Metadata: map[string]any{"access": op.Access},
	}
	if op.Access != Public {
		h.Security = []map[string][]string{{"bearer": {}}}
	}
	binary := func() *huma.Schema { return &huma.Schema{Type: huma.TypeString, Format: "binary"} }
	if op.Kind != "" {
		h.Responses["200"] = &huma.Response{Description: "OK", Content: map[string]*huma.MediaType{op.Kind: {Schema: binary()}}}
	}
	if op.Body != "" {
		h.RequestBody = &huma.RequestBody{Required: true, Content: map[string]*huma.MediaType{op.Body: {Schema: binary()}}}
	}
	h.Middlewares = huma.Middlewares{d.admit(op.Access)}
	huma.Register(d.API, h, func(ctx context.Context, in *I) (*O, error) {
		out, err := handler(ctx, in)
		if err != nil {
			return nil, problem.Refuse(err)
		}
		return out, nil
	})
	d.operations = append(d.operations, op)
}

type principalKey struct{}

// Who is asking, as the door found out.
func Who(ctx context.Context) identity.Principal {
	p, _ := ctx.Value(principalKey{}).(identity.Principal)
	return p
}

// As is the context of a request by p, which was verified.
func As(ctx context.Context, p identity.Principal) context.Context {
	return context.WithValue(ctx, principalKey{}, p)
}

// admit lets in who has the access, before anything of the body is read.
func (d *Door) admit(a Access) func(huma.Context, func(huma.Context)) {
	roles := a.roles()
	return func(ctx huma.Context, next func(huma.Context)) {
		if a == Public {
			next(ctx)
			return
		}
		p, err := d.Verify(ctx.Context(), ctx.Header("Authorization"), roles)
		if err != nil {
			r, w := humago.Unwrap(ctx)
			d.Refused(w, r, err)
			return
		}
		next(huma.WithValue(ctx, principalKey{}, p))
	}
}

// Verify says who holds the token of an Authorization header.
func (d *Door) Verify(ctx context.Context, header string, roles []identity.Role) (identity.Principal, error) {
	if len(roles) == 0 {
		return identity.Principal{}, problem.Refuse(task.Fail(task.PolicyDenied, "nobody may do this", nil))
	}
	scheme, token, _ := strings.Cut(header, " ")
	if !strings.EqualFold(scheme, "Bearer") {
		token = ""
	}
	p, err := d.Identities.Verify(ctx, identity.SecretFrom(token), roles...)
	if err != nil {
		told := problem.Refuse(err)
		if r, ok := errors.AsType[*problem.Refusal](told); ok {
			d.Failed(ctx, r)
		}
		return identity.Principal{}, told
	}
	d.Seen(ctx, p.User)
	return p, nil
}
