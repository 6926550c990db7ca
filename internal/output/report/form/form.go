// Package form tells from its bytes which form a test report has, and has it read by
// who knows the form. What a file is called says nothing.
//
// Told apart are JUnit's XML, the events of go test -json, pytest's own text and TAP.
// The first line among the first lookedAt bytes that only one form has decides, so
// that other output may stand before it.
package form

import (
	"bufio"
	"bytes"
	"errors"
	"io"

	"github.com/cofferdam/cofferdam/internal/output/report"
	"github.com/cofferdam/cofferdam/internal/output/report/gotest"
	"github.com/cofferdam/cofferdam/internal/output/report/junit"
	"github.com/cofferdam/cofferdam/internal/output/report/pytest"
	"github.com/cofferdam/cofferdam/internal/output/report/tap"
)

// lookedAt is how much of the beginning is looked at.
const lookedAt = 256 << 10

// ErrUnknown says that no form is known that a report has.
var ErrUnknown = errors.New("it is no report of a known form (JUnit XML, go test -json, TAP, pytest -v -rA)")

// Of says which form begins so; empty: none that is known.
func Of(head []byte) string {
	head = bytes.TrimPrefix(head, []byte("\xef\xbb\xbf"))
	if text := bytes.TrimLeft(head, " \t\r\n"); len(text) > 0 && text[0] == '<' {
		return junit.Form
	}
	for line := range bytes.Lines(head) {
		line = bytes.TrimRight(line, "\r\n")
		switch {
		case gotest.Is(line):
			return gotest.Form
		case pytest.Is(line):
			return pytest.Form
		case tap.Is(line):
			return tap.Form
		}
	}
	return ""
}

// Read reads a report of whichever form. The form is told also with an error.
func Read(from io.Reader) (r report.Report, name string, err error) {
	in := bufio.NewReaderSize(from, lookedAt)
	head, err := in.Peek(lookedAt)
	if err != nil && !errors.Is(err, io.EOF) {
		return r, "", err
	}
	name = Of(head)
	switch name {
	case junit.Form:
		r, err = junit.Parse(in)
	case gotest.Form:
		r, err = gotest.Parse(in)
	case pytest.Form:
		r, err = pytest.Parse(in)
	case tap.Form:
		r, err = tap.Parse(in)
	default:
		err = ErrUnknown
	}
	return r, name, err
}
