package task

import (
	"errors"
	"strings"
)

// Reason is a code that says why something was refused or ended as it did.
// The same refusal gives the same code to the program inside, to the operator
// and in the record. Codes are dotted and never change their meaning.
type Reason string

// The reason codes. The part before the first dot is the class.
const (
	ReasonNone Reason = "" // ended as wanted

	// Infrastructure: retried by the control plane with a new attempt.
	InfraWorkerLost      Reason = "infra.worker_lost"      // the worker did not answer in time
	InfraSandboxLost     Reason = "infra.sandbox_lost"     // the sandbox's kernel died, or it is unknown
	InfraSandboxCreate   Reason = "infra.sandbox_create"   // the sandbox could not be made
	InfraEgressRestarted Reason = "infra.egress_restarted" // the gateway changed its epoch while the stage ran and the stage failed
	InfraEgressAway      Reason = "infra.egress_away"      // no gateway answers
	InfraControlAway     Reason = "infra.control_plane_away"
	InfraStorage         Reason = "infra.storage"   // disk full or store broken on our side
	InfraInternal        Reason = "infra.internal"  // a fault of ours
	InfraMachine         Reason = "infra.machine"   // the machine lacks what sandboxes need, or something is in the way
	InfraExhausted       Reason = "infra.exhausted" // every attempt ended with infra.*
	InfraVault           Reason = "infra.vault"     // the vault's key is lost or another one, or a row of the vault was altered; a person must mend it

	InfraSelfTest   Reason = "infra.self_test"           // a lease's value is not put in place of its placeholder, or comes back: the stage does not begin
	InfraCredential Reason = "infra.credential_provider" //nolint:gosec // G101: a reason code: who mints a credential (a forge, an identity provider, a cloud) does not answer, or answers garbage

	// Input: the request cannot be carried out as it stands.
	InputInvalid    Reason = "input.invalid"      // a field is wrong; the text names it
	InputPolicy     Reason = "input.policy"       // the policy file is wrong; the text names line and field
	InputRepository Reason = "input.repository"   // the repository can't be read
	InputConflict   Reason = "input.conflict"     // an idempotency key was used for another request
	InputNotFound   Reason = "input.not_found"    // no such task, sandbox, output, command
	InputUnauthed   Reason = "input.unauthorized" // no token, or not a valid one

	// Limits: named after what was hit.
	LimitTime        Reason = "limit.time"
	LimitMemory      Reason = "limit.memory"
	LimitPIDs        Reason = "limit.pids"
	LimitDisk        Reason = "limit.disk"
	LimitOutput      Reason = "limit.output"
	LimitNames       Reason = "limit.names"
	LimitConnections Reason = "limit.connections"
	LimitSize        Reason = "limit.size"     // an upload or an output is larger than allowed
	LimitInodes      Reason = "limit.inodes"   // files, folders and links
	LimitFiles       Reason = "limit.files"    // open files of a process
	LimitTurns       Reason = "limit.turns"    // turns of an agent's loop
	LimitSpend       Reason = "limit.spend"    // the budget of tokens or money is used up
	LimitRequests    Reason = "limit.requests" // asked more often than allowed; wait and ask again

	// Policy.
	PolicyDenied       Reason = "policy.denied"        // no rule allows it
	PolicyAddress      Reason = "policy.address"       // the name's address is never reachable (metadata, private, ours)
	PolicyNameMismatch Reason = "policy.name_mismatch" // the names (address, SNI, Host) disagree
	PolicyProtocol     Reason = "policy.protocol"      // a protocol that is not policed (UDP, QUIC, ICMP)
	PolicyCredential   Reason = "policy.credential"    //nolint:gosec // G101: a reason code: a credential that is not lent to this use, or another one in its place
	PolicyModel        Reason = "policy.model"         // a model that is not among those allowed
	PolicyFiles        Reason = "policy.files"         // a path of the workspace that may not be written or read
	PolicyOutput       Reason = "policy.output"        // what the task left has something that the policy refuses
	PolicyCeiling      Reason = "policy.ceiling"       // the request asks for more than a higher layer allows
	EgressUnresolved   Reason = "egress.unresolved"    // allowed, but the name has no address outside
	EgressUnreachable  Reason = "egress.unreachable"   // allowed, but the upstream did not answer
	EgressUntrusted    Reason = "egress.untrusted"     // allowed, but the upstream's certificate is not valid for the name

	// Stages.
	CheckoutFailed Reason = "checkout.failed"
	SetupFailed    Reason = "setup.failed"
	AgentFailed    Reason = "agent.failed"
	ModelRefused   Reason = "agent.model_refused" // the model's server said 400, 401, 403 or 404
	ModelLimited   Reason = "agent.model_limited" // it said 429 until no try was left
	ModelFaulty    Reason = "agent.model_faulty"  // it said 5xx, or garbage, until no try was left
	ModelSilent    Reason = "agent.model_silent"  // it said nothing in time
	ExportFailed   Reason = "export.failed"
	VerifyFailed   Reason = "verify.failed"
	PatchFailed    Reason = "verify.patch"     // the patch does not apply to a clean checkout
	WorkspaceGone  Reason = "export.workspace" // the agent removed the workspace's repository or made it unreadable

	ApprovalExpired Reason = "approval.expired" // nobody answered in time
	ApprovalDenied  Reason = "approval.denied"  // a person said no
	Cancelled       Reason = "cancelled"
)

