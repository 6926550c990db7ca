package audit

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// kept is an installation whose key lies in a folder.
func kept(t *testing.T, dir string, store *memory) *site {
	t.Helper()
	if err := SettleKey(t.Context(), dir, store); err != nil {
		t.Fatal(err)
	}
	key, err := NewKey(dir)
	if err != nil {
		t.Fatal(err)
	}
	return siteWith(t, store, key)
}

// verifies checks a receipt and says what is wrong.
func verifies(t *testing.T, keys string, receipt []byte) string {
	t.Helper()
	report, err := VerifyReceipt(keys, receipt)
	if err != nil {
		t.Fatal(err)
	}
	if err := report.Err(); err != nil {
		return err.Error()
	}
	return ""
}

func TestRotatedKey(t *testing.T) {
	dir, store := t.TempDir(), newMemory()
	s := kept(t, dir, store)
	first := s.log.Key()
	r0 := s.run(taskID(0))
	second, err := s.log.RotateKey(t.Context(), dir, "admin")
	if err != nil || second != s.log.Key() || second == first || !slices.Equal(s.log.Former(), []string{first}) {
		t.Fatalf("%q, %v; the key is %q after %q", second, err, s.log.Key(), s.log.Former())
	}
	r1 := s.run(taskID(1))
	third, err := s.log.RotateKey(t.Context(), dir, "admin")
	if err != nil {
		t.Fatal(err)
	}
	again := kept(t, dir, store)
	if again.log.Key() != third || !slices.Equal(again.log.Former(), []string{first, second}) {
		t.Fatalf("after a restart: %q after %q", again.log.Key(), again.log.Former())
	}
	r2 := again.run(taskID(2))
	all := strings.Join([]string{third, first, second}, "\n")
	for i, c := range []struct {
		receipt []byte
		own     string
	}{{r0, first}, {r1, second}, {r2, third}} {
		for _, key := range []string{first, second, third} {
			if text := verifies(t, key, c.receipt); (text == "") != (key == c.own) || key != c.own && !strings.Contains(text, "it was signed by the key") {
				t.Errorf("receipt %d under %s: %q", i, key, text)
			}
		}
		if text := verifies(t, all, c.receipt); text != "" {
			t.Errorf("receipt %d under all: %s", i, text)
		}
	}
	report, err := VerifyReceipt(all, r1)
	name, _ := nameOf(second)
	if err != nil || !slices.Equal(report.Keys, []string{name}) || report.Checkpoint.Key != name {
		t.Errorf("who signed: %v, %+v, %v", report.Keys, report.Checkpoint, err)
	}
	whole := export(t, again)
	report, err = VerifyLog(all, bytes.NewReader(whole), VerifyOptions{Receipts: [][]byte{r0, r1, r2}, Trusted: nil})
	if err != nil || !report.OK() || len(report.Keys) != 3 {
		t.Errorf("the account: %v, %v", report, err)
	}
	// One key of the three is not enough, and says which is missing.
	report, err = VerifyLog(third, bytes.NewReader(whole), VerifyOptions{})
	if err != nil || report.OK() || !strings.Contains(report.Err().Error(), name) {
		t.Errorf("with one key: %v, %v", report.Err(), err)
	}
	for _, file := range []string{nextFile, ".audit.pub", ".audit.key"} {
		if left, _ := filepath.Glob(filepath.Join(dir, file+"*")); len(left) > 0 {
			t.Errorf("left: %q", left)
		}
	}
	for file, mode := range map[string]os.FileMode{keyFile: 0o600, publicFile: 0o644, formerFile: 0o644} {
		if info, err := os.Stat(filepath.Join(dir, file)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", file, info, err)
		}
	}
}

// TestRotatedKeySignsNothingMore: who stole a key that was rotated can't add to the
// account.
func TestRotatedKeySignsNothingMore(t *testing.T) {
	dir, store := t.TempDir(), newMemory()
	s := kept(t, dir, store)
	stolen := s.key
	s.run(taskID(0))
	if _, err := s.log.RotateKey(t.Context(), dir, "admin"); err != nil {
		t.Fatal(err)
	}
	s.run(taskID(1))
	all := strings.Join(append(s.log.Former(), s.log.Key()), "\n")
	thief := &site{t: t, store: store, key: stolen, log: &Log{store: store, key: stolen, now: time.Now, step: s.log.step}}
	late := thief.run(taskID(2))
	if text := verifies(t, all, late); text != "" {
		t.Fatalf("alone it can't be told: %s", text)
	}
	for name, c := range map[string]struct {
		by   *site
		text string
	}{
		"a receipt":              {s, "receipt of " + taskID(2) + ": wrong-key"},
		"the checkpoint as well": {thief, "the checkpoint at the end: wrong-key"},
	} {
		report, err := VerifyLog(all, bytes.NewReader(export(t, c.by)), VerifyOptions{})
		if err != nil || report.Err() == nil || !strings.Contains(report.Err().Error(), c.text) {
			t.Errorf("%s: %v, %v", name, report.Err(), err)
		}
	}
}

