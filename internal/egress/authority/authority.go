// Package authority makes and keeps the certificate authority of one sandbox,
// under which the gateway answers TLS itself: to refuse readably, and to decide
// requests.
//
// Words. The certificate is trusted inside one sandbox only. Sealed is the
// authority, key included, encrypted with a key that only the gateway has; the
// worker stores it and can't use it. A leaf is a certificate for one name.
//
// Not promised: that a program which trusts only its own list of authorities
// accepts a leaf.
package authority

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"net/netip"
	"sync"
	"time"
)

// ErrSeal says that a sealed authority can't be opened: it was made with
// another key, for another sandbox, or was changed.
var ErrSeal = errors.New("sealed authority can't be opened")

const (
	leavesMax  = 128
	leafLife   = 24 * time.Hour
	renewLeaf  = time.Hour
	lifetime   = 365 * 24 * time.Hour
	clockSlack = time.Hour
)

// Authority signs leaves for one sandbox. Safe for concurrent use.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey

	mu     sync.Mutex
	leaf   *ecdsa.PrivateKey // one key for all leaves: they all stand for the gateway
	leaves map[string]*tls.Certificate
}

// New makes an authority for the sandbox.
func New(sandbox string, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial(),
		Subject:               pkix.Name{CommonName: "Cofferdam gateway, sandbox " + sandbox},
		NotBefore:             now.Add(-clockSlack),
		NotAfter:              now.Add(lifetime),
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		BasicConstraintsValid: true,
		IsCA:                  true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	return load(der, key)
}

func load(der []byte, key *ecdsa.PrivateKey) (*Authority, error) {
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	leaf, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("authority: %w", err)
	}
	return &Authority{cert: cert, key: key, leaf: leaf, leaves: make(map[string]*tls.Certificate)}, nil
}

// PEM is the certificate, to be trusted inside the sandbox.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// Leaf gives a certificate for a name or a literal address.
func (a *Authority) Leaf(name string, now time.Time) (*tls.Certificate, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if c := a.leaves[name]; c != nil && now.Before(c.Leaf.NotAfter.Add(-renewLeaf)) {
		return c, nil
	}
	template := &x509.Certificate{
		SerialNumber: serial(),
		Subject:      pkix.Name{CommonName: "answered by Cofferdam"},
		NotBefore:    now.Add(-clockSlack),
		NotAfter:     now.Add(leafLife),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if addr, err := netip.ParseAddr(name); err == nil {
		template.IPAddresses = append(template.IPAddresses, addr.AsSlice())
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, a.leaf.Public(), a.key)
	if err != nil {
		return nil, fmt.Errorf("leaf for %q: %w", name, err)
	}
	parsed, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("leaf for %q: %w", name, err)
	}
	if len(a.leaves) >= leavesMax {
		clear(a.leaves)
	}
	c := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: a.leaf, Leaf: parsed}
	a.leaves[name] = c
	return c, nil
}

func serial() *big.Int {
	b := make([]byte, 16)
	rand.Read(b)
	b[0] = b[0]&0x7f | 1
	return new(big.Int).SetBytes(b)
}

// Seal encrypts the authority with the gateway's key, for one sandbox.
func (a *Authority) Seal(key []byte, sandbox string) ([]byte, error) {
	aead, err := sealer(key)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalECPrivateKey(a.key)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	plain := append(pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}), a.PEM()...)
	nonce := make([]byte, aead.NonceSize())
	rand.Read(nonce)
	return aead.Seal(nonce, nonce, plain, []byte("cofferdam authority "+sandbox)), nil
}

// Open decrypts what Seal made with the same key for the same sandbox.
func Open(sealed, key []byte, sandbox string) (*Authority, error) {
	aead, err := sealer(key)
	if err != nil {
		return nil, err
	}
	if len(sealed) < aead.NonceSize() {
		return nil, ErrSeal
	}
	nonce, box := sealed[:aead.NonceSize()], sealed[aead.NonceSize():]
	plain, err := aead.Open(nil, nonce, box, []byte("cofferdam authority "+sandbox))
	if err != nil {
		return nil, ErrSeal
	}
	first, rest := pem.Decode(plain)
	second, _ := pem.Decode(rest)
	if first == nil || second == nil {
		return nil, ErrSeal
	}
	private, err := x509.ParseECPrivateKey(first.Bytes)
	if err != nil {
		return nil, ErrSeal
	}
	return load(second.Bytes, private)
}

func sealer(key []byte) (cipher.AEAD, error) {
	sum := sha256.Sum256(key)
	block, err := aes.NewCipher(sum[:])
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("seal: %w", err)
	}
	return aead, nil
}
