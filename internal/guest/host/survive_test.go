package host

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/guest"
)

const floodID = "flood"

// followAsWorker is a worker process: it dials and follows until killed.
func followAsWorker(folder string) error {
	in, out, err := openFIFOs(folder)
	if err != nil {
		return err
	}
	c, err := Dial(context.Background(), Options{In: in, Out: out, Dir: filepath.Join(folder, "journals")})
	if err != nil {
		return err
	}
	<-c.Done()
	return errors.New("the channel closed")
}

// TestKilledWorkersLoseNothing kills the worker five times while a command
// writes: every byte arrives once, in order.
func TestKilledWorkersLoseNothing(t *testing.T) {
	p := newPlace(t)
	// A part for each worker, about 4 MB, so that none sees the end but the last.
	const workers, lines = 6, 500_000
	want := sha256.New()
	for i := 1; i <= workers*lines; i++ {
		fmt.Fprintln(want, i)
	}
	script := fmt.Sprintf(`echo $$ >> pids
k=0; while [ $k -lt %d ]; do
	until [ -e go$k ]; do sleep 0.01; done
	seq $((k*%d+1)) $((k*%d+%d)); k=$((k+1))
done`, workers, lines, lines, lines)
	first := p.dial()
	if _, err := first.Start(soon(t), sh(floodID, script)); err != nil {
		t.Fatal(err)
	}
	first.Close()
	open := func(part int) {
		if err := os.WriteFile(p.workspace(fmt.Sprintf("go%d", part)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var before int64
	for kill := range 5 {
		worker := exec.Command(os.Args[0])
		worker.Env = append(os.Environ(), roleVariable+"=worker:"+p.folder)
		if err := worker.Start(); err != nil {
			t.Fatal(err)
		}
		open(kill)
		goal := before + 1<<20
		eventually(t, "the worker records output", func() bool { return journalSize(p) >= goal })
		worker.Process.Kill()
		worker.Wait()
		before = journalSize(p)
		t.Logf("killed worker %d after %d bytes", kill, before)
	}
	open(workers - 1)
	last := p.dial()
	got := sha256.New()
	s := copyTo(t, last, got)
	if s.ExitCode != 0 || string(got.Sum(nil)) != string(want.Sum(nil)) {
		t.Errorf("the output differs: %+v", s)
	}
	if text, _ := os.ReadFile(p.workspace("pids")); len(text) == 0 || len(text) > 9 {
		t.Errorf("the command ran more than once: %q", text)
	}
}

func journalSize(p *place) int64 {
	info, err := os.Stat(filepath.Join(p.folder, "journals", floodID+journalSuffix))
	if err != nil {
		return 0
	}
	return info.Size()
}

func copyTo(t *testing.T, c *Conn, h hash.Hash) guest.Status {
	t.Helper()
	stream, err := c.Attach(soon(t), floodID, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	var offset int64
	for {
		chunk, err := stream.Next()
		if err == io.EOF {
			return stream.Status()
		}
		if err != nil {
			t.Fatal(err)
		}
		if chunk.Offset != offset {
			t.Fatalf("offset %d, want %d", chunk.Offset, offset)
		}
		offset += int64(len(chunk.Data))
		h.Write(chunk.Data)
	}
}

// TestGarbageOnBothFIFOs damages the channel in an epoch: both ends notice, begin
// anew, and nothing is lost.
func TestGarbageOnBothFIFOs(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	const lines = 300_000
	want := sha256.New()
	for i := 1; i <= lines; i++ {
		fmt.Fprintln(want, i)
	}
	if _, err := c.Start(soon(t), sh(floodID, fmt.Sprintf("seq 1 %d", lines))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"in", "out"} {
		raw, err := os.OpenFile(filepath.Join(p.folder, name), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := raw.Write([]byte("\x00garbage\x00\xff\xff\xffmore")); err != nil {
			t.Fatal(err)
		}
		raw.Close()
		if err := c.Ping(soon(t)); err != nil {
			t.Fatal(err)
		}
	}
	got := sha256.New()
	if s := copyTo(t, c, got); s.ExitCode != 0 || string(got.Sum(nil)) != string(want.Sum(nil)) {
		t.Errorf("the output differs: %+v", s)
	}
}

// TestNobodyListens: without a worker the guest keeps what it may and the command
// blocks; with one it goes on.
func TestNobodyListens(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	if _, err := c.Start(soon(t), sh("quiet", "until [ -e go ]; do sleep 0.01; done; exit 7")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Start(soon(t), sh("loud", "until [ -e go ]; do sleep 0.01; done; seq 1 1000000; touch done")); err != nil {
		t.Fatal(err)
	}
	stream, err := c.Attach(t.Context(), "quiet", 0)
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
	if _, err := stream.Next(); !errors.Is(err, ErrClosed) {
		t.Errorf("a stream of a closed channel: %v", err)
	}
	if err := os.WriteFile(p.workspace("go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the quiet command ended", func() bool { return len(childrenOf(p.guest.Process.Pid)) == 1 })
	if _, err := os.Stat(p.workspace("done")); err == nil {
		t.Error("the loud command did not block")
	}
	again := p.dial()
	if _, _, s := attach(t, again.Journals(), "quiet"); s.ExitCode != 7 {
		t.Errorf("quiet: %+v", s)
	}
	if stdout, _, s := attach(t, again.Journals(), "loud"); len(stdout) != 6888896 || s.ExitCode != 0 {
		t.Errorf("loud: %d bytes, %+v", len(stdout), s)
	}
}

func TestDialGivesUp(t *testing.T) {
	p := newFIFOs(t)
	in, out := p.open()
	defer in.Close()
	defer out.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := Dial(ctx, Options{In: in, Out: out, Dir: filepath.Join(p.folder, "journals")}); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// TestJournalsOutliveTheGuest reads and ends what a dead sandbox left.
func TestJournalsOutliveTheGuest(t *testing.T) {
	p := newPlace(t)
	c := p.dial()
	if _, _, s := run(t, c, sh("done", "echo done")); s.ExitCode != 0 {
		t.Fatalf("%+v", s)
	}
	if _, err := c.Start(soon(t), sh("open", "echo begun; exec sleep 300")); err != nil {
		t.Fatal(err)
	}
	stream, err := c.Attach(t.Context(), "open", 0)
	if err != nil {
		t.Fatal(err)
	}
	if chunk, err := stream.Next(); err != nil || string(chunk.Data) != "begun\n" {
		t.Fatalf("%q, %v", chunk.Data, err)
	}
	for pid := range childrenOf(p.guest.Process.Pid) {
		defer func() {
			if process, err := os.FindProcess(pid); err == nil {
				process.Kill()
			}
		}()
	}
	p.guest.Process.Kill()
	if err := c.Lose("limit.memory"); err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Next(); err != io.EOF {
		t.Errorf("the stream goes on: %v", err)
	}
	if s := stream.Status(); s.Reason != "limit.memory" || !s.Ended() || s.ExitCode != -1 {
		t.Errorf("%+v", s)
	}
	j, err := OpenJournals(filepath.Join(p.folder, "journals"))
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	if stdout, _, s := attach(t, j, "open"); stdout != "begun\n" || s.Reason != "limit.memory" {
		t.Errorf("%q, %+v", stdout, s)
	}
	if stdout, _, s := attach(t, j, "done"); stdout != "done\n" || s.ExitCode != 0 {
		t.Errorf("%q, %+v", stdout, s)
	}
}
