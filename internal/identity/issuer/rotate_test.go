package issuer

import (
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// states are the keys' states in order.
func (r *rig) states() string {
	r.t.Helper()
	keys, err := r.i.Keys()
	if err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, k := range keys {
		out = append(out, string(k.State))
	}
	return strings.Join(out, " ")
}

func (r *rig) privates() int { return strings.Count(read(r.t, r.file()), `"private"`) }

func (r *rig) rotate(alg string, atOnce bool) {
	r.t.Helper()
	if _, err := r.i.Rotate(r.t.Context(), alg, "admin", atOnce); err != nil {
		r.t.Fatal(err)
	}
}

// A key is rotated in the middle of a run: every token verifies until its end,
// for a party that reads the keys each time and for one that cached them when
// the new key was published.
func TestRotationOverlaps(t *testing.T) {
	r := newRig(t)
	p := serve(t, r, live(r))
	r.rotate(ES256, false)
	if got := r.states(); got != "current next" {
		t.Fatal(got)
	}
	_, err := r.i.Rotate(t.Context(), "", "admin", false)
	wants(t, err, task.InputConflict, "--now")
	cached := r.snapshot() // at the worst moment: right after publication
	c := serve(t, r, http.FileServerFS(os.DirFS(cached)))
	r.sleep(DefaultDelay - time.Second)
	old := r.token() // the last one of the old key
	r.sleep(time.Second)
	young := r.token()
	if header(old) == header(young) || r.states() != "retired current" || r.privates() != 1 {
		t.Errorf("%s, %d private parts", r.states(), r.privates())
	}
	r.open()
	for r.tick().Before(time.Date(2026, 3, 1, 13, 9, 50, 0, time.UTC)) {
		for _, party := range []party{p, c} {
			for _, token := range []string{old, young} {
				if err := party.accepts(token, audience); err != nil {
					t.Fatalf("at %s: %v", r.tick(), err)
				}
			}
		}
		r.sleep(time.Minute)
	}
	r.sleep(10 * time.Minute)
	if got := r.states(); got != "current" || p.accepts(old, audience) == nil {
		t.Errorf("after its time: %s", got)
	}
	r.rotate("", false)
}

func header(token string) string { return strings.Split(token, ".")[0] }

// snapshot exports the documents as they are now.
func (r *rig) snapshot() string {
	r.t.Helper()
	dir := r.t.TempDir()
	h := live(r)
	for _, path := range []string{DiscoveryPath, KeysPath} {
		w := &recorder{}
		req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, path, nil)
		if err != nil {
			r.t.Fatal(err)
		}
		h.ServeHTTP(w, req)
		file := filepath.Join(dir, path)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			r.t.Fatal(err)
		}
		write(r.t, file, w.String())
	}
	return dir
}

type recorder struct{ strings.Builder }

func (*recorder) Header() http.Header { return http.Header{} }
func (*recorder) WriteHeader(int)     {}

// At once: what was signed before is not ours any longer.
func TestRotationAtOnce(t *testing.T) {
	r := newRig(t)
	p := serve(t, r, live(r))
	old := r.token()
	r.rotate("", false)
	r.rotate("", true)
	if got := r.states(); got != "current" || r.privates() != 1 {
		t.Error(got)
	}
	if p.accepts(old, audience) == nil {
		t.Error("a token of before is taken")
	}
	if err := p.accepts(r.token(), audience); err != nil {
		t.Error(err)
	}
	if strings.Count(strings.Join(r.kinds, " "), "identity.rotate") != 2 {
		t.Errorf("recorded %v", r.kinds)
	}
}

func TestRotationThatFailsChangesNothing(t *testing.T) {
	r := newRig(t)
	before := read(t, r.file())
	r.fails = task.Fail(task.InfraStorage, "the disk is full", nil)
	_, err := r.i.Rotate(t.Context(), "", "admin", false)
	wants(t, err, task.InfraStorage, "full")
	r.fails = nil
	_, err = r.i.Rotate(t.Context(), "HS256", "admin", false)
	wants(t, err, task.InputInvalid, "HS256")
	r.i.file = filepath.Join(r.dir, "gone", "identity.json")
	_, err = r.i.Rotate(t.Context(), "", "admin", false)
	wants(t, err, task.InfraStorage, "as they were")
	if read(t, r.file()) != before || r.states() != "current" {
		t.Error("the keys changed")
	}
}

// Clocks that are five minutes apart understand one another.
func TestClocksApart(t *testing.T) {
	r := newRig(t)
	p := serve(t, r, live(r))
	token := r.token()
	for _, skew := range []time.Duration{-5 * time.Minute, 5 * time.Minute, 0} {
		p.skew = skew
		if err := p.accepts(token, audience); err != nil {
			t.Errorf("%s: %v", skew, err)
		}
	}
	p.skew = 0
	r.sleep(Life + time.Second)
	if p.accepts(token, audience) == nil {
		t.Error("it lives for ever")
	}
}

// A clock that is set back behind every key stops nothing.
func TestClockSetBack(t *testing.T) {
	r := newRig(t)
	r.rotate("", false)
	r.sleep(2 * DefaultDelay)
	r.token()
	r.sleep(-24 * time.Hour)
	r.open()
	p := serve(t, r, live(r))
	if err := p.accepts(r.token(), audience); err != nil {
		t.Error(err)
	}
}

func TestPublished(t *testing.T) {
	r := newRig(t)
	old := r.snapshot()
	p := serve(t, r, http.FileServerFS(os.DirFS(old)))
	if err := r.i.Published(t.Context(), p.client); err != nil {
		t.Error(err)
	}
	r.rotate("", false)
	wants(t, r.i.Published(t.Context(), p.client), task.InputConflict, "next key")
	write(t, filepath.Join(old, KeysPath), "<html>")
	if err := r.i.Published(t.Context(), p.client); err == nil || !strings.Contains(err.Error(), "no key set") {
		t.Error(err)
	}
	if err := os.Remove(filepath.Join(old, KeysPath)); err != nil {
		t.Fatal(err)
	}
	wants(t, r.i.Published(t.Context(), p.client), task.InputConflict, "404")
	if err := r.i.Published(t.Context(), &http.Client{Transport: nowhere{}}); err != nil {
		t.Errorf("one that can't be reached from here: %v", err)
	}
}

type nowhere struct{}

func (nowhere) RoundTrip(*http.Request) (*http.Response, error) { return nil, os.ErrDeadlineExceeded }

// TestRotatesUntilKilled is what TestKilledWhileRotating kills.
func TestRotatesUntilKilled(t *testing.T) {
	dir := os.Getenv("COFFERDAM_TEST_ROTATES")
	if dir == "" {
		t.Skip("runs as a program of TestKilledWhileRotating")
	}
	r := newRig(t)
	r.o.Dir = dir
	r.open()
	for {
		r.rotate(ES256, true)
	}
}

// Whenever it is killed, there is a whole file of keys and it can sign.
func TestKilledWhileRotating(t *testing.T) {
	r := newRig(t)
	for range 5 {
		before := read(t, r.file())
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestRotatesUntilKilled$")
		cmd.Env = append(os.Environ(), "COFFERDAM_TEST_ROTATES="+r.dir, "TMPDIR="+t.TempDir()) // a killed test cleans up nothing
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		for read(t, r.file()) == before { // until it rotates
			if cmd.ProcessState != nil {
				t.Fatal("it ended")
			}
		}
		if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait()
		r.open()
		r.token()
	}
}
