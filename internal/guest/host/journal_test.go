package host

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"pgregory.net/rapid"

	"github.com/cofferdam/cofferdam/internal/guest"
)

// TestTornTailIsCut tears a journal at every byte of its last record: what is
// whole stays, and appending goes on after it.
func TestTornTailIsCut(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j, err := loadJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{"first", "second"} {
		if err := j.append(1, []byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first := len(journalMagic) + recordHeader + len("first")
	for cut := range whole {
		want := ""
		if cut >= first {
			want = "first"
		}
		torn := filepath.Join(t.TempDir(), "torn")
		if err := os.WriteFile(torn, whole[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		checkJournal(t, torn, want)
	}
	flipped := bytes.Clone(whole)
	flipped[len(flipped)-1] ^= 1
	if err := os.WriteFile(path, flipped, 0o600); err != nil {
		t.Fatal(err)
	}
	checkJournal(t, path, "first")
	if err := os.WriteFile(path, []byte("something that is no journal at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := loadJournal(path); err == nil {
		t.Error("took a file that is no journal")
	}
}

func checkJournal(t *testing.T, path, want string) {
	t.Helper()
	j, err := loadJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.append(2, []byte("after")); err != nil {
		t.Fatal(err)
	}
	j.close()
	again, err := loadJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := readFrom(t, again, 0); got != want+"after" {
		t.Fatalf("got %q, want %q", got, want+"after")
	}
}

func readFrom(t *testing.T, j *journal, offset int64) string {
	t.Helper()
	c, err := newCursor(j, offset)
	if err != nil {
		t.Fatal(err)
	}
	defer c.file.Close()
	var text []byte
	for offset < j.length() {
		chunk, err := c.next(offset)
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Offset != offset {
			t.Fatalf("chunk at %d, want %d", chunk.Offset, offset)
		}
		text = append(text, chunk.Data...)
		offset += int64(len(chunk.Data))
	}
	return string(text)
}

// TestJournalFromAnyOffset writes more than the index's interval and reads from
// random offsets, before and after the file is opened again.
func TestJournalFromAnyOffset(t *testing.T) {
	path := filepath.Join(t.TempDir(), "j")
	j, err := loadJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(3, 4))
	var whole []byte
	for len(whole) < 5*indexInterval {
		data := make([]byte, 1+random.IntN(guest.MaxChunk))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		if err := j.append(1+random.IntN(2), data); err != nil {
			t.Fatal(err)
		}
		whole = append(whole, data...)
	}
	again, err := loadJournal(path)
	if err != nil {
		t.Fatal(err)
	}
	if len(again.index) != len(j.index) || len(j.index) < 4 {
		t.Errorf("the index has %d and %d entries", len(j.index), len(again.index))
	}
	rapid.Check(t, func(rt *rapid.T) {
		offset := rapid.Int64Range(0, int64(len(whole))).Draw(rt, "offset")
		if got := readFrom(t, again, offset); got != string(whole[offset:]) {
			rt.Fatalf("from %d: %d bytes differ", offset, len(got))
		}
	})
}

// FuzzJournal opens anything: no panic, and reading what it found gives as much
// as it says.
func FuzzJournal(f *testing.F) {
	f.Add([]byte(journalMagic))
	f.Add([]byte(journalMagic + "\x00\x00\x00\x01\x01\xd5\x6a\x51\x2cx"))
	f.Add([]byte(journalMagic + "\xff\xff\xff\xff\x01\x00\x00\x00\x00"))
	path := filepath.Join(f.TempDir(), "j")
	f.Fuzz(func(t *testing.T, text []byte) {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := loadJournal(path)
		if err != nil {
			return
		}
		c, err := newCursor(j, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer c.file.Close()
		for offset := int64(0); offset < j.length(); {
			chunk, err := c.next(offset)
			if err != nil {
				return // A damaged record before the last.
			}
			offset += int64(len(chunk.Data))
		}
	})
}
