// Package budget keeps tasks within what they, their users and their projects
// may use of models. It lives in cofferdamd only.
//
// Words. A budget is a number of tokens, of dollars, or both, for a task's life
// or a day or month of a user's or a project's tasks. Who asks a model asks here
// first, each time; what was used before is on record by then. A budget without
// room is met: then the task waits, its processes are held, and the request with
// it, until there is room again or the wait is over; then the request is refused
// with limit.spend.
//
// A budget is met by what was used, not by what will be: the requests that are
// under way when it is met go beyond it.
//
// Not promised: that clocks inside a sandbox stand still while its processes are
// held; that money is what a vendor charges (package price).
package budget

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/cofferdam/cofferdam/internal/budget/price"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Rows keeps sums and budgets. Implemented by store/spending.
type Rows interface {
	Spent(ctx context.Context, scope task.BudgetScope, name string, since time.Time) ([]task.ModelSpend, error)
	Budgets(ctx context.Context) ([]task.Budget, error)
	Budget(ctx context.Context, scope task.BudgetScope, name string) (task.Budget, error)
	SetBudget(ctx context.Context, b task.Budget) error
	LastSeq(ctx context.Context, sandbox string) (int64, error)
	TaskOf(ctx context.Context, sandbox string) (string, error)
}

// Waits keeps when tasks waited. Implemented by store/spending.
type Waits interface {
	Begin(ctx context.Context, w task.BudgetWait) (task.BudgetWait, error)
	End(ctx context.Context, w task.BudgetWait) error
	Told(ctx context.Context, taskID string, number int64, told int) error
	Open(ctx context.Context) ([]task.BudgetWait, error)
	Of(ctx context.Context, taskID string) ([]task.BudgetWait, error)
}

// Tasks reads tasks and moves them.
type Tasks interface {
	Task(ctx context.Context, id string) (task.Task, error)
	// Wait moves the task to waiting with task.LimitSpend; Go moves it back.
	Wait(ctx context.Context, id, text string) error
	Go(ctx context.Context, id string) error
	// AddEgress keeps records of the gateway, each once.
	AddEgress(ctx context.Context, id string, records []task.EgressRecord) error
}

// Machines reaches the sandboxes. Implemented by fleet.
type Machines interface {
	Egress(ctx context.Context, id string, after int64) ([]task.EgressRecord, error)
	Inspect(ctx context.Context, id, command string) ([]sandbox.Status, error)
	SignalPart(ctx context.Context, id, command string, s sandbox.Signal) error
}

// Audit appends to the account that is believed later.
type Audit interface {
	Record(ctx context.Context, taskID, key, kind, seenBy string, facts any) error
}

// Options say what a Keeper works with. All fields but the last three are
// required.
type Options struct {
	Rows     Rows
	Waits    Waits
	Tasks    Tasks
	Machines Machines
	Audit    Audit
	Prices   price.Table
	// Policy gives the limits of a task's policy: what counts, and what would if its
	// own file said nothing.
	Policy func(ctx context.Context, t task.Task) (limits, above task.Limits, err error)
	Now    func() time.Time
	Log    *slog.Logger

	Wait time.Duration // for a budget to be raised; 0: DefaultWait
	Pace time.Duration // between looks at what waits; 0: two seconds
}

// DefaultWait is how long a task waits for its budget to be raised, all times
// together: a sandbox lives for a day.
const DefaultWait = 12 * time.Hour

const defaultPace = 2 * time.Second

// Keeper keeps budgets. It is safe for concurrent use.
type Keeper struct {
	Options

	mu      sync.Mutex
	changed chan struct{} // closed when what waits should look again
	turns   map[string]*turn
	held    map[string]bool // sandboxes whose processes this process has held
	kick    chan struct{}
}

// turn is a task's: one change of what it waits for at a time.
type turn struct {
	sync.Mutex
	users int
}

// New returns a keeper. Run is to be called, too.
func New(o Options) *Keeper {
	if o.Wait <= 0 {
		o.Wait = DefaultWait
	}
	if o.Pace <= 0 {
		o.Pace = defaultPace
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Keeper{Options: o, changed: make(chan struct{}), turns: map[string]*turn{}, held: map[string]bool{}, kick: make(chan struct{}, 1)}
}

// take takes the turn of a task; the caller gives it back.
func (k *Keeper) take(taskID string) (let func()) {
	k.mu.Lock()
	t := k.turns[taskID]
	if t == nil {
		t = &turn{}
		k.turns[taskID] = t
	}
	t.users++
	k.mu.Unlock()
	t.Lock()
	return func() {
		t.Unlock()
		k.mu.Lock()
		defer k.mu.Unlock()
		if t.users--; t.users == 0 {
			delete(k.turns, taskID)
		}
	}
}

// wake has everybody look again.
func (k *Keeper) wake() {
	k.mu.Lock()
	close(k.changed)
	k.changed = make(chan struct{})
	k.mu.Unlock()
	select {
	case k.kick <- struct{}{}:
	default:
	}
}

func (k *Keeper) changes() <-chan struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.changed
}
