package stage

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"time"

	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// The bounds of trying again.
const (
	// MaxAttempts is how often a task goes through its stages in fresh sandboxes
	// before it fails with infra.exhausted.
	MaxAttempts = 3
	// MaxRounds is how often one stage of one attempt is taken up again, with the
	// same sandboxes and commands, when what was missing may come back.
	MaxRounds = 3
)

// The roles of a task's sandboxes.
const (
	RoleAgent  = "agent"
	RoleExport = "export"
	RoleVerify = "verify"
)

// Input says which run of which stage is meant.
type Input struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"` // from 1
	Round   int    `json:"round"`   // from 1
}

// Outcome is how one run of a stage ended. It is what the engine keeps; the
// facts are in our own record.
type Outcome struct {
	State    task.StageState `json:"state"`
	Reason   task.Reason     `json:"reason,omitempty"`
	Text     string          `json:"text,omitempty"`
	ExitCode *int            `json:"exitCode,omitempty"`

	// The same sandboxes can go on in a further round where this one broke off.
	Resumable bool `json:"resumable,omitempty"`

	// Set by admit only.
	Ended   bool          `json:"ended,omitempty"`   // the task has ended already: there is nothing to do
	Attempt int           `json:"attempt,omitempty"` // the first attempt's number; above 1 when the engine's file was lost
	Time    time.Duration `json:"time,omitempty"`    // the longest a command of the task may take
}

// Ending is how a task ends, for the close stage.
type Ending struct {
	State  task.State  `json:"state"`
	Reason task.Reason `json:"reason,omitempty"`
	Text   string      `json:"text,omitempty"`
}

// Next says what follows the end of a stage. The zero value ends the task.
type Next uint8

// What can follow.
const (
	EndTask    Next = iota // nothing further but close
	Proceed                // the next stage
	AgainRound             // the same stage, same sandboxes, same commands
	NewAttempt             // provision, with fresh sandboxes
)

// After says what follows an outcome of the given round.
func After(o Outcome, round int) Next {
	switch o.State {
	case task.StageSucceeded, task.StageSkipped:
		return Proceed
	case task.StageFailed:
	default:
		return EndTask
	}
	switch {
	case !o.Reason.Retryable():
		return EndTask
	case (comesBack(o.Reason) || o.Resumable) && round < MaxRounds:
		return AgainRound
	default:
		return NewAttempt
	}
}

// comesBack says whether what failed may be there again a moment later while
// the sandbox and its commands go on.
func comesBack(r task.Reason) bool {
	switch r {
	case task.InfraWorkerLost, task.InfraEgressAway, task.InfraControlAway, task.InfraStorage, task.InfraInternal, task.InfraCredential:
		return true
	default:
		return false
	}
}

// EndingOf says how a task ends whose last stage ended with o after the given
// number of attempts. Cancelling wins over every other reason.
func EndingOf(o Outcome, attempts int, cancelled bool) Ending {
	switch {
	case cancelled || o.State == task.StageCancelled:
		return Ending{State: task.StateCancelled, Reason: task.Cancelled, Text: "cancelled on request"}
	case o.State == task.StageSucceeded || o.State == task.StageSkipped:
		return Ending{State: task.Succeeded}
	case o.Reason.Retryable():
		return Ending{
			State: task.Failed, Reason: task.InfraExhausted,
			Text: fmt.Sprintf("%d attempts ended with a fault of the infrastructure, the last with %s: %s", attempts, o.Reason, o.Text),
		}
	default:
		return Ending{State: task.Failed, Reason: o.Reason, Text: o.Text}
	}
}

// Backoff is how long to wait before round is taken up again.
func Backoff(round int) time.Duration { return time.Duration(round) * 2 * time.Second }

// SandboxID is the id of a task's sandbox. It follows from its arguments, so
// that a step that is repeated after a crash finds the sandbox it made.
func SandboxID(taskID string, attempt int, role string) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%s", taskID, attempt, role))
	return "sb-" + strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:16]
}

// Spec is what a task's sandbox is made from. It has a network device only when
// a stage that runs in it may reach something.
func (p Plan) Spec(taskID string, attempt int, role string) sandbox.Spec {
	spec := sandbox.Spec{
		ID: SandboxID(taskID, attempt, role), Task: taskID, Role: role,
		Root: "host", Limits: p.Limits.WithDefaults().OfSandbox(),
	}
	spec.Sudo = p.Sudo && role != RoleExport
	for _, name := range stagesIn(role) {
		// What the repository is given is known only after checkout.
		if len(p.Rules[name]) > 0 || len(p.Identity[name]) > 0 || !p.Unknown[name].IsZero() || p.Repository.Network {
			spec.Network = true
		}
	}
	return spec
}

func stagesIn(role string) []task.StageName {
	switch role {
	case RoleAgent:
		return []task.StageName{task.Checkout, task.Setup, task.Agent}
	case RoleVerify:
		return []task.StageName{task.Setup, task.Verify}
	default:
		return nil
	}
}

// Grant is what the stage's rules let a sandbox reach.
func (p Plan) Grant(taskID string, name task.StageName, sandboxID string) task.Grant {
	return task.Grant{Task: taskID, Stage: name, Sandbox: sandboxID, PolicyDigest: p.Digest, Rules: p.Rules[name], Unknown: p.Unknown[name]}
}

// CommandTime is how long a command of the stage may take.
func (p Plan) CommandTime(name task.StageName) time.Duration {
	if t := p.Timeout[name]; t > 0 {
		return t
	}
	return p.Limits.WithDefaults().Time
}

// LongestCommand is the longest that a command of any stage may take.
func (p Plan) LongestCommand() time.Duration {
	longest := time.Duration(0)
	for _, name := range task.StageNames() {
		longest = max(longest, p.CommandTime(name))
	}
	return longest
}
