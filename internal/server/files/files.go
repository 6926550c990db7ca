// Package files is the part of the server that works on single files of sandboxes:
// it reads what was asked for, and says what became of it. Who may work in a
// sandbox is decided before it is called.
//
// Words. A path in a query is percent-encoded bytes. A name in an answer is text
// where it is UTF-8, and base64 otherwise.
package files

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Desk works on files. Files is required.
type Desk struct {
	Files sandbox.Files
}

// Query names a path. Every operation has it.
type Query struct {
	ID     string `path:"id" maxLength:"64"`
	Path   string `query:"path" required:"true" maxLength:"4096" doc:"Absolute and clean, beneath /workspace, /home/agent or /tmp; percent-encoded bytes."`
	Follow bool   `query:"follow" doc:"Follow links that stay beneath the same root. False: one on the way is refused, and the last name's is itself the matter."`
}

// Sandbox is where the path lies.
func (q Query) Sandbox() string { return q.ID }

// Effect is what changes something.
type Effect struct {
	Key string `query:"key" maxLength:"64" doc:"Names the effect, which is had once: the same request with the same key gives the same answer."`
}

// StatQuery asks what stands at a path.
type StatQuery struct {
	Query
	Digest bool `query:"digest" doc:"SHA-256 of a file."`
}

// ListQuery asks for a page of a folder.
type ListQuery struct {
	Query
	After string `query:"after" maxLength:"255" doc:"Names after this one; percent-encoded bytes."`
	Limit int    `query:"limit" minimum:"1" maximum:"4000" default:"1000"`
}

// ReadQuery asks for bytes of a file.
type ReadQuery struct {
	Query
	Offset int64 `query:"offset" minimum:"0"`
	Length int64 `query:"length" minimum:"-1" default:"-1" doc:"Bytes; -1: to the file's end."`
	Digest bool  `query:"digest" doc:"SHA-256 of the whole file, read before the first byte is sent."`
}

// WriteQuery announces a file.
type WriteQuery struct {
	Query
	Effect
	Size     int64  `query:"size" required:"true" minimum:"0" doc:"Bytes of the body."`
	SHA256   string `query:"sha256" required:"true" pattern:"^[0-9a-f]{64}$" doc:"Of the body."`
	Mode     string `query:"mode" maxLength:"5" doc:"Octal; absent: as the file has it that is there, or 0644."`
	Create   bool   `query:"create" doc:"What is there is a conflict."`
	IfSHA256 string `query:"ifSha256" pattern:"^([0-9a-f]{64})?$" doc:"Anything else there is a conflict."`
}

// RenameQuery names where a path is moved to.
type RenameQuery struct {
	Query
	Effect
	To        string `query:"to" required:"true" maxLength:"4096" doc:"As path."`
	NoReplace bool   `query:"noReplace" doc:"What is there is a conflict."`
}

// RemoveQuery asks for a path to be removed.
type RemoveQuery struct {
	Query
	Effect
	Recursive bool `query:"recursive" doc:"A folder with all in it; links in it are removed and not followed."`
}

// MkdirQuery asks for a folder.
type MkdirQuery struct {
	Query
	Effect
	Mode    string `query:"mode" maxLength:"5" doc:"Octal; absent: 0755."`
	Parents bool   `query:"parents" doc:"The folders above too; a folder that is there is no conflict."`
}

// ChmodQuery asks for another mode.
type ChmodQuery struct {
	Query
	Effect
	Mode string `query:"mode" required:"true" maxLength:"5" doc:"Octal, 0 to 0777."`
}

// InfoOutput tells what stands at a path.
type InfoOutput struct{ Body api.FileInfo }

// ListOutput is a page of a folder.
type ListOutput struct{ Body api.FileList }

// Stat tells what stands at a path.
func (d Desk) Stat(ctx context.Context, in *StatQuery) (*InfoOutput, error) {
	return d.info(ctx, in.ID, sandbox.FileOp{Kind: sandbox.FileStat, Path: []byte(in.Path), Follow: in.Follow, Digest: in.Digest})
}

// List gives a page of a folder.
func (d Desk) List(ctx context.Context, in *ListQuery) (*ListOutput, error) {
	r, err := d.Files.DoFile(ctx, in.ID, sandbox.FileOp{
		Kind: sandbox.FileList, Path: []byte(in.Path), Follow: in.Follow, After: []byte(in.After), Limit: in.Limit,
	})
	if err != nil {
		return nil, err
	}
	out := &ListOutput{api.FileList{Entries: make([]api.FileInfo, 0, len(r.Entries))}}
	for _, e := range r.Entries {
		out.Body.Entries = append(out.Body.Entries, apiInfo(e))
	}
	out.Body.Next, out.Body.NextBase64 = text(r.Next)
	return out, nil
}

