// Package fact has the facts of the audit's records about tasks: what is hashed,
// signed and read again years later. Fields are added, never changed.
package fact

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/task/traffic"
)

// What happens to a task and its sandboxes.
type (
	// TaskAdmitted is of kind task.admitted.
	TaskAdmitted struct {
		Task         string                         `json:"task"`
		RequestedBy  string                         `json:"requestedBy"`
		Repo         task.Repo                      `json:"repo"`
		SpecDigest   task.Digest                    `json:"specDigest"`
		PolicyDigest task.Digest                    `json:"policyDigest"`
		Limits       task.Limits                    `json:"limits"`
		Rules        map[task.StageName][]task.Rule `json:"rules,omitempty"`

		Project        string                             `json:"project,omitempty"`
		OperatorDigest task.Digest                        `json:"operatorDigest,omitempty"` // of the text of the layer
		ProjectDigest  task.Digest                        `json:"projectDigest,omitempty"`
		Unknown        map[task.StageName]task.Unknown    `json:"unknown,omitempty"`  // of connections that no rule matches
		Identity       map[task.StageName][]task.Identity `json:"identity,omitempty"` // for whom stages have tokens of their run
		Timeout        map[task.StageName]time.Duration   `json:"timeout,omitempty"`
		Model          task.ModelAccess                   `json:"model,omitzero"` // by which authority the agent asks its models
		Files          task.FileRules                     `json:"files,omitzero"`
		Widened        []string                           `json:"widened,omitempty"` // protections that are taken away
		Sudo           bool                               `json:"sudo,omitempty"`
	}
	// RepositoryAsked is of kind policy.repository.
	RepositoryAsked struct {
		Task         string                         `json:"task"`
		Commit       string                         `json:"commit"`
		Digest       task.Digest                    `json:"digest"` // of .cofferdam/task.yaml, as far as it was read
		PolicyDigest task.Digest                    `json:"policyDigest"`
		Rules        map[task.StageName][]task.Rule `json:"rules,omitempty"` // of the task from now on
		Files        task.FileRules                 `json:"files,omitzero"`
		Asked        task.RepositoryAsk             `json:"asked,omitzero"`
		Narrowed     []string                       `json:"narrowed,omitempty"` // asked for, and not given
		Model        task.ModelAccess               `json:"model,omitzero"`
	}
	// SandboxCreated is of kind sandbox.created.
	SandboxCreated struct {
		Task    string      `json:"task"`
		Attempt int         `json:"attempt"`
		Role    string      `json:"role"`
		Sandbox string      `json:"sandbox"`
		Worker  string      `json:"worker"`
		Kernel  string      `json:"kernel"`
		Network bool        `json:"network"`
		Limits  task.Limits `json:"limits"`
	}
	// SandboxDestroyed is of kind sandbox.destroyed.
	SandboxDestroyed struct {
		Task    string `json:"task"`
		Sandbox string `json:"sandbox"`
	}
	// StageEnded is of kind stage.ended.
	StageEnded struct {
		Task         string          `json:"task"`
		Attempt      int             `json:"attempt"`
		Round        int             `json:"round"`
		Stage        task.StageName  `json:"stage"`
		Sandbox      string          `json:"sandbox,omitempty"`
		State        task.StageState `json:"state"`
		Reason       task.Reason     `json:"reason,omitempty"`
		ExitCode     *int            `json:"exitCode,omitempty"`
		Commands     []string        `json:"commands,omitempty"`
		Rules        []task.Rule     `json:"rules,omitempty"`
		PolicyDigest task.Digest     `json:"policyDigest,omitempty"`
	}
	// CommandStarted is of kind command.started.
	CommandStarted struct {
		Task    string         `json:"task"`
		Attempt int            `json:"attempt"`
		Stage   task.StageName `json:"stage"`
		Sandbox string         `json:"sandbox"`
		Command string         `json:"command"`
		Digest  task.Digest    `json:"digest"` // of the argument vector as JSON
	}
	// OutputKept is of kind output.kept.
	OutputKept struct {
		Task    string      `json:"task"`
		Attempt int         `json:"attempt"`
		Output  task.Output `json:"output"`
	}
	// VerifyJudged is of kind verify.judged. The evidence has the rest.
	VerifyJudged struct {
		Task     string      `json:"task"`
		Attempt  int         `json:"attempt"`
		Round    int         `json:"round"`
		Evidence task.Digest `json:"evidence"` // of output evidence
		Base     string      `json:"base"`     // commit
		Patch    task.Digest `json:"patch"`
		Command  task.Digest `json:"command"` // of its text
		Setup    task.Digest `json:"setup,omitempty"`

		Outcome   string         `json:"outcome"` // passed, failed or flaky
		Passes    bool           `json:"passes"`
		Reason    task.Reason    `json:"reason,omitempty"`
		ExitCodes map[string]int `json:"exitCodes"` // of the runs patch, again and base

		Tests    int `json:"tests"` // of the report of the run patch
		Failures int `json:"failures"`
		Errors   int `json:"errors"`
		Skipped  int `json:"skipped"`

		Compared     bool     `json:"compared"` // with the base; else what follows is empty
		NewlyFailing int      `json:"newlyFailing"`
		NewlyPassing int      `json:"newlyPassing"`
		Removed      int      `json:"removed"`
		NewlySkipped int      `json:"newlySkipped"`
		Findings     int      `json:"findings"` // files of tests that may have been weakened, by kind
		Flags        []string `json:"flags"`
	}
	// PatchFlagged is of kind patch.flagged.
	PatchFlagged struct {
		Task     string           `json:"task"`
		Attempt  int              `json:"attempt"`
		Patch    task.Digest      `json:"patch"`
		Verdict  task.FlagVerdict `json:"verdict"`
		Flags    []Flagged        `json:"flags"` // the kinds that were found, the worst first
		Findings int              `json:"findings"`
		More     int              `json:"more,omitempty"` // that are not listed
		Digest   task.Digest      `json:"digest"`         // of the listed ones as JSON
	}
	// Flagged is a kind that was found, and what the policy says of it. It is no
	// member's name: the account takes none that reads like a secret's.
	Flagged struct {
		Flag    task.Flag        `json:"flag"`
		Verdict task.FlagVerdict `json:"verdict"`
	}
	// EgressCollected is of kind egress.collected.
	EgressCollected struct {
		Task    string      `json:"task"`
		Sandbox string      `json:"sandbox"`
		LastSeq int64       `json:"lastSeq"`
		Allowed int         `json:"allowed"`
		Denied  int         `json:"denied"`
		Digest  task.Digest `json:"digest"` // of the records as JSON, a line each
		traffic.Sum
		tally traffic.Tally
	}
	// TaskEnded is of kind task.ended.
	TaskEnded struct {
		Task     string      `json:"task"`
		State    task.State  `json:"state"`
		Reason   task.Reason `json:"reason,omitempty"`
		Attempts int         `json:"attempts"`
		Commit   string      `json:"commit,omitempty"`
		Left     []string    `json:"left,omitempty"` // sandboxes on machines that do not answer
	}
)

