package task

import "time"

// The layers of policy, from the one that binds all others down.
const (
	LayerOperator   = "operator"
	LayerProject    = "project"
	LayerRepository = "repository"
	LayerTask       = "task"
	LayerPerson     = "person" // no layer: rules that follow from a person's answer
)

// Layers are the texts that stand around a task's own policy. They are taken
// when the task is admitted and kept with it, so that its plan stays the same
// whatever becomes of the files they came from. The zero value has none.
type Layers struct {
	Operator   string `json:"operator,omitempty"`
	Project    string `json:"project,omitempty"`    // of the project that Spec.Project names
	Repository string `json:"repository,omitempty"` // .cofferdam/task.yaml of the checked-out commit; known after checkout

	Models ModelKeys `json:"models,omitzero"` // of the requester; zero: there is no login

	// Narrowed says, a line each, what the repository asked for and was not given.
	// What it quotes comes from the repository and is shown escaped.
	Narrowed []string `json:"narrowed,omitempty"`
}

// PolicyNote tells that a layer asked for more than it was given.
type PolicyNote struct {
	Layer    string   `json:"layer"`
	Narrowed []string `json:"narrowed"`
}

// RepositoryAsk is what a repository may say about the work itself.
type RepositoryAsk struct {
	Allowed bool      `json:"allowed,omitempty"` // a higher layer lets it say what follows; else that is empty
	Network bool      `json:"network,omitempty"` // a higher layer lets it ask for hosts
	Setup   string    `json:"setup,omitempty"`
	Verify  string    `json:"verify,omitempty"`
	Report  string    `json:"report,omitempty"`
	Files   []string  `json:"files,omitempty"`
	Agent   AgentSpec `json:"agent,omitzero"`
}

// Project is a policy layer by name.
type Project struct {
	Name   string // as ValidProject says
	Text   string
	Digest Digest // of the text
	By     string // who set it last
	At     time.Time
}

// ValidProject says whether name can be a project's: letters, digits, "-", "_"
// and "." in between, at most 64.
func ValidProject(name string) bool {
	if name == "" || len(name) > 64 {
		return false
	}
	for i, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !letter && (i == 0 || c != '-' && c != '_' && c != '.') {
			return false
		}
	}
	return true
}
