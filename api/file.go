package api

import (
	"encoding/base64"
	"time"
)

// FileHeader is the header of an answer with a file's bytes: the FileInfo as JSON,
// escaped as a query is.
const FileHeader = "Cofferdam-File"

// FileType is the media type of a file's bytes.
const FileType = "application/octet-stream"

// The bounds of files.
const (
	MaxFile     = 64 << 30 // bytes of one file in one request
	MaxFilePage = 4000     // entries of a folder in one answer
)

// FileInfo is what stands at a name in a sandbox. It is the sandbox's word.
type FileInfo struct {
	Name         string    `json:"name,omitempty" doc:"Absent when it is not UTF-8."`
	NameBase64   string    `json:"nameBase64,omitempty" doc:"The name's bytes, when they are not UTF-8."`
	Kind         string    `json:"kind" enum:"file,folder,link,pipe,socket,device"`
	Size         int64     `json:"size" doc:"Bytes."`
	Mode         string    `json:"mode" doc:"Permission, set-id and sticky bits, octal, such as 0644."`
	UID          uint32    `json:"uid"`
	GID          uint32    `json:"gid"`
	Links        uint64    `json:"links" doc:"Names that the file has."`
	Modified     time.Time `json:"modified"`
	Target       string    `json:"target,omitempty" doc:"Of a link: what it points at. Absent when it is not UTF-8."`
	TargetBase64 string    `json:"targetBase64,omitempty"`
	SHA256       string    `json:"sha256,omitempty" doc:"Hexadecimal, where it was asked for or checked."`
}

// NameBytes gives the name, whatever its bytes.
func (i FileInfo) NameBytes() (string, error) { return eitherBytes(i.Name, i.NameBase64) }

// TargetBytes gives what a link points at, whatever its bytes.
func (i FileInfo) TargetBytes() (string, error) { return eitherBytes(i.Target, i.TargetBase64) }

// FileList is a page of what lies in a folder, by name.
type FileList struct {
	Entries    []FileInfo `json:"entries" nullable:"false"`
	Next       string     `json:"next,omitempty" doc:"More may follow: ask again with after. Both absent: that was all."`
	NextBase64 string     `json:"nextBase64,omitempty" doc:"Its bytes, when they are not UTF-8."`
}

// NextBytes gives where the next page begins; empty: nowhere.
func (l FileList) NextBytes() (string, error) { return eitherBytes(l.Next, l.NextBase64) }

func eitherBytes(text, encoded string) (string, error) {
	if encoded == "" {
		return text, nil
	}
	b, err := base64.StdEncoding.DecodeString(encoded)
	return string(b), err
}
