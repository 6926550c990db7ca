package verified

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/cofferdam/cofferdam/internal/output/evidence"
	"github.com/cofferdam/cofferdam/internal/output/report"
	"github.com/cofferdam/cofferdam/internal/stage"
	"github.com/cofferdam/cofferdam/internal/task"
)

func TestARunIsTakenForItsOwn(t *testing.T) {
	kept := func(run string) string {
		text, err := json.Marshal(evidence.Run{Run: run, Attempt: 1, Round: 2, Commit: "c"})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, c := range map[string]struct {
		text, run, commit string
		attempt, round    int
		want              bool
	}{
		"the same":          {kept(evidence.Patch), evidence.Patch, "c", 1, 2, true},
		"another round":     {kept(evidence.Patch), evidence.Patch, "c", 1, 3, false},
		"another attempt":   {kept(evidence.Again), evidence.Again, "c", 2, 2, false},
		"a base, any round": {kept(evidence.Base), evidence.Base, "c", 2, 1, true},
		"another base":      {kept(evidence.Base), evidence.Base, "d", 1, 2, false},
		"another run":       {kept(evidence.Base), evidence.Patch, "c", 1, 2, false},
	} {
		got, err := Read(strings.NewReader(c.text), c.run, c.commit, c.attempt, c.round)
		if err != nil || (got != nil) != c.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
	if _, err := Read(strings.NewReader("["), evidence.Patch, "c", 1, 1); err == nil {
		t.Error("garbage is a run")
	}
}

func TestReport(t *testing.T) {
	for name, c := range map[string]struct {
		text, run string
		reason    task.Reason
		output    string
		flags     []string
		problem   string
	}{
		"tap":        {"1..1\nok 1\n", evidence.Patch, "", "report.tap", []string{}, ""},
		"go":         {`{"Action":"pass","Package":"p","Test":"T"}`, evidence.Base, "", "report.gotest.base", []string{}, ""},
		"failing":    {"1..1\nnot ok 1\n", evidence.Patch, task.VerifyFailed, "report.tap", []string{FlagFailing}, ""},
		"disagrees":  {"1..1\nnot ok 1\n", evidence.Patch, "", "report.tap", []string{FlagFailing, FlagDisagrees}, ""},
		"unknown":    {"hello\n", evidence.Patch, "", "report.junit", []string{FlagUnread}, "no report of a known form"},
		"hostile":    {"<testsuite>\x1b", evidence.Again, "", "report.junit.again", []string{FlagUnread}, "line 1"},
		"over limit": {strings.Repeat("ok\n", report.MaxTests+1) + "1..1\n", evidence.Patch, "", "report.junit", []string{FlagUnread}, "no report"},
		"many":       {"1..9\n" + strings.Repeat("ok\n", report.MaxTests+1), evidence.Patch, "", "report.tap", []string{}, "limit.size"},
	} {
		r := evidence.Run{Run: c.run, Reason: c.reason}
		output, flags := Report(&r, strings.NewReader(c.text))
		if output != c.output || !slices.Equal(flags, c.flags) || !strings.Contains(r.Problem, c.problem) || (r.Tests == nil) != (c.problem != "") || strings.Contains(r.Problem, "\x1b") {
			t.Errorf("%s: %q, %q, %+v", name, output, flags, r)
		}
	}
}

// A command's output goes to its log whole, whatever becomes of the report.
func TestSink(t *testing.T) {
	text := strings.Repeat("1..1\nok 1 - a\n", 10_000)
	var log bytes.Buffer
	var r evidence.Run
	s := NewSink(&log, true, func(from io.Reader) { Report(&r, from) })
	for piece := range slices.Chunk([]byte(text), 4096) {
		if n, err := s.Write(piece); n != len(piece) || err != nil {
			t.Fatal(n, err)
		}
	}
	s.End()
	s.End()
	if log.String() != text || r.Tests == nil {
		t.Errorf("%d bytes of %d, %+v", log.Len(), len(text), r.Problem)
	}
	log.Reset()
	early := NewSink(&log, true, func(io.Reader) {})
	if _, err := io.Copy(early, strings.NewReader(text)); err != nil || log.String() != text {
		t.Errorf("a reader that gave up: %v, %d bytes", err, log.Len())
	}
	early.End()
	full := NewSink(failing{}, false, nil)
	if _, err := full.Write([]byte("x")); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("a log that is full: %v", err)
	}
	full.End()
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

func TestDocuments(t *testing.T) {
	exit := 1
	r := evidence.Run{Run: evidence.Patch, Path: "-", Commit: "c", ExitCode: &exit, Reason: task.VerifyFailed, Text: "exited with 1"}
	Report(&r, strings.NewReader("1..2\nok 1 - a\nnot ok 2 - b\n"))
	e := evidence.New(evidence.Input{Base: "c", Judge: r, Again: &evidence.Run{Run: evidence.Again}})
	d := NewDocument(r, "verify", true)
	if d.ExitCode != 1 || d.Reason != "" || d.Tests == nil || !slices.Equal(d.Tests.Failed, []string{"b"}) || d.Tests.Form != "tap" || !d.ManifestsTouched {
		t.Errorf("report %+v", d)
	}
	f := Judged(stage.Input{Task: "t", Attempt: 1, Round: 2}, "sha256:e", e)
	if f.Outcome != "flaky" || f.Passes || f.ExitCodes["patch"] != 1 || f.Tests != 2 || f.Failures != 1 || f.Evidence != "sha256:e" || f.Round != 2 {
		t.Errorf("fact %+v", f)
	}
	var failure *task.Failure
	if err := Verdict(e, r); !errors.As(err, &failure) || failure.Reason != task.VerifyFailed || !strings.Contains(failure.Text, "verify.flaky") {
		t.Errorf("verdict %v", err)
	}
	if d := NewDocument(evidence.Run{Reason: task.LimitTime}, "verify", false); d.ExitCode != -1 || d.Reason != task.LimitTime || d.Tests != nil {
		t.Errorf("of a run that was ended: %+v", d)
	}
}
