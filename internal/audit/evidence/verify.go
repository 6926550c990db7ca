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

	"github.com/cofferdam/cofferdam/internal/audit"
	"github.com/cofferdam/cofferdam/internal/task"
)

// Report is the outcome of a check. Nothing in it is to be believed unless OK.
type Report struct {
	Manifest *Manifest   `json:"manifest,omitempty"`
	Digest   task.Digest `json:"digest,omitempty"` // of the manifest
	Key      string      `json:"key,omitempty"`    // the key that signed, by its hash
	Findings []string    `json:"findings"`
}

// OK says whether nothing wrong was found.
func (r Report) OK() bool { return len(r.Findings) == 0 }

// maxFindings bounds a report.
const maxFindings = 50

func (r *Report) addf(format string, args ...any) {
	if len(r.Findings) < maxFindings {
		r.Findings = append(r.Findings, fmt.Sprintf(format, args...))
	}
}

// Verify checks an archive with the installation's public keys, one a line, which
// must come from elsewhere. It unpacks nothing.
func Verify(vkeys string, r io.Reader) Report {
	report := Report{Findings: []string{}}
	have := read(r, &report)
	if have.manifest == nil {
		report.addf("it has no manifest: it is cut off, or no archive of evidence")
		return report
	}
	var m Manifest
	dec := json.NewDecoder(bytes.NewReader(have.manifest))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&m); err != nil || m.Format != Format {
		report.addf("the manifest can't be read as one of the format %q", Format)
		return report
	}
	report.Digest = digestOf(have.manifest)
	switch key, err := audit.VerifyEvidence(vkeys, string(have.note), m.Sandbox, report.Digest); {
	case have.note == nil:
		report.addf("it has no signature: it is cut off")
	case err != nil:
		report.addf("%v", err)
	default:
		report.Key = key
	}
	report.Manifest = &m
	compare(m, have.entries, &report)
	return report
}

// contents is what was read.
type contents struct {
	entries        map[string]Entry
	manifest, note []byte
}

// read takes the hash of every entry. What stands behind the manifest but for its
// signature is wrong.
func read(from io.Reader, report *Report) contents {
	c := contents{entries: map[string]Entry{}}
	in := tar.NewReader(from)
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return c
		}
		if err != nil {
			report.addf("it is cut off or damaged: %v", err)
			return c
		}
		switch {
		case h.Typeflag != tar.TypeReg:
			report.addf("%.200q is no file", h.Name)
			continue
		case c.note != nil:
			report.addf("%.200q stands behind the signature", h.Name)
			continue
		case h.Name == noteName && c.manifest != nil:
			c.note, err = bounded(in, h.Size, maxNote)
		case c.manifest != nil:
			report.addf("%.200q stands behind the manifest", h.Name)
			continue
		case h.Name == manifestName:
			c.manifest, err = bounded(in, h.Size, maxManifest)
		case !validName(h.Name) || c.entries[h.Name].Name != "" || len(c.entries) >= maxEntries:
			report.addf("%.200q can't be an entry, or is there twice", h.Name)
			continue
		default:
			sum := sha256.New()
			var n int64
			n, err = io.Copy(sum, in)
			c.entries[h.Name] = Entry{Name: h.Name, Size: n, SHA256: hex.EncodeToString(sum.Sum(nil))}
		}
		if err != nil {
			report.addf("%.200q: it is cut off or damaged: %v", h.Name, err)
			return c
		}
	}
}

func bounded(in io.Reader, size, most int64) ([]byte, error) {
	if size > most {
		return nil, errors.New("it is too long")
	}
	text, err := io.ReadAll(io.LimitReader(in, most))
	if text == nil {
		text = []byte{}
	}
	return text, err
}

func compare(m Manifest, have map[string]Entry, report *Report) {
	named := map[string]bool{}
	for _, want := range m.Entries {
		got, ok := have[want.Name]
		switch {
		case named[want.Name]:
			report.addf("the manifest names %.200q twice", want.Name)
		case !ok:
			report.addf("%.200q is missing", want.Name)
		case got.Size != want.Size || got.SHA256 != want.SHA256:
			report.addf("%.200q was altered", want.Name)
		}
		named[want.Name] = true
	}
	for name := range have {
		if !named[name] {
			report.addf("%.200q is not in the manifest", name)
		}
	}
}
