package api

import "strings"

// ProblemType is the media type of a Problem.
const ProblemType = "application/problem+json"

// Problem tells a failure (RFC 9457). Code is the reason code; it, not the
// text, is what programs decide by. A problem never holds a secret or the
// server's internals.
type Problem struct {
	Type    string         `json:"type" doc:"Always about:blank."`
	Title   string         `json:"title" doc:"The status in words."`
	Status  int            `json:"status"`
	Detail  string         `json:"detail,omitempty" doc:"What happened and what to do."`
	Code    string         `json:"code" doc:"The reason code, such as input.invalid."`
	Request string         `json:"request,omitempty" doc:"Id of the request in the server's log."`
	Errors  []FieldProblem `json:"errors,omitempty" doc:"The fields that are wrong."`
}

// FieldProblem says what is wrong with one field.
type FieldProblem struct {
	Field string `json:"field" doc:"Such as body.repo.url, or policy:12 for a line of the policy."`
	Text  string `json:"text"`
}

// Error gives the code, the detail and the fields.
func (p *Problem) Error() string {
	var s strings.Builder
	s.WriteString(p.Code)
	if p.Detail != "" {
		s.WriteString(": " + p.Detail)
	}
	for i, f := range p.Errors {
		if strings.Contains(p.Detail, f.Text) {
			continue
		}
		if i == 0 {
			s.WriteString(":")
		} else {
			s.WriteString(";")
		}
		s.WriteString(" " + f.Field + ": " + f.Text)
	}
	return s.String()
}

// ExitCode is the exit code of the command line for a reason code: 0 none, 10
// agent failed, 11 verification failed, 12 denied by policy, 13 limit reached,
// 14 approval, 15 infrastructure, 16 cancelled, 17 checkout or setup failed, 2
// usage, 1 anything else.
func ExitCode(code string) int {
	class, _, _ := strings.Cut(code, ".")
	switch class {
	case "":
		return 0
	case "agent":
		return 10
	case "verify":
		return 11
	case "policy", "egress":
		return 12
	case "limit":
		return 13
	case "approval":
		return 14
	case "infra":
		return 15
	case "cancelled":
		return 16
	case "checkout", "setup":
		return 17
	case "input":
		return 2
	}
	return 1
}
