// Package seal seals values under the vault's key: AES-256-GCM, tied to what each
// is for, so that one that was moved or whose binding was altered does not open.
//
// Words. A key is a file of 64 hex digits. Its id follows from it and stands before
// everything it sealed. The next key is a file beside it that waits to take its
// place: it does when what was sealed is on record as sealed anew, and is gone
// otherwise (Settle).
//
// Not promised: that a value is secret from who has both its row and the key.
package seal

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

// Key seals and opens values.
type Key struct {
	id   [keyIDBytes]byte
	aead cipher.AEAD
}

// ErrNoKey says that there is no key file.
var ErrNoKey = errors.New("no key file")

// Read reads a key file: 64 hex digits, readable by its owner only.
func Read(path string) (*Key, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, ErrNoKey
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

func newKey(raw []byte) (*Key, error) {
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
	k := &Key{id: [keyIDBytes]byte(id)}
	k.aead, err = cipher.NewGCMWithRandomNonce(block)
	return k, err
}

// Make writes a new key file: whole or not at all, and never over another.
func Make(path string) (*Key, error) {
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
	if err := syncFolder(path); err != nil {
		return nil, err
	}
	return newKey(raw)
}

// Bound is what the value of a credential is tied to.
func Bound(c task.Credential) ([]byte, error) {
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

// Seal gives version, key id, nonce and ciphertext. bound is what the value is tied
// to.
func (k *Key) Seal(bound []byte, value task.Secret) []byte {
	out := append([]byte{sealVersion}, k.id[:]...)
	return k.aead.Seal(out, nil, []byte(value.Reveal()), bound) //nolint:gosec // NewGCMWithRandomNonce makes the nonce and wants none
}

// ID names the key, without telling it.
func (k *Key) ID() string { return hex.EncodeToString(k.id[:]) }

// Sealed says whether it was this key that sealed.
func (k *Key) Sealed(sealed []byte) bool {
	return len(sealed) >= headBytes && sealed[0] == sealVersion && subtle.ConstantTimeCompare(sealed[1:headBytes], k.id[:]) == 1
}

// Open undoes Seal for the credential c, which errors name. Every error is a
// *task.Failure with task.InfraVault.
func (k *Key) Open(bound []byte, c task.Credential, sealed []byte) (task.Secret, error) {
	fault := func(text string) (task.Secret, error) {
		return task.Secret{}, task.Fail(task.InfraVault, fmt.Sprintf("credential %q: %s", c.Name, text), nil)
	}
	if len(sealed) < headBytes || sealed[0] != sealVersion {
		return fault("its row holds no sealed value that this program knows; remove the credential and add it again")
	}
	if !k.Sealed(sealed) {
		return fault("its value was sealed under another vault key than the one in keys/vault.key; put the right key file back, or remove the credential and add it again")
	}
	value, err := k.aead.Open(nil, nil, sealed[headBytes:], bound)
	if err != nil {
		return fault("its row was altered: the value does not belong to this name and binding; find out who changed the database, then remove the credential and add it again")
	}
	return task.NewSecret(string(value)), nil
}
