package audit

import (
	"encoding/json"
	"reflect"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Asked is a question that was asked of a person for the task, and how it
// ended, as far as the records say. What was asked is there by digest.
type Asked struct {
	Record    int64              `json:"record"`   // the task's record that it was asked
	Answered  int64              `json:"answered"` // and the last of its end; 0: it waited still
	Approval  string             `json:"approval"`
	Kind      task.ApprovalKind  `json:"kind"`
	Stage     task.StageName     `json:"stage"`
	Sandbox   string             `json:"sandbox"`
	Digest    task.Digest        `json:"digest"`
	Subject   task.ApprovalMatch `json:"subject"`
	AskedAt   time.Time          `json:"askedAt"`
	ExpiresAt time.Time          `json:"expiresAt"`

	State    task.ApprovalState `json:"state"`
	Scope    task.ApprovalScope `json:"scope,omitempty"`
	Decision string             `json:"decision,omitempty"`
	By       string             `json:"by,omitempty"`
	At       *time.Time         `json:"at,omitempty"`
	Until    *time.Time         `json:"until,omitempty"` // of the decision
}

// askedOf reads what was asked out of the records, in the order of the
// questions. A verifier does the same and compares.
func askedOf(records []Record) []Asked {
	list, at := []Asked{}, map[string]int{}
	for _, r := range records {
		var one Asked
		if !strings.HasPrefix(r.Kind, "approval.") || json.Unmarshal(r.Facts, &one) != nil || one.Approval == "" {
			continue
		}
		i, known := at[one.Approval]
		switch {
		case r.Kind == "approval.asked" && !known:
			one.Record, one.Answered, one.State = r.TaskSeq, 0, task.AskedWaiting
			at[one.Approval] = len(list)
			list = append(list, one)
		case r.Kind != "approval.asked" && known:
			have := &list[i]
			have.Answered, have.State, have.Scope, have.Decision, have.By, have.At, have.Until = r.TaskSeq, one.State, one.Scope, one.Decision, one.By, one.At, one.Until
		}
	}
	return list
}

func equalAsked(a, b Asked) bool {
	for _, x := range []*Asked{&a, &b} {
		x.AskedAt, x.ExpiresAt = x.AskedAt.UTC(), x.ExpiresAt.UTC()
	}
	return reflect.DeepEqual(a, b)
}
