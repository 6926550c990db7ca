package embedded

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// loadToken reads the token clients must show, making one when there is none.
func loadToken(path string) (string, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		b = []byte(rand.Text() + "\n")
		err = writeFile(path, b)
	}
	if err != nil {
		return "", fmt.Errorf("engine token: %w", err)
	}
	token := strings.TrimSpace(string(b))
	if len(token) < 20 {
		return "", fmt.Errorf("engine token: %s holds fewer than 20 characters; remove it to get a new one", path)
	}
	return token, nil
}

// NewBoot returns a fresh boot id.
func NewBoot() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // it never fails: crypto/rand.Read.
	return hex.EncodeToString(b[:])
}

// writeBoot says that the engine serves, and where.
func writeBoot(o Options, address string, inner []string) error {
	b, err := json.MarshalIndent(struct {
		Program   string    `json:"program"`
		PID       int       `json:"pid"`
		Boot      string    `json:"boot"`
		StartedAt time.Time `json:"startedAt"`
		Address   string    `json:"address"`
		Inner     []string  `json:"inner"`
	}{"cofferdam-engine", os.Getpid(), o.Boot, time.Now().UTC(), address, inner}, "", "  ")
	if err != nil {
		return fmt.Errorf("boot.json: %w", err)
	}
	return writeFile(filepath.Join(o.Folder, "boot.json"), append(b, '\n'))
}

// writeFile replaces path at once and durably; readers see the old or the new
// bytes. Only the owner can read it.
func writeFile(path string, b []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(folder string) error {
	d, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
