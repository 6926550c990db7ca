package cli

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cofferdam/cofferdam/api"
)

func (s *site) createSandbox(w http.ResponseWriter, r *http.Request) {
	var req api.SandboxRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, 400, "input.invalid", err.Error())
		return
	}
	b := api.Sandbox{ID: req.ID, Owner: "tester", Worker: "w", State: "live", Network: req.Policy != "", CreatedAt: time.Now(), Commands: []api.CommandStatus{}}
	if req.Limits != nil {
		b.Limits = *req.Limits
	}
	if err := os.MkdirAll(s.inside(b.ID, "/workspace"), 0o755); err != nil {
		refuse(w, 500, "infra.storage", err.Error())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sandboxes[b.ID] = b
	answer(w, 201, b)
}

func (s *site) inside(id, path string) string { return filepath.Join(s.dir, id, path) }

func (s *site) listSandboxes(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := api.SandboxList{Sandboxes: []api.Sandbox{}}
	for _, b := range s.sandboxes {
		list.Sandboxes = append(list.Sandboxes, b)
	}
	answer(w, 200, list)
}

func (s *site) withSandbox(h func(http.ResponseWriter, *http.Request, api.Sandbox)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		b, ok := s.sandboxes[r.PathValue("id")]
		s.mu.Unlock()
		if !ok {
			refuse(w, 404, "input.not_found", "no sandbox "+r.PathValue("id"))
			return
		}
		h(w, r, b)
	}
}

func (s *site) removeSandbox(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sandboxes, r.PathValue("id"))
	w.WriteHeader(204)
}

// exec runs the command to its end and gives the first bytes of its output
// inline; the rest has to be fetched as a stream.
func (s *site) exec(w http.ResponseWriter, r *http.Request, b api.Sandbox) {
	var req api.ExecRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		refuse(w, 400, "input.invalid", err.Error())
		return
	}
	if req.Stdin {
		s.awaitInput(w, b, req)
		return
	}
	st, out, errs := s.runNow(b, req, nil)
	res := api.ExecResult{Command: st, Output: []api.Chunk{}, Done: true}
	if len(errs) > 0 {
		res.Output = append(res.Output, api.NewChunk(2, 0, errs))
	}
	first := out
	if len(first) > 4 {
		first, res.Done = first[:4], false
	}
	if len(first) > 0 {
		res.Output = append(res.Output, api.NewChunk(1, 0, first))
	}
	res.Next = int64(len(first))
	answer(w, 200, res)
}

// runNow runs a command to its end.
func (s *site) runNow(b api.Sandbox, req api.ExecRequest, input []byte) (st api.CommandStatus, out, errs []byte) {
	cmd := exec.Command(req.Argv[0], req.Argv[1:]...)
	cmd.Dir = s.inside(b.ID, "/workspace")
	for name, value := range req.Env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(input), &stdout, &stderr
	st = api.CommandStatus{ID: req.ID, Phase: api.CommandExited, Started: true}
	err := cmd.Run()
	var ee *exec.ExitError
	switch {
	case errors.As(err, &ee):
		ws := ee.Sys().(syscall.WaitStatus)
		st.ExitCode = ws.ExitStatus()
		if ws.Signaled() {
			st.ExitCode, st.Signal = -1, int(ws.Signal())
		}
	case err != nil:
		st.ExitCode, st.Error = -1, err.Error()
	}
	if req.TimeoutSeconds > 0 {
		st.ExitCode, st.Signal, st.TimedOut, st.Reason = -1, 9, true, "limit.time"
	}
	_ = os.WriteFile(s.inside(b.ID, "status"), must(json.Marshal(st)), 0o600)
	_ = os.WriteFile(s.inside(b.ID, "output"), stdout.Bytes(), 0o600)
	return st, stdout.Bytes(), stderr.Bytes()
}

func (s *site) execOutput(w http.ResponseWriter, r *http.Request, b api.Sandbox) {
	offset, _ := strconv.ParseInt(r.URL.Query().Get("offset"), 10, 64)
	if s.fed(r) {
		s.fedOutput(w, r)
		return
	}
	data, _ := os.ReadFile(s.inside(b.ID, "output"))
	st, _ := os.ReadFile(s.inside(b.ID, "status"))
	var frames []byte
	for int(offset) < len(data) {
		n := min(100, len(data)-int(offset))
		frames, _ = api.AppendFrame(frames, api.Frame{Fd: 1, Offset: offset, Data: data[offset : int(offset)+n]})
		offset += int64(n)
	}
	frames, _ = api.AppendFrame(frames, api.Frame{Fd: 0, Offset: offset, Data: st})
	_, _ = w.Write(frames)
}

func (s *site) putFiles(w http.ResponseWriter, r *http.Request, b api.Sandbox) {
	in := tar.NewReader(r.Body)
	dir := s.inside(b.ID, r.URL.Query().Get("dir"))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		refuse(w, 500, "infra.storage", err.Error())
		return
	}
	for {
		h, err := in.Next()
		if err == io.EOF {
			w.WriteHeader(204)
			return
		}
		if err != nil {
			refuse(w, 400, "input.invalid", err.Error())
			return
		}
		at := filepath.Join(dir, h.Name)
		switch h.Typeflag {
		case tar.TypeDir:
			err = os.MkdirAll(at, 0o755)
		case tar.TypeSymlink:
			err = os.Symlink(h.Linkname, at)
		default:
			var data []byte
			if data, err = io.ReadAll(in); err == nil {
				err = os.WriteFile(at, data, fs.FileMode(h.Mode))
			}
		}
		if err != nil {
			refuse(w, 400, "input.invalid", err.Error())
			return
		}
	}
}

func (s *site) getFiles(w http.ResponseWriter, r *http.Request, b api.Sandbox) {
	path := r.URL.Query().Get("path")
	if path == "/hostile" {
		hostile(w)
		return
	}
	at := s.inside(b.ID, path)
	if _, err := os.Stat(at); err != nil {
		refuse(w, 404, "input.not_found", "no "+path)
		return
	}
	out := tar.NewWriter(w)
	_ = filepath.Walk(at, func(p string, info fs.FileInfo, err error) error {
		if err != nil {
			return err
		}
		link, _ := os.Readlink(p)
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Name = filepath.Base(at) + strings.TrimPrefix(p, at)
		if err := out.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		data, err := os.ReadFile(p)
		if err == nil {
			_, err = out.Write(data)
		}
		return err
	})
	_ = out.Close()
}
