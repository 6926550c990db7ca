package approval

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Rows keeps questions and decisions. Implemented by store/approvals. Each call
// is one transaction; an id that is not there gives a *task.Failure with
// task.InputNotFound.
type Rows interface {
	// Enter finds or makes the entry of a question. An entry of the same key and
	// digest that waits is counted; one that was allowed for one use and is not
	// used is found, and with any the last one is, whatever its state. Where what is
	// asked changed, the entry becomes void. More than the bounds gives
	// task.LimitRequests, a task that ended task.Cancelled.
	Enter(ctx context.Context, key string, a task.Approval, any bool, waiting, all int) (task.Approval, error)
	Approval(ctx context.Context, id string) (task.Approval, error)
	// List gives entries, newest first.
	List(ctx context.Context, f Filter) ([]task.Approval, error)
	// Settle moves an entry that is still in the state from to the one it has in a,
	// with who decided it, and keeps the decision that it makes, if any; else it
	// gives task.InputConflict.
	Settle(ctx context.Context, from task.ApprovalState, a task.Approval, made *task.Standing) (task.Approval, error)
	// Use takes an answer for one use; false when another one has it.
	Use(ctx context.Context, id, by string) (bool, error)
	// Apply remembers that the decision is given out to the sandbox; false when it
	// does not last any more.
	Apply(ctx context.Context, decision, sandbox string, now time.Time) (bool, error)
	// Standings gives decisions, newest first.
	Standings(ctx context.Context, f Filter) ([]task.Standing, error)
	// Withdraw ends a decision, once, and says where it was given out.
	Withdraw(ctx context.Context, id, by string, at time.Time) (task.Standing, []string, error)
	// Told says that the audit has the state of an entry or a decision; of another
	// state nothing changes.
	Told(ctx context.Context, id string, state task.ApprovalState) error
}

// Filter says which entries or decisions are meant. Zero fields mean any.
type Filter struct {
	ID        string
	Task      string
	Project   string // of decisions: those of the task or of the project
	Requester string
	Sandbox   string
	Waiting   bool // of entries: those that wait; of decisions: those that last
	Untold    bool
	Limit     int
}

// Recorder appends to the audit, once a key. Implemented by audit.
type Recorder interface {
	Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error
}

// Grants changes what running sandboxes may reach. Implemented by stage/steps.
// A sandbox that is gone is no error.
type Grants interface {
	// Extend adds a rule that follows from a decision, where the stage still runs.
	Extend(ctx context.Context, sandbox string, stage task.StageName, rule task.Rule) error
	// Retract takes such a rule away and cuts what passes under it.
	Retract(ctx context.Context, taskID, sandbox, rule string) error
}

// Options make an inbox. All but Log are required.
type Options struct {
	Rows   Rows
	Audit  Recorder
	Grants Grants
	Now    func() time.Time
	Log    *slog.Logger // nil: no log
}

// Inbox asks persons. It is safe for concurrent use.
type Inbox struct {
	rows   Rows
	audit  Recorder
	grants Grants
	now    func() time.Time
	log    *slog.Logger

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when any entry changed
	sooner  chan struct{} // an entry may end earlier than those before
}

// New returns an inbox. Run must run for its questions to expire.
func New(o Options) *Inbox {
	x := &Inbox{rows: o.Rows, audit: o.Audit, grants: o.Grants, now: o.Now, log: o.Log, changed: make(chan struct{}), sooner: make(chan struct{}, 1)}
	if x.log == nil {
		x.log = slog.New(slog.DiscardHandler)
	}
	return x
}

// Answer is what became of a question. The zero Answer refuses.
type Answer struct {
	Waiting  bool   // nobody answered yet
	Allow    bool   // and only what was asked
	Once     bool   // for this use alone
	ID       string // of the decision, or of the entry, that allowed
	Reason   task.Reason
	Approval task.Approval // zero where a decision answered without an entry
}

func newID(prefix string) string {
	raw := make([]byte, 10)
	_, _ = rand.Read(raw) // never fails (crypto/rand since Go 1.24)
	return prefix + strings.ToLower(base32.StdEncoding.EncodeToString(raw))
}

