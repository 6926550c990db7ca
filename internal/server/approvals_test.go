package server

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/approval"
	"github.com/cofferdam/cofferdam/internal/server/approvals"
	"github.com/cofferdam/cofferdam/internal/server/operation"
	"github.com/cofferdam/cofferdam/internal/task"
)

// asked is an inbox with one question of alice's.
type asked struct {
	entry  task.Approval
	answer task.ApprovalAnswer
	filter approval.Filter
	held   task.Held
	turn   string
	said   approval.Answer
}

func (a *asked) Get(_ context.Context, id, user string, admin bool) (task.Approval, error) {
	if id != a.entry.ID || !admin && user != a.entry.Requester {
		return task.Approval{}, missing("approval")
	}
	return a.entry, nil
}

func (a *asked) List(_ context.Context, f approval.Filter) ([]task.Approval, error) {
	if a.filter = f; f.Requester != "" && f.Requester != a.entry.Requester {
		return nil, nil
	}
	return []task.Approval{a.entry}, nil
}

func (a *asked) Decide(_ context.Context, id string, answer task.ApprovalAnswer) (task.Approval, error) {
	if id != a.entry.ID {
		return task.Approval{}, missing("approval")
	}
	a.answer = answer
	return a.entry, nil
}

func (a *asked) Decisions(_ context.Context, f approval.Filter) ([]task.Standing, error) {
	a.filter = f
	return []task.Standing{{ID: "d-1", Allow: true, Scope: task.ScopeTask, Match: task.ApprovalMatch{Host: "a.test", Port: 443, Protocol: "tls"}}}, nil
}

func (a *asked) Withdraw(_ context.Context, id, _ string, _ bool) (bool, error) {
	if id != "d-1" {
		return false, missing("decision")
	}
	return true, nil
}

func (a *asked) Ask(_ context.Context, h task.Held, id string, _ time.Duration) (approval.Answer, error) {
	a.held, a.turn = h, id
	return a.said, nil
}

func newAsking(t *testing.T) (*site, *asked) {
	t.Helper()
	what, _ := task.Canonical(task.EgressAsk{Name: "a.test", Port: 80, Protocol: "http", Seen: "http", Method: "GET", Path: "/x"})
	a := &asked{entry: task.Approval{
		ID: "ap-1", Kind: task.AskEgress, Task: "t-1", Requester: "alice", What: what, Digest: task.DigestOf(what), State: task.AskedWaiting,
		Commands: []task.RunningCommand{{ID: "agent", Processes: []string{"curl \x1b[2J"}}},
	}}
	s := newSiteWith(t, func(o *Options) {
		desk := approvals.New(a, a, o.Needs.Credentials.Machines, slog.New(slog.DiscardHandler))
		o.Needs.Desks, o.Needs.Approvals = []operation.Desk{desk}, desk
	})
	s.tokens["nobody"], s.tokens["bad"] = "", "cfd_x"
	return s, a
}

// Who may call what, as in TestPermissions.
func TestApprovalPermissions(t *testing.T) {
	s, _ := newAsking(t)
	callers := [6]string{"nobody", "bad", "alice", "admin", "worker", "gateway"}
	users := [6]bool{false, false, true, true, false, false}
	rows := map[string][6]bool{
		"list-approvals": users, "get-approval": users, "decide": users, "list-decisions": users, "withdraw-decision": users,
		"ask": {false, false, false, false, false, true},
	}
	met := 0
	for _, op := range s.server.door.Operations() {
		row, ok := rows[op.ID]
		if !ok {
			continue
		}
		met++
		for i, caller := range callers {
			body := ""
			if op.Method == http.MethodPost {
				body = "{}"
			}
			status, _, text := s.ask(t, caller, op.Method, strings.Replace(op.Path, "{id}", "x", 1), body)
			if let := status != http.StatusUnauthorized && status != http.StatusForbidden; let != row[i] {
				t.Errorf("%s as %s: %d %s", op.ID, caller, status, text)
			}
		}
	}
	if met != len(rows) {
		t.Errorf("%d of %d operations", met, len(rows))
	}
}

