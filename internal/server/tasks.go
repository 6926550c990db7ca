package server

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/server/paced"
	"github.com/cofferdam/cofferdam/internal/server/problem"
	"github.com/cofferdam/cofferdam/internal/server/traffic"
	"github.com/cofferdam/cofferdam/internal/server/translate"
	"github.com/cofferdam/cofferdam/internal/server/verification"
	"github.com/cofferdam/cofferdam/internal/task"
)

// maxBundle is the largest git bundle that is taken.
const maxBundle = 1 << 30

func (s *Server) describeTasks() {
	register(s, operation.Operation{
		ID: "upload-bundle", Method: http.MethodPost, Path: "/v1/bundles", Access: operation.Users, Max: maxBundle,
		Body: "application/x-git-bundle", Status: http.StatusCreated, Summary: "Upload a git bundle for tasks to work on",
	}, s.uploadBundle)
	register(s, operation.Operation{
		ID: "create-task", Method: http.MethodPost, Path: "/v1/tasks", Access: operation.Users, Max: 4 << 20,
		Status: http.StatusCreated, Summary: "Ask for a task; 200 when the idempotency key made it before",
	}, s.createTask)
	register(s, operation.Operation{ID: "list-tasks", Method: http.MethodGet, Path: "/v1/tasks", Access: operation.Users, Summary: "List tasks, newest first"}, s.listTasks)
	register(s, operation.Operation{ID: "get-task", Method: http.MethodGet, Path: "/v1/tasks/{id}", Access: operation.Users, Summary: "One task and what became of it"}, s.getTask)
	register(s, operation.Operation{
		ID: "cancel-task", Method: http.MethodPost, Path: "/v1/tasks/{id}/cancel", Access: operation.Users,
		Status: http.StatusAccepted, Summary: "Ask for a task's end",
	}, s.cancelTask)
	register(s, operation.Operation{
		ID: "watch-task", Method: http.MethodGet, Path: "/v1/tasks/{id}/events", Access: operation.Users, Kind: "text/event-stream",
		Summary: "What happens to a task, as server-sent events; ends with an event of type end when the task has ended",
	}, s.watchTask)
	register(s, operation.Operation{
		ID: "read-log", Method: http.MethodGet, Path: "/v1/tasks/{id}/logs", Access: operation.Users, Kind: "application/octet-stream",
		Summary: "The log of one stage",
	}, s.readLog)
	register(s, operation.Operation{
		ID: "get-receipt", Method: http.MethodGet, Path: "/v1/tasks/{id}/receipt", Access: operation.Users, Kind: "application/json",
		Summary: "The signed receipt of a task that has ended",
	}, s.getReceipt)
	register(s, operation.Operation{
		ID: "agent-events", Method: http.MethodGet, Path: "/v1/tasks/{id}/agent", Access: operation.Users,
		Summary: "What a task's agent said and did",
	}, s.listAgentEvents)
	register(s, operation.Operation{
		ID: "list-egress", Method: http.MethodGet, Path: "/v1/tasks/{id}/egress", Access: operation.Users,
		Summary: "What the gateway decided for a task's sandboxes",
	}, s.listEgress)
}

type taskPath struct {
	ID string `path:"id" maxLength:"64"`
}

var taskID = regexp.MustCompile(`^t-[a-z2-7]{16}$`)

// task returns a task that the principal may see.
func (s *Server) task(ctx context.Context, id string) (task.Task, error) {
	if !taskID.MatchString(id) {
		return task.Task{}, problem.NotFound("task", id)
	}
	t, err := s.need.Tasks.Task(ctx, id)
	if isNotFound(err) || err == nil && !who(ctx).May(t.RequestedBy) {
		return task.Task{}, problem.NotFound("task", id)
	}
	return t, err
}

func isNotFound(err error) bool {
	var f *task.Failure
	return errors.As(err, &f) && f.Reason == task.InputNotFound
}

type blobOutput struct{ Body api.Blob }

