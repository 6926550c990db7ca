package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/server/credentials"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/paced"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/server/translate"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxTar is the largest tar stream that is taken; the sandbox's own disk limit
// is usually smaller.
const maxTar = 64 << 30

func (s *Server) describeSandboxes() {
	register(s, operation.Operation{
		ID: "create-sandbox", Method: http.MethodPost, Path: "/v1/sandboxes", Access: operation.Users, Max: 2 << 20,
		Status: http.StatusCreated, Summary: "Make a sandbox without a task",
	}, s.createSandbox)
	register(s, operation.Operation{
		ID: "list-sandboxes", Method: http.MethodGet, Path: "/v1/sandboxes", Access: operation.Users,
		Summary: "List one's own sandboxes; an admin's list has everyone's",
	}, s.listSandboxes)
	register(s, operation.Operation{ID: "get-sandbox", Method: http.MethodGet, Path: "/v1/sandboxes/{id}", Access: operation.Users, Summary: "One sandbox and its commands"}, s.getSandbox)
	register(s, operation.Operation{
		ID: "remove-sandbox", Method: http.MethodDelete, Path: "/v1/sandboxes/{id}", Access: operation.Users,
		Summary: "End a sandbox and everything in it",
	}, s.removeSandbox)
	register(s, operation.Operation{
		ID: "put-files", Method: http.MethodPut, Path: "/v1/sandboxes/{id}/files", Access: operation.Users, Max: maxTar,
		Body: "application/x-tar", Summary: "Unpack a tar stream in a sandbox",
	}, s.putFiles)
	register(s, operation.Operation{
		ID: "get-files", Method: http.MethodGet, Path: "/v1/sandboxes/{id}/files", Access: operation.Users, Kind: "application/x-tar",
		Summary: "A file or folder of a sandbox as a tar stream",
	}, s.getFiles)
}

type sandboxPath struct {
	ID string `path:"id" maxLength:"64"`
}

type sandboxOutput struct {
	Location string `header:"Location"`
	Body     api.Sandbox
}

type createSandboxInput struct{ Body api.SandboxRequest }

func (s *Server) createSandbox(ctx context.Context, in *createSandboxInput) (*sandboxOutput, error) {
	p, req := who(ctx), in.Body
	layers, err := s.need.Policies.Layers(ctx, "")
	if err != nil {
		return nil, err
	}
	plan, err := s.need.Policies.Compile(task.Spec{Policy: req.Policy}, layers)
	if err != nil {
		return nil, policyProblem(err)
	}
	if err := credentials.NoneFor(plan.Rules[task.Agent]); err != nil {
		return nil, policyProblem(err)
	}
	if !plan.Unknown[task.Agent].IsZero() {
		return nil, policyProblem(task.Fail(task.InputPolicy, "agent.network.unknown: a sandbox without a task has nobody to ask and no account; leave it out", nil))
	}
	id := req.ID
	if id == "" {
		id = "sb-" + randomName(16)
	}
	req.ID = ""
	canonical, err := json.Marshal(req)
	if err != nil {
		return nil, fmt.Errorf("sandbox request: %w", err)
	}
	sum := sha256.Sum256(canonical)
	digest := "sha256:" + hex.EncodeToString(sum[:])
	owner, first, err := s.need.Owners.ClaimSandbox(ctx, id, p.User, digest)
	if err != nil {
		return nil, err
	}
	if owner != p.User || first != digest {
		return nil, task.Fail(task.InputConflict, "the id "+id+" is taken by another sandbox", nil)
	}
	rules := plan.Rules[task.Agent]
	spec := sandbox.Spec{ID: id, Role: "manual", Root: "host", Network: len(rules) > 0, Sudo: plan.Sudo, Limits: narrowed(plan.Limits, req.Limits, req.Policy != "")}
	spec.Expires = s.now().Add(24 * time.Hour)
	if req.ExpireSeconds > 0 {
		spec.Expires = s.now().Add(time.Duration(req.ExpireSeconds) * time.Second)
	}
	facts := map[string]any{"sandbox": id, "owner": p.User, "policyDigest": plan.Digest, "network": spec.Network}
	if err := s.need.Audit.Record(ctx, "", "sandbox.create/"+id, "sandbox.create", seenBy, facts); err != nil {
		return nil, err
	}
	worker, info, err := s.need.Places.Create(ctx, spec)
	if err != nil {
		return nil, err
	}
	if spec.Network {
		grant := task.Grant{Stage: task.Agent, Sandbox: id, PolicyDigest: plan.Digest, Rules: slices.Clone(rules)}
		if err := s.need.Places.Grant(ctx, grant); err != nil {
			// A sandbox that is not what was asked for must not stay behind.
			return nil, errors.Join(err, s.need.Places.Destroy(context.WithoutCancel(ctx), id))
		}
	}
	return &sandboxOutput{Location: "/v1/sandboxes/" + id, Body: translate.Sandbox(p.User, worker, info)}, nil
}

