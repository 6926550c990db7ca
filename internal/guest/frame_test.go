package guest

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"pgregory.net/rapid"
)

func drawFrame(t *rapid.T) Frame {
	payload := rapid.OneOf(
		rapid.SliceOfN(rapid.Byte(), 0, 600),
		rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0, 1, 255}), 0, 600),
		rapid.Map(rapid.IntRange(MaxPayload-300, MaxPayload), func(n int) []byte { return bytes.Repeat([]byte("x"), n) }),
		rapid.Map(rapid.IntRange(0, MaxPayload), func(n int) []byte { return make([]byte, n) }),
	).Draw(t, "payload")
	return Frame{
		Type: Type(rapid.Byte().Draw(t, "type")), Flags: rapid.Byte().Draw(t, "flags"),
		Epoch: rapid.Uint64().Draw(t, "epoch"), Stream: rapid.Uint64().Draw(t, "stream"),
		Payload: payload,
	}
}

func equal(a, b Frame) bool {
	return a.Type == b.Type && a.Flags == b.Flags && a.Epoch == b.Epoch && a.Stream == b.Stream &&
		bytes.Equal(a.Payload, b.Payload)
}

// TestFramesSurviveGarbage puts a torn frame or garbage before each frame: every
// whole frame still arrives, in order, and nothing else does.
func TestFramesSurviveGarbage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var wire []byte
		var want []Frame
		for range rapid.IntRange(1, 6).Draw(t, "frames") {
			f := drawFrame(t)
			whole := AppendFrame(nil, f)
			if bytes.IndexByte(whole[:len(whole)-1], 0) >= 0 {
				t.Fatal("a frame holds the delimiter")
			}
			if rapid.Bool().Draw(t, "torn") {
				wire = append(wire, whole[:rapid.IntRange(0, len(whole)-2).Draw(t, "cut")]...)
				wire = append(wire, 0)
			}
			if rapid.Bool().Draw(t, "garbage") {
				wire = append(wire, rapid.SliceOfN(rapid.Byte(), 0, 50).Draw(t, "bytes")...)
				wire = append(wire, 0)
			}
			wire = append(wire, whole...)
			want = append(want, f)
		}
		r := NewReader(bytes.NewReader(wire))
		var got []Frame
		for {
			f, err := r.Next()
			if errors.Is(err, ErrCorrupt) {
				continue
			}
			if err == io.EOF {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			f.Payload = bytes.Clone(f.Payload)
			got = append(got, f)
		}
		if len(got) != len(want) {
			t.Fatalf("%d frames arrived, want %d", len(got), len(want))
		}
		for i := range got {
			if !equal(got[i], want[i]) {
				t.Fatalf("frame %d differs", i)
			}
		}
	})
}

func TestReaderSkipsWhatIsTooLong(t *testing.T) {
	good := Frame{Type: Ping, Epoch: 7, Stream: 9, Payload: []byte("after")}
	wire := bytes.Repeat([]byte{7}, 5*maxStuffed)
	wire = append(wire, 0)
	wire = AppendFrame(wire, good)
	for name, src := range map[string]io.Reader{
		"whole": bytes.NewReader(wire), "byte by byte": iotest.OneByteReader(bytes.NewReader(wire)),
	} {
		r := NewReader(src)
		if _, err := r.Next(); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%s: got %v, want ErrCorrupt", name, err)
		}
		f, err := r.Next()
		if err != nil || !equal(f, good) {
			t.Fatalf("%s: got %v, %v", name, f, err)
		}
		if len(r.buf) != 2*maxStuffed {
			t.Fatalf("%s: the buffer grew", name)
		}
	}
}

