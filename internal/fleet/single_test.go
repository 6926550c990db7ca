package fleet_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/fleet"
	"github.com/cofferdam/cofferdam/internal/fleet/link"
	"github.com/cofferdam/cofferdam/internal/sandbox"
	"github.com/cofferdam/cofferdam/internal/task"
	"github.com/cofferdam/cofferdam/internal/worker/workertest"
)

func fileSum(text string) string {
	s := sha256.Sum256([]byte(text))
	return hex.EncodeToString(s[:])
}

// forgetful is a worker's door whose connection breaks after it did what was
// asked, before the answer is out.
type forgetful struct {
	http.Handler
	breaks atomic.Int32 // how often
}

func (f *forgetful) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.Contains(r.URL.Path, "/files/") || f.breaks.Add(-1) < 0 {
		f.Handler.ServeHTTP(w, r)
		return
	}
	f.Handler.ServeHTTP(&silent{header: http.Header{}}, r)
	panic(http.ErrAbortHandler)
}

type silent struct{ header http.Header }

func (s *silent) Header() http.Header         { return s.header }
func (s *silent) Write(p []byte) (int, error) { return len(p), nil }
func (s *silent) WriteHeader(int)             {}

// newForgetful is a control plane with a worker that loses answers.
func newForgetful(t *testing.T) (*control, *forgetful, string) {
	t.Helper()
	c, dir := newControl(t, fleet.Options{Grace: 5 * time.Second}), t.TempDir()
	door := &forgetful{}
	door.Handler = newDoor(dir, "machine-1", workertest.New(filepath.Join(dir, "sandboxes")), &workertest.Gateway{File: filepath.Join(dir, "epoch")})
	keep(t, newLinkWith(c.url, door))
	c.connected(t, 1)
	return c, door, c.create(t, sandbox.Spec{})
}

// What a file is given or loses happens once, however often answers are lost.
func TestFileEffectsHappenOnce(t *testing.T) {
	c, door, id := newForgetful(t)
	text := strings.Repeat("text", 100_000)
	door.breaks.Store(2)
	w := sandbox.FileWrite{Path: []byte("/f"), Size: int64(len(text)), SHA256: fileSum(text), Create: true}
	if _, err := c.WriteFile(t.Context(), id, w, strings.NewReader(text)); err != nil {
		t.Fatal(err)
	}
	door.breaks.Store(2)
	r, err := c.DoFile(t.Context(), id, sandbox.FileOp{Kind: sandbox.FileRename, Path: []byte("/f"), To: []byte("/\xff"), NoReplace: true})
	if err != nil || string(r.Info.Name) != "\xff" {
		t.Fatalf("%+v, %v", r, err)
	}
	door.breaks.Store(1)
	head, body, err := c.ReadFile(t.Context(), id, sandbox.FileRead{Path: []byte("/\xff"), Offset: 4, Length: -1, Digest: true})
	if err != nil || head.Info.SHA256 != fileSum(text) {
		t.Fatalf("%+v, %v", head, err)
	}
	got, err := io.ReadAll(body)
	body.Close()
	if err != nil || string(got) != text[4:] {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	// What can't be read twice isn't sent twice.
	door.breaks.Store(1)
	_, err = c.WriteFile(t.Context(), id, w, io.MultiReader(strings.NewReader(text)))
	wantReason(t, err, task.InfraWorkerLost)
	_, err = c.DoFile(t.Context(), id, sandbox.FileOp{Kind: sandbox.FileStat, Path: []byte("/absent")})
	wantReason(t, err, task.InputNotFound)
}

// lying is a worker's door that answers about files with what it is told.
type lying struct {
	http.Handler
	answer func(w http.ResponseWriter)
}

func (l *lying) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.Contains(r.URL.Path, "/files/") {
		_, _ = io.Copy(io.Discard, r.Body)
		l.answer(w)
		return
	}
	l.Handler.ServeHTTP(w, r)
}

func TestWorkersThatLieAboutFiles(t *testing.T) {
	c, dir := newControl(t, fleet.Options{Grace: time.Second}), t.TempDir()
	door := &lying{Handler: newDoor(dir, "machine-1", workertest.New(filepath.Join(dir, "sandboxes")), &workertest.Gateway{File: filepath.Join(dir, "epoch")})}
	keep(t, newLinkWith(c.url, door))
	c.connected(t, 1)
	id := c.create(t, sandbox.Spec{})
	body := func(text string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) { fmt.Fprint(w, text) }
	}
	for name, answer := range map[string]func(http.ResponseWriter){
		"nothing": body(""), "no document": body("{"), "another's answer": body(`{"entries":[]}`), "another type": body(`{"info":7}`),
	} {
		door.answer = answer
		if r, err := c.DoFile(t.Context(), id, sandbox.FileOp{Kind: sandbox.FileStat, Path: []byte("/f")}); err == nil {
			t.Errorf("%s: %+v", name, r)
		}
	}
	door.answer = body(`{"entries":[],"next":"YQ=="}`)
	_, err := c.DoFile(t.Context(), id, sandbox.FileOp{Kind: sandbox.FileList, Path: []byte("/"), After: []byte("b")})
	wantReason(t, err, task.InfraInternal)
	door.answer = body(`{"name":"Zg==","kind":"file","size":3,"sha256":"00"}`)
	_, err = c.WriteFile(t.Context(), id, sandbox.FileWrite{Path: []byte("/f"), Size: 1, SHA256: fileSum("x")}, strings.NewReader("x"))
	wantReason(t, err, task.InfraInternal)
	for name, file := range map[string]struct {
		header sandbox.FileHeader
		bytes  int
	}{
		"too few": {sandbox.FileHeader{Length: 10}, 9}, "too many": {sandbox.FileHeader{Length: 10}, 11},
		"negative": {sandbox.FileHeader{Length: -1}, 0}, "endless": {sandbox.FileHeader{Length: sandbox.MaxFile + 1}, 0},
	} {
		door.answer = func(w http.ResponseWriter) {
			text, err := link.FormatFile(file.header)
			if err != nil {
				t.Error(err)
			}
			w.Header().Set(link.HeaderFile, text)
			w.Header().Set("Trailer", link.TrailerOutcome)
			_, _ = w.Write(bytes.Repeat([]byte("x"), file.bytes))
			w.Header().Set(link.TrailerOutcome, link.OutcomeComplete)
		}
		_, r, err := c.ReadFile(t.Context(), id, sandbox.FileRead{Path: []byte("/f"), Length: -1})
		if err == nil {
			_, err = io.ReadAll(r)
			r.Close()
		}
		if err == nil {
			t.Errorf("%s: taken", name)
		}
	}
}
