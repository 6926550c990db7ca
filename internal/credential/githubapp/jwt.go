package githubapp

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"time"

	"github.com/cofferdam/cofferdam/internal/task"
)

// The times of an App's own token, which GitHub wants not to be from the future
// and to last ten minutes at most.
const (
	early = time.Minute
	life  = 9 * time.Minute
)

// parseKey reads an App's private key. Errors hold nothing of it.
func parseKey(text task.Secret) (*rsa.PrivateKey, error) {
	block, _ := pem.Decode([]byte(text.Reveal()))
	if block == nil {
		return nil, errors.New("not PEM")
	}
	if k, err := x509.ParsePKCS1PrivateKey(block.Bytes); err == nil {
		return k, nil
	}
	k, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("not a private key")
	}
	r, ok := k.(*rsa.PrivateKey)
	if !ok {
		return nil, errors.New("not an RSA key")
	}
	return r, nil
}

// appToken signs what says that we are the App (RFC 7519, RS256).
func appToken(k *rsa.PrivateKey, app string, now time.Time) (task.Secret, error) {
	part := func(v any) (string, error) {
		text, err := json.Marshal(v)
		return base64.RawURLEncoding.EncodeToString(text), err
	}
	head, err := part(map[string]string{"alg": "RS256", "typ": "JWT"})
	if err != nil {
		return task.Secret{}, err
	}
	claims, err := part(map[string]any{"iss": app, "iat": now.Add(-early).Unix(), "exp": now.Add(life).Unix()})
	if err != nil {
		return task.Secret{}, err
	}
	sum := sha256.Sum256([]byte(head + "." + claims))
	sig, err := rsa.SignPKCS1v15(rand.Reader, k, crypto.SHA256, sum[:])
	if err != nil {
		return task.Secret{}, err
	}
	return task.NewSecret(head + "." + claims + "." + base64.RawURLEncoding.EncodeToString(sig)), nil
}
