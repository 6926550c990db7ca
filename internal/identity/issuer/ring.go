package issuer

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/cofferdam/cofferdam/internal/boot"
)

// The algorithms of keys. Every relying party of OpenID Connect knows RS256.
const (
	RS256 = "RS256"
	ES256 = "ES256"
)

// rsaBits is the size of an RSA key: some clouds take no other.
const rsaBits = 2048

// key is one key of the file. A retired one has no private part.
type key struct {
	ID      string    `json:"kid"`
	Alg     string    `json:"alg"`
	Private []byte    `json:"private,omitempty"` // PKCS #8
	Public  []byte    `json:"public"`            // PKIX
	Made    time.Time `json:"made"`
	From    time.Time `json:"from"`           // it signs from here on
	Until   time.Time `json:"until,omitzero"` // it is published until then; zero: no end is set
}

// ring is the keys in the order in which they sign.
type ring struct {
	Version int   `json:"version"`
	Keys    []key `json:"keys"`
}

const ringVersion = 1

// makeKey makes a key that signs from a moment on.
func makeKey(alg string, now, from time.Time) (key, error) {
	var private crypto.Signer
	var err error
	switch alg {
	case RS256:
		private, err = rsa.GenerateKey(rand.Reader, rsaBits)
	case ES256:
		private, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	default:
		return key{}, fmt.Errorf("%q is not RS256 or ES256", alg)
	}
	if err != nil {
		return key{}, err
	}
	k := key{Alg: alg, Made: now, From: from}
	if k.Private, err = x509.MarshalPKCS8PrivateKey(private); err != nil {
		return key{}, err
	}
	if k.Public, err = x509.MarshalPKIXPublicKey(private.Public()); err != nil {
		return key{}, err
	}
	// Its name follows from it (RFC 7638), so that it can't be given to another.
	sum, err := (&jose.JSONWebKey{Key: private.Public()}).Thumbprint(crypto.SHA256)
	k.ID = base64.RawURLEncoding.EncodeToString(sum)
	return k, err
}

// public is the key as it is published.
func (k key) public() (jose.JSONWebKey, error) {
	public, err := x509.ParsePKIXPublicKey(k.Public)
	if err != nil {
		return jose.JSONWebKey{}, fmt.Errorf("key %q: %w", k.ID, err)
	}
	return jose.JSONWebKey{Key: public, KeyID: k.ID, Algorithm: k.Alg, Use: "sig"}, nil
}

// current is the key that signs now: the last one whose time has come. Where the
// clock was set back behind all of them, it is the first that still can.
func (r ring) current(now time.Time) (key, bool) {
	for _, k := range slices.Backward(r.Keys) {
		if len(k.Private) > 0 && !now.Before(k.From) {
			return k, true
		}
	}
	for _, k := range r.Keys {
		if len(k.Private) > 0 {
			return k, true
		}
	}
	return key{}, false
}

// next is the key that is published and does not sign yet.
func (r ring) next(now time.Time) (key, bool) {
	if n := len(r.Keys); n > 1 && now.Before(r.Keys[n-1].From) {
		return r.Keys[n-1], true
	}
	return key{}, false
}

// advance is the ring as time makes it: keys whose tokens have all ended are
// forgotten, and private parts that sign no more are too.
func (r ring) advance(now time.Time) (ring, bool) {
	out := ring{Version: ringVersion}
	signs, _ := r.current(now)
	changed, passed := false, false
	for _, k := range slices.Backward(r.Keys) {
		if !k.Until.IsZero() && !now.Before(k.Until) && k.ID != signs.ID {
			changed = true
			continue
		}
		if passed && len(k.Private) > 0 {
			k.Private, changed = nil, true
		}
		passed = passed || k.ID == signs.ID && !now.Before(k.From)
		out.Keys = append(out.Keys, k)
	}
	slices.Reverse(out.Keys)
	return out, changed
}

// rotate adds a key that signs from a moment on; the one before is published
// until every token that it may sign has ended.
func (r ring) rotate(k key, overlap time.Duration) ring {
	out := ring{Version: ringVersion, Keys: slices.Clone(r.Keys)}
	for i := range out.Keys {
		if out.Keys[i].Until.IsZero() {
			out.Keys[i].Until = k.From.Add(overlap)
		}
	}
	out.Keys = append(out.Keys, k)
	return out
}

// readRing reads the file strictly.
func readRing(path string) (ring, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return ring{}, err
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return ring{}, errors.New("must be a regular file that nobody but its owner can read (mode 0600)")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return ring{}, err
	}
	var r ring
	if err := json.Unmarshal(text, &r); err != nil {
		return ring{}, errors.New("is not a file of keys") // an error of JSON may quote it
	}
	return r, r.check()
}

// check says whether the ring can be used.
func (r ring) check() error {
	if r.Version != ringVersion {
		return errors.New("is of a version that this program does not know")
	}
	ids := map[string]bool{}
	for i, k := range r.Keys {
		public, err := k.public()
		if err != nil {
			return fmt.Errorf("key %d can't be read", i)
		}
		sum, err := public.Thumbprint(crypto.SHA256)
		if err != nil || base64.RawURLEncoding.EncodeToString(sum) != k.ID || ids[k.ID] || !fits(public.Key, k.Alg) {
			return fmt.Errorf("key %d is not the one it says", i)
		}
		ids[k.ID] = true
		if len(k.Private) == 0 {
			continue
		}
		private, err := k.private()
		if err != nil || !equal(private.Public(), public.Key) {
			return fmt.Errorf("key %d: its private part does not belong to it", i)
		}
	}
	if n := len(r.Keys); n == 0 || len(r.Keys[n-1].Private) == 0 {
		return errors.New("has no key that could sign")
	}
	return nil
}

func (k key) private() (crypto.Signer, error) {
	private, err := x509.ParsePKCS8PrivateKey(k.Private)
	if err != nil {
		return nil, errors.New("can't be read")
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return nil, errors.New("can't sign")
	}
	return signer, nil
}

func fits(public any, alg string) bool {
	switch k := public.(type) {
	case *rsa.PublicKey:
		return alg == RS256 && k.N.BitLen() >= rsaBits
	case *ecdsa.PublicKey:
		return alg == ES256 && k.Curve == elliptic.P256()
	}
	return false
}

func equal(a, b any) bool {
	k, ok := a.(interface{ Equal(crypto.PublicKey) bool })
	return ok && k.Equal(b)
}

// write puts the ring in place of the file.
func (r ring) write(path string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return boot.WriteFile(path, append(text, '\n'))
}

// loadRing reads the ring, and makes one where there is none.
func loadRing(path string, now time.Time) (ring, error) {
	r, err := readRing(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return r, err
	}
	k, err := makeKey(RS256, now, now)
	if err != nil {
		return ring{}, err
	}
	r = ring{Version: ringVersion, Keys: []key{k}}
	return r, r.write(path)
}