func (x *Inbox) moment() time.Time { return x.now().UTC().Truncate(time.Microsecond) }

// Await asks and waits for the answer until ctx ends. use names who takes an
// answer for one use; the same question by the same name, asked again after a
// restart, finds the same entry and the same answer. Errors are *task.Failure.
func (x *Inbox) Await(ctx context.Context, q task.Question, use string) (Answer, error) {
	id := ""
	for {
		a, err := x.Poll(ctx, q, use, id, q.Wait)
		if err != nil || !a.Waiting {
			return a, err
		}
		if err := ctx.Err(); err != nil {
			return Answer{}, task.Fail(task.Cancelled, "who asked does not wait any longer", err)
		}
		id = a.Approval.ID
	}
}

// Poll asks, or looks after the entry id that an earlier call gave, and waits for
// an answer for at most wait. Errors are *task.Failure.
func (x *Inbox) Poll(ctx context.Context, q task.Question, use, id string, wait time.Duration) (Answer, error) {
	if err := check(q); err != nil {
		return Answer{}, err
	}
	if use == "" {
		return Answer{}, task.Fail(task.InputInvalid, "question: who takes the answer has no name", nil)
	}
	patience, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for {
		changed := x.watch()
		a, err := x.look(ctx, q, id)
		if err != nil {
			return Answer{}, err
		}
		got, again, err := x.read(ctx, q, use, a)
		if err != nil {
			return Answer{}, err
		}
		if again {
			id = ""
			continue
		}
		if !got.Waiting {
			return got, nil
		}
		id = got.Approval.ID
		select {
		case <-changed:
		case <-patience.Done():
			return got, nil
		}
	}
}

// found is a decision that answers, or an entry.
type found struct {
	standing task.Standing
	entry    task.Approval
}

// look finds a decision that answers the question, or its entry.
func (x *Inbox) look(ctx context.Context, q task.Question, id string) (found, error) {
	if id != "" {
		a, err := x.rows.Approval(ctx, id)
		// Nobody learns what became of another's question.
		if err == nil && a.Task == q.Task && a.Sandbox == q.Sandbox && a.Digest == task.DigestOf(q.What) {
			return found{entry: a}, nil
		}
		if err != nil && !isReason(err, task.InputNotFound) {
			return found{}, err
		}
	}
	now := x.moment()
	list, err := x.rows.Standings(ctx, Filter{Task: q.Task, Project: q.Project, Waiting: true})
	if err != nil {
		return found{}, err
	}
	stands, ok := best(list, q, now)
	if ok && q.Kind == task.AskEgress {
		return found{standing: stands}, nil
	}
	want := task.Approval{
		ID: newID("ap-"), Kind: q.Kind, Task: q.Task, Project: q.Project, Stage: q.Stage, Attempt: q.Attempt, Sandbox: q.Sandbox,
		Requester: q.Requester, What: q.What, Digest: task.DigestOf(q.What), Commands: q.Commands, Count: 1, Admins: q.Admins,
		AskedAt: now, ExpiresAt: now.Add(q.Wait), State: task.AskedWaiting,
	}
	a, err := x.rows.Enter(ctx, q.Key, want, sticky(q.Kind), maxWaiting, maxAsked)
	if err != nil {
		return found{}, err
	}
	if a.ID == want.ID {
		x.hurry()
	}
	if ok && q.Kind == task.AskTool {
		if a, err = x.byDecision(ctx, a, stands, now); err != nil {
			return found{}, err
		}
	}
	return found{entry: a}, x.tell(ctx, a)
}

