package audit

import (
	"errors"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// maxKeys bounds how many keys of one installation are taken.
const maxKeys = 256

// keySet is the public keys of one installation: the one that signs, and those
// that signed before it was rotated.
type keySet struct{ all []note.Verifier }

// newKeySet reads verifier keys as they stand in audit.pub and audit.old, one a
// line. All must be of one installation.
func newKeySet(vkeys string) (*keySet, error) {
	k := &keySet{}
	for _, text := range strings.Fields(vkeys) {
		v, err := note.NewVerifier(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("audit public key: %w", err)
		case len(k.all) > 0 && v.Name() != k.all[0].Name():
			return nil, fmt.Errorf("audit public key: the keys are of two installations, %q and %q; give those of one", k.all[0].Name(), v.Name())
		case k.find(v.Name(), v.KeyHash()) != nil:
			continue
		case len(k.all) == maxKeys:
			return nil, fmt.Errorf("audit public key: more than %d keys", maxKeys)
		}
		k.all = append(k.all, v)
	}
	if len(k.all) == 0 {
		return nil, errors.New("audit public key: none was given")
	}
	return k, nil
}

// Name is the installation's.
func (k *keySet) Name() string { return k.all[0].Name() }

// find is the key of that name and hash; nil: it is not in the set.
func (k *keySet) find(name string, hash uint32) note.Verifier {
	for _, v := range k.all {
		if v.Name() == name && v.KeyHash() == hash {
			return v
		}
	}
	return nil
}

// String names the keys, for findings.
func (k *keySet) String() string {
	names := make([]string, 0, len(k.all))
	for _, v := range k.all {
		names = append(names, keyName(v.KeyHash()))
	}
	return fmt.Sprintf("%q (%s)", k.Name(), strings.Join(names, ", "))
}

// keyName is how a key is told from others of its installation.
func keyName(hash uint32) string { return fmt.Sprintf("%08x", hash) }

// nameOf is the keyName of a verifier key as text.
func nameOf(vkey string) (string, bool) {
	v, err := note.NewVerifier(vkey)
	if err != nil {
		return "", false
	}
	return keyName(v.KeyHash()), true
}

// NameOf is how a verifier key is told from others of its installation: its hash,
// as it stands in reports; empty: it is no key.
func NameOf(vkey string) string {
	name, _ := nameOf(vkey)
	return name
}