func TestMessagesAreJoinedAndBounded(t *testing.T) {
	big := bytes.Repeat([]byte("0123456789"), MaxMessage/10)
	read := func(wire []byte) (whole []Frame) {
		r, a := NewReader(bytes.NewReader(wire)), Assembler{}
		for {
			f, err := r.Next()
			if err != nil {
				return whole
			}
			if m, ok := a.Add(f); ok {
				m.Payload = bytes.Clone(m.Payload)
				whole = append(whole, m)
			}
		}
	}
	got := read(AppendMessage(nil, Frame{Type: Start, Epoch: 1, Stream: 2, Payload: big}))
	if len(got) != 1 || !bytes.Equal(got[0].Payload, big) {
		t.Fatalf("%d messages, want one of %d bytes", len(got), len(big))
	}
	var endless []byte
	for range 40 {
		endless = AppendFrame(endless, Frame{Type: Start, Flags: More, Stream: 2, Payload: big[:MaxPayload]})
	}
	if got := read(endless); len(got) != 0 {
		t.Fatalf("%d messages out of one without an end", len(got))
	}
	cut := AppendFrame(nil, Frame{Type: Start, Flags: More, Stream: 2, Payload: []byte("half")})
	cut = AppendFrame(cut, Frame{Type: Start, Stream: 3, Payload: []byte("other")})
	if got := read(cut); len(got) != 1 || string(got[0].Payload) != "other" {
		t.Fatalf("a message joined another's part: %v", got)
	}
}

// FuzzReader feeds anything: no panic, and what is accepted encodes to itself.
func FuzzReader(f *testing.F) {
	frame := AppendFrame(nil, Frame{Type: Output, Epoch: 1, Stream: 2, Payload: AppendOutput(nil, Chunk{Fd: 1, Offset: 3, Data: []byte("a\x00b")})})
	f.Add(frame)
	f.Add(frame[3:])
	f.Add(append([]byte{0, 0}, frame...))
	f.Add(append(bytes.Repeat([]byte{255}, 300), frame...))
	f.Add([]byte{1, 1, 1, 0})
	f.Fuzz(func(t *testing.T, wire []byte) {
		r, a := NewReader(bytes.NewReader(wire)), Assembler{}
		for {
			frame, err := r.Next()
			if errors.Is(err, ErrCorrupt) {
				continue
			}
			if err != nil {
				return
			}
			again, err := NewReader(bytes.NewReader(AppendFrame(nil, frame))).Next()
			if err != nil || !equal(again, frame) {
				t.Fatalf("%v came back as %v, %v", frame, again, err)
			}
			ParseOutput(frame.Payload)
			a.Add(frame)
		}
	})
}

func BenchmarkFrame(b *testing.B) {
	b.Run("text", func(b *testing.B) { benchmarkFrame(b, bytes.Repeat([]byte("a line of text\n"), MaxChunk/15)) })
	b.Run("zeros", func(b *testing.B) { benchmarkFrame(b, make([]byte, MaxChunk)) })
}

func benchmarkFrame(b *testing.B, payload []byte) {
	b.SetBytes(int64(len(payload)))
	var wire []byte
	for b.Loop() {
		wire = AppendFrame(wire[:0], Frame{Type: Output, Payload: payload})
		if _, err := parseFrame(wire[:len(wire)-1]); err != nil {
			b.Fatal(err)
		}
	}
}

// Runs without a zero end at and around the length of a full block, before a
// zero and before the end: the places where stuffing can lose one.
func TestFramesKeepZerosAfterFullBlocks(t *testing.T) {
	for run := range 3 * 255 {
		for _, tail := range []string{"", "\x00", "\x00\x00", "\x00y", "y\x00"} {
			payload := append(bytes.Repeat([]byte("x"), run), tail...)
			want := Frame{Type: Data, Epoch: 1<<64 - 1, Stream: 0x0101010101010101, Payload: payload}
			got, err := NewReader(bytes.NewReader(AppendFrame(nil, want))).Next()
			if err != nil || !equal(got, want) {
				t.Fatalf("a run of %d and %q: %v", run, tail, err)
			}
		}
	}
}
