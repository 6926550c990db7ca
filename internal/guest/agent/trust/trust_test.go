package trust

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	keystore "github.com/pavlo-v-chernykh/keystore-go/v4"
)

func certificate(t *testing.T) []byte {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(7), Subject: pkix.Name{CommonName: "a"}, NotBefore: time.Now(), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

func TestInstall(t *testing.T) {
	authority, public := certificate(t), certificate(t)
	for name, at := range map[string][]string{"nothing": nil, "usual": {Bundle}, "another": {"/etc/pki/tls/certs/ca-bundle.crt"}, "both": {Bundle, "/etc/ssl/cert.pem"}} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for _, path := range at {
				if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
					t.Fatal(err)
				}
				// Without a line end, and with words between, as systems write them.
				if err := os.WriteFile(filepath.Join(root, path), append([]byte("# a name\n"), bytes.TrimSpace(public)...), 0o444); err != nil {
					t.Fatal(err)
				}
			}
			want := 1 + min(len(at), 1)
			for range 2 {
				if err := Install(root, authority); err != nil {
					t.Fatal(err)
				}
				for _, path := range append([]string{Bundle}, at...) {
					text, err := os.ReadFile(filepath.Join(root, path))
					if n := strings.Count(string(text), "BEGIN CERTIFICATE"); n != want || err != nil || !x509.NewCertPool().AppendCertsFromPEM(text) {
						t.Errorf("%s: %d certificates, want %d, %v", path, n, want, err)
					}
				}
			}
			f, err := os.Open(filepath.Join(root, javaStore))
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			store := keystore.New()
			if err := store.Load(f, []byte(javaPassword)); err != nil || len(store.Aliases()) != want {
				t.Errorf("Java's store: %v, %v", store.Aliases(), err)
			}
		})
	}
	for _, garbage := range []string{"", "no certificate", string(authority) + "and more", "-----BEGIN EC PRIVATE KEY-----\nAA==\n-----END EC PRIVATE KEY-----\n"} {
		if err := Install(t.TempDir(), []byte(garbage)); err == nil {
			t.Errorf("trusted: %q", garbage)
		}
	}
}

// The operator's further authorities come with the sandbox's own.
func TestInstallSeveral(t *testing.T) {
	root := t.TempDir()
	own, further := certificate(t), certificate(t)
	if err := Install(root, append(bytes.Clone(own), further...)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{Authority, Bundle} {
		if text, err := os.ReadFile(filepath.Join(root, path)); err != nil || !bytes.Contains(text, own) || !bytes.Contains(text, further) {
			t.Errorf("%s: %q, %v", path, text, err)
		}
	}
}

// Each variable names a file that Install makes.
func TestEnvNamesWhatExists(t *testing.T) {
	root := t.TempDir()
	if err := Install(root, certificate(t)); err != nil {
		t.Fatal(err)
	}
	for _, entry := range Env() {
		_, value, ok := strings.Cut(entry, "=")
		if !ok {
			t.Errorf("%q", entry)
		}
		for word := range strings.FieldsSeq(value) {
			if i := strings.Index(word, "/etc/"); i >= 0 {
				if _, err := os.Stat(filepath.Join(root, word[i:])); err != nil {
					t.Errorf("%s: %v", entry, err)
				}
			}
		}
	}
}
