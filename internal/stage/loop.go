package stage

import (
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// ModelRule is the id of the rule that lets an agent ask its models.
const ModelRule = task.RuleModel

// Loop is the agent of our own: it asks a model what to do and does it with
// tools in the task's sandbox. Implemented by agent/loop.
type Loop interface {
	// Run works until the model says that it is done, and returns nil, or a
	// *task.Failure. It may be cut off at any moment by ctx and is then run again
	// with the same job: what its journal has is neither asked nor done again.
	Run(ctx context.Context, job LoopJob) error
}

// LoopJob is one run of the loop. All fields but Commit are required.
type LoopJob struct {
	Task    string
	Attempt int
	Agent   task.AgentSpec
	Prompt  string
	Repo    string     // the repository's name, for people and the prompt
	Commit  string     // that is checked out
	Until   time.Time  // the stage's wall time ends here
	Grant   task.Grant // what the loop itself may reach; the sandbox has a grant of its own
	Env     []string   // KEY=VALUE, of each command
	Hands   Hands
	Gate    ToolGate  // of its tools; nil: all are allowed
	Log     io.Writer // the stage's log; the same bytes come again in a repeated run
}

// Hands reaches the sandbox of one job, and no other. Errors are as those of
// Sandboxes.
type Hands interface {
	// Run starts the command (once per id) and copies its whole output to out.
	Run(ctx context.Context, cmd sandbox.Command, out io.Writer) (Result, error)
	// Put unpacks a tar stream beneath dir.
	Put(ctx context.Context, dir string, tar io.Reader) error
	// Adopt names a command that was started in a run that was cut off: what it
	// left running ends with the stage.
	Adopt(command string)
}

// Turns is the loop's journal. Implemented by store. Each call is idempotent,
// and what is answered or done never changes again.
type Turns interface {
	// Turns returns the attempt's turns in order, each with its calls in order.
	Turns(ctx context.Context, id string, attempt int) ([]Turn, error)
	// SetTurn records where a turn stands; its calls are not looked at.
	SetTurn(ctx context.Context, id string, attempt int, t Turn) error
	// SetCall records where a call of a turn stands.
	SetCall(ctx context.Context, id string, attempt, turn int, c Call) error
}

// TurnState is where a turn or a call stands.
type TurnState string

// The states of a turn and of a call.
const (
	TurnAsking   TurnState = "asking"   // requests were sent, or are about to be
	TurnAnswered TurnState = "answered" // the whole response is recorded
	CallIntended TurnState = "intended" // nothing of it was started
	CallStarted  TurnState = "started"  // its command was started, or is about to be: it is attached to, never run again
	CallDone     TurnState = "done"     // its result is recorded
)

// Turn is one question to the model and its answer.
type Turn struct {
	Number   int         // from 1
	State    TurnState   // asking, answered
	Request  task.Digest // of the request's parameters as JSON
	Requests int64       // how often it was sent, answered or not
	Response json.RawMessage
	Usage    task.ModelUsage // of the answer; Requests is not set
	Calls    []Call
}

// Call is one use of a tool that a turn's answer asks for.
type Call struct {
	Number  int    // from 1, in the order of the answer
	Tool    string // as the model named it
	Input   string // as the model wrote it
	Command string // id of the command in the sandbox; empty for a call that runs none
	State   TurnState
	Before  task.Digest // of the file that write or edit changes; empty: there was none, or another tool
	After   task.Digest // of what it becomes
	Result  string      // what the model is told
	Failed  bool
}
