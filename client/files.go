package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/cofferdam/cofferdam/api"
)

// File names a path in a sandbox: absolute and clean, beneath /workspace,
// /home/agent or /tmp, of any bytes. With Follow, links that stay beneath the same
// root are followed; otherwise one on the way is refused.
type File struct {
	Sandbox string
	Path    string
	Follow  bool
}

func (f File) at(what string) string { return pathf("sandboxes", f.Sandbox, "files", what) }

func (f File) query(pairs ...string) url.Values {
	q := url.Values{"path": {f.Path}}
	if f.Follow {
		q.Set("follow", "true")
	}
	for i := 0; i < len(pairs); i += 2 {
		if value := pairs[i+1]; value != "" && value != "false" { //nolint:gosec // G602: names and values come in twos
			q.Set(pairs[i], value)
		}
	}
	return q
}

// info makes a request that has its effect once and is answered by what stands at
// the path.
func (c *Client) fileInfo(ctx context.Context, method, path string, query url.Values) (api.FileInfo, error) {
	var i api.FileInfo
	if method != http.MethodGet {
		query.Set("key", newName(20))
	}
	_, err := c.json(ctx, call{method: method, path: path, query: query}, nil, &i)
	return i, err
}

// StatFile tells what stands at a path; with digest, a file's SHA-256 too.
func (c *Client) StatFile(ctx context.Context, f File, digest bool) (api.FileInfo, error) {
	return c.fileInfo(ctx, http.MethodGet, f.at("entry"), f.query("digest", strconv.FormatBool(digest)))
}

// ListFolder calls fn for what lies in a folder, by name, a page at a time.
func (c *Client) ListFolder(ctx context.Context, f File, fn func(api.FileInfo) error) error {
	for after := ""; ; {
		var page api.FileList
		if err := c.get(ctx, f.at("folder"), f.query("after", after), &page); err != nil {
			return err
		}
		for _, e := range page.Entries {
			if err := fn(e); err != nil {
				return err
			}
		}
		next, err := page.NextBytes()
		if err != nil || next == "" {
			return err
		}
		if next <= after {
			return fmt.Errorf("list %q: the server's pages go backwards", f.Path)
		}
		after = next
	}
}

// RenameFile moves a path to another; with noReplace, what is there is a conflict.
func (c *Client) RenameFile(ctx context.Context, f File, to string, noReplace bool) (api.FileInfo, error) {
	return c.fileInfo(ctx, http.MethodPost, f.at("entry")+"/rename", f.query("to", to, "noReplace", strconv.FormatBool(noReplace)))
}

// RemoveFile removes a path; with recursive, a folder with all in it. Links are
// removed and never followed.
func (c *Client) RemoveFile(ctx context.Context, f File, recursive bool) error {
	q := f.query("recursive", strconv.FormatBool(recursive), "key", newName(20))
	_, err := c.json(ctx, call{method: http.MethodDelete, path: f.at("entry"), query: q}, nil, nil)
	return err
}

// MakeFolder makes a folder; with parents those above too, and then one that is
// there is no conflict. An empty mode is 0755.
func (c *Client) MakeFolder(ctx context.Context, f File, mode string, parents bool) (api.FileInfo, error) {
	return c.fileInfo(ctx, http.MethodPost, f.at("folder"), f.query("mode", mode, "parents", strconv.FormatBool(parents)))
}

// ChmodFile changes the mode, in octal, of a file or folder.
func (c *Client) ChmodFile(ctx context.Context, f File, mode string) (api.FileInfo, error) {
	return c.fileInfo(ctx, http.MethodPost, f.at("entry")+"/mode", f.query("mode", mode))
}

// FileRange says which bytes of a file are read. The zero FileRange is the whole.
type FileRange struct {
	Offset int64
	Length int64 // bytes; 0 or less: to the file's end
	Digest bool  // SHA-256 of the whole file in the answer
}

// ReadFile opens bytes of a file. They end with io.EOF only when all came; what is
// said of the file, and its bytes, are the sandbox's.
func (c *Client) ReadFile(ctx context.Context, f File, r FileRange) (api.FileInfo, io.ReadCloser, error) {
	var info api.FileInfo
	q := f.query("digest", strconv.FormatBool(r.Digest))
	if r.Offset != 0 {
		q.Set("offset", strconv.FormatInt(r.Offset, 10))
	}
	if r.Length > 0 {
		q.Set("length", strconv.FormatInt(r.Length, 10))
	}
	resp, err := c.send(ctx, call{method: http.MethodGet, path: f.at("content"), query: q})
	if err != nil {
		return info, nil, err
	}
	text, err := url.QueryUnescape(resp.Header.Get(api.FileHeader))
	if err == nil {
		err = json.Unmarshal([]byte(text), &info)
	}
	if err == nil && resp.ContentLength < 0 {
		err = errors.New("the answer doesn't say how long it is")
	}
	if err != nil {
		resp.Body.Close()
		return info, nil, fmt.Errorf("read %q: %w", f.Path, err)
	}
	return info, resp.Body, nil
}

// NewFile announces a file. Size and SHA256 are required.
type NewFile struct {
	Size     int64  // bytes
	SHA256   string // lowercase hexadecimal
	Mode     string // octal; empty: as the file has it that is there, or 0644
	Create   bool   // what is there is a conflict
	IfSHA256 string // anything else there is a conflict
}

// WriteFile gives a path what open's reader has, whole or not at all. open is
// called again when the data has to be sent again, which writes it once.
func (c *Client) WriteFile(ctx context.Context, f File, n NewFile, open func() (io.Reader, error)) (api.FileInfo, error) {
	q := f.query("sha256", n.SHA256, "mode", n.Mode, "create", strconv.FormatBool(n.Create), "ifSha256", n.IfSHA256, "key", newName(20))
	q.Set("size", strconv.FormatInt(n.Size, 10))
	var i api.FileInfo
	k := call{method: http.MethodPut, path: f.at("content"), query: q, kind: api.FileType, size: n.Size, body: open}
	_, err := c.json(ctx, k, nil, &i)
	return i, err
}
