package sandbox

import (
	"context"
	"io"
	"regexp"
	"time"
)

// Files is what is done with single files of a sandbox, beside moving trees as tar
// streams. Drivers implement it; errors are as those of Driver.
//
// Paths are absolute and clean, and lie beneath FileRoots: nothing outside is
// touched or read, whatever links are laid or swapped meanwhile. Names are bytes.
type Files interface {
	// DoFile carries one operation out.
	DoFile(ctx context.Context, id string, op FileOp) (FileResult, error)

	// ReadFile gives bytes of a regular file: as many as the header says, or an
	// error in their place.
	ReadFile(ctx context.Context, id string, r FileRead) (FileHeader, io.ReadCloser, error)

	// WriteFile gives a name the announced bytes, whole or not at all.
	WriteFile(ctx context.Context, id string, w FileWrite, data io.Reader) (FileInfo, error)
}

// FileRoots are the folders that operations on files stay beneath.
func FileRoots() []string { return []string{"/workspace", "/home/agent", "/tmp"} }

// Bounds of operations on files.
const (
	MaxPath     = 4096 // bytes of a path
	MaxName     = 255  // bytes of a name in it
	MaxFilePage = 4000 // entries of a folder in one answer
	MaxFile     = 64 << 30
)

// FileKind says what an operation does.
type FileKind string

// The operations.
const (
	FileStat   FileKind = "stat"
	FileList   FileKind = "list"
	FileRename FileKind = "rename"
	FileRemove FileKind = "remove"
	FileMkdir  FileKind = "mkdir"
	FileChmod  FileKind = "chmod"
)

// FileOp is one operation. Kind and Path are required.
type FileOp struct {
	Kind      FileKind `json:"kind"`
	Key       string   `json:"key,omitempty"`  // names the effect, which is had once; empty: it may be had again when an answer is lost
	Path      []byte   `json:"path"`           // absolute and clean
	To        []byte   `json:"to,omitempty"`   // of rename
	User      string   `json:"user,omitempty"` // "agent", the default; "root": for the platform's steps only
	Follow    bool     `json:"follow,omitempty"`
	Digest    bool     `json:"digest,omitempty"`    // of stat: the file's hash
	NoReplace bool     `json:"noReplace,omitempty"` // of rename: what is there is a conflict
	Recursive bool     `json:"recursive,omitempty"` // of remove: a folder with all in it; of mkdir: the folders above too, and one that is there is no conflict
	Mode      *uint32  `json:"mode,omitempty"`      // of mkdir (nil: 0755) and chmod
	After     []byte   `json:"after,omitempty"`     // of list: names after this one
	Limit     int      `json:"limit,omitempty"`     // of list: entries, at most MaxFilePage; 0: 1000
}

// FileInfo is what stands at a name. It is the sandbox's word.
type FileInfo struct {
	Name     []byte    `json:"name"`
	Kind     string    `json:"kind"` // "file", "folder", "link", "pipe", "socket", "device"
	Size     int64     `json:"size"` // bytes
	Mode     uint32    `json:"mode"` // permission, set-id and sticky bits
	UID      uint32    `json:"uid"`
	GID      uint32    `json:"gid"`
	Links    uint64    `json:"links"` // names that the file has
	Modified time.Time `json:"modified"`
	Target   []byte    `json:"target,omitempty"` // of a link
	SHA256   string    `json:"sha256,omitempty"` // hexadecimal, where it was asked for or checked
}

// FileResult is what an operation came to.
type FileResult struct {
	Info    *FileInfo  `json:"info,omitempty"`    // of all but list and remove
	Entries []FileInfo `json:"entries,omitempty"` // of list, by name
	Next    []byte     `json:"next,omitempty"`    // of list: more may follow after this name
}

// FileRead says which bytes of a file.
type FileRead struct {
	Path   []byte `json:"path"`
	User   string `json:"user,omitempty"`
	Follow bool   `json:"follow,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Length int64  `json:"length,omitempty"` // bytes; -1: to its end
	Digest bool   `json:"digest,omitempty"` // hash the whole before the first byte is given
}

// FileHeader comes before a file's bytes.
type FileHeader struct {
	Info   FileInfo `json:"info"`
	Offset int64    `json:"offset"`
	Length int64    `json:"length"` // bytes that follow
}

// FileWrite announces a file. Path, Size and SHA256 are required.
type FileWrite struct {
	Path     []byte  `json:"path"`
	Key      string  `json:"key,omitempty"`
	User     string  `json:"user,omitempty"`
	Follow   bool    `json:"follow,omitempty"`
	Size     int64   `json:"size"`               // bytes
	SHA256   string  `json:"sha256"`             // lowercase hexadecimal
	Mode     *uint32 `json:"mode,omitempty"`     // nil: as the file has it that is there, or 0644
	Create   bool    `json:"create,omitempty"`   // what is there is a conflict
	IfSHA256 string  `json:"ifSHA256,omitempty"` // anything else there is a conflict
}

var sumPattern = regexp.MustCompile(`^[0-9a-f]{64}$`)

// ValidSHA256 says whether s is a hash as FileWrite has them.
func ValidSHA256(s string) bool { return sumPattern.MatchString(s) }

// ValidFileKey says whether s can name an effect on files.
func ValidFileKey(s string) bool { return ValidCommandID(s) && len(s) <= 64 }
