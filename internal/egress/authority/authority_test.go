package authority

import (
	"bytes"
	"crypto/x509"
	"errors"
	"testing"
	"time"
)

func TestLeafIsTrustedUnderTheAuthority(t *testing.T) {
	now := time.Now()
	a, err := New("sb-aaaaaaaaaaaaaaaa", now)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(a.PEM()) {
		t.Fatal("the PEM holds no certificate")
	}
	for _, name := range []string{"example.com", "192.0.2.1", "fd00::1", "a"} {
		leaf, err := a.Leaf(name, now)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := leaf.Leaf.Verify(x509.VerifyOptions{Roots: roots, DNSName: name, CurrentTime: now}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := leaf.Leaf.VerifyHostname("other.test"); err == nil {
			t.Errorf("the leaf of %s is valid for other.test", name)
		}
		again, _ := a.Leaf(name, now)
		if again != leaf {
			t.Errorf("%s: made twice", name)
		}
		later, _ := a.Leaf(name, now.Add(leafLife))
		if later == leaf {
			t.Errorf("%s: an expired leaf is given again", name)
		}
	}
}

func TestSealed(t *testing.T) {
	key, id := []byte("the gateway's key"), "sb-aaaaaaaaaaaaaaaa"
	a, err := New(id, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := a.Seal(key, id)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(sealed, []byte("PRIVATE")) {
		t.Error("the key is readable")
	}
	b, err := Open(sealed, key, id)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(a.PEM(), b.PEM()) || !a.key.Equal(b.key) {
		t.Error("another authority came out")
	}
	changed := bytes.Clone(sealed)
	changed[len(changed)-1] ^= 1
	for what, try := range map[string]func() (*Authority, error){
		"another key":     func() (*Authority, error) { return Open(sealed, []byte("k"), id) },
		"another sandbox": func() (*Authority, error) { return Open(sealed, key, "sb-bbbbbbbbbbbbbbbb") },
		"changed":         func() (*Authority, error) { return Open(changed, key, id) },
		"empty":           func() (*Authority, error) { return Open(nil, key, id) },
	} {
		if _, err := try(); !errors.Is(err, ErrSeal) {
			t.Errorf("%s: %v, want ErrSeal", what, err)
		}
	}
}
