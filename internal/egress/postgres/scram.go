package postgres

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// The mechanisms of SASL that are spoken (RFC 7677).
const (
	scram     = "SCRAM-SHA-256"
	scramPlus = "SCRAM-SHA-256-PLUS"
)

const (
	saltSize = 16
	// iterationsMin is the least that RFC 7677 §4 lets a server ask for: fewer make
	// the password that a client proves cheap to guess. Clients check it too.
	iterationsMin = 4096
	// iterationsMax bounds what a server may make us compute, to about a second.
	iterationsMax = 1_000_000
	nonceSize     = 24
	nonceMax      = 256
	// bound is how a message says that it proves the server's certificate.
	bound = "p=tls-server-end-point"
)

// Verifier checks a password without holding it. It may be used by many at
// once.
type Verifier struct {
	salt           []byte
	stored, server []byte
}

// NewVerifier makes one with a new salt.
func NewVerifier(password string) (*Verifier, error) {
	salt := make([]byte, saltSize)
	_, _ = rand.Read(salt) // never fails (crypto/rand since Go 1.24)
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterationsMin, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("SCRAM: %w", err)
	}
	stored := sha256.Sum256(sum(salted, "Client Key"))
	return &Verifier{salt: salt, stored: stored[:], server: sum(salted, "Server Key")}, nil
}

func sum(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	_, _ = io.WriteString(h, text)
	return h.Sum(nil)
}

var (
	errScram    = errors.New("not a message of SCRAM")
	errBinding  = errors.New("the channel is not bound as it was offered")
	errPassword = errors.New("the password is another")
)

// serving is the server's side of one exchange.
type serving struct {
	verifier *Verifier
	binding  []byte // of our certificate
	random   io.Reader

	header string // what the client's last message must repeat of its first
	nonce  string
	bare   string // the client's first message without its header
	first  string // our first
}

// begin answers the client's first message.
func (s *serving) begin(mechanism string, in []byte) ([]byte, error) {
	parts := strings.SplitN(string(in), ",", 3)
	if len(parts) != 3 || parts[1] != "" { // no other identity is taken on
		return nil, errScram
	}
	switch flag := parts[0]; {
	case mechanism == scramPlus && flag == bound, mechanism == scram && flag == "n":
	case flag == "y":
		// It could bind, and thinks that we can't: somebody took the offer away.
		return nil, errBinding
	default:
		return nil, errScram
	}
	s.header, s.bare = parts[0]+",,", parts[2]
	// The user is the one of the start-up; servers ignore this one.
	fields := strings.Split(s.bare, ",")
	if len(fields) != 2 || !strings.HasPrefix(fields[0], "n=") {
		return nil, errScram
	}
	nonce, ok := strings.CutPrefix(fields[1], "r=")
	if !ok || !printable(nonce) {
		return nil, errScram
	}
	own, err := newNonce(s.random)
	if err != nil {
		return nil, err
	}
	s.nonce = nonce + own
	s.first = fmt.Sprintf("r=%s,s=%s,i=%d", s.nonce, base64.StdEncoding.EncodeToString(s.verifier.salt), iterationsMin)
	return []byte(s.first), nil
}

// finish judges the client's last message and gives what proves us.
func (s *serving) finish(in []byte) ([]byte, error) {
	without, proof64, ok := strings.Cut(string(in), ",p=")
	if !ok {
		return nil, errScram
	}
	binding, nonce, ok := strings.Cut(without, ",r=")
	header, isHeader := strings.CutPrefix(binding, "c=")
	if !ok || !isHeader || nonce != s.nonce {
		return nil, errScram
	}
	want := []byte(s.header)
	if strings.HasPrefix(s.header, "p=") {
		want = append(want, s.binding...)
	}
	if header != base64.StdEncoding.EncodeToString(want) {
		return nil, errBinding
	}
	proof, err := base64.StdEncoding.Strict().DecodeString(proof64)
	if err != nil || len(proof) != sha256.Size {
		return nil, errScram
	}
	all := s.bare + "," + s.first + "," + without
	clientKey := sum(s.verifier.stored, all)
	for i := range clientKey {
		clientKey[i] ^= proof[i]
	}
	if stored := sha256.Sum256(clientKey); !hmac.Equal(stored[:], s.verifier.stored) {
		return nil, errPassword
	}
	return []byte("v=" + base64.StdEncoding.EncodeToString(sum(s.verifier.server, all))), nil
}

