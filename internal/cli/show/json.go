package show

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode/utf16"
	"unicode/utf8"
)

// JSON is JSON whose strings are safe to look at: what could disturb a
// terminal is written as an escape, which means the same to a parser.
func JSON(v any, indent string) ([]byte, error) {
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
		case r < utf8.RuneSelf && r != 0x7f, Plain(r):
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