// Class returns the part before the first dot: "infra", "input", "limit",
// "policy", "checkout", "setup", "agent", "verify", "approval", "cancelled".
func (r Reason) Class() string {
	class, _, _ := strings.Cut(string(r), ".")
	return class
}

// Retryable says whether the control plane may try again with a new attempt.
// Only infrastructure is retried, and not when the attempts are used up or only
// a person can mend it.
func (r Reason) Retryable() bool {
	return r.Class() == "infra" && r != InfraExhausted && r != InfraVault
}

// ExitCode is the exit code of `cofferdam run` and `task` for a task that ended
// for this reason (design.md §5): 0 succeeded, 10 agent failed, 11 verification
// failed, 12 denied by policy, 13 limit reached, 14 approval, 15
// infrastructure, 16 cancelled, 17 checkout or setup failed, 2 usage, 1 else.
func (r Reason) ExitCode() int {
	switch r.Class() {
	case "":
		return 0
	case "agent":
		return 10
	case "verify":
		return 11
	case "policy", "egress":
		return 12
	case "limit":
		return 13
	case "approval":
		return 14
	case "infra":
		return 15
	case "cancelled":
		return 16
	case "checkout", "setup":
		return 17
	case "input":
		return 2
	}
	return 1
}

// Failure is an error that carries a reason code and a text for people. The
// text says what happened and what to do, and holds no internals.
type Failure struct {
	Reason Reason
	Text   string
	Err    error // the cause, for our own log; never shown inside a sandbox
	// Inside is what a program inside may be told of a credential that can't be
	// had, in words of ours alone; empty: nothing but the reason.
	Inside string
}

// Fail returns a Failure. cause may be nil.
func Fail(reason Reason, text string, cause error) *Failure {
	return &Failure{Reason: reason, Text: text, Err: cause}
}

// ReasonOf is the code that an error carries, itself or in what it wraps;
// ReasonNone for one without, and for nil.
func ReasonOf(err error) Reason {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f.Reason
	}
	return ReasonNone
}

// Error gives the code, the text and the cause.
func (f *Failure) Error() string {
	s := string(f.Reason)
	if f.Text != "" {
		s += ": " + f.Text
	}
	if f.Err != nil {
		s += ": " + f.Err.Error()
	}
	return s
}

// Unwrap returns the cause.
func (f *Failure) Unwrap() error { return f.Err }
