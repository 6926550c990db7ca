package audit

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"github.com/cofferdam/cofferdam/internal/task"
)

// recordKey is that of the record of a rotation to the key.
func recordKey(public string) string { return "audit.key/" + public }

// RotateKey has another key sign from here on, and returns its public half. What
// was signed before is verified with the old one. That the key changed is a record,
// written before anything is signed by the new key; dir is where NewKey found the
// old one. A process that was killed meanwhile is mended by SettleKey.
func (l *Log) RotateKey(ctx context.Context, dir, by string) (string, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.key
	text, _, err := note.GenerateKey(rand.Reader, old.Origin())
	if err != nil {
		return "", fmt.Errorf("audit key: %w", err)
	}
	next, err := parseKey(text)
	if err != nil {
		return "", err
	}
	next.former = append(old.Former(), old.public)
	path := filepath.Join(dir, nextFile)
	if err := replace(path, text+"\n", 0o600); err != nil {
		return "", keyFailure(path, "can't be written", err)
	}
	if err := l.step("made"); err != nil {
		return "", err
	}
	// Before the record: a key that is rotated is never unknown. One that is in use
	// still may stand there.
	if err := replace(filepath.Join(dir, formerFile), strings.Join(next.former, "\n")+"\n", 0o644); err != nil {
		return "", keyFailure(filepath.Join(dir, formerFile), "can't be written", err)
	}
	if err := l.step("remembered"); err != nil {
		return "", err
	}
	err = l.store.Append(ctx, func(tx Tx) error {
		leaves, err := tx.Leaves()
		if err != nil {
			return err
		}
		r := Record{Key: recordKey(next.public), Kind: KindKeyRotated, SeenBy: ControlPlane, Time: l.now().UTC().Round(0)}
		if r.Facts, err = canonicalFacts(turn{From: old.public, To: next.public, Receipts: leaves, By: by}); err != nil {
			return err
		}
		return appendRecord(tx, r)
	})
	if err != nil {
		return "", err
	}
	l.key = next // whatever becomes of the files: the account says so
	if err := l.step("recorded"); err != nil {
		return "", err
	}
	if err := l.takeKey(dir, next); err != nil {
		return next.public, task.Fail(task.InfraStorage, "the audit key was rotated, and the new one waits in keys/"+nextFile+" for the next start of cofferdamd", err)
	}
	return next.public, nil
}

// takeKey puts the next key's files in place.
func (l *Log) takeKey(dir string, next *Key) error {
	if err := os.Rename(filepath.Join(dir, nextFile), filepath.Join(dir, keyFile)); err != nil {
		return err
	}
	if err := errors.Join(syncDir(dir), l.step("renamed")); err != nil {
		return err
	}
	return replace(filepath.Join(dir, publicFile), next.public+"\n", 0o644)
}

// SettleKey ends a rotation of the key in dir that was broken off: the next key is
// taken when the account says that it signs, and removed when not. Call it before
// NewKey.
func SettleKey(ctx context.Context, dir string, store Store) error {
	path := filepath.Join(dir, nextFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return keyFailure(path, "can't be read", err)
	}
	next, err := parseKey(strings.TrimSuffix(string(raw), "\n"))
	if err != nil {
		return keyFailure(path, "is of a rotation that was broken off, and damaged; restore it from a backup, or remove it if cofferdamd starts without it", nil)
	}
	known := false
	err = store.Append(ctx, func(tx Tx) (err error) {
		known, err = tx.Known("", recordKey(next.public))
		return err
	})
	if err != nil {
		return err
	}
	if !known {
		if err := errors.Join(os.Remove(path), syncDir(dir)); err != nil {
			return keyFailure(path, "can't be removed", err)
		}
		return nil
	}
	if err := errors.Join(os.Rename(path, filepath.Join(dir, keyFile)), syncDir(dir)); err != nil {
		return keyFailure(path, "can't be put in place of "+keyFile, err)
	}
	return nil
}

// formerKeys reads the keys that signed before the key.
func formerKeys(dir string, key *Key) ([]string, error) {
	path := filepath.Join(dir, formerFile)
	raw, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, keyFailure(path, "can't be read", err)
	}
	former := strings.Fields(string(raw))
	former = slices.DeleteFunc(former, func(k string) bool { return k == key.public })
	if len(former) == 0 {
		return nil, nil
	}
	set, err := newKeySet(strings.Join(former, "\n"))
	if err != nil || set.Name() != key.Origin() {
		return nil, keyFailure(path, "is damaged, or of another installation; restore it from a backup", nil)
	}
	return former, nil
}
