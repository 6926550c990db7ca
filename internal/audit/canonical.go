package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/gowebpki/jcs"

	"github.com/cofferdam/cofferdam/internal/task"
)

// maxExact is the largest integer that canonical JSON keeps exactly: RFC 8785
// numbers are IEEE 754 doubles.
const maxExact = 1<<53 - 1

// canonical returns the RFC 8785 form of v.
func canonical(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	out, err := jcs.Transform(raw)
	if err != nil {
		return nil, fmt.Errorf("canonical form: %w", err)
	}
	return out, nil
}

// decodeCanonical reads raw into v and refuses everything that is not the one
// canonical spelling of a v: unknown and duplicate members, other letter case,
// white space, other escapes, trailing bytes, inexact numbers.
func decodeCanonical(raw []byte, v any) error {
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return fmt.Errorf("not the expected JSON: %w", err)
	}
	again, err := canonical(v)
	if err != nil {
		return err
	}
	if !bytes.Equal(again, raw) {
		return errors.New("not in canonical form (RFC 8785): changed after it was written, or not written by cofferdam")
	}
	return nil
}

// digest hashes data for one purpose; purposes never share a hash.
func digest(purpose string, data []byte) task.Digest {
	h := sha256.New()
	io.WriteString(h, "cofferdam "+purpose+"\x00") //nolint:errcheck // a hash never fails
	h.Write(data)
	return task.Digest("sha256:" + hex.EncodeToString(h.Sum(nil)))
}

// validDigest says whether d is "sha256:" and 64 lowercase hex digits.
func validDigest(d task.Digest) bool {
	h, ok := strings.CutPrefix(string(d), "sha256:")
	if !ok || len(h) != 64 {
		return false
	}
	for _, c := range []byte(h) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}

// SpecDigest names what was asked for, the prompt included, without saying it.
// It is the SHA-256 of the canonical JSON of the task's spec.
func SpecDigest(spec task.Spec) (task.Digest, error) {
	raw, err := canonical(spec)
	if err != nil {
		return "", fmt.Errorf("digest of the request: %w", err)
	}
	return digest("spec v1", raw), nil
}

// canonicalFacts returns the canonical form of a record's facts. It refuses
// what could not be verified later or must not be in a receipt: numbers that
// canonical JSON would round, and members that by their name hold a prompt or
// a secret.
func canonicalFacts(facts any) (json.RawMessage, error) {
	if facts == nil {
		return json.RawMessage(`{}`), nil
	}
	raw, err := json.Marshal(facts)
	if err != nil {
		return nil, fmt.Errorf("facts: %w", err)
	}
	if len(raw) == 0 || raw[0] != '{' {
		return nil, errors.New("facts: not a JSON object")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	var tree any
	if err := dec.Decode(&tree); err != nil {
		return nil, fmt.Errorf("facts: %w", err)
	}
	if err := checkFacts(tree); err != nil {
		return nil, err
	}
	out, err := jcs.Transform(raw)
	if err != nil {
		return nil, fmt.Errorf("facts: %w", err)
	}
	return out, nil
}

func checkFacts(v any) error {
	switch v := v.(type) {
	case map[string]any:
		for name, member := range v {
			if forbiddenFact(name) {
				return fmt.Errorf("facts: a member named %q is not recorded; record its digest", name)
			}
			if err := checkFacts(member); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range v {
			if err := checkFacts(e); err != nil {
				return err
			}
		}
	case json.Number:
		if strings.ContainsAny(v.String(), ".eE") {
			return nil
		}
		n, err := strconv.ParseInt(v.String(), 10, 64)
		if err != nil || n > maxExact || n < -maxExact {
			return fmt.Errorf("facts: the number %s is too large to be kept exactly; write it as text", v)
		}
	}
	return nil
}

// forbiddenFact names members that would put a prompt or a secret into a
// receipt, which is made to be handed on.
func forbiddenFact(name string) bool {
	switch strings.ToLower(name) {
	case "prompt", "password", "secret", "token", "authorization", "privatekey", "cookie":
		return true
	}
	return false
}