// read says what a decision or an entry comes to for who asks. again: an answer
// for one use is taken, and who asks has to ask anew.
func (x *Inbox) read(ctx context.Context, q task.Question, use string, f found) (got Answer, again bool, err error) {
	if f.standing.ID != "" {
		got, err := x.stands(ctx, q, f.standing)
		return got, false, err
	}
	a := f.entry
	if a.State == task.AskedWaiting {
		if x.moment().Before(a.ExpiresAt) {
			return Answer{Waiting: true, Approval: a}, false, nil
		}
		if a, err = x.expire(ctx, a); err != nil {
			return Answer{}, false, err
		}
	}
	if err := x.tell(ctx, a); err != nil {
		return Answer{}, false, err
	}
	if q.Kind == task.AskTool {
		got, err := x.readTool(ctx, q, use, a)
		return got, false, err
	}
	refused := Answer{Reason: reasonOf(a.State), Approval: a}
	switch {
	case a.State != task.AskedAllowed:
		return refused, false, nil
	case a.Decision != "":
		list, err := x.rows.Standings(ctx, Filter{ID: a.Decision})
		if err != nil || len(list) == 0 {
			return refused, false, err
		}
		got, err := x.stands(ctx, q, list[0])
		got.Approval = a
		return got, false, err
	}
	took, err := x.rows.Use(ctx, a.ID, use)
	if err != nil || !took {
		return refused, err == nil && !sticky(a.Kind), err
	}
	return Answer{Allow: true, Once: true, ID: a.ID, Approval: a}, false, nil
}

// stands answers by a decision.
func (x *Inbox) stands(ctx context.Context, q task.Question, s task.Standing) (Answer, error) {
	refused := Answer{Reason: task.ApprovalDenied}
	if !s.Allow || !answers(s, q, x.moment()) {
		return refused, nil
	}
	lasts, err := x.rows.Apply(ctx, s.ID, q.Sandbox, x.moment())
	if err != nil || !lasts {
		return refused, err
	}
	x.extend(ctx, q.Sandbox, s)
	return Answer{Allow: true, ID: s.ID}, nil
}

// extendWait bounds how long a machine is waited for that learns of a decision.
const extendWait = 5 * time.Second

// extend lets a sandbox use the decision without asking again. A machine that
// does not answer is asked at the next connection.
func (x *Inbox) extend(ctx context.Context, sandbox string, s task.Standing) {
	rule, ok := s.Match.Rule(s.ID)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), extendWait)
	defer cancel()
	if err := x.grants.Extend(ctx, sandbox, s.Stage, rule); err != nil {
		x.log.WarnContext(ctx, "a sandbox did not learn of a decision; it asks again", "sandbox", sandbox, "decision", s.ID, "error", err.Error())
	}
}

// Rules are the rules of the decisions that stand for a stage of a task that is
// about to begin in a sandbox, in the order they were made. They are to be
// added to its grant.
func (x *Inbox) Rules(ctx context.Context, taskID, project string, stage task.StageName, sandbox string) ([]task.Rule, error) {
	list, err := x.rows.Standings(ctx, Filter{Task: taskID, Project: project, Waiting: true})
	if err != nil {
		return nil, err
	}
	now := x.moment()
	var rules []task.Rule
	for i := len(list) - 1; i >= 0; i-- {
		s := list[i]
		q := task.Question{Kind: s.Kind, Task: taskID, Project: project, Stage: stage}
		rule, ok := s.Match.Rule(s.ID)
		if !ok || !s.Allow || !reaches(s, q, now) || refused(list, s, q, now) {
			continue
		}
		if lasts, err := x.rows.Apply(ctx, s.ID, sandbox, now); err != nil || !lasts {
			if err != nil {
				return nil, err
			}
			continue
		}
		rules = append(rules, rule)
	}
	return rules, nil
}

// refused says whether another decision denies what one allows.
func refused(list []task.Standing, s task.Standing, q task.Question, now time.Time) bool {
	for _, o := range list {
		if !o.Allow && o.Match == s.Match && reaches(o, q, now) {
			return true
		}
	}
	return false
}

func isReason(err error, reason task.Reason) bool {
	f, ok := errors.AsType[*task.Failure](err)
	return ok && f.Reason == reason
}

// watch gives a channel that is closed at the next change.
func (x *Inbox) watch() <-chan struct{} {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.changed
}

// wake tells who waits that something changed.
func (x *Inbox) wake() {
	x.mu.Lock()
	defer x.mu.Unlock()
	close(x.changed)
	x.changed = make(chan struct{})
}

func (x *Inbox) hurry() {
	select {
	case x.sooner <- struct{}{}:
	default:
	}
}
