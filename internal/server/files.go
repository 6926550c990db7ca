package server

import (
	"context"
	"io"
	"net/http"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/server/files"
	"github.com/cofferdam/cofferdam/internal/server/paced"
)

func (s *Server) describeFiles() {
	desk := files.Desk{Files: s.need.Single}
	const entry, folder, content = "/v1/sandboxes/{id}/files/entry", "/v1/sandboxes/{id}/files/folder", "/v1/sandboxes/{id}/files/content"
	owned(s, operation{id: "stat-file", method: http.MethodGet, path: entry, access: users, summary: "What stands at a path of a sandbox"}, desk.Stat)
	owned(s, operation{id: "remove-file", method: http.MethodDelete, path: entry, access: users, summary: "Remove a file, a link or a folder"}, desk.Remove)
	owned(s, operation{
		id: "rename-file", method: http.MethodPost, path: entry + "/rename", access: users, status: http.StatusOK, summary: "Move a path",
	}, desk.Rename)
	owned(s, operation{
		id: "chmod-file", method: http.MethodPost, path: entry + "/mode", access: users, status: http.StatusOK, summary: "Change the mode of a file or folder",
	}, desk.Chmod)
	owned(s, operation{id: "list-folder", method: http.MethodGet, path: folder, access: users, summary: "What lies in a folder, by name, in pages"}, desk.List)
	owned(s, operation{id: "make-folder", method: http.MethodPost, path: folder, access: users, status: http.StatusOK, summary: "Make a folder"}, desk.Mkdir)
	register(s, operation{
		id: "read-file", method: http.MethodGet, path: content, access: users, kind: api.FileType,
		summary: "Bytes of a regular file; the header " + api.FileHeader + " has what is said of it",
	}, func(ctx context.Context, in *files.ReadQuery) (*raw, error) { return s.readFile(ctx, desk, in) })
	register(s, operation{
		id: "write-file", method: http.MethodPut, path: content, access: users, status: http.StatusOK, max: api.MaxFile, body: api.FileType,
		summary: "Give a path the body, whole or not at all, after its size and hash were checked",
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
func owned[I any, P inSandbox[I], O any](s *Server, op operation, handler func(context.Context, *I) (*O, error)) {
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
