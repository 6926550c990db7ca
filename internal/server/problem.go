package server

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/task"
)

// statusOf is the one table from reason codes to HTTP statuses. A code that is
// not in it (a newer room's) is told as a fault of ours.
func statusOf(r task.Reason) int {
	switch r {
	case task.InputUnauthed:
		return http.StatusUnauthorized
	case task.InputNotFound:
		return http.StatusNotFound
	case task.InputConflict, task.Cancelled, task.ApprovalExpired:
		return http.StatusConflict
	case task.InputInvalid, task.InputPolicy, task.InputRepository:
		return http.StatusUnprocessableEntity
	case task.LimitSize:
		return http.StatusRequestEntityTooLarge
	case task.LimitTime, task.LimitMemory, task.LimitPIDs, task.LimitDisk, task.LimitOutput, task.LimitNames, task.LimitConnections, task.LimitInodes, task.LimitFiles, task.LimitTurns:
		return http.StatusConflict
	case task.PolicyDenied, task.PolicyAddress, task.PolicyNameMismatch, task.PolicyProtocol, task.PolicyCredential, task.PolicyFiles, task.PolicyCeiling:
		return http.StatusForbidden
	case task.EgressUnresolved, task.EgressUnreachable, task.EgressUntrusted:
		return http.StatusFailedDependency
	case task.CheckoutFailed, task.SetupFailed, task.AgentFailed, task.ModelRefused, task.ModelLimited, task.ModelFaulty, task.ModelSilent, task.ExportFailed, task.WorkspaceGone, task.VerifyFailed, task.PatchFailed:
		return http.StatusUnprocessableEntity
	case task.InfraSandboxLost:
		return http.StatusGone
	case task.InfraWorkerLost, task.InfraEgressAway, task.InfraEgressRestarted, task.InfraControlAway:
		return http.StatusServiceUnavailable
	case task.InfraStorage:
		return http.StatusInsufficientStorage
	case task.LimitRequests:
		return http.StatusTooManyRequests
	case task.InfraInternal, task.InfraExhausted, task.InfraSandboxCreate, task.InfraMachine, task.InfraVault:
		return http.StatusInternalServerError
	}
	return http.StatusInternalServerError
}

// internalText is all that is told outside about a fault of ours.
const internalText = "a fault of the server; its log has more under this request's id"

// problemOf tells err outside. What is not a *task.Failure is a fault of ours
// and its text stays here.
func problemOf(err error) *api.Problem {
	if told, ok := errors.AsType[*refusal](err); ok {
		return told.problem
	}
	reason, text := task.InfraInternal, internalText
	var f *task.Failure
	switch {
	case errors.As(err, &f):
		reason, text = f.Reason, f.Text
		if reason == task.ReasonNone {
			reason = task.InfraInternal
		}
	case errors.Is(err, context.DeadlineExceeded):
		reason, text = task.InfraWorkerLost, "no answer in time"
	}
	status := statusOf(reason)
	return &api.Problem{Type: "about:blank", Title: http.StatusText(status), Status: status, Code: string(reason), Detail: text}
}

// refusal is a failure on its way out; huma asks it for its status.
type refusal struct {
	problem *api.Problem
	cause   error
}

func (r *refusal) Error() string             { return r.problem.Error() }
func (r *refusal) Unwrap() error             { return r.cause }
func (r *refusal) GetStatus() int            { return r.problem.Status }
func (r *refusal) ContentType(string) string { return api.ProblemType }

// refuse turns any error into a refusal.
func refuse(err error) error {
	if told, ok := errors.AsType[*refusal](err); ok {
		return told
	}
	return &refusal{problem: problemOf(err), cause: err}
}

// invalid names one wrong field of the request.
func invalid(field, text string) error {
	return wrongField(task.Fail(task.InputInvalid, field+": "+text, nil), field, text)
}

// wrongField adds a field's name to a failure.
func wrongField(err error, field, text string) error {
	p := problemOf(err)
	p.Errors = []api.FieldProblem{{Field: field, Text: text}}
	return &refusal{problem: p, cause: err}
}

// notFound is the answer for what never was, is gone, or is another's: the
// three can't be told apart.
func notFound(kind, id string) error {
	return refuse(task.Fail(task.InputNotFound, "no "+kind+" "+quote(id), nil))
}

// quote shortens what a client sent, for a text.
func quote(s string) string {
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return `"` + strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '?'
		}
		return r
	}, s) + `"`
}

// problems turns every failure, huma's own and ours, into an api.Problem just
// before it is written.
func (s *Server) problems(ctx huma.Context, _ string, v any) (any, error) {
	switch e := v.(type) {
	case *refusal:
		s.logFailure(ctx.Context(), e)
		p := *e.problem
		p.Request = requestID(ctx.Context())
		return &p, nil
	case *huma.ErrorModel:
		p := translated(e)
		p.Request = requestID(ctx.Context())
		if p.Status >= 500 {
			s.log.ErrorContext(ctx.Context(), "request failed", "request", p.Request, "error", e.Error(), "details", e.Errors)
		}
		return p, nil
	}
	return v, nil
}

// logFailure keeps the cause of what was told only by its code.
func (s *Server) logFailure(ctx context.Context, e *refusal) {
	if e.problem.Status >= 500 && e.cause != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "request failed", "request", requestID(ctx), "code", e.problem.Code, "error", e.cause.Error())
	}
}

// translated tells a failure of huma's own validation. The values a client
// sent are left out: one of them may be a secret in the wrong place.
func translated(e *huma.ErrorModel) *api.Problem {
	p := &api.Problem{Type: "about:blank", Title: http.StatusText(e.Status), Status: e.Status, Detail: e.Detail}
	switch {
	case e.Status == http.StatusRequestEntityTooLarge:
		p.Code = string(task.LimitSize)
	case e.Status >= 500:
		p.Code, p.Detail = string(task.InfraInternal), internalText
		return p
	default:
		p.Code = string(task.InputInvalid)
	}
	for _, d := range e.Errors {
		if d != nil {
			p.Errors = append(p.Errors, api.FieldProblem{Field: d.Location, Text: d.Message})
		}
	}
	if len(p.Errors) > 0 {
		p.Detail = p.Errors[0].Field + ": " + p.Errors[0].Text
	}
	return p
}
