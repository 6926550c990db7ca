package console

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func typed(t *testing.T, r io.Reader) (string, error) {
	t.Helper()
	var out bytes.Buffer
	k, buf := &keys{r: r}, make([]byte, 8)
	for {
		n, err := k.Read(buf)
		out.Write(buf[:n])
		if err != nil {
			return out.String(), err
		}
	}
}

func TestDetachKeys(t *testing.T) {
	for in, want := range map[string]struct {
		out      string
		detached bool
	}{
		"plain text":         {"plain text", false},
		"a\x10\x11b":         {"a", true},
		"a\x10b\x11":         {"a\x10b\x11", false},
		"\x10\x10\x10\x11":   {"\x10\x10", true},
		"\x10":               {"\x10", false},
		"\x10\x10":           {"\x10\x10", false},
		"\x11\x10":           {"\x11\x10", false},
		"0123456789\x10\x11": {"0123456789", true},
	} {
		for name, r := range map[string]io.Reader{
			"at once": bytes.NewReader([]byte(in)), "key by key": iotest.OneByteReader(bytes.NewReader([]byte(in))),
		} {
			out, err := typed(t, r)
			if out != want.out || errors.Is(err, ErrDetached) != want.detached {
				t.Errorf("%q %s: %q, %v; want %q, %v", in, name, out, err, want.out, want.detached)
			}
		}
	}
}

// FuzzDetachKeys types anything: without the keys in it all of it is passed on.
func FuzzDetachKeys(f *testing.F) {
	f.Add([]byte("text\x10more\x10\x11rest"))
	f.Add([]byte{16, 16, 16})
	f.Fuzz(func(t *testing.T, in []byte) {
		want, rest, found := bytes.Cut(in, []byte{16, 17})
		out, err := typed(t, iotest.HalfReader(bytes.NewReader(in)))
		if out != string(want) || errors.Is(err, ErrDetached) != found {
			t.Fatalf("%q: %q, %v; the rest is %q", in, out, err, rest)
		}
	})
}

func TestParseSize(t *testing.T) {
	if s, err := ParseSize("40x120"); err != nil || s.Rows != 40 || s.Cols != 120 {
		t.Error(s, err)
	}
	for _, s := range []string{"", "40", "0x80", "40x0", "40x", "-1x80", "70000x80", "40x120x2", " 40x80"} {
		if size, err := ParseSize(s); err == nil {
			t.Errorf("%q is %+v", s, size)
		}
	}
}
