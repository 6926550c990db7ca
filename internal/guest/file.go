package guest

import "time"

// The frames from the worker to the guest about single files.
const (
	FileDo    Type = 49 + iota // Stream: request; payload: FileOp
	FileRead                   // Stream: transfer; payload: FileReadRequest; the bytes begin with a FileHeader
	FileWrite                  // Stream: transfer; payload: FileWriteRequest
)

// Reasons that only operations on files give.
const (
	ReasonConflict  = "input.conflict"
	ReasonSize      = "limit.size"
	ReasonProtected = "policy.files"
)

// The kinds of FileOp.
const (
	FileStat   = "stat"
	FileList   = "list"
	FileRename = "rename"
	FileRemove = "remove"
	FileMkdir  = "mkdir"
	FileChmod  = "chmod"
)

// The kinds of files.
const (
	KindFile   = "file"
	KindFolder = "folder"
	KindLink   = "link"
	KindPipe   = "pipe"
	KindSocket = "socket"
	KindDevice = "device"
)

// Bounds of operations on files.
const (
	MaxPath       = 4096 // bytes of a path
	MaxName       = 255  // bytes of a name in it
	MaxFileDepth  = 512  // of folders that are walked; each holds a descriptor
	MaxFileLinks  = 40   // that are followed for one path
	MaxFilePage   = 4000 // entries in an answer
	FilePage      = 1000 // entries in an answer to who names no limit
	MaxFileHeader = 64 << 10
)

// FileOp is one operation on a name beneath one of the roots: the workspace, HOME
// and /tmp. Names are bytes. A key names the effect: the same again has it once
// and gives the same answer.
type FileOp struct {
	Kind      string  `json:"kind"`
	Key       string  `json:"key,omitempty"`       // see ValidFileKey; empty: may have its effect again
	Path      []byte  `json:"path"`                // absolute and clean
	To        []byte  `json:"to,omitempty"`        // of rename
	User      string  `json:"user,omitempty"`      // empty: UserAgent; UserRoot is for the platform
	Follow    bool    `json:"follow,omitempty"`    // links on the way that stay beneath the root, and the last name's where that is not itself the matter
	Digest    bool    `json:"digest,omitempty"`    // of stat: SHA-256 of a file
	NoReplace bool    `json:"noReplace,omitempty"` // of rename
	Recursive bool    `json:"recursive,omitempty"` // of remove: a folder with all in it; of mkdir: the folders above too
	Mode      *uint32 `json:"mode,omitempty"`      // of mkdir (nil: 0755) and chmod
	After     []byte  `json:"after,omitempty"`     // of list: names after this one
	Limit     int     `json:"limit,omitempty"`     // of list: entries; 0: FilePage
}

// FileInfo is what stands at a name.
type FileInfo struct {
	Name     []byte    `json:"name"`
	Kind     string    `json:"kind"`
	Size     int64     `json:"size"` // bytes
	Mode     uint32    `json:"mode"` // permission, set-id and sticky bits
	UID      uint32    `json:"uid"`
	GID      uint32    `json:"gid"`
	Links    uint64    `json:"links"` // names that the file has
	Modified time.Time `json:"modified"`
	Target   []byte    `json:"target,omitempty"` // of a link
	SHA256   string    `json:"sha256,omitempty"` // hexadecimal, where asked for
}

// FileResult answers a FileOp.
type FileResult struct {
	Info    *FileInfo  `json:"info,omitempty"`    // of all but list and remove
	Entries []FileInfo `json:"entries,omitempty"` // of list, by name
	Next    []byte     `json:"next,omitempty"`    // of list: more may follow after this name
}

// FileReadRequest asks for bytes of a file.
type FileReadRequest struct {
	Path   []byte `json:"path"`
	User   string `json:"user,omitempty"`
	Follow bool   `json:"follow,omitempty"`
	Offset int64  `json:"offset,omitempty"`
	Length int64  `json:"length,omitempty"` // -1: to its end
	Digest bool   `json:"digest,omitempty"` // SHA-256 of the whole, read before the first byte is sent
}

// FileHeader precedes a file's bytes: four bytes of its own length, then JSON.
type FileHeader struct {
	Info   FileInfo `json:"info"`
	Offset int64    `json:"offset"`
	Length int64    `json:"length"` // bytes that follow
}

// FileWriteRequest announces a file: the name gets the whole of it or nothing.
type FileWriteRequest struct {
	Path     []byte  `json:"path"`
	Key      string  `json:"key,omitempty"`
	User     string  `json:"user,omitempty"`
	Follow   bool    `json:"follow,omitempty"`
	Size     int64   `json:"size"`               // bytes that follow
	SHA256   string  `json:"sha256"`             // of them, hexadecimal
	Mode     *uint32 `json:"mode,omitempty"`     // nil: as the file has it that is there, or 0644
	Create   bool    `json:"create,omitempty"`   // nothing may be there
	IfSHA256 string  `json:"ifSHA256,omitempty"` // only this may be there
}

// ValidFileKey says whether s can name an effect on files.
func ValidFileKey(s string) bool { return ValidID(s) && len(s) <= 64 }
