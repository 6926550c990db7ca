package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/cofferdam/cofferdam/api"
)

// printJSON writes v as one document.
func printJSON(w io.Writer, v any) error {
	b, err := marshal(v, "  ")
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

// marshal is JSON whose strings are safe to look at: what could disturb a
// terminal is written as an escape, which means the same to a parser.
func marshal(v any, indent string) ([]byte, error) {
	var raw bytes.Buffer
	enc := json.NewEncoder(&raw)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", indent)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("document: %w", err)
	}
	return quiet(bytes.TrimRight(raw.Bytes(), "\n")), nil
}

// quiet escapes what is not plain in JSON text. Outside of strings JSON has
// nothing but ASCII, and white space is the only control character there.
func quiet(in []byte) []byte {
	out := make([]byte, 0, len(in))
	for len(in) > 0 {
		r, n := utf8.DecodeRune(in)
		switch {
		case r < utf8.RuneSelf && r != 0x7f, plain(r):
			out = append(out, in[:n]...)
		case r > 0xffff:
			hi, lo := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, hi, lo)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		in = in[n:]
	}
	return out
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
	b, err := marshal(v, "")
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
