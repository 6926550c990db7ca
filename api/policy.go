package api

import "time"

// PolicyQuestion asks about a policy before a task is run under it.
type PolicyQuestion struct {
	Policy  string `json:"policy,omitempty" maxLength:"1048576" doc:"Text of the policy file (YAML). Empty: what holds without one."`
	Project string `json:"project,omitempty" maxLength:"64" doc:"The project whose layer counts. Empty: none."`
	Stage   string `json:"stage,omitempty" enum:"checkout,setup,agent,verify" doc:"Only what is about this stage. Empty: all."`
	Agent   string `json:"agent,omitempty" maxLength:"64" doc:"The agent of the task, so that it is told how that asks its models. Empty: not known."`
}

// PolicyExplanation is an effective policy, line by line.
type PolicyExplanation struct {
	PolicyDigest string        `json:"policyDigest"`
	Layers       []PolicyLayer `json:"layers" nullable:"false" doc:"The layers that count, the one that binds all others first."`
	Lines        []PolicyLine  `json:"lines" nullable:"false"`
}

// PolicyLayer is one layer that counts.
type PolicyLayer struct {
	Layer  string `json:"layer" doc:"operator, project, repository or task."`
	Digest string `json:"digest" doc:"Of the layer's text."`
}

// PolicyLine is one line of an effective policy and who said it.
type PolicyLine struct {
	Stage string `json:"stage,omitempty" doc:"Empty: all stages."`
	Field string `json:"field"`
	Text  string `json:"text"`
	Layer string `json:"layer" doc:"operator, project, repository, task, request (it follows from the task's other fields) or default."`
	Line  int    `json:"line,omitempty" doc:"In that layer's file."`
	Note  string `json:"note,omitempty" doc:"What follows from it."`
}

// PolicyCheck is what became of the examples in a policy file.
type PolicyCheck struct {
	Passed   bool            `json:"passed" doc:"All examples hold."`
	Examples []PolicyExample `json:"examples" nullable:"false"`
}

// PolicyExample is one example of a policy file and the answer to it.
type PolicyExample struct {
	Line   int    `json:"line"`
	Text   string `json:"text"`
	Expect string `json:"expect" doc:"allowed or denied."`
	Got    string `json:"got" doc:"allowed or denied."`
	Reason string `json:"reason,omitempty" doc:"Reason code of a denial."`
	Rule   string `json:"rule,omitempty" doc:"That decided."`
	Passed bool   `json:"passed"`
	Why    string `json:"why,omitempty" doc:"What is wrong, when not passed."`
}

// ProjectRequest sets a project's policy layer.
type ProjectRequest struct {
	Text string `json:"text" minLength:"1" maxLength:"262144" doc:"A policy file, and ceiling and repository (YAML)."`
}

// Project is a policy layer by name.
type Project struct {
	Name   string    `json:"name"`
	Digest string    `json:"digest" doc:"Of the text."`
	By     string    `json:"by" doc:"Who set it last."`
	At     time.Time `json:"at"`
	Text   string    `json:"text,omitempty" doc:"Only in the answer about one project."`
}

// ProjectList is every project's layer, by name.
type ProjectList struct {
	Projects []Project `json:"projects" nullable:"false"`
}

// PolicyNote is the data of an event of type policy.
type PolicyNote struct {
	Layer    string   `json:"layer"`
	Narrowed []string `json:"narrowed" nullable:"false" doc:"What the layer asked for and is not given."`
}

// StageRun is one run of one stage: a round of an attempt.
type StageRun struct {
	Attempt   int        `json:"attempt" doc:"Of the task, from 1: each has fresh sandboxes."`
	Round     int        `json:"round" doc:"Of the stage in the attempt, from 1."`
	Stage     string     `json:"stage"`
	State     string     `json:"state"`
	Reason    string     `json:"reason"`
	Text      string     `json:"text,omitempty"`
	Sandbox   string     `json:"sandbox,omitempty"`
	ExitCode  *int       `json:"exitCode,omitempty"`
	StartedAt *time.Time `json:"startedAt,omitempty"`
	EndedAt   *time.Time `json:"endedAt,omitempty"`
}
