package api

import (
	"bytes"
	"errors"
	"io"
	"testing"
)

func TestFrames(t *testing.T) {
	var b []byte
	var err error
	want := []Frame{{FrameStdout, 0, []byte("hello")}, {FrameStderr, 5, []byte{}}, {FrameHeartbeat, 0, nil}, {FrameStatus, 0, []byte(`{"id":"c","phase":"exited","exitCode":3}`)}}
	for _, f := range want {
		if b, err = AppendFrame(b, f); err != nil {
			t.Fatal(err)
		}
	}
	r := NewFrameReader(bytes.NewReader(b))
	for _, w := range want {
		f, err := r.Next()
		if err != nil || f.Fd != w.Fd || f.Offset != w.Offset || !bytes.Equal(f.Data, w.Data) {
			t.Errorf("got %+v, %v, want %+v", f, err, w)
		}
		if f.Fd == FrameStatus {
			if st, err := f.Status(); err != nil || st.ExitCode != 3 {
				t.Errorf("%+v %v", st, err)
			}
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	for cut := 1; cut < 18; cut++ {
		if _, err := NewFrameReader(bytes.NewReader(b[:cut])).Next(); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	for _, bad := range []Frame{{Fd: 3}, {Fd: 1, Offset: -1}, {Fd: 1, Data: make([]byte, MaxFrame+1)}} {
		if _, err := AppendFrame(nil, bad); !errors.Is(err, ErrFrame) {
			t.Errorf("%d: %v", bad.Fd, err)
		}
	}
	if _, err := (Frame{Fd: FrameStdout}).Status(); !errors.Is(err, ErrFrame) {
		t.Error(err)
	}
}

func TestFrameReaderReservesNoMoreThanAllowed(t *testing.T) {
	head := []byte{1, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff}
	r := NewFrameReader(bytes.NewReader(head))
	if _, err := r.Next(); !errors.Is(err, ErrFrame) || cap(r.buf) != 0 {
		t.Errorf("%v, %d bytes reserved", err, cap(r.buf))
	}
}

func FuzzFrames(f *testing.F) {
	seed, _ := AppendFrame(nil, Frame{Fd: 1, Offset: 7, Data: []byte("x")})
	f.Add(seed)
	f.Add([]byte{0, 1, 2})
	f.Add(bytes.Repeat([]byte{255}, 40))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := NewFrameReader(bytes.NewReader(data))
		var again []byte
		for {
			fr, err := r.Next()
			if err != nil {
				break
			}
			if again, err = AppendFrame(again, fr); err != nil {
				t.Fatalf("what was read can't be written: %v", err)
			}
		}
		if !bytes.HasPrefix(data, again) {
			t.Errorf("round trip changed %x into %x", data, again)
		}
	})
}

func TestChunk(t *testing.T) {
	for _, data := range []string{"", "text", "ü", "\xff\x00bin"} {
		c := NewChunk(1, 0, []byte(data))
		if got, err := c.Bytes(); err != nil || string(got) != data {
			t.Errorf("%q: %q %v", data, got, err)
		}
	}
	if _, err := (Chunk{Base64: "!"}).Bytes(); err == nil {
		t.Error("bad base64 was read")
	}
}

func TestProblemError(t *testing.T) {
	p := &Problem{Code: "input.invalid", Detail: "body.a: is wrong", Errors: []FieldProblem{{"body.a", "is wrong"}, {"body.b", "too"}}}
	if got := p.Error(); got != "input.invalid: body.a: is wrong; body.b: too" {
		t.Error(got)
	}
}
