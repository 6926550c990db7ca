package approval

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Bounds of one task's questions. A person can't be worn down by more, and the
// database can't be filled.
const (
	maxWaiting = 64
	maxAsked   = 500
	maxWhat    = 256 << 10
	maxKey     = 512
)

// How long questions wait and decisions stand.
const (
	maxWait        = 7 * 24 * time.Hour
	projectDefault = 24 * time.Hour
	projectMost    = 90 * 24 * time.Hour
	taskMost       = 30 * 24 * time.Hour
)

// check refuses a question that can't be one.
func check(q task.Question) error {
	bad := func(text string) error { return task.Fail(task.InputInvalid, "question: "+text, nil) }
	switch {
	case q.Kind != task.AskEgress && q.Kind != task.AskTool && q.Kind != task.AskAction:
		return bad(fmt.Sprintf("kind %.32q is not one of egress, tool, action", q.Kind))
	case q.Key == "" || len(q.Key) > maxKey:
		return bad("its key must have 1 to 512 bytes")
	case q.Task == "" || q.Requester == "":
		return bad("it is of no task")
	case len(q.What) == 0 || !json.Valid(q.What):
		return bad("what is asked must be JSON")
	case len(q.What) > maxWhat:
		return task.Fail(task.LimitSize, fmt.Sprintf("question: what is asked has more than %d bytes, which nobody reads", maxWhat), nil)
	case q.Wait <= 0 || q.Wait > maxWait:
		return bad("it must wait for some time, and 168 hours at most")
	}
	return nil
}

// sticky says whether a key names one event, whose entry is found again whatever
// became of it. Connections to the same place are many events.
func sticky(k task.ApprovalKind) bool { return k != task.AskEgress }

// judge says whether the answer may be given to the entry, and completes it.
// The errors are *task.Failure.
func judge(a task.Approval, answer *task.ApprovalAnswer, now time.Time) error {
	deny := func(reason task.Reason, format string, args ...any) error {
		return task.Fail(reason, fmt.Sprintf(format, args...), nil)
	}
	switch {
	case answer.By == "":
		return deny(task.PolicyDenied, "nobody answers")
	case !answer.Admin && answer.By != a.Requester:
		return deny(task.InputNotFound, "no approval %q", a.ID)
	case !answer.Admin && a.Admins:
		return deny(task.PolicyDenied, "policy lets administrators alone answer this (ceiling.answer)")
	case a.State != task.AskedWaiting:
		return deny(task.InputConflict, "approval %s is %s already", a.ID, a.State)
	case !now.Before(a.ExpiresAt):
		return deny(task.InputConflict, "approval %s is expired already", a.ID)
	}
	if answer.Scope == "" {
		answer.Scope = task.ScopeOnce
		if !answer.Allow && a.Kind == task.AskEgress {
			answer.Scope = task.ScopeTask // what was refused is not asked again and again
		}
	}
	most := time.Duration(0)
	switch answer.Scope {
	case task.ScopeOnce:
		if answer.For != 0 {
			return deny(task.InputInvalid, "for: an answer for one use ends with its use; give --scope task or project")
		}
		return nil
	case task.ScopeTask:
		most = taskMost
	case task.ScopeProject:
		if most = projectMost; a.Project == "" {
			return deny(task.InputInvalid, "scope: the task is of no project")
		}
		if !answer.Admin {
			return deny(task.PolicyDenied, "scope: only administrators decide for a whole project")
		}
		if answer.For == 0 {
			answer.For = projectDefault
		}
	default:
		return deny(task.InputInvalid, "scope %.32q is not one of once, task, project", answer.Scope)
	}
	if answer.For < 0 || answer.For > most {
		return deny(task.InputInvalid, "for: must be at most %s for scope %s", most, answer.Scope)
	}
	if task.MatchOf(a.Kind, a.What) == (task.ApprovalMatch{}) {
		return deny(task.InputInvalid, "scope: such a question is answered once, by its very bytes")
	}
	return nil
}

// standing is the decision that an answer makes; false for one use.
func standing(a task.Approval, answer task.ApprovalAnswer, id string, now time.Time) (task.Standing, bool) {
	if answer.Scope != task.ScopeTask && answer.Scope != task.ScopeProject {
		return task.Standing{}, false
	}
	s := task.Standing{
		ID: id, Approval: a.ID, Kind: a.Kind, Scope: answer.Scope, Task: a.Task, Project: a.Project, Stage: a.Stage, Requester: a.Requester,
		Match: task.MatchOf(a.Kind, a.What), Allow: answer.Allow, By: answer.By, From: now,
	}
	if answer.For > 0 {
		until := now.Add(answer.For)
		s.Until = &until
	}
	return s, true
}

// answers says whether a decision answers a question.
func answers(s task.Standing, q task.Question, now time.Time) bool {
	return reaches(s, q, now) && s.Match.Covers(q.Kind, q.What)
}

// reaches says whether a decision is about the task and the stage of a question.
func reaches(s task.Standing, q task.Question, now time.Time) bool {
	if !s.Lasts(now) || s.Kind != q.Kind || s.Stage != q.Stage {
		return false
	}
	switch s.Scope {
	case task.ScopeTask:
		return s.Task != "" && s.Task == q.Task
	case task.ScopeProject:
		return s.Project != "" && s.Project == q.Project
	case task.ScopeOnce:
	}
	return false
}

// best is the decision among them that answers the question: one that denies
// before those that allow.
func best(list []task.Standing, q task.Question, now time.Time) (found task.Standing, ok bool) {
	for _, s := range list {
		if answers(s, q, now) && (!ok || found.Allow && !s.Allow) {
			found, ok = s, true
		}
	}
	return found, ok
}

// reasonOf is why a question that was not allowed is refused.
func reasonOf(s task.ApprovalState) task.Reason {
	if s == task.AskedExpired {
		return task.ApprovalExpired
	}
	return task.ApprovalDenied
}