func (s *Server) uploadBundle(ctx context.Context, in *upload) (*blobOutput, error) {
	r := bufio.NewReader(in.body)
	head, err := r.Peek(len(bundleV2))
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, bodyFailure(err)
	}
	if !bytes.Equal(head, []byte(bundleV2)) && !bytes.Equal(head, []byte(bundleV3)) {
		return nil, problem.Invalid("body", "is not a git bundle (git bundle create - --all makes one)")
	}
	digest, size, err := s.need.Blobs.Put(ctx, r, maxBundle)
	if err != nil {
		return nil, bodyFailure(err)
	}
	return &blobOutput{api.Blob{Digest: string(digest), Size: size}}, nil
}

// The first lines of the two forms of git bundles (gitformat-bundle).
const (
	bundleV2 = "# v2 git bundle\n"
	bundleV3 = "# v3 git bundle\n"
)

type createTaskInput struct {
	Key  string `header:"Idempotency-Key" maxLength:"255" doc:"The same key with the same request gives the same task."`
	Body api.TaskRequest
}

type taskOutput struct {
	Status   int
	Location string `header:"Location"`
	Body     api.Task
}

func (s *Server) createTask(ctx context.Context, in *createTaskInput) (*taskOutput, error) {
	p := who(ctx)
	spec := translate.Spec(in.Body)
	if err := s.checkSpec(ctx, spec); err != nil {
		return nil, err
	}
	layers, err := s.layers(ctx, spec.Project)
	if err == nil {
		layers.Models, err = s.need.Credentials.ModelKeys(ctx, p.User)
	}
	if err != nil {
		return nil, err
	}
	plan, err := s.need.Policies.Compile(spec, layers)
	if err != nil {
		return nil, policyProblem(err)
	}
	// A higher layer may let the repository name the agent that is left out.
	if spec.Agent.Name != "" || !plan.Repository.Allowed {
		if err := s.checkAgent(spec.Agent); err != nil {
			return nil, err
		}
	}
	if err := s.need.Credentials.Check(ctx, p.User, plan.Rules); err != nil {
		return nil, policyProblem(err)
	}
	canonical, err := json.Marshal(spec)
	if err != nil {
		return nil, fmt.Errorf("task request: %w", err)
	}
	sum := sha256.Sum256(canonical)
	key := in.Key
	if key == "" {
		key = "none-" + randomName(26)
	}
	repo := spec.Repo.Name
	if repo == "" {
		repo = spec.Repo.URL
	}
	if repo == "" {
		repo = string(spec.Repo.Bundle)
	}
	t := task.Task{
		ID: "t-" + randomName(16), State: task.Queued, RequestedBy: p.User, Repo: repo, Ref: spec.Repo.Ref,
		PolicyDigest: plan.Digest, Spec: spec, Layers: layers, CreatedAt: s.now().UTC(),
		// Keys are each user's own: nobody learns of another's by guessing.
		IdempotencyKey: p.User + "/" + key,
	}
	made, created, err := s.need.Tasks.CreateTask(ctx, t, "sha256:"+hex.EncodeToString(sum[:]))
	if err != nil {
		return nil, err
	}
	out := &taskOutput{Status: http.StatusOK, Location: "/v1/tasks/" + made.ID, Body: translate.Task(made)}
	if created {
		out.Status = http.StatusCreated
	}
	if !made.State.Ended() {
		// The row is there: a reconciler starts what can't be started now.
		if err := s.need.Engine.Start(context.WithoutCancel(ctx), made.ID); err != nil {
			s.log.WarnContext(ctx, "task will be started later", "task", made.ID, "error", err.Error())
		}
	}
	return out, nil
}

// layers takes the layers above a task of the project as they are now.
func (s *Server) layers(ctx context.Context, project string) (task.Layers, error) {
	layers, err := s.need.Policies.Layers(ctx, project)
	if isNotFound(err) {
		return layers, problem.Invalid("body.project", "there is no project "+problem.Quote(project)+"; `cofferdam policy project ls` lists them")
	}
	return layers, err
}

