package loop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"time"
)

// The names of the tools.
const (
	toolShell  = "shell"
	toolRead   = "read"
	toolWrite  = "write"
	toolEdit   = "edit"
	toolSearch = "search"
)

// Bounds of what a model may ask a tool for.
const (
	maxCommand   = 96 << 10 // bytes of a command line: one argument of Linux has at most 128 KiB
	maxContent   = 4 << 20  // bytes of a file that is written, or of one that is edited
	maxPath      = 4096
	shellDefault = 2 * time.Minute
	shellMost    = time.Hour
	fileTime     = time.Minute // what reads, writes and searches may take
)

// tools are what the model is offered.
func tools() []Tool {
	schema := func(s string) json.RawMessage { return json.RawMessage(s) }
	return []Tool{
		{toolShell, "Run a command line with bash in /workspace and get its output, standard output and standard error together, and its exit code. Nothing can be typed into it.", schema(`{"type":"object","properties":{"command":{"type":"string"},"timeout_seconds":{"type":"integer","minimum":1,"maximum":3600,"description":"Default 120."}},"required":["command"],"additionalProperties":false}`)},
		{toolRead, "Read lines of a file. Paths are relative to /workspace, or absolute.", schema(`{"type":"object","properties":{"path":{"type":"string"},"offset":{"type":"integer","minimum":1,"description":"First line, from 1."},"limit":{"type":"integer","minimum":1,"description":"How many lines."}},"required":["path"],"additionalProperties":false}`)},
		{toolWrite, "Write a whole file. Folders are made as needed.", schema(`{"type":"object","properties":{"path":{"type":"string"},"content":{"type":"string"}},"required":["path","content"],"additionalProperties":false}`)},
		{toolEdit, "Replace text in a file. old must be exactly what stands there, and stand there once unless all is true.", schema(`{"type":"object","properties":{"path":{"type":"string"},"old":{"type":"string"},"new":{"type":"string"},"all":{"type":"boolean"}},"required":["path","old","new"],"additionalProperties":false}`)},
		{toolSearch, "Find lines that match an extended regular expression in the files beneath a path.", schema(`{"type":"object","properties":{"pattern":{"type":"string"},"path":{"type":"string","description":"Default: all of /workspace."},"glob":{"type":"string","description":"Only files whose name matches, such as *.go."}},"required":["pattern"],"additionalProperties":false}`)},
	}
}

// input is what a model gave a tool.
type input struct {
	Command        string  `json:"command"`
	TimeoutSeconds int64   `json:"timeout_seconds"`
	Path           string  `json:"path"`
	Offset         int     `json:"offset"`
	Limit          int     `json:"limit"`
	Content        *string `json:"content"`
	Old            string  `json:"old"`
	New            *string `json:"new"`
	All            bool    `json:"all"`
	Pattern        string  `json:"pattern"`
	Glob           string  `json:"glob"`
}

// fields are what each tool takes; a further field is an error.
func fields(tool string) (known []string, ok bool) {
	known, ok = map[string][]string{
		toolShell: {"command", "timeout_seconds"}, toolRead: {"path", "offset", "limit"}, toolWrite: {"path", "content"},
		toolEdit: {"path", "old", "new", "all"}, toolSearch: {"pattern", "path", "glob"},
	}[tool]
	return known, ok
}

// parse reads a call strictly. The error is told to the model.
func parse(c Call) (in input, err error) {
	known, ok := fields(c.Name)
	if !ok {
		return in, fmt.Errorf("there is no tool %q; the tools are shell, read, write, edit and search", short(c.Name, 60))
	}
	var have map[string]json.RawMessage
	d := json.NewDecoder(bytes.NewReader([]byte(c.Input)))
	if err := d.Decode(&have); err != nil {
		return in, fmt.Errorf("the input is not a JSON object: %w; write it again", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return in, errors.New("the input goes on after its JSON object; write one object")
	}
next:
	for name := range have {
		for _, k := range known {
			if k == name {
				continue next
			}
		}
		return in, fmt.Errorf("%s: the tool %s has no such field; it takes %s", short(name, 60), c.Name, strings.Join(known, ", "))
	}
	if err := json.Unmarshal([]byte(c.Input), &in); err != nil {
		return in, fmt.Errorf("the input does not fit the tool: %w", err)
	}
	return in, in.check(c.Name)
}

func (in *input) check(tool string) error {
	switch {
	case tool == toolShell && strings.TrimSpace(in.Command) == "":
		return errors.New("command: must not be empty")
	case tool == toolShell && len(in.Command) > maxCommand:
		return fmt.Errorf("command: longer than %d bytes; write a file with the tool write and run that", maxCommand)
	case strings.Contains(in.Command+in.Pattern+in.Glob, "\x00"):
		return errors.New("the input holds a NUL byte, which no argument of a command can")
	case in.TimeoutSeconds < 0 || in.TimeoutSeconds > int64(shellMost/time.Second):
		return errors.New("timeout_seconds: must be between 1 and 3600")
	case tool == toolSearch && in.Pattern == "":
		return errors.New("pattern: must not be empty")
	case len(in.Pattern) > maxPath || len(in.Glob) > maxPath:
		return errors.New("pattern and glob: longer than 4096 bytes")
	case in.Offset < 0 || in.Limit < 0:
		return errors.New("offset and limit: must be at least 1")
	case tool == toolWrite && in.Content == nil:
		return errors.New("content: is missing")
	case tool == toolWrite && len(*in.Content) > maxContent:
		return fmt.Errorf("content: longer than %d bytes", maxContent)
	case tool == toolEdit && in.Old == "":
		return errors.New("old: must not be empty; use write for a new file")
	case tool == toolEdit && in.New == nil:
		return errors.New("new: is missing")
	}
	if tool == toolShell {
		return nil
	}
	var err error
	in.Path, err = place(in.Path, tool == toolSearch)
	return err
}

// place is the absolute path that a model means.
func place(p string, optional bool) (string, error) {
	switch {
	case p == "" && optional:
		return "/workspace", nil
	case p == "":
		return "", errors.New("path: must not be empty")
	case len(p) > maxPath:
		return "", errors.New("path: longer than 4096 bytes")
	case strings.Contains(p, "\x00"):
		return "", errors.New("path: holds a NUL byte")
	case strings.Contains(p, "\uFFFD"):
		return "", errors.New("path: a name that is not UTF-8 can't be given to this tool; use shell, with $'\\xNN' for its bytes")
	case !strings.HasPrefix(p, "/"):
		p = "/workspace/" + p
	}
	return path.Clean(p), nil
}