// Rename moves a path.
func (d Desk) Rename(ctx context.Context, in *RenameQuery) (*InfoOutput, error) {
	return d.info(ctx, in.ID, sandbox.FileOp{
		Kind: sandbox.FileRename, Key: in.Key, Path: []byte(in.Path), To: []byte(in.To), Follow: in.Follow, NoReplace: in.NoReplace,
	})
}

// Remove removes a path.
func (d Desk) Remove(ctx context.Context, in *RemoveQuery) (*struct{}, error) {
	_, err := d.Files.DoFile(ctx, in.ID, sandbox.FileOp{
		Kind: sandbox.FileRemove, Key: in.Key, Path: []byte(in.Path), Follow: in.Follow, Recursive: in.Recursive,
	})
	return nil, err
}

// Mkdir makes a folder.
func (d Desk) Mkdir(ctx context.Context, in *MkdirQuery) (*InfoOutput, error) {
	mode, err := parseMode(in.Mode)
	if err != nil {
		return nil, err
	}
	return d.info(ctx, in.ID, sandbox.FileOp{
		Kind: sandbox.FileMkdir, Key: in.Key, Path: []byte(in.Path), Follow: in.Follow, Recursive: in.Parents, Mode: mode,
	})
}

// Chmod changes a mode.
func (d Desk) Chmod(ctx context.Context, in *ChmodQuery) (*InfoOutput, error) {
	mode, err := parseMode(in.Mode)
	if err != nil {
		return nil, err
	}
	return d.info(ctx, in.ID, sandbox.FileOp{Kind: sandbox.FileChmod, Key: in.Key, Path: []byte(in.Path), Follow: in.Follow, Mode: mode})
}

// Read opens bytes of a file, with the headers of the answer.
func (d Desk) Read(ctx context.Context, in *ReadQuery) (map[string]string, io.ReadCloser, error) {
	head, body, err := d.Files.ReadFile(ctx, in.ID, sandbox.FileRead{
		Path: []byte(in.Path), Follow: in.Follow, Offset: in.Offset, Length: in.Length, Digest: in.Digest,
	})
	if err != nil {
		return nil, nil, err
	}
	info, err := json.Marshal(apiInfo(head.Info))
	if err != nil {
		body.Close()
		return nil, nil, fmt.Errorf("file: %w", err)
	}
	return map[string]string{api.FileHeader: url.QueryEscape(string(info)), "Content-Length": strconv.FormatInt(head.Length, 10)}, body, nil
}

// Write gives a path the announced bytes.
func (d Desk) Write(ctx context.Context, in *WriteQuery, body io.Reader) (*InfoOutput, error) {
	mode, err := parseMode(in.Mode)
	if err != nil {
		return nil, err
	}
	if in.Size > sandbox.MaxFile {
		return nil, task.Fail(task.LimitSize, fmt.Sprintf("query.size: the most is %d bytes", int64(sandbox.MaxFile)), nil)
	}
	info, err := d.Files.WriteFile(ctx, in.ID, sandbox.FileWrite{
		Path: []byte(in.Path), Key: in.Key, Follow: in.Follow, Size: in.Size, SHA256: in.SHA256, Mode: mode, Create: in.Create, IfSHA256: in.IfSHA256,
	}, body)
	if err != nil {
		return nil, err
	}
	return &InfoOutput{apiInfo(info)}, nil
}

func (d Desk) info(ctx context.Context, id string, op sandbox.FileOp) (*InfoOutput, error) {
	r, err := d.Files.DoFile(ctx, id, op)
	if err != nil {
		return nil, err
	}
	if r.Info == nil {
		return nil, fmt.Errorf("%s of a file: no answer", op.Kind)
	}
	return &InfoOutput{apiInfo(*r.Info)}, nil
}

// parseMode reads a mode in octal; nil for none.
func parseMode(s string) (*uint32, error) {
	if s == "" {
		return nil, nil
	}
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n > 0o777 {
		return nil, task.Fail(task.InputInvalid, "query.mode: it must be octal, 0 to 0777; set-id and sticky bits are not given", err)
	}
	mode := uint32(n)
	return &mode, nil
}

func apiInfo(i sandbox.FileInfo) api.FileInfo {
	out := api.FileInfo{
		Kind: i.Kind, Size: i.Size, Mode: fmt.Sprintf("%04o", i.Mode), UID: i.UID, GID: i.GID, Links: i.Links, Modified: i.Modified, SHA256: i.SHA256,
	}
	out.Name, out.NameBase64 = text(i.Name)
	out.Target, out.TargetBase64 = text(i.Target)
	return out
}

// text gives bytes as text, or in base64 where they are none.
func text(b []byte) (plain, encoded string) {
	if utf8.Valid(b) {
		return string(b), ""
	}
	return "", base64.StdEncoding.EncodeToString(b)
}