// asking is the client's side of one exchange.
type asking struct {
	binding []byte // of the server's certificate; nil: the channel is not bound
	random  io.Reader

	nonce, bare string
	proof       []byte // the server's, that it must give
}

func (a *asking) mechanism() string {
	if a.binding != nil {
		return scramPlus
	}
	return scram
}

func (a *asking) header() string {
	if a.binding != nil {
		return bound + ",,"
	}
	// Not "y", also where the server offers to bind: the certificate may be one
	// whose hash nobody agrees on, and TLS was verified by us anyway.
	return "n,,"
}

// begin gives the first message.
func (a *asking) begin() ([]byte, error) {
	var err error
	if a.nonce, err = newNonce(a.random); err != nil {
		return nil, err
	}
	a.bare = "n=,r=" + a.nonce
	return []byte(a.header() + a.bare), nil
}

// answer proves the password to the server's first message.
func (a *asking) answer(in []byte, password string) ([]byte, error) {
	fields := strings.Split(string(in), ",")
	if len(fields) != 3 {
		return nil, errScram
	}
	nonce, okNonce := strings.CutPrefix(fields[0], "r=")
	salt64, okSalt := strings.CutPrefix(fields[1], "s=")
	count, okCount := strings.CutPrefix(fields[2], "i=")
	if !okNonce || !okSalt || !okCount || !printable(nonce) || !strings.HasPrefix(nonce, a.nonce) || len(nonce) == len(a.nonce) {
		return nil, errScram
	}
	salt, err := base64.StdEncoding.Strict().DecodeString(salt64)
	if err != nil || len(salt) == 0 {
		return nil, errScram
	}
	iterations, err := strconv.Atoi(count)
	if err != nil || strconv.Itoa(iterations) != count {
		return nil, errScram
	}
	if iterations < iterationsMin || iterations > iterationsMax {
		return nil, fmt.Errorf("%w: %d iterations; taken are %d to %d", errScram, iterations, iterationsMin, iterationsMax)
	}
	salted, err := pbkdf2.Key(sha256.New, password, salt, iterations, sha256.Size)
	if err != nil {
		return nil, fmt.Errorf("SCRAM: %w", err)
	}
	defer clear(salted)
	without := "c=" + base64.StdEncoding.EncodeToString(append([]byte(a.header()), a.binding...)) + ",r=" + nonce
	all := a.bare + "," + string(in) + "," + without
	proof := sum(salted, "Client Key")
	stored := sha256.Sum256(proof)
	signature := sum(stored[:], all)
	for i := range proof {
		proof[i] ^= signature[i]
	}
	a.proof = sum(sum(salted, "Server Key"), all)
	return []byte(without + ",p=" + base64.StdEncoding.EncodeToString(proof)), nil
}

// verify judges the server's last message.
func (a *asking) verify(in []byte) error {
	text, ok := bytes.CutPrefix(in, []byte("v="))
	if !ok {
		return errScram
	}
	proof, err := base64.StdEncoding.Strict().DecodeString(string(text))
	if err != nil || len(a.proof) == 0 || !hmac.Equal(proof, a.proof) {
		return errPassword
	}
	return nil
}

func newNonce(random io.Reader) (string, error) {
	b := make([]byte, nonceSize)
	if _, err := io.ReadFull(random, b); err != nil {
		return "", fmt.Errorf("SCRAM: %w", err)
	}
	return base64.StdEncoding.EncodeToString(b), nil
}

// printable says whether a nonce is one (RFC 5802 §7).
func printable(nonce string) bool {
	for i := range len(nonce) {
		if nonce[i] < '!' || nonce[i] > '~' || nonce[i] == ',' {
			return false
		}
	}
	return nonce != "" && len(nonce) <= nonceMax
}
