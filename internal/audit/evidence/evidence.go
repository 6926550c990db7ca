// Package evidence writes and checks archives of what was found in a sandbox that was
// frozen: a tar file whose last two entries are a manifest, which names every other
// entry with its size and SHA-256 and what was left out and why, and the signature of
// the installation's audit key over the manifest.
//
// What a sandbox left lies in it as data: files of files are tar streams as the
// sandbox gave them, and nothing here unpacks them or follows a name in them.
//
// Not promised: that what a sandbox told of itself is true. It is what was told.
package evidence

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// Format names the archive's format.
const Format = "cofferdam-evidence/1"

// The names of the last two entries.
const (
	manifestName = "manifest.json"
	noteName     = "manifest.note"
)

// Bounds of an archive.
const (
	maxEntries  = 10_000
	maxManifest = 8 << 20
	maxNote     = 64 << 10
)

// Head says what an archive is of.
type Head struct {
	Format   string    `json:"format"`
	Origin   string    `json:"origin"` // the installation
	Sandbox  string    `json:"sandbox"`
	Task     string    `json:"task,omitempty"`
	Worker   string    `json:"worker"`
	FrozenAt time.Time `json:"frozenAt"`
	FrozenBy string    `json:"frozenBy"`
	Reason   string    `json:"reason,omitempty"`
	MadeAt   time.Time `json:"madeAt"`
	MadeBy   string    `json:"madeBy"`
}

// Entry is one entry.
type Entry struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	SeenBy string `json:"seenBy"` // who told what is in it: "control plane", "gateway", "worker", "guest"
}

// Left is what is not in the archive.
type Left struct {
	Name string `json:"name"`
	Why  string `json:"why"`
}

// Manifest names everything.
type Manifest struct {
	Head
	Entries []Entry `json:"entries"`
	Left    []Left  `json:"left"`
}

var namePattern = regexp.MustCompile(`^[a-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*){0,3}$`)

func validName(name string) bool {
	return len(name) <= 200 && namePattern.MatchString(name) && name != manifestName && name != noteName
}

// Writer writes one archive.
type Writer struct {
	tar      *tar.Writer
	manifest Manifest
	names    map[string]bool
}

// New begins an archive.
func New(w io.Writer, head Head) *Writer {
	head.Format = Format
	return &Writer{tar: tar.NewWriter(w), manifest: Manifest{Head: head, Entries: []Entry{}, Left: []Left{}}, names: map[string]bool{}}
}

// Add adds an entry of exactly size bytes.
func (w *Writer) Add(name, seenBy string, size int64, from io.Reader) error {
	if !validName(name) || w.names[name] || len(w.manifest.Entries) >= maxEntries {
		return fmt.Errorf("evidence: %q can't be an entry", name)
	}
	sum := sha256.New()
	if err := w.write(name, size, io.TeeReader(io.LimitReader(from, size), sum)); err != nil {
		return err
	}
	w.names[name] = true
	w.manifest.Entries = append(w.manifest.Entries, Entry{Name: name, Size: size, SHA256: hex.EncodeToString(sum.Sum(nil)), SeenBy: seenBy})
	return nil
}

// JSON adds a value as an entry.
func (w *Writer) JSON(name, seenBy string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return fmt.Errorf("evidence %q: %w", name, err)
	}
	text = append(text, '\n')
	return w.Add(name, seenBy, int64(len(text)), bytes.NewReader(text))
}

// Leave names what is not in the archive.
func (w *Writer) Leave(name, why string) {
	w.manifest.Left = append(w.manifest.Left, Left{name, why})
}

func (w *Writer) write(name string, size int64, from io.Reader) error {
	err := w.tar.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o600, ModTime: w.manifest.MadeAt, Format: tar.FormatPAX})
	if err != nil {
		return fmt.Errorf("evidence %q: %w", name, err)
	}
	n, err := io.Copy(w.tar, from)
	if err == nil && n != size {
		err = fmt.Errorf("%d bytes where %d were told", n, size)
	}
	if err != nil {
		return fmt.Errorf("evidence %q: %w", name, err)
	}
	return nil
}

// Close adds the manifest and its signature and ends the archive. It returns the
// digest of the manifest.
func (w *Writer) Close(sign func(sandbox string, manifest task.Digest) (string, error)) (task.Digest, error) {
	text, err := json.MarshalIndent(w.manifest, "", "  ")
	if err != nil {
		return "", fmt.Errorf("evidence: %w", err)
	}
	text = append(text, '\n')
	if len(text) > maxManifest {
		return "", errors.New("evidence: the manifest is too long")
	}
	digest := digestOf(text)
	note, err := sign(w.manifest.Sandbox, digest)
	if err != nil {
		return "", err
	}
	err = w.write(manifestName, int64(len(text)), bytes.NewReader(text))
	if err == nil {
		err = w.write(noteName, int64(len(note)), bytes.NewReader([]byte(note)))
	}
	return digest, errors.Join(err, w.tar.Close())
}

func digestOf(text []byte) task.Digest {
	sum := sha256.Sum256(text)
	return task.Digest("sha256:" + hex.EncodeToString(sum[:]))
}
