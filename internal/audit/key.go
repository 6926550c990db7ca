package audit

import (
	"crypto/ed25519"
	"crypto/rand"
	"encoding/base64"
	"encoding/hex"
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

// File names of the key in its folder.
const (
	keyFile    = "audit.key" // the note package's signer key, mode 0600
	publicFile = "audit.pub" // the note package's verifier key, to be kept elsewhere
	formerFile = "audit.old" // verifier keys that were rotated, one a line, the oldest first
	nextFile   = "audit.key.new"
)

// Key signs receipts and checkpoints. It prints as [sealed].
type Key struct {
	signer   note.Signer
	verifier note.Verifier
	public   string
	former   []string // verifier keys before it, the oldest first
}

// Public is the verifier key, "name+hash+key", as in audit.pub. Its name is the
// installation's name in every checkpoint.
func (k *Key) Public() string { return k.public }

// Former are the verifier keys that signed before it, the oldest first: what they
// signed is verified with them.
func (k *Key) Former() []string { return slices.Clone(k.former) }

// all is every verifier key, one a line.
func (k *Key) all() string { return strings.Join(append(k.Former(), k.public), "\n") }

// Origin is the installation's name.
func (k *Key) Origin() string { return k.verifier.Name() }

// String hides the key.
func (k *Key) String() string { return "[sealed]" }

// GoString hides the key.
func (k *Key) GoString() string { return "[sealed]" }

// Format hides the key from every verb.
func (k *Key) Format(s fmt.State, _ rune) { fmt.Fprint(s, "[sealed]") }

// MarshalText hides the key from encoders.
func (k *Key) MarshalText() ([]byte, error) { return []byte("[sealed]"), nil }

// NewKey returns the key in dir. Where there is none it makes one, as audit.key
// (mode 0600) and audit.pub; it never replaces a key, nor makes another where
// only the public half is left.
func NewKey(dir string) (*Key, error) {
	path := filepath.Join(dir, keyFile)
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return makeKey(dir)
	}
	if err != nil {
		return nil, keyFailure(path, "can't be read", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return nil, keyFailure(path, "may be read by others; make it a file of mode 0600, and make a new key if others may have read it", nil)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, keyFailure(path, "can't be read", err)
	}
	key, err := parseKey(strings.TrimSuffix(string(raw), "\n"))
	if err != nil {
		return nil, keyFailure(path, "is damaged; restore it from a backup", nil)
	}
	if key.former, err = formerKeys(dir, key); err != nil {
		return nil, err
	}
	return key, key.publish(dir)
}

func makeKey(dir string) (*Key, error) {
	path := filepath.Join(dir, keyFile)
	if _, err := os.Lstat(filepath.Join(dir, publicFile)); err == nil {
		return nil, keyFailure(path, "is gone, but "+publicFile+" is there; put it back, or move both and the database aside to begin a new account", nil)
	}
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails (crypto/rand since Go 1.24)
	skey, _, err := note.GenerateKey(rand.Reader, "cofferdam-"+hex.EncodeToString(id[:]))
	if err != nil {
		return nil, fmt.Errorf("audit key: %w", err)
	}
	key, err := parseKey(skey)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, keyFailure(dir, "can't be made", err)
	}
	if err := writeNew(path, skey+"\n", 0o600); err != nil {
		return nil, keyFailure(path, "can't be written", err)
	}
	return key, key.publish(dir)
}

// publish writes audit.pub unless it is there. Another public key beside the
// private one is refused: somebody verifies with it.
func (k *Key) publish(dir string) error {
	path := filepath.Join(dir, publicFile)
	raw, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := writeNew(path, k.public+"\n", 0o644); err != nil {
			return keyFailure(path, "can't be written", err)
		}
	case err != nil:
		return keyFailure(path, "can't be read", err)
	case slices.Contains(k.former, strings.TrimSuffix(string(raw), "\n")):
		if err := replace(path, k.public+"\n", 0o644); err != nil { // a rotation was broken off
			return keyFailure(path, "can't be written", err)
		}
	case strings.TrimSuffix(string(raw), "\n") != k.public:
		return keyFailure(path, "does not belong to "+keyFile+" beside it; put the right pair back", nil)
	}
	return nil
}

func keyFailure(path, what string, err error) error {
	return task.Fail(task.InfraStorage, "the audit key "+path+" "+what, err)
}

// writeNew writes a file whole or not at all, and never over another.
func writeNew(path, text string, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// replace writes a file whole or not at all, in place of another.
func replace(path, text string, mode fs.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it is renamed
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// parseKey reads a signer key of the note package and derives its public half,
// which that package does not give.
func parseKey(skey string) (*Key, error) {
	signer, err := note.NewSigner(skey)
	if err != nil {
		return nil, errors.New("not an audit key") // never with the text, which is secret
	}
	// "PRIVATE+KEY+" name "+" eight hex digits "+" base64, which may hold a "+".
	prefix := len("PRIVATE+KEY+") + len(signer.Name()) + len("+01234567+")
	raw, err := base64.StdEncoding.DecodeString(skey[min(prefix, len(skey)):])
	if err != nil || len(raw) != 1+ed25519.SeedSize {
		return nil, errors.New("not an audit key")
	}
	private := ed25519.NewKeyFromSeed(raw[1:])
	public, err := note.NewEd25519VerifierKey(signer.Name(), private.Public().(ed25519.PublicKey))
	if err != nil {
		return nil, errors.New("not an audit key")
	}
	verifier, err := note.NewVerifier(public)
	if err != nil || verifier.KeyHash() != signer.KeyHash() {
		return nil, errors.New("not an audit key")
	}
	return &Key{signer: signer, verifier: verifier, public: public}, nil
}
