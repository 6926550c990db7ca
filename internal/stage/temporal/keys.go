package temporal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cofferdam/cofferdam/internal/task"
)

// maxFormer is how many keys are kept to open what they sealed.
const maxFormer = 16

// sealer is one key.
type sealer struct {
	name string // without telling it
	aead cipher.AEAD
	text string // 64 hex digits
}

func newSealer(text string) (*sealer, error) {
	key, err := hex.DecodeString(text)
	if err != nil || len(key) != 32 {
		return nil, errors.New("does not hold 64 hex digits")
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(append([]byte("cofferdam engine key name\n"), key...))
	return &sealer{name: hex.EncodeToString(sum[:8]), aead: aead, text: text}, nil
}

// keys are what the engine's payloads are sealed with: the first of the file seals,
// and those below it open what they sealed before they were rotated.
type keys struct {
	path string

	mu  sync.RWMutex
	all []*sealer
}

func (k *keys) current() *sealer {
	k.mu.RLock()
	defer k.mu.RUnlock()
	return k.all[0]
}

func (k *keys) named(name string) (*sealer, error) {
	k.mu.RLock()
	defer k.mu.RUnlock()
	for _, s := range k.all {
		if s.name == name {
			return s, nil
		}
	}
	return nil, fmt.Errorf("engine payload: sealed with key %q, this is key %q", name, k.all[0].name)
}

// rotate has a new key seal from here on. The file comes first: what is sealed can
// always be opened.
func (k *keys) rotate() (name string, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	next, err := newSealer(randomKey())
	if err != nil {
		return "", err
	}
	all := append([]*sealer{next}, k.all...)
	all = all[:min(len(all), 1+maxFormer)]
	var text strings.Builder
	for _, s := range all {
		text.WriteString(s.text + "\n")
	}
	if err := replaceKey(k.path, text.String()); err != nil {
		return "", task.Fail(task.InfraStorage, "the engine's key can't be written; it is as it was", err)
	}
	k.all = all
	return next.name, nil
}

// RotateKey has a new key seal what the engine is handed from here on, and names
// it. What was sealed before opens under the keys that are kept below it.
func (e *Engine) RotateKey() (name string, err error) { return e.keys.rotate() }

// KeyName names the key that seals, without telling it.
func (e *Engine) KeyName() string { return e.keys.current().name }

// FormerKeys counts the keys that are kept to open what they sealed.
func (e *Engine) FormerKeys() int {
	e.keys.mu.RLock()
	defer e.keys.mu.RUnlock()
	return len(e.keys.all) - 1
}

// loadKeys reads the file, 64 hex digits a line, making one when there is none.
// Without it a history can't be read: open tasks then need a fresh engine file.
func loadKeys(path string) (*keys, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeKey(path); err != nil {
			return nil, fmt.Errorf("engine key: %w", err)
		}
		b, err = os.ReadFile(path)
	}
	if err != nil {
		return nil, fmt.Errorf("engine key: %w", err)
	}
	k := &keys{path: path}
	for line := range strings.Lines(string(b)) {
		s, err := newSealer(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("engine key: %s %w", path, err)
		}
		k.all = append(k.all, s)
	}
	if len(k.all) == 0 {
		return nil, fmt.Errorf("engine key: %s does not hold 64 hex digits", path)
	}
	return k, nil
}

func randomKey() string {
	var key [32]byte
	_, _ = rand.Read(key[:]) // never fails (crypto/rand since Go 1.24)
	return hex.EncodeToString(key[:])
}

// makeKey writes a fresh key, whole and durable before it has its name, unless
// there is one.
func makeKey(path string) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	f, err := tempKey(path, randomKey()+"\n")
	if err != nil {
		return err
	}
	err = os.Link(f, path)
	if errors.Is(err, fs.ErrExist) {
		err = nil
	}
	return errors.Join(err, os.Remove(f))
}

// replaceKey writes the file whole or not at all.
func replaceKey(path, text string) error {
	f, err := tempKey(path, text)
	if err != nil {
		return err
	}
	if err := os.Rename(f, path); err != nil {
		return errors.Join(err, os.Remove(f))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// tempKey writes a durable file beside path.
func tempKey(path, text string) (string, error) {
	f, err := os.CreateTemp(filepath.Dir(path), ".key.*")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}