// seenBy is who tells the facts that the server records.
const seenBy = "control plane"

// narrowed applies a request's limits: below the policy's when there is a
// policy, else instead of the defaults.
func narrowed(l task.Limits, r *api.Limits, policy bool) task.Limits {
	l = l.WithDefaults()
	if r == nil {
		return l
	}
	set := func(into *int64, v int64) {
		if v > 0 && (!policy || v < *into) {
			*into = v
		}
	}
	set(&l.MilliCPU, r.MilliCPU)
	set(&l.Memory, r.Memory)
	set(&l.PIDs, r.PIDs)
	set(&l.Disk, r.Disk)
	set(&l.Output, r.Output)
	set(&l.Inodes, r.Inodes)
	set(&l.Files, r.Files)
	set(&l.Names, r.Names)
	set(&l.Connections, r.Connections)
	set((*int64)(&l.Time), int64(translate.Seconds(r.TimeSeconds)))
	return l
}

type sandboxListOutput struct {
	Lost []string `header:"Cofferdam-Lost-Workers" doc:"Workers that did not answer; their sandboxes are missing."`
	Body api.SandboxList
}

func (s *Server) listSandboxes(ctx context.Context, _ *struct{}) (*sandboxListOutput, error) {
	all, lost := s.need.Places.List(ctx)
	out := &sandboxListOutput{Lost: lost, Body: api.SandboxList{Sandboxes: []api.Sandbox{}}}
	for _, i := range all {
		owner, err := s.need.Owners.SandboxOwner(ctx, i.ID)
		if err != nil && !isNotFound(err) {
			return nil, err
		}
		if who(ctx).May(owner) {
			out.Body.Sandboxes = append(out.Body.Sandboxes, translate.Sandbox(owner, i.Worker, i.Info))
		}
	}
	slices.SortFunc(out.Body.Sandboxes, func(a, b api.Sandbox) int { return strings.Compare(a.ID, b.ID) })
	return out, nil
}

