package record

import (
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

const id = "sb-aaaaaaaaaaaaaaaa"

func read(t *testing.T, dir string, after int64) []task.EgressRecord {
	t.Helper()
	f, err := os.Open(Path(dir, id))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out, err := Read(f, after)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func open(t *testing.T, dir string, soft int64) *Log {
	t.Helper()
	l, err := Open(dir, id, soft)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func TestNumbersGoOnAfterATornLine(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, 0)
	for range 3 {
		if err := l.Append(task.EgressRecord{Conn: l.Conn(), Name: "a.test"}); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	f, err := os.OpenFile(Path(dir, id), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprint(f, `{"seq":4,"conn":9,"na`)
	f.Close()
	if got := read(t, dir, 0); len(got) != 3 {
		t.Fatalf("a torn line is read: %v", got)
	}
	l = open(t, dir, 0)
	if c := l.Conn(); c != 4 {
		t.Errorf("next connection %d, want 4", c)
	}
	if err := l.Append(task.EgressRecord{Name: "b.test"}); err != nil {
		t.Fatal(err)
	}
	got := read(t, dir, 3)
	if len(got) != 1 || got[0].Seq != 4 || got[0].Name != "b.test" || got[0].Sandbox != id {
		t.Errorf("after the restart: %+v", got)
	}
}

func TestFloodsAreCounted(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, 0)
	for i := range 10_000 {
		l.Tally(task.EgressRecord{Protocol: "udp", Port: 53, Address: "8.8.8.8", Reason: task.PolicyProtocol})
		l.Tally(task.EgressRecord{Protocol: "udp", Port: uint16(i), Address: "8.8.4.4", Reason: task.PolicyProtocol})
	}
	l.Close()
	all := read(t, dir, 0)
	var attempts int64
	for _, r := range all {
		attempts += max(r.Count, 1)
	}
	if attempts != 20_000 {
		t.Errorf("the records stand for %d refusals, want 20000", attempts)
	}
	if len(all) > 2*kindsMax+4 {
		t.Errorf("%d records for a flood", len(all))
	}
}

func TestSizeIsBounded(t *testing.T) {
	dir := t.TempDir()
	l := open(t, dir, 4096)
	now := time.Now()
	l.now = func() time.Time { return now }
	for range 1000 {
		l.Deny(task.EgressRecord{Name: "no.test", Port: 443, Reason: task.PolicyDenied})
	}
	if l.size > 4096+512 {
		t.Errorf("refusals took %d bytes", l.size)
	}
	var err error
	for range 1000 {
		if err = l.Append(task.EgressRecord{Name: "ok.test", Port: 443, Verdict: "allowed"}); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrFull) {
		t.Errorf("an endless log: %v", err)
	}
	if l.size > 2*4096+512 {
		t.Errorf("%d bytes", l.size)
	}
}

func TestNothingAfterClose(t *testing.T) {
	l := open(t, t.TempDir(), 0)
	l.Close()
	if err := l.Append(task.EgressRecord{}); err == nil {
		t.Error("a closed log takes records")
	}
	if err := l.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
}
