package cli

import (
	"fmt"
	"io"

	"github.com/cofferdam/cofferdam/api"
	"github.com/cofferdam/cofferdam/internal/cli/show"
)

// printJSON writes v as one document.
func printJSON(w io.Writer, v any) error {
	b, err := show.JSON(v, "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// document is an object that is written while it comes in: some fields, a list
// of any length, some fields.
type document struct {
	w     io.Writer
	comma bool
	err   error
}

func newDocument(w io.Writer) *document {
	d := &document{w: w}
	d.put("{")
	return d
}

func (d *document) put(s string) {
	if d.err == nil {
		_, d.err = io.WriteString(d.w, s)
	}
}

func (d *document) next() {
	if d.comma {
		d.put(",")
	}
	d.comma = true
}

func (d *document) field(name string, v any) {
	d.next()
	d.put(fmt.Sprintf("\n  %q: ", name))
	d.value(v)
}

func (d *document) value(v any) {
	b, err := show.JSON(v, "")
	if err != nil && d.err == nil {
		d.err = err
	}
	d.put(string(b))
}

func (d *document) list(name string) {
	d.next()
	d.put(fmt.Sprintf("\n  %q: [", name))
	d.comma = false
}

func (d *document) item(v any) error {
	d.next()
	d.put("\n    ")
	d.value(v)
	return d.err
}

func (d *document) endList() {
	d.put("]")
	d.comma = true
}

// end closes the document, with err in it when the answer broke off.
func (d *document) end(err error) error {
	if err != nil {
		d.field("error", failureOf(err))
	}
	d.put("\n}\n")
	if err != nil {
		return &exitError{ExitCode(err)}
	}
	return d.err
}

// piece is a part of a stream of bytes in a document.
type piece struct {
	Text   string `json:"text,omitempty"`
	Base64 string `json:"base64,omitempty"`
}

// pieces writes a stream into a document's list.
type pieces struct{ d *document }

func (p pieces) Write(b []byte) (int, error) {
	c := api.NewChunk(0, 0, b)
	if err := p.d.item(piece{c.Text, c.Base64}); err != nil {
		return 0, err
	}
	return len(b), nil
}
