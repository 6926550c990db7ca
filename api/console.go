package api

// MaxInput is the most of a command's standard input that one request carries, in
// bytes.
const MaxInput = 1 << 20

// InputType is the media type of standard input.
const InputType = "application/octet-stream"

// TerminalSize is a terminal's size in characters.
type TerminalSize struct {
	Rows uint16 `json:"rows" minimum:"1" maximum:"65535"`
	Cols uint16 `json:"cols" minimum:"1" maximum:"65535"`
}

// InputResult says how far a command's standard input came.
type InputResult struct {
	Taken int64 `json:"taken" doc:"Bytes taken in all; the next request begins there."`
	Open  bool  `json:"open" doc:"More is taken. False: the input was closed, or the command has ended."`
}

// SignalRequest sends a signal to a command's whole tree, or to a part of it.
type SignalRequest struct {
	Signal string `json:"signal" minLength:"1" maxLength:"16" doc:"A name, with or without SIG, or a number."`
	Group  bool   `json:"group,omitempty" doc:"Only the process group of the command's main process."`
	PID    int    `json:"pid,omitempty" minimum:"0" doc:"Only this process of the command's tree."`
}

// Process is a living process of a command's tree. What it says of itself is the
// sandbox's word.
type Process struct {
	PID     int    `json:"pid" doc:"Inside the sandbox."`
	Parent  int    `json:"parent,omitempty"`
	State   string `json:"state,omitempty" doc:"R runs, S sleeps, D waits, T is stopped."`
	Command string `json:"command,omitempty" doc:"Its arguments, cut."`
}

// CommandList lists a sandbox's commands.
type CommandList struct {
	Commands []CommandStatus `json:"commands" nullable:"false"`
}
