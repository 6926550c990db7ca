package server

import (
	"context"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/task"
)

// FileDenials is the record of what was refused on protected files. Implemented
// by store.
type FileDenials interface {
	FileDenials(ctx context.Context, taskID string) ([]task.FileDenial, error)
}

func (s *Server) describeDenials() {
	register(s, operation.Operation{
		ID: "list-file-denials", Method: http.MethodGet, Path: "/v1/tasks/{id}/files", Access: operation.Users,
		Summary: "What was refused on protected files in a task's sandboxes",
	}, s.listFileDenials)
}

type denialsOutput struct{ Body api.FileDenialList }

func (s *Server) listFileDenials(ctx context.Context, in *taskPath) (*denialsOutput, error) {
	t, err := s.task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	list, err := s.need.Denials.FileDenials(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	out := &denialsOutput{api.FileDenialList{Denials: []api.FileDenial{}}}
	for _, d := range list {
		out.Body.Denials = append(out.Body.Denials, api.FileDenial(d))
	}
	return out, nil
}
