package sigv4

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// The end of a body is given only to the one whose digest was signed.
func TestDigest(t *testing.T) {
	text := strings.Repeat("0123456789", 10_000)
	k := newClient()
	k.payload = Digest([]byte(text))
	m := k.message()
	c, err := judge(m, "", noon)
	if err != nil {
		t.Fatal(err)
	}
	for name, x := range map[string]struct {
		from io.Reader
		ok   bool
	}{
		"whole":             {strings.NewReader(text), true},
		"a byte at a time":  {iotest.OneByteReader(strings.NewReader(text)), true},
		"its end at once":   {iotest.DataErrReader(strings.NewReader(text)), true},
		"altered":           {strings.NewReader("x" + text[1:]), false},
		"cut":               {strings.NewReader(text[:99_999]), false},
		"longer":            {strings.NewReader(text + "0"), false},
		"empty":             {strings.NewReader(""), false},
		"broken off":        {io.MultiReader(strings.NewReader(text), iotest.ErrReader(io.ErrUnexpectedEOF)), false},
		"one byte too many": {iotest.DataErrReader(strings.NewReader(text + "\n")), false},
	} {
		r, err := c.Body(m, x.from, Signed{}, standSecret, realSecret)
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(iotest.OneByteReader(r))
		if x.ok && (err != nil || string(got) != text) || !x.ok && (err == nil || len(got) > len(text)) {
			t.Errorf("%s: %d bytes, %v", name, len(got), err)
		}
	}
}
