package output

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestRemove(t *testing.T) {
	b, dir := open(t)
	d, _, err := b.Put(t.Context(), strings.NewReader("bytes"), 10)
	if err != nil {
		t.Fatal(err)
	}
	free := func(context.Context) (bool, error) { return false, nil }
	used := func(context.Context) (bool, error) { return true, nil }
	broken := func(context.Context) (bool, error) { return false, errors.New("no answer") }
	remove := func(of task.Digest, referenced func(context.Context) (bool, error), want Outcome, size int64) {
		t.Helper()
		if o, n, err := b.Remove(t.Context(), of, referenced); o != want || n != size || err != nil {
			t.Errorf("outcome %d, %d bytes, %v; want %d and %d", o, n, err, want, size)
		}
	}
	remove(d, free, Pinned, 0)
	if _, _, err := b.Put(t.Context(), strings.NewReader("bytes"), 10); err != nil {
		t.Fatal(err)
	}
	b.Settle(d)
	remove(d, free, Pinned, 0) // of the second Put
	b.Settle(d)
	remove(d, used, Referenced, 0)
	if _, _, err := b.Remove(t.Context(), d, broken); err == nil || len(files(t, dir)) != 1 {
		t.Errorf("without an answer: %v, files %v", err, files(t, dir))
	}
	remove(d, free, Gone, 5)
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("left: %v", left)
	}
	remove(d, free, Gone, 0)
	if _, _, err := b.Remove(t.Context(), "sha256:../..", free); task.ReasonOf(err) != task.InputInvalid {
		t.Errorf("no digest: %v", err)
	}
}

func TestPinsEnd(t *testing.T) {
	b, _ := open(t)
	now := time.Now()
	b.now = func() time.Time { return now }
	d, _, err := b.Put(t.Context(), strings.NewReader("never used"), 10)
	if err != nil {
		t.Fatal(err)
	}
	now = now.Add(pinLife)
	if o, _, err := b.Remove(t.Context(), d, func(context.Context) (bool, error) { return false, nil }); o != Gone || err != nil {
		t.Errorf("a day later: %d, %v", o, err)
	}
	if err := b.Hold(t.Context(), d); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("holding what is gone: %v", err)
	}
	if len(b.pins) != 0 {
		t.Errorf("pins left: %v", b.pins)
	}
}