// TestRotationBrokenOff stops at each step, as a kill does, and starts again: one key
// signs, the account says which, and every receipt verifies.
func TestRotationBrokenOff(t *testing.T) {
	for _, step := range []string{"made", "remembered", "recorded", "renamed", ""} {
		dir, store := t.TempDir(), newMemory()
		s := kept(t, dir, store)
		first := s.log.Key()
		r0 := s.run(taskID(0))
		killed := errors.New("killed")
		s.log.step = func(name string) error {
			if name == step {
				return killed
			}
			return nil
		}
		if _, err := s.log.RotateKey(t.Context(), dir, "admin"); (err != nil) != (step != "") {
			t.Fatalf("%s: %v", step, err)
		}
		again := kept(t, dir, store)
		after := step == "recorded" || step == "renamed" || step == ""
		if rotated := again.log.Key() != first; rotated != after {
			t.Errorf("%q: rotated %v", step, rotated)
		}
		if pub, err := os.ReadFile(filepath.Join(dir, publicFile)); err != nil || string(pub) != again.log.Key()+"\n" {
			t.Errorf("%q: %s has %q, %v", step, publicFile, pub, err)
		}
		if _, err := os.Lstat(filepath.Join(dir, nextFile)); err == nil {
			t.Errorf("%q: the next key is still there", step)
		}
		r1 := again.run(taskID(1))
		all := strings.Join(append(again.log.Former(), again.log.Key()), "\n")
		report, err := VerifyLog(all, bytes.NewReader(export(t, again)), VerifyOptions{Receipts: [][]byte{r0, r1}})
		if err != nil || !report.OK() {
			t.Errorf("%q: %v, %v", step, report.Err(), err)
		}
		if _, err := again.log.RotateKey(t.Context(), dir, "admin"); err != nil {
			t.Errorf("%q: again: %v", step, err)
		}
	}
}

func TestKeysThatDoNotGoTogether(t *testing.T) {
	dir, store := t.TempDir(), newMemory()
	s := kept(t, dir, store)
	r0 := s.run(taskID(0))
	other := newSite(t)
	for keys, text := range map[string]string{
		"":                                      "none was given",
		"x":                                     "malformed",
		s.log.Key() + "\n" + other.key.Public(): "of two installations",
	} {
		if _, err := VerifyReceipt(keys, r0); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v", keys, err)
		}
	}
	if _, err := s.log.RotateKey(t.Context(), dir, "admin"); err != nil {
		t.Fatal(err)
	}
	// The account begins under a key that is in no file.
	old := filepath.Join(dir, formerFile)
	text, err := os.ReadFile(old)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string]string{"lost": "", "another's": other.key.Public() + "\n", "noise": "noise\n"} {
		if err := os.WriteFile(old, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		key, err := NewKey(dir)
		if err == nil {
			_, err = Open(t.Context(), Options{Store: store, Key: key})
		}
		if f, ok := errors.AsType[*task.Failure](err); !ok || f.Reason != task.InfraStorage {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := os.WriteFile(old, text, 0o644); err != nil {
		t.Fatal(err)
	}
	kept(t, dir, store)
	if err := os.WriteFile(filepath.Join(dir, nextFile), []byte("noise\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := SettleKey(t.Context(), dir, store); err == nil || strings.Contains(err.Error(), "noise") {
		t.Errorf("a damaged next key: %v", err)
	}
}

// TestRotationsInTheAccountAreChecked: what says that the key changed must fit
// together.
func TestRotationsInTheAccountAreChecked(t *testing.T) {
	dir, store := t.TempDir(), newMemory()
	s := kept(t, dir, store)
	s.run(taskID(0))
	first := s.log.Key()
	second, err := s.log.RotateKey(t.Context(), dir, "admin")
	if err != nil {
		t.Fatal(err)
	}
	other := newSite(t).key.Public()
	for name, c := range map[string]struct {
		facts any
		text  string
	}{
		"a key that was not in use": {turn{From: other, To: second, Receipts: 1}, "was in use"},
		"fewer receipts":            {turn{From: second, To: first, Receipts: 0}, "was in use"},
		"no keys":                   {map[string]any{"from": "x", "to": "y", "receipts": 1}, "does not say which key"},
		"no numbers":                {map[string]any{"from": "x", "to": "y", "receipts": "many"}, "does not say which key"},
	} {
		forged := newMemory()
		forged.records, forged.bundles, forged.byTask, forged.hashes = slices.Clone(store.records), store.bundles, store.byTask, store.hashes
		key, err := NewKey(dir)
		if err != nil {
			t.Fatal(err)
		}
		f := siteWith(t, forged, key)
		f.record("", "forged", KindKeyRotated, ControlPlane, c.facts)
		report, err := VerifyLog(first+"\n"+second, bytes.NewReader(export(t, f)), VerifyOptions{})
		if err != nil || report.Err() == nil || !strings.Contains(report.Err().Error(), c.text) {
			t.Errorf("%s: %v, %v", name, report.Err(), err)
		}
	}
}
