// Package problem says of a failure what may be known outside: its status, its
// code and its text. It decides nothing, and a fault of ours keeps its text to
// itself.
package problem

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
	case task.InputConflict, task.Cancelled, task.ApprovalExpired, task.ApprovalDenied:
		return http.StatusConflict
	case task.InputInvalid, task.InputPolicy, task.InputRepository:
		return http.StatusUnprocessableEntity
	case task.LimitSize:
		return http.StatusRequestEntityTooLarge
	case task.LimitTime, task.LimitMemory, task.LimitPIDs, task.LimitDisk, task.LimitOutput, task.LimitNames, task.LimitConnections, task.LimitInodes, task.LimitFiles, task.LimitTurns, task.LimitSpend:
		return http.StatusConflict
	case task.PolicyDenied, task.PolicyAddress, task.PolicyNameMismatch, task.PolicyProtocol, task.PolicyCredential, task.PolicyFiles, task.PolicyCeiling, task.PolicyOutput, task.PolicyModel:
		return http.StatusForbidden
	case task.EgressUnresolved, task.EgressUnreachable, task.EgressUntrusted:
		return http.StatusFailedDependency
	case task.CheckoutFailed, task.SetupFailed, task.AgentFailed, task.ModelRefused, task.ModelLimited, task.ModelFaulty, task.ModelSilent, task.ExportFailed, task.WorkspaceGone, task.VerifyFailed, task.PatchFailed:
		return http.StatusUnprocessableEntity
	case task.InfraSandboxLost:
		return http.StatusGone
	case task.InfraWorkerLost, task.InfraEgressAway, task.InfraEgressRestarted, task.InfraControlAway, task.InfraCredential:
		return http.StatusServiceUnavailable
	case task.InfraStorage:
		return http.StatusInsufficientStorage
	case task.LimitRequests:
		return http.StatusTooManyRequests
	case task.InfraInternal, task.InfraExhausted, task.InfraSandboxCreate, task.InfraMachine, task.InfraVault, task.InfraSelfTest:
		return http.StatusInternalServerError
	}
	return http.StatusInternalServerError
}

// internalText is all that is told outside about a fault of ours.
const internalText = "a fault of the server; its log has more under this request's id"

// Of tells err outside. What is not a *task.Failure is a fault of ours
// and its text stays here.
func Of(err error) *api.Problem {
	if told, ok := errors.AsType[*Refusal](err); ok {
		return told.Problem
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

// Refusal is a failure on its way out; huma asks it for its status.
type Refusal struct {
	Problem *api.Problem // what is told
	Cause   error        // what is not, but is logged
}

// Error is the problem's.
func (r *Refusal) Error() string { return r.Problem.Error() }

// Unwrap is for errors.As.
func (r *Refusal) Unwrap() error { return r.Cause }

// GetStatus is for huma.
func (r *Refusal) GetStatus() int { return r.Problem.Status }

// ContentType is for huma.
func (r *Refusal) ContentType(string) string { return api.ProblemType }

// Refuse turns any error into a *Refusal.
func Refuse(err error) error {
	if told, ok := errors.AsType[*Refusal](err); ok {
		return told
	}
	return &Refusal{Problem: Of(err), Cause: err}
}

// Invalid names one wrong field of the request.
func Invalid(field, text string) error {
	return WrongField(task.Fail(task.InputInvalid, field+": "+text, nil), field, text)
}

// WrongField adds a field's name to a failure.
func WrongField(err error, field, text string) error {
	p := Of(err)
	p.Errors = []api.FieldProblem{{Field: field, Text: text}}
	return &Refusal{Problem: p, Cause: err}
}

// NotFound is the answer for what never was, is gone, or is another's: the
// three can't be told apart.
func NotFound(kind, id string) error {
	return Refuse(task.Fail(task.InputNotFound, "no "+kind+" "+Quote(id), nil))
}

// Quote shortens what a client sent, for a text.
func Quote(s string) string {
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

// Translated tells a failure of huma's own validation. The values a client
// sent are left out: one of them may be a secret in the wrong place.
func Translated(e *huma.ErrorModel) *api.Problem {
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