// checkSpec refuses what can't be carried out, by field.
func (s *Server) checkSpec(ctx context.Context, spec task.Spec) error {
	switch {
	case (spec.Repo.URL == "") == (spec.Repo.Bundle == ""):
		return problem.Invalid("body.repo", "must have exactly one of url and bundle")
	case strings.HasPrefix(spec.Repo.Ref, "-") || strings.ContainsFunc(spec.Repo.Ref, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return problem.Invalid("body.repo.ref", "is not the name of a branch, a tag or a commit")
	case spec.Repo.Credential != "" && spec.Repo.URL == "":
		return problem.Invalid("body.repo.credential", "is lent for the host of a url; a bundle needs none")
	}
	if err := checkOutputs(spec); err != nil {
		return err
	}
	for _, f := range []struct{ name, text string }{
		{"body.setup", spec.Setup}, {"body.verify", spec.Verify}, {"body.repo.name", spec.Repo.Name}, {"body.agent.argv", strings.Join(spec.Agent.Argv, "")},
	} {
		if strings.ContainsRune(f.text, 0) {
			return problem.Invalid(f.name, "must not hold a NUL character")
		}
	}
	if spec.Repo.Bundle == "" {
		return nil
	}
	if !validDigest(spec.Repo.Bundle) {
		return problem.Invalid("body.repo.bundle", "must be sha256: and 64 lowercase hex digits")
	}
	blob, err := s.need.Blobs.Open(ctx, spec.Repo.Bundle)
	if isNotFound(err) {
		text := "no such bundle; upload it to /v1/bundles first"
		return problem.WrongField(task.Fail(task.InputRepository, "body.repo.bundle: "+text, err), "body.repo.bundle", text)
	}
	if err != nil {
		return err
	}
	return blob.Close()
}

var digestPattern = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)

func validDigest(d task.Digest) bool { return digestPattern.MatchString(string(d)) }

// policyProblem names the field of the request that holds the policy; the text
// names line and field within it.
func policyProblem(err error) error {
	var f *task.Failure
	if errors.As(err, &f) && (f.Reason == task.InputPolicy || f.Reason == task.PolicyCeiling) {
		return problem.WrongField(err, "body.policy", f.Text)
	}
	return err
}

type listTasksInput struct {
	Limit  int    `query:"limit" minimum:"1" maximum:"500" default:"50"`
	Before string `query:"before" maxLength:"64" doc:"Only tasks older than this one: the next of the page before."`
}

type taskListOutput struct{ Body api.TaskList }

func (s *Server) listTasks(ctx context.Context, in *listTasksInput) (*taskListOutput, error) {
	if in.Before != "" && !taskID.MatchString(in.Before) {
		return nil, problem.Invalid("query.before", "must be the id of a task")
	}
	owner := who(ctx).User
	if who(ctx).May("") { // an admin
		owner = ""
	}
	// One more than asked for, to know whether there is a next page.
	list, err := s.need.Tasks.Tasks(ctx, owner, in.Limit+1, in.Before)
	if err != nil {
		return nil, err
	}
	out := &taskListOutput{api.TaskList{Tasks: []api.Task{}}}
	for i, t := range list {
		if i == in.Limit {
			out.Body.Next = list[i-1].ID
			break
		}
		out.Body.Tasks = append(out.Body.Tasks, translate.Task(t))
	}
	return out, nil
}

func (s *Server) getTask(ctx context.Context, in *taskPath) (*taskOutput, error) {
	t, err := s.task(ctx, in.ID)
	if err != nil {
		return nil, s.gone(ctx, in.ID, err)
	}
	out := translate.Task(t)
	out.Verification = verification.Of(ctx, s.need.Blobs, t)
	if out.Leases, err = s.need.Credentials.Of(ctx, t.ID); err != nil {
		return nil, err
	}
	if s.need.Approvals != nil {
		if out.Approvals, err = s.need.Approvals.Of(ctx, t.ID); err != nil {
			return nil, err
		}
	}
	if s.need.Budgets != nil {
		if err := s.need.Budgets.Fill(ctx, t, &out); err != nil {
			return nil, err
		}
	}
	if err := s.detail(ctx, t, &out); err != nil {
		return nil, err
	}
	return &taskOutput{Status: http.StatusOK, Body: out}, nil
}

