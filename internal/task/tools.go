package task

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"time"
)

// ToolKind says what a tool does, whatever its agent calls it. The zero kind is
// ToolOther.
type ToolKind string

// The kinds of tools. What an agent's own program says of a tool's kind is its
// word.
const (
	ToolOther  ToolKind = ""
	ToolShell  ToolKind = "shell"  // runs a command
	ToolRead   ToolKind = "read"   // reads files
	ToolWrite  ToolKind = "write"  // writes whole files
	ToolEdit   ToolKind = "edit"   // changes files, also moves and deletes them
	ToolSearch ToolKind = "search" // looks for files or text in them
	ToolFetch  ToolKind = "fetch"  // asks the network
)

// ToolKinds are the kinds that have a name.
func ToolKinds() []ToolKind {
	return []ToolKind{ToolShell, ToolRead, ToolWrite, ToolEdit, ToolSearch, ToolFetch}
}

// ToolVerdict is what a policy says of a use of a tool. The zero verdict refuses.
type ToolVerdict string

// The verdicts, from the strictest on.
const (
	ToolRefused ToolVerdict = ""
	ToolAsked   ToolVerdict = "ask"
	ToolAllowed ToolVerdict = "allow"
)

// Rank orders verdicts: a higher one lets more through. What is no verdict
// refuses.
func (v ToolVerdict) Rank() int {
	switch v {
	case ToolAllowed:
		return 2
	case ToolAsked:
		return 1
	case ToolRefused:
	}
	return 0
}

// String is the word of policies.
func (v ToolVerdict) String() string {
	return [...]string{"refuse", "ask", "allow"}[v.Rank()]
}

// ToolRules are what one layer of a policy says of tools.
type ToolRules struct {
	Layer    string                 `json:"layer"`
	Default  ToolVerdict            `json:"default,omitempty"`  // of what nothing else names
	Names    map[string]ToolVerdict `json:"names,omitempty"`    // of kinds, and of tools by the names that their agents give them
	Commands []ToolCommand          `json:"commands,omitempty"` // that are allowed, whatever is said of the tool that runs them
}

// ToolCommand is a command that is allowed, argument by argument.
type ToolCommand struct {
	Argv []string `json:"argv"` // an element in braces stands for one argument of its form
	Line int      `json:"-"`
}

// Tools are what the layers of a policy say of tools. The strictest verdict
// counts.
type Tools struct {
	Layers []ToolRules   `json:"layers"`
	Wait   time.Duration `json:"wait"`             // for an answer
	Admins bool          `json:"admins,omitempty"` // only administrators may answer
}

// ToolDecision is what a policy says of one use. The zero decision refuses.
type ToolDecision struct {
	Verdict ToolVerdict
	Layer   string // that decided
	Rule    string // such as "tools.default" or "tools.commands[2]"
}

// ToolAnswer is what became of a use of a tool. The zero answer refuses.
type ToolAnswer struct {
	Allow    bool
	Reason   Reason // of a refusal
	Text     string // why, for the agent and for people
	Approval string // the entry of the inbox; empty: nobody was asked
}

// CanonicalInput is the one spelling of a tool's input: a key that is given twice
// is there once, as a reader of JSON takes it, so that what is shown is what runs.
func CanonicalInput(raw json.RawMessage) (json.RawMessage, error) {
	var v any
	if len(raw) == 0 {
		return nil, nil
	}
	if err := decodeNumbers(raw, &v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// decodeNumbers reads one JSON value and keeps its numbers as they are written.
func decodeNumbers(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one value")
	}
	return nil
}
