// Package refusal is what a program inside reads when the gateway refuses it:
// the reason, what was asked for and what to do, and nothing about us.
package refusal

import (
	"cmp"
	"net/http"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Problem is what a refused program reads (RFC 9457). It tells the reason and
// what was asked for, and nothing about us.
type Problem struct {
	Title  string      `json:"title"`  // empty: after the code
	Status int         `json:"status"` // 0: after the code
	Code   task.Reason `json:"code"`
	Rule   string      `json:"rule,omitempty"`
	Host   string      `json:"host"`
	Port   uint16      `json:"port"`
	Method string      `json:"method,omitempty"`
	Path   string      `json:"path,omitempty"`
	Hint   string      `json:"hint"`

	// Of the errors of AWS in JSON, for its clients alone.
	Type    task.Reason `json:"__type,omitempty"`
	Message string      `json:"message,omitempty"`
}

// Hint says what to do about a reason.
func Hint(reason task.Reason) string {
	switch reason {
	case task.PolicyDenied:
		return "No rule of this task's policy allows this host and port. Do not retry; ask for a rule if it is needed."
	case task.PolicyAddress:
		return "The host stands for an address that sandboxes never reach. Do not retry."
	case task.PolicyNameMismatch:
		return "The name of the connection, the TLS server name and the Host header must be the same."
	case task.PolicyProtocol:
		return "This protocol does not pass. Use HTTP/1.1, or TLS with a server name."
	case task.PolicyCredential:
		return "A credential is not lent to this request, or something else stands in its place. Send the placeholder only where its tool puts it."
	case task.PolicyModel:
		return "This task may ask other models only, or it can't be told which model this request asks. Do not retry; ask for one that the policy allows, as JSON that is not compressed."
	case task.EgressUntrusted:
		return "The host is allowed, but its certificate is not valid for this name."
	case task.InfraControlAway:
		return "What this needs can't be had now: a credential, a person's answer, or word of a budget. Try again later."
	case task.ApprovalDenied:
		return "A person was asked and said no. Do not retry."
	case task.ApprovalExpired:
		return "A person was asked and did not answer in time."
	case task.LimitRequests:
		return "Too many connections wait for a person's answer. Wait for those first."
	case task.LimitSpend:
		return "The budget for models is used up, or this request could not be counted under it. Do not retry."
	case task.InfraCredential:
		return "Who mints the credential for this request does not answer as it should. Try again later."
	case task.InfraStorage:
		return "The decision can't be recorded now. Try again later."
	case task.EgressUnresolved:
		return "The host is allowed, but its name has no address."
	case task.EgressUnreachable:
		return "The host is allowed, but it does not answer."
	}
	return "The connection was refused."
}

// Write answers a request with the problem, completed after its code.
func (p Problem) Write(w http.ResponseWriter) {
	p.fill()
	p.writeJSON(w)
}

func (p *Problem) fill() {
	title, status := titleOf(p.Code)
	p.Title, p.Status, p.Hint = cmp.Or(p.Title, title), cmp.Or(p.Status, status), cmp.Or(p.Hint, Hint(p.Code))
}

func titleOf(code task.Reason) (string, int) {
	if code == task.LimitSpend { // of a status after which programs don't try again
		return "budget used up", http.StatusForbidden
	}
	switch code.Class() {
	case "egress":
		return "not reachable", http.StatusBadGateway
	case "approval":
		return "not approved", http.StatusForbidden
	case "limit":
		return "too many", http.StatusTooManyRequests
	case "infra":
		return "not possible now", http.StatusServiceUnavailable
	}
	return "refused by policy", http.StatusForbidden
}
