package guest

// Protect is the frame from the worker that takes rights on paths of the
// workspace away. Stream: request; payload: Protection.
const Protect Type = 48

// The kinds of access of a path that is named in a Protection.
const (
	Writable = "writable"
	ReadOnly = "read-only"
	Hidden   = "hidden"
)

// Protection says what the workload may do with paths of the workspace from now
// on. It ends every process but the guest, so that nobody has a file open or a
// folder held, and is made once: the same again changes nothing, another one is
// refused.
type Protection struct {
	Paths []PathRule `json:"paths"`
	// InGit names files and folders of a repository's folder that are read-only in
	// each submodule's too, relative to it. The main repository's are in Paths.
	InGit []string `json:"inGit,omitempty"`
}

// PathRule is one path, and all beneath it. The more specific path wins.
type PathRule struct {
	Path   string `json:"path"`           // relative to the workspace, clean
	Access string `json:"access"`         // Writable, ReadOnly or Hidden
	File   bool   `json:"file,omitempty"` // what stands for it while it is absent is a file, not a folder
	Text   string `json:"text,omitempty"` // and holds this
}

// Protected tells what a Protection came to. Paths are relative to the
// workspace.
type Protected struct {
	Placeholders []string `json:"placeholders,omitempty"` // stand for what is absent, so that it can't be made
	Replaced     []string `json:"replaced,omitempty"`     // links that placeholders stand for now
	Pinned       []string `json:"pinned,omitempty"`       // folders that can't be moved away, since something beneath them is protected
	Also         []string `json:"also,omitempty"`         // read-only in submodules
}
