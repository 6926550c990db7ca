package server

import (
	"context"
	"io"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/server/files"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/paced"
)

func (s *Server) describeFiles() {
	desk := files.Desk{Files: s.need.Single}
	const entry, folder, content = "/v1/sandboxes/{id}/files/entry", "/v1/sandboxes/{id}/files/folder", "/v1/sandboxes/{id}/files/content"
	owned(s, operation.Operation{ID: "stat-file", Method: http.MethodGet, Path: entry, Access: operation.Users, Summary: "What stands at a path of a sandbox"}, desk.Stat)
	owned(s, operation.Operation{ID: "remove-file", Method: http.MethodDelete, Path: entry, Access: operation.Users, Summary: "Remove a file, a link or a folder"}, desk.Remove)
	owned(s, operation.Operation{
		ID: "rename-file", Method: http.MethodPost, Path: entry + "/rename", Access: operation.Users, Status: http.StatusOK, Summary: "Move a path",
	}, desk.Rename)
	owned(s, operation.Operation{
		ID: "chmod-file", Method: http.MethodPost, Path: entry + "/mode", Access: operation.Users, Status: http.StatusOK, Summary: "Change the mode of a file or folder",
	}, desk.Chmod)
	owned(s, operation.Operation{ID: "list-folder", Method: http.MethodGet, Path: folder, Access: operation.Users, Summary: "What lies in a folder, by name, in pages"}, desk.List)
	owned(s, operation.Operation{ID: "make-folder", Method: http.MethodPost, Path: folder, Access: operation.Users, Status: http.StatusOK, Summary: "Make a folder"}, desk.Mkdir)
	register(s, operation.Operation{
		ID: "read-file", Method: http.MethodGet, Path: content, Access: operation.Users, Kind: api.FileType,
		Summary: "Bytes of a regular file; the header " + api.FileHeader + " has what is said of it",
	}, func(ctx context.Context, in *files.ReadQuery) (*raw, error) { return s.readFile(ctx, desk, in) })
	register(s, operation.Operation{
		ID: "write-file", Method: http.MethodPut, Path: content, Access: operation.Users, Status: http.StatusOK, Max: api.MaxFile, Body: api.FileType,
		Summary: "Give a path the body, whole or not at all, after its size and hash were checked",
	}, func(ctx context.Context, in *writeFileInput) (*files.InfoOutput, error) {
		if err := s.own(ctx, in.ID); err != nil {
			return nil, err
		}
		out, err := desk.Write(ctx, &in.WriteQuery, in.body)
		return out, bodyFailure(err)
	})
}

// inSandbox is an input of an operation on a sandbox.
type inSandbox[I any] interface {
	*I
	Sandbox() string
}

// owned registers an operation on a sandbox that the caller may work in.
func owned[I any, P inSandbox[I], O any](s *Server, op operation.Operation, handler func(context.Context, *I) (*O, error)) {
	register(s, op, func(ctx context.Context, in *I) (*O, error) {
		if err := s.own(ctx, P(in).Sandbox()); err != nil {
			return nil, err
		}
		return handler(ctx, in)
	})
}

type writeFileInput struct {
	files.WriteQuery
	upload
}

func (s *Server) readFile(ctx context.Context, desk files.Desk, in *files.ReadQuery) (*raw, error) {
	if err := s.own(ctx, in.ID); err != nil {
		return nil, err
	}
	header, body, err := desk.Read(ctx, in)
	if err != nil {
		return nil, err
	}
	return s.stream(api.FileType, header, func(ctx context.Context, w *paced.Answer) error {
		defer body.Close()
		defer context.AfterFunc(ctx, func() { _ = body.Close() })()
		_, err := io.Copy(w, body)
		return err
	}), nil
}