func (s *Server) getSandbox(ctx context.Context, in *sandboxPath) (*sandboxOutput, error) {
	owner, err := s.visible(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	worker, info, err := s.need.Places.Info(ctx, in.ID)
	if isNotFound(err) {
		return nil, problem.NotFound("sandbox", in.ID)
	}
	if err != nil {
		return nil, err
	}
	return &sandboxOutput{Body: translate.Sandbox(owner, worker, info)}, nil
}

// visible refuses a sandbox that is not the principal's. Our own record is
// asked, not the worker: what a stranger learns does not depend on whether the
// sandbox lives.
func (s *Server) visible(ctx context.Context, id string) (owner string, err error) {
	if !sandbox.ValidID(id) {
		return "", problem.NotFound("sandbox", id)
	}
	owner, err = s.need.Owners.SandboxOwner(ctx, id)
	if isNotFound(err) || err == nil && !who(ctx).May(owner) {
		return "", problem.NotFound("sandbox", id)
	}
	return owner, err
}

// own refuses a sandbox that the principal may not work in. A task's sandbox is
// such a one for everybody: a hand from outside would make the task's receipt
// say something untrue.
func (s *Server) own(ctx context.Context, id string) error {
	if owner, ok := s.manual.get(id); ok && who(ctx).May(owner) {
		return nil
	}
	owner, err := s.visible(ctx, id)
	if err != nil {
		return err
	}
	_, info, err := s.need.Places.Info(ctx, id)
	if isNotFound(err) {
		return problem.NotFound("sandbox", id)
	}
	if err != nil {
		return err
	}
	if info.Task != "" {
		return task.Fail(task.PolicyDenied, "sandbox "+id+" works for task "+info.Task+" and for nobody else; to end it, cancel the task", nil)
	}
	s.manual.set(id, owner)
	return nil
}

// manual remembers the owners of sandboxes without a task, which never change,
// so that a command costs no look-up.
type manual struct {
	mu     sync.Mutex
	owners map[string]string
}

// maxManual bounds what is remembered; beyond it everything is looked up anew.
const maxManual = 10000

func (m *manual) get(id string) (string, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	owner, ok := m.owners[id]
	return owner, ok
}

func (m *manual) set(id, owner string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owners == nil || len(m.owners) >= maxManual {
		m.owners = map[string]string{}
	}
	m.owners[id] = owner
}

func (s *Server) removeSandbox(ctx context.Context, in *sandboxPath) (*struct{}, error) {
	err := s.own(ctx, in.ID)
	if isNotFound(err) {
		// What is gone already stays gone: removing it again is no error.
		if _, err = s.visible(ctx, in.ID); err == nil {
			return nil, nil
		}
	}
	if err != nil {
		return nil, err
	}
	if err := s.need.Places.Destroy(ctx, in.ID); err != nil {
		return nil, err
	}
	facts := map[string]any{"sandbox": in.ID, "by": who(ctx).User}
	return nil, s.need.Audit.Record(ctx, "", "sandbox.remove/"+in.ID, "sandbox.remove", seenBy, facts)
}

type putFilesInput struct {
	ID  string `path:"id" maxLength:"64"`
	Dir string `query:"dir" required:"true" maxLength:"4096" doc:"Absolute path of the folder to unpack beneath."`
	upload
}

func (s *Server) putFiles(ctx context.Context, in *putFilesInput) (*struct{}, error) {
	if err := s.own(ctx, in.ID); err != nil {
		return nil, err
	}
	if err := absolute("query.dir", in.Dir); err != nil {
		return nil, err
	}
	return nil, bodyFailure(s.need.Files.Put(ctx, in.ID, in.Dir, in.body))
}

// absolute refuses paths that don't mean one place.
func absolute(field, p string) error {
	if !path.IsAbs(p) || strings.ContainsRune(p, 0) || slices.Contains(strings.Split(p, "/"), "..") {
		return problem.Invalid(field, "must be an absolute path without ..")
	}
	return nil
}

type getFilesInput struct {
	ID   string `path:"id" maxLength:"64"`
	Path string `query:"path" required:"true" maxLength:"4096" doc:"Absolute path of a file or folder."`
}

func (s *Server) getFiles(ctx context.Context, in *getFilesInput) (*raw, error) {
	if err := s.own(ctx, in.ID); err != nil {
		return nil, err
	}
	if err := absolute("query.path", in.Path); err != nil {
		return nil, err
	}
	tar, err := s.need.Files.Get(ctx, in.ID, in.Path, nil)
	if err != nil {
		return nil, err
	}
	header := map[string]string{"Content-Disposition": attachment(in.ID + ".tar")}
	return s.stream("application/x-tar", header, func(ctx context.Context, w *paced.Answer) error {
		defer tar.Close()
		defer context.AfterFunc(ctx, func() { _ = tar.Close() })()
		_, err := io.Copy(w, tar)
		return err
	}), nil
}