// What file rules did.
type (
	// FilesProtected is of kind files.protected.
	FilesProtected struct {
		Task    string `json:"task"`
		Attempt int    `json:"attempt"`
		Sandbox string `json:"sandbox"`
		task.FileProtection
	}
	// FilesRefused is of kind files.refused.
	FilesRefused struct {
		Task    string            `json:"task"`
		Sandbox string            `json:"sandbox"`
		LastSeq int64             `json:"lastSeq"`
		Refused int64             `json:"refused"`         // with those that records stand for
		First   []task.FileDenial `json:"first,omitempty"` // the first few
		Digest  task.Digest       `json:"digest"`          // of the records as JSON, a line each
	}
	// FilesStripped is of kind files.stripped.
	FilesStripped struct {
		Task    string      `json:"task"`
		Attempt int         `json:"attempt"`
		Reason  task.Reason `json:"reason"`
		Paths   []string    `json:"paths"`
		More    int         `json:"more,omitempty"` // paths that are not listed
	}
)

// Count adds one record.
func (f *EgressCollected) Count(r task.EgressRecord) {
	f.LastSeq = max(f.LastSeq, r.Seq)
	f.tally.Add(r)
	switch {
	case r.Done:
	case r.Verdict == task.Allowed.String():
		f.Allowed++
	default:
		f.Denied++
	}
}

// Close completes the facts when every record is counted.
func (f *EgressCollected) Close(digest []byte) {
	f.Digest, f.Sum = task.Digest("sha256:"+hex.EncodeToString(digest)), f.tally.Sum()
}

// LayerDigest names a layer's text; a layer that is not there has none.
func LayerDigest(text string) task.Digest {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return task.Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// Digest names a value by the hash of its JSON.
func Digest(v any) (task.Digest, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(b)
	return task.Digest("sha256:" + hex.EncodeToString(sum[:])), nil
}
