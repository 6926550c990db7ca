package server

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/cofferdam/cofferdam/internal/server/problem"
)

// problems turns every failure, huma's own and ours, into an api.Problem just
// before it is written.
func (s *Server) problems(ctx huma.Context, _ string, v any) (any, error) {
	switch e := v.(type) {
	case *problem.Refusal:
		s.logFailure(ctx.Context(), e)
		p := *e.Problem
		p.Request = requestID(ctx.Context())
		return &p, nil
	case *huma.ErrorModel:
		p := problem.Translated(e)
		p.Request = requestID(ctx.Context())
		if p.Status >= 500 {
			s.log.ErrorContext(ctx.Context(), "request failed", "request", p.Request, "error", e.Error(), "details", e.Errors)
		}
		return p, nil
	}
	return v, nil
}

// logFailure keeps the cause of what was told only by its code.
func (s *Server) logFailure(ctx context.Context, e *problem.Refusal) {
	if e.Problem.Status >= 500 && e.Cause != nil && ctx.Err() == nil {
		s.log.ErrorContext(ctx, "request failed", "request", requestID(ctx), "code", e.Problem.Code, "error", e.Cause.Error())
	}
}