func (s *Server) cancelTask(ctx context.Context, in *taskPath) (*taskOutput, error) {
	t, err := s.task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	open, err := s.need.Tasks.RequestCancel(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	if open {
		// What was lent ends now, and not only when its stage was told.
		if err := s.need.Credentials.EndTask(context.WithoutCancel(ctx), t.ID); err != nil {
			s.log.WarnContext(ctx, "leases end with their stage", "task", t.ID, "error", err.Error())
		}
		// The row says so: a reconciler cancels what can't be cancelled now.
		if err := s.need.Engine.Cancel(context.WithoutCancel(ctx), t.ID); err != nil {
			s.log.WarnContext(ctx, "task will be cancelled later", "task", t.ID, "error", err.Error())
		}
	}
	if t, err = s.need.Tasks.Task(ctx, t.ID); err != nil {
		return nil, err
	}
	return &taskOutput{Status: http.StatusAccepted, Body: translate.Task(t)}, nil
}

// attachment keeps browsers from showing what came out of a sandbox.
func attachment(name string) string {
	safe := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || strings.ContainsRune(`/\:"`, r) {
			return '_'
		}
		return r
	}, name)
	if v := mime.FormatMediaType("attachment", map[string]string{"filename": safe}); v != "" {
		return v
	}
	return "attachment"
}

func (s *Server) getReceipt(ctx context.Context, in *taskPath) (*raw, error) {
	t, err := s.task(ctx, in.ID)
	if err != nil {
		// The receipt of a removed task is in the audit, and stays.
		was, removedErr := s.removed(ctx, in.ID)
		if removedErr != nil {
			return nil, err
		}
		t = task.Task{ID: was.Task, State: task.Succeeded}
	}
	// While the close stage runs, facts are still added; a receipt that is asked
	// for now would be made without them.
	closing := slices.ContainsFunc(t.Stages, func(st task.Stage) bool { return st.Name == task.Close && st.State == task.StageRunning })
	if !t.State.Ended() || closing {
		return nil, task.Fail(task.InputConflict, "task "+t.ID+" has not ended; its receipt is made when it has", nil)
	}
	receipt, err := s.need.Audit.Receipt(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	header := map[string]string{"Content-Length": strconv.Itoa(len(receipt)), "Content-Disposition": attachment(t.ID + "-receipt.json")}
	return s.stream("application/json", header, func(_ context.Context, w *paced.Answer) error {
		_, err := w.Write(receipt)
		return err
	}), nil
}

type egressOutput struct{ Body api.EgressList }

func (s *Server) listEgress(ctx context.Context, in *taskPath) (*egressOutput, error) {
	t, err := s.task(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	out := &egressOutput{api.EgressList{Records: []api.EgressRecord{}}}
	var running traffic.Running
	err = s.events(ctx, t.ID, 0, func(e task.Event) {
		running.See(e)
		if r, ok := e.Data.(task.EgressRecord); ok {
			out.Body.Records = append(out.Body.Records, translate.Egress(r))
		}
	})
	// What ran may be told after what it reached.
	for i := range out.Body.Records {
		r := &out.Body.Records[i]
		r.Commands = running.At(r.Sandbox, task.StageName(r.Stage), r.Time)
	}
	return out, err
}

// events gives the events numbered from after+1 on that are there now.
func (s *Server) events(ctx context.Context, id string, after int64, each func(task.Event)) error {
	for {
		page, err := s.need.Events.Events(ctx, id, after, eventBatch)
		if err != nil {
			return err
		}
		for _, e := range page {
			each(e)
			after = e.Seq
		}
		if len(page) < eventBatch {
			return nil
		}
	}
}

// randomName is n characters of lowercase base32.
func randomName(n int) string {
	b := make([]byte, (n*5+7)/8)
	_, _ = rand.Read(b) // never fails (crypto/rand since Go 1.24)
	return strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(b))[:n]
}