func TestApprovalsOverTheAPI(t *testing.T) {
	s, a := newAsking(t)
	ctx := t.Context()
	alice := s.as(t, "alice")
	list, err := alice.Approvals(ctx, false, "")
	if err != nil || len(list) != 1 || list[0].Egress == nil || list[0].Egress.Path != "/x" || list[0].Commands[0].Processes[0] != "curl \x1b[2J" || !a.filter.Waiting || a.filter.Requester != "alice" {
		t.Errorf("%+v %v %+v", list, err, a.filter)
	}
	if _, err := s.as(t, "admin").Approvals(ctx, true, "t-1"); err != nil || a.filter.Waiting || a.filter.Requester != "" || a.filter.Task != "t-1" {
		t.Errorf("%v %+v", err, a.filter)
	}
	if _, err := alice.Decide(ctx, "ap-1", api.ApprovalAnswer{Allow: true, Scope: "task", ForSeconds: 60}); err != nil ||
		a.answer != (task.ApprovalAnswer{Allow: true, Scope: task.ScopeTask, For: time.Minute, By: "alice"}) {
		t.Errorf("%v %+v", err, a.answer)
	}
	if _, err := s.as(t, "admin").Decide(ctx, "ap-1", api.ApprovalAnswer{}); err != nil || !a.answer.Admin || a.answer.Allow {
		t.Errorf("%v %+v", err, a.answer)
	}
	if _, err := alice.Decide(ctx, "ap-1", api.ApprovalAnswer{Allow: true, Scope: "world"}); err == nil {
		t.Error("a scope that is none was taken")
	}
	if ds, err := alice.Decisions(ctx, false); err != nil || len(ds) != 1 || ds[0].Host != "a.test" {
		t.Errorf("%+v %v", ds, err)
	}
	if end, err := alice.WithdrawDecision(ctx, "d-1"); err != nil || !end.Cut {
		t.Errorf("%+v %v", end, err)
	}
}

// A gateway asks about the sandboxes of its own machine, in the words that its
// asker uses.
func TestGatewayAsks(t *testing.T) {
	s, a := newAsking(t)
	s.vault.holder = map[string]string{"sb-aaaaaaaaaaaaaaaa": "gateway", "sb-bbbbbbbbbbbbbbbb": "another"}
	turn := func(sandbox string) (int, api.AskAnswer) {
		t.Helper()
		body := `{"sandbox":"` + sandbox + `","use":"u","egress":{"name":"a.test","port":443,"protocol":"tls","seen":"tls"}}`
		status, _, text := s.ask(t, "gateway", http.MethodPost, "/v1/gateway/ask", body)
		var out api.AskAnswer
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}
		if status != 200 {
			t.Log(text)
		}
		return status, out
	}
	a.said = approval.Answer{Waiting: true, Approval: a.entry}
	if status, out := turn("sb-aaaaaaaaaaaaaaaa"); status != 200 || out.State != "waiting" || out.Approval != "ap-1" || a.held.Name != "a.test" || a.held.Port != 443 || a.held.Use != "u" {
		t.Errorf("%d %+v %+v", status, out, a.held)
	}
	a.said = approval.Answer{Allow: true, Once: true, ID: "ap-1", Approval: a.entry}
	if status, out := turn("sb-aaaaaaaaaaaaaaaa"); status != 200 || out.State != "allowed" || !out.Once || out.ID != "ap-1" {
		t.Errorf("%d %+v", status, out)
	}
	a.said = approval.Answer{Reason: task.ApprovalDenied}
	if status, out := turn("sb-aaaaaaaaaaaaaaaa"); status != 200 || out.State != "denied" || out.Reason != "approval.denied" {
		t.Errorf("%d %+v", status, out)
	}
	a.held = task.Held{}
	for sandbox, want := range map[string]int{"sb-bbbbbbbbbbbbbbbb": http.StatusServiceUnavailable, "sb-cccccccccccccccc": http.StatusForbidden, "x": http.StatusForbidden} {
		if status, _ := turn(sandbox); status != want || a.held.Sandbox != "" {
			t.Errorf("%s: %d %+v", sandbox, status, a.held)
		}
	}
}
