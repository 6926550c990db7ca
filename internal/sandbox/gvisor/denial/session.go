package denial

import (
	"encoding/json"
	"fmt"
)

// SinkName is how the sink is called in a session.
const SinkName = "cofferdam-denials"

// Watched says what the sink looks for. Paths are absolute inside the sandbox.
type Watched struct {
	File      string   // on the host: where the lines go
	Protected []string // what lies at or beneath these
	Pinned    []string // and these themselves
}

// Session is the configuration of a trace session that writes to w.File: the
// kernel then calls the sink at the end of each system call that can change a
// path, and of no other.
func Session(w Watched) ([]byte, error) {
	type point struct {
		Name string `json:"name"`
	}
	type sink struct {
		Name   string         `json:"name"`
		Config map[string]any `json:"config"`
	}
	session := struct {
		Name   string  `json:"name"`
		Points []point `json:"points"`
		Sinks  []sink  `json:"sinks"`
	}{Name: "Default", Sinks: []sink{{Name: SinkName, Config: map[string]any{
		"file": w.File, "protected": w.Protected, "pinned": w.Pinned,
	}}}}
	for number := range Calls() {
		session.Points = append(session.Points, point{fmt.Sprintf("syscall/sysno/%d/exit", number)})
	}
	return json.Marshal(session)
}

// Call says where a system call has its paths. A folder's descriptor of -1 is
// the working folder.
type Call struct {
	Operation string
	Paths     []PathArg
}

// PathArg names the arguments, from 0, that hold a path: its folder's descriptor
// and its text. Folder is -1 when there is none, Text when the descriptor itself
// is what the call is about.
type PathArg struct{ Folder, Text int }
