package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/mod/sumdb/note"

	"github.com/cofferdam/cofferdam/internal/task"
)

func TestRecordIsOncePerTaskAndKey(t *testing.T) {
	s := newSite(t)
	var wg sync.WaitGroup
	for i := range 40 {
		wg.Go(func() {
			s.record(taskID(i%4), fmt.Sprint(i%10), "kind", ControlPlane, map[string]int{"i": i})
		})
	}
	wg.Wait()
	s.record("", "start", "started", ControlPlane, nil)
	seen := map[string]bool{}
	for _, r := range s.store.records {
		if seen[r.Task+"/"+r.Key] {
			t.Errorf("%s/%s stands twice", r.Task, r.Key)
		}
		seen[r.Task+"/"+r.Key] = true
	}
	if len(seen) != 21 { // lcm(4,10) = 20 pairs, and the installation's own
		t.Errorf("%d records, want 21", len(seen))
	}
	verified(t, s, VerifyOptions{})
}

func TestRecordRefuses(t *testing.T) {
	s := newSite(t)
	for name, facts := range map[string]any{
		"a list": []int{1}, "text": "x", "too large": map[string]int64{"n": 1 << 53}, "a prompt": map[string]any{"a": []any{map[string]string{"Prompt": "x"}}},
		"a password": map[string]string{"password": "x"}, "no number": map[string]float64{"x": math.Inf(1)}, "bad raw": json.RawMessage(`{"a":`),
		"twice": json.RawMessage(`{"a":1,"a":2}`),
	} {
		if err := s.log.Record(t.Context(), "t", name, "k", ControlPlane, facts); task.ReasonOf(err) != task.InfraInternal {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, c := range [][3]string{{"", "k", ControlPlane}, {"key", "", ControlPlane}, {"key", "k", "somebody"}} {
		if err := s.log.Record(t.Context(), "t", c[0], c[1], c[2], nil); err == nil {
			t.Errorf("%v was recorded", c)
		}
	}
	if len(s.store.records) != 0 {
		t.Errorf("kept: %v", s.store.records)
	}
}

func TestReceiptIsOnceAndWithoutSecrets(t *testing.T) {
	s := newSite(t)
	first := s.run(taskID(0))
	s.run(taskID(1))
	s.record(taskID(0), "late", "leftover.found", Worker, nil)
	again, err := s.log.Receipt(t.Context(), taskID(0))
	if err != nil || !bytes.Equal(first, again) {
		t.Fatalf("the second call gave other bytes (%v)", err)
	}
	for _, secret := range []string{"secret plan", "hunter2", "alice:", "PRIVATE"} {
		if bytes.Contains(first, []byte(secret)) {
			t.Errorf("the receipt holds %q", secret)
		}
	}
	report, err := VerifyReceipt(s.key.Public(), append(first, '\n'))
	if err != nil || report.Err() != nil {
		t.Fatal(err, report.Err())
	}
	b := report.Body
	if b.Task != taskID(0) || b.Repo != "https://git.example/r.git" || b.Records != 5 || len(b.Grants) != 1 || b.Grants[0].Stage != task.Agent || b.Egress.Denied != 2 {
		t.Errorf("body: %+v", b)
	}
	verified(t, s, VerifyOptions{Receipts: [][]byte{first}})
}

func TestReceiptNeedsAnEnd(t *testing.T) {
	s := newSite(t)
	s.store.accounts["t"] = Account{Task: task.Task{ID: "t", State: task.Running}}
	if _, err := s.log.Receipt(t.Context(), "t"); task.ReasonOf(err) != task.InfraInternal {
		t.Errorf("a running task: %v", err)
	}
	if _, err := s.log.Receipt(t.Context(), "other"); task.ReasonOf(err) != task.InputNotFound {
		t.Errorf("no task: %v", err)
	}
}

// TestTheEndIsRecordedBeforeTheRow is the order in which a task is closed:
// record, receipt, row.
func TestTheEndIsRecordedBeforeTheRow(t *testing.T) {
	s := newSite(t)
	id := taskID(0)
	s.store.accounts[id] = Account{Task: task.Task{ID: id, State: task.Running}}
	s.record(id, "n1", KindEnded, ControlPlane, map[string]string{"state": "running"})
	if _, err := s.log.Receipt(t.Context(), id); task.ReasonOf(err) != task.InfraInternal {
		t.Errorf("an end that is none: %v", err)
	}
	s.record(id, "n2", KindEnded, ControlPlane, map[string]any{"state": task.Failed, "reason": task.LimitTime, "attempts": 1})
	raw, err := s.log.Receipt(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	report, err := VerifyReceipt(s.key.Public(), raw)
	if err != nil || report.Err() != nil {
		t.Fatal(err, report.Err())
	}
	if b := report.Body; b.State != task.Failed || b.Reason != task.LimitTime || !b.EndedAt.Equal(s.store.records[1].Time) {
		t.Errorf("body %+v", b)
	}
}

func TestReceiptsAtOnce(t *testing.T) {
	s := newSite(t)
	var wg sync.WaitGroup
	for i := range 12 {
		wg.Go(func() {
			s.begin(taskID(i))
			s.end(taskID(i))
		})
	}
	wg.Wait()
	if report := verified(t, s, VerifyOptions{}); report.Receipts != 12 || report.Records != 60 {
		t.Errorf("%d receipts, %d records", report.Receipts, report.Records)
	}
}

// TestDamagedStoreIsNotBuiltUpon shows that a changed row stops the account.
func TestDamagedStoreIsNotBuiltUpon(t *testing.T) {
	s := newSite(t)
	s.run(taskID(0))
	s.begin(taskID(1))
	s.store.records[len(s.store.records)-1].Kind = "nothing.happened"
	if err := s.log.Record(t.Context(), "t", "k", "kind", ControlPlane, nil); task.ReasonOf(err) != task.InfraStorage {
		t.Errorf("Record: %v", err)
	}
	if _, err := Open(t.Context(), Options{Store: s.store, Key: s.key}); task.ReasonOf(err) != task.InfraStorage {
		t.Errorf("Open: %v", err)
	}
}

func TestOpenRefusesAnotherKey(t *testing.T) {
	s := newSite(t)
	s.run(taskID(0))
	other, err := NewKey(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Options{Store: s.store, Key: other}); task.ReasonOf(err) != task.InfraStorage {
		t.Errorf("got %v", err)
	}
}

func TestKeyFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "keys")
	key, err := NewKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(filepath.Join(dir, "audit.key"))
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(filepath.Join(dir, "audit.key"))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if err := os.Remove(filepath.Join(dir, "audit.pub")); err != nil {
		t.Fatal(err)
	}
	again, err := NewKey(dir)
	if err != nil || again.Public() != key.Public() {
		t.Fatalf("opened again: %v", err)
	}
	public, err := os.ReadFile(filepath.Join(dir, "audit.pub"))
	if err != nil || string(public) != key.Public()+"\n" {
		t.Errorf("audit.pub: %q, %v", public, err)
	}
	var logged bytes.Buffer
	slog.New(slog.NewTextHandler(&logged, nil)).Info("key", "key", key)
	encoded, err := json.Marshal(key)
	if err != nil {
		t.Fatal(err)
	}
	seed := strings.TrimSpace(string(secret))[len("PRIVATE+KEY+"):]
	for _, text := range []string{fmt.Sprint(key), fmt.Sprintf("%+v %#v %x %d %s", key, key, key, key, key), logged.String(), string(encoded)} {
		if strings.Contains(text, seed) || strings.Contains(text, "PRIVATE") {
			t.Errorf("the key shows in %q", text)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 2 {
		t.Errorf("left in the folder: %v, %v", names, err)
	}

	for name, spoil := range map[string]func(dir string) error{
		"readable by others": func(d string) error { return os.Chmod(filepath.Join(d, "audit.key"), 0o640) },
		"damaged":            func(d string) error { return os.WriteFile(filepath.Join(d, "audit.key"), secret[:40], 0o600) },
		"gone":               func(d string) error { return os.Remove(filepath.Join(d, "audit.key")) },
		"a link": func(d string) error {
			return errors.Join(os.Rename(filepath.Join(d, "audit.key"), filepath.Join(d, "k")), os.Symlink("k", filepath.Join(d, "audit.key")))
		},
		"empty":            func(d string) error { return os.WriteFile(filepath.Join(d, "audit.key"), nil, 0o600) },
		"another's public": func(d string) error { return os.WriteFile(filepath.Join(d, "audit.pub"), []byte("x+y+z\n"), 0o644) },
	} {
		dir := t.TempDir()
		if _, err := NewKey(dir); err != nil {
			t.Fatal(err)
		}
		if err := spoil(dir); err != nil {
			t.Fatal(err)
		}
		_, err := NewKey(dir)
		if task.ReasonOf(err) != task.InfraStorage || strings.Contains(err.Error(), string(secret[:40])) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestPublicHalfIsTheNotePackages shows that our derivation agrees with the key
// pairs that the note package makes.
func TestPublicHalfIsTheNotePackages(t *testing.T) {
	for range 50 {
		skey, vkey, err := note.GenerateKey(nil, "cofferdam-0011223344556677")
		if err != nil {
			t.Fatal(err)
		}
		key, err := parseKey(skey)
		if err != nil || key.Public() != vkey {
			t.Fatalf("%v: %s, want %s", err, key.Public(), vkey)
		}
	}
}

// verified exports, verifies and returns the report.
func verified(t *testing.T, s *site, o VerifyOptions) Report {
	t.Helper()
	report, err := VerifyLog(s.key.Public(), bytes.NewReader(export(t, s)), o)
	if err = errors.Join(err, report.Err()); err != nil {
		t.Fatal(err)
	}
	return report
}

func export(t testing.TB, s *site) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := s.log.Export(context.Background(), &out); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
