package server

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/client"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/worker/workertest"
)

// newFileSite has sandboxes with files.
func newFileSite(t *testing.T) (*site, *client.Client, api.Sandbox) {
	t.Helper()
	local := workertest.New(t.TempDir())
	s := newSiteWith(t, func(o *Options) { o.Needs.Single = local })
	alice := s.as(t, "alice")
	sb, err := alice.CreateSandbox(t.Context(), api.SandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := local.Create(t.Context(), sandbox.Spec{ID: sb.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := alice.MakeFolder(t.Context(), client.File{Sandbox: sb.ID, Path: "/workspace"}, "", true); err != nil {
		t.Fatal(err)
	}
	return s, alice, sb
}

func newFile(text string) (client.NewFile, func() (io.Reader, error)) {
	sum := sha256.Sum256([]byte(text))
	return client.NewFile{Size: int64(len(text)), SHA256: hex.EncodeToString(sum[:])}, func() (io.Reader, error) { return strings.NewReader(text), nil }
}

func wantFileCode(t *testing.T, what string, err error, code string) {
	t.Helper()
	var p *api.Problem
	if !errors.As(err, &p) || p.Code != code {
		t.Errorf("%s: %v, want %s", what, err, code)
	}
}

func TestFilesOverTheAPI(t *testing.T) {
	_, alice, sb := newFileSite(t)
	ctx := t.Context()
	at := func(name string) client.File { return client.File{Sandbox: sb.ID, Path: "/workspace/" + name} }
	n, open := newFile("text\x00\xff")
	n.Mode, n.Create = "0600", true
	info, err := alice.WriteFile(ctx, at("f"), n, open)
	if err != nil || info.Mode != "0600" || info.SHA256 != n.SHA256 || info.Name != "f" {
		t.Fatalf("write: %+v, %v", info, err)
	}
	_, err = alice.WriteFile(ctx, at("f"), n, open)
	wantFileCode(t, "create what is there", err, "input.conflict")
	n.SHA256 = strings.Repeat("0", 64)
	_, err = alice.WriteFile(ctx, at("f"), n, open)
	wantFileCode(t, "another hash", err, "input.invalid")
	info, body, err := alice.ReadFile(ctx, at("f"), client.FileRange{Offset: 2, Length: 3, Digest: true})
	if err != nil || info.Size != 6 || info.SHA256 == "" {
		t.Fatalf("read: %+v, %v", info, err)
	}
	got, err := io.ReadAll(body)
	body.Close()
	if err != nil || string(got) != "xt\x00" {
		t.Errorf("read: %q, %v", got, err)
	}
	odd := "\xff\n\x1b"
	if info, err = alice.RenameFile(ctx, at("f"), "/workspace/"+odd, true); err != nil {
		t.Fatal(err)
	}
	if name, err := info.NameBytes(); err != nil || name != odd || info.Name != "" {
		t.Errorf("a name that is not UTF-8: %+v, %v", info, err)
	}
	if info, err := alice.ChmodFile(ctx, at(odd), "0640"); err != nil || info.Mode != "0640" {
		t.Errorf("chmod: %+v, %v", info, err)
	}
	_, err = alice.ChmodFile(ctx, at(odd), "4755")
	wantFileCode(t, "set-id", err, "input.invalid")
	if info, err := alice.StatFile(ctx, at(odd), true); err != nil || info.Kind != "file" || info.SHA256 == "" {
		t.Errorf("stat: %+v, %v", info, err)
	}
	if err := alice.RemoveFile(ctx, at(odd), false); err != nil {
		t.Error(err)
	}
	_, err = alice.StatFile(ctx, at(odd), false)
	wantFileCode(t, "removed", err, "input.not_found")
}

// A folder of any length is listed page by page, each name once.
func TestLongFolders(t *testing.T) {
	_, alice, sb := newFileSite(t)
	n, open := newFile("")
	for i := range 1100 {
		name := "/workspace/\xfe" + strings.Repeat("n", 1+i%200) + string(rune('a'+i/200))
		if _, err := alice.WriteFile(t.Context(), client.File{Sandbox: sb.ID, Path: name}, n, open); err != nil {
			t.Fatal(err)
		}
	}
	last, count := "", 0
	err := alice.ListFolder(t.Context(), client.File{Sandbox: sb.ID, Path: "/workspace"}, func(i api.FileInfo) error {
		name, err := i.NameBytes()
		if err != nil || name <= last {
			t.Errorf("%q after %q: %v", name, last, err)
		}
		last = name
		count++
		return err
	})
	if err != nil || count != 1100 {
		t.Errorf("%d names, %v", count, err)
	}
}

func TestFilesOfOthersAndBadQueries(t *testing.T) {
	s, _, sb := newFileSite(t)
	bob := s.as(t, "bob")
	at := client.File{Sandbox: sb.ID, Path: "/workspace/f"}
	n, open := newFile("x")
	_, err := bob.WriteFile(t.Context(), at, n, open)
	wantFileCode(t, "another's sandbox", err, "input.not_found")
	_, err = bob.StatFile(t.Context(), at, false)
	wantFileCode(t, "another's sandbox", err, "input.not_found")
	for query, path := range map[string]string{
		"GET entry":                                                                                "path is missing",
		"GET entry?path=/workspace&unknown=1":                                                      "an unknown parameter",
		"GET folder?path=/workspace&limit=5000":                                                    "too many at once",
		"GET folder?path=/workspace&limit=0":                                                       "none at once",
		"GET content?path=/workspace/f&offset=-1":                                                  "a negative offset",
		"PUT content?path=/workspace/f&size=1":                                                     "no hash",
		"PUT content?path=/workspace/f&size=-1&sha256=" + n.SHA256:                                 "a negative size",
		"PUT content?path=/workspace/f&sha256=" + n.SHA256:                                         "no size",
		"PUT content?path=/workspace/f&size=1&sha256=" + strings.ToUpper(n.SHA256):                 "a hash in upper case",
		"PUT content?path=/workspace/f&size=1&mode=999&sha256=" + n.SHA256:                         "a mode that is not octal",
		"POST entry/mode?path=/workspace/f&mode=01777":                                             "the sticky bit",
		"POST entry/rename?path=/workspace/f":                                                      "no place to go to",
		"GET entry?path=" + strings.Repeat("a", 5000):                                              "a path that is too long",
		"POST folder?path=/workspace/x&key=" + strings.Repeat("k", 65):                             "a key that is too long",
		"PUT content?path=/workspace/f&ifSha256=abc&size=1&sha256=" + n.SHA256 + "&create=nothing": "what is neither true nor false",
	} {
		method, rest, _ := strings.Cut(query, " ")
		req, err := http.NewRequestWithContext(t.Context(), method, s.http.URL+"/v1/sandboxes/"+sb.ID+"/files/"+rest, strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+s.tokens["alice"])
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d", path, resp.StatusCode)
		}
	}
}

// shrinking is a file that ends before it said it would.
type shrinking struct{ sandbox.Files }

func (shrinking) ReadFile(context.Context, string, sandbox.FileRead) (sandbox.FileHeader, io.ReadCloser, error) {
	return sandbox.FileHeader{Info: sandbox.FileInfo{Name: []byte("f"), Kind: "file", Size: 4 << 20}, Length: 4 << 20}, io.NopCloser(io.MultiReader(strings.NewReader(strings.Repeat("half", 1<<19)), failing{})), nil
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, os.ErrClosed }

func TestHalfAFileIsNoFile(t *testing.T) {
	s := newSiteWith(t, func(o *Options) { o.Needs.Single = shrinking{} })
	alice := s.as(t, "alice")
	sb, err := alice.CreateSandbox(t.Context(), api.SandboxRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, body, err := alice.ReadFile(t.Context(), client.File{Sandbox: sb.ID, Path: "/workspace/f"}, client.FileRange{})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	if got, err := io.ReadAll(body); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("half a file: %d bytes, %v", len(got), err)
	}
}
