package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/show"
	"github.com/cofferdam/cofferdam/internal/supervise"
)

// usageError is a command line that can't be carried out.
type usageError struct{ text string }

func (e *usageError) Error() string { return e.text }

func usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// exitError ends the program with a code; whatever there was to say was said.
type exitError struct{ code int }

func (e *exitError) Error() string { return fmt.Sprintf("exit %d", e.code) }

// codeFailed is the code of failures that have none of their own.
const codeFailed = "cli.failed"

// problem is a failure of the command line itself, with a reason code.
func problem(code, format string, args ...any) error {
	return &api.Problem{Code: code, Detail: fmt.Sprintf(format, args...)}
}

// describe gives an error's reason code and its text for people.
func describe(err error) (code, detail string) {
	var p *api.Problem
	var f *supervise.Fault
	var u *usageError
	var n *net.OpError
	switch {
	case errors.As(err, &p):
		// What was wrapped around the problem stays; the code is told apart.
		plain := *p
		plain.Code = ""
		return p.Code, strings.Replace(err.Error(), p.Error(), strings.TrimPrefix(plain.Error(), ": "), 1)
	case errors.As(err, &f):
		return f.Code, f.Error()
	case errors.As(err, &u):
		return "input.invalid", u.text
	case errors.Is(err, context.Canceled):
		return codeFailed, "interrupted"
	case errors.As(err, &n):
		return "infra.control_plane_away", err.Error()
	}
	return codeFailed, err.Error()
}

// ExitCode is the exit code for what Execute returned.
func ExitCode(err error) int {
	var e *exitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.code
	}
	code, _ := describe(err)
	if n := api.ExitCode(code); n != 0 {
		return n
	}
	return 1
}

// failureJSON is how a failure looks in a document.
type failureJSON struct {
	Code   string `json:"code"`
	Detail string `json:"detail"`
}

func failureOf(err error) failureJSON {
	code, detail := describe(err)
	return failureJSON{code, detail}
}

// report prints a failure: a document on the standard output with --json, a
// line for people on the standard error otherwise.
func (a *app) report(err error, asJSON bool) {
	if _, ok := errors.AsType[*exitError](err); ok {
		return
	}
	f := failureOf(err)
	if asJSON {
		_ = printJSON(a.Out, struct {
			Error failureJSON `json:"error"`
		}{f})
		return
	}
	if f.Code == codeFailed {
		fmt.Fprintf(a.Err, "cofferdam: %s\n", show.Text(f.Detail))
		return
	}
	fmt.Fprintf(a.Err, "cofferdam: %s (%s)\n", show.Text(f.Detail), show.Line(f.Code))
}
