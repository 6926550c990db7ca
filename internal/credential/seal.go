package credential

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/cofferdam/cofferdam/internal/task"
)

const (
	keyBytes    = 32
	keyIDBytes  = 8
	sealVersion = 1
	headBytes   = 1 + keyIDBytes
)

// key seals and opens values.
type key struct {
	id   [keyIDBytes]byte
	aead cipher.AEAD
}

// errNoKey says that there is no key file.
var errNoKey = errors.New("no key file")

// readKey reads a key file: 64 hex digits, readable by its owner only.
func readKey(path string) (*key, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errNoKey
	}
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, errors.New("must be a regular file that nobody but its owner can read (mode 0600)")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	raw := make([]byte, keyBytes)
	if len(text) != 2*keyBytes+1 || text[2*keyBytes] != '\n' {
		return nil, errors.New("is not a key: 64 hex digits and a newline")
	}
	if _, err := hex.Decode(raw, text[:2*keyBytes]); err != nil {
		return nil, errors.New("is not a key: 64 hex digits and a newline")
	}
	return newKey(raw)
}

func newKey(raw []byte) (*key, error) {
	derive := func(info string, n int) ([]byte, error) { return hkdf.Key(sha256.New, raw, nil, info, n) }
	id, err := derive("cofferdam vault 1 key id", keyIDBytes)
	if err != nil {
		return nil, err
	}
	secret, err := derive("cofferdam vault 1 values", keyBytes)
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(secret)
	if err != nil {
		return nil, err
	}
	k := &key{id: [keyIDBytes]byte(id)}
	k.aead, err = cipher.NewGCMWithRandomNonce(block)
	return k, err
}

// makeKey writes a new key file: whole or not at all.
func makeKey(path string) (*key, error) {
	raw := make([]byte, keyBytes)
	_, _ = rand.Read(raw)                                   // never fails (crypto/rand since Go 1.24)
	f, err := os.CreateTemp(filepath.Dir(path), ".vault-*") // mode 0600
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already when all went well
	_, err = f.WriteString(hex.EncodeToString(raw) + "\n")
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	// A link, unlike a rename, never replaces a key that came meanwhile.
	if err := os.Link(f.Name(), path); err != nil {
		return nil, err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return nil, err
	}
	return newKey(raw)
}

// bound is what a sealed value is tied to.
func bound(c task.Credential) ([]byte, error) {
	return json.Marshal(struct {
		Version              int
		ID, Name, Owner      string
		Shared               bool
		Kind, Header, Prefix string
		Hosts                []string
		Ports                []uint16
		Methods, Paths       []string
		Env, Shape           string
		Settings             map[string]string `json:",omitempty"` // absent in what was sealed before there were any
	}{
		sealVersion, c.ID, c.Name, c.Owner, c.Shared, c.Kind, c.Header, c.Prefix,
		some(c.Hosts), some(c.Ports), some(c.Methods), some(c.Paths), c.Env, c.Shape, c.Settings,
	})
}

// some makes nil and empty lists the same.
func some[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// seal gives version, key id, nonce and ciphertext.
func (k *key) seal(c task.Credential, value task.Secret) ([]byte, error) {
	ad, err := bound(c)
	if err != nil {
		return nil, err
	}
	return k.sealWith(ad, value), nil
}

func (k *key) sealWith(ad []byte, value task.Secret) []byte {
	out := append([]byte{sealVersion}, k.id[:]...)
	return k.aead.Seal(out, nil, []byte(value.Reveal()), ad) //nolint:gosec // NewGCMWithRandomNonce makes the nonce and wants none
}

// open undoes seal. Every error is a *task.Failure with task.InfraVault.
func (k *key) open(c task.Credential, sealed []byte) (task.Secret, error) {
	ad, err := bound(c)
	if err != nil {
		return task.Secret{}, task.Fail(task.InfraVault, fmt.Sprintf("credential %q: its binding can't be encoded", c.Name), nil)
	}
	return k.openWith(ad, c, sealed)
}

func (k *key) openWith(ad []byte, c task.Credential, sealed []byte) (task.Secret, error) {
	fault := func(text string) (task.Secret, error) {
		return task.Secret{}, task.Fail(task.InfraVault, fmt.Sprintf("credential %q: %s", c.Name, text), nil)
	}
	if len(sealed) < headBytes || sealed[0] != sealVersion {
		return fault("its row holds no sealed value that this program knows; remove the credential and add it again")
	}
	if subtle.ConstantTimeCompare(sealed[1:headBytes], k.id[:]) != 1 {
		return fault("its value was sealed under another vault key than the one in keys/vault.key; put the right key file back, or remove the credential and add it again")
	}
	value, err := k.aead.Open(nil, nil, sealed[headBytes:], ad)
	if err != nil {
		return fault("its row was altered: the value does not belong to this name and binding; find out who changed the database, then remove the credential and add it again")
	}
	return task.NewSecret(string(value)), nil
}
